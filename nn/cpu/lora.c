/* The weights of LoRA layers, and columns of matrices. A piece is some rows; each element is
 * computed by itself, in the order that layer_args.h gives. No state. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include "nn/cpu/pieces.h"

enum {
    MERGED = 512,      /* columns whose sums are in the cache at once */
    ELEMENTS = 1 << 14 /* of a piece, at least */
};

static size_t
rows_of_piece(size_t columns)
{
    return columns < ELEMENTS ? ELEMENTS / columns : 1;
}

/* sum (count) = the products of a row of b (rank) with columns of a (rank, columns). */
static inline void
sum_ranks(float *restrict sum, const float *restrict a, const float *restrict b, size_t rank,
          size_t columns, size_t count)
{
    memset(sum, 0, count * sizeof *sum);
    for (size_t k = 0; k < rank; k++)
        for (size_t i = 0; i < count; i++)
            sum[i] += b[k] * a[k * columns + i];
}

static void
merge_piece(void *context, size_t piece)
{
    const exo_lora_merge_args *k = context;
    size_t rows = rows_of_piece(k->columns), end = piece * rows + rows;
    float sum[MERGED];
    for (size_t r = piece * rows; r < end && r < k->rows; r++)
        for (size_t c = 0; c < k->columns; c += MERGED) {
            size_t count = k->columns - c < MERGED ? k->columns - c : MERGED;
            const float *x = k->x + r * k->columns + c;
            float *y = k->y + r * k->columns + c;
            sum_ranks(sum, k->a + c, k->b + r * k->rank, k->rank, k->columns, count);
            for (size_t i = 0; i < count; i++)
                y[i] = x[i] + k->scale * sum[i];
        }
}

exo_status
exo_cpu_lora_merge(exo_device *device, const exo_lora_merge_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(args->rows, rows_of_piece(args->columns)), merge_piece,
                     (void *)(uintptr_t)args);
    return EXO_OK;
}

static void
columns_piece(void *context, size_t piece)
{
    const exo_copy_columns_args *k = context;
    size_t rows = rows_of_piece(k->count), end = piece * rows + rows;
    for (size_t r = piece * rows; r < end && r < k->rows; r++) {
        float *y = k->y + r * k->y_pitch;
        const float *x = k->x + r * k->x_pitch;
        if (!k->add)
            memcpy(y, x, k->count * sizeof *y);
        for (size_t i = 0; k->add && i < k->count; i++)
            y[i] += x[i];
    }
}

exo_status
exo_cpu_copy_columns(exo_device *device, const exo_copy_columns_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(args->rows, rows_of_piece(args->count)), columns_piece,
                     (void *)(uintptr_t)args);
    return EXO_OK;
}
