/* Byte pair encoding: the model that makes tokens of pieces of text. Read-only after it is made. */
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

/* Zero-initialize, fill the vocabulary, then exo_bpe_characters, exo_bpe_expect and the merges. */
typedef struct exo_bpe {
    exo_vocab vocab;
    int32_t *pages[EXO_BPE_PAGES]; /* the token of each character that has one, by page; -1 */
    int32_t bytes[256];            /* the tokens "<0x00>" to "<0xFF>", or -1                */
    exo_map64 merges;              /* left << 32 | right -> rank << 32 | merged             */
    exo_map64
        joints; /* pairs of characters that some merge joins: elsewhere a text can be cut before it is encoded */
    int32_t unknown; /* -1: none */
    bool fuse_unknown, byte_fallback, ignore_merges;
} exo_bpe;

void exo_bpe_release(exo_bpe *bpe);
/* From the vocabulary: which tokens are a character, and which a byte. NOMEM. */
exo_status exo_bpe_characters(exo_bpe *bpe, exo_err *err);
/* Room for so many merges. NOMEM. */
exo_status exo_bpe_expect(exo_bpe *bpe, size_t merges, exo_err *err);
/* The merge of this rank. DAMAGED: a token that is not in the vocabulary. */
exo_status exo_bpe_merge(exo_bpe *bpe, const char *left, size_t left_length, const char *right,
                         size_t right_length, uint32_t rank, exo_err *err);

typedef struct exo_tokens {
    int32_t *items;
    size_t count, room;
} exo_tokens;

/* False: no memory. There are `items` afterwards, also if there are none. */
bool exo_tokens_add(exo_tokens *tokens, const int32_t *items, size_t count);

typedef struct exo_bpe_cached {
    uint64_t hash;
    size_t text, out; /* where the word was, and its tokens are */
    uint32_t length, count;
} exo_bpe_cached;

/* One call's: the word at hand, and words that were encoded. Zero-initialize. */
typedef struct exo_bpe_work {
    exo_tokens out;
    exo_bpe_cached *cache; /* one place for each hash: a later word takes it */
    size_t cache_mask;
    int32_t *ids;          /* of the word's symbols                            */
    uint32_t *prev, *next; /* neighbours that are left, for long words        */
    size_t room, links_room;
    uint64_t *heap; /* merges that can be made: rank << 32 | position */
    size_t heap_count, heap_room;
} exo_bpe_work;

void exo_bpe_work_release(exo_bpe_work *work);
/* A cache for so many pieces. NOMEM. */
exo_status exo_bpe_work_expect(exo_bpe_work *work, size_t pieces, exo_err *err);
/* Adds the tokens of text[begin, begin + length) to work->out; `text` must be the same in all calls with this work. INVAL: a character
 * without token, where none stands for those. UNSUPPORTED: 2 GiB. NOMEM. */
exo_status exo_bpe_encode(const exo_bpe *bpe, exo_bpe_work *work, const char *text, size_t begin,
                          size_t length, exo_err *err);

/* For bpe_merge.c: merges the symbols work->ids[0, count) and returns how many are left. False: no memory. */
bool exo_bpe_merge_all(const exo_bpe *bpe, exo_bpe_work *work, size_t *count);

#endif
