/* The log-sums of a few rows of logits, for generation: a block has a part of a row, so that many
 * multiprocessors compute the rows of a large vocabulary together, in the order of log_sum.h. The sum
 * of a part needs the largest logit of the parts before, and the sums are joined part by part, so
 * there are three launches; a row of one part is computed by one. No state. Read next: log_sum.h,
 * decoder.cu. */
#include "nn/cuda/log_sums.h"

#include "nn/cuda/log_sum.h"

enum {
    SCALES = 2, /* of a row: 1, and its own */
    PART = EXO_CUDA_LOG_SUM_PART
};

size_t
exo_cuda_log_sums_room(size_t vocabulary)
{
    return SCALES * ((vocabulary + PART - 1) / PART);
}

/* A part of a row with one of its scales; `needed`: it is not that of the row's other one. */
struct part {
    const float *logits;
    size_t count, at;
    float scale;
    exo_cuda_row_sums *sums; /* of the row's parts, with this scale */
    bool needed;
};

__device__ static inline part
own_part(const exo_cuda_log_sums_args &k)
{
    const size_t first = static_cast<size_t>(blockIdx.x) * PART, parts = gridDim.x;
    const size_t left = k.vocabulary - first;
    const float own = k.scales[blockIdx.y], scale = blockIdx.z == 0 ? 1.0f : own;
    return {k.logits + blockIdx.y * k.pitch + first,
            left < PART ? left : static_cast<size_t>(PART),
            blockIdx.x,
            scale,
            k.room + (blockIdx.y * SCALES + blockIdx.z) * parts,
            blockIdx.z == 0 || scale != 1.0f};
}

/* most of each part's sums. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) find_most(exo_cuda_log_sums_args k)
{
    const part p = own_part(k);
    if (!p.needed)
        return;
    const float most = exo_cuda_part_most(p.logits, p.count, p.scale);
    if (threadIdx.x == 0)
        p.sums[p.at].most = most;
}

/* sum of each part's sums, whose `most` stays that of the part. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) sum_parts(exo_cuda_log_sums_args k)
{
    const part p = own_part(k);
    if (!p.needed)
        return;
    float most = p.sums[0].most;
    for (size_t i = 1; i <= p.at; i++)
        most = exo_cuda_join_most(most, p.sums[i].most);
    const exo_cuda_row_sums s = exo_cuda_sum_part(p.logits, p.count, p.scale, false, most);
    if (threadIdx.x == 0)
        p.sums[p.at].sum = s.sum;
}

/* A thread is a row with one of its scales. */
__global__ static void
join_parts(exo_cuda_log_sums_args k, size_t parts)
{
    for (EXO_CUDA_EACH(i, k.rows * SCALES)) {
        const size_t r = i / SCALES, which = k.scales[r] == 1.0f ? 0 : i % SCALES;
        const exo_cuda_row_sums *own = k.room + (r * SCALES + which) * parts;
        exo_cuda_row_sums s = {own[0].most, own[0].sum, 0};
        for (size_t p = 1; p < parts; p++)
            s = exo_cuda_join_sums(s, {exo_cuda_join_most(s.most, own[p].most), own[p].sum, 0});
        k.log_sums[i % SCALES * k.rows + r] = exo_cuda_log_sum_of(s);
    }
}

/* A block is a row. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) sum_rows(exo_cuda_log_sums_args k)
{
    const float *z = k.logits + blockIdx.x * k.pitch, scale = k.scales[blockIdx.x];
    const float plain = exo_cuda_log_sum_of(exo_cuda_sum_row(z, k.vocabulary, 1.0f));
    const float scaled =
        scale == 1.0f ? plain : exo_cuda_log_sum_of(exo_cuda_sum_row(z, k.vocabulary, scale));
    if (threadIdx.x > 0)
        return;
    k.log_sums[blockIdx.x] = plain;
    k.log_sums[k.rows + blockIdx.x] = scaled;
}

void
exo_cuda_log_sums(exo_cuda_device *cuda, const exo_cuda_log_sums_args *k)
{
    const unsigned parts = static_cast<unsigned>((k->vocabulary + PART - 1) / PART),
                   rows = static_cast<unsigned>(k->rows);
    const dim3 grid(parts, rows, SCALES);
    if (parts == 1) {
        exo_cuda_launch(sum_rows, rows, EXO_CUDA_BLOCK, 0, cuda->stream, *k);
        return;
    }
    exo_cuda_launch(find_most, grid, EXO_CUDA_BLOCK, 0, cuda->stream, *k);
    exo_cuda_launch(sum_parts, grid, EXO_CUDA_BLOCK, 0, cuda->stream, *k);
    exo_cuda_launch_each(join_parts, exo_cuda_blocks(k->rows * SCALES, EXO_CUDA_WARP),
                         EXO_CUDA_WARP, cuda->stream, *k, static_cast<size_t>(parts));
}
