/* Error feedback: what a compressed message has left out is added to the next one (Karimireddy et
 * al., 2019, arXiv:1901.09847):
 *
 *     x     = x + error
 *     sent  = what the others get of x
 *     error = x - sent
 *
 * Owner of the state: the strategy that embeds it. Read next: powersgd.c. */
#ifndef EXO_STRATEGIES_FEEDBACK_H
#define EXO_STRATEGIES_FEEDBACK_H

#include <exogym/device.h>

typedef struct exo_feedback {
    exo_array error; /* (count) for checkpoints; between add and keep: x */
} exo_feedback;

/* Makes an error of zeros. The caller releases it. Errors: NOMEM, or the device's. */
exo_status exo_feedback_init(exo_feedback *out, exo_device *device, size_t count, exo_err *err);
void exo_feedback_release(exo_feedback *feedback);
/* x (count) = x + error; keeps a copy of x. */
void exo_feedback_add(exo_feedback *feedback, exo_array x);
/* error = x - sent, with x of the last call of add. */
void exo_feedback_keep(exo_feedback *feedback, exo_array sent);

#endif
