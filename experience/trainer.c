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
 * Owner of the state: the thread that runs the actor. Read next: learner.h (how it learns),
 * learned.h (what it keeps), maker.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/config_edit.h"
#include "base/file.h"
#include "experience/builtin.h"
#include "experience/checkpoint.h"
#include "experience/learned.h"
#include "experience/observer.h"
#include "experience/publisher.h"
#include "experience/regret.h"
#include "experience/stock.h"

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
    uint64_t under_way;    /* draws of an update and of later ones that makers may have begun */
    uint8_t *ahead;        /* (ahead_bytes) of a checkpoint; NULL: draws are taken in order */
    size_t ahead_bytes;
    uint64_t every; /* updates between two checkpoints; 0: none are written */
    uint64_t saved; /* version of the last checkpoint */
    exo_meter *meters[NUM_METERS];
    exo_stock stock;            /* items of this update and of later ones */
    exo_item **items;           /* (all batches) of the present update; held */
    exo_experience *experience; /* (all batches) their arrays */
    size_t held;
    bool closed; /* no more items come */
    uint64_t used, repeated, oldest;
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
    t->under_way = draws;
    if (!place)
        return EXO_OK;
    if (t->staleness == 0)
        return exo_config_fail(place, err,
                               "oversample needs staleness of at least 1: a draw that an update "
                               "does not wait for is learned from by a later version");
    exo_status st = exo_config_double(config, "oversample", most, 1, most, &factor, err);
    if (st != EXO_OK)
        return st;
    t->under_way = (uint64_t)ceil(factor * (double)update - 1e-9);
    t->stock.slack = draws - t->under_way;
    if (draws > MAX_AHEAD)
        return exo_config_fail(place, err,
                               "oversample: (1 + staleness) * batch * update_steps is at most %d",
                               MAX_AHEAD);
    t->ahead_bytes = t->stock.slack > 0 ? (size_t)(draws + 7) / 8 : 0;
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
    if (st != EXO_OK)
        return st;
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
    exo_stock_release(&t->stock);
    exo_free(t->ahead);
    exo_free(t->items);
    exo_free(t->experience);
    exo_learned_close(&t->learned);
    exo_publisher_free(&t->publisher);
    exo_regret_free(&t->regret);
    exo_dealer_free(&t->dealer);
    exo_learner_free(&t->learner);
}

/* --- Versions --------------------------------------------------------------------------------- */

/* Makers may make the draws below it with a version. With oversampling, where the last update
 * takes what the others have left, and with balance, where rooms are for what is learned from, it ends
 * with the last update; also for trainers that are apart, as a maker ends with the first one that has
 * ended and gets an item. */
static uint64_t
quota_at(const struct trainer *t, const exo_graph_actor *actor, uint64_t version)
{
    uint64_t quota = version * items_of_update(t) + t->under_way;
    uint64_t end = t->updates * items_of_update(t);
    bool is_exact = t->stock.slack > 0 || t->dealer || exo_learner_is_apart(t->learner);
    bool ends = is_exact && t->updates > 0 && quota > end;
    return (ends ? end : quota) * exo_graph_count(actor);
}

static uint64_t
quota_of(const struct trainer *t, const exo_graph_actor *actor)
{
    return quota_at(t, actor, exo_learner_version(t->learner));
}

/* The most ranges of draws that the stock has. */
static size_t
ranges_of(const struct trainer *t)
{
    return (size_t)(t->stock.slack + t->stock.room) / 2 + 1;
}

/* Sends the newest version to the makers that wait for it. */
static exo_status
send_version(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    size_t most = ranges_of(t);
    uint64_t *finished = t->stock.slack > 0 ? exo_calloc(2 * most, sizeof *finished) : NULL;
    if (t->stock.slack > 0 && !finished)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu ranges of draws", most);
    const exo_draw_bounds bounds = {.learned = exo_stock_low(&t->stock),
                                    .quota = quota_of(t, actor),
                                    .finished = finished,
                                    .num_finished = exo_stock_finished(&t->stock, finished, most)};
    exo_status st = exo_publisher_send(t->publisher, exo_graph_output(actor, "parameters"),
                                       exo_learner_params(t->learner),
                                       exo_learner_version(t->learner), bounds, err);
    exo_free(finished);
    return st;
}

