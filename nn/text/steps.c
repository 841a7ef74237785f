/* Steps from text to text, and lists of steps. steps.h has the owner. Read next: split.c, which
 * splits text; decode.c. */
#include "nn/text/steps.h"

#include <errno.h>
#include <string.h>

#include <unicase.h>
#include <uninorm.h>

#include <exogym/memory.h>

#include "base/utf8.h"

void
exo_steps_release(exo_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        exo_pattern_free(&steps->items[i].pattern);
        exo_free(steps->items[i].content);
    }
    exo_free(steps->items);
    *steps = (exo_steps){0};
}

exo_status
exo_steps_add(exo_steps *steps, exo_step step, exo_err *err)
{
    if (steps->count == steps->room) {
        size_t room = steps->room ? 2 * steps->room : 8;
        exo_step *items = exo_realloc(steps->items, room, sizeof *items);
        if (!items) {
            exo_pattern_free(&step.pattern);
            exo_free(step.content);
            return exo_fail(err, EXO_NOMEM, "no memory for a step");
        }
        steps->items = items;
        steps->room = room;
    }
    steps->items[steps->count++] = step;
    return EXO_OK;
}

/* --- Bytes as characters (GPT-2's table) ------------------------------------------------------ */

/* The printable characters of Latin-1 stand for their own bytes. The other 68 bytes have U+0100 to
 * U+0143, in their order. */
static bool
stands_for_itself(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t
exo_byte_character(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= ' ')
        return 0x100u + byte;
    return byte == 0xad ? 0x143u : 0x100u + 33 + (byte - 0x7fu);
}

int
exo_character_byte(uint32_t code)
{
    if (code < 0x100)
        return stands_for_itself(code) ? (int)code : -1;
    if (code <= 0x120)
        return (int)(code - 0x100);
    if (code <= 0x142)
        return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}

static void
add_bytes(const char *text, size_t size, exo_text *out)
{
    char run[256 * 2 + 2];
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        length += exo_utf8_put(exo_byte_character((unsigned char)text[i]), run + length);
        if (length >= 512) {
            exo_text_add_bytes(out, run, length);
            length = 0;
        }
    }
    exo_text_add_bytes(out, run, length);
}

/* --- Characters ------------------------------------------------------------------------------- */

static bool
is_ascii(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

static int
add_character(void *out, ucs4_t code)
{
    char bytes[4];
    exo_text_add_bytes(out, bytes, exo_utf8_put(code, bytes));
    return 0;
}

static exo_status
add_normalized(exo_unicode_form form, const char *text, size_t size, exo_text *out, exo_err *err)
{
    if (is_ascii(text, size)) {
        exo_text_add_bytes(out, text, size);
        return EXO_OK;
    }
    uninorm_t forms[] = {[EXO_UNICODE_NFC] = UNINORM_NFC,
                         [EXO_UNICODE_NFD] = UNINORM_NFD,
                         [EXO_UNICODE_NFKC] = UNINORM_NFKC,
                         [EXO_UNICODE_NFKD] = UNINORM_NFKD};
    struct uninorm_filter *filter = uninorm_filter_create(forms[form], add_character, out);
    if (!filter)
        return exo_fail(err, EXO_NOMEM, "no memory to normalize a text");
    int failed = 0;
    for (size_t at = 0; at < size && !failed;) {
        uint32_t code;
        at += exo_utf8_next(text + at, size - at, &code);
        failed = uninorm_filter_write(filter, code);
    }
    failed |= uninorm_filter_free(filter); /* writes the rest first, and can fail */
    return failed ? exo_fail(err, EXO_NOMEM, "no memory to normalize a text") : EXO_OK;
}

static void
add_lowercase(const char *text, size_t size, exo_text *out)
{
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += exo_utf8_next(text + at, size - at, &code);
        if (code == 0x130) { /* the only character whose lower case is two in every language */
            add_character(out, 'i');
            add_character(out, 0x307);
        } else {
            add_character(out, uc_tolower(code));
        }
    }
}

/* Replaces the matches. *first becomes false if the text's first character is removed, or is
 * replaced together with others: as in Hugging Face's library, the replacement of several
 * characters has the place of the last of them. */
static exo_status
add_replaced(const exo_step *step, exo_matcher *matcher, const char *text, size_t size, bool *first,
             exo_text *out, exo_err *err)
{
    size_t done = 0, begin = 0, end = 0, length = strlen(step->content);
    bool found;
    exo_matcher_begin(matcher, text, size);
    for (;;) {
        exo_status st = exo_matcher_next(matcher, &found, &begin, &end, err);
        if (st != EXO_OK)
            return st;
        if (!found || size == 0)
            break;
        uint32_t code;
        if (begin == 0 && end > 0 && (length == 0 || exo_utf8_next(text, size, &code) < end))
            *first = false;
        exo_text_add_bytes(out, text + done, begin - done);
        exo_text_add_bytes(out, step->content, length);
        done = end;
    }
    exo_text_add_bytes(out, text + done, size - done);
    return EXO_OK;
}

exo_status
exo_step_transform(const exo_step *step, exo_matcher *matcher, const char *text, size_t size,
                   bool *first, exo_text *out, exo_err *err)
{
    size_t length = step->content ? strlen(step->content) : 0;
    switch (step->kind) {
    case EXO_STEP_REPLACE:
        return add_replaced(step, matcher, text, size, first, out, err);
    case EXO_STEP_UNICODE:
        return add_normalized(step->form, text, size, out, err);
    case EXO_STEP_LOWERCASE:
        add_lowercase(text, size, out);
        return EXO_OK;
    case EXO_STEP_BYTES:
        add_bytes(text, size, out);
        return EXO_OK;
    case EXO_STEP_PREPEND:
        if (size)
            exo_text_add_bytes(out, step->content, length);
        break;
    default: /* a prefix */
        if (size && (*first || step->kind == EXO_STEP_PREFIX) &&
            !(size >= length && memcmp(text, step->content, length) == 0))
            exo_text_add_bytes(out, step->content, length);
        break;
    }
    exo_text_add_bytes(out, text, size);
    return EXO_OK;
}

exo_status
exo_steps_normalize(const exo_steps *steps, const char *text, size_t size, bool *first,
                    exo_text *out, exo_text *spare, exo_err *err)
{
    exo_status st = EXO_OK;
    const size_t given_size = size;
    out->most = spare->most = exo_pieces_most(size);
    for (size_t i = 0; i < steps->count && st == EXO_OK; i++) {
        const exo_step *step = &steps->items[i];
        exo_matcher matcher = {0};
        spare->length = 0;
        exo_text_add_bytes(spare, "", 0); /* so that `data` is not NULL, even for an empty text */
        if (step->pattern)
            st = exo_matcher_open(&matcher, step->pattern, err);
        if (st == EXO_OK)
            st = exo_step_transform(step, &matcher, text, size, first, spare, err);
        exo_matcher_close(&matcher);
        if (st == EXO_OK && spare->over)
            st = exo_fail(err, EXO_FAILED,
                          "the tokenizer makes more than %zu bytes of %zu, which is refused",
                          spare->most, given_size);
        if (st == EXO_OK && spare->failed)
            st = exo_fail(err, EXO_NOMEM, "no memory to normalize a text of %zu bytes", size);
        exo_text given = *out;
        *out = *spare;
        *spare = given;
        text = out->data;
        size = out->length;
    }
    return st;
}
