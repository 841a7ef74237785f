/* The options that makers and trainers of rollouts have in common: the environment, and the size of
 * the policy that plays it.
 *
 * Owner: the actor's state. Read next: policy.h, exogym/environment.h. */
#ifndef EXO_PLAY_H
#define EXO_PLAY_H

#include "actors/policy.h"

typedef struct exo_play {
    exo_environment_spec *spec;
    exo_policy_shape shape;
} exo_play;

/* Reads `environment` and `units`. exo_play_release frees what it holds, also after a failure. Errors:
 * as exo_environment_spec_read. */
exo_status exo_play_read(exo_play *play, exo_config *config, exo_err *err);
void exo_play_release(exo_play *play);
/* Writes the shape of the items, for exo_graph_class. */
void exo_play_write_shape(const exo_play *play, char *out, size_t size);

#endif