/* A maker's reply: it may wait for a newer version. One to another trainer has no effect. */
static exo_status
take_reply(struct trainer *t, exo_graph_actor *actor, const exo_item *item, exo_err *err)
{
    uint32_t to = exo_parameters_reply_trainer(item);
    if (to != exo_graph_index(actor) && to != EXO_ALL_TRAINERS)
        return EXO_OK;
    exo_status st =
        exo_publisher_take(t->publisher, exo_graph_output(actor, "parameters"), item, err);
    return st == EXO_OK ? send_version(t, actor, err) : st;
}

/* --- Experience ------------------------------------------------------------------------------- */

/* An item that no maker may have made yet, or that the run does not have, is a fault. */
static exo_status
check_quota(const struct trainer *t, exo_graph_actor *actor, uint64_t draw, exo_err *err)
{
    uint64_t quota = exo_graph_output(actor, "parameters") ? quota_of(t, actor) : UINT64_MAX;
    uint64_t draws = exo_publisher_draws(t->publisher);
    if (draw >= quota)
        return exo_fail(err, EXO_INVAL,
                        "item %llu is beyond the quota: makers may make the items below %llu",
                        (unsigned long long)draw, (unsigned long long)quota);
    return draw < draws ? EXO_OK
                        : exo_fail(err, EXO_INVAL,
                                   "item %llu is beyond the end: the makers of this run make the "
                                   "items below %llu",
                                   (unsigned long long)draw, (unsigned long long)draws);
}

/* An item of weights that this trainer does not have yet is a fault: of a later life of the trainers,
 * or of a version that only trainers with a strategy can have before each other. */
static exo_status
check_weights(const struct trainer *t, exo_graph_actor *actor, const exo_experience *e,
              exo_err *err)
{
    uint64_t newest = exo_learner_version(t->learner);
    if (e->life > (int64_t)exo_graph_life(actor))
        return exo_fail(err, EXO_INVAL,
                        "item %llu has weights of life %lld of the trainers, which are in life %u",
                        (unsigned long long)e->id, (long long)e->life, exo_graph_life(actor));
    if (e->life < (int64_t)exo_graph_life(actor) || exo_learner_is_apart(t->learner))
        return EXO_OK;
    for (size_t i = 0; i < e->tokens_length; i++)
        if (e->versions[i] > (int64_t)newest)
            return exo_fail(err, EXO_INVAL,
                            "token %zu of item %llu is of version %lld, but the newest one is %llu",
                            i, (unsigned long long)e->id, (long long)e->versions[i],
                            (unsigned long long)newest);
    return EXO_OK;
}

/* So is an item of weights with which makers may not make it, as they are too old. */
static exo_status
check_age(const struct trainer *t, exo_graph_actor *actor, const exo_experience *e, exo_err *err)
{
    if (!exo_graph_output(actor, "parameters") || exo_learner_is_apart(t->learner))
        return EXO_OK;
    for (size_t i = 0; i < e->tokens_length; i++) {
        int64_t version = e->versions[i]; /* -1: a tool's token */
        if (version >= 0 && e->id >= quota_at(t, actor, (uint64_t)version))
            return exo_fail(err, EXO_INVAL,
                            "token %zu of item %llu is of version %lld, with which makers may make "
                            "the items below %llu",
                            i, (unsigned long long)e->id, (long long)version,
                            (unsigned long long)quota_at(t, actor, (uint64_t)version));
    }
    return EXO_OK;
}

/* Whether no trainer learns from a draw: it comes after the last update. Makers may be ahead, and what
 * is of a trainer that has ended goes to the next one. */
static bool
is_after_the_end(const struct trainer *t, exo_graph_actor *actor, uint64_t draw)
{
    uint64_t index = draw / exo_graph_count(actor);
    return t->updates > 0 && index / items_of_update(t) >= t->updates;
}

