/* The graph class `ppo_trainer`: an actor learns from the answers of its makers and sends them the
 * weights of every version. Several trainers that all-reduce their gradients learn as one; a strategy
 * keeps several trainers together that learn apart.
 *
 * The trainer paces its makers: with version v it lets them make the items of the updates up to v +
 * 1 + staleness. With staleness 0, items are of the version that learns from them.
 *
 * With `oversample: f` makers may have f times the items of an update under way, and an update takes
 * the first ones that come. The others go on, and are of a later update; none is older than
 * `staleness`, as the trainer waits for those that would be (stock.h).
 *
 * A trainer in another life, or of a run that is resumed, continues from its newest checkpoint. It
 * tells its makers from which draw on to begin again.
 *
 * Owner of the state: the thread that runs the actor. Read next: intake.h (what comes to it),
 * learner.h (how it learns), learned.h (what it keeps), maker.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/c_locale.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "experience/builtin.h"
#include "experience/checkpoint.h"
#include "experience/intake.h"
#include "experience/learned.h"
#include "experience/observer.h"
#include "nn/optim_groups.h"

enum {
    MAX_BATCH = 1 << 16,
    MAX_AHEAD = 1 << 24, /* draws that an oversampling trainer keeps apart */
    MAX_PATH = 4096
};

/* The meters, the most important ones first. */
enum {
    SCORE,
    LOSS,
    KL,
    RATIO_OFF,
    KL_MAKERS,
    CHI_SQUARED,
    EFFECTIVE,
    CLIPPED,
    NORM,
    PTX,
    REGRET,
    STALENESS,
    ITEMS,
    REPEATED,
    UPDATES,
    UPDATES_SENT,
    UPDATE_BYTES,
    UPDATE_WHOLES,
    UPDATE_REFUSED,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [SCORE] = {.name = "score",
               .unit = "1",
               .help = "mean score of the answers in the last update, of all trainers",
               .kind = EXO_GAUGE},
    [LOSS] = {.name = "loss",
              .unit = "1",
              .help = "loss of the last update, the mean over its steps",
              .kind = EXO_GAUGE},
    [KL] = {.name = "kl",
            .unit = "nats",
            .help =
                "mean over the answers of log p_maker - log p_0, where p_0 is the initial model",
            .kind = EXO_GAUGE},
    [RATIO_OFF] = {.name = "ratio_off",
                   .unit = "1",
                   .help = "largest deviation of p / p_maker from 1, of a token before the first "
                           "step of the last update",
                   .kind = EXO_GAUGE},
    [KL_MAKERS] = {.name = "kl_makers",
                   .unit = "nats",
                   .help = "KL divergence of p_maker to p, the mean of p / p_maker - 1 - log(p / "
                           "p_maker) over the tokens before the first step of the last update",
                   .kind = EXO_GAUGE},
    [CHI_SQUARED] = {.name = "chi_squared",
                     .unit = "1",
                     .help = "chi-squared divergence of p from p_maker, estimated by the mean of "
                             "(p / p_maker)^2 - 1 over the tokens before the first step of the "
                             "last update",
                     .kind = EXO_GAUGE},
    [EFFECTIVE] = {.name = "effective",
                   .unit = "1",
                   .help = "effective sample size by p / p_maker as a share of the tokens, before "
                           "the first step of the last update",
                   .kind = EXO_GAUGE},
    [CLIPPED] = {.name = "clipped",
                 .unit = "1",
                 .help = "share of the tokens whose ratio was beyond the clip",
                 .kind = EXO_GAUGE},
    [NORM] = {.name = "norm",
              .unit = "1",
              .help = "norm of the gradient in the last step, before it was clipped",
              .kind = EXO_GAUGE},
    [PTX] = {.name = "ptx_loss",
             .unit = "1",
             .help = "cross-entropy of the texts of `ptx` in the last update, the mean over its "
                     "steps",
             .kind = EXO_GAUGE},
    [REGRET] = {.name = "regret",
                .unit = "1",
                .help = "J* - J of the policy in the task of `exact`, by enumeration",
                .kind = EXO_GAUGE},
    [STALENESS] = {.name = "staleness",
                   .unit = "versions",
                   .help = "age of the oldest item in the last update",
                   .kind = EXO_GAUGE},
    [ITEMS] = {.name = "items", .unit = "items", .help = "items that the trainer has learned from"},
    [REPEATED] = {.name = "repeated",
                  .unit = "items",
                  .help = "items that came again and were dropped"},
    [UPDATES] = {.name = "updates",
                 .unit = "updates",
                 .help = "updates of the weights: versions that were made"},
    [UPDATES_SENT] = {.name = "updates_sent",
                      .unit = "updates",
                      .help = "weight updates that were sent, one for each maker that got it"},
    [UPDATE_BYTES] = {.name = "update_bytes",
                      .unit = "bytes",
                      .help = "bytes of the weight updates to all makers"},
    [UPDATE_WHOLES] = {.name = "update_wholes",
                       .unit = "updates",
                       .help = "weight updates without a base, one for each maker that got it"},
    [UPDATE_REFUSED] = {.name = "update_refused",
                        .unit = "updates",
                        .help = "weight updates that a maker refused: whole ones followed"},
};

