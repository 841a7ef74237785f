/* Arguments of the kernels of exogym/compress.h, as those in device_impl.h. No state. */
#ifndef EXO_COMPRESS_ARGS_H
#define EXO_COMPRESS_ARGS_H

#include <stdbool.h>
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

/* --- DCT and the largest coefficients ---------------------------------------------------------- */

enum {
    EXO_DCT_MOST = 64 /* the longest side of a chunk */
};

/* The orthonormal DCT-II in two dimensions of each chunk (chunk_rows, chunk_cols) of x (rows,
 * cols), which the chunk divides. Coefficients are ordered by chunk, (rows / chunk_rows, cols /
 * chunk_cols, chunk_rows, chunk_cols). inverse: from coefficients x to the matrix y. */
typedef struct exo_dct_args {
    size_t rows, cols, chunk_rows, chunk_cols;
    bool inverse;
    float *y;
    const float *x;
} exo_dct_args;

/* The k of largest magnitude in each chunk of x (chunks, size), in the order of their places; of
 * equal ones the first; a NaN is larger than all. size up to 64 x 64. */
typedef struct exo_top_k_args {
    size_t chunks, size, k; /* k from 1 to size */
    float *values;          /* (chunks, k) */
    uint16_t *index;        /* (chunks, k), places within the chunk */
    const float *x;
} exo_top_k_args;

/* y (chunks, size) = the mean of the values that were sent for a place, added in the order of the
 * senders; 0 where there are none. A sender's values and places, each (chunks, k), begin `step`
 * bytes after those of the one before. Places outside the chunk count as not sent. */
typedef struct exo_sent_mean_args {
    size_t chunks, size, k, senders, step;
    float *y;
    const float *values;
    const uint16_t *index;
} exo_sent_mean_args;

/* --- Signs ------------------------------------------------------------------------------------- */

/* The signs of x (count) in chunks of `chunk` elements, a multiple of 8: chunk c goes to bits + c *
 * step, chunk / 8 bytes, with element i in bit i % 8 of byte i / 8; 1 is plus, also of 0. To scale +
 * c * step (bytes), for each of `chunks`, sqrt(the sum of squares / count), of all of x; 0 if count
 * is 0. Elements that x does not have are minus. */
typedef struct exo_sign_pack_args {
    size_t count, chunk, chunks, step;
    uint8_t *bits;
    float *scale;
    const float *x;
} exo_sign_pack_args;

/* y (count) = (the sum over the senders of scale * sign) / senders, added in their order. Sender
 * s's bits and scale of chunk c begin s * sender_step + c * chunk_step bytes after the first. */
typedef struct exo_sign_mean_args {
    size_t count, chunk, senders, sender_step, chunk_step;
    float *y;
    const uint8_t *bits;
    const float *scale;
} exo_sign_mean_args;

#endif
