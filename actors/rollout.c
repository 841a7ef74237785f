/* Rollouts and policies as items: see rollout.h. */
#include "actors/rollout.h"

#include <math.h>
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
    PLAYERS,
};

static const struct {
    const char *name;
    exo_dtype dtype;
} parts_of[EXO_ROLLOUT_PARTS] = {
    [OBSERVATIONS] = {"observations", EXO_F32}, [ACTIONS] = {"actions", EXO_I32},
    [LOG_PROBS] = {"log_probs", EXO_F32},       [VALUES] = {"values", EXO_F32},
    [REWARDS] = {"rewards", EXO_F32},           [DONES] = {"dones", EXO_U8},
    [FINAL_VALUES] = {"final_values", EXO_F32}, [RETURNS] = {"returns", EXO_F32},
    [BOOTSTRAP] = {"bootstrap", EXO_F32},       [PLAYERS] = {"players", EXO_U8},
};

size_t
exo_rollout_parts(const exo_environment_shape *shape, size_t steps, size_t environments,
                  exo_item_part parts[EXO_ROLLOUT_PARTS])
{
    const size_t all = steps * environments;
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++)
        parts[i] = (exo_item_part){.dtype = parts_of[i].dtype, .count = all};
    parts[OBSERVATIONS].count = all * shape->observation;
    if (shape->actions == 0)
        parts[ACTIONS] = (exo_item_part){.dtype = EXO_F32, .count = all * shape->box};
    parts[REWARDS].count = all * shape->players;
    parts[BOOTSTRAP].count = environments;
    parts[PLAYERS].count = all + environments;
    return shape->players > 1 ? EXO_ROLLOUT_PARTS : EXO_ROLLOUT_PARTS - 1;
}

/* *steps and *environments get T and N. */
static exo_status
check_parts(const exo_item *item, const exo_environment_shape *shape, size_t *steps,
            size_t *environments, exo_err *err)
{
    exo_item_part expected[EXO_ROLLOUT_PARTS];
    size_t count = exo_rollout_parts(shape, 1, 1, expected);
    if (item->num_parts != count)
        return exo_fail(err, EXO_INVAL, "%zu arrays, not the %zu of a rollout", item->num_parts,
                        count);
    size_t n = item->parts[BOOTSTRAP].count, all = item->parts[DONES].count;
    if (n < 1 || all < 1 || all % n != 0 || all > EXO_ROLLOUT_MAX_STEPS)
        return exo_fail(err, EXO_INVAL,
                        "%zu dones and %zu last values are no rollout of equal steps", all, n);
    exo_rollout_parts(shape, all / n, n, expected);
    for (size_t i = 0; i < count; i++)
        if (item->parts[i].dtype != expected[i].dtype || item->parts[i].count != expected[i].count)
            return exo_fail(err, EXO_INVAL, "%s: %zu of %s, not %zu of %s", parts_of[i].name,
                            item->parts[i].count, exo_dtype_name(item->parts[i].dtype),
                            expected[i].count, exo_dtype_name(expected[i].dtype));
    *steps = all / n;
    *environments = n;
    return EXO_OK;
}

/* Names the first number of an item that is infinite or NaN. */
static exo_status
check_finite(const exo_item *item, exo_err *err)
{
    for (size_t k = 0; k < item->num_parts; k++) {
        const float *x = item->parts[k].data;
        for (size_t i = 0; item->parts[k].dtype == EXO_F32 && i < item->parts[k].count; i++)
            if (!isfinite(x[i]))
                return exo_fail(err, EXO_INVAL, "%s[%zu]: %g is not finite", parts_of[k].name, i,
                                (double)x[i]);
    }
    return EXO_OK;
}

static exo_status
check_values(const exo_rollout *r, const exo_environment_shape *shape, exo_err *err)
{
    const size_t all = r->steps * r->environments;
    for (size_t i = 0; i < all; i++) {
        if (r->choices && (r->choices[i] < 0 || (uint32_t)r->choices[i] >= shape->actions))
            return exo_fail(err, EXO_INVAL, "actions[%zu]: %d is not in [0, %u)", i, r->choices[i],
                            shape->actions);
        if (r->dones[i] > EXO_EPISODE_TRUNCATED)
            return exo_fail(err, EXO_INVAL, "dones[%zu]: %d is not in [0, %d]", i, r->dones[i],
                            EXO_EPISODE_TRUNCATED);
    }
    for (size_t i = 0; r->players && i < all + r->environments; i++)
        if (r->players[i] >= shape->players)
            return exo_fail(err, EXO_INVAL, "players[%zu]: %d is not in [0, %u)", i, r->players[i],
                            shape->players);
    return EXO_OK;
}

exo_status
exo_rollout_view(exo_rollout *out, const exo_item *item, const exo_environment_shape *shape,
                 exo_err *err)
{
    size_t steps = 0, environments = 0;
    exo_status st = check_parts(item, shape, &steps, &environments, err);
    if (st != EXO_OK)
        return st;
    const bool box = shape->actions == 0;
    *out = (exo_rollout){
        .steps = steps,
        .environments = environments,
        .box = shape->box,
        .num_players = shape->players,
        .observations = item->parts[OBSERVATIONS].data,
        .choices = box ? NULL : item->parts[ACTIONS].data,
        .boxes = box ? item->parts[ACTIONS].data : NULL,
        .log_probs = item->parts[LOG_PROBS].data,
        .values = item->parts[VALUES].data,
        .rewards = item->parts[REWARDS].data,
        .dones = item->parts[DONES].data,
        .final_values = item->parts[FINAL_VALUES].data,
        .returns = item->parts[RETURNS].data,
        .bootstrap = item->parts[BOOTSTRAP].data,
        .players = shape->players > 1 ? item->parts[PLAYERS].data : NULL,
    };
    st = check_values(out, shape, err);
    return st == EXO_OK ? check_finite(item, err) : st;
}

exo_status
exo_policy_read(const exo_policy *policy, const exo_item *item, exo_err *err)
{
    const size_t numel = exo_policy_numel(&policy->shape);
    const exo_item_part *part = &item->parts[0];
    if (item->num_parts != 1 || part->dtype != EXO_F32 || part->count != numel)
        return exo_fail(err, EXO_INVAL,
                        "%zu arrays, the first of %zu %s, not the %zu fp32 parameters of a policy",
                        item->num_parts, item->num_parts ? part->count : 0,
                        item->num_parts ? exo_dtype_name(part->dtype) : "elements", numel);
    memcpy(policy->values, part->data, numel * sizeof(float));
    return EXO_OK;
}

void
exo_returns_add(exo_returns *returns, const exo_rollout *rollout)
{
    for (size_t i = 0; i < rollout->steps * rollout->environments; i++)
        if (rollout->dones[i] != EXO_EPISODE_GOES_ON)
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
