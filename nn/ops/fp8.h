/* Operands of fp8 in buffers of the tape. Errors are recorded in the tape. No state. Read next:
 * linear.c. */
#ifndef EXO_OPS_FP8_H
#define EXO_OPS_FP8_H

#include "nn/tape_run.h"

/* A matrix as fp8, all of it in one buffer of the tape. */
typedef struct exo_fp8_matrix {
    void *buffer;   /* NULL: there is none */
    float *scale;   /* on the device */
    uint8_t *codes; /* what to_fp8 writes, NULL: nobody wants it */
    uint8_t *transposed;
} exo_fp8_matrix;

/* A buffer for the scale, and for the codes of `numel` elements where they are wanted. False:
 * recorded. */
bool exo_fp8_take(exo_tape *tape, size_t numel, bool codes, bool transposed, exo_fp8_matrix *out);
/* What such a buffer has, for operations that keep its address alone. */
exo_fp8_matrix exo_fp8_at(void *buffer, size_t numel, bool codes, bool transposed);
/* Fills it from x (rows, columns). scale: x's, if it is known; else NULL. False: recorded. */
bool exo_fp8_fill(exo_tape *tape, exo_fp8_matrix *m, exo_fp8 format, size_t rows, size_t columns,
                  exo_dtype dtype, const void *x, float *scale);

#endif
