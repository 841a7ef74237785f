/* Byte pair encoding (Sennrich et al., 2016, arXiv:1508.07909), with the results of Hugging Face's
 * tokenizers: construction of the model, and encoding of pieces. bpe.h has the owners.
 *
 * A word begins as one symbol for each character. Of all neighbours that a merge joins, those of
 * the least rank are joined first, the leftmost pair first, until no merge applies (bpe_merge.c).
 *
 * A long piece is first cut into words between characters that no merge joins. So a text becomes
 * words even without a pre-tokenizer (LLaMA 2). The cuts do not change the tokens, because no
 * merge can cross them. */
#include "nn/text/bpe.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"

enum {
    CUT_FROM = 48,        /* longer pieces are cut, in bytes */
    CACHED_MOST = 128,    /* longer words are not cached, in bytes */
    CACHE_LEAST = 256,    /* entries of the cache */
    CACHE_MOST = 1 << 16, /* entries of the cache */
};

void
exo_bpe_release(exo_bpe *bpe)
{
    exo_vocab_release(&bpe->vocab);
    for (size_t i = 0; i < EXO_BPE_PAGES; i++)
        exo_free(bpe->pages[i]);
    exo_map64_release(&bpe->merges);
    exo_map64_release(&bpe->joints);
    *bpe = (exo_bpe){0};
}

/* --- The model -------------------------------------------------------------------------------- */

exo_status
exo_bpe_characters(exo_bpe *bpe, exo_err *err)
{
    for (size_t i = 0; i < bpe->vocab.count; i++) {
        const exo_spelling *spelling = exo_vocab_spelling(&bpe->vocab, (int32_t)i);
        uint32_t code;
        if (!spelling || !spelling->length ||
            exo_utf8_next(bpe->vocab.bytes.data + spelling->begin, spelling->length, &code) !=
                spelling->length)
            continue;
        int32_t **page = &bpe->pages[code >> 8];
        if (!*page) {
            *page = exo_calloc(256, sizeof **page);
            if (!*page)
                return exo_fail(err, EXO_NOMEM, "no memory for a vocabulary");
            memset(*page, 0xff, 256 * sizeof **page);
        }
        (*page)[code & 0xff] = (int32_t)i;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        bpe->bytes[byte] = exo_vocab_find(&bpe->vocab, name, 6);
    }
    return EXO_OK;
}

exo_status
exo_bpe_expect(exo_bpe *bpe, size_t merges, exo_err *err)
{
    if (merges > UINT32_MAX || !exo_map64_init(&bpe->merges, merges) ||
        !exo_map64_init(&bpe->joints, merges))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu merges", merges);
    return EXO_OK;
}

static uint64_t
pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static uint32_t
first_character(const char *text, size_t length)
{
    uint32_t code = 0;
    if (length)
        exo_utf8_next(text, length, &code);
    return code;
}

static uint32_t
last_character(const char *text, size_t length)
{
    size_t at = length;
    while (at > 1 && ((unsigned char)text[at - 1] & 0xc0) == 0x80)
        at--;
    return length ? first_character(text + at - 1, length - at + 1) : 0;
}

exo_status
exo_bpe_merge(exo_bpe *bpe, const char *left, size_t left_length, const char *right,
              size_t right_length, uint32_t rank, exo_err *err)
{
    int32_t a = exo_vocab_find(&bpe->vocab, left, left_length),
            b = exo_vocab_find(&bpe->vocab, right, right_length);
    char *merged = exo_calloc(1, left_length + right_length + 1);
    if (!merged)
        return exo_fail(err, EXO_NOMEM, "no memory for a merge");
    memcpy(merged, left, left_length);
    memcpy(merged + left_length, right, right_length);
    int32_t c = exo_vocab_find(&bpe->vocab, merged, left_length + right_length);
    exo_status st = EXO_OK;
    if (a < 0 || b < 0 || c < 0) {
        const char *missing = a < 0 ? left : b < 0 ? right : merged;
        size_t length = a < 0 ? left_length : b < 0 ? right_length : left_length + right_length;
        st = exo_fail(err, EXO_DAMAGED, "'%.*s' is not in the vocabulary",
                      (int)(length < 64 ? length : 64), missing);
    } else if (!left_length || !right_length) {
        st = exo_fail(err, EXO_UNSUPPORTED, "a merge with the empty token is not supported");
    } else {
        exo_map64_set(&bpe->merges, pair((uint32_t)a, (uint32_t)b), pair(rank, (uint32_t)c));
        exo_map64_set(&bpe->joints,
                      pair(last_character(left, left_length), first_character(right, right_length)),
                      1);
    }
    exo_free(merged);
    return st;
}

