/* The state that nodes in a trainer's own process share, for tests that act as the trainer. */
#ifndef EXO_TEST_FIT_HERE_H
#define EXO_TEST_FIT_HERE_H

#include "actors/fit.h"

/* Makes a run of `nodes` nodes that train an MLP on synthetic images, `steps` steps with batch 2.
 * Actors of `runtime` find it under the name `run`. Their communicators are local. The caller drops
 * it. Aborts on an error. */
exo_fit *fit_here(exo_runtime *runtime, const char *run, uint32_t nodes, uint64_t steps);

#endif
