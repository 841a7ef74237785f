/* Training of nodes that are apart (exo_strategy_class): from one event at which all nodes meet to the
 * next, each goes on by itself. The trainer makes the next request to a node as soon as it has the
 * answer to the last one:
 *
 *     train to the next checkpoint (or, on the real clock, for a while); save, if it is one; train ...
 *
 * The first node that comes to a checkpoint begins it, and the last one completes it. So that slow
 * nodes do not fill the disk with parts of fast ones, at most BEGUN checkpoints are incomplete at a
 * time; one that would be more is left out, for all nodes.
 *
 * In an elastic run the members may change meanwhile (docs/elastic.md). All nodes then end their requests,
 * and go on from where they were in the next epoch:
 *
 *     a member dies, or a node has taken the state of another one over, while that one trained
 *     all requests end with PEER_LOST, after the present step
 *     exo_fit_recover_apart: the next epoch
 *     each node is asked to train again; its answer has the steps of the request that failed, too
 *
 * Incomplete checkpoints are given up then. While nodes are absent, the last node that comes to a
 * checkpoint writes their parts, too.
 *
 * On the virtual clock, time stands still between two requests to a node, so a checkpoint takes none,
 * and the server's part is that of the time at which the last node comes to it.
 *
 * Owner: the trainer's thread. Read next: fit_save.h. */
#include <string.h>

#include <exogym/memory.h>

#include "actors/fit_elastic.h"
#include "actors/fit_save.h"

enum {
    BEGUN = 4
};

struct march {
    struct run *run;
    uint64_t end;               /* all nodes meet after that step */
    uint64_t decided;           /* checkpoints up to that step are begun or left out */
    exo_fit_save *first;        /* the begun ones, in order */
    exo_time since, since_here; /* times of the last answer of the first node */
    bool changes;               /* the nodes were told that the members change */
    struct {
        uint64_t step;      /* done, as it has answered */
        uint64_t at;        /* done, as it has reported in an elastic run */
        uint64_t lives;     /* of its seat */
        uint64_t until;     /* of the last request to train */
        uint64_t bytes;     /* sent by the strategy */
        bool goes_on;       /* it was told that another request follows */
        exo_fit_save *save; /* it writes a part of it; NULL: it trains, or has nothing to do */
        uint32_t part;      /* the rank whose part that is */
    } nodes[];              /* (num_nodes) */
};

static bool
writes_checkpoints(const struct run *run)
{
    return run->opts->save_dir && run->opts->checkpoint_interval > 0;
}

