/* Activations of exo_activation over ranges of memory. `type` is EXO_F32 or EXO_BF16 and holds for everything but where it says otherwise. */
#ifndef EXO_CPU_ACTIVATIONS_H
#define EXO_CPU_ACTIVATIONS_H

#include <exogym/sequence.h>

/* y = activation(x); y may be x. */
void exo_activate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t count);
/* dx = dy * activation'(x); dx may be dy. */
void exo_activate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                           void *dx, size_t count);

/* A row (2 width) is a gate and what it lets through: y (width) = activation(gate) * up. */
void exo_gate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t rows,
              size_t width);
/* dx (rows, 2 width) from dy (rows, width). */
void exo_gate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                       void *dx, size_t rows, size_t width, bool add);

#endif
