/* A decoder's weights on a GPU.
 *
 * A matrix is kept transposed, in words of 32 bits: word (k, o) has input k of output o, or 4 or 8
 * inputs from 4 k or 8 k on, so that the threads of a warp read the words of 32 outputs side by
 * side. Inputs and outputs are filled up to multiples of 32 with zeros. In INT8 and INT4, a group of
 * 128 inputs of an output has a scale and, in INT4, a minimum (exo_weight_format).
 *
 * State: exo_cuda_decoder_places, of a plan, written once. Read next: decoder_weights.cu,
 * decoder.cu. */
#ifndef EXO_CUDA_DECODER_H
#define EXO_CUDA_DECODER_H

#include "nn/cuda/grid.h"
#include "nn/cuda/plans.h"

enum {
    EXO_CUDA_GROUP = 128, /* inputs that share a scale */
    EXO_CUDA_LINE = 32,   /* inputs and outputs are filled up to multiples of it */
    EXO_CUDA_LEVELS8 = 4, /* inputs of a word of INT8 */
    EXO_CUDA_LEVELS4 = 8  /* and of INT4 */
};

/* A parameter in the weights: a matrix, or `inputs` numbers in a row of which `outputs` follow each
 * other. */
typedef struct exo_cuda_matrix {
    bool is_matrix;
    exo_weight_format format;
    size_t outputs, inputs, pitch;  /* pitch: outputs, filled up */
    const uint32_t *words;          /* F32, or a vector: the bits of fp32 */
    const float *scales, *minimums; /* (groups, pitch), or NULL */
} exo_cuda_matrix;

/* The parameter of that role, bias or weight, in `weights`; `words` NULL: the decoder has none. */
exo_cuda_matrix exo_cuda_decoder_matrix(const exo_cuda_plan *plan, const void *weights,
                                        exo_decoder_role role, size_t block, bool bias);
/* Finds the places of all parameters: allocates plan->host. */
exo_status exo_cuda_decoder_find_places(exo_cuda_plan *plan, exo_err *err);
/* SIZE_MAX: too many to count. */
size_t exo_cuda_decoder_weight_bytes(const exo_decoder_shape *shape);

/* Element (o, k) of a matrix. */
__device__ static inline float
exo_cuda_weight(const exo_cuda_matrix &m, size_t o, size_t k)
{
    const size_t group = k / EXO_CUDA_GROUP * m.pitch + o;
    if (m.format == EXO_WEIGHTS_F32)
        return exo_cuda_float(m.words[k * m.pitch + o]);
    if (m.format == EXO_WEIGHTS_INT8) {
        const uint32_t word = m.words[k / EXO_CUDA_LEVELS8 * m.pitch + o];
        return m.scales[group] *
               static_cast<float>(static_cast<int8_t>(word >> k % EXO_CUDA_LEVELS8 * 8));
    }
    const uint32_t word = m.words[k / EXO_CUDA_LEVELS4 * m.pitch + o];
    return m.scales[group] * static_cast<float>(word >> k % EXO_CUDA_LEVELS4 * 4 & 15u) +
           m.minimums[group];
}

#endif
