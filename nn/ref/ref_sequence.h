/* Plain kernels of language models' operations: one loop a dimension, fp32 in and out, sums in double. Used by tests only. Backward kernels
 * overwrite. */
#ifndef EXO_REF_SEQUENCE_H
#define EXO_REF_SEQUENCE_H

#include <exogym/sequence.h>

double exo_ref_activation(exo_activation activation, double x);
double exo_ref_activation_slope(exo_activation activation, double x);

/* x (rows, width) -> y; centered: layer norm, else RMS norm. bias may be NULL. */
void exo_ref_row_norm_forward(size_t rows, size_t width, bool centered, float eps, const float *x,
                              const float *weight, const float *bias, float *y);
void exo_ref_row_norm_backward(size_t rows, size_t width, bool centered, float eps, const float *x,
                               const float *weight, const float *dy, float *dx, float *dweight,
                               float *dbias);

/* logp (rows) = log softmax(scale x weight^T)[target], 0 where the target is negative. Gradients of sum(dlogp * logp); dx and dweight may be
 * NULL. */
void exo_ref_log_probs(size_t rows, size_t width, size_t vocabulary, float scale, const float *x,
                       const float *weight, const int32_t *targets, float *logp, const float *dlogp,
                       float *dx, float *dweight);

#endif