/* A draw has come: its maker has room for another one. */
static exo_status
deal_more(struct trainer *t, exo_graph_actor *actor, uint64_t draw, exo_err *err)
{
    exo_status st = exo_dealer_arrived(t->dealer, draw, err);
    return st == EXO_OK ? send_version(t, actor, err) : st;
}

/* Puts an item into the stock, unless it came before, or its weights are of an earlier life of the
 * trainers, whose updates may be undone, or it is of no use. The item is held or dropped. */
static exo_status
take_item(struct trainer *t, exo_graph_actor *actor, exo_item *item, exo_err *err)
{
    exo_experience e;
    bool late = false;
    exo_status st = exo_experience_view(&e, item, err);
    if (st == EXO_OK)
        st = exo_learner_check(t->learner, &e, err);
    if (st == EXO_OK)
        st = check_weights(t, actor, &e, err);
    if (st == EXO_OK)
        late = e.life >= 0 && e.life != (int64_t)exo_graph_life(actor);
    if (st == EXO_OK && !late)
        st = check_quota(t, actor, e.id, err);
    if (st == EXO_OK && !late)
        st = check_age(t, actor, &e, err);
    if (st == EXO_OK && !late)
        st = exo_regret_check(t->regret, &e, err);
    if (st == EXO_OK && !late && is_after_the_end(t, actor, e.id)) {
        exo_item_drop(&item);
        return EXO_OK;
    }
    if (st == EXO_OK && !late)
        st = exo_stock_put(&t->stock, item, e.id, err);
    if (st == EXO_OK && !late && t->dealer)
        return deal_more(t, actor, e.id, err);
    if (st == EXO_OK && !late)
        return EXO_OK;
    if (st == EXO_OK || st == EXO_EXISTS) {
        t->repeated++;
        EXO_LOG(INFO, GRAPH, "event=repeated item=%llu from=%u: dropped", (unsigned long long)e.id,
                item->from);
        st = EXO_OK;
    } else {
        st = exo_fail_in(err, st, "experience from sender %u, item %llu", item->from,
                         (unsigned long long)item->number);
    }
    exo_item_drop(&item);
    return st;
}

/* Receives an item of experience, or a maker's reply. */
static exo_status
receive(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st =
        exo_port_receive(exo_graph_input(actor, "experience"), EXO_PORT_TIMEOUT, &item, err);
    if (st != EXO_OK)
        return st;
    if (!exo_parameters_is_reply(item))
        return take_item(t, actor, item, err);
    st = take_reply(t, actor, item, err);
    exo_item_drop(&item);
    return st;
}

/* Whether no further items come: makers have ended; or they have said that they have sent all, and all
 * draws of the run are here. Makers keep their ports open as long as they may have to make draws again.
 * The draws alone do not suffice: a maker may go on beyond the end that a damaged reply has told. */
static bool
has_all(const struct trainer *t)
{
    return t->closed || (exo_publisher_has_all(t->publisher) &&
                         exo_stock_is_complete(&t->stock, exo_publisher_draws(t->publisher)));
}

/* When makers have ended, every draw has come, as far as this trainer knows how many there are. In
 * another life it may find that they ended with the last one, which began with a checkpoint then. */
static exo_status
check_end(const struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    uint64_t draws = exo_publisher_draws(t->publisher);
    bool paces = exo_graph_output(actor, "parameters") != NULL;
    if (!t->closed || exo_stock_is_complete(&t->stock, draws))
        return EXO_OK;
    if (draws != UINT64_MAX)
        return exo_fail(err, EXO_FAILED,
                        "the makers have ended, but not all of the run's %llu draws came: let the "
                        "edges that carry experience block when they are full",
                        (unsigned long long)draws);
    return paces && exo_graph_life(actor) > 0 && exo_learner_version(t->learner) == 0
               ? exo_fail(err, EXO_FAILED,
                          "the makers have ended, and this life began without a checkpoint: set "
                          "checkpoint: {every: 10}")
               : EXO_OK;
}

