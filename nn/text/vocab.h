/* A vocabulary: numbers of tokens and how they are spelled. Filled by one thread, then read by any. */
#ifndef EXO_TEXT_VOCAB_H
#define EXO_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "base/grow_text.h"

enum {
    EXO_VOCAB_MOST = 1 << 22, /* numbers of tokens are smaller */
};

typedef enum exo_token_kind {
    EXO_TOKEN_NONE,  /* no token has this number */
    EXO_TOKEN_MODEL, /* the model can make it    */
    EXO_TOKEN_ADDED, /* found in the text only   */
} exo_token_kind;

typedef struct exo_spelling {
    size_t begin; /* in `bytes` */
    uint32_t length;
    uint8_t kind;
    bool added;   /* found in the text itself            */
    bool special; /* left out of a text unless asked for */
} exo_spelling;

/* Zero-initialize. */
typedef struct exo_vocab {
    exo_text bytes;          /* all spellings, a 0 after each */
    exo_spelling *spellings; /* by number                     */
    size_t count, room;      /* count: one more than the largest number */
    size_t tokens;
    int32_t *slots; /* by spelling; -1: free */
    size_t mask;
} exo_vocab;

void exo_vocab_release(exo_vocab *vocab);
/* DAMAGED: the spelling or the number is taken, or the number is too large. NOMEM. */
exo_status exo_vocab_add(exo_vocab *vocab, const char *text, size_t length, uint64_t number,
                         exo_token_kind kind, exo_err *err);
/* The number, or -1. */
int32_t exo_vocab_find(const exo_vocab *vocab, const char *text, size_t length);
/* NULL: no token has this number. */
const exo_spelling *exo_vocab_spelling(const exo_vocab *vocab, int32_t number);

#endif
