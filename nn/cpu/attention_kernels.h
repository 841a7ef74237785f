/* Causal attention in blocks of 64 queries by 64 keys, piece by piece; what it computes stands in sequence.h at exo_attention.
 *
 * x is (N T, (H + 2 G) D), out and its gradient (N T, H D), all of `dtype`. Every piece works in scratch of its own thread and writes to
 * places of its own; pieces are cut by shapes only. Where the processor multiplies pairs of bf16, bf16 is computed so, with the scores'
 * maxima and sums and everything that is summed up in fp32; elsewhere as fp32.
 *
 * Scores lie transposed, a query a lane, so that maxima and sums need no step across lanes: attention_forward.c, attention_backward.c. */
#ifndef EXO_CPU_ATTENTION_KERNELS_H
#define EXO_CPU_ATTENTION_KERNELS_H

#include <exogym/rng.h>
#include <exogym/tensor.h>

enum {
    EXO_ATTENTION_BLOCK = 64,      /* queries and keys        */
    EXO_ATTENTION_MAX_WIDTH = 1024 /* elements of a head: D   */
};

typedef struct exo_attention_plan {
    size_t sequences, tokens, heads, kv_heads, width; /* N, T, H, G, D */
    exo_dtype dtype;                                  /* EXO_F32 or EXO_BF16 */
    float scale;                                      /* of the scores, above 0 */
    const float *slopes;                              /* (H): ALiBi's; NULL: none */
    const float *turns; /* (T, 2, turned / 2): cosines, sines; NULL: none */
    size_t turned;      /* elements of a head, even */
    uint32_t dropped;   /* of 65536 weights; 0: no dropout */
    uint32_t ordinal;   /* of the operation, for dropout: below 2^18 */
    exo_rng rng;        /* the pass's stream for dropout */
} exo_attention_plan;

/* `lse` (N, H, T): the binary logarithm of each row's sum of exponentials of scores, for backward; NULL: not wanted. */
size_t exo_attention_forward_pieces(const exo_attention_plan *plan);
size_t exo_attention_forward_scratch(
    const exo_attention_plan *plan); /* in bytes, 64-byte aligned; of one thread */
void exo_attention_forward_piece(const exo_attention_plan *plan, size_t piece, const void *x,
                                 void *out, float *lse, void *scratch);

/* What backward reads and writes. */
typedef struct exo_attention_grads {
    const void *x, *out, *dout;
    const float *lse;
    void *dx;
    bool add;        /* to what dx holds */
    float *partials; /* exo_attention_partials bytes */
} exo_attention_grads;

/* Writes the gradients of keys and values, and those of queries, or parts of them to `partials` if there are any. */
size_t exo_attention_backward_pieces(const exo_attention_plan *plan);
size_t exo_attention_backward_scratch(const exo_attention_plan *plan);
void exo_attention_backward_piece(const exo_attention_plan *plan, size_t piece,
                                  const exo_attention_grads *grads, void *scratch);
/* Bytes of the queries' partial gradients; 0: the pieces above write them. */
size_t exo_attention_partials(const exo_attention_plan *plan);
/* Sums them, after the pieces above. */
size_t exo_attention_gather_pieces(const exo_attention_plan *plan);
void exo_attention_gather_piece(const exo_attention_plan *plan, size_t piece,
                                const exo_attention_grads *grads);

/* keep (64, 64), 64-byte aligned: all ones where dropout keeps the weight of key first_key + row for query first_query + column, else 0.
 * The weight of (n, h, i, j) is number j % 8 of 16 bits, the lower half of a word first, of block ((n H + h) T + i) ceil(T / 8) + j / 8 of
 * the operation's part of the pass's stream, which is cut as for exo_dropout. Both first ones are multiples of 8. */
void exo_attention_keep(const exo_attention_plan *plan, size_t sequence, size_t head,
                        size_t first_query, size_t first_key, uint32_t *keep);

#endif