/* --- One call --------------------------------------------------------------------------------- */

void
exo_bpe_work_release(exo_bpe_work *work)
{
    exo_free(work->out.items);
    exo_free(work->cache);
    exo_free(work->ids);
    exo_free(work->prev);
    exo_free(work->next);
    exo_free(work->heap);
    *work = (exo_bpe_work){0};
}

static bool
reserve(exo_tokens *tokens, size_t count)
{
    if (tokens->items && tokens->room - tokens->count >= count)
        return true;
    size_t room = 2 * tokens->room + count + 16;
    int32_t *grown = exo_realloc(tokens->items, room, sizeof *grown);
    if (!grown)
        return false;
    tokens->items = grown;
    tokens->room = room;
    return true;
}

bool
exo_tokens_add(exo_tokens *tokens, const int32_t *items, size_t count)
{
    if (!reserve(tokens, count))
        return false;
    if (count)
        memcpy(tokens->items + tokens->count, items, count * sizeof *items);
    tokens->count += count;
    return true;
}

exo_status
exo_bpe_work_expect(exo_bpe_work *work, size_t pieces, exo_err *err)
{
    size_t size = CACHE_LEAST;
    while (size < pieces && size < CACHE_MOST)
        size *= 2;
    work->cache = exo_calloc(size, sizeof *work->cache);
    work->cache_mask = size - 1;
    return work->cache ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to encode a text");
}

static int32_t
character(const exo_bpe *bpe, uint32_t code)
{
    const int32_t *page = bpe->pages[code >> 8];
    return page ? page[code & 0xff] : -1;
}

/* Byte fallback: the tokens of all bytes of a character. Returns their number, or 0 if a byte has
 * no token. */
static size_t
fall_back(const exo_bpe *bpe, const char *text, size_t length, int32_t *ids)
{
    for (size_t i = 0; i < length; i++) {
        ids[i] = bpe->bytes[(unsigned char)text[i]];
        if (ids[i] < 0)
            return 0;
    }
    return length;
}

/* The symbols with which the merging begins. As in Hugging Face's library, the unknown token is
 * written late: at the next character that has a token, at the next unknown one unless these are
 * fused, or at the end. The bytes of characters with byte fallback in between come before it. */
static exo_status
symbols(const exo_bpe *bpe, exo_bpe_work *work, const char *text, size_t length, size_t *count,
        exo_err *err)
{
    int32_t *ids = work->ids;
    size_t n = 0;
    bool pending = false;
    for (size_t at = 0; at < length;) {
        uint32_t code;
        size_t size = exo_utf8_next(text + at, length - at, &code);
        int32_t id = character(bpe, code);
        if (id >= 0) {
            if (pending)
                ids[n++] = bpe->unknown;
            pending = false;
            ids[n++] = id;
            at += size;
            continue;
        }
        size_t bytes = bpe->byte_fallback ? fall_back(bpe, text + at, size, ids + n) : 0;
        n += bytes;
        at += size;
        if (bytes)
            continue;
        if (bpe->unknown < 0)
            return exo_fail(err, EXO_INVAL, "the tokenizer has no token for the character U+%04X",
                            code);
        if (pending && !bpe->fuse_unknown)
            ids[n++] = bpe->unknown;
        pending = true;
    }
    if (pending)
        ids[n++] = bpe->unknown;
    *count = n;
    return EXO_OK;
}

