/* What comes to a trainer: see intake.h. */
#include "experience/intake.h"

#include <exogym/memory.h>

#include "experience/parameters.h"

void
exo_intake_release(exo_intake *in)
{
    exo_stock_release(&in->stock);
}

/* --- Versions --------------------------------------------------------------------------------- */

/* Makers may make the draws below it with a version. With oversampling, where the last update
 * takes what the others have left, and with balance, where rooms are for what is learned from, it ends
 * with the last update; also for trainers that are apart, as a maker ends with the first one that has
 * ended and gets an item. */
static uint64_t
quota_at(const exo_intake *in, const exo_graph_actor *actor, uint64_t version)
{
    uint64_t quota = version * in->update + in->under_way;
    uint64_t end = in->updates * in->update;
    bool is_exact = in->stock.slack > 0 || in->dealer || exo_learner_is_apart(in->learner);
    bool ends = is_exact && in->updates > 0 && quota > end;
    return (ends ? end : quota) * exo_graph_count(actor);
}

static uint64_t
quota_of(const exo_intake *in, const exo_graph_actor *actor)
{
    return quota_at(in, actor, exo_learner_version(in->learner));
}

size_t
exo_intake_ranges(const exo_intake *in)
{
    return (size_t)(in->stock.slack + in->stock.room) / 2 + 1;
}

exo_status
exo_intake_send_version(exo_intake *in, exo_graph_actor *actor, exo_err *err)
{
    size_t most = exo_intake_ranges(in);
    uint64_t *finished = in->stock.slack > 0 ? exo_calloc(2 * most, sizeof *finished) : NULL;
    if (in->stock.slack > 0 && !finished)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu ranges of draws", most);
    const exo_draw_bounds bounds = {.learned = exo_stock_low(&in->stock),
                                    .quota = quota_of(in, actor),
                                    .update = in->update * exo_graph_count(actor),
                                    .under_way = in->under_way * exo_graph_count(actor),
                                    .learns = in->learns,
                                    .finished = finished,
                                    .num_finished = exo_stock_finished(&in->stock, finished, most)};
    exo_status st = exo_publisher_send(in->publisher, exo_graph_output(actor, "parameters"),
                                       exo_learner_params(in->learner),
                                       exo_learner_version(in->learner), bounds, err);
    exo_free(finished);
    return st;
}

/* A maker's reply: it may wait for a newer version. One to another trainer has no effect. */
static exo_status
take_reply(exo_intake *in, exo_graph_actor *actor, const exo_item *item, exo_err *err)
{
    uint32_t to = exo_parameters_reply_trainer(item);
    if (to != exo_graph_index(actor) && to != EXO_ALL_TRAINERS)
        return EXO_OK;
    exo_status st =
        exo_publisher_take(in->publisher, exo_graph_output(actor, "parameters"), item, err);
    return st == EXO_OK ? exo_intake_send_version(in, actor, err) : st;
}

/* --- Experience ------------------------------------------------------------------------------- */

