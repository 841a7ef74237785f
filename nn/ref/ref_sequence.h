/* Plain kernels of language models' operations: one loop for each dimension, fp32 in and out. Only
 * tests use them.
 *
 * Sums are in double, except the gradients that are summed over rows (row norms) or over the
 * vocabulary (dx of log_probs), which accumulate in fp32. Backward kernels overwrite their
 * outputs. No state. Read next: ref_sequence.c. */
#ifndef EXO_REF_SEQUENCE_H
#define EXO_REF_SEQUENCE_H

#include <exogym/sequence.h>

/* The activation of x, and its derivative. */
double exo_ref_activation(exo_activation activation, double x);
double exo_ref_activation_slope(exo_activation activation, double x);

/* x (rows, width) -> y. Layer norm if `centered`, else RMS norm. bias may be NULL. */
void exo_ref_row_norm_forward(size_t rows, size_t width, bool centered, float eps, const float *x,
                              const float *weight, const float *bias, float *y);
void exo_ref_row_norm_backward(size_t rows, size_t width, bool centered, float eps, const float *x,
                               const float *weight, const float *dy, float *dx, float *dweight,
                               float *dbias);

/* logp (rows) = log softmax(scale x weight^T)[target]; 0 for a negative target. dx and dweight,
 * which may be NULL, are the gradients of sum(dlogp * logp). */
void exo_ref_log_probs(size_t rows, size_t width, size_t vocabulary, float scale, const float *x,
                       const float *weight, const int32_t *targets, float *logp, const float *dlogp,
                       float *dx, float *dweight);

#endif