static exo_status
no_memory(size_t length, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "no memory to encode a word of %zu bytes", length);
}

/* The cache's entry of the word, or NULL. */
static const exo_bpe_cached *
remembered(const exo_bpe_work *work, const char *text, size_t begin, size_t length, uint64_t hash)
{
    const exo_bpe_cached *c = &work->cache[hash & work->cache_mask];
    return c->hash == hash && c->length == length &&
                   memcmp(text + c->text, text + begin, length) == 0
               ? c
               : NULL;
}

static bool
add_again(exo_bpe_work *work, const exo_bpe_cached *cached)
{
    exo_tokens *out = &work->out;
    if (!reserve(out, cached->count))
        return false;
    memcpy(out->items + out->count, out->items + cached->out, cached->count * sizeof *out->items);
    out->count += cached->count;
    return true;
}

static exo_status
encode_word(const exo_bpe *bpe, exo_bpe_work *work, const char *text, size_t begin, size_t length,
            exo_err *err)
{
    uint64_t hash = 0;
    bool cached = length <= CACHED_MOST;
    if (cached) {
        hash = exo_hash_bytes(text + begin, length);
        const exo_bpe_cached *before = remembered(work, text, begin, length, hash);
        if (before)
            return add_again(work, before) ? EXO_OK : no_memory(length, err);
    }
    if (length + 1 > work->room) {
        int32_t *ids = exo_realloc(work->ids, 2 * length + 64, sizeof *ids);
        if (!ids)
            return no_memory(length, err);
        work->ids = ids;
        work->room = 2 * length + 64;
    }
    size_t count = 0, out = work->out.count;
    exo_status st = symbols(bpe, work, text + begin, length, &count, err);
    if (st != EXO_OK)
        return st;
    if ((bpe->merges.count && !exo_bpe_merge_all(bpe, work, &count)) ||
        !exo_tokens_add(&work->out, work->ids, count))
        return no_memory(length, err);
    if (cached)
        work->cache[hash & work->cache_mask] = (exo_bpe_cached){.hash = hash,
                                                                .text = begin,
                                                                .out = out,
                                                                .length = (uint32_t)length,
                                                                .count = (uint32_t)count};
    return EXO_OK;
}

exo_status
exo_bpe_encode(const exo_bpe *bpe, exo_bpe_work *work, const char *text, size_t begin,
               size_t length, exo_err *err)
{
    if (length == 0)
        return EXO_OK;
    if (length >= UINT32_MAX / 2)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a text of %zu bytes is more than a model can take at once", length);
    if (bpe->ignore_merges) {
        int32_t whole = exo_vocab_find(&bpe->vocab, text + begin, length);
        if (whole >= 0 && bpe->vocab.spellings[whole].kind == EXO_TOKEN_MODEL)
            return exo_tokens_add(&work->out, &whole, 1) ? EXO_OK : no_memory(length, err);
    }
    size_t end = begin + length;
    exo_status st = EXO_OK;
    if (length > CUT_FROM && bpe->merges.count) {
        uint32_t last = EXO_UTF8_INVALID, code;
        size_t size;
        for (size_t at = begin; at < end && st == EXO_OK; at += size) {
            size = exo_utf8_next(text + at, end - at, &code);
            bool known = character(bpe, code) >= 0;
            if (known && last != EXO_UTF8_INVALID &&
                exo_map64_get(&bpe->joints, pair(last, code)) == EXO_MAP64_NONE) {
                st = encode_word(bpe, work, text, begin, at - begin, err);
                begin = at;
            }
            last = known ? code : EXO_UTF8_INVALID;
        }
    }
    return st == EXO_OK ? encode_word(bpe, work, text, begin, end - begin, err) : st;
}
