/* Causal attention in blocks of 64 queries by 64 keys, computed in pieces. exo_attention in
 * sequence.h defines the result.
 *
 * x is (N T, (H + 2 G) D); out and its gradient are (N T, H D); all are of `dtype`. The caller
 * runs the pieces in any order, on any threads. Each piece works in the scratch of its thread, and
 * writes to its own part of the result. The division into pieces depends on shapes only.
 *
 * If the processor multiplies pairs of bf16, bf16 uses these products, with fp32 maxima and sums.
 * Otherwise bf16 is computed as fp32.
 *
 * Scores are transposed, a query in each lane, so that maxima and sums need no step across lanes.
 * Read next: attention_forward.c, attention_backward.c. */
#ifndef EXO_CPU_ATTENTION_KERNELS_H
#define EXO_CPU_ATTENTION_KERNELS_H

#include <exogym/rng.h>
#include <exogym/tensor.h>

enum {
    EXO_ATTENTION_BLOCK = 64,      /* queries or keys of a block */
    EXO_ATTENTION_MAX_WIDTH = 1024 /* the largest D, the elements of a head */
};

typedef struct exo_attention_plan {
    size_t sequences, tokens, heads, kv_heads, width; /* N, T, H, G, D */
    exo_dtype dtype;                                  /* EXO_F32 or EXO_BF16 */
    float scale;                                      /* of the scores; greater than 0 */
    const float *slopes;                              /* (H), of ALiBi; NULL: none */
    const float *turns; /* (T, 2, turned / 2): rotary cosines, sines; NULL: none */
    size_t turned;      /* elements of a head with rotary positions, even */
    uint32_t dropped;   /* weights that dropout removes, of 65536; 0: no dropout */
    uint32_t ordinal;   /* for dropout: the number of the operation, below 2^18 */
    exo_rng rng;        /* for dropout: the pass's stream */
    /* Keys and values of another member (N T, 2 G D), of which `seen` are there for all queries from
     * first_query on; seen 0: causal attention to the keys of x. */
    const void *others;
    const float *key_turns; /* as turns, of the keys */
    size_t first_query, seen;
} exo_attention_plan;

/* Forward: the number of pieces; the bytes of a thread's scratch, which is 64-byte aligned; one
 * piece. `lse` (N, H, T), for backward: the binary logarithm of each row's sum of exponentials of
 * scores; NULL: not wanted. With `others`, out and lse are those of the keys before, and become those of
 * all. */
size_t exo_attention_forward_pieces(const exo_attention_plan *plan);
size_t exo_attention_forward_scratch(const exo_attention_plan *plan);
void exo_attention_forward_piece(const exo_attention_plan *plan, size_t piece, const void *x,
                                 void *out, float *lse, void *scratch);

/* The arrays of backward. */
typedef struct exo_attention_grads {
    const void *x, *out, *dout;
    const float *lse;
    void *dx;
    bool add;        /* adds to dx */
    void *dothers;   /* the gradient of `others`, which is added to */
    float *partials; /* exo_attention_partials bytes */
} exo_attention_grads;

/* Backward: as above. A piece writes the gradients of keys and values. Those of queries it writes
 * to dx, or as partial sums to `partials` if exo_attention_partials is not 0. */
size_t exo_attention_backward_pieces(const exo_attention_plan *plan);
size_t exo_attention_backward_scratch(const exo_attention_plan *plan);
void exo_attention_backward_piece(const exo_attention_plan *plan, size_t piece,
                                  const exo_attention_grads *grads, void *scratch);
/* The bytes of the queries' partial gradients; 0: backward pieces write the complete gradients. */
size_t exo_attention_partials(const exo_attention_plan *plan);
/* The pieces that add up the partial gradients, after all backward pieces. */
size_t exo_attention_gather_pieces(const exo_attention_plan *plan);
void exo_attention_gather_piece(const exo_attention_plan *plan, size_t piece,
                                const exo_attention_grads *grads);

/* keep (64, 64), 64-byte aligned: all ones if dropout keeps the weight of key first_key + row and
 * query first_query + column, else 0. first_query and first_key are multiples of 8.
 *
 * The weight (n, h, i, j) is decided by a number of 16 bits: number j % 8, the lower half of a
 * word first, of block ((n H + h) T + i) ceil(T / 8) + j / 8. The blocks are those of the
 * operation's part of the pass's stream, which is divided as for exo_dropout. */
void exo_attention_keep(const exo_attention_plan *plan, size_t sequence, size_t head,
                        size_t first_query, size_t first_key, uint32_t *keep);

#endif