struct trainer {
    exo_learner *learner;
    exo_learned *learned;
    exo_publisher *publisher;
    exo_observer observer;
    exo_regret *regret; /* NULL: the makers have no exact task */
    uint64_t batch, updates, staleness;
    uint64_t update_steps; /* batches of an update */
    bool balance;          /* draws are dealt as makers get on */
    exo_dealer *dealer;    /* NULL: maker i of M makes the draws i, i + M, ... */
    uint8_t *ahead;        /* (ahead_bytes) of a checkpoint; NULL: draws are taken in order */
    size_t ahead_bytes;
    uint64_t every; /* updates between two checkpoints; 0: none are written */
    uint64_t saved; /* version of the last checkpoint */
    exo_meter *meters[NUM_METERS];
    exo_intake intake;
    exo_item **items;           /* (all batches) of the present update; held */
    exo_experience *experience; /* (all batches) their arrays */
    size_t held;
    uint64_t used, oldest;
    exo_learner_figures last;
};

/* --- Options ---------------------------------------------------------------------------------- */

/* The items of an update. */
static uint64_t
items_of_update(const struct trainer *t)
{
    return t->batch * t->update_steps;
}

/* Reads how many draws may be under way. */
static exo_status
read_oversample(struct trainer *t, exo_config *config, exo_err *err)
{
    double most = 1 + (double)t->staleness, factor = most;
    uint64_t update = items_of_update(t), draws = (1 + t->staleness) * update;
    exo_config *place = exo_config_get(config, "oversample");
    t->intake.under_way = draws;
    if (!place)
        return EXO_OK;
    if (t->staleness == 0)
        return exo_config_fail(place, err,
                               "oversample needs staleness of at least 1: a draw that an update "
                               "does not wait for is learned from by a later version");
    exo_status st = exo_config_double(config, "oversample", most, 1, most, &factor, err);
    if (st != EXO_OK)
        return st;
    t->intake.under_way = (uint64_t)ceil(factor * (double)update - 1e-9);
    t->intake.stock.slack = draws - t->intake.under_way;
    if (draws > MAX_AHEAD)
        return exo_config_fail(place, err,
                               "oversample: (1 + staleness) * batch * update_steps is at most %d",
                               MAX_AHEAD);
    t->ahead_bytes = t->intake.stock.slack > 0 ? (size_t)(draws + 7) / 8 : 0;
    t->ahead = exo_calloc(t->ahead_bytes ? t->ahead_bytes : 1, 1);
    return t->ahead ? EXO_OK
                    : exo_fail(err, EXO_NOMEM, "no memory for a list of %llu draws",
                               (unsigned long long)draws);
}

