/* Amounts of the resource `gpus`. No state.
 *
 * They are apart from resources.h, which reads configurations: the head checks amounts, too, and has
 * no parser of YAML. */
#ifndef EXO_ACTOR_GPUS_H
#define EXO_ACTOR_GPUS_H

#include <exogym/status.h>

/* INVAL: an actor cannot take this amount of `gpus`. It takes a part of one GPU, or whole ones. */
exo_status exo_gpus_check(double amount, exo_err *err);

#endif
