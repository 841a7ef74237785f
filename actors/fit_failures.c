/* Failures of hosts on the virtual clock: see fit_failures.h. This file has four parts: the clocks,
 * elastic runs, other runs, and the figures. */
#include "actors/fit_failures.h"

#include <math.h>

#include <exogym/memory.h>

#include "actors/fit_elastic.h"
#include "base/config_edit.h"

#define FLOW UINT32_MAX /* of the states that nodes give to each other */

struct exo_fit_failures {
    exo_strategy *strategy; /* which knows the meetings */
    /* Of nodes that are apart: before a resume; their outages have the others. */
    uint64_t count; /* failures so far */
    exo_time lost;  /* mean over the nodes; not of elastic runs */
    exo_time saved; /* the time since which work is not in a checkpoint */
    /* Elastic runs: the beginning of the segment; whether it is a meeting; the time of the last step
     * without and with a meeting; all steps with all nodes since a resume. */
    exo_time began;
    bool meets, whole;
    exo_time took[2], whole_time;
    uint64_t whole_steps;
    exo_time notice;  /* the time at which all know of the last failure */
    exo_ref absent[]; /* (num_nodes) nodes whose hosts are down; id 0: not down */
};

static exo_time
time_of(const struct run *run, uint32_t rank)
{
    return exo_sim_time(run->fit->paces[rank].lane);
}

/* The count of a meter before a resume; 0: there was none. */
static uint64_t
count_before(const struct run *run, const char *path)
{
    exo_meter_sample was;
    return exo_meters_get(run->meters.before, path, &was) ? was.count : 0;
}

/* --- Life ------------------------------------------------------------------------------------- */

exo_status
exo_fit_failures_open(struct run *run, exo_err *err)
{
    exo_fit *fit = run->fit;
    const exo_failures *opts = &run->opts->failures;
    if (opts->mean_time_between == 0)
        return EXO_OK;
    struct exo_fit_failures *f = exo_calloc(1, sizeof *f + fit->num_nodes * sizeof f->absent[0]);
    exo_outages *outages = exo_calloc(fit->num_nodes, sizeof *outages);
    run->failures = f;
    fit->outages = outages;
    if (!f || !outages)
        return exo_fail(err, EXO_NOMEM, "no memory for the failures of %u hosts", fit->num_nodes);
    f->saved = exo_fit_now(run);
    f->count = count_before(run, "failures.count");
    f->lost = run->elastic ? 0 : (exo_time)count_before(run, "failures.lost");
    fit->apart = run->apart;
    for (uint32_t r = 0; r < fit->num_nodes; r++)
        outages[r] = exo_outages_begin(opts, exo_fit_host(fit->graph, r),
                                       run->apart ? time_of(run, r) : f->saved);
    return exo_strategy_new(&f->strategy, run->strategy_name,
                            exo_config_get(exo_config_root(run->whole), "options"), err);
}

void
exo_fit_failures_close(struct run *run)
{
    struct exo_fit_failures *f = run->failures;
    run->failures = NULL;
    for (uint32_t r = 0; f && r < run->fit->num_nodes; r++)
        if (f->absent[r].id)
            run->cast.actors[r] = f->absent[r]; /* the cast ends it */
    if (f)
        exo_strategy_free(&f->strategy);
    exo_free(f);
}

/* --- Clocks ----------------------------------------------------------------------------------- */

/* Lets a node do nothing until a time. */
static void
move_node(struct run *run, uint32_t rank, exo_time until)
{
    exo_pace *pace = &run->fit->paces[rank];
    const exo_time now = time_of(run, rank);
    if (until <= now)
        return;
    exo_track_add(&pace->track, "failure", EXO_SPAN_RECV_BLOCKED, now, until);
    exo_sim_lane_restore(pace->lane, until);
    if (until > exo_sim_now(run->fit->sim))
        exo_sim_restore(run->fit->sim, until);
}

static void
move_members(struct run *run, exo_time until)
{
    const exo_time before = exo_fit_now(run);
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        if (exo_fit_is_member(run, r))
            move_node(run, r, until);
    run->elastic->paused += exo_fit_now(run) - before;
}

/* --- Elastic runs ----------------------------------------------------------------------------- */

