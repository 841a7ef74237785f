/* Policies in safetensors files: see policy_file.h. */
#include "actors/policy_file.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

enum {
    MAX_PATH = 4096
};

static void
add_matrix(exo_state *state, const char *name, float *values, size_t rows, size_t columns)
{
    const size_t dims[] = {rows, columns};
    exo_state_add_shaped(state, name, EXO_F32, values, 2, dims);
}

static void
add_trunk(exo_state *state, const char *name, const exo_policy_trunk *trunk,
          const exo_policy_shape *shape)
{
    exo_state_prefix(state, name);
    add_matrix(state, "weight1", trunk->weight1, shape->observation, shape->units);
    exo_state_add(state, "bias1", EXO_F32, trunk->bias1, shape->units);
    add_matrix(state, "weight2", trunk->weight2, shape->units, shape->units);
    exo_state_add(state, "bias2", EXO_F32, trunk->bias2, shape->units);
    exo_state_prefix(state, NULL);
}

/* Makes the list of a policy's tensors, which the caller frees. */
static exo_status
list_tensors(exo_state **out, const exo_policy *policy, exo_err *err)
{
    const exo_policy_shape *shape = &policy->shape;
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    add_trunk(*out, "actor", &policy->actor, shape);
    add_trunk(*out, "critic", &policy->critic, shape);
    add_matrix(*out, "action.weight", policy->action_weight, shape->outputs, shape->units);
    exo_state_add(*out, "action.bias", EXO_F32, policy->action_bias, shape->outputs);
    exo_state_add(*out, "value.weight", EXO_F32, policy->value_weight, shape->units);
    exo_state_add(*out, "value.bias", EXO_F32, policy->value_bias, 1);
    if (shape->box)
        exo_state_add(*out, "log_deviation", EXO_F32, policy->log_deviation, shape->outputs);
    return EXO_OK;
}

exo_status
exo_policy_save(const exo_policy *policy, const char *environment, uint64_t update,
                const char *folder, const char *kind, const char *actor, exo_err *err)
{
    char path[MAX_PATH], number[32];
    exo_state *state = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s_%s.safetensors", folder, kind, actor) >=
        sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    exo_status st = list_tensors(&state, policy, err);
    if (st != EXO_OK)
        return st;
    snprintf(number, sizeof number, "%llu", (unsigned long long)update);
    exo_state_metadata(state, "environment", environment);
    exo_state_metadata(state, "update", number);
    st = exo_state_save_sealed(state, path, err);
    exo_state_free(&state);
    return st;
}

/* Whether a file is of an environment. */
static exo_status
check_environment(const char *path, const char *environment, exo_err *err)
{
    char *name = NULL;
    exo_status st = exo_state_read_metadata(path, "environment", &name, err);
    if (st == EXO_OK && strcmp(name, environment) != 0)
        st = exo_fail(err, EXO_INVAL,
                      "%s: it is a policy of the environment '%s', and this one is '%s'", path,
                      name, environment);
    exo_free(name);
    return st;
}

exo_status
exo_policy_load(const exo_policy *policy, const char *environment, const char *path, exo_err *err)
{
    exo_state *state = NULL;
    exo_status st = list_tensors(&state, policy, err);
    if (st == EXO_OK)
        st = exo_state_check_seal(path, err);
    if (st == EXO_OK)
        st = check_environment(path, environment, err);
    if (st == EXO_OK)
        st = exo_state_load(state, path, err);
    exo_state_free(&state);
    return st;
}
