/* Collectives among the threads of one process. Buffers are read and written in place.
 *
 * A call gathers its members under the lock: all members of the communicator, or some of them while
 * others are in calls of their own (local_call.h has the record of a call, and its work). The last
 * member to come commits the call. A deadline, a death or a mismatch before that breaks it, and no
 * buffer is touched. The work of a committed call is in blocks, which any member takes from a
 * counter. So the last member, which is awake, need not wait for the others to wake up. All members
 * return when all blocks are done. So no buffer is touched after its owner has returned.
 *
 * begin enters a call: the oldest one among the same members without this member, or a new one.
 * wait waits for its commit and its end. A record is free when all members have left the call. Two
 * records with room for all members exist from the beginning, so that successive calls of all
 * members allocate nothing.
 *
 * On an edge with links a call has an end for each member, on the run's clock, and no member's wait
 * returns before its end. A member's calls pass the links one after the other: a call that began
 * before the end of another passes after it. On the virtual clock members are lanes. They wait for
 * the baton instead of the condition, and the last member to come does all the work.
 *
 * State: struct local, guarded by its lock except where a member says otherwise. Read next:
 * local_call.c, timing.c. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/crowd.h"
#include "base/pace.h"
#include "base/parallel.h"
#include "base/waiting.h"
#include "comm/commons.h"
#include "comm/engines.h"
#include "comm/local_call.h"
#include "comm/reduce.h"
#include "comm/timing.h"

enum {
    MAX_SIZE = 65536,
    NAME = 64,
    SPINS = 100,  /* looks at a call before the core is yielded */
    YIELDS = 60,  /* looks at a call, each of which yields the core, before a member sleeps */
    SLICE_MS = 2, /* the longest wait between two looks at a clock that is not the real one */
};

struct member {
    char name[NAME];
    bool open, left;
    bool inside;    /* it is in a wait, or in a blocking call */
    uint64_t calls; /* calls that it has begun */
    /* number of its present call, from 1; operation and since belong to that call */
    uint64_t number;
    exo_collective operation;
    exo_time since; /* start of the call, on the clock */
    /* end of the last of its calls on the links, from the run's origin */
    exo_time passed;
    exo_encoder encoder; /* owner: the member's thread */
    exo_crowd crowd;     /* likewise */
};

/* States of a request. */
enum {
    ENTERED = 1,
    MET = 2, /* the call committed when this member came */
};

struct local {
    uint32_t size;
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned cores;         /* that this process may use */
    struct member *members; /* (size) */
    /* (size) open calls, which have not committed, by the lowest rank of their members */
    exo_local_call **open;
    exo_local_call *free, *all; /* records without members; all records */
    exo_err broken;             /* code OK: not broken */
    exo_comm_edge edge;
    /* (size) lanes of the members that are in a call on the virtual clock; guarded by the lock */
    exo_sim_lane **lanes;
    /* (size) call whose commit a lane waits for, or NULL; guarded by the lock */
    exo_local_call **awaited;
    uint32_t *hosts; /* the edge's, copied */
    exo_time *times; /* (2 size) scratch of the member that commits */
    uint64_t *bytes; /* (size) likewise */
};

/* --- Meeting ---------------------------------------------------------------------------------- */

static void
break_locked(struct local *l, exo_status status, const char *text)
{
    if (l->broken.code != EXO_OK)
        return;
    exo_fail(&l->broken, status, "%s", text);
    pthread_cond_broadcast(&l->changed);
}

/* Sleeps until something changes, or for a slice of time; false: the deadline has passed. */
static bool
wait_locked(struct local *l, exo_time deadline)
{
    exo_time now = exo_now(l->clock);
    if (now >= deadline)
        return false;
    exo_time left = deadline - now;
    if (l->clock != exo_clock_real() && left > SLICE_MS * EXO_MS)
        left = SLICE_MS * EXO_MS;
    if (left > 3600 * EXO_SECOND)
        left = 3600 * EXO_SECOND;
    exo_condition_wait_for(&l->changed, &l->lock, left);
    return true;
}

