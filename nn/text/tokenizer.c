/* Tokenizers: encoding, decoding, references and saving. tokenizer_impl.h has the state and its
 * owners. The steps of encoding:
 *
 *   1. Invalid UTF-8 becomes U+FFFD.
 *   2. Added tokens are found in the text (added.c).
 *   3. The text between them is normalized (steps.c), and further added tokens are found in it.
 *   4. The pre-tokenizer splits the remaining text into pieces (split.c).
 *   5. The model encodes the pieces (bpe.c).
 *   6. The post-processor's tokens are put before and after. */
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/utf8.h"
#include "nn/text/tokenizer_impl.h"

exo_tokenizer *
exo_tokenizer_hold(exo_tokenizer *tokenizer)
{
    atomic_fetch_add(&tokenizer->references, 1);
    return tokenizer;
}

void
exo_tokenizer_drop(exo_tokenizer **tokenizer)
{
    exo_tokenizer *t = *tokenizer;
    *tokenizer = NULL;
    if (!t || atomic_fetch_sub(&t->references, 1) != 1)
        return;
    exo_free(t->file);
    exo_bpe_release(&t->bpe);
    exo_added_release(&t->added);
    exo_steps_release(&t->normalizer);
    exo_steps_release(&t->pre_tokenizer);
    exo_steps_release(&t->decoder);
    exo_beside_release(&t->beside);
    exo_free(t->before.items);
    exo_free(t->after.items);
    exo_free(t);
}

exo_status
exo_tokenizer_save(const exo_tokenizer *tokenizer, const char *folder, exo_err *err)
{
    exo_text path = {0};
    exo_text_add(&path, "%s/tokenizer.json", folder);
    exo_status st = path.failed ? exo_fail(err, EXO_NOMEM, "%s: no memory", folder)
                                : exo_folder_make(folder, err);
    if (st == EXO_OK)
        st = exo_file_write_atomic(path.data, tokenizer->file, tokenizer->file_size, err);
    exo_free(path.data);
    return st == EXO_OK ? exo_beside_save(&tokenizer->beside, folder, err) : st;
}

bool
exo_tokenizer_same(const exo_tokenizer *a, const exo_tokenizer *b)
{
    if (a->file_size == b->file_size && memcmp(a->file, b->file, a->file_size) == 0)
        return true;
    json_t *one = json_loadb(a->file, a->file_size, 0, NULL),
           *other = json_loadb(b->file, b->file_size, 0, NULL);
    bool same = one && other && json_equal(one, other);
    json_decref(one);
    json_decref(other);
    return same;
}

size_t
exo_tokenizer_vocabulary(const exo_tokenizer *tokenizer)
{
    return tokenizer->bpe.vocab.count;
}

int32_t
exo_tokenizer_token(const exo_tokenizer *tokenizer, const char *text)
{
    return exo_vocab_find(&tokenizer->bpe.vocab, text, strlen(text));
}

int32_t
exo_tokenizer_end(const exo_tokenizer *tokenizer)
{
    return tokenizer->end;
}

int32_t
exo_tokenizer_begin(const exo_tokenizer *tokenizer)
{
    return tokenizer->begin;
}

/* --- Encoding --------------------------------------------------------------------------------- */

/* The state of one call. */
struct encoding {
    const exo_tokenizer *t;
    exo_text lossy;
    exo_pieces pieces, spare;
    exo_bpe_work work;
};

/* Normalizes the text between added tokens, and finds the added tokens of normalized text in it. */
static exo_status
normalize(struct encoding *e, exo_err *err)
{
    const exo_tokenizer *t = e->t;
    exo_text out = {0}, spare = {0};
    exo_status st = EXO_OK;
    if (!t->normalizer.count && !t->added.normalized.count)
        return EXO_OK;
    exo_pieces_clear(&e->spare);
    e->spare.own.most = exo_pieces_most(exo_pieces_size(&e->pieces));
    for (size_t i = 0; i < e->pieces.count && st == EXO_OK; i++) {
        const exo_piece *piece = &e->pieces.items[i];
        const char *text = e->pieces.text + piece->begin;
        size_t size = piece->length, begin = piece->begin;
        bool first = piece->first;
        if (piece->token >= 0) {
            exo_pieces_add(&e->spare, 0, 0, piece->token, false);
            continue;
        }
        if (t->normalizer.count) {
            st = exo_steps_normalize(&t->normalizer, text, size, &first, &out, &spare, err);
            if (st != EXO_OK)
                break;
            begin = e->spare.own.length;
            text = out.data;
            size = out.length;
            exo_text_add_bytes(&e->spare.own, text, size);
        }
        exo_added_split(&t->added, true, text, size, begin, first, &e->spare);
    }
    exo_free(out.data);
    exo_free(spare.data);
    if (!t->normalizer.count)
        exo_pieces_share(&e->spare, &e->pieces);
    if (st == EXO_OK)
        st = exo_pieces_finish(&e->spare, err);
    exo_pieces given = e->pieces;
    e->pieces = e->spare;
    e->spare = given;
    return st;
}

static exo_status
encode_pieces(struct encoding *e, exo_err *err)
{
    exo_status st = exo_bpe_work_expect(&e->work, e->pieces.count, err);
    for (size_t i = 0; i < e->pieces.count && st == EXO_OK; i++) {
        const exo_piece *piece = &e->pieces.items[i];
        if (piece->token < 0)
            st = exo_bpe_encode(&e->t->bpe, &e->work, e->pieces.text, piece->begin, piece->length,
                                err);
        else if (!exo_tokens_add(&e->work.out, &piece->token, 1))
            st = exo_fail(err, EXO_NOMEM, "no memory to encode a text");
    }
    return st;
}

