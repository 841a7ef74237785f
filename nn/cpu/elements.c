/* Element-wise operations of the tape, gates, and the mean, in pieces. No state. Read next:
 * kernels.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

#include <exogym/rng.h>

#include "base/parallel.h"
#include "nn/cpu/activations.h"
#include "nn/cpu/kernels.h"

/* The address of element `first` of x. */
static const void *
from(exo_dtype dtype, const void *x, size_t first)
{
    return (const char *)x + first * exo_dtype_size(dtype);
}

static void *
into(exo_dtype dtype, void *y, size_t first)
{
    return (char *)y + first * exo_dtype_size(dtype);
}

/* Defines a kernel of `args->count` elements. NAME_piece computes its pieces. */
#define SWEEP(NAME)                                                                                \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        return exo_cpu_sweep(args->count, NAME##_piece, args);                                     \
    }

/* --- ReLU, tanh ------------------------------------------------------------------------------- */

static void
relu_piece(void *args, size_t piece)
{
    const exo_relu_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_relu_forward(k->dtype, from(k->dtype, k->x, first), into(k->dtype, k->y, first),
                     end - first);
}
SWEEP(relu)

static void
relu_backward_piece(void *args, size_t piece)
{
    const exo_relu_backward_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_relu_backward(k->dtype, from(k->dtype, k->y, first), from(k->dtype, k->dy, first),
                      into(k->dtype, k->dx, first), end - first, k->add);
}
SWEEP(relu_backward)

static void
tanh_piece(void *args, size_t piece)
{
    const exo_tanh_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    for (size_t i = first; i < end; i++)
        k->y[i] = tanhf(k->x[i]);
}
SWEEP(tanh)

static void
tanh_backward_piece(void *args, size_t piece)
{
    const exo_tanh_backward_args k = *(const exo_tanh_backward_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t i = first; i < end; i++)
        k.dx[i] = (k.add ? k.dx[i] : 0.0f) + k.dy[i] * (1.0f - k.y[i] * k.y[i]);
}
SWEEP(tanh_backward)

/* --- Dropout ---------------------------------------------------------------------------------- */

enum {
    BLOCK_BITS = 22,
    ORDINAL_BITS = 32 - BLOCK_BITS,
    BLOCK_SHIFT = 48,
    ORDINAL_SHIFT = 40
};

static void
dropout_draw_piece(void *args, size_t piece)
{
    _Static_assert(EXO_CPU_PIECE % 4 == 0, "a piece is whole blocks of four numbers");
    const exo_dropout_draw_args *k = args;
    const size_t span = (size_t)1 << BLOCK_BITS;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_rng rng;
    for (size_t i = first; i < end; i += 4) {
        size_t block = i / 4;
        if (i == first || block % span == 0)
            exo_rng_init(&rng, k->seed, EXO_RNG_DROPOUT, k->node,
                         k->step ^ (uint64_t)(block >> BLOCK_BITS) << BLOCK_SHIFT ^
                             (uint64_t)(k->ordinal >> ORDINAL_BITS) << ORDINAL_SHIFT);
        uint32_t numbers[4];
        exo_rng_block(&rng, (k->ordinal << BLOCK_BITS) | (uint32_t)(block & (span - 1)), numbers);
        for (size_t n = 0; n < 4 && i + n < end; n++)
            k->keep[i + n] = numbers[n] >= k->threshold;
    }
}
SWEEP(dropout_draw)

static void
dropout_piece(void *args, size_t piece)
{
    const exo_dropout_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_mask_scale(k->dtype, from(k->dtype, k->x, first), into(k->dtype, k->y, first),
                   k->keep + first, end - first, k->factor, k->add);
}
SWEEP(dropout)

static void
select_piece(void *args, size_t piece)
{
    const exo_select_args k = *(const exo_select_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t i = first; i < end; i++)
        k.y[i] = k.keep[i] ? k.value : 0.0f;
}
SWEEP(select)

/* --- The mean --------------------------------------------------------------------------------- */

static void
mean_piece(void *args, size_t piece)
{
    const exo_mean_args *k = args;
    double sum = 0;
    (void)piece;
    for (size_t i = 0; i < k->count; i++)
        sum += (double)k->x[i];
    k->y[0] = (float)(sum / (double)k->count);
}

exo_status
exo_cpu_mean(exo_device *device, const exo_mean_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(1, mean_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

static void
mean_backward_piece(void *args, size_t piece)
{
    const exo_mean_backward_args k = *(const exo_mean_backward_args *)args;
    const float dy = k.dy[0] / (float)k.count;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t i = first; i < end; i++)
        k.dx[i] = (k.add ? k.dx[i] : 0.0f) + dy;
}
SWEEP(mean_backward)

/* --- Gates: pieces of whole rows -------------------------------------------------------------- */

/* The number of rows in a piece. A row of x has 2 width elements. */
static size_t
gate_rows(size_t width)
{
    size_t rows = EXO_CPU_PIECE / (width ? width : 1);
    return rows ? rows : 1;
}

static size_t
rows_of_piece(size_t rows, size_t each, size_t piece)
{
    size_t left = rows - piece * each;
    return left < each ? left : each;
}

static void
gate_piece(void *args, size_t piece)
{
    const exo_gate_args *k = args;
    size_t each = gate_rows(k->width), skip = piece * each * k->width;
    exo_gate(k->activation, k->dtype, from(k->dtype, k->x, 2 * skip), into(k->dtype, k->y, skip),
             rows_of_piece(k->rows, each, piece), k->width);
}

static void
gate_backward_piece(void *args, size_t piece)
{
    const exo_gate_backward_args *k = args;
    size_t each = gate_rows(k->width), skip = piece * each * k->width;
    exo_gate_backward(k->activation, k->dtype, from(k->dtype, k->x, 2 * skip),
                      from(k->dtype, k->dy, skip), into(k->dtype, k->dx, 2 * skip),
                      rows_of_piece(k->rows, each, piece), k->width, k->add);
}

exo_status
exo_cpu_gate(exo_device *device, const exo_gate_args *args, exo_err *err)
{
    size_t each = gate_rows(args->width);
    (void)device;
    (void)err;
    exo_parallel_for((args->rows + each - 1) / each, gate_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

exo_status
exo_cpu_gate_backward(exo_device *device, const exo_gate_backward_args *args, exo_err *err)
{
    size_t each = gate_rows(args->width);
    (void)device;
    (void)err;
    exo_parallel_for((args->rows + each - 1) / each, gate_backward_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}
