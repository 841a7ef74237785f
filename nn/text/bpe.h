/* Byte pair encoding: the model that encodes pieces of text as tokens.
 *
 * Owner of an exo_bpe: the tokenizer; read-only once loaded. Owner of an exo_bpe_work: one call.
 * Read next: bpe.c, bpe_merge.c. */
#ifndef EXO_TEXT_BPE_H
#define EXO_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "nn/text/map64.h"
#include "nn/text/vocab.h"

enum {
    EXO_BPE_PAGES = 0x1100 /* of 256 characters */
};

/* Zero-initialize, fill the vocabulary, then call exo_bpe_characters, exo_bpe_expect, and
 * exo_bpe_merge for each merge. */
typedef struct exo_bpe {
    exo_vocab vocab;
    int32_t *pages[EXO_BPE_PAGES]; /* the token of each character, or -1; NULL: a page without */
    int32_t bytes[256];            /* the tokens "<0x00>" to "<0xFF>", or -1 */
    exo_map64 merges;              /* left << 32 | right -> rank << 32 | merged */
    /* Pairs of characters, left << 32 | right, that some merge joins. Between the characters of
     * any other pair a text can be cut before it is encoded. */
    exo_map64 joints;
    int32_t unknown; /* the token of characters without token, or -1 */
    bool fuse_unknown, byte_fallback, ignore_merges;
} exo_bpe;

void exo_bpe_release(exo_bpe *bpe);
/* Finds the vocabulary's tokens of one character, and of one byte. NOMEM. */
exo_status exo_bpe_characters(exo_bpe *bpe, exo_err *err);
/* Allocates room for `merges` merges. NOMEM. */
exo_status exo_bpe_expect(exo_bpe *bpe, size_t merges, exo_err *err);
/* Adds the merge of this rank. DAMAGED: one of the two tokens, or the joined one, is not in the
 * vocabulary. UNSUPPORTED: a token is empty. NOMEM. */
exo_status exo_bpe_merge(exo_bpe *bpe, const char *left, size_t left_length, const char *right,
                         size_t right_length, uint32_t rank, exo_err *err);

typedef struct exo_tokens {
    int32_t *items;
    size_t count, room;
} exo_tokens;

/* Appends tokens. Afterwards `items` is not NULL, even with a count of 0. False: no memory. */
bool exo_tokens_add(exo_tokens *tokens, const int32_t *items, size_t count);

typedef struct exo_bpe_cached {
    uint64_t hash;
    size_t text, out; /* offsets of the word in the text, and of its tokens in the output */
    uint32_t length, count;
} exo_bpe_cached;

/* The state of one call: its output, the word under way, and a cache of encoded words.
 * Zero-initialize. */
typedef struct exo_bpe_work {
    exo_tokens out;
    exo_bpe_cached *cache; /* direct-mapped by hash: a later word replaces an earlier one */
    size_t cache_mask;
    int32_t *ids;          /* tokens of the word's symbols */
    uint32_t *prev, *next; /* long words: links between the remaining symbols */
    size_t room, links_room;
    uint64_t *heap; /* long words: possible merges, rank << 32 | position */
    size_t heap_count, heap_room;
} exo_bpe_work;

void exo_bpe_work_release(exo_bpe_work *work);
/* Allocates a cache for a text of so many pieces. Call it before exo_bpe_encode. NOMEM. */
exo_status exo_bpe_work_expect(exo_bpe_work *work, size_t pieces, exo_err *err);
/* Appends the tokens of text[begin, begin + length) to work->out. `text` must be the same in all
 * calls with this work, because the cache points into it. INVAL: a character has no token, and the
 * model no unknown token. UNSUPPORTED: 2 GiB or more. NOMEM. */
exo_status exo_bpe_encode(const exo_bpe *bpe, exo_bpe_work *work, const char *text, size_t begin,
                          size_t length, exo_err *err);

/* In bpe_merge.c: merges the symbols work->ids[0, *count) and sets *count to the number that
 * remains. False: no memory. */
bool exo_bpe_merge_all(const exo_bpe *bpe, exo_bpe_work *work, size_t *count);

#endif
