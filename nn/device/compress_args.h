/* Arguments of the kernels of exogym/compress.h, as those in device_impl.h. No state. */
#ifndef EXO_COMPRESS_ARGS_H
#define EXO_COMPRESS_ARGS_H

#include <stddef.h>
#include <stdint.h>

/* Replaces `vectors` vectors of `length` elements by orthonormal ones; vectors <= length. Element i
 * of vector v is x[v * vector_step + i * element_step]. */
typedef struct exo_orthonormalize_args {
    size_t vectors, length, vector_step, element_step;
    float *x;
    double *scratch; /* ((vectors + 1) * length + vectors) */
} exo_orthonormalize_args;

/* --- int8: chunks of `chunk` elements, the last one may be shorter; C chunks cover `count` ----- */

/* y (C) = the largest magnitude in each chunk of x (count); infinite if there is a NaN. */
typedef struct exo_largest_args {
    size_t count, chunk;
    float *y;
    const float *x;
} exo_largest_args;

/* y (count) = x / scale * 127, rounded to nearest, ties to even. The scale of a chunk is the
 * largest of its column of `scales` (rows, C), and no |x| exceeds it; where it is 0 or infinite, y
 * is 0. */
typedef struct exo_quantize_args {
    size_t count, chunk, rows;
    int8_t *y;
    const float *x, *scales;
} exo_quantize_args;

/* y (count) = (the sum of x (senders, count), in int32) * scale / divisor. Where the scale is
 * infinite, y is not finite. */
typedef struct exo_dequantize_args {
    size_t count, chunk, rows, senders;
    float *y;
    const int8_t *x;
    const float *scales;
    float divisor;
} exo_dequantize_args;

#endif