/* Has a node train on, or meet the others. */
static exo_status
go_on(struct march *m, uint32_t rank, exo_err *err)
{
    struct run *run = m->run;
    const uint64_t step = m->nodes[rank].step, stretch = exo_fit_stretch(run);
    uint64_t until = m->end;
    if (step == m->end) {
        if (m->nodes[rank].goes_on) /* a request to stop has made this step the end */
            exo_fit_expect_no_more(run);
        return EXO_OK;
    }
    if (writes_checkpoints(run))
        until = exo_fit_next_due(step, run->opts->checkpoint_interval, until);
    if (!run->fit->sim && until - step > stretch)
        until = step + stretch;
    if (until < m->nodes[rank].at)
        until = m->nodes[rank].at;
    Exo__Train__Train args = EXO__TRAIN__TRAIN__INIT;
    args.has_since = run->elastic != NULL;
    args.since = step;
    if (run->elastic)
        run->elastic->seats[rank].until = until;
    args.until = m->nodes[rank].until = until;
    args.has_goes_on = true;
    args.goes_on = m->nodes[rank].goes_on = until < m->end;
    return exo_fit_ask(run, rank, "train", &args.base, err);
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

/* The checkpoint of a step to which a node has come; NULL: it is left out. */
static exo_status
find_save(struct march *m, uint64_t step, exo_fit_save **out, exo_err *err)
{
    exo_fit_save **at = &m->first;
    uint32_t begun = 0;
    for (; *at && (*at)->step != step; at = &(*at)->next)
        begun++;
    *out = *at;
    if (*at || step <= m->decided)
        return EXO_OK;
    m->decided = step;
    if (begun == BEGUN)
        return EXO_OK;
    exo_status st = exo_fit_save_begin(m->run, step, at, err);
    *out = *at;
    return st;
}

/* Has a node write its part, if it has come to a checkpoint. That of `end` is an event. */
static exo_status
save_or_go_on(struct march *m, uint32_t rank, exo_err *err)
{
    const uint64_t step = m->nodes[rank].step, interval = m->run->opts->checkpoint_interval;
    exo_fit_save *save = NULL;
    exo_status st = EXO_OK;
    if (writes_checkpoints(m->run) && step < m->end && step % interval == 0)
        st = find_save(m, step, &save, err);
    if (st != EXO_OK || !save)
        return st == EXO_OK ? go_on(m, rank, err) : st;
    m->nodes[rank].save = save;
    m->nodes[rank].part = rank;
    return exo_fit_save_ask(m->run, save, rank, rank, err);
}

/* An absent rank without a part; num_nodes: none. */
static uint32_t
find_absent(const struct run *run, const exo_fit_save *save)
{
    uint32_t r = 0;
    while (r < run->fit->num_nodes && (exo_fit_is_member(run, r) || save->sums[r][0]))
        r++;
    return r;
}

static exo_status
take_saved(struct march *m, uint32_t rank, exo_err *err)
{
    struct run *run = m->run;
    exo_fit_save *save = m->nodes[rank].save, **at = &m->first;
    exo_status st = exo_fit_save_take(run, save, rank, m->nodes[rank].part, err);
    m->nodes[rank].save = NULL;
    if (st != EXO_OK || save->left > run->fit->num_nodes - exo_fit_num_members(run))
        return st;
    if (save->left > 0) {
        m->nodes[rank].save = save;
        m->nodes[rank].part = find_absent(run, save);
        return exo_fit_save_ask(run, save, rank, m->nodes[rank].part, err);
    }
    while (*at != save)
        at = &(*at)->next;
    *at = save->next;
    return exo_fit_save_end(run, &save, err);
}

static void
abort_saves(struct march *m)
{
    while (m->first) {
        exo_fit_save *save = m->first;
        m->first = save->next;
        exo_fit_save_abort(m->run, &save);
    }
    for (uint32_t r = 0; r < m->run->fit->num_nodes; r++)
        m->nodes[r].save = NULL;
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* A request to stop: all nodes meet after the last step that one of them was told to take. */
static void
look_for_stop(struct march *m)
{
    const struct run *run = m->run;
    uint64_t end = 0;
    if (!run->opts->stop || !*run->opts->stop)
        return;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        end = m->nodes[r].until > end ? m->nodes[r].until : end;
    m->end = end;
}

/* Records the steps of the first node, which stand for those of all nodes. NULL: they are not known. */
static exo_status
record(struct march *m, const Exo__Train__Trained *reply, size_t steps, exo_err *err)
{
    struct run *run = m->run;
    const exo_time now = exo_fit_now(run), now_here = exo_now(run->clock);
    exo_status st =
        exo_fit_record_steps(run, reply, steps, now - m->since, now_here - m->since_here, err);
    m->since = now;
    m->since_here = now_here;
    if (st == EXO_OK)
        exo_fit_report(run, false);
    return st;
}

static void
note_step(struct march *m, uint32_t rank)
{
    m->nodes[rank].at = m->nodes[rank].step;
    if (m->run->elastic)
        m->run->elastic->seats[rank].at = m->nodes[rank].step;
}

static exo_status
take_trained(struct march *m, uint32_t rank, exo_err *err)
{
    struct run *run = m->run;
    ProtobufCMessage *reply = NULL;
    const size_t steps = (size_t)(m->nodes[rank].until - m->nodes[rank].step);
    exo_status st = exo_fit_read_trained(run, rank, steps, &reply, err);
    if (st == EXO_OK) {
        uint64_t bytes = 0;
        m->nodes[rank].step = m->nodes[rank].until;
        m->nodes[rank].bytes = ((const Exo__Train__Trained *)reply)->bytes_sent;
        for (uint32_t r = 0; r < run->fit->num_nodes; r++)
            bytes += m->nodes[r].bytes;
        if (run->elastic)
            bytes = exo_fit_note_bytes(run, rank, m->nodes[rank].bytes);
        run->bytes_sent = exo_fit_mean_bytes(run, bytes);
        note_step(m, rank);
    }
    if (st == EXO_OK && rank == exo_fit_member_at(run, 0) && m->nodes[rank].step > run->step)
        st = record(m, (const Exo__Train__Trained *)reply, m->nodes[rank].step - run->step, err);
    exo_args_free(&reply);
    look_for_stop(m);
    return st;
}

/* Tells the nodes when another one can join them. */
static void
look_for_change(void *context)
{
    struct march *m = context;
    struct run *run = m->run;
    if (m->changes || !exo_fit_awaits_nodes(run) || !exo_fit_join_apart(run))
        return;
    m->changes = true;
    exo_fit_end_collectives(run, exo_fit_member_at(run, 0), "another node joins");
}

static exo_status
take(void *context, uint32_t rank, exo_err *err)
{
    struct march *m = context;
    exo_status st;
    look_for_change(m);
    if (m->nodes[rank].save) {
        st = take_saved(m, rank, err);
        return st == EXO_OK && !m->nodes[rank].save ? go_on(m, rank, err) : st;
    }
    st = take_trained(m, rank, err);
    return st == EXO_OK ? save_or_go_on(m, rank, err) : st;
}

/* Has all members go on, each from its own step, and waits until they are at the end. */
static exo_status
march_on(struct march *m, exo_err *err)
{
    struct run *run = m->run;
    exo_status st = EXO_OK;
    exo_fit_expect_nodes(run, exo_fit_num_members(run));
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        if (!exo_fit_is_member(run, r))
            continue;
        st = go_on(m, r, err);
        if (st != EXO_OK) /* nodes with the request would wait for this one */
            exo_fit_end_collectives(run, r, err->text);
    }
    const exo_fit_next next = {.context = m, .take = take, .idle = look_for_change};
    return exo_fit_await_each(run, st, &next, err);
}

/* Brings the nodes into the next epoch, after a request that failed with `st`. */
static exo_status
change_epoch(struct march *m, exo_status st, exo_err *err)
{
    struct run *run = m->run;
    st = exo_fit_recover_apart(run, st, err);
    if (st != EXO_OK)
        return st;
    abort_saves(m);
    m->changes = false;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        const struct exo_fit_seat *s = &run->elastic->seats[r];
        if (m->nodes[r].lives != s->lives)
            m->nodes[r].step = s->at;
        m->nodes[r].lives = s->lives;
        m->nodes[r].at = s->at;
    }
    return EXO_OK;
}

