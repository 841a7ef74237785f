/* The shape of causal attention, for nn/parallel. No state. Read next: attention.c. */
#ifndef EXO_OPS_ATTENTION_H
#define EXO_OPS_ATTENTION_H

#include <exogym/sequence.h>

#include "nn/device/device_impl.h"

/* Checks x and the options of exo_attention, and writes the shape, but for dropout. False: recorded in
 * the tape. */
bool exo_attention_shape_of(exo_tape *tape, const exo_tensor *x, const exo_attention_opts *opts,
                            exo_attention_shape *shape);

#endif
