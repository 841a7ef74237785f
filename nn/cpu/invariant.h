/* The kernels of generation for whole batches: a row's result has the same bits in a pass on the
 * tape and in generation, whatever other rows there are (exo_pass.invariant). The arithmetic is
 * that of decode.h; here weights are packed for each call, because a training step changes them.
 *
 * No state: the caller owns all memory. Read next: invariant.c; linear.c, attention.c and head.c,
 * which call. */
#ifndef EXO_CPU_INVARIANT_H
#define EXO_CPU_INVARIANT_H

#include "nn/cpu/decode.h"
#include "nn/device/device_impl.h"

/* Weights (outputs, inputs) in panels, in `memory`: exo_rows_matrix_bytes bytes, aligned to 64. */
size_t exo_rows_matrix_bytes(size_t outputs, size_t inputs);
exo_decode_matrix exo_rows_matrix(size_t outputs, size_t inputs, void *memory);
/* Writes panel `panel` of w (outputs, inputs), and zeros for outputs that are missing. Panels are
 * independent. */
void exo_rows_pack(exo_decode_matrix *matrix, const float *w, size_t panel);

/* `linear`: the bytes of its scratch; the operation, with all threads. */
size_t exo_linear_rows_scratch(const exo_linear_shape *shape);
void exo_linear_rows(const exo_linear_shape *shape, const exo_linear_args *args);

/* `attention`: the bytes of its scratch; the operation, with all threads. turns and slopes: the
 * tables of decoder_positions.h, or NULL. */
size_t exo_attention_rows_scratch(const exo_attention_shape *shape);
void exo_attention_rows(const exo_attention_shape *shape, const float *turns, const float *slopes,
                        const exo_attention_args *args);

#endif