/* Writes a member's name and rank, such as "node_2 (rank 2)". */
static const char *
member_text(const struct local *l, uint32_t rank, char *out, size_t size)
{
    const struct member *m = &l->members[rank];
    if (m->name[0])
        snprintf(out, size, "%s (rank %u)", m->name, rank);
    else
        snprintf(out, size, "rank %u", rank);
    return out;
}

static void
break_by_timeout(struct local *l, const exo_local_call *c)
{
    char text[EXO_ERR_TEXT], who[NAME + 32];
    exo_time waited = exo_now(l->clock) - c->since;
    size_t at = (size_t)exo_c_snprintf(
        text, sizeof text, "%s: deadline passed after %.1f s while waiting for",
        exo_collective_name(c->args.operation), (double)waited * 1e-9);
    uint32_t named = 0;
    for (uint32_t m = 0; m < c->args.size; m++) {
        if (c->here[m] || named++ >= 4)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s", named > 1 ? "," : "",
                               member_text(l, exo_local_call_rank(c, m), who, sizeof who));
    }
    if (named > 4)
        snprintf(text + at, sizeof text - at, " and %u more", named - 4);
    break_locked(l, EXO_TIMEOUT, text);
}

static bool
same_call(const exo_collective_args *a, const exo_collective_args *b)
{
    return a->operation == b->operation && a->count == b->count && a->dtype == b->dtype &&
           a->reduce == b->reduce && a->root == b->root && a->rehearsal == b->rehearsal;
}

static void
break_by_mismatch(struct local *l, const exo_local_call *c, uint32_t rank,
                  const exo_collective_args *args)
{
    char text[EXO_ERR_TEXT], a[NAME + 32], b[NAME + 32];
    snprintf(text, sizeof text, "members disagree: %s calls %s of %zu %s, %s calls %s of %zu %s%s",
             member_text(l, exo_local_call_rank(c, c->first), a, sizeof a),
             exo_collective_name(c->args.operation), c->args.count, exo_dtype_name(c->args.dtype),
             member_text(l, rank, b, sizeof b), exo_collective_name(args->operation), args->count,
             exo_dtype_name(args->dtype),
             c->args.operation == args->operation && c->args.count == args->count &&
                     c->args.dtype == args->dtype
                 ? " with another reduction, root or distance"
                 : "");
    break_locked(l, EXO_INVAL, text);
}

/* Breaks the communicator if a member of the call has left. */
static void
break_by_absence(struct local *l, const exo_collective_args *args)
{
    char text[EXO_ERR_TEXT], who[NAME + 32];
    for (uint32_t m = 0; m < args->size; m++) {
        uint32_t r = args->ranks ? args->ranks[m] : m;
        if (!l->members[r].left)
            continue;
        snprintf(text, sizeof text, "%s has left", member_text(l, r, who, sizeof who));
        break_locked(l, EXO_PEER_LOST, text);
        return;
    }
}

/* --- Records of calls ------------------------------------------------------------------------- */

static exo_local_call **
open_calls(struct local *l, const exo_collective_args *args)
{
    return &l->open[args->ranks ? args->ranks[0] : 0];
}

static exo_local_call *
add_record(struct local *l, uint32_t room)
{
    exo_local_call *c = exo_local_call_new(room, l->edge.links != NULL);
    if (c) {
        c->next_all = l->all;
        l->all = c;
    }
    return c;
}

/* The oldest call among these members without this one, or else a new call. NULL: no memory. */
static exo_local_call *
find_call_locked(struct local *l, const exo_collective_args *args)
{
    exo_local_call **open = open_calls(l, args), *c = NULL;
    for (exo_local_call *each = *open; each; each = each->next) /* the newest call is first */
        if (exo_local_call_is_among(each, args) && !each->here[args->place])
            c = each;
    if (c)
        return c;
    exo_local_call **at = &l->free;
    while (*at && (*at)->room < args->size)
        at = &(*at)->next;
    c = *at;
    if (c)
        *at = c->next;
    else if (!(c = add_record(l, args->size)))
        return NULL;
    exo_local_call_begin(c, args, l->hosts);
    c->next = *open;
    *open = c;
    return c;
}

