/* A forward pass over rows. A row is one token of a sequence, at a position in it.
 *
 * A pass is planned (exo_pass_begin, exo_pass_add), then run (exo_pass_run). The run writes the
 * rows' keys and values into the caches, and hands the requested logits to a function.
 *
 * Owner: the generator, which runs one pass at a time. Read next: forward.c, generator.c. */
#ifndef EXO_GENERATE_FORWARD_H
#define EXO_GENERATE_FORWARD_H

#include "nn/generate/packed_weights.h"
#include "nn/generate/team.h"

enum {
    EXO_LOGIT_ROWS = 24 /* rows whose logits are in memory at once */
};

/* Working memory of an exo_logits_use: four arrays of exo_decode_stride(V) elements. */
typedef struct exo_logits_scratch {
    float *weights, *values;
    uint32_t *places, *order;
} exo_logits_scratch;

/* Called once for each row with requested logits, on any thread, several at a time. `tag` is the
 * row's tag of exo_pass_add. The function may overwrite logits (V). */
typedef void (*exo_logits_use)(void *context, size_t tag, float *logits,
                               const exo_logits_scratch *scratch);

/* Successive rows of one sequence, at most EXO_DECODE_QUERIES: they attend to the same cache. */
typedef struct exo_row_tile {
    size_t first, count;
} exo_row_tile;

typedef struct exo_forward {
    const exo_decoder_weights *weights;
    size_t context, max_rows;
    size_t cache_size; /* floats in the cache of one sequence */
    exo_team *team;
    float *slopes;        /* (heads), of ALiBi; else NULL */
    float *cosine, *sine; /* (context, head_width / 2), of rotary positions; else NULL */

    /* The plan. */
    size_t rows, outputs, tiles;
    int32_t *token;   /* (max_rows) */
    size_t *position; /* (max_rows) */
    float **cache;    /* (max_rows): the cache of each row's sequence */
    exo_row_tile *tile;
    size_t *output, *tag; /* (max_rows): the rows with requested logits, and their tags */
    exo_logits_use use;
    void *use_context;

    /* Activations (max_rows, the stride of each): the residual stream, its norm, queries with keys
     * and values, attention's output, the inside of the MLP. */
    float *x, *h, *qkv, *mixed, *inner;
    int16_t *q; /* the quantized input of a product: see exo_decode_rows */
    float *scales, *sums;
    size_t groups;
    float *logits;              /* (EXO_LOGIT_ROWS, stride of V) */
    exo_logits_scratch scratch; /* of the same shape */
} exo_forward;

/* `out` must be zero. The caller releases it, also after an error. It reads `weights` until then.
 * NOMEM. */
exo_status exo_forward_init(exo_forward *out, const exo_decoder_weights *weights, size_t context,
                            size_t max_rows, exo_err *err);
void exo_forward_release(exo_forward *forward);

/* Begins an empty plan. The run calls use(context, ...). */
void exo_pass_begin(exo_forward *forward, exo_logits_use use, void *context);
/* Adds `count` tokens of the sequence that owns `cache`, at position, position + 1, ... It
 * requests the logits of the last `wanted` of them, with the tags tag, tag + 1, ... The caller
 * guarantees room for the rows, tokens of the vocabulary, and a cache filled up to `position`. */
void exo_pass_add(exo_forward *forward, float *cache, const int32_t *tokens, size_t count,
                  size_t position, size_t wanted, size_t tag);
/* Runs the plan on all compute threads, and blocks until it is done. An empty plan does nothing. */
void exo_pass_run(exo_forward *forward);

#endif
