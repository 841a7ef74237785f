/* Collectives among the threads of one process: buffers are read and written where they lie.
 *
 * A call gathers its members under the lock: all of the communicator's, or some, while others meet in calls of their own (local_call.h has
 * a call's record and its work). It commits when the last one has come, or is broken before that by a deadline, a death
 * or a mismatch; then nobody touches anybody's buffer. After the commit the work lies open as blocks that any member takes
 * from a counter, so the last to come, who is awake, need not wait for the others to wake up; and everyone returns when all
 * blocks are done, which only needs a processor. So a buffer is never touched after its owner has returned.
 *
 * Who comes looks for the call among the same members that has not committed yet, or begins one. A record is free when all have gone from it;
 * there are two from the beginning, with room for all, so calls of all members take no memory.
 *
 * On an edge with links a call has ends, one for each member, on the run's clock; before its own nobody returns. On the virtual clock
 * members are lanes: they wait for the baton instead of the condition, and the last to come does all the work.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/pace.h"
#include "base/parallel.h"
#include "comm/local_call.h"
#include "comm/timing.h"

enum {
    MAX_SIZE = 65536,
    NAME = 64,
    SLICE_MS = 2, /* how often a clock that is not the real one is looked at */
};

struct member {
    char name[NAME];
    bool open, left;
    bool inside;    /* it is in a call */
    uint64_t calls; /* with that one */
    exo_collective operation;
    exo_time since; /* on the clock */
};

struct local {
    uint32_t size;
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct member *members;     /* (size)             */
    exo_local_call **open;      /* (size) calls that have not committed, by the lowest rank of their members */
    exo_local_call *free, *all; /* records that nobody is in; all of them */
    exo_err broken;             /* code OK: it is not */
    exo_comm_edge edge;
    exo_sim_lane **lanes; /* (size) those that are in a call on the virtual clock; guarded by the lock */
    uint32_t *hosts;      /* the edge's, copied */
    exo_time *times;      /* (2 size) scratch of whoever commits, as is: */
    uint64_t *bytes;      /* (size)  */
};

/* --- Meeting -------------------------------------------------------------------------------------------------------------- */

static void
break_locked(struct local *l, exo_status status, const char *text)
{
    if (l->broken.code != EXO_OK)
        return;
    exo_fail(&l->broken, status, "%s", text);
    pthread_cond_broadcast(&l->changed);
}

/* Sleeps until something changes or the deadline; false: it is past the deadline. */
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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + left;
    until.tv_sec = (time_t)(at / EXO_SECOND);
    until.tv_nsec = (long)(at % EXO_SECOND);
    pthread_cond_timedwait(&l->changed, &l->lock, &until);
    return true;
}

/* "node_2 (rank 2)" */
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

/* When the first to come came. */
static exo_time
first_since(const struct local *l, const exo_local_call *c)
{
    exo_time since = exo_now(l->clock);
    for (uint32_t m = 0; m < c->args.size; m++)
        if (c->here[m] && l->members[exo_local_call_rank(c, m)].since < since)
            since = l->members[exo_local_call_rank(c, m)].since;
    return since;
}