static exo_status
encode_text(struct encoding *e, const char *text, size_t size, exo_err *err)
{
    if (exo_utf8_valid(text, size) < size) {
        exo_utf8_lossy(&e->lossy, text, size);
        if (e->lossy.failed)
            return exo_fail(err, EXO_NOMEM, "no memory for a text of %zu bytes", size);
        text = e->lossy.data;
        size = e->lossy.length;
    }
    exo_added_split(&e->t->added, false, text, size, 0, true, &e->pieces);
    e->pieces.text = text;
    exo_status st = exo_pieces_finish(&e->pieces, err);
    if (st == EXO_OK)
        st = normalize(e, err);
    if (st == EXO_OK)
        st = exo_steps_split(&e->t->pre_tokenizer, &e->pieces, &e->spare, err);
    return st == EXO_OK ? encode_pieces(e, err) : st;
}

/* The number of a byte is its value. */
static exo_status
encode_bytes(struct encoding *e, const char *text, size_t size, exo_err *err)
{
    for (size_t i = 0; i < size; i++) {
        int32_t number = (unsigned char)text[i];
        if (!exo_tokens_add(&e->work.out, &number, 1))
            return exo_fail(err, EXO_NOMEM, "no memory to encode %zu bytes", size);
    }
    return EXO_OK;
}

exo_status
exo_tokenizer_encode(const exo_tokenizer *tokenizer, const char *text, size_t size, bool special,
                     int32_t **tokens, size_t *count, exo_err *err)
{
    struct encoding e = {.t = tokenizer};
    exo_tokens *out = &e.work.out;
    exo_status st = EXO_OK;
    size_t before = special ? tokenizer->before.count : 0;
    if (before && !exo_tokens_add(out, tokenizer->before.items, before))
        st = exo_fail(err, EXO_NOMEM, "no memory to encode a text");
    if (st == EXO_OK && size)
        st = tokenizer->raw ? encode_bytes(&e, text, size, err) : encode_text(&e, text, size, err);
    if (st == EXO_OK &&
        !exo_tokens_add(out, tokenizer->after.items, special ? tokenizer->after.count : 0))
        st = exo_fail(err, EXO_NOMEM, "no memory to encode a text");
    if (st == EXO_OK) {
        *tokens = out->items;
        *count = out->count;
        out->items = NULL;
    }
    exo_free(e.lossy.data);
    exo_pieces_release(&e.pieces);
    exo_pieces_release(&e.spare);
    exo_bpe_work_release(&e.work);
    return st;
}

/* --- Decoding --------------------------------------------------------------------------------- */

static exo_status
spell(const exo_tokenizer *t, const int32_t *tokens, size_t count, bool special, exo_pieces *out,
      exo_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const exo_spelling *spelling = exo_vocab_spelling(&t->bpe.vocab, tokens[i]);
        if (!spelling && !special)
            continue;
        if (!spelling)
            return exo_fail(err, EXO_INVAL, "the number %d at %zu is not a token of this tokenizer",
                            tokens[i], i);
        if (special || !spelling->special)
            exo_pieces_add(out, spelling->begin, spelling->length, -1, false);
    }
    out->text = t->bpe.vocab.bytes.data ? t->bpe.vocab.bytes.data : "";
    return exo_pieces_finish(out, err);
}

exo_status
exo_tokenizer_decode_text(const exo_tokenizer *t, const int32_t *tokens, size_t count, bool special,
                          exo_text *out, exo_err *err)
{
    exo_pieces pieces = {0}, spare = {0};
    exo_status st = spell(t, tokens, count, special, &pieces, err);
    if (st == EXO_OK)
        st = exo_steps_decode(&t->decoder, &pieces, &spare, err);
    exo_text_add_bytes(out, "", 0);
    for (size_t i = 0; i < pieces.count && st == EXO_OK; i++) {
        if (t->joins && i)
            exo_text_add_bytes(out, " ", 1);
        exo_text_add_bytes(out, pieces.text + pieces.items[i].begin, pieces.items[i].length);
    }
    if (st == EXO_OK && out->failed)
        st = exo_fail(err, EXO_NOMEM, "no memory to decode %zu tokens", count);
    exo_pieces_release(&pieces);
    exo_pieces_release(&spare);
    return st;
}

static exo_status
decode_bytes(const int32_t *tokens, size_t count, bool special, exo_text *out, exo_err *err)
{
    exo_text_add_bytes(out, "", 0);
    for (size_t i = 0; i < count; i++) {
        bool is_byte = tokens[i] >= 0 && tokens[i] <= 255;
        if (!is_byte && !special)
            continue;
        if (!is_byte)
            return exo_fail(err, EXO_INVAL, "the number %d at %zu is not a token of this tokenizer",
                            tokens[i], i);
        char byte = (char)tokens[i];
        exo_text_add_bytes(out, &byte, 1);
    }
    return out->failed ? exo_fail(err, EXO_NOMEM, "no memory to decode %zu tokens", count) : EXO_OK;
}

exo_status
exo_tokenizer_decode(const exo_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                     bool special, char **text, size_t *size, exo_err *err)
{
    exo_text out = {0};
    exo_status st = tokenizer->raw
                        ? decode_bytes(tokens, count, special, &out, err)
                        : exo_tokenizer_decode_text(tokenizer, tokens, count, special, &out, err);
    if (st != EXO_OK) {
        exo_free(out.data);
        return st;
    }
    *text = out.data;
    *size = out.length;
    return EXO_OK;
}