static exo_status
trainer_init(void *self, exo_config *config, exo_err *err)
{
    struct trainer *t = self;
    exo_status st = exo_learner_read(&t->learner, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "batch", 8, 1, MAX_BATCH, &t->batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "updates", 0, 0, UINT32_MAX, &t->updates, err);
    if (st == EXO_OK && t->updates == 0 && exo_learner_is_apart(t->learner))
        st = exo_config_fail(exo_config_get(config, "strategy"), err,
                             "strategy: each trainer needs the number of `updates`, so that all "
                             "take part in the same exchanges: set updates");
    if (st == EXO_OK)
        st = exo_config_u64(config, "staleness", 0, 0, UINT32_MAX, &t->staleness, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "update_steps", 1, 1, MAX_BATCH, &t->update_steps, err);
    if (st == EXO_OK)
        st = read_oversample(t, config, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "balance", false, &t->balance, err);
    if (st == EXO_OK)
        st = exo_checkpoints_read(config, 10, &t->every, err);
    if (st == EXO_OK)
        st = exo_observer_read(&t->observer, config, err);
    if (st == EXO_OK)
        st = exo_publisher_read(&t->publisher, config, err);
    if (st == EXO_OK)
        st = exo_regret_read(&t->regret, config, t->learner, err);
    if (st == EXO_OK)
        st = exo_optim_check_misplaced(config, "optimizer.", err);
    if (st != EXO_OK)
        return st;
    t->intake.learner = t->learner;
    t->intake.publisher = t->publisher;
    t->intake.regret = t->regret;
    t->intake.update = items_of_update(t);
    t->intake.updates = t->updates;
    t->items = exo_calloc(items_of_update(t), sizeof *t->items);
    t->experience = exo_calloc(items_of_update(t), sizeof *t->experience);
    return t->items && t->experience
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for an update of %llu items",
                          (unsigned long long)items_of_update(t));
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
    exo_intake_release(&t->intake);
    exo_free(t->ahead);
    exo_free(t->items);
    exo_free(t->experience);
    exo_learned_close(&t->learned);
    exo_publisher_free(&t->publisher);
    exo_regret_free(&t->regret);
    exo_dealer_free(&t->dealer);
    exo_learner_free(&t->learner);
}

/* --- Learning --------------------------------------------------------------------------------- */

static void
report_updates(const struct trainer *t)
{
    const exo_publisher_figures *f = exo_publisher_figures_of(t->publisher);
    exo_meter_count(t->meters[UPDATES_SENT], f->updates);
    exo_meter_count(t->meters[UPDATE_BYTES], f->bytes);
    exo_meter_count(t->meters[UPDATE_WHOLES], f->wholes);
    exo_meter_count(t->meters[UPDATE_REFUSED], f->refused);
}

static void
report(const struct trainer *t)
{
    const exo_learner_figures *f = &t->last;
    uint64_t before = exo_learner_version(t->learner) - 1;
    exo_meter_set(t->meters[SCORE], f->score);
    exo_meter_set(t->meters[LOSS], f->loss);
    exo_meter_set(t->meters[KL], f->kl);
    exo_meter_set(t->meters[RATIO_OFF], f->ratio_off);
    exo_meter_set(t->meters[KL_MAKERS], f->kl_makers);
    exo_meter_set(t->meters[CHI_SQUARED], f->chi_squared);
    exo_meter_set(t->meters[EFFECTIVE], f->effective);
    exo_meter_set(t->meters[CLIPPED], f->clipped);
    exo_meter_set(t->meters[NORM], f->norm);
    exo_meter_set(t->meters[PTX], f->ptx_loss);
    exo_meter_set(t->meters[STALENESS], t->oldest < before ? (double)(before - t->oldest) : 0);
    exo_meter_count(t->meters[ITEMS], t->used);
    exo_meter_count(t->meters[REPEATED], t->intake.repeated);
    exo_meter_count(t->meters[UPDATES], before + 1);
    report_updates(t);
}