static void
commit_locked(struct local *l, exo_local_call *c)
{
    exo_local_call **at = open_calls(l, &c->args);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->core = exo_core();
    c->committed = true;
}

/* Leaves the call; the last member to leave frees the record. */
static void
go_locked(struct local *l, exo_local_call *c)
{
    if (--c->inside > 0)
        return;
    c->next = l->free;
    l->free = c;
}

/* Computes the end of each member from the arrivals of all. */
static void
time_call_locked(struct local *l, exo_local_call *c, const exo_collective_args *args)
{
    exo_err reason = {0};
    exo_comm_edge edge = l->edge;
    edge.hosts = c->hosts;
    for (uint32_t m = 0; m < args->size; m++) {
        exo_time passed = l->members[exo_local_call_rank(c, m)].passed;
        c->begins[m] = passed > c->begins[m] ? passed : c->begins[m];
    }
    if (exo_comm_timing(&edge, args->size, args, c->begins, c->ends, l->times, l->bytes, &reason) !=
        EXO_OK)
        break_locked(l, reason.code, reason.text);
    for (uint32_t m = 0; m < args->size; m++)
        l->members[exo_local_call_rank(c, m)].passed = c->ends[m];
}

/* Enters a call; the last member to come commits it. NULL: the communicator is broken, and the
 * member is in no call. */
static exo_local_call *
arrive_locked(struct local *l, uint32_t rank, const exo_collective_args *args)
{
    exo_local_call *c = find_call_locked(l, args);
    if (!c)
        break_locked(l, EXO_NOMEM, "no memory for a call");
    break_by_absence(l, args);
    if (l->broken.code == EXO_OK && !same_call(&c->args, args))
        break_by_mismatch(l, c, rank, args);
    if (l->broken.code != EXO_OK)
        return NULL;
    c->data[args->place] = args->data;
    c->here[args->place] = true;
    exo_time now = exo_now(l->clock);
    c->since = now < c->since ? now : c->since;
    if (c->begins)
        c->begins[args->place] = now - l->edge.origin;
    c->inside++;
    if (++c->arrived < args->size)
        return c;
    if (c->begins)
        time_call_locked(l, c, args);
    if (l->broken.code == EXO_OK)
        commit_locked(l, c);
    pthread_cond_broadcast(&l->changed);
    return c->committed ? c : NULL;
}

/* The first of the looks at a call: with more members than cores the one that is awaited may need
 * this core, so no look comes before the yields. */
static int
first_look(const struct local *l)
{
    return l->size <= l->cores ? 0 : SPINS;
}

/* What a thread does between two looks at a call. False: it is to sleep. */
static bool
give_way(exo_crowd *crowd, int look)
{
    if (look >= SPINS)
        return exo_crowd_yield(crowd);
    exo_relax();
    return true;
}

/* Waits for the commit, or until the communicator is broken. */
static void
meet_locked(struct local *l, exo_local_call *c, exo_time deadline)
{
    while (!c->committed && l->broken.code == EXO_OK)
        if (!wait_locked(l, deadline) && !c->committed && l->broken.code == EXO_OK)
            break_by_timeout(l, c);
}

/* Does a share of the work; the thread that completes it wakes the sleeping members. It looks for
 * them after it has counted its block, and they say that they sleep before they look at the count:
 * one of the two sees the other. */
