/* The plans of a GPU: a shape, and memory on the device that kernels of the shape share.
 *
 * A plan belongs to its operation. Its memory is freed in the order of the stream. Read next:
 * plans.cu. */
#ifndef EXO_CUDA_PLANS_H
#define EXO_CUDA_PLANS_H

#include "nn/cuda/cudnn_attention.h"

enum {
    EXO_CUDA_MAX_HEAD = 256 /* elements of an attention head */
};

typedef struct exo_cuda_plan {
    exo_plan plan;
    exo_cuda_device *cuda;
    union {
        exo_linear_shape linear;
        exo_conv_shape conv;
        exo_attention_shape attention;
        exo_head_shape head;
        exo_decoder_shape decoder;
        exo_newton_schulz_shape newton_schulz;
    };
    /* On the device. A convolution: what conv.cu lays out. An attention or a decoder with rotary
     * positions: (positions, 2, turned / 2), the cosines and sines of each position. */
    void *memory;
    size_t bytes;
    exo_cuda_cudnn_conv *cudnn;                   /* of a convolution by cuDNN; else NULL */
    exo_cuda_cudnn_attention *attention_by_cudnn; /* or NULL */
    void *host;                     /* of a decoder: the places of its parameters (decoder.h) */
    struct exo_cuda_graphs *graphs; /* of a decoder: its passes (graphs.h) */
} exo_cuda_plan;

static inline exo_cuda_plan *
exo_cuda_plan_of(exo_plan *plan)
{
    return reinterpret_cast<exo_cuda_plan *>(plan);
}

/* A block of memory, given out piece by piece: each begins at a multiple of 256 bytes. */
typedef struct exo_cuda_room {
    char *memory; /* NULL: pieces are only counted */
    size_t bytes; /* given out so far; SIZE_MAX: too many to count */
} exo_cuda_room;

/* The next count * size bytes; NULL without memory, or if they cannot be counted. */
void *exo_cuda_take(exo_cuda_room *room, size_t count, size_t size);

/* Fills plan->memory, whose bytes are those of exo_cuda_turns_bytes, with the rotary positions of
 * `positions` tokens. factors (turned / 2) may be NULL. */
size_t exo_cuda_turns_bytes(size_t positions, size_t turned);
exo_status exo_cuda_fill_turns(exo_cuda_plan *plan, size_t positions, size_t turned, double theta,
                               const float *factors, exo_err *err);

/* Bytes of memory of a plan, and of scratch; SIZE_MAX: too many to count. by_cudnn: cuDNN computes the
 * convolution. */
size_t exo_cuda_conv_bytes(const exo_conv_shape *shape, bool by_cudnn);
size_t exo_cuda_attention_scratch(const exo_attention_shape *shape, exo_scratch_use use);
size_t exo_cuda_head_scratch(const exo_head_shape *shape, exo_scratch_use use);
size_t exo_cuda_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use);
size_t exo_cuda_newton_schulz_scratch(const exo_newton_schulz_shape *shape);

#endif
