/* Decoding: the decoder's steps turn the spellings of tokens into text. The types and the order of
 * steps are in steps.h. No state of its own. */
#include "nn/text/steps.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"

/* Adds the text written since `begin` as a piece. */
static void
add_written(exo_pieces *out, size_t begin)
{
    exo_pieces_add(out, begin, out->own.length - begin, -1, false);
}

static void
fuse(const exo_pieces *in, exo_pieces *out)
{
    for (size_t i = 0; i < in->count; i++)
        exo_text_add_bytes(&out->own, in->text + in->items[i].begin, in->items[i].length);
    add_written(out, 0);
}

/* Adds the bytes for which a token's characters stand; the token itself, if a character stands for
 * no byte. */
static void
add_unbyted(const char *text, size_t size, exo_text *out)
{
    size_t before = out->length;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += exo_utf8_next(text + at, size - at, &code);
        int byte = exo_character_byte(code);
        if (byte < 0) {
            out->length = before;
            exo_text_add_bytes(out, text, size);
            return;
        }
        char c = (char)byte;
        exo_text_add_bytes(out, &c, 1);
    }
}

static void
unbytes(const exo_pieces *in, exo_pieces *out)
{
    exo_text raw = {0};
    for (size_t i = 0; i < in->count; i++)
        add_unbyted(in->text + in->items[i].begin, in->items[i].length, &raw);
    if (raw.length)
        exo_utf8_lossy(&out->own, raw.data, raw.length);
    out->own.failed |= raw.failed;
    exo_free(raw.data);
    add_written(out, 0);
}

static int
hex_digit(char c)
{
    const char *digits = "0123456789abcdef",
               *digit = strchr(digits, c | ('A' <= c && c <= 'F' ? 0x20 : 0));
    return c && digit ? (int)(digit - digits) : -1;
}

/* The byte that "<0xE2>" stands for, or -1. */
static int
fallback_byte(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Ends a run of bytes: one piece if they are valid UTF-8, else a piece with U+FFFD for each
 * byte. */
static void
end_run(exo_text *run, exo_pieces *out)
{
    if (run->length && exo_utf8_valid(run->data, run->length) == run->length) {
        size_t begin = out->own.length;
        exo_text_add_bytes(&out->own, run->data, run->length);
        add_written(out, begin);
    } else {
        for (size_t i = 0; i < run->length; i++) {
            size_t begin = out->own.length;
            exo_text_add_bytes(&out->own, EXO_UTF8_LOST, strlen(EXO_UTF8_LOST));
            add_written(out, begin);
        }
    }
    run->length = 0;
}

static void
byte_fallback(const exo_pieces *in, exo_pieces *out)
{
    exo_text run = {0};
    for (size_t i = 0; i < in->count; i++) {
        const char *text = in->text + in->items[i].begin;
        int byte = fallback_byte(text, in->items[i].length);
        if (byte >= 0) {
            char c = (char)byte;
            exo_text_add_bytes(&run, &c, 1);
            continue;
        }
        end_run(&run, out);
        size_t begin = out->own.length;
        exo_text_add_bytes(&out->own, text, in->items[i].length);
        add_written(out, begin);
    }
    end_run(&run, out);
    out->own.failed |= run.failed;
    exo_free(run.data);
}

/* Removes `content`, one character, from the ends of each piece: up to `start` and `stop` times. */
static void
strip(const exo_step *step, const exo_pieces *in, exo_pieces *out)
{
    size_t length = strlen(step->content);
    for (size_t i = 0; i < in->count; i++) {
        const char *text = in->text + in->items[i].begin;
        size_t size = in->items[i].length, begin = out->own.length;
        for (size_t k = 0;
             k < step->start && size >= length && memcmp(text, step->content, length) == 0; k++) {
            text += length;
            size -= length;
        }
        for (size_t k = 0; k < step->stop && size >= length &&
                           memcmp(text + size - length, step->content, length) == 0;
             k++)
            size -= length;
        exo_text_add_bytes(&out->own, text, size);
        add_written(out, begin);
    }
}

static void
metaspace(const exo_step *step, const exo_pieces *in, exo_pieces *out)
{
    size_t length = strlen(step->content);
    for (size_t i = 0; i < in->count; i++) {
        const char *text = in->text + in->items[i].begin, *end = text + in->items[i].length, *hit;
        size_t begin = out->own.length;
        while (text < end && (hit = memmem(text, (size_t)(end - text), step->content, length))) {
            exo_text_add_bytes(&out->own, text, (size_t)(hit - text));
            if (i > 0 || !step->prefix)
                exo_text_add_bytes(&out->own, " ", 1);
            text = hit + length;
        }
        exo_text_add_bytes(&out->own, text, (size_t)(end - text));
        add_written(out, begin);
    }
}

static exo_status
replace(const exo_step *step, const exo_pieces *in, exo_pieces *out, exo_err *err)
{
    exo_matcher matcher = {0};
    exo_status st = exo_matcher_open(&matcher, step->pattern, err);
    for (size_t i = 0; i < in->count && st == EXO_OK; i++) {
        size_t begin = out->own.length;
        bool first = false;
        st = exo_step_transform(step, &matcher, in->text + in->items[i].begin, in->items[i].length,
                                &first, &out->own, err);
        add_written(out, begin);
    }
    exo_matcher_close(&matcher);
    return st;
}

void
exo_steps_token_bytes(const exo_steps *steps, const char *token, size_t size, exo_text *out)
{
    int byte = fallback_byte(token, size);
    for (size_t i = 0; i < steps->count; i++) {
        if (steps->items[i].kind == EXO_STEP_UNBYTES) {
            add_unbyted(token, size, out);
            return;
        }
        if (steps->items[i].kind == EXO_STEP_BYTE_FALLBACK && byte >= 0) {
            exo_text_add_bytes(out, &(char){(char)byte}, 1);
            return;
        }
    }
    exo_text_add_bytes(out, token, size);
}

exo_status
exo_steps_decode(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare, exo_err *err)
{
    exo_status st = EXO_OK;
    pieces->own.most = spare->own.most = exo_pieces_most(exo_pieces_size(pieces));
    for (size_t i = 0; i < steps->count && st == EXO_OK; i++) {
        const exo_step *step = &steps->items[i];
        exo_pieces_clear(spare);
        switch (step->kind) {
        case EXO_STEP_UNBYTES:
            unbytes(pieces, spare);
            break;
        case EXO_STEP_BYTE_FALLBACK:
            byte_fallback(pieces, spare);
            break;
        case EXO_STEP_FUSE:
            fuse(pieces, spare);
            break;
        case EXO_STEP_STRIP:
            strip(step, pieces, spare);
            break;
        case EXO_STEP_METASPACE:
            metaspace(step, pieces, spare);
            break;
        default:
            st = replace(step, pieces, spare, err);
            break;
        }
        if (st == EXO_OK)
            st = exo_pieces_finish(spare, err);
        exo_pieces given = *pieces;
        *pieces = *spare;
        *spare = given;
    }
    return st;
}