static void
break_by_timeout(struct local *l, const exo_local_call *c)
{
    char text[EXO_ERR_TEXT], who[NAME + 32];
    exo_time waited = exo_now(l->clock) - first_since(l, c);
    size_t at = (size_t)snprintf(text, sizeof text, "%s: deadline passed after %.1f s while waiting for",
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
    return a->operation == b->operation && a->count == b->count && a->dtype == b->dtype && a->reduce == b->reduce &&
           a->root == b->root && a->rehearsal == b->rehearsal;
}

static void
break_by_mismatch(struct local *l, const exo_local_call *c, uint32_t rank, const exo_collective_args *args)
{
    char text[EXO_ERR_TEXT], a[NAME + 32], b[NAME + 32];
    snprintf(text, sizeof text, "members disagree: %s calls %s of %zu %s, %s calls %s of %zu %s%s",
             member_text(l, exo_local_call_rank(c, c->first), a, sizeof a), exo_collective_name(c->args.operation),
             c->args.count, exo_dtype_name(c->args.dtype), member_text(l, rank, b, sizeof b),
             exo_collective_name(args->operation), args->count, exo_dtype_name(args->dtype),
             c->args.operation == args->operation && c->args.count == args->count && c->args.dtype == args->dtype
                 ? " with another reduction or root"
                 : "");
    break_locked(l, EXO_INVAL, text);
}

/* Whether one of the members of a call has left. */
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

/* --- Records of calls ------------------------------------------------------------------------------------------------------- */

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

/* The call among these members that has not committed; a new one if there is none. NULL: no memory. */
static exo_local_call *
find_call_locked(struct local *l, const exo_collective_args *args)
{
    exo_local_call **open = open_calls(l, args), *c = *open;
    while (c && !exo_local_call_is_among(c, args))
        c = c->next;
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
    c->committed = true;
}

/* The last to go frees the record. */
static void
go_locked(struct local *l, exo_local_call *c)
{
    if (--c->inside > 0)
        return;
    c->next = l->free;
    l->free = c;
}

/* When each member has its result, from when each came. */
static void
time_call_locked(struct local *l, exo_local_call *c, const exo_collective_args *args)
{
    exo_err reason = {0};
    exo_comm_edge edge = l->edge;
    edge.hosts = c->hosts;
    if (exo_comm_timing(&edge, args->size, args, c->begins, c->ends, l->times, l->bytes, &reason) != EXO_OK)
        break_locked(l, reason.code, reason.text);
}

/* Enters the call; the last to come commits it. NULL: the communicator is broken, the member is not in the call. */
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
    if (c->begins)
        c->begins[args->place] = exo_now(l->clock) - l->edge.origin;
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

/* Waits for the commit. */
static void
meet_locked(struct local *l, exo_local_call *c, exo_time deadline)
{
    while (!c->committed && l->broken.code == EXO_OK)
        if (!wait_locked(l, deadline) && !c->committed && l->broken.code == EXO_OK)
            break_by_timeout(l, c);
}

/* Does its share of the work; whoever does the last of it wakes those who wait for it. */
static void
help(struct local *l, exo_local_call *c, exo_encoder *encoder)
{
    if (!exo_local_call_help(c, encoder))
        return;
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Ends the wait of lanes that wait for a call that will not be. Not under the lock: waking may run what is due. */
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

/* Waits for the commit in virtual time. The last to come does the work and says to each of the others when it is over. */
static void
meet_in_virtual_time(struct local *l, exo_local_call *c, const exo_collective_args *args, exo_sim_lane *lane, bool last,
                     exo_time deadline)
{
    while (!last) {
        pthread_mutex_lock(&l->lock);
        bool over = c->committed || l->broken.code != EXO_OK;
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
    help(l, c, args->encoder);
    for (uint32_t m = 0; m < args->size; m++)
        if (m != args->place)
            exo_sim_wake(l->lanes[exo_local_call_rank(c, m)], c->ends ? c->ends[m] + l->edge.origin : 0);
}

/* Nobody has its result before its messages would have come: waits for that. */
static exo_status
await_end(struct local *l, const exo_local_call *c, uint32_t place, exo_sim_lane *lane, exo_time deadline, exo_err *err)
{
    if (!c->ends)
        return EXO_OK;
    exo_time end = c->ends[place] == INT64_MAX ? INT64_MAX : c->ends[place] + l->edge.origin;
    exo_time until = end < deadline ? end : deadline;
    if (lane) {
        while (exo_sim_time(lane) < until)
            exo_sim_wait(lane, until);
    } else {
        const struct timespec at = {.tv_sec = (time_t)(until / EXO_SECOND), .tv_nsec = (long)(until % EXO_SECOND)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
    }
    if (end <= deadline)
        return EXO_OK;
    char text[EXO_ERR_TEXT];
    snprintf(text, sizeof text, "%s: the links do not let it through before the deadline",
             exo_collective_name(c->args.operation));
    pthread_mutex_lock(&l->lock);
    break_locked(l, EXO_TIMEOUT, text);
    pthread_mutex_unlock(&l->lock);
    wake_lanes(l);
    return exo_fail(err, EXO_TIMEOUT, "%s", text);
}

/* In a call that has committed: does its part of the work, waits for the others' and for the links. */
static exo_status
finish(struct local *l, exo_local_call *c, const exo_collective_args *args, exo_sim_lane *lane, exo_time deadline,
       exo_err *err)
{
    exo_status st = EXO_OK;
    help(l, c, args->encoder);
    pthread_mutex_lock(&l->lock);
    while (atomic_load(&c->done) < c->blocks)
        pthread_cond_wait(&l->changed, &l->lock); /* bounded: others are computing their blocks */
    pthread_mutex_unlock(&l->lock);
    if (atomic_load(&c->failed))
        st = exo_fail(err, (exo_status)atomic_load(&c->failed), "%s: the codec failed",
                      exo_collective_name(args->operation));
    if (st == EXO_OK)
        st = await_end(l, c, args->place, lane, deadline, err);
    pthread_mutex_lock(&l->lock);
    l->members[exo_local_call_rank(c, args->place)].inside = false;
    go_locked(l, c);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static exo_status
local_run(void *state, uint32_t rank, const exo_collective_args *args, exo_time deadline, exo_time *waited,
          exo_err *err)
{
    struct local *l = state;
    exo_status st = EXO_OK;
    exo_pace *pace = exo_pace_current();
    exo_sim_lane *lane = l->edge.sim ? exo_sim_current() : NULL;
    exo_pace_wait_begin(pace, l->edge.name ? l->edge.name : "collective", EXO_SPAN_RECV_BLOCKED);
    if (lane)
        exo_sim_sync(lane); /* what happens earlier on a link happens first */
    exo_time before = exo_now(l->clock);

    pthread_mutex_lock(&l->lock);
    if (lane)
        l->lanes[rank] = lane;
    struct member *m = &l->members[rank];
    m->inside = true;
    m->calls++;
    m->operation = args->operation;
    m->since = before;
    exo_local_call *c = l->broken.code == EXO_OK ? arrive_locked(l, rank, args) : NULL;
    bool met = c && c->committed;
    bool is_broken = l->broken.code != EXO_OK;
    pthread_mutex_unlock(&l->lock);
    if (is_broken)
        wake_lanes(l);
    if (c && lane)
        meet_in_virtual_time(l, c, args, lane, met, deadline);
    if (!met) {
        if (!lane)
            exo_compute_pause();
        pthread_mutex_lock(&l->lock);
        if (c && !lane)
            meet_locked(l, c, deadline);
        if (!c || !c->committed) {
            st = l->broken.code;
            m->inside = false;
            if (err)
                *err = l->broken;
        }
        pthread_mutex_unlock(&l->lock);
        if (!lane)
            exo_compute_resume();
    }
    if (st == EXO_OK)
        st = finish(l, c, args, lane, deadline, err);
    *waited += exo_now(l->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

/* --- Places ------------------------------------------------------------------------------------------------------------------ */

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
            break_by_absence(l, &c->args); /* somebody waits for it */
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
local_free(void *state)
{
    struct local *l = state;
    for (exo_local_call *c = l->all, *next; c; c = next) {
        next = c->next_all;
        exo_local_call_free(c);
    }
    exo_free(l->open);
    exo_free(l->lanes);
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

/* A member waits in a call that it has come to and that has not committed. */
static void
local_look(void *state, uint32_t rank, exo_comm_look *look, uint32_t *missing, uint64_t *counts)
{
    struct local *l = state;
    (void)counts;
    pthread_mutex_lock(&l->lock);
    const struct member *member = &l->members[rank];
    look->inside = member->inside;
    look->operation = exo_collective_name(member->operation);
    look->number = member->calls;
    look->since = member->since;
    for (const exo_local_call *c = l->all; c && l->broken.code == EXO_OK && !look->waits; c = c->next_all) {
        if (c->committed && c->inside > 0 && c->ends && exo_local_call_has(c, rank)) {
            for (uint32_t m = 0; m < c->args.size && !look->passing; m++)
                look->passing = exo_local_call_rank(c, m) == rank && exo_now(l->clock) - l->edge.origin < c->ends[m];
        }
        if (c->arrived == 0 || c->committed || !exo_local_call_has(c, rank))
            continue;
        look->num_missing = 0;
        for (uint32_t m = 0; m < c->args.size; m++) {
            uint32_t r = exo_local_call_rank(c, m);
            look->waits = look->waits || (r == rank && c->here[m]);
            if (!c->here[m])
                missing[look->num_missing++] = r;
        }
    }
    pthread_mutex_unlock(&l->lock);
}

static const exo_comm_backend local_backend = {.join = local_join,
                                               .leave = local_leave,
                                               .fail = local_fail,
                                               .run = local_run,
                                               .warm = local_warm,
                                               .look = local_look,
                                               .free = local_free};

/* What an edge with links or on the virtual clock needs besides. */
static bool
allocate_edge(struct local *l, const exo_comm_edge *edge)
{
    l->edge = *edge;
    l->lanes = exo_calloc(l->size, sizeof *l->lanes);
    l->hosts = exo_calloc(l->size, sizeof *l->hosts);
    l->times = exo_calloc(2 * (size_t)l->size, sizeof *l->times);
    l->bytes = exo_calloc(l->size, sizeof *l->bytes);
    l->edge.hosts = l->hosts;
    if (l->hosts && edge->links)
        memcpy(l->hosts, edge->hosts, l->size * sizeof *l->hosts);
    return l->lanes && l->hosts && l->times && l->bytes;
}

exo_status
exo_comm_local_on(exo_comm **out, uint32_t size, const exo_clock *clock, const exo_comm_edge *edge, exo_err *err)
{
    if (size < 1 || size > MAX_SIZE)
        return exo_fail(err, EXO_INVAL, "a communicator has 1 to %d members, not %u", MAX_SIZE, size);
    exo_encoder probe = {0}; /* a wrong codec is an error here, and not of the first group */
    exo_status st = exo_encoder_init(&probe, edge ? edge->codec : NULL, err);
    exo_encoder_release(&probe);
    if (st != EXO_OK)
        return st;
    exo_comm *c = exo_calloc(1, sizeof *c);
    struct local *l = exo_calloc(1, sizeof *l);
    if (!c || !l) {
        exo_free(c);
        exo_free(l);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    }
    *c = (exo_comm){.references = 1, .size = size, .clock = clock, .backend = &local_backend, .state = l};
    l->size = size;
    l->clock = clock;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
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
    if (edge && edge->codec)
        memory = (c->codec = exo_strdup(edge->codec)) && memory;
    if (!memory) {
        exo_comm_drop(&c);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", size);
    }
    *out = c;
    return EXO_OK;
}

void
exo_comm_local_begin(exo_comm *comm, exo_time origin)
{
    ((struct local *)comm->state)->edge.origin = origin;
}

exo_status
exo_comm_local(exo_comm **out, uint32_t size, const exo_clock *clock, exo_err *err)
{
    return exo_comm_local_on(out, size, clock, NULL, err);
}
