/* Layer norm and RMS norm of all rows, in pieces of rows. Sums for weight and bias go by those
 * pieces, added in their order. No state. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include "nn/cpu/kernels.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"
#include "nn/cpu/row_norm.h"

enum {
    ROWS = 32,   /* a piece                            */
    COLUMNS = 64 /* of a piece that adds up the pieces */
};

static void
forward_piece(void *context, size_t piece)
{
    const exo_row_norm_args *k = context;
    size_t first = piece * ROWS, skip = first * k->shape.width;
    const exo_row_norm norm = {.width = k->shape.width,
                               .centered = k->centered,
                               .eps = k->eps,
                               .weight = k->weight,
                               .bias = k->bias};
    exo_row_norm_forward(&norm, exo_piece_length(k->shape.rows, ROWS, piece), k->x + skip, k->dtype,
                         (char *)k->y + skip * exo_dtype_size(k->dtype),
                         k->centered ? k->mean + first : NULL, k->inverse + first);
}

exo_status
exo_cpu_row_norm(exo_device *device, const exo_row_norm_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(args->shape.rows, ROWS), forward_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

/* The sums of each piece are (2, width) of the scratch: of weight and of bias. */
static void
backward_piece(void *context, size_t piece)
{
    const exo_row_norm_backward_args *k = context;
    size_t first = piece * ROWS, width = k->shape.width, skip = first * width;
    const exo_row_norm norm = {
        .width = width, .centered = k->centered, .eps = k->eps, .weight = k->weight};
    float *sums = k->dweight || k->dbias ? (float *)k->scratch + piece * 2 * width : NULL;
    if (sums)
        memset(sums, 0, 2 * width * sizeof *sums);
    const size_t rows = exo_piece_length(k->shape.rows, ROWS, piece);
    exo_row_norm_backward(&norm, rows, k->x + skip, k->centered ? k->mean + first : NULL,
                          k->inverse + first, k->dtype,
                          (const char *)k->dy + skip * exo_dtype_size(k->dtype), k->dx + skip,
                          k->add, sums, sums ? sums + width : NULL);
    if (k->rounded)
        exo_cast(EXO_F32, k->dx + skip, EXO_BF16, (uint16_t *)k->rounded + skip, rows * width);
}

struct fold {
    const float *sums; /* of the first piece, and every 2 x width of the next */
    float *target;
    size_t pieces, width;
};

static void
fold_piece(void *context, size_t piece)
{
    const struct fold *f = context;
    size_t first = piece * COLUMNS, count = exo_piece_length(f->width, COLUMNS, piece);
    float *restrict target = f->target + first;
    for (size_t p = 0; p < f->pieces; p++) {
        const float *restrict sums = f->sums + 2 * p * f->width + first;
        for (size_t i = 0; i < count; i++)
            target[i] += sums[i];
    }
}

static void
fold(const exo_row_norm_shape *shape, const float *sums, float *target)
{
    struct fold f = {.sums = sums,
                     .target = target,
                     .pieces = exo_pieces(shape->rows, ROWS),
                     .width = shape->width};
    if (target)
        exo_parallel_for(exo_pieces(f.width, COLUMNS), fold_piece, &f);
}

exo_status
exo_cpu_row_norm_backward(exo_device *device, const exo_row_norm_backward_args *args, exo_err *err)
{
    const float *sums = args->scratch;
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(args->shape.rows, ROWS), backward_piece, (void *)(uintptr_t)args);
    fold(&args->shape, sums, args->dweight);
    fold(&args->shape, sums + args->shape.width, args->dbias);
    return EXO_OK;
}

size_t
exo_cpu_row_norm_scratch(const exo_row_norm_shape *shape, exo_scratch_use use)
{
    return use == EXO_SCRATCH_BACKWARD
               ? exo_pieces(shape->rows, ROWS) * 2 * shape->width * sizeof(float)
               : 0;
}
