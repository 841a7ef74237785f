/* A forward pass over rows of tokens, each of which belongs to a sequence and has a position in it.
 *
 * Owner: the generator; one pass at a time. A pass is planned (exo_pass_begin, exo_pass_add), then run: keys and values of its rows go into the
 * caches, and logits of the rows that were asked for to a function. Read next: forward.c, generator.c. */
#ifndef EXO_GENERATE_FORWARD_H
#define EXO_GENERATE_FORWARD_H

#include "nn/generate/packed_weights.h"
#include "nn/generate/team.h"

enum {
    EXO_LOGIT_ROWS = 24 /* rows whose logits are held at once */
};

/* Memory for what a function of logits works with: `stride` elements each. */
typedef struct exo_logits_scratch {
    float *weights, *values;
    uint32_t *places, *order;
} exo_logits_scratch;

/* Called for every row that was asked for, on any thread: `tag` is the row's, logits (V) may be changed. */
typedef void (*exo_logits_use)(void *context, size_t tag, float *logits,
                               const exo_logits_scratch *scratch);

/* Rows of one sequence that share their keys and values. */
typedef struct exo_row_tile {
    size_t first, count;
} exo_row_tile;

typedef struct exo_forward {
    const exo_decoder_weights *weights;
    size_t context, max_rows;
    size_t cache_size; /* elements of one sequence's cache */
    exo_team *team;
    float *slopes;        /* ALiBi's, (heads); or NULL              */
    float *cosine, *sine; /* rotary, (context, head_width / 2); or NULL */

    /* The plan. */
    size_t rows, outputs, tiles;
    int32_t *token;   /* (max_rows) */
    size_t *position; /* (max_rows) */
    float **cache;    /* (max_rows): of the row's sequence */
    exo_row_tile *tile;
    size_t *output, *tag; /* (max_rows): rows whose logits are wanted, and whose */
    exo_logits_use use;
    void *use_context;

    /* Activations, (max_rows, a stride each). */
    float *x, *h, *qkv, *mixed, *inner;
    int16_t *q;
    float *scales, *sums;
    size_t groups;
    float *logits; /* (EXO_LOGIT_ROWS, stride of V), and scratch of as much */
    exo_logits_scratch scratch;
} exo_forward;

/* `out` is zero before; the caller releases it, also after an error. */
exo_status exo_forward_init(exo_forward *out, const exo_decoder_weights *weights, size_t context,
                            size_t max_rows, exo_err *err);
void exo_forward_release(exo_forward *forward);

void exo_pass_begin(exo_forward *forward, exo_logits_use use, void *context);
/* Adds `count` tokens at positions position.. of the sequence with that cache. There must be room for them, and tokens in the vocabulary.
 * Logits are wanted of the last `wanted` of them, with the tags tag, tag + 1, ... */
void exo_pass_add(exo_forward *forward, float *cache, const int32_t *tokens, size_t count,
                  size_t position, size_t wanted, size_t tag);
void exo_pass_run(exo_forward *forward);

#endif