/* Leaves out the nodes whose hosts will fail in the next step. */
static exo_status
leave_out(struct run *run, exo_err *err)
{
    struct exo_fit_failures *f = run->failures;
    bool any = false;
    exo_cast_drop(&run->cast);
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        const exo_outages *o = &run->fit->outages[r];
        const exo_ref node = run->cast.actors[r];
        if (!exo_fit_is_member(run, r) || o->down > time_of(run, r) + f->took[f->meets])
            continue;
        exo_fit_leave_out(run, r, "its host has failed");
        f->absent[r] = node;
        f->count++;
        any = true;
        if (o->down + o->failures.detection > f->notice)
            f->notice = o->down + o->failures.detection;
    }
    if (any && exo_fit_num_members(run) == 0)
        return exo_fail(err, EXO_PEER_LOST, "all hosts of the run are down after %.6g s",
                        (double)exo_fit_now(run) * 1e-9);
    return any ? exo_fit_settle(run, err) : EXO_OK;
}

/* Marks the nodes whose hosts are back. */
static bool
find_back(struct run *run, exo_time now)
{
    struct exo_fit_failures *f = run->failures;
    bool any = false;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        exo_outages *o = &run->fit->outages[r];
        if (!f->absent[r].id)
            continue;
        while (o->up <= now)
            exo_outages_next(o);
        if (o->down <= now)
            continue; /* down again, or still */
        run->elastic->seats[r].ready = f->absent[r];
        f->absent[r] = (exo_ref){0};
        any = true;
    }
    return any;
}

/* Takes in the nodes whose hosts are back. Each gets the state of the first member, at the same
 * time. */
static exo_status
take_back(struct run *run, exo_err *err)
{
    const exo_fit *fit = run->fit;
    const exo_time now = exo_fit_now(run);
    exo_time arrived = now;
    if (!find_back(run, now))
        return EXO_OK;
    const uint32_t donor = exo_fit_member_at(run, 0);
    bool *takes = exo_calloc(fit->num_nodes, sizeof *takes);
    if (!takes)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", fit->num_nodes);
    for (uint32_t r = 0; r < fit->num_nodes; r++)
        takes[r] = run->elastic->seats[r].ready.id != 0;
    exo_status st = exo_fit_take_in(run, err);
    for (uint32_t r = 0; st == EXO_OK && fit->links && r < fit->num_nodes; r++) {
        exo_transit transit = {0};
        if (!takes[r])
            continue;
        exo_links_send(fit->links, exo_fit_host(fit->graph, donor), exo_fit_host(fit->graph, r),
                       FLOW, run->elastic->state_bytes, now, &transit);
        arrived = transit.arrives > arrived ? transit.arrives : arrived;
    }
    exo_free(takes);
    move_members(run, arrived);
    return st;
}

/* Waits until there are enough nodes. */
static exo_status
await_quorum(struct run *run, exo_err *err)
{
    const exo_elastic *opts = &run->opts->elastic;
    const exo_time limit = exo_fit_now(run) + exo_fit_wait_or_default(opts->grace);
    exo_status st = EXO_OK;
    while (st == EXO_OK && exo_fit_num_members(run) < opts->min_nodes) {
        exo_time next = INT64_MAX;
        for (uint32_t r = 0; r < run->fit->num_nodes; r++)
            if (run->failures->absent[r].id && run->fit->outages[r].up < next)
                next = run->fit->outages[r].up;
        if (next > limit)
            return exo_fail(err, EXO_PEER_LOST,
                            "%u of %u nodes are left, min_nodes is %u, and none came back within "
                            "%.3g s",
                            exo_fit_num_members(run), run->fit->num_nodes, opts->min_nodes,
                            (double)exo_fit_wait_or_default(opts->grace) * 1e-9);
        move_members(run, next);
        st = take_back(run, err);
    }
    return st;
}

/* Nodes that are apart wait for the last one at an evaluation. */
static void
lose_waits(struct run *run)
{
    const exo_time now = exo_fit_now(run);
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        if (now > time_of(run, r))
            run->fit->outages[r].lost += now - time_of(run, r);
}

exo_status
exo_fit_before_failures(struct run *run, exo_err *err)
{
    struct exo_fit_failures *f = run->failures;
    if (f && run->apart)
        lose_waits(run);
    if (!f || !run->elastic)
        return EXO_OK;
    const uint64_t epoch = exo_fit_epoch(run);
    f->meets = exo_strategy_meets(f->strategy, run->step);
    exo_status st = take_back(run, err);
    if (st == EXO_OK)
        st = leave_out(run, err);
    if (st == EXO_OK)
        st = await_quorum(run, err);
    if (st == EXO_OK && f->meets)
        move_members(run, f->notice);
    f->began = exo_fit_now(run);
    f->whole = exo_fit_num_members(run) == run->fit->num_nodes && exo_fit_epoch(run) == epoch;
    return st;
}

/* --- Other runs ------------------------------------------------------------------------------- */