static void
help(struct local *l, exo_local_call *c, const exo_collective_args *args)
{
    exo_encoder *encoder =
        args->codec ? &l->members[exo_local_call_rank(c, args->place)].encoder : NULL;
    if (!exo_local_call_help(c, args->place, encoder) || atomic_load(&c->asleep) == 0)
        return;
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Wakes the lanes that wait for a call of a broken communicator. Not under the lock, because waking
 * may run events that are due. */
static void
wake_lanes(struct local *l)
{
    for (uint32_t r = 0; l->edge.sim && r < l->size; r++) {
        pthread_mutex_lock(&l->lock);
        exo_sim_lane *lane = l->broken.code != EXO_OK ? l->lanes[r] : NULL;
        pthread_mutex_unlock(&l->lock);
        if (lane)
            exo_sim_wake(lane, 0);
    }
}

/* The end of the member at a place, on the clock; 0: there are no links. */
static exo_time
end_of(const struct local *l, const exo_local_call *c, uint32_t place)
{
    if (!c->ends)
        return 0;
    return c->ends[place] == INT64_MAX ? INT64_MAX : c->ends[place] + l->edge.origin;
}

/* On the virtual clock the last member to come does all the work, and wakes each of the others at
 * its end. */
static void
do_in_virtual_time(struct local *l, exo_local_call *c, const exo_collective_args *args)
{
    help(l, c, args);
    for (uint32_t m = 0; m < args->size; m++) {
        uint32_t rank = exo_local_call_rank(c, m);
        if (m != args->place && l->awaited[rank] == c)
            exo_sim_wake(l->lanes[rank], end_of(l, c, m));
    }
}

/* Waits for the commit on the virtual clock. */
static void
meet_in_virtual_time(struct local *l, exo_local_call *c, uint32_t rank, exo_sim_lane *lane,
                     exo_time deadline)
{
    for (;;) {
        pthread_mutex_lock(&l->lock);
        bool over = c->committed || l->broken.code != EXO_OK;
        l->awaited[rank] = over ? NULL : c;
        pthread_mutex_unlock(&l->lock);
        if (over)
            return;
        if (!exo_sim_wait(lane, deadline)) {
            pthread_mutex_lock(&l->lock);
            if (!c->committed && l->broken.code == EXO_OK)
                break_by_timeout(l, c);
            pthread_mutex_unlock(&l->lock);
            wake_lanes(l);
        }
    }
}

/* Breaks the communicator, because a member's end is after its deadline. */
static exo_status
fail_by_links(struct local *l, const exo_local_call *c, exo_err *err)
{
    char text[EXO_ERR_TEXT];
    snprintf(text, sizeof text, "%s: the links do not let it through before the deadline",
             exo_collective_name(c->args.operation));
    pthread_mutex_lock(&l->lock);
    break_locked(l, EXO_TIMEOUT, text);
    pthread_mutex_unlock(&l->lock);
    wake_lanes(l);
    return exo_fail(err, EXO_TIMEOUT, "%s", text);
}

/* Waits for the member's end: no member has its result before its messages would have arrived.
 * TIMEOUT if that is after the deadline. */
static exo_status
await_end(struct local *l, const exo_local_call *c, uint32_t place, exo_sim_lane *lane,
          exo_time deadline, exo_err *err)
{
    if (!c->ends)
        return EXO_OK;
    exo_time end = end_of(l, c, place), until = end < deadline ? end : deadline;
    if (lane) {
        while (exo_sim_time(lane) < until)
            exo_sim_wait(lane, until);
    } else {
        const struct timespec at = {.tv_sec = (time_t)(until / EXO_SECOND),
                                    .tv_nsec = (long)(until % EXO_SECOND)};
        exo_compute_pause(); /* those that compute meanwhile may not be members of the call */
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
        exo_compute_resume_after(end <= deadline ? EXO_OK : EXO_TIMEOUT);
    }
    return end <= deadline ? EXO_OK : fail_by_links(l, c, err);
}

/* Does a part of the work of a committed call, and waits for the other parts. */
static exo_status
complete(struct local *l, exo_local_call *c, uint32_t rank, const exo_collective_args *args,
         exo_err *err)
{
    help(l, c, args);
    for (int i = first_look(l); i < SPINS + YIELDS && atomic_load(&c->done) < c->blocks; i++)
        if (!give_way(&l->members[rank].crowd, i))
            break;
    if (atomic_load(&c->done) < c->blocks) {
        pthread_mutex_lock(&l->lock);
        atomic_fetch_add(&c->asleep, 1);
        while (atomic_load(&c->done) < c->blocks)
            pthread_cond_wait(&l->changed, &l->lock); /* bounded: others compute their blocks */
        pthread_mutex_unlock(&l->lock);
    }
    if (!atomic_load(&c->failed))
        return EXO_OK;
    return exo_fail(err, (exo_status)atomic_load(&c->failed), "%s: the codec failed",
                    exo_collective_name(args->operation));
}

/* Leaves a committed call. */
static void
leave_call(struct local *l, exo_local_call *c, uint32_t rank)
{
    pthread_mutex_lock(&l->lock);
    l->members[rank].inside = false;
    go_locked(l, c);
    pthread_mutex_unlock(&l->lock);
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Records that the member waits in this request, or in its begin. */
static void
enter_locked(struct member *m, const exo_engine_request *r)
{
    m->inside = true;
    m->number = r->number;
    m->operation = r->args.operation;
    m->since = r->since;
}

static exo_status
local_begin(void *state, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    struct local *l = state;
    struct member *m = &l->members[rank];
    exo_sim_lane *lane = l->edge.sim ? exo_sim_current() : NULL;
    exo_err reason = {0};
    exo_pace_wait_begin(exo_pace_current(), l->edge.name ? l->edge.name : "collective",
                        EXO_SPAN_RECV_BLOCKED);
    if (lane)
        exo_sim_sync(lane); /* earlier events on a link come first */
    exo_status st = exo_encoder_use_for(&m->encoder, &r->args, &reason);
    r->since = exo_now(l->clock);
    pthread_mutex_lock(&l->lock);
    r->number = ++m->calls;
    if (lane)
        l->lanes[rank] = lane;
    if (r->args.waits)
        enter_locked(m, r);
    if (st != EXO_OK)
        break_locked(l, st, reason.text);
    exo_local_call *c = l->broken.code == EXO_OK ? arrive_locked(l, rank, &r->args) : NULL;
    bool met = c && c->committed;
    bool is_broken = l->broken.code != EXO_OK;
    if (!c) {
        st = l->broken.code;
        m->inside = false;
        if (err)
            *err = l->broken;
    }
    pthread_mutex_unlock(&l->lock);
    if (is_broken)
        wake_lanes(l);
    if (met && lane)
        do_in_virtual_time(l, c, &r->args);
    r->own = c;
    r->state = met ? MET : ENTERED;
    if (!c || !r->args.waits)
        exo_pace_wait_end(exo_pace_current()); /* otherwise the wait continues in local_wait */
    return st;
}

/* The reason why there is no commit; the member is no longer in the call. */
static exo_status
fail_locked(struct local *l, uint32_t rank, exo_err *err)
{
    l->members[rank].inside = false;
    if (err)
        *err = l->broken;
    return l->broken.code;
}

/* Waits for the commit; returns the reason if there is none. */
static exo_status
meet_in_real_time(struct local *l, exo_local_call *c, uint32_t rank, exo_time deadline,
                  exo_err *err)
{
    exo_status st = EXO_OK;
    /* the others often come at once: it takes longer to sleep and be woken */
    for (int i = first_look(l); i < SPINS && !atomic_load(&c->committed); i++)
        exo_relax();
    if (atomic_load(&c->committed))
        return EXO_OK;
    exo_compute_pause();
    for (int i = 0; i < YIELDS && !atomic_load(&c->committed); i++)
        if (!exo_crowd_yield(&l->members[rank].crowd))
            break;
    if (!atomic_load(&c->committed)) {
        pthread_mutex_lock(&l->lock);
        meet_locked(l, c, deadline);
        if (!c->committed)
            st = fail_locked(l, rank, err);
        pthread_mutex_unlock(&l->lock);
    }
    exo_compute_resume_after(st);
    if (st == EXO_OK && c->args.size <= l->cores)
        exo_crowd_wait(&l->members[rank].crowd, c->core);
    return st;
}

/* The same on either clock. */
static exo_status
meet(struct local *l, exo_local_call *c, uint32_t rank, const exo_engine_request *r,
     exo_sim_lane *lane, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!lane)
        return meet_in_real_time(l, c, rank, r->deadline, err);
    meet_in_virtual_time(l, c, rank, lane, r->deadline);
    pthread_mutex_lock(&l->lock);
    if (!c->committed)
        st = fail_locked(l, rank, err);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static exo_status
local_wait(void *state, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    struct local *l = state;
    exo_local_call *c = r->own;
    exo_pace *pace = exo_pace_current();
    exo_sim_lane *lane = l->edge.sim ? exo_sim_current() : NULL;
    exo_time before = r->args.waits ? r->since : exo_now(l->clock);
    if (!r->args.waits) {
        exo_pace_wait_begin(pace, l->edge.name ? l->edge.name : "collective",
                            EXO_SPAN_RECV_BLOCKED);
        pthread_mutex_lock(&l->lock);
        enter_locked(&l->members[rank], r);
        pthread_mutex_unlock(&l->lock);
    }
    exo_status st = r->state == MET ? EXO_OK : meet(l, c, rank, r, lane, err);
    if (st == EXO_OK) {
        st = complete(l, c, rank, &r->args, err);
        if (st == EXO_OK)
            st = await_end(l, c, r->args.place, lane, r->deadline, err);
        leave_call(l, c, rank);
    }
    r->waited += exo_now(l->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

static exo_status
local_test(void *state, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    struct local *l = state;
    exo_local_call *c = r->own;
    exo_status st = EXO_OK;
    if (l->edge.sim && exo_sim_current())
        exo_sim_sync(exo_sim_current());
    pthread_mutex_lock(&l->lock);
    bool met = c->committed;
    if (!met && l->broken.code == EXO_OK && exo_now(l->clock) >= r->deadline)
        break_by_timeout(l, c);
    if (!met && l->broken.code != EXO_OK) {
        st = l->broken.code;
        if (err)
            *err = l->broken;
    }
    pthread_mutex_unlock(&l->lock);
    if (st != EXO_OK)
        wake_lanes(l);
    *done = false;
    exo_time end = met ? end_of(l, c, r->args.place) : 0, now = exo_now(l->clock);
    if (!met || (now < end && now < r->deadline))
        return st;
    st = complete(l, c, rank, &r->args, err);
    if (st == EXO_OK && end > r->deadline)
        st = fail_by_links(l, c, err);
    leave_call(l, c, rank);
    *done = true;
    return st;
}

static void
local_cancel(void *state, uint32_t rank, exo_engine_request *r)
{
    struct local *l = state;
    exo_local_call *c = r->own;
    char text[EXO_ERR_TEXT], who[NAME + 32];
    pthread_mutex_lock(&l->lock);
    bool met = c->committed;
    if (!met) {
        snprintf(text, sizeof text, "%s cancelled its %s", member_text(l, rank, who, sizeof who),
                 exo_collective_name(r->args.operation));
        break_locked(l, EXO_CANCELLED, text);
    }
    pthread_mutex_unlock(&l->lock);
    if (!met) {
        wake_lanes(l);
        return;
    }
    complete(l, c, rank, &r->args, NULL);
    leave_call(l, c, rank);
}

/* --- Places ----------------------------------------------------------------------------------- */

static exo_status
local_join(void *state, uint32_t rank, const char *name, exo_err *err)
{
    struct local *l = state;
    struct member *m = &l->members[rank];
    pthread_mutex_lock(&l->lock);
    exo_status st = m->open || m->left ? EXO_EXISTS : EXO_OK;
    if (st == EXO_OK) {
        m->open = true;
        snprintf(m->name, sizeof m->name, "%s", name ? name : "");
    }
    pthread_mutex_unlock(&l->lock);
    return st == EXO_OK ? EXO_OK : exo_fail(err, st, "rank %u is taken or was left", rank);
}

static void
local_leave(void *state, uint32_t rank)
{
    struct local *l = state;
    pthread_mutex_lock(&l->lock);
    l->members[rank].open = false;
    l->members[rank].left = true;
    for (exo_local_call *c = l->all; c; c = c->next_all)
        if (c->arrived > 0 && !c->committed && exo_local_call_has(c, rank))
            break_by_absence(l, &c->args); /* another member waits for it */
    pthread_mutex_unlock(&l->lock);
    wake_lanes(l);
}

static void
local_fail(void *state, uint32_t rank, const char *cause)
{
    struct local *l = state;
    char text[EXO_ERR_TEXT], who[NAME + 32];
    pthread_mutex_lock(&l->lock);
    snprintf(text, sizeof text, "%s died: %s", member_text(l, rank, who, sizeof who), cause);
    break_locked(l, EXO_PEER_LOST, text);
    pthread_mutex_unlock(&l->lock);
    wake_lanes(l);
}

static void
local_close(void *state)
{
    struct local *l = state;
    for (exo_local_call *c = l->all, *next; c; c = next) {
        next = c->next_all;
        exo_local_call_free(c);
    }
    for (uint32_t r = 0; l->members && r < l->size; r++)
        exo_encoder_release(&l->members[r].encoder);
    exo_free(l->open);
    exo_free(l->lanes);
    exo_free(l->awaited);
    exo_free(l->hosts);
    exo_free(l->times);
    exo_free(l->bytes);
    exo_free(l->members);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    exo_free(l);
}

static void
local_warm(void *state, uint32_t rank, size_t count)
{
    struct local *l = state;
    exo_comm_warm_links(&l->edge, l->size, rank, count, exo_now(l->clock));
}

/* A member waits in a call that it has entered and that has not committed. */
static void
local_look(void *state, uint32_t rank, exo_comm_look *look, uint32_t *missing, uint64_t *counts)
{
    struct local *l = state;
    (void)counts;
    pthread_mutex_lock(&l->lock);
    const struct member *member = &l->members[rank];
    look->inside = member->inside;
    look->operation = exo_collective_name(member->operation);
    look->number = member->number;
    look->since = member->since;
    for (const exo_local_call *c = l->all; c && l->broken.code == EXO_OK && !look->waits;
         c = c->next_all) {
        if (c->committed && c->inside > 0 && c->ends && exo_local_call_has(c, rank)) {
            for (uint32_t m = 0; m < c->args.size && !look->passing; m++)
                look->passing = exo_local_call_rank(c, m) == rank &&
                                exo_now(l->clock) - l->edge.origin < c->ends[m];
        }
        if (c->arrived == 0 || c->committed || !exo_local_call_has(c, rank))
            continue;
        look->num_missing = 0;
        for (uint32_t m = 0; m < c->args.size; m++) {
            uint32_t r = exo_local_call_rank(c, m);
            look->waits = look->waits || (r == rank && c->here[m] && member->inside);
            if (!c->here[m])
                missing[look->num_missing++] = r;
        }
    }
    pthread_mutex_unlock(&l->lock);
}

static const exo_comm_edge *
local_edge(const void *state)
{
    return &((const struct local *)state)->edge;
}

static const exo_comm_extras local_extras = {
    .warm = local_warm, .look = local_look, .edge = local_edge};

/* Allocates the members for an edge with links, or on the virtual clock. */
static bool
allocate_edge(struct local *l, const exo_comm_edge *edge)
{
    l->edge = *edge;
    l->lanes = exo_calloc(l->size, sizeof *l->lanes);
    l->awaited = exo_calloc(l->size, sizeof *l->awaited);
    l->hosts = exo_calloc(l->size, sizeof *l->hosts);
    l->times = exo_calloc(2 * (size_t)l->size, sizeof *l->times);
    l->bytes = exo_calloc(l->size, sizeof *l->bytes);
    l->edge.hosts = l->hosts;
    if (l->hosts && edge->links)
        memcpy(l->hosts, edge->hosts, l->size * sizeof *l->hosts);
    return l->lanes && l->awaited && l->hosts && l->times && l->bytes;
}

static exo_status
local_new(struct local **out, uint32_t size, const exo_clock *clock, const exo_comm_edge *edge,
          exo_err *err)
{
    if (size < 1 || size > MAX_SIZE)
        return exo_fail(err, EXO_INVAL, "a communicator has 1 to %d members, not %u", MAX_SIZE,
                        size);
    struct local *l = exo_calloc(1, sizeof *l);
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    l->size = size;
    l->clock = clock;
    l->cores = exo_usable_cores();
    exo_mutex_init_brief(&l->lock);
    exo_condition_init(&l->changed);
    l->members = exo_calloc(size, sizeof *l->members);
    l->open = exo_calloc(size, sizeof *l->open);
    bool memory = l->members && l->open;
    if (edge)
        memory = allocate_edge(l, edge) && memory;
    for (int k = 0; k < 2; k++) {
        exo_local_call *call = add_record(l, size);
        memory = memory && call;
        if (call) {
            call->next = l->free;
            l->free = call;
        }
    }
    if (!memory) {
        local_close(l);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", size);
    }
    *out = l;
    return EXO_OK;
}

static exo_status
local_open(void **group, const exo_engine_opts *opts, exo_err *err)
{
    struct local *l = NULL;
    exo_status st = local_new(&l, opts->size, opts->clock, NULL, err);
    *group = l;
    return st;
}

const exo_engine_class exo_local_engine = {
    .name = "local",
    .help = "among the threads of a process, in place",
    .promises = EXO_ENGINE_ORDERED | EXO_ENGINE_SOME | EXO_ENGINE_CODECS | EXO_ENGINE_LINKS |
                EXO_ENGINE_BLOCKS | EXO_ENGINE_SHIFT,
    .dtypes = EXO_REDUCE_DTYPES,
    .open = local_open,
    .close = local_close,
    .join = local_join,
    .leave = local_leave,
    .fail = local_fail,
    .begin = local_begin,
    .test = local_test,
    .wait = local_wait,
    .cancel = local_cancel,
};

exo_status
exo_comm_local_on(exo_comm **out, uint32_t size, const exo_clock *clock, const exo_comm_edge *edge,
                  exo_err *err)
{
    struct local *l = NULL;
    exo_codec *probe = NULL; /* reports a wrong codec here, not when the first group opens */
    exo_status st = exo_comm_codec_new(&probe, edge ? edge->codec : NULL, err);
    exo_codec_free(&probe);
    if (st == EXO_OK)
        st = local_new(&l, size, clock, edge, err);
    if (st != EXO_OK)
        return st;
    exo_comm *c = exo_calloc(1, sizeof *c);
    char *codec = edge && edge->codec ? exo_strdup(edge->codec) : NULL;
    if (!c || (edge && edge->codec && !codec)) {
        exo_free(c);
        exo_free(codec);
        local_close(l);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    }
    *c = (exo_comm){.references = 1,
                    .size = size,
                    .clock = clock,
                    .engine = &exo_local_engine,
                    .extras = &local_extras,
                    .state = l,
                    .codec = codec};
    st = exo_commons_pool_new(&c->commons, err);
    if (st == EXO_OK)
        st = exo_comm_set_ways(c, size, edge, err);
    if (st != EXO_OK)
        exo_comm_drop(&c);
    *out = c;
    return st;
}

void
exo_comm_local_begin(exo_comm *comm, exo_time origin)
{
    if (comm->engine == &exo_local_engine)
        ((struct local *)comm->state)->edge.origin = origin;
}

exo_status
exo_comm_local(exo_comm **out, uint32_t size, const exo_clock *clock, exo_err *err)
{
    return exo_comm_local_on(out, size, clock, NULL, err);
}
