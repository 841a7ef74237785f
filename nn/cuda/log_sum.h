/* log sum e^z of a row of logits, for log-probabilities: of the head (head.cu), of logits in memory
 * (softmax.cu) and of those that generation draws from (decoder.cu). The order of the sums is the
 * same in all of them: parts of EXO_CUDA_LOG_SUM_PART logits by a block of EXO_CUDA_BLOCK threads,
 * one part after the other. Several blocks do so together, too (log_sums.cu). Logits in bf16, of a training
 * loss, have another order (logit_rows.cu). No state. */
#ifndef EXO_CUDA_LOG_SUM_H
#define EXO_CUDA_LOG_SUM_H

#include "nn/cuda/grid.h"

enum {
    EXO_CUDA_LOG_SUM_PART = 8192
};

/* How far a row has come: the largest z = scale * logit, the sum of e^(z - most), and for entropies
 * the sum of e^(z - most) (z - most). */
typedef struct exo_cuda_row_sums {
    float most, sum, margin;
} exo_cuda_row_sums;

__device__ static inline float
exo_cuda_shrink(float before, float now)
{
    return before == now ? 1.0f : expf(before - now);
}

/* The largest z of a part; NaN if there is one. All threads of the block call it and get it. */
__device__ static inline float
exo_cuda_part_most(const float *logits, size_t count, float scale)
{
    __shared__ float room[EXO_CUDA_WARP];
    float most = -INFINITY;
    EXO_CUDA_READ_AHEAD(8)
    for (size_t v = threadIdx.x; v < count; v += EXO_CUDA_BLOCK) {
        const float x = scale * logits[v];
        most = x > most || x != x ? x : most;
    }
    return exo_cuda_block_max(most, room);
}

/* That of the parts so far and of a further one. */
__device__ static inline float
exo_cuda_join_most(float before, float own)
{
    return !(own > before) && own == own ? before : own;
}

/* The sums of a part, whose terms are less than `most`, or equal. As above; without `entropy`, margin
 * has no meaning. */
__device__ static inline exo_cuda_row_sums
exo_cuda_sum_part(const float *logits, size_t count, float scale, bool entropy, float most)
{
    __shared__ float room[EXO_CUDA_WARP];
    exo_cuda_row_sums s = {most, 0, 0};
    EXO_CUDA_READ_AHEAD(8)
    for (size_t v = threadIdx.x; v < count; v += EXO_CUDA_BLOCK) {
        /* An entropy depends on differences of logits only, which fmaf does not round twice. */
        const float apart = entropy ? fmaf(scale, logits[v], -s.most) : scale * logits[v] - s.most;
        const float e = expf(apart);
        s.sum += e;
        s.margin += e > 0 ? e * apart : 0;
    }
    s.sum = exo_cuda_block_sum(s.sum, room);
    if (entropy)
        s.margin = exo_cuda_block_sum(s.margin, room);
    return s;
}

/* The sums so far and those of a further part, whose `most` is of both. */
__device__ static inline exo_cuda_row_sums
exo_cuda_join_sums(const exo_cuda_row_sums &before, exo_cuda_row_sums s)
{
    const float shrink = exo_cuda_shrink(before.most, s.most);
    const float moved = shrink > 0 ? before.sum * (before.most - s.most) : 0;
    s.sum = shrink * before.sum + s.sum;
    s.margin = shrink * (before.margin + moved) + s.margin;
    return s;
}

/* The sums so far, with a part of `count` logits; before: NULL for the first part. */
__device__ static inline exo_cuda_row_sums
exo_cuda_add_part(const float *logits, size_t count, float scale, bool entropy,
                  const exo_cuda_row_sums *before)
{
    const float own = exo_cuda_part_most(logits, count, scale);
    const exo_cuda_row_sums s = exo_cuda_sum_part(
        logits, count, scale, entropy, before ? exo_cuda_join_most(before->most, own) : own);
    return before ? exo_cuda_join_sums(*before, s) : s;
}

/* The same with as many logits as there are, part by part. */
__device__ static inline exo_cuda_row_sums
exo_cuda_add_parts(const float *logits, size_t count, float scale, bool entropy,
                   const exo_cuda_row_sums *before)
{
    const size_t part = EXO_CUDA_LOG_SUM_PART;
    exo_cuda_row_sums s = {-INFINITY, 0, 0};
    for (size_t first = 0; first < count; first += part) {
        const exo_cuda_row_sums last = s;
        s = exo_cuda_add_part(logits + first, count - first < part ? count - first : part, scale,
                              entropy, first > 0 ? &last : before);
    }
    return s;
}

/* The sums of a whole row, without those for entropies. */
__device__ static inline exo_cuda_row_sums
exo_cuda_sum_row(const float *logits, size_t count, float scale)
{
    return exo_cuda_add_parts(logits, count, scale, false, NULL);
}

__device__ static inline float
exo_cuda_log_sum_of(const exo_cuda_row_sums &s)
{
    return s.most + logf(s.sum);
}

#endif