/* An item that no maker may have made yet, or that the run does not have, is a fault. */
static exo_status
check_quota(const exo_intake *in, exo_graph_actor *actor, uint64_t draw, exo_err *err)
{
    uint64_t quota = exo_graph_output(actor, "parameters") ? quota_of(in, actor) : UINT64_MAX;
    uint64_t draws = exo_publisher_draws(in->publisher);
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
check_weights(const exo_intake *in, exo_graph_actor *actor, const exo_experience *e, exo_err *err)
{
    uint64_t newest = exo_learner_version(in->learner);
    if (e->life > (int64_t)exo_graph_life(actor))
        return exo_fail(err, EXO_INVAL,
                        "item %llu has weights of life %lld of the trainers, which are in life %u",
                        (unsigned long long)e->id, (long long)e->life, exo_graph_life(actor));
    if (e->life < (int64_t)exo_graph_life(actor) || exo_learner_is_apart(in->learner))
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
check_age(const exo_intake *in, exo_graph_actor *actor, const exo_experience *e, exo_err *err)
{
    if (!exo_graph_output(actor, "parameters") || exo_learner_is_apart(in->learner))
        return EXO_OK;
    for (size_t i = 0; i < e->tokens_length; i++) {
        int64_t version = e->versions[i]; /* -1: a tool's token */
        if (version >= 0 && e->id >= quota_at(in, actor, (uint64_t)version))
            return exo_fail(err, EXO_INVAL,
                            "token %zu of item %llu is of version %lld, with which makers may make "
                            "the items below %llu",
                            i, (unsigned long long)e->id, (long long)version,
                            (unsigned long long)quota_at(in, actor, (uint64_t)version));
    }
    return EXO_OK;
}

/* Whether no trainer learns from a draw: it comes after the last update. Makers may be ahead, and what
 * is of a trainer that has ended goes to the next one. */
static bool
is_after_the_end(const exo_intake *in, exo_graph_actor *actor, uint64_t draw)
{
    uint64_t index = draw / exo_graph_count(actor);
    return in->updates > 0 && index / in->update >= in->updates;
}

/* A draw has come: its maker has room for another one. */
static exo_status
deal_more(exo_intake *in, exo_graph_actor *actor, uint64_t draw, exo_err *err)
{
    exo_status st = exo_dealer_arrived(in->dealer, draw, err);
    return st == EXO_OK ? exo_intake_send_version(in, actor, err) : st;
}

/* EXISTS: it came before. INVAL: something else came with its number. */
static exo_status
put(exo_intake *in, exo_item *item, const exo_experience *e, exo_err *err)
{
    exo_status st = exo_stock_put(&in->stock, item, e->id, err);
    if (st == EXO_OK)
        exo_stock_note(&in->stock, e);
    return st == EXO_EXISTS ? exo_stock_compare(&in->stock, e, err) : st;
}

/* Puts an item into the stock, unless it came before, or its weights are of an earlier life of the
 * trainers, whose updates may be undone, or it is of no use. The item is held or dropped. */
static exo_status
take_item(exo_intake *in, exo_graph_actor *actor, exo_item *item, exo_err *err)
{
    exo_experience e;
    bool late = false;
    exo_status st = exo_experience_view(&e, item, err);
    if (st == EXO_OK)
        st = exo_learner_check(in->learner, &e, err);
    if (st == EXO_OK)
        st = check_weights(in, actor, &e, err);
    if (st == EXO_OK)
        late = e.life >= 0 && e.life != (int64_t)exo_graph_life(actor);
    if (st == EXO_OK && !late)
        st = check_quota(in, actor, e.id, err);
    if (st == EXO_OK && !late)
        st = check_age(in, actor, &e, err);
    if (st == EXO_OK && !late)
        st = exo_regret_check(in->regret, &e, err);
    if (st == EXO_OK && !late && is_after_the_end(in, actor, e.id)) {
        exo_item_drop(&item);
        return EXO_OK;
    }
    if (st == EXO_OK && !late)
        st = put(in, item, &e, err);
    if (st == EXO_OK && !late && in->dealer)
        return deal_more(in, actor, e.id, err);
    if (st == EXO_OK && !late)
        return EXO_OK;
    return exo_experience_drop(&item, e.id, st, &in->repeated, err);
}

/* Receives an item of experience, or a maker's reply. */
static exo_status
receive(exo_intake *in, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st =
        exo_port_receive(exo_graph_input(actor, "experience"), EXO_PORT_TIMEOUT, &item, err);
    if (st != EXO_OK)
        return st;
    if (!exo_parameters_is_reply(item))
        return take_item(in, actor, item, err);
    st = take_reply(in, actor, item, err);
    exo_item_drop(&item);
    return st;
}

/* Whether no further items come: makers have ended; or they have said that they have sent all, and all
 * draws of the run are here. Makers keep their ports open as long as they may have to make draws again.
 * The draws alone do not suffice: a maker may go on beyond the end that a damaged reply has told. */
static bool
has_all(const exo_intake *in)
{
    return in->closed || (exo_publisher_has_all(in->publisher) &&
                          exo_stock_is_complete(&in->stock, exo_publisher_draws(in->publisher)));
}

/* When makers have ended, every draw has come, as far as this trainer knows how many there are. In
 * another life it may find that they ended with the last one, which began with a checkpoint then. */
static exo_status
check_end(const exo_intake *in, exo_graph_actor *actor, exo_err *err)
{
    uint64_t draws = exo_publisher_draws(in->publisher);
    bool paces = exo_graph_output(actor, "parameters") != NULL;
    if (!in->closed || exo_stock_is_complete(&in->stock, draws))
        return EXO_OK;
    if (draws != UINT64_MAX)
        return exo_fail(err, EXO_FAILED,
                        "the makers have ended, but not all of the run's %llu draws came: let the "
                        "edges that carry experience block when they are full",
                        (unsigned long long)draws);
    return paces && exo_graph_life(actor) > 0 && exo_learner_version(in->learner) == 0
               ? exo_fail(err, EXO_FAILED,
                          "the makers have ended, and this life began without a checkpoint: set "
                          "checkpoint: {every: 10}")
               : EXO_OK;
}

exo_status
exo_intake_await(exo_intake *in, exo_graph_actor *actor, size_t batch, exo_err *err)
{
    exo_status st = EXO_OK;
    while (st == EXO_OK && !has_all(in) && !exo_stock_has(&in->stock, batch)) {
        st = receive(in, actor, err);
        in->closed = st == EXO_CLOSED;
        st = in->closed ? check_end(in, actor, err) : st;
    }
    return st;
}

exo_status
exo_intake_catch_up(exo_intake *in, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_port *port = exo_graph_input(actor, "experience");
    while (st == EXO_OK && exo_graph_output(actor, "parameters") && exo_port_pending(port) > 0)
        st = receive(in, actor, err);
    return st == EXO_CLOSED ? EXO_OK : st;
}
