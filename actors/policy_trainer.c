/* The graph class `policy_trainer`: an actor learns from experience by PPO and sends the
 * parameters of every version. Several trainers that all-reduce their gradients learn as one.
 *
 * Owner of the state: the thread that runs the actor. Read next: ppo_update.h (how it learns),
 * rollout.h (what it receives), rollout_maker.c (the player). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "actors/builtin_classes.h"
#include "actors/evaluator.h"
#include "actors/play.h"
#include "actors/player.h"
#include "actors/policy_file.h"
#include "actors/ppo_update.h"
#include "actors/rollout.h"
#include "actors/stream_seed.h"
#include "actors/updates_file.h"
#include "base/c_locale.h"
#include "base/file.h"

enum {
    MAX_BATCH = 1024,
    MAX_PATH = 4096
};

/* The meters, the most important ones first. */
enum {
    RETURN_MEAN,
    LOSS,
    STALENESS_MEAN,
    ITEMS,
    DROPPED,
    UPDATES,
    EVALUATION_MEAN,
    /* Only of games with an exact value: */
    GAME_VALUE,
    EXPLOITABILITY,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [RETURN_MEAN] =
        {.name = "return_mean",
         .unit = "1",
         .help = "mean return of the last 100 episodes that each trainer received, of all trainers",
         .kind = EXO_GAUGE},
    [LOSS] = {.name = "loss",
              .unit = "1",
              .help = "PPO's loss in the last update",
              .kind = EXO_GAUGE},
    [STALENESS_MEAN] =
        {.name = "staleness_mean",
         .unit = "versions",
         .help = "how much older than the trainer's policy items were, mean over those learnt from",
         .kind = EXO_GAUGE},
    [ITEMS] = {.name = "items", .unit = "items", .help = "items that the trainer has learnt from"},
    [DROPPED] = {.name = "dropped",
                 .unit = "items",
                 .help = "items that were too old (max_staleness)"},
    [UPDATES] = {.name = "updates",
                 .unit = "updates",
                 .help = "updates of the policy: versions that were sent"},
    [EVALUATION_MEAN] = {.name = "evaluation_mean",
                         .unit = "1",
                         .help = "mean return of the final policy's evaluation (evaluate)",
                         .kind = EXO_GAUGE},
    [GAME_VALUE] = {.name = "game_value",
                    .unit = "1",
                    .help = "what the first player wins in the mean, exactly, if the policy plays "
                            "all players",
                    .kind = EXO_GAUGE},
    [EXPLOITABILITY] = {.name = "exploitability",
                        .unit = "1",
                        .help = "what a best response to the policy wins in the mean over the "
                                "players, exactly: 0 in an equilibrium",
                        .kind = EXO_GAUGE},
};

/* The meters of evaluations while it learns; the last one only with a threshold. */
enum {
    SELECTION_MEAN,
    BEST_UPDATE,
    BEST_SELECTION_MEAN,
    BEST_EVALUATION_MEAN,
    THRESHOLD_SAMPLES,
    NUM_LOOK_METERS
};

static const exo_meter_class look_meter_classes[NUM_LOOK_METERS] = {
    [SELECTION_MEAN] = {.name = "selection_mean",
                        .unit = "1",
                        .help = "mean return of the newest evaluation while it learns "
                                "(evaluate_every)",
                        .kind = EXO_GAUGE},
    [BEST_UPDATE] = {.name = "best_update",
                     .unit = "updates",
                     .help = "update that made the best policy among those evaluated",
                     .kind = EXO_GAUGE},
    [BEST_SELECTION_MEAN] = {.name = "best_selection_mean",
                             .unit = "1",
                             .help = "mean return by which the best policy was selected",
                             .kind = EXO_GAUGE},
    [BEST_EVALUATION_MEAN] = {.name = "best_evaluation_mean",
                              .unit = "1",
                              .help = "mean return of the best policy in the episodes of "
                                      "evaluation_mean",
                              .kind = EXO_GAUGE},
    [THRESHOLD_SAMPLES] = {.name = "threshold_samples",
                           .unit = "samples",
                           .help = "samples learnt from when selection_mean first reached "
                                   "reward_threshold",
                           .kind = EXO_GAUGE},
};

