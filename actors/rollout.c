/* Rollouts and policies as items: see rollout.h. */
#include "actors/rollout.h"

#include <string.h>

enum part {
    OBSERVATIONS,
    ACTIONS,
    LOG_PROBS,
    VALUES,
    REWARDS,
    DONES,
    FINAL_VALUES,
    RETURNS,
    BOOTSTRAP,
};

static const struct {
    const char *name;
    exo_dtype dtype;
} parts_of[EXO_ROLLOUT_PARTS] = {
    [OBSERVATIONS] = {"observations", EXO_F32}, [ACTIONS] = {"actions", EXO_I32},
    [LOG_PROBS] = {"log_probs", EXO_F32},       [VALUES] = {"values", EXO_F32},
    [REWARDS] = {"rewards", EXO_F32},           [DONES] = {"dones", EXO_U8},
    [FINAL_VALUES] = {"final_values", EXO_F32}, [RETURNS] = {"returns", EXO_F32},
    [BOOTSTRAP] = {"bootstrap", EXO_F32},
};

void
exo_rollout_parts(size_t steps, size_t environments, exo_item_part parts[EXO_ROLLOUT_PARTS])
{
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++) {
        size_t count = i == BOOTSTRAP ? environments : steps * environments;
        parts[i] =
            (exo_item_part){.dtype = parts_of[i].dtype,
                            .count = i == OBSERVATIONS ? count * EXO_CARTPOLE_OBSERVATION : count};
    }
}

static exo_status
check_parts(const exo_item *item, exo_err *err)
{
    if (item->num_parts != EXO_ROLLOUT_PARTS)
        return exo_fail(err, EXO_INVAL, "%zu arrays, not the %d of a rollout", item->num_parts,
                        EXO_ROLLOUT_PARTS);
    size_t environments = item->parts[BOOTSTRAP].count, all = item->parts[ACTIONS].count;
    if (environments < 1 || all < 1 || all % environments != 0 || all > EXO_ROLLOUT_MAX_STEPS)
        return exo_fail(err, EXO_INVAL,
                        "%zu actions and %zu last values are no rollout of equal steps", all,
                        environments);
    exo_item_part expected[EXO_ROLLOUT_PARTS];
    exo_rollout_parts(all / environments, environments, expected);
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++)
        if (item->parts[i].dtype != expected[i].dtype || item->parts[i].count != expected[i].count)
            return exo_fail(err, EXO_INVAL, "%s: %zu of %s, not %zu of %s", parts_of[i].name,
                            item->parts[i].count, exo_dtype_name(item->parts[i].dtype),
                            expected[i].count, exo_dtype_name(expected[i].dtype));
    return EXO_OK;
}

exo_status
exo_rollout_view(exo_rollout *out, const exo_item *item, exo_err *err)
{
    exo_status st = check_parts(item, err);
    if (st != EXO_OK)
        return st;
    size_t environments = item->parts[BOOTSTRAP].count, all = item->parts[ACTIONS].count;
    *out = (exo_rollout){
        .steps = all / environments,
        .environments = environments,
        .observations = item->parts[OBSERVATIONS].data,
        .actions = item->parts[ACTIONS].data,
        .log_probs = item->parts[LOG_PROBS].data,
        .values = item->parts[VALUES].data,
        .rewards = item->parts[REWARDS].data,
        .dones = item->parts[DONES].data,
        .final_values = item->parts[FINAL_VALUES].data,
        .returns = item->parts[RETURNS].data,
        .bootstrap = item->parts[BOOTSTRAP].data,
    };
    for (size_t i = 0; i < all; i++) {
        if (out->actions[i] < 0 || out->actions[i] >= EXO_CARTPOLE_ACTIONS)
            return exo_fail(err, EXO_INVAL, "actions[%zu]: %d is not in [0, %d)", i,
                            out->actions[i], EXO_CARTPOLE_ACTIONS);
        if (out->dones[i] > EXO_DONE_TRUNCATED)
            return exo_fail(err, EXO_INVAL, "dones[%zu]: %d is not in [0, %d]", i, out->dones[i],
                            EXO_DONE_TRUNCATED);
    }
    return EXO_OK;
}

exo_status
exo_policy_read(exo_policy *out, const exo_item *item, exo_err *err)
{
    const exo_item_part *part = &item->parts[0];
    if (item->num_parts != 1 || part->dtype != EXO_F32 || part->count != EXO_POLICY_NUMEL)
        return exo_fail(err, EXO_INVAL,
                        "%zu arrays, the first of %zu %s, not the %d fp32 parameters of a policy",
                        item->num_parts, item->num_parts ? part->count : 0,
                        item->num_parts ? exo_dtype_name(part->dtype) : "elements",
                        EXO_POLICY_NUMEL);
    memcpy(out, part->data, sizeof *out);
    return EXO_OK;
}

void
exo_returns_add(exo_returns *returns, const exo_rollout *rollout)
{
    for (size_t i = 0; i < rollout->steps * rollout->environments; i++)
        if (rollout->dones[i] != EXO_DONE_NOT)
            returns->last[returns->count++ % EXO_RETURN_WINDOW] = (double)rollout->returns[i];
}

size_t
exo_returns_sum(const exo_returns *returns, double *sum)
{
    size_t count = returns->count < EXO_RETURN_WINDOW ? (size_t)returns->count : EXO_RETURN_WINDOW;
    *sum = 0;
    for (size_t i = 0; i < count; i++)
        *sum += returns->last[i];
    return count;
}
