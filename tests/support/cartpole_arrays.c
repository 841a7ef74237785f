/* Rollouts in a test's own memory: see cartpole_arrays.h. */
#include "support/cartpole_arrays.h"

#include <stdlib.h>

exo_rollout
arrays_new(size_t steps, size_t environments)
{
    size_t count = steps * environments;
    return (exo_rollout){
        .steps = steps,
        .environments = environments,
        .observations = calloc(count, EXO_CARTPOLE_OBSERVATION * sizeof(float)),
        .actions = calloc(count, sizeof(int32_t)),
        .log_probs = calloc(count, sizeof(float)),
        .values = calloc(count, sizeof(float)),
        .rewards = calloc(count, sizeof(float)),
        .dones = calloc(count, 1),
        .final_values = calloc(count, sizeof(float)),
        .returns = calloc(count, sizeof(float)),
        .bootstrap = calloc(environments, sizeof(float)),
    };
}

void
arrays_free(exo_rollout *rollout)
{
    free(rollout->observations);
    free(rollout->actions);
    free(rollout->log_probs);
    free(rollout->values);
    free(rollout->rewards);
    free(rollout->dones);
    free(rollout->final_values);
    free(rollout->returns);
    free(rollout->bootstrap);
    *rollout = (exo_rollout){0};
}