struct trainer {
    exo_play play;
    exo_ppo_update_opts opts;
    exo_meter *meters[NUM_METERS], *look_meters[NUM_LOOK_METERS];
    uint64_t batch, max_staleness;
    double target;           /* -INFINITY: none */
    char *first;             /* file of the first policy; NULL: the seed draws it */
    uint64_t evaluate;       /* episodes of an evaluation */
    uint64_t evaluate_every; /* updates between evaluations; 0: only at the end */
    double threshold;        /* -INFINITY: none */
    bool evaluate_best;
    exo_ppo_update *update;
    exo_evaluator *evaluator; /* NULL without evaluate_every */
    /* The current update: (batch) items, which are held, and their arrays. */
    exo_item **items;
    exo_rollout *rollouts;
    size_t held;
    /* The run so far: */
    exo_updates_file *file;
    exo_returns returns;
    double return_mean;     /* over all trainers; NaN: no episode has ended */
    uint64_t used, dropped; /* numbers of items */
    uint64_t samples;       /* of the used items */
    double staleness;       /* sum over the used items */
    exo_game_value game;    /* of the newest policy; only if there is one */
    exo_evaluation evaluation, best_evaluation;
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_numbers(struct trainer *t, exo_config *config, exo_err *err)
{
    const double most = 1e9;
    const struct {
        const char *key;
        double fallback, min, max;
        double *out;
    } numbers[] = {
        {"lr", 1e-3, 0, most, &t->opts.lr},
        {"gamma", 0.99, 0, 1, &t->opts.gamma},
        {"lambda", 0.95, 0, 1, &t->opts.lambda},
        {"clip", 0.2, 0, most, &t->opts.loss.clip},
        {"value_clip", 0, 0, most, &t->opts.loss.value_clip},
        {"entropy", 0.01, 0, most, &t->opts.loss.entropy},
        {"value", 0.5, 0, most, &t->opts.loss.value},
        {"max_norm", 0.5, 0, most, &t->opts.max_norm},
        {"target_return", (double)-INFINITY, -most, most, &t->target},
        {"reward_threshold", (double)-INFINITY, -most, most, &t->threshold},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof numbers / sizeof *numbers; i++)
        st = exo_config_double(config, numbers[i].key, numbers[i].fallback, numbers[i].min,
                               numbers[i].max, numbers[i].out, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "last_entropy", t->opts.loss.entropy, 0, most,
                               &t->opts.last_entropy, err);
    return st;
}

static exo_status
read_counts(struct trainer *t, exo_config *config, exo_err *err)
{
    const struct {
        const char *key;
        uint64_t fallback, min, max;
        uint64_t *out;
    } counts[] = {
        {"batch", 4, 1, MAX_BATCH, &t->batch},
        {"epochs", 4, 1, 1000, &t->opts.epochs},
        {"minibatches", 16, 1, 1000000, &t->opts.minibatches},
        {"updates", 200, 0, UINT32_MAX, &t->opts.updates},
        {"max_staleness", 0, 0, UINT64_MAX, &t->max_staleness},
        {"evaluate", 0, 0, UINT32_MAX, &t->evaluate},
        {"evaluate_every", 0, 0, UINT32_MAX, &t->evaluate_every},
        {"slow_down", 1, 1, 1000000, &t->opts.repeat},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof counts / sizeof *counts; i++)
        st = exo_config_u64(config, counts[i].key, counts[i].fallback, counts[i].min, counts[i].max,
                            counts[i].out, err);
    return st;
}

/* Reads the options of the first policy and of evaluations, after the numbers. */
static exo_status
read_policies(struct trainer *t, exo_config *config, exo_err *err)
{
    const char *path = NULL;
    exo_status st = exo_config_bool(config, "evaluate_best", false, &t->evaluate_best, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "policy", NULL, &path, err);
    if (st != EXO_OK)
        return st;
    if (t->evaluate_every > 0 && t->evaluate == 0)
        return exo_config_fail(config, err,
                               "evaluate_every needs evaluate, the number of episodes");
    if (isfinite(t->threshold) && t->evaluate_every == 0)
        return exo_config_fail(config, err,
                               "reward_threshold needs evaluate_every, the updates between two "
                               "evaluations");
    if (path && !(t->first = exo_strdup(path)))
        return exo_fail(err, EXO_NOMEM, "no memory for a path");
    return EXO_OK;
}

static exo_status
trainer_init(void *self, exo_config *config, exo_err *err)
{
    struct trainer *t = self;
    exo_status st = exo_play_read(&t->play, config, err);
    if (st == EXO_OK)
        st = read_numbers(t, config, err);
    if (st == EXO_OK)
        st = read_counts(t, config, err);
    if (st == EXO_OK)
        st = read_policies(t, config, err);
    if (st != EXO_OK)
        return st;
    t->return_mean = (double)NAN;
    t->items = exo_calloc(t->batch, sizeof *t->items);
    t->rollouts = exo_calloc(t->batch, sizeof *t->rollouts);
    return t->items && t->rollouts ? EXO_OK
                                   : exo_fail(err, EXO_NOMEM, "no memory for a batch of items");
}

static void
drop_items(struct trainer *t)
{
    while (t->held > 0)
        exo_item_drop(&t->items[--t->held]);
}

static void
trainer_release(void *self)
{
    struct trainer *t = self;
    drop_items(t);
    exo_free(t->items);
    exo_free(t->rollouts);
    exo_ppo_update_free(&t->update);
    exo_updates_file_close(&t->file);
    exo_evaluator_free(&t->evaluator);
    exo_free(t->first);
    exo_play_release(&t->play);
}

/* --- Experience ------------------------------------------------------------------------------- */

/* Reads an item; a batch of such items must have a sample for each minibatch. */
static exo_status
view_item(const struct trainer *t, exo_rollout *rollout, exo_item *item, exo_err *err)
{
    exo_status st = exo_rollout_view(rollout, item, exo_environment_spec_shape(t->play.spec), err);
    uint64_t samples = st == EXO_OK ? t->batch * rollout->steps * rollout->environments : 0;
    return st != EXO_OK || samples >= t->opts.minibatches
               ? st
               : exo_fail(err, EXO_INVAL,
                          "batch: %llu such items have %llu samples, too few for minibatches: %llu",
                          (unsigned long long)t->batch, (unsigned long long)samples,
                          (unsigned long long)t->opts.minibatches);
}

/* Receives one item and holds it, unless it is too old. */
static exo_status
receive_item(struct trainer *t, exo_port *port, exo_err *err)
{
    exo_item *item = NULL;
    exo_rollout *rollout = &t->rollouts[t->held];
    exo_status st = exo_port_receive(port, EXO_PORT_TIMEOUT, &item, err);
    if (st != EXO_OK)
        return st;
    st = view_item(t, rollout, item, err);
    if (st != EXO_OK) {
        st = exo_fail_in(err, st, "experience from sender %u, item %llu", item->from,
                         (unsigned long long)item->number);
        exo_item_drop(&item);
        return st;
    }
    exo_returns_add(&t->returns, rollout);
    uint64_t version = exo_ppo_update_count(t->update);
    uint64_t staleness = version > item->version ? version - item->version : 0;
    if (t->max_staleness > 0 && staleness > t->max_staleness) {
        t->dropped++;
        exo_item_drop(&item);
        return EXO_OK;
    }
    t->used++;
    t->samples += rollout->steps * rollout->environments;
    t->staleness += (double)staleness;
    t->items[t->held++] = item;
    return EXO_OK;
}

/* Receives a batch of items. A single trainer receives further items in place of those that were
 * too old. Several trainers that learn as one each receive the same number and learn from fewer.
 * Otherwise they could deadlock: one waits for items, its makers wait for room at a second trainer
 * before they can send them, and the second trainer waits for the gradients of the first. */
static exo_status
collect(struct trainer *t, exo_port *port, bool alone, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint64_t i = 0; st == EXO_OK && i < t->batch; i = alone ? t->held : i + 1)
        st = receive_item(t, port, err);
    return st;
}

