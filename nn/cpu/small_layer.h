/* Layers with tanh of a few dozen units, for one row at a time: the networks that play environments.
 * A library's product takes longer to begin than these take to end. Sums have a fixed order, so the
 * bits are the same on every machine.
 *
 * Weights are (inputs, units), row by row; `units` is a multiple of EXO_SMALL_STEP. Arrays do not
 * overlap. Pure functions, any thread. */
#ifndef EXO_CPU_SMALL_LAYER_H
#define EXO_CPU_SMALL_LAYER_H

#include <stddef.h>

enum {
    EXO_SMALL_STEP = 16
};

/* y (units) = tanh(bias + x w). A unit sums its bias and then the inputs in their order. */
void exo_small_forward(float *y, const float *bias, const float *w, const float *x, size_t inputs,
                       size_t units);

/* d (units), the gradient with respect to y, becomes that with respect to bias + x w, and is added
 * to d_bias; the outer product of x and d is added to d_w. */
void exo_small_backward(float *d, float *d_bias, float *d_w, const float *y, const float *x,
                        size_t inputs, size_t units);

/* d_x (inputs) = w d. */
void exo_small_backward_input(float *d_x, const float *w, const float *d, size_t inputs,
                              size_t units);

/* The product of a and b (units): EXO_SMALL_STEP partial sums, which are then added in pairs. */
float exo_small_product(const float *a, const float *b, size_t units);

/* y (units) += x w */
void exo_small_add(float *y, const float *w, float x, size_t units);

#endif