/* The time at which all hosts are back and the run has started again, after the failure of one. It
 * gives up at `most` failures of the run. */
static exo_time
start_again(struct run *run, exo_outages *first, uint64_t most)
{
    exo_outages *all = run->fit->outages;
    exo_time up = first->up;
    bool again = true;
    run->failures->count++;
    exo_outages_next(first);
    while (again && run->failures->count < most) {
        again = false;
        for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
            if (all[r].down >= up + all[r].failures.restart)
                continue;
            up = all[r].up > up ? all[r].up : up;
            exo_outages_next(&all[r]);
            run->failures->count++;
            again = true;
        }
    }
    return up + first->failures.restart;
}

static exo_outages *
first_down(struct run *run)
{
    exo_outages *first = &run->fit->outages[0];
    for (uint32_t r = 1; r < run->fit->num_nodes; r++)
        if (run->fit->outages[r].down < first->down)
            first = &run->fit->outages[r];
    return first;
}

/* Repeats the work since the last checkpoint until no host fails meanwhile. */
static exo_status
repeat_lost(struct run *run, exo_err *err)
{
    struct exo_fit_failures *f = run->failures;
    const exo_time now = exo_fit_now(run), work = now - f->saved;
    const uint64_t most = f->count + EXO_OUTAGES_MOST;
    exo_time end = now;
    exo_outages *o;
    while ((o = first_down(run))->down < end) {
        f->saved = start_again(run, o, most);
        end = f->saved + work;
        if (f->count >= most)
            return exo_fail(err, EXO_FAILED,
                            "failures: hosts have failed %d times before the run could start again "
                            "and repeat the work of %.6g s since the last checkpoint: choose a "
                            "larger mean_time_between, or a smaller train.checkpoint_interval",
                            EXO_OUTAGES_MOST, (double)work * 1e-9);
    }
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        move_node(run, r, time_of(run, r) + (end - now));
    f->lost += end - now;
    return EXO_OK;
}

exo_status
exo_fit_after_failures(struct run *run, exo_err *err)
{
    struct exo_fit_failures *f = run->failures;
    if (!f || run->apart)
        return EXO_OK;
    const uint64_t interval = run->opts->checkpoint_interval;
    if (!run->elastic) {
        exo_status st = repeat_lost(run, err);
        if (interval > 0 && run->step % interval == 0)
            f->saved = exo_fit_now(run);
        return st;
    }
    f->took[f->meets] = exo_fit_now(run) - f->began;
    f->whole_time += f->whole ? f->took[f->meets] : 0;
    f->whole_steps += f->whole;
    return EXO_OK;
}

/* --- Figures ---------------------------------------------------------------------------------- */

static void
sum_apart(const struct run *run, uint64_t *count, exo_time *lost, double *all)
{
    *count = 0;
    *lost = 0;
    *all = 0;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        *count += run->fit->outages[r].count;
        *lost += run->fit->outages[r].lost;
        *all += (double)time_of(run, r);
    }
}

double
exo_fit_goodput(const struct run *run)
{
    const struct exo_fit_failures *f = run->failures;
    const double nodes = run->fit->num_nodes;
    uint64_t count;
    exo_time lost;
    double all;
    if (!f)
        return (double)NAN;
    const double passed = (double)exo_fit_now(run);
    if (run->apart) {
        sum_apart(run, &count, &lost, &all);
        return all > 0 ? 1 - ((double)lost + (double)f->lost * nodes) / all : (double)NAN;
    }
    if (!run->elastic)
        return passed > 0 ? 1 - (double)f->lost / passed : (double)NAN;
    if (f->whole_steps == 0 || passed <= 0)
        return (double)NAN;
    const double steps = (double)exo_fit_samples(run) / ((double)run->fit->batch_size * nodes),
                 step = (double)f->whole_time / (double)f->whole_steps;
    return steps * step / passed;
}

void
exo_fit_failures_count(const struct run *run, exo_meter *const meters[EXO_FIT_FAILURE_METERS])
{
    const struct exo_fit_failures *f = run->failures;
    const double goodput = exo_fit_goodput(run);
    uint64_t count;
    exo_time lost;
    double all;
    if (!f)
        return;
    sum_apart(run, &count, &lost, &all);
    lost = lost / (exo_time)run->fit->num_nodes + f->lost;
    if (run->elastic && goodput >= 0)
        lost = (exo_time)((1 - goodput) * (double)exo_fit_now(run));
    exo_meter_count(meters[0], f->count + count);
    exo_meter_count(meters[1], lost > 0 ? (uint64_t)lost : 0);
    if (goodput >= 0)
        exo_meter_set(meters[2], goodput);
}
