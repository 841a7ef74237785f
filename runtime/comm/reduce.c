/* Sums in rank order and in that of a way: see reduce.h. No state. */
#include "comm/reduce.h"

#include <string.h>

#include "codec/kernels.h"
#include "comm/ways.h"
#include "nn/cpu/kernels.h"

/* Converts elements of a half type to fp32, and back, rounded to nearest, ties to even. */
static void
widen(float *out, const char *in, size_t count, exo_dtype dtype)
{
    if (dtype == EXO_BF16)
        exo_kernel_from_bf16((const uint8_t *)in, out, count);
    else
        exo_kernel_from_fp16((const uint8_t *)in, out, count);
}

static void
narrow(char *out, const float *in, size_t count, exo_dtype dtype)
{
    if (dtype == EXO_BF16)
        exo_kernel_to_bf16(in, (uint8_t *)out, count);
    else
        exo_kernel_to_fp16(in, (uint8_t *)out, count);
}

static void
reduce_halves(char *out, void *const *data, uint32_t size, size_t at, size_t count, exo_dtype dtype,
              exo_reduce reduce)
{
    float sum[EXO_REDUCE_BLOCK], next[EXO_REDUCE_BLOCK];
    exo_array all = exo_host_array(EXO_F32, sum, count),
              more = exo_host_array(EXO_F32, next, count);
    size_t first = at * exo_dtype_size(dtype);
    widen(sum, (const char *)data[0] + first, count, dtype);
    for (uint32_t r = 1; r < size; r++) {
        widen(next, (const char *)data[r] + first, count, dtype);
        exo_vec_add(all, all, more);
    }
    if (reduce == EXO_MEAN)
        exo_vec_divide(all, (float)size);
    narrow(out, sum, count, dtype);
}

void
exo_reduce_into(void *const *out, uint32_t num_out, void *const *data, uint32_t size, size_t count,
                exo_dtype dtype, exo_reduce reduce)
{
    if (dtype == EXO_F32) {
        exo_sum_fp32((const float *const *)data, size, (float *const *)out, num_out,
                     reduce == EXO_MEAN ? (float)size : 0, count);
        return;
    }
    if (dtype != EXO_BF16 && dtype != EXO_F16) {
        exo_sum_integers(exo_dtype_size(dtype), (const void *const *)data, size, out, num_out,
                         count);
        return;
    }
    uint16_t sum[EXO_REDUCE_BLOCK];
    for (size_t at = 0; at < count; at += EXO_REDUCE_BLOCK) {
        size_t block = count - at < EXO_REDUCE_BLOCK ? count - at : EXO_REDUCE_BLOCK;
        reduce_halves((char *)sum, data, size, at, block, dtype, reduce);
        for (uint32_t i = 0; i < num_out; i++)
            memcpy((uint16_t *)out[i] + at, sum, block * sizeof *sum);
    }
}

void
exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count,
                 exo_dtype dtype, exo_reduce reduce)
{
    void *from[size];
    for (uint32_t r = 0; r < size; r++)
        from[r] = (char *)data[r] + at * exo_dtype_size(dtype);
    exo_reduce_into(&out, 1, from, size, count, dtype, reduce);
}

/* The elements [at, at + count) of a call. */
struct range {
    const exo_collective_args *args;
    size_t at, count;
    void *const *data;
};

/* Does the part of a move that is in a range. */
static void
do_move(void *context, const exo_comm_move *m)
{
    const struct range *r = context;
    size_t first = m->first > r->at ? m->first : r->at, end = m->first + m->length,
           size = exo_dtype_size(r->args->dtype);
    end = end < r->at + r->count ? end : r->at + r->count;
    if (first >= end)
        return;
    void *to = (char *)r->data[m->to] + (first - r->at) * size,
         *from = (char *)r->data[m->from] + (first - r->at) * size;
    if (m->adds)
        exo_reduce_into(&to, 1, (void *[]){to, from}, 2, end - first, r->args->dtype, EXO_SUM);
    else
        memcpy(to, from, (end - first) * size);
}

void
exo_reduce_by_moves(const exo_collective_args *args, size_t at, size_t count, void *const *data)
{
    struct range r = {args, at, count, data};
    exo_comm_moves(args, do_move, &r);
}