/* Decides whether the run is over; all trainers that learn as one come to the same answer. It is
 * over when one of them has no more experience (`mine`: this one), or when the mean return over the
 * last episodes of all trainers reaches the target. */
static exo_status
agree_to_end(struct trainer *t, exo_group *group, bool mine, bool *end, exo_err *err)
{
    enum {
        ENDS,
        SUM,
        EPISODES,
        COUNT
    };
    float figures[COUNT];
    double sum;
    figures[EPISODES] = (float)exo_returns_sum(&t->returns, &sum);
    figures[SUM] = (float)sum;
    figures[ENDS] = mine;
    exo_status st =
        group ? exo_all_reduce(group, exo_host_array(EXO_F32, figures, COUNT), EXO_SUM, err)
              : EXO_OK;
    if (st != EXO_OK)
        return st;
    float full = (float)EXO_RETURN_WINDOW * (group ? (float)exo_group_size(group) : 1.0f);
    if (figures[EPISODES] > 0)
        t->return_mean = (double)figures[SUM] / (double)figures[EPISODES];
    *end = figures[ENDS] > 0 ||
           (isfinite(t->target) && figures[EPISODES] >= full && t->return_mean >= t->target);
    return EXO_OK;
}

/* --- Learning --------------------------------------------------------------------------------- */

