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
 * On the virtual clock, time stands still between two requests to a node, so a checkpoint takes none,
 * and the server's part is that of the time at which the last node comes to it.
 *
 * Owner: the trainer's thread. Read next: fit_save.h. */
#include <string.h>

#include <exogym/memory.h>

#include "actors/fit_save.h"

enum {
    BEGUN = 4
};

struct march {
    struct run *run;
    uint64_t end;               /* all nodes meet after that step */
    uint64_t decided;           /* checkpoints up to that step are begun or left out */
    exo_fit_save *first;        /* the begun ones, in order */
    exo_time since, since_here; /* times of node 0's last answer */
    struct {
        uint64_t step;      /* done */
        uint64_t until;     /* of the last request to train */
        uint64_t bytes;     /* sent by the strategy */
        bool goes_on;       /* it was told that another request follows */
        exo_fit_save *save; /* it writes its part of it; NULL: it trains, or has nothing to do */
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
    Exo__Train__Train args = EXO__TRAIN__TRAIN__INIT;
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
    return exo_fit_save_ask(m->run, save, rank, rank, err);
}

static exo_status
take_saved(struct march *m, uint32_t rank, exo_err *err)
{
    exo_fit_save *save = m->nodes[rank].save, **at = &m->first;
    m->nodes[rank].save = NULL;
    exo_status st = exo_fit_save_take(m->run, save, rank, rank, err);
    if (st != EXO_OK || save->left > 0)
        return st;
    while (*at != save)
        at = &(*at)->next;
    *at = save->next;
    return exo_fit_save_end(m->run, &save, err);
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

/* Records the steps of node 0, which stand for those of all nodes. */
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
        run->bytes_sent = exo_fit_mean_bytes(run, bytes);
    }
    if (st == EXO_OK && rank == 0)
        st = record(m, (const Exo__Train__Trained *)reply, steps, err);
    exo_args_free(&reply);
    look_for_stop(m);
    return st;
}

static exo_status
take(void *context, uint32_t rank, exo_err *err)
{
    struct march *m = context;
    exo_status st;
    if (m->nodes[rank].save) {
        st = take_saved(m, rank, err);
        return st == EXO_OK ? go_on(m, rank, err) : st;
    }
    st = take_trained(m, rank, err);
    return st == EXO_OK ? save_or_go_on(m, rank, err) : st;
}

exo_status
exo_fit_train_apart(struct run *run, uint64_t end, exo_err *err)
{
    const uint32_t nodes = run->fit->num_nodes;
    struct march *m = exo_calloc(1, sizeof *m + nodes * sizeof m->nodes[0]);
    exo_status st = EXO_OK;
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", nodes);
    *m = (struct march){.run = run,
                        .end = end,
                        .decided = run->step,
                        .since = exo_fit_now(run),
                        .since_here = exo_now(run->clock)};
    if (run->fit->sim)
        run->fit->begins = exo_sim_now(run->fit->sim);
    exo_fit_expect_nodes(run, nodes);
    for (uint32_t r = 0; st == EXO_OK && r < nodes; r++) {
        m->nodes[r].step = run->step;
        m->nodes[r].bytes = run->bytes_sent;
        st = go_on(m, r, err);
        if (st != EXO_OK) /* nodes with the request would wait for this one */
            exo_fit_end_collectives(run, r, err->text);
    }
    st = exo_fit_await_each(run, st, &(exo_fit_next){.context = m, .take = take}, err);
    run->trained += exo_fit_now(run) - m->since;
    while (m->first) {
        exo_fit_save *save = m->first;
        m->first = save->next;
        exo_fit_save_abort(run, &save);
    }
    if (st != EXO_OK)
        exo_cast_drop(&run->cast); /* nobody waits for the missing answers any more */
    exo_free(m);
    return st;
}
