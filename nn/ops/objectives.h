/* What objectives report, for those of other layers. No state. Read next: objectives.c. */
#ifndef EXO_OPS_OBJECTIVES_H
#define EXO_OPS_OBJECTIVES_H

#include <exogym/tensor.h>

/* Reports a mean cross-entropy as the metric "loss", with the number of targets that are not
 * negative as its count. Returns `loss`, which may be NULL. */
exo_tensor *exo_report_cross_entropy(exo_tape *tape, exo_tensor *loss, const exo_tensor *targets);

#endif