static exo_status
learn(struct trainer *t, exo_graph_actor *actor, exo_group *group, exo_err *err)
{
    exo_graph_phase(actor, "learn");
    exo_status st = exo_ppo_update_begin(t->update, t->rollouts, t->held, err);
    drop_items(t);
    for (uint64_t i = 0; st == EXO_OK && i < exo_ppo_update_steps(t->update); i++) {
        if (i > 0)
            exo_graph_phase(actor, "learn");
        exo_ppo_update_gradient(t->update);
        if (group)
            st = exo_all_reduce(group,
                                exo_host_array(EXO_F32, exo_ppo_update_sums(t->update),
                                               exo_ppo_update_num_sums(t->update)),
                                EXO_SUM, err);
        exo_graph_phase(actor, "apply");
        if (st == EXO_OK)
            st = exo_ppo_update_apply(t->update, err);
    }
    if (st == EXO_OK)
        exo_ppo_update_end(t->update);
    return st;
}

static exo_status
send_policy(struct trainer *t, exo_port *port, exo_err *err)
{
    exo_item *item = NULL;
    size_t numel = exo_policy_numel(&t->play.shape);
    exo_status st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = numel}, 1, err);
    if (st != EXO_OK)
        return st;
    memcpy(item->parts[0].data, exo_ppo_update_policy(t->update)->values, numel * sizeof(float));
    item->version = exo_ppo_update_count(t->update);
    st = exo_port_send(port, &item, EXO_PORT_TIMEOUT, err);
    return st == EXO_CLOSED ? EXO_OK : st; /* the makers have left and need no policy */
}

static double
staleness_mean(const struct trainer *t)
{
    return t->used ? t->staleness / (double)t->used : 0;
}

/* Shows how far the trainer is; `learned`: it has just made an update. */
static exo_status
report(struct trainer *t, bool learned, exo_err *err)
{
    if (exo_has_game_value(t->play.spec)) {
        exo_evaluate_game(&t->game, t->play.spec, exo_ppo_update_policy(t->update));
        exo_meter_set(t->meters[GAME_VALUE], t->game.value);
        exo_meter_set(t->meters[EXPLOITABILITY], t->game.exploitability);
    }
    exo_meter_set(t->meters[RETURN_MEAN], t->return_mean);
    exo_meter_set(t->meters[LOSS], exo_ppo_update_loss(t->update));
    exo_meter_set(t->meters[STALENESS_MEAN], staleness_mean(t));
    exo_meter_count(t->meters[ITEMS], t->used);
    exo_meter_count(t->meters[DROPPED], t->dropped);
    exo_meter_count(t->meters[UPDATES], exo_ppo_update_count(t->update));
    return learned ? exo_updates_file_write(t->file, exo_ppo_update_count(t->update), t->samples,
                                            t->return_mean, exo_ppo_update_loss(t->update),
                                            &t->game, err)
                   : EXO_OK;
}

