/* Environments, policies and rollouts in a test's own memory: see rollout_arrays.h. */
#include "support/rollout_arrays.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

exo_environment_spec *
environment_new(const char *options)
{
    char text[256];
    exo_config_doc *doc = NULL;
    exo_environment_spec *spec = NULL;
    exo_err err = {0};
    snprintf(text, sizeof text, "environment: %s", options);
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_environment_spec_read(&spec, exo_config_root(doc), "environment", NULL, &err),
                 EXO_OK, "%s", err.text);
    exo_config_free(&doc);
    return spec;
}

exo_policy
policy_new(const exo_environment_spec *spec, uint64_t seed)
{
    exo_policy_shape shape = exo_policy_shape_for(exo_environment_spec_shape(spec), 64);
    exo_policy policy = exo_policy_view(&shape, calloc(exo_policy_numel(&shape), sizeof(float)));
    exo_policy_init(&policy, seed);
    return policy;
}

void
policy_free(exo_policy *policy)
{
    free(policy->values);
    *policy = (exo_policy){0};
}

size_t
policy_numel(const exo_policy *policy)
{
    return exo_policy_numel(&policy->shape);
}

exo_rollout
arrays_new(const exo_environment_spec *spec, size_t steps, size_t environments)
{
    const exo_environment_shape *shape = exo_environment_spec_shape(spec);
    size_t count = steps * environments;
    return (exo_rollout){
        .steps = steps,
        .environments = environments,
        .box = shape->box,
        .num_players = shape->players,
        .observations = calloc(count, shape->observation * sizeof(float)),
        .choices = shape->actions ? calloc(count, sizeof(int32_t)) : NULL,
        .boxes = shape->actions ? NULL : calloc(count, shape->box * sizeof(float)),
        .log_probs = calloc(count, sizeof(float)),
        .values = calloc(count, sizeof(float)),
        .rewards = calloc(count, shape->players * sizeof(float)),
        .dones = calloc(count, 1),
        .final_values = calloc(count, sizeof(float)),
        .returns = calloc(count, sizeof(float)),
        .bootstrap = calloc(environments, sizeof(float)),
        .players = shape->players > 1 ? calloc(count + environments, 1) : NULL,
    };
}

void
arrays_free(exo_rollout *rollout)
{
    free(rollout->observations);
    free(rollout->choices);
    free(rollout->boxes);
    free(rollout->log_probs);
    free(rollout->values);
    free(rollout->rewards);
    free(rollout->dones);
    free(rollout->final_values);
    free(rollout->returns);
    free(rollout->bootstrap);
    free(rollout->players);
    *rollout = (exo_rollout){0};
}