exo_status
exo_fit_train_apart(struct run *run, uint64_t end, exo_err *err)
{
    const uint32_t nodes = run->fit->num_nodes;
    struct march *m = exo_calloc(1, sizeof *m + nodes * sizeof m->nodes[0]);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", nodes);
    *m = (struct march){.run = run,
                        .end = end,
                        .decided = run->step,
                        .since = exo_fit_now(run),
                        .since_here = exo_now(run->clock)};
    if (run->fit->sim)
        run->fit->begins = exo_sim_now(run->fit->sim);
    for (uint32_t r = 0; r < nodes; r++) {
        m->nodes[r].step = m->nodes[r].at = run->step;
        m->nodes[r].lives = run->elastic ? run->elastic->seats[r].lives : 0;
        m->nodes[r].bytes = run->bytes_sent;
    }
    exo_status st = march_on(m, err), lost = st;
    while (lost == EXO_PEER_LOST && (st = change_epoch(m, lost, err)) == EXO_OK)
        lost = st = march_on(m, err);
    if (st == EXO_OK && run->step < m->end) /* the first node is lost, and others were ahead */
        st = record(m, &(const Exo__Train__Trained)EXO__TRAIN__TRAINED__INIT, m->end - run->step,
                    err);
    run->trained += exo_fit_now(run) - m->since;
    abort_saves(m);
    if (st != EXO_OK)
        exo_cast_drop(&run->cast); /* nobody waits for the missing answers any more */
    exo_free(m);
    return st;
}
