/* What nodes in the trainer's own process share, as a trainer makes it: for tests that are a
 * trainer. */
#ifndef EXO_TEST_FIT_HERE_H
#define EXO_TEST_FIT_HERE_H

#include "actors/fit.h"

/* A run of `nodes` nodes that train an MLP on synthetic images, `steps` steps of two, found by
 * actors of `runtime` under the name `run`. Their communicators are among threads. The caller drops
 * it. Ends the program if there is no memory. */
exo_fit *fit_here(exo_runtime *runtime, const char *run, uint32_t nodes, uint64_t steps);

#endif