/* Receives the items of a batch: fewer at the end. */
static exo_status
collect(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_item *item = NULL;
    size_t end = t->held + (size_t)t->batch;
    while (st == EXO_OK && !has_all(t) && !exo_stock_has(&t->stock, (size_t)t->batch)) {
        st = receive(t, actor, err);
        t->closed = st == EXO_CLOSED;
        st = t->closed ? check_end(t, actor, err) : st;
    }
    while (st == EXO_OK && t->held < end && (item = exo_stock_take(&t->stock))) {
        t->oldest = item->version < t->oldest ? item->version : t->oldest;
        t->items[t->held] = item;
        st = exo_experience_view(&t->experience[t->held++], item, err);
    }
    return st;
}

/* Takes what has come during an update, so that makers have replied before the next version goes out
 * to them. Their quota bounds it. */
static exo_status
catch_up(struct trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_port *port = exo_graph_input(actor, "experience");
    while (st == EXO_OK && exo_graph_output(actor, "parameters") && exo_port_pending(port) > 0)
        st = receive(t, actor, err);
    return st == EXO_CLOSED ? EXO_OK : st;
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
    exo_meter_count(t->meters[REPEATED], t->repeated);
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

/* Collects a batch and learns from it, and ends the update after its last batch, or if nobody has an
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
    bool last = false;
    t->oldest = UINT64_MAX;
    for (uint64_t i = 0; st == EXO_OK && !last; i++)
        st = learn_batch(t, actor, i, &figures, &last, err);
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
    int size = snprintf(text, sizeof text,
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
    exo_status st = exo_learner_sha256(t->learner, sha256, err);
    if (st != EXO_OK)
        return st;
    int size =
        snprintf(text, sizeof text,
                 "{\"score\": %.9g, \"kl\": %.9g, \"updates\": %llu, \"items\": %llu, "
                 "\"repeated\": %llu, \"sha256\": \"%s\"}\n",
                 t->last.score, t->last.kl, (unsigned long long)exo_learner_version(t->learner),
                 (unsigned long long)t->used, (unsigned long long)t->repeated, sha256);
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
                               .position = &t->stock.next,
                               .ahead = t->ahead,
                               .ahead_bytes = t->ahead_bytes,
                               .used = &t->used,
                               .repeated = &t->repeated};
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
        exo_stock_save(&t->stock, t->ahead, t->ahead_bytes);
    return exo_trainer_save(&state, err);
}

/* Tells the dealer which draws the trainer has at its beginning. */
static exo_status
begin_dealing(struct trainer *t, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_dealer_begin(t->dealer, exo_stock_low(&t->stock) / t->stock.size);
    size_t most = ranges_of(t), count = 0;
    uint64_t *finished = exo_calloc(2 * most, sizeof *finished);
    if (!finished)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu ranges of draws", most);
    count = exo_stock_finished(&t->stock, finished, most);
    for (size_t i = 0; i < count; i++)
        for (uint64_t k = 0; st == EXO_OK && k < finished[2 * i + 1]; k++)
            st = exo_dealer_arrived(t->dealer, finished[2 * i] + k * t->stock.size, err);
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
        st = exo_stock_load(&t->stock, t->ahead, t->ahead_bytes, err);
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
    t->stock.rank = exo_graph_index(actor);
    t->stock.size = exo_graph_count(actor);
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
        st = exo_learner_join(t->learner, &place, err);
    exo_learner_call_back(t->learner, &callbacks);
    if (st == EXO_OK)
        st = exo_observer_open(&t->observer, actor, EXO_OBSERVES_PPO,
                               6 * (double)exo_learner_trained(t->learner), err);
    if (st == EXO_OK && t->balance)
        st = exo_dealer_new(&t->dealer, exo_graph_index(actor), exo_graph_count(actor), err);
    publisher.dealer = t->dealer;
    if (st == EXO_OK)
        st = exo_publisher_start(t->publisher, exo_learner_model(t->learner), &publisher, err);
    if (st == EXO_OK)
        st = begin(t, actor, err);
    return st == EXO_OK ? send_version(t, actor, err) : st;
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
    st = catch_up(t, actor, err);
    exo_observer_start(&t->observer, EXO_TRAINER_UPDATE);
    if (st == EXO_OK)
        st = send_version(t, actor, err);
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
};
