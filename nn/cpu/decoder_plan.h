/* A decoder's plan on the CPU: the layout of weights and working memory, tables of positions, and
 * the team that runs a pass. Private to nn/cpu.
 *
 * Owner: the thread that asks for kernels with the plan, one at a time. Read next: decoder_plan.c,
 * decoder_pass.c. */
#ifndef EXO_CPU_DECODER_PLAN_H
#define EXO_CPU_DECODER_PLAN_H

#include "nn/cpu/decoder_weights.h"
#include "nn/cpu/team.h"

/* Successive rows of one sequence, at most EXO_DECODE_QUERIES: they attend to the same cache. */
typedef struct exo_row_tile {
    size_t first, count;
} exo_row_tile;

/* Activations (rows, the stride of each), in the kernels' scratch: the residual stream, its norm,
 * queries with keys and values, attention's output, the inside of the MLP. A part has its own share of
 * the last two, too, and of x. Of a whole decoder, my_mixed and my_inner are mixed and inner. */
typedef struct exo_decoder_activations {
    float *x, *h, *qkv, *mixed, *inner;
    float *my_x, *my_mixed, *my_inner;
    float *exchange;  /* what the members of a group gather and add; NULL of a whole decoder */
    float *my_logits; /* (rows of logits, the stride of this member's vocabulary); NULL likewise */
    int16_t *q;       /* the quantized input of a product: see exo_decode_rows */
    float *scales, *sums;
    size_t groups;
} exo_decoder_activations;

typedef struct exo_cpu_decoder {
    exo_plan plan;
    exo_decoder_shape shape;
    exo_decoder_spec mine;     /* the spec with this member's heads, inner width and vocabulary */
    size_t first_token;        /* of its vocabulary */
    size_t cache, layer_cache; /* floats of a sequence's cache, and of a layer in it */
    exo_decoder_weights weights;
    exo_team *team;      /* of a pass */
    exo_team *head_team; /* of logits */
    float *slopes;       /* (heads), of ALiBi; else NULL */
    float *turns;        /* (context, 2, head_width / 2), of rotary positions; else NULL */

    /* Of the kernel that runs. */
    const exo_decoder_pass_args *pass;
    const exo_decoder_logits_args *wanted;
    exo_decoder_activations at;
    exo_row_tile *tile; /* (tiles), at most shape.rows */
    size_t tiles;
} exo_cpu_decoder;

static inline exo_cpu_decoder *
exo_cpu_decoder_of(exo_plan *plan)
{
    return (exo_cpu_decoder *)(void *)plan;
}

/* The most loops of the team in a pass, and in the computation of logits. */
enum {
    EXO_DECODER_BLOCK_LOOPS = 10, /* of each block */
    EXO_DECODER_EMBEDDING_LOOPS = 1,
    EXO_DECODER_LOGIT_LOOPS = 2
};

/* The members of the shape's group, at least 1. */
static inline size_t
exo_cpu_decoder_members(const exo_decoder_shape *shape)
{
    return shape->members > 0 ? shape->members : 1;
}

/* Lays the activations of a shape into `scratch`, and returns their bytes. SIZE_MAX: they cannot be
 * counted. `scratch` may be NULL, to count them only. */
size_t exo_cpu_decoder_lay_out(exo_decoder_activations *out, const exo_decoder_shape *shape,
                               void *scratch);
/* The floats of a sequence's cache; SIZE_MAX: they cannot be counted. */
size_t exo_cpu_decoder_cache(const exo_decoder_shape *shape);

#endif
