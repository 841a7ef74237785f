/* Matrices as fp8, in pieces of whole rows. No device of this folder multiplies them: a GPU does, and
 * passes that are rehearsed here ask for them. No state. Read next: nn/device/layer_args.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bf16.h"
#include "nn/cpu/pieces.h"

enum {
    INFINITE = 0x7F800000, /* the bits of an infinity */
    NAN_CODE = 0x7F,
    INFINITE_E5M2 = 0x7C
};

struct loop {
    const exo_to_fp8_args *k;
    atomic_uint most; /* the largest magnitude's bits: those of NaN are above all others */
    float inverse;    /* of the scale */
};

static float
load(const exo_to_fp8_args *k, size_t i)
{
    return k->dtype == EXO_BF16 ? exo_from_bf16(((const uint16_t *)k->x)[i])
                                : ((const float *)k->x)[i];
}

static uint32_t
magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

static size_t
rows_of_piece(const exo_to_fp8_args *k)
{
    return k->columns < EXO_CPU_PIECE ? EXO_CPU_PIECE / k->columns : 1;
}

static void
largest_piece(void *context, size_t piece)
{
    struct loop *l = context;
    const exo_to_fp8_args *k = l->k;
    const size_t per_piece = rows_of_piece(k), first = piece * per_piece * k->columns,
                 count = exo_piece_length(k->rows, per_piece, piece) * k->columns;
    uint32_t most = 0;
    for (size_t i = first; i < first + count; i++) {
        const uint32_t bits = magnitude_bits(load(k, i));
        most = bits > most ? bits : most;
    }
    uint32_t before = atomic_load(&l->most);
    while (before < most && !atomic_compare_exchange_weak(&l->most, &before, most))
        ;
}

static float
scale_of(exo_fp8 format, uint32_t bits)
{
    float most;
    int exponent;
    memcpy(&most, &bits, sizeof most);
    if (bits == 0 || bits >= INFINITE)
        return 1;
    const bool above = frexpf(most, &exponent) > 0.875f; /* 448 and 57,344 are 0.875 2^n */
    exponent += above - (format == EXO_E4M3 ? 9 : 16);
    return ldexpf(1, exponent < EXO_FP8_LEAST_EXPONENT ? EXO_FP8_LEAST_EXPONENT : exponent);
}

static uint8_t
code_of(exo_fp8 format, float x)
{
    const bool wide = format == EXO_E5M2;
    const int behind = wide ? 2 : 3, least = wide ? -14 : -6; /* the exponent of normal numbers */
    const float most = wide ? 57344.0f : 448.0f, size = fabsf(x);
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    int exponent;
    if (!(size <= most) && !isfinite(size))
        return (uint8_t)((wide && isinf(size) ? INFINITE_E5M2 : NAN_CODE) | sign);
    if (size == 0)
        return sign;
    (void)frexpf(size < most ? size : most, &exponent);
    exponent = exponent - 1 > least ? exponent - 1 : least;
    /* in units of the last place; a number that is rounded up to the next exponent has its code */
    const int units = (int)rintf(ldexpf(size < most ? size : most, behind - exponent));
    return (uint8_t)((units + ((exponent - least) << behind)) | sign);
}

static void
code_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    const exo_to_fp8_args *k = l->k;
    const size_t per_piece = rows_of_piece(k), first = piece * per_piece,
                 count = exo_piece_length(k->rows, per_piece, piece);
    for (size_t r = first; r < first + count; r++)
        for (size_t c = 0; c < k->columns; c++) {
            const uint8_t code = code_of(k->format, load(k, r * k->columns + c) * l->inverse);
            if (k->codes)
                k->codes[r * k->columns + c] = code;
            if (k->transposed)
                k->transposed[c * k->rows + r] = code;
        }
}

exo_status
exo_cpu_to_fp8(exo_device *device, const exo_to_fp8_args *k, exo_err *err)
{
    const size_t pieces = k->columns ? exo_pieces(k->rows, rows_of_piece(k)) : 0;
    struct loop loop = {.k = k};
    (void)device;
    (void)err;
    if (!k->scaled) {
        exo_parallel_for(pieces, largest_piece, &loop);
        *k->scale = scale_of(k->format, atomic_load(&loop.most));
    }
    loop.inverse = 1 / *k->scale;
    if (k->codes || k->transposed)
        exo_parallel_for(pieces, code_piece, &loop);
    return EXO_OK;
}
