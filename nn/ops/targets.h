/* Checks of targets. No state. Read next: targets.c. */
#ifndef EXO_OPS_TARGETS_H
#define EXO_OPS_TARGETS_H

#include <exogym/tensor.h>

/* Checks that the logits are (R, V) and not empty, and that there are R int32 targets, each below
 * V. *counted: the number of targets that are not negative. False: a NULL argument, or an error,
 * recorded. */
bool exo_check_targets(exo_tape *tape, const char *name, const exo_tensor *logits,
                       const exo_tensor *targets, size_t *counted);
/* Only checks that the targets are below `classes`, and counts those that are not negative. For
 * operations that check the shapes themselves. False: recorded. */
bool exo_count_targets(exo_tape *tape, const char *name, const exo_tensor *targets, size_t classes,
                       size_t *counted);

/* The number of rows of the logits (R, V) whose largest element is at the target, on the device
 * until backward. NULL: recorded. loss.c */
const double *exo_count_hits(exo_tape *tape, const exo_tensor *logits, const exo_tensor *labels);

#endif
