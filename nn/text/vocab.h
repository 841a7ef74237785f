/* A vocabulary: the tokens' numbers and spellings.
 *
 * One thread fills it; then any thread may read it, many at once. Read next: vocab.c, bpe.h. */
#ifndef EXO_TEXT_VOCAB_H
#define EXO_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "base/grow_text.h"

enum {
    EXO_VOCAB_MOST = 1 << 22, /* all numbers of tokens are below */
};

typedef enum exo_token_kind {
    EXO_TOKEN_NONE,  /* no token has this number */
    EXO_TOKEN_MODEL, /* in the model's vocabulary */
    EXO_TOKEN_ADDED, /* not in it: an added token only */
} exo_token_kind;

typedef struct exo_spelling {
    size_t begin; /* offset in `bytes` */
    uint32_t length;
    uint8_t kind; /* an exo_token_kind */
    bool added;   /* an added token, of either kind */
    bool special; /* decoding leaves it out unless asked for it */
} exo_spelling;

/* Zero-initialize. */
typedef struct exo_vocab {
    exo_text bytes;          /* all spellings, each with a 0 after it */
    exo_spelling *spellings; /* (count), by number */
    size_t count, room;      /* count: one more than the largest number */
    size_t tokens;           /* numbers that have a token */
    int32_t *slots;          /* a hash table by spelling, of numbers; -1: free */
    size_t mask;
} exo_vocab;

void exo_vocab_release(exo_vocab *vocab);
/* Adds a token. DAMAGED: the spelling or the number is taken, or the number is not below
 * EXO_VOCAB_MOST. NOMEM. */
exo_status exo_vocab_add(exo_vocab *vocab, const char *text, size_t length, uint64_t number,
                         exo_token_kind kind, exo_err *err);
/* The number of the token with this spelling, or -1. */
int32_t exo_vocab_find(const exo_vocab *vocab, const char *text, size_t length);
/* The spelling of a number, valid until the next exo_vocab_add; NULL: no token has the number. */
const exo_spelling *exo_vocab_spelling(const exo_vocab *vocab, int32_t number);

#endif
