/* Rows of a wide head's logits in bf16. A block is a row, which it reads twice: for the maximum and
 * the sum of exponentials together, and for the gradients. A row of GPT-2 is 100 KB, and those of all
 * blocks that a GPU runs at a time take about half of an H200's cache: the second reading is meant to
 * come from there. Exponentials are powers of two, e^(z - most) = 2^((logit - most) scale log2 e).
 *
 * No state. Read next: head.cu. */
#include "nn/cuda/logit_rows.h"
#include "nn/cuda/mma.h"

enum {
    BLOCK = 512,
    GROUP = 8 /* logits that a thread takes at a time, 16 bytes */
};

static const float LOG2_E = 1.44269504F;

/* Two logits in a word, the first one in its lower half. */
struct alignas(16) group {
    uint32_t words[GROUP / 2];
};

/* x: the logits of a group, of which `there` are before the row's end; the others are -infinity. */
__device__ static inline void
unpack(const group &g, size_t there, float x[GROUP])
{
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j += 2) {
        x[j] = exo_cuda_float(g.words[j / 2] << 16);
        x[j + 1] = exo_cuda_float(g.words[j / 2] & 0xFFFF0000u);
    }
    if (there >= GROUP)
        return;
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j++)
        x[j] = j < there ? x[j] : -INFINITY;
}

/* The largest of some logits, and the sum of 2^((logit - most) scale2). */
struct row_sum {
    float most, sum;
};

/* What is taken from logits in an exponent: a difference of infinities is no number. */
__device__ static inline float
finite(float most)
{
    return most == -INFINITY ? 0.0f : most;
}

__device__ static inline float
power(float x, float most, float scale2)
{
    return exo_cuda_exp2((x - finite(most)) * scale2);
}

/* Goes on with a group. A NaN does not become `most`, but the sum. */
__device__ static inline void
add_group(row_sum *s, const float x[GROUP], float scale2)
{
    float most = s->most;
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j++)
        most = fmaxf(most, x[j]);
    float sum = s->sum * power(s->most, most, scale2);
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j++)
        sum += power(x[j], most, scale2);
    *s = {most, sum};
}

/* The sum of a row, which every thread gets. */
__device__ static inline row_sum
sum_row(const group *groups, size_t columns, float scale2)
{
    __shared__ float room[EXO_CUDA_WARP];
    row_sum s = {-INFINITY, 0};
    EXO_CUDA_READ_AHEAD(4)
    for (size_t i = threadIdx.x; i < (columns + GROUP - 1) / GROUP; i += BLOCK) {
        float x[GROUP];
        unpack(groups[i], columns - i * GROUP, x);
        add_group(&s, x, scale2);
    }
    const float most = exo_cuda_block_max(s.most, room);
    const float sum = s.sum * power(s.most, most, scale2);
    return {most, exo_cuda_block_sum(sum, room)};
}

/* The gradients of a group's logits take their place. target: of the group, if it is below GROUP. */
__device__ static inline void
differentiate(group *g, size_t there, size_t target, const row_sum &s, float scale2, float factor)
{
    const float log2_sum = log2f(s.sum);
    float x[GROUP];
    unpack(*g, there, x);
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j++)
        x[j] = factor * exo_cuda_exp2(fmaf(x[j] - finite(s.most), scale2, -log2_sum));
    if (target < GROUP) {
        EXO_CUDA_UNROLL
        for (size_t j = 0; j < GROUP; j++)
            x[j] -= j == target ? factor : 0;
    }
    EXO_CUDA_UNROLL
    for (size_t j = 0; j < GROUP; j += 2)
        g->words[j / 2] = exo_cuda_two_bf16(x[j], x[j + 1]);
}

/* A row whose factor is 0 may have infinite logits, and has gradients of 0. */
__global__ static void
__launch_bounds__(BLOCK, 2) sum_and_differentiate(exo_cuda_logit_rows_args k)
{
    const size_t row = blockIdx.x, groups = (k.columns + GROUP - 1) / GROUP;
    const float scale2 = k.scale * LOG2_E, factor = k.factor ? k.factor[row] : 0;
    exo_cuda_bf16 *const logits = k.logits + row * k.pitch;
    group *const in_groups = reinterpret_cast<group *>(logits);
    const size_t target = k.targets[row] < 0 ? SIZE_MAX : static_cast<size_t>(k.targets[row]);
    if (threadIdx.x == 0 && k.picked && target < k.columns)
        k.picked[row] = k.scale * exo_cuda_get(logits, target);
    const row_sum s = sum_row(in_groups, k.columns, scale2);
    if (threadIdx.x == 0)
        k.log_sum[row] = k.scale * s.most + logf(s.sum);
    if (!k.factor)
        return;
    for (size_t i = threadIdx.x; i < groups; i += BLOCK)
        if (factor == 0)
            in_groups[i] = {};
        else
            differentiate(&in_groups[i], k.columns - i * GROUP, target - i * GROUP, s, scale2,
                          factor);
}

void
exo_cuda_logit_rows(exo_cuda_device *cuda, const exo_cuda_logit_rows_args *k)
{
    exo_cuda_launch(sum_and_differentiate, static_cast<unsigned>(k->rows), BLOCK, 0, cuda->stream,
                    *k);
}