/* --- Evaluation ------------------------------------------------------------------------------- */

/* Evaluates the newest policy to find the best one, after every evaluate_every-th update, or `now`.
 * Trainers that learn as one play the same episodes. */
static exo_status
look(struct trainer *t, exo_graph_actor *actor, bool now, exo_err *err)
{
    uint64_t update = exo_ppo_update_count(t->update);
    if (!t->evaluator || (!now && update % t->evaluate_every != 0))
        return EXO_OK;
    exo_graph_phase(actor, "evaluate");
    exo_status st =
        exo_evaluator_look(t->evaluator, exo_ppo_update_policy(t->update), update, t->samples, err);
    if (st != EXO_OK)
        return st;
    const exo_evaluated *best = exo_evaluator_best(t->evaluator),
                        *reached = exo_evaluator_reached(t->evaluator);
    exo_meter_set(t->look_meters[SELECTION_MEAN],
                  exo_evaluator_newest(t->evaluator)->evaluation.mean);
    exo_meter_set(t->look_meters[BEST_UPDATE], (double)best->update);
    exo_meter_set(t->look_meters[BEST_SELECTION_MEAN], best->evaluation.mean);
    if (reached)
        exo_meter_set(t->look_meters[THRESHOLD_SAMPLES], (double)reached->samples);
    return EXO_OK;
}

/* Evaluates the final policy, and in the same episodes the best one, which was selected by others. */
static exo_status
evaluate(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    if (t->evaluate == 0 || exo_graph_cancelled(actor))
        return EXO_OK;
    exo_status st = look(t, actor, true, err);
    if (st != EXO_OK)
        return st;
    exo_graph_phase(actor, "evaluate");
    uint64_t seed = exo_stream_seed(exo_graph_seed(actor), "evaluation");
    st = exo_evaluate(&t->evaluation, t->play.spec, exo_ppo_update_policy(t->update), t->evaluate,
                      t->evaluate_best, seed, err);
    if (st != EXO_OK)
        return st;
    exo_meter_set(t->meters[EVALUATION_MEAN], t->evaluation.mean);
    if (!t->evaluator)
        return EXO_OK;
    if (exo_evaluator_best(t->evaluator)->update == exo_ppo_update_count(t->update))
        t->best_evaluation = t->evaluation;
    else
        st = exo_evaluate(&t->best_evaluation, t->play.spec, exo_evaluator_policy(t->evaluator),
                          t->evaluate, t->evaluate_best, seed, err);
    exo_meter_set(t->look_meters[BEST_EVALUATION_MEAN], t->best_evaluation.mean);
    return st;
}

/* --- Results ---------------------------------------------------------------------------------- */

static void
hash_policy(const exo_policy *policy, char sha256[65])
{
    exo_sha256(policy->values, exo_policy_numel(&policy->shape) * sizeof(float), sha256);
}