/* Counts what an update has learned from. */
static void
count_learned(struct trainer *t)
{
    for (size_t i = 0; i < t->held; i++) {
        const exo_experience *e = &t->experience[i];
        t->observer.samples += e->answers;
        t->observer.tokens +=
            exo_learner_epochs(t->learner) * (e->tokens_length + e->answers * e->prompt_length);
    }
    t->used += t->held;
}

/* Takes the items of a batch: fewer at the end. */
static exo_status
collect(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    size_t end = t->held + (size_t)t->batch;
    exo_status st = exo_intake_await(&t->intake, actor, (size_t)t->batch, err);
    /* Makers that have ended a batch have answered, and get the newest version before the update, not
     * after it. A dealer would deal earlier, and know less about which maker gets on. */
    if (st == EXO_OK && !t->dealer)
        st = exo_intake_catch_up(&t->intake, actor, err);
    while (st == EXO_OK && t->held < end && (item = exo_stock_take(&t->intake.stock))) {
        t->oldest = item->version < t->oldest ? item->version : t->oldest;
        t->items[t->held] = item;
        st = exo_experience_view(&t->experience[t->held++], item, err);
    }
    return st;
}

/* Takes a batch and learns from it, and ends the update after its last batch, or if nobody has an
 * item. *last: it has ended. */
static exo_status
learn_batch(struct trainer *t, exo_graph_actor *actor, uint64_t number,
            exo_learner_figures *figures, bool *last, exo_err *err)
{
    exo_group *group = exo_graph_group(actor, "gradients");
    size_t first = t->held;
    double before = figures->items;
    exo_status st = collect(t, actor, err);
    if (st != EXO_OK)
        return st;
    exo_time began = exo_graph_now(actor);
    exo_graph_phase(actor, "learn");
    st = exo_learner_take(t->learner, group, t->experience + first, t->held - first, figures, err);
    *last = number + 1 == t->update_steps || figures->items <= before;
    if (st == EXO_OK && *last)
        st = exo_learner_end(t->learner, group, t->update_steps, figures, err);
    exo_graph_phase(actor, NULL);
    t->observer.learned += exo_graph_now(actor) - began;
    return st;
}

/* Makes an update; *end: nobody has an item. */
static exo_status
learn(struct trainer *t, exo_graph_actor *actor, bool *end, exo_err *err)
{
    exo_learner_figures figures = {0};
    exo_status st = EXO_OK;
    exo_time before = t->observer.learned;
    bool last = false;
    t->oldest = UINT64_MAX;
    for (uint64_t i = 0; st == EXO_OK && !last; i++)
        st = learn_batch(t, actor, i, &figures, &last, err);
    t->intake.learns = t->observer.learned - before;
    *end = st == EXO_OK && figures.items <= 0 && !exo_learner_is_apart(t->learner);
    if (st == EXO_OK && figures.items > 0)
        t->last = figures;
    if (st == EXO_OK && !*end)
        st = exo_learned_write(t->learned, t->experience, t->held, exo_graph_now(actor), t->learner,
                               &t->last, err);
    if (st == EXO_OK)
        count_learned(t);
    drop_items(t);
    return st;
}

/* Measures the distance from the best policy of an exact task. */
static exo_status
measure_regret(struct trainer *t, exo_regret_figures *out, exo_err *err)
{
    exo_status st = exo_regret_measure(t->regret, t->learner, out, err);
    if (st == EXO_OK)
        exo_meter_set(t->meters[REGRET], out->regret);
    return st;
}

