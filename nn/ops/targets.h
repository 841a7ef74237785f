/* Logits and their targets, checked. */
#ifndef EXO_OPS_TARGETS_H
#define EXO_OPS_TARGETS_H

#include <exogym/tensor.h>

/* Whether the logits are (R, V), not empty, and there are R int32 targets, each below V; how many
 * are not negative. False: NULL, or recorded. */
bool exo_check_targets(exo_tape *tape, const char *name, const exo_tensor *logits,
                       const exo_tensor *targets, size_t *counted);
/* The same of any rows whose targets are below `classes`, for messages that name what else was
 * wrong. */
bool exo_count_targets(exo_tape *tape, const char *name, const exo_tensor *targets, size_t classes,
                       size_t *counted);

#endif