/* Writes the keys of the evaluations, each followed by a comma. */
static void
write_evaluations(const struct trainer *t, char *out, size_t size)
{
    const exo_evaluated *best = t->evaluator ? exo_evaluator_best(t->evaluator) : NULL,
                        *reached = t->evaluator ? exo_evaluator_reached(t->evaluator) : NULL;
    char sha256[65];
    int n = 0;
    *out = '\0';
    if (t->evaluation.episodes > 0)
        n += exo_c_snprintf(out + n, size - (size_t)n,
                            "\"evaluation_mean\": %.9g, \"evaluation_deviation\": %.9g, ",
                            t->evaluation.mean, t->evaluation.deviation);
    if (t->best_evaluation.episodes > 0)
        n += exo_c_snprintf(out + n, size - (size_t)n,
                            "\"best_evaluation_mean\": %.9g, \"best_evaluation_deviation\": %.9g, ",
                            t->best_evaluation.mean, t->best_evaluation.deviation);
    if (best) {
        hash_policy(exo_evaluator_policy(t->evaluator), sha256);
        n += exo_c_snprintf(
            out + n, size - (size_t)n,
            "\"best_update\": %llu, \"best_samples\": %llu, \"best_selection_mean\": "
            "%.9g, \"best_sha256\": \"%s\", ",
            (unsigned long long)best->update, (unsigned long long)best->samples,
            best->evaluation.mean, sha256);
    }
    if (reached)
        snprintf(out + n, size - (size_t)n,
                 "\"threshold_update\": %llu, \"threshold_samples\": %llu, ",
                 (unsigned long long)reached->update, (unsigned long long)reached->samples);
    else if (isfinite(t->threshold))
        snprintf(out + n, size - (size_t)n,
                 "\"threshold_update\": null, \"threshold_samples\": null, ");
}

static exo_status
write_result(const struct trainer *t, const exo_graph_actor *actor, exo_err *err)
{
    char path[MAX_PATH], text[2048], sha256[65], mean[32] = "null", evaluations[1024],
                                                 game[128] = "";
    const char *folder = exo_graph_folder(actor), *name = exo_graph_name(actor);
    const exo_policy *policy = exo_ppo_update_policy(t->update);
    if (!folder)
        return EXO_OK;
    if (!isnan(t->return_mean))
        exo_c_snprintf(mean, sizeof mean, "%.9g", t->return_mean);
    write_evaluations(t, evaluations, sizeof evaluations);
    if (exo_has_game_value(t->play.spec))
        exo_c_snprintf(game, sizeof game, "\"game_value\": %.9g, \"exploitability\": %.9g, ",
                       t->game.value, t->game.exploitability);
    hash_policy(policy, sha256);
    int size = exo_c_snprintf(
        text, sizeof text,
        "{\"return_mean\": %s, \"episodes\": %llu, \"updates\": %llu, \"items\": %llu, "
        "\"dropped\": %llu, \"staleness_mean\": %.9g, %s%s\"sha256\": \"%s\"}\n",
        mean, (unsigned long long)t->returns.count,
        (unsigned long long)exo_ppo_update_count(t->update), (unsigned long long)t->used,
        (unsigned long long)t->dropped, staleness_mean(t), evaluations, game, sha256);
    if ((size_t)snprintf(path, sizeof path, "%s/final_%s.json", folder, name) >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    exo_status st = exo_updates_file_check(t->file, err);
    if (st == EXO_OK)
        st = exo_policy_save(policy, exo_environment_spec_name(t->play.spec),
                             exo_ppo_update_count(t->update), folder, "policy", name, err);
    return st == EXO_OK ? exo_file_write_atomic(path, text, (size_t)size, err) : st;
}

/* --- The actor -------------------------------------------------------------------------------- */

static exo_status
declare_meters(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_meters *meters = exo_graph_meters(actor);
    exo_status st =
        exo_meter_declare_all(t->meters, meters, meter_classes,
                              exo_has_game_value(t->play.spec) ? NUM_METERS : GAME_VALUE, err);
    if (st != EXO_OK || t->evaluate_every == 0)
        return st;
    return exo_meter_declare_all(t->look_meters, meters, look_meter_classes,
                                 isfinite(t->threshold) ? NUM_LOOK_METERS : THRESHOLD_SAMPLES, err);
}

/* Makes the learner with its first policy, the list of updates, and the evaluator. */
static exo_status
prepare(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    uint64_t seed = exo_graph_seed(actor);
    const char *folder = exo_graph_folder(actor), *name = exo_graph_name(actor);
    exo_status st = declare_meters(t, actor, err);
    if (st == EXO_OK)
        st = exo_updates_file_open(&t->file, folder, name, exo_has_game_value(t->play.spec), err);
    if (st == EXO_OK)
        st = exo_ppo_update_new(&t->update, &t->opts, &t->play.shape, seed,
                                exo_stream_seed(seed, name), err);
    if (st == EXO_OK && t->first)
        st = exo_policy_load(exo_ppo_update_policy(t->update),
                             exo_environment_spec_name(t->play.spec), t->first, err);
    if (st == EXO_OK && t->evaluate_every > 0)
        st = exo_evaluator_new(&t->evaluator,
                               &(exo_evaluator_opts){.spec = t->play.spec,
                                                     .episodes = t->evaluate,
                                                     .likeliest = t->evaluate_best,
                                                     .threshold = t->threshold,
                                                     .seed = exo_stream_seed(seed, "selection"),
                                                     .folder = folder,
                                                     .actor = name},
                               &t->play.shape, err);
    return st;
}

static exo_status
trainer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct trainer *t = self;
    exo_port *experience = exo_graph_input(actor, "experience"),
             *parameters = exo_graph_output(actor, "parameters");
    exo_group *group = exo_graph_group(actor, "gradients");
    bool end = false;

    exo_status st = prepare(t, actor, err);
    if (st == EXO_OK)
        st = send_policy(t, parameters, err);
    while (st == EXO_OK && !end && exo_ppo_update_count(t->update) < t->opts.updates) {
        st = collect(t, experience, !group, err);
        if (st == EXO_OK || st == EXO_CLOSED)
            st = agree_to_end(t, group, st == EXO_CLOSED || exo_graph_cancelled(actor), &end, err);
        if (st == EXO_OK && !end)
            st = learn(t, actor, group, err);
        if (st == EXO_OK && !end)
            st = send_policy(t, parameters, err);
        if (st == EXO_OK)
            st = report(t, !end, err);
        if (st == EXO_OK && !end)
            st = look(t, actor, false, err);
    }
    if (st == EXO_OK)
        st = evaluate(t, actor, err);
    return st == EXO_OK ? write_result(t, actor, err) : st;
}