/* Writes the last regret to exact_TRAINER.json. */
static exo_status
write_regret(struct trainer *t, const exo_graph_actor *actor, exo_err *err)
{
    char path[MAX_PATH], text[512];
    exo_regret_figures f;
    exo_status st = t->regret ? measure_regret(t, &f, err) : EXO_OK;
    if (st != EXO_OK || !t->regret || !exo_graph_folder(actor))
        return st;
    int size =
        exo_c_snprintf(text, sizeof text,
                       "{\"regret\": %.9g, \"optimum\": %.9g, \"objective\": %.9g, \"reward\": "
                       "%.9g, \"kl\": %.9g}\n",
                       f.regret, f.optimum, f.optimum - f.regret, f.reward, f.kl);
    if ((size_t)snprintf(path, sizeof path, "%s/exact_%s.json", exo_graph_folder(actor),
                         exo_graph_name(actor)) >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    return exo_file_write_atomic(path, text, (size_t)size, err);
}

/* The first trainer writes the model, which all have, and its adapter. */
static exo_status
save_model(const struct trainer *t, const exo_graph_actor *actor, exo_err *err)
{
    const char *folder = exo_graph_folder(actor), *name = exo_graph_name(actor);
    char model[MAX_PATH], adapter[MAX_PATH];
    if (exo_graph_index(actor) > 0)
        return EXO_OK;
    snprintf(model, sizeof model, "%s/model_%s", folder, name);
    if ((size_t)snprintf(adapter, sizeof adapter, "%s/adapter_%s", folder, name) >= sizeof adapter)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", adapter);
    return exo_learner_save(t->learner, model, adapter, err);
}

static exo_status
write_result(const struct trainer *t, const exo_graph_actor *actor, exo_err *err)
{
    char path[MAX_PATH], text[512], sha256[65];
    if (!exo_graph_folder(actor))
        return EXO_OK;
    exo_status st = exo_table_check(exo_learned_table(t->learned), err);
    if (st == EXO_OK)
        st = exo_learner_sha256(t->learner, sha256, err);
    if (st != EXO_OK)
        return st;
    int size = exo_c_snprintf(
        text, sizeof text,
        "{\"score\": %.9g, \"kl\": %.9g, \"updates\": %llu, \"items\": %llu, "
        "\"repeated\": %llu, \"sha256\": \"%s\"}\n",
        t->last.score, t->last.kl, (unsigned long long)exo_learner_version(t->learner),
        (unsigned long long)t->used, (unsigned long long)t->intake.repeated, sha256);
    if ((size_t)snprintf(path, sizeof path, "%s/final_%s.json", exo_graph_folder(actor),
                         exo_graph_name(actor)) >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    st = exo_file_write_atomic(path, text, (size_t)size, err);
    return st == EXO_OK ? save_model(t, actor, err) : st;
}

/* --- A run ------------------------------------------------------------------------------------ */

static exo_trainer_state
state_of(struct trainer *t, exo_graph_actor *actor)
{
    static const char *const carried[] = {"gradients", "parameters", "exchange"};
    exo_group *group = NULL;
    for (size_t i = 0; !group && i < sizeof carried / sizeof *carried; i++)
        group = exo_graph_group(actor, carried[i]);
    return (exo_trainer_state){.files = exo_checkpoints_of(actor, group),
                               .learner = t->learner,
                               .learned = &t->learned,
                               .figures = &t->last,
                               .position = &t->intake.stock.next,
                               .ahead = t->ahead,
                               .ahead_bytes = t->ahead_bytes,
                               .used = &t->used,
                               .repeated = &t->intake.repeated};
}

/* Writes a checkpoint, unless the present version has one. */
static exo_status
save(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    const exo_trainer_state state = state_of(t, actor);
    if (t->every == 0 || !state.files.folder || t->saved == exo_learner_version(t->learner))
        return EXO_OK;
    t->saved = exo_learner_version(t->learner);
    if (t->ahead_bytes > 0)
        exo_stock_save(&t->intake.stock, t->ahead, t->ahead_bytes);
    return exo_trainer_save(&state, err);
}

/* Tells the dealer which draws the trainer has at its beginning. */
static exo_status
begin_dealing(struct trainer *t, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_dealer_begin(t->dealer, exo_stock_low(&t->intake.stock) / t->intake.stock.size);
    size_t most = exo_intake_ranges(&t->intake), count = 0;
    uint64_t *finished = exo_calloc(2 * most, sizeof *finished);
    if (!finished)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu ranges of draws", most);
    count = exo_stock_finished(&t->intake.stock, finished, most);
    for (size_t i = 0; i < count; i++)
        for (uint64_t k = 0; st == EXO_OK && k < finished[2 * i + 1]; k++)
            st = exo_dealer_arrived(t->dealer, finished[2 * i] + k * t->intake.stock.size, err);
    exo_free(finished);
    return st;
}

/* Begins at version 0, or where the last life or run was. */
static exo_status
begin(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    const exo_trainer_state state = state_of(t, actor);
    exo_status st = exo_graph_resumes(actor) ? exo_trainer_resume(&state, err)
                                             : exo_trainer_load(&state, 0, err);
    if (st == EXO_OK)
        st = exo_stock_load(&t->intake.stock, t->ahead, t->ahead_bytes, err);
    if (st == EXO_OK && t->dealer)
        st = begin_dealing(t, err);
    t->saved = exo_learner_version(t->learner);
    if (st == EXO_OK && t->saved == 0)
        st = exo_learned_write(t->learned, NULL, 0, exo_graph_now(actor), t->learner, NULL, err);
    return st;
}

static exo_group *
group_of(void *actor, const char *carries)
{
    return exo_graph_group(actor, carries);
}

static void
tell_epoch(void *observer, uint64_t epoch, bool end)
{
    exo_observer_tell(observer, EXO_TRAINER_EPOCH, epoch, end);
}

static void
tell_step(void *observer, uint64_t step, bool end)
{
    exo_observer_tell(observer, EXO_TRAINER_BATCH, step, end);
}

static exo_status
start(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    bool group = exo_graph_group(actor, "gradients") != NULL;
    const exo_learner_callbacks callbacks = {tell_epoch, tell_step, &t->observer};
    const exo_learner_place place = {.updates = t->updates * t->update_steps,
                                     .meters = exo_graph_meters(actor),
                                     .group = group_of,
                                     .context = actor};
    exo_publisher_place publisher = {.index = exo_graph_index(actor),
                                     .count = exo_graph_count(actor),
                                     .life = exo_graph_life(actor),
                                     .in_parts = t->update_steps > 1,
                                     .apart = exo_learner_is_apart(t->learner)};
    t->intake.stock.rank = exo_graph_index(actor);
    t->intake.stock.size = exo_graph_count(actor);
    exo_status st =
        exo_meter_declare_all(t->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    if (st == EXO_OK && !group && exo_graph_count(actor) > 1 && !exo_learner_is_apart(t->learner))
        st = exo_fail(err, EXO_INVAL,
                      "%u trainers need an edge that carries gradients: {from: trainer, to: "
                      "trainer, carries: gradients, route: all_reduce}; or a `strategy`",
                      exo_graph_count(actor));
    if (st == EXO_OK && (t->ahead || t->balance) && !exo_graph_output(actor, "parameters"))
        st = exo_fail(err, EXO_INVAL,
                      "%s needs an edge that carries parameters: {from: trainer, to: maker, "
                      "carries: parameters, ...}, by which the trainer paces its makers",
                      t->balance ? "balance" : "oversample");
    if (st == EXO_OK)
        st = exo_learner_start(t->learner, exo_graph_seed(actor), exo_graph_index(actor),
                               exo_graph_count(actor), exo_graph_device_place(actor), err);
    if (st == EXO_OK)
        st = exo_graph_set_device(actor, exo_learner_device(t->learner), err);
    if (st == EXO_OK)
        st = exo_learner_join(t->learner, &place, err);
    exo_learner_call_back(t->learner, &callbacks);
    if (st == EXO_OK)
        st = exo_observer_open(&t->observer, actor, EXO_OBSERVES_PPO,
                               6 * (double)exo_learner_trained(t->learner), err);
    if (st == EXO_OK && t->balance)
        st = exo_dealer_new(&t->dealer, exo_graph_index(actor), exo_graph_count(actor), err);
    publisher.dealer = t->intake.dealer = t->dealer;
    if (st == EXO_OK)
        st = exo_publisher_start(t->publisher, exo_learner_model(t->learner), &publisher, err);
    if (st == EXO_OK)
        st = begin(t, actor, err);
    return st == EXO_OK ? exo_intake_send_version(&t->intake, actor, err) : st;
}

/* An update, and its version on its way to the makers. */
static exo_status
run_episode(struct trainer *t, exo_graph_actor *actor, bool *end, exo_err *err)
{
    exo_observer_start(&t->observer, EXO_TRAINER_EPISODE);
    exo_status st = learn(t, actor, end, err);
    if (st != EXO_OK || *end)
        return st;
    t->observer.version = exo_learner_version(t->learner);
    st = exo_intake_catch_up(&t->intake, actor, err);
    exo_observer_start(&t->observer, EXO_TRAINER_UPDATE);
    if (st == EXO_OK)
        st = exo_intake_send_version(&t->intake, actor, err);
    exo_observer_end(&t->observer, EXO_TRAINER_UPDATE);
    exo_observer_end(&t->observer, EXO_TRAINER_EPISODE);
    if (st == EXO_OK)
        report(t);
    if (st == EXO_OK && exo_regret_is_due(t->regret, t->observer.version))
        st = measure_regret(t, &(exo_regret_figures){0}, err);
    if (st == EXO_OK && t->every && t->observer.version % t->every == 0)
        st = save(t, actor, err);
    return st;
}

/* With a restart rule no trainer ends before all have their last checkpoint: makers that follow this
 * one only end with it, and could not make again what another one would lose. */
static exo_status
await_others(exo_graph_actor *actor, exo_group *group, exo_err *err)
{
    return group && exo_graph_may_restart(actor) ? exo_barrier(group, err) : EXO_OK;
}

static exo_status
trainer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct trainer *t = self;
    bool end = false;
    exo_status st = start(t, actor, err);
    while (st == EXO_OK && !end && !exo_graph_cancelled(actor) &&
           (t->updates == 0 || exo_learner_version(t->learner) < t->updates))
        st = run_episode(t, actor, &end, err);
    if (st == EXO_OK && !exo_graph_cancelled(actor))
        st = save(t, actor, err);
    if (st == EXO_OK && !exo_graph_cancelled(actor))
        st = await_others(actor, state_of(t, actor).files.group, err);
    exo_learner_leave(t->learner);
    exo_observer_close(&t->observer);
    if (st == EXO_OK)
        st = write_regret(t, actor, err);
    return st == EXO_OK ? write_result(t, actor, err) : st;
}

/* Says what does not go with makers that share a model. */
static void
write_shape(const void *self, char *out, size_t size)
{
    if (((const struct trainer *)self)->balance)
        snprintf(out, size, "draws that are dealt as makers get on (balance)");
}

static void
write_device(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%s", exo_learner_device_name(((const struct trainer *)self)->learner));
}

static const exo_graph_port trainer_ports[] = {
    {.name = "experience",
     .type = "experience",
     .direction = EXO_PORT_INPUT,
     .required = true,
     .blocking = true},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_OUTPUT, .initial = true},
    {.name = "gradients", .type = "gradients of a policy", .direction = EXO_PORT_COLLECTIVE},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_COLLECTIVE},
    {.name = "exchange",
     .type = "what a strategy sends that does not say",
     .direction = EXO_PORT_COLLECTIVE},
};
static const char *const trainer_phases[] = {"learn", NULL};

const exo_graph_class exo_ppo_trainer_class = {
    .name = "ppo_trainer",
    .help = "learns from answers and sends the weights; options model, algorithm, batch, updates, "
            "update_steps, staleness, oversample, balance, update, epochs, minibatches, optimizer, "
            "strategy, device, checkpoint, exact, ...",
    .ports = trainer_ports,
    .num_ports = sizeof trainer_ports / sizeof *trainer_ports,
    .phases = trainer_phases,
    .state_size = sizeof(struct trainer),
    .resumes = true,
    .init = trainer_init,
    .run = trainer_run,
    .release = trainer_release,
    .write_shape = write_shape,
    .write_device = write_device,
};
