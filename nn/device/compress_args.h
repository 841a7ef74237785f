/* Arguments of the kernels of exogym/compress.h, as those in device_impl.h. No state. */
#ifndef EXO_COMPRESS_ARGS_H
#define EXO_COMPRESS_ARGS_H

#include <stddef.h>

/* Replaces `vectors` vectors of `length` elements by orthonormal ones; vectors <= length. Element i
 * of vector v is x[v * vector_step + i * element_step]. */
typedef struct exo_orthonormalize_args {
    size_t vectors, length, vector_step, element_step;
    float *x;
    double *scratch; /* ((vectors + 1) * length + vectors) */
} exo_orthonormalize_args;

#endif
