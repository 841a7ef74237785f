/* Options of an algorithm: see objective.h. No state. */
#include "experience/objective.h"

#include "base/config_edit.h"

enum algorithm {
    GRPO,
    DR_GRPO,
    RLOO,
    REINFORCE,
    PPO,
};
static const char *const algorithms[] = {"grpo", "dr_grpo", "rloo", "reinforce++", "ppo", NULL};

/* The defaults of each algorithm, which its options change. */
static void
set_defaults(exo_objective_opts *o, enum algorithm a)
{
    static const exo_group_kind groups[] = {
        [GRPO] = EXO_GROUP_GRPO, [DR_GRPO] = EXO_GROUP_MEAN, [RLOO] = EXO_GROUP_RLOO};
    *o = (exo_objective_opts){.values = a == PPO,
                              .groups = a == GRPO || a == DR_GRPO || a == RLOO,
                              .gamma = 1,
                              .lambda = a == PPO ? 0.95 : 1,
                              .whiten = a == PPO || a == REINFORCE,
                              .reduction = EXO_REDUCE_TOKENS,
                              .loss = {.clip = {.low = 0.2, .high = 0.2}}};
    if (o->groups)
        o->group = groups[a];
    if (a == GRPO)
        o->reduction = EXO_REDUCE_SEQUENCES;
    if (a == DR_GRPO)
        o->reduction = EXO_REDUCE_CONSTANT;
    o->loss.kl = EXO_KL_K3;
    if (a == PPO) {
        o->loss.value = 0.1;
        o->loss.value_clip = 0.2;
    }
}

static exo_status
read_numbers(exo_objective_opts *o, exo_config *map, exo_err *err)
{
    const double any = 1e9;
    const struct {
        const char *key;
        double most, *value;
        bool good; /* the algorithm takes it */
    } numbers[] = {
        {"kl_coef", any, &o->reward.kl_coef, true},
        {"kl_target", any, &o->control.target, true},
        {"kl_horizon", any, &o->control.horizon, true},
        {"score_clip", any, &o->reward.score_clip, true},
        {"gamma", 1, &o->gamma, !o->groups},
        {"lambda", 1, &o->lambda, o->values},
        {"clip", any, &o->loss.clip.low, true},
        {"clip_high", any, &o->loss.clip.high, true},
        {"dual_clip", any, &o->loss.clip.dual, true},
        {"kl_loss", any, &o->loss.kl_coef, true},
        {"entropy", any, &o->loss.entropy, true},
        {"value", any, &o->loss.value, o->values},
        {"value_clip", any, &o->loss.value_clip, o->values},
        {"target_kl", any, &o->target_kl, true},
        {"weight_min", any, &o->correction.min, true},
        {"weight_max", any, &o->correction.max, true},
        {"rho_bar", any, &o->vtrace.rho_bar, o->values},
        {"c_bar", any, &o->vtrace.c_bar, o->values},
        {"length", any, &o->length, true},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof numbers / sizeof *numbers; i++) {
        if (!numbers[i].good)
            continue;
        st = exo_config_double(map, numbers[i].key, *numbers[i].value, 0, numbers[i].most,
                               numbers[i].value, err);
        if (numbers[i].value == &o->loss.clip.low)
            o->loss.clip.high = o->loss.clip.low; /* unless clip_high says otherwise */
    }
    return st;
}

static exo_status
read_choices(exo_objective_opts *o, exo_config *map, exo_err *err)
{
    size_t kl = o->reward.kl, kl_loss = o->loss.kl, correction = o->correction.kind,
           reduction = o->reduction;
    exo_status st = exo_config_choice(map, "kl", kl, exo_kl_names(), &kl, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "kl_loss_kind", kl_loss, exo_kl_names(), &kl_loss, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "correction", correction, exo_correction_names(), &correction,
                               err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "reduction", reduction, exo_reduction_names(), &reduction, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "whiten", o->whiten, &o->whiten, err);
    o->reward.kl = (exo_kl_kind)kl;
    o->loss.kl = (exo_kl_kind)kl_loss;
    o->correction.kind = (exo_correction)correction;
    o->reduction = (exo_reduction)reduction;
    return st;
}

static exo_status
check(const exo_objective_opts *o, exo_config *map, exo_err *err)
{
    if (o->reduction == EXO_REDUCE_CONSTANT && o->length <= 0)
        return exo_config_fail(map, err,
                               "reduction: constant needs `length`, the longest answer in tokens");
    if (o->loss.clip.dual > 0 && o->loss.clip.dual <= 1)
        return exo_config_fail(map, err, "dual_clip: expected 0 or more than 1, got %g",
                               o->loss.clip.dual);
    if (o->control.target > 0 && o->reward.kl_coef <= 0)
        return exo_config_fail(map, err, "kl_target needs a kl_coef to begin with");
    if (o->correction.kind == EXO_CORRECTION_VTRACE && !o->values)
        return exo_config_fail(map, err, "correction: vtrace needs values: use ppo");
    if (o->correction.max > 0 && o->correction.max < o->correction.min)
        return exo_config_fail(map, err, "weight_max %g is less than weight_min %g",
                               o->correction.max, o->correction.min);
    return EXO_OK;
}

exo_status
exo_objective_read(exo_objective_opts *out, exo_config *config, exo_err *err)
{
    size_t algorithm = PPO;
    exo_config *node = exo_config_get(config, "algorithm"), *map = NULL;
    exo_config_doc *empty = NULL;
    bool named = node && exo_config_is_map(node);
    exo_status st = exo_config_choice(named ? node : config, named ? "name" : "algorithm", PPO,
                                      algorithms, &algorithm, err);
    set_defaults(out, (enum algorithm)algorithm);
    if (st == EXO_OK && !named)
        st = exo_config_parse(&empty, "algorithm", "{}", err);
    map = st == EXO_OK ? named ? node : exo_config_root(empty) : NULL;
    if (st == EXO_OK)
        st = read_numbers(out, map, err);
    if (st == EXO_OK)
        st = read_choices(out, map, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    if (st == EXO_OK)
        st = check(out, map, err);
    out->control.coef = out->reward.kl_coef;
    out->vtrace.gamma = out->gamma;
    out->vtrace.lambda = out->lambda;
    exo_config_free(&empty);
    return st;
}

bool
exo_objective_needs_reference(const exo_objective_opts *o)
{
    return o->reward.kl_coef > 0 || o->loss.kl_coef > 0;
}

bool
exo_objective_needs_proximal(const exo_objective_opts *o)
{
    return o->correction.kind != EXO_CORRECTION_NONE &&
           o->correction.kind != EXO_CORRECTION_INTERPOLATED;
}