/* A batch may receive more items than this order states, because items that are too old are
 * dropped. */
static void
trainer_order(const void *self, char *out, size_t size)
{
    const struct trainer *t = self;
    if (t->opts.updates == 0)
        snprintf(out, size, "send parameters");
    else
        snprintf(
            out, size,
            "send parameters; %llu (%llu receive experience; reduce gradients; send parameters)",
            (unsigned long long)t->opts.updates, (unsigned long long)t->batch);
}

static void
trainer_shape(const void *self, char *out, size_t size)
{
    exo_play_write_shape(&((const struct trainer *)self)->play, out, size);
}

static const exo_graph_port trainer_ports[] = {
    {.name = "experience",
     .type = "rollout",
     .direction = EXO_PORT_INPUT,
     .required = true,
     .blocking = true},
    {.name = "parameters",
     .type = "policy",
     .direction = EXO_PORT_OUTPUT,
     .initial = true,
     .retained = true},
    {.name = "gradients", .type = "policy gradients", .direction = EXO_PORT_COLLECTIVE},
};
/* The first two are of a minibatch. */
static const char *const trainer_phases[] = {"learn", "apply", "evaluate", NULL};

const exo_graph_class exo_policy_trainer_class = {
    .name = "policy_trainer",
    .help = "learns to play an environment by PPO; options environment, batch, updates, "
            "target_return, evaluate, evaluate_every, epochs, minibatches, lr, ...",
    .ports = trainer_ports,
    .num_ports = sizeof trainer_ports / sizeof *trainer_ports,
    .phases = trainer_phases,
    .state_size = sizeof(struct trainer),
    .init = trainer_init,
    .run = trainer_run,
    .write_order = trainer_order,
    .write_shape = trainer_shape,
    .release = trainer_release,
};
