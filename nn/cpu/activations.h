/* Activations of exo_activation over ranges of memory. `type`, EXO_F32 or EXO_BF16, is the type of
 * all arrays. No state; any thread. Read next: activations.c. */
#ifndef EXO_CPU_ACTIVATIONS_H
#define EXO_CPU_ACTIVATIONS_H

#include <exogym/sequence.h>

/* y = activation(x); y may be x. */
void exo_activate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t count);
/* dx = dy * activation'(x); dx may be dy. */
void exo_activate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                           void *dx, size_t count);

/* y (rows, width) = activation(gate) * up. A row of x (rows, 2 width) is the gate, then up. */
void exo_gate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t rows,
              size_t width);
/* dx (rows, 2 width) from dy (rows, width); added to dx if `add`. */
void exo_gate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                       void *dx, size_t rows, size_t width, bool add);

#endif
