/* Attention of generation: rows of tokens see the keys and values that the caches of their sequences
 * have up to their positions.
 *
 * A block has a head of a row, or several blocks share one: each computes scores of some keys, and then
 * adds up a slice of the values for all of them. Both go over the keys in the same tiles, so the bits are
 * the same, and they are those of attention.cu in passes that are `invariant`.
 *
 * The cache of a sequence is, for each layer: keys (G, D, context), turned, and values
 * (G, context, D). No state. Read next: decoder_attention.cu. */
#ifndef EXO_CUDA_DECODER_ATTENTION_H
#define EXO_CUDA_DECODER_ATTENTION_H

#include "nn/cuda/attention.h"
#include "nn/cuda/plans.h"

typedef struct exo_cuda_decoder_attention {
    size_t rows, heads, kv_heads, width, context, sequence; /* sequence: floats of its cache */
    size_t first_head;                                      /* of a part's heads */
    exo_cuda_attention_call tape; /* what the kernels of the tape know of its scores */
    const int32_t *positions, *sequences;
    const float *turns; /* or NULL */
    float *wide;        /* (rows, (H + 2 G) D) */
    float *caches;      /* of the layer, in sequence 0 */
    float *scores;      /* (rows, H, context), where blocks share a head */
    float *mixed;       /* (rows, H D) */
} exo_cuda_decoder_attention;

/* Takes the room of the scores of all rows whose heads may be shared out. */
float *exo_cuda_take_scores(exo_cuda_room *room, const exo_decoder_shape *shape, size_t heads);

/* Starts kernels that turn the rows' queries and keys, keep keys and values, and write `mixed`. */
void exo_cuda_decoder_attend(exo_cuda_device *cuda, const exo_cuda_decoder_attention *k);

#endif
