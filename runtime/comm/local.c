/* Collectives among the threads of one process: buffers are read and written where they lie.
 *
 * A call gathers its members under the lock. It commits when the last one has come, or is broken before that by a deadline, a death
 * or a mismatch; then nobody touches anybody's buffer. After the commit the work lies open as blocks that any member takes
 * from a counter, so the last to come, who is awake, need not wait for the others to wake up; and everyone returns when all
 * blocks are done, which only needs a processor. So a buffer is never touched after its owner has returned.
 *
 * An element is summed over the ranks in their order by whoever takes its block: the bits do not depend on who that is.
 *
 * Two call records take turns: to commit call k + 1 every member must have left call k, so record k is free when k + 2 begins.
 *
 * On an edge with a codec a block is a shard: whoever takes it does to every member's part what encoding and decoding would.
 * On an edge with links a call has ends, one for each member, on the run's clock; before its own nobody returns. On the virtual clock
 * members are lanes: they wait for the baton instead of the condition, and the last to come does all the work.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "backend.h"
#include "pace.h"
#include "parallel.h"
#include "reduce.h"
#include "timing.h"

enum {
    MAX_SIZE = 65536,
    BLOCK = EXO_REDUCE_BLOCK, /* elements: what one member reduces at a time */
    NAME = 64,
    SLICE_MS = 2, /* how often a clock that is not the real one is looked at */
};

struct member {
    char name[NAME];
    bool open, left;
};

/* One call of all members. Guarded by the lock up to the commit; read-only after it but for the counters. */
struct call {
    exo_collective_args args; /* the first member's */
    uint32_t first;           /* who that was       */
    uint32_t arrived;
    bool committed;
    void **data; /* (size)              */
    bool *here;  /* (size) who has come */
    size_t blocks;
    atomic_size_t next, done;
    exo_time *begins, *ends; /* (size) of an edge with links; from the run's origin */
    atomic_int failed;       /* the status of a block that could not be done        */
};

struct local {
    uint32_t size;
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct member *members; /* (size)             */
    struct call calls[2];
    exo_err broken; /* code OK: it is not */
    exo_comm_edge edge;
    exo_sim_lane **lanes; /* (size) those that are in a call on the virtual clock; guarded by the lock */
    uint32_t *hosts;      /* the edge's, copied */
    exo_time *times;      /* (2 size) scratch of whoever commits, as is: */
    uint64_t *bytes;      /* (size)  */
};

static const char *const operation_names[] = {
    [EXO_ALL_REDUCE] = "all_reduce", [EXO_REDUCE_SCATTER] = "reduce_scatter",
    [EXO_ALL_GATHER] = "all_gather", [EXO_BROADCAST] = "broadcast",
    [EXO_BARRIER] = "barrier",
};

/* --- The work ------------------------------------------------------------------------------------------------------------ */

/* The rank whose shard element `at` is in, and how many elements of it follow, up to `count`. */
static uint32_t
owner_of(const struct local *l, size_t total, size_t at, size_t *count)
{
    size_t each = total / l->size, longer = total % l->size, first, length;
    size_t rank = at < longer * (each + 1) ? at / (each + 1) : longer + (at - longer * (each + 1)) / (each ? each : 1);
    exo_shard(total, l->size, (uint32_t)rank, &first, &length);
    if (first + length - at < *count)
        *count = first + length - at;
    return (uint32_t)rank;
}

static void
reduce_range(const struct local *l, const struct call *c, size_t at, size_t count)
{
    float sum[BLOCK]; /* or int32_t, which are as long */
    exo_reduce_block(sum, c->data, l->size, at, count, c->args.dtype, c->args.reduce);
    if (c->args.operation == EXO_ALL_REDUCE) {
        for (uint32_t r = 0; r < l->size; r++)
            memcpy((float *)c->data[r] + at, sum, count * sizeof(float));
        return;
    }
    for (size_t done = 0; done < count;) {
        size_t part = count - done;
        uint32_t owner = owner_of(l, c->args.count, at + done, &part);
        memcpy((float *)c->data[owner] + at + done, sum + done, part * sizeof(float));
        done += part;
    }
}

static void
copy_range(const struct local *l, const struct call *c, uint32_t from, size_t at, size_t count)
{
    size_t size = exo_dtype_size(c->args.dtype);
    const char *source = (const char *)c->data[from] + at * size;
    for (uint32_t r = 0; r < l->size; r++)
        if (r != from)
            memcpy((char *)c->data[r] + at * size, source, count * size);
}

static void
do_block(const struct local *l, const struct call *c, size_t block)
{
    size_t at = block * BLOCK;
    size_t count = c->args.count - at < BLOCK ? c->args.count - at : BLOCK;
    switch (c->args.operation) {
    case EXO_ALL_REDUCE:
    case EXO_REDUCE_SCATTER:
        reduce_range(l, c, at, count);
        break;
    case EXO_BROADCAST:
        copy_range(l, c, c->args.root, at, count);
        break;
    case EXO_ALL_GATHER:
        for (size_t done = 0; done < count;) {
            size_t part = count - done;
            uint32_t owner = owner_of(l, c->args.count, at + done, &part);
            copy_range(l, c, owner, at + done, part);
            done += part;
        }
        break;
    case EXO_BARRIER:
        break;
    }
}

/* Shard `j` of a call on an edge with a codec: each member's part as member j would get it, their sum, and the sum as they would. */
static exo_status
do_shard(const struct local *l, const struct call *c, uint32_t j, exo_encoder *encoder)
{
    size_t first, length;
    exo_shard(c->args.count, l->size, j, &first, &length);
    float *sum = encoder->floats + l->size * length;
    exo_status st = EXO_OK;
    if (length == 0)
        return EXO_OK;
    if (c->args.operation == EXO_ALL_GATHER) {
        memcpy(sum, (const float *)c->data[j] + first, length * sizeof *sum);
    } else {
        void *parts[l->size];
        for (uint32_t r = 0; st == EXO_OK && r < l->size; r++) {
            float *part = encoder->floats + r * length;
            const float *own = (const float *)c->data[r] + first;
            parts[r] = part;
            if (r == j)
                memcpy(part, own, length * sizeof *part);
            else
                st = exo_encoder_round_trip(encoder, own, part, length, NULL);
        }
        for (size_t at = 0; st == EXO_OK && at < length; at += BLOCK) {
            size_t count = length - at < BLOCK ? length - at : BLOCK;
            exo_reduce_block(sum + at, parts, l->size, at, count, EXO_F32, c->args.reduce);
        }
    }
    if (st == EXO_OK && c->args.operation != EXO_REDUCE_SCATTER)
        st = exo_encoder_round_trip(encoder, sum, sum, length, NULL);
    for (uint32_t r = 0; st == EXO_OK && r < l->size; r++)
        if (r == j || c->args.operation != EXO_REDUCE_SCATTER)
            memcpy((float *)c->data[r] + first, sum, length * sizeof *sum);
    return st;
}

/* Takes blocks until there are none; whoever does the last one wakes those who wait for it. */
static void
help(struct local *l, struct call *c, exo_encoder *encoder)
{
    for (;;) {
        size_t block = atomic_fetch_add(&c->next, 1);
        if (block >= c->blocks)
            return;
        exo_status st = EXO_OK;
        if (encoder)
            st = do_shard(l, c, (uint32_t)block, encoder);
        else
            do_block(l, c, block);
        if (st != EXO_OK)
            atomic_store(&c->failed, (int)st);
        if (atomic_fetch_add(&c->done, 1) + 1 == c->blocks) {
            pthread_mutex_lock(&l->lock);
            pthread_cond_broadcast(&l->changed);
            pthread_mutex_unlock(&l->lock);
        }
    }
}

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

static void
break_by_timeout(struct local *l, const struct call *c)
{
    char text[EXO_ERR_TEXT], who[NAME + 32];
    size_t at = (size_t)snprintf(text, sizeof text, "%s: deadline passed while waiting for",
                                 operation_names[c->args.operation]);
    uint32_t named = 0;
    for (uint32_t r = 0; r < l->size; r++) {
        if (c->here[r] || named++ >= 4)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s", named > 1 ? "," : "",
                               member_text(l, r, who, sizeof who));
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
break_by_mismatch(struct local *l, const struct call *c, uint32_t rank, const exo_collective_args *args)
{
    char text[EXO_ERR_TEXT], a[NAME + 32], b[NAME + 32];
    snprintf(text, sizeof text, "members disagree: %s calls %s of %zu %s, %s calls %s of %zu %s%s",
             member_text(l, c->first, a, sizeof a), operation_names[c->args.operation], c->args.count,
             exo_dtype_name(c->args.dtype), member_text(l, rank, b, sizeof b), operation_names[args->operation],
             args->count, exo_dtype_name(args->dtype),
             c->args.operation == args->operation && c->args.count == args->count && c->args.dtype == args->dtype
                 ? " with another reduction or root"
                 : "");
    break_locked(l, EXO_INVAL, text);
}

static void
break_by_absence(struct local *l)
{
    char text[EXO_ERR_TEXT], who[NAME + 32];
    for (uint32_t r = 0; r < l->size; r++) {
        if (!l->members[r].left)
            continue;
        snprintf(text, sizeof text, "%s has left", member_text(l, r, who, sizeof who));
        break_locked(l, EXO_PEER_LOST, text);
        return;
    }
}

/* Enters the call; the last to come commits it. False: the communicator is broken, the member is not in the call. */
static bool
arrive_locked(struct local *l, struct call *c, uint32_t rank, const exo_collective_args *args)
{
    if (c->committed || c->arrived == 0) { /* the record of two calls ago */
        c->args = *args;
        c->first = rank;
        c->arrived = 0;
        c->committed = false;
        c->blocks = args->rehearsal ? 0 : args->encoder ? l->size : (args->count + BLOCK - 1) / BLOCK;
        atomic_store(&c->next, 0);
        atomic_store(&c->done, 0);
        atomic_store(&c->failed, 0);
        memset(c->here, 0, l->size * sizeof *c->here);
    }
    break_by_absence(l);
    if (l->broken.code == EXO_OK && !same_call(&c->args, args))
        break_by_mismatch(l, c, rank, args);
    if (l->broken.code != EXO_OK)
        return false;
    c->data[rank] = args->data;
    c->here[rank] = true;
    if (c->begins)
        c->begins[rank] = exo_now(l->clock) - l->edge.origin;
    if (++c->arrived < l->size)
        return true;
    exo_err reason = {0};
    if (c->begins &&
        exo_comm_timing(&l->edge, l->size, args, c->begins, c->ends, l->times, l->bytes, &reason) != EXO_OK)
        break_locked(l, reason.code, reason.text);
    c->committed = l->broken.code == EXO_OK;
    pthread_cond_broadcast(&l->changed);
    return c->committed;
}

/* Waits for the commit. */
static void
meet_locked(struct local *l, struct call *c, exo_time deadline)
{
    while (!c->committed && l->broken.code == EXO_OK)
        if (!wait_locked(l, deadline) && !c->committed && l->broken.code == EXO_OK)
            break_by_timeout(l, c);
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
meet_in_virtual_time(struct local *l, struct call *c, uint32_t rank, exo_sim_lane *lane, bool last, exo_time deadline,
                     exo_encoder *encoder)
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
    help(l, c, encoder);
    for (uint32_t r = 0; r < l->size; r++)
        if (r != rank)
            exo_sim_wake(l->lanes[r], c->ends ? c->ends[r] + l->edge.origin : 0);
}

/* Nobody has its result before its messages would have come: waits for that. */
static exo_status
await_end(struct local *l, const struct call *c, uint32_t rank, exo_sim_lane *lane, exo_time deadline, exo_err *err)
{
    if (!c->ends)
        return EXO_OK;
    exo_time end = c->ends[rank] == INT64_MAX ? INT64_MAX : c->ends[rank] + l->edge.origin;
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
             operation_names[c->args.operation]);
    pthread_mutex_lock(&l->lock);
    break_locked(l, EXO_TIMEOUT, text);
    pthread_mutex_unlock(&l->lock);
    wake_lanes(l);
    return exo_fail(err, EXO_TIMEOUT, "%s", text);
}

static exo_status
local_run(void *state, uint32_t rank, uint64_t number, const exo_collective_args *args, exo_time deadline,
          exo_time *waited, exo_err *err)
{
    struct local *l = state;
    struct call *c = &l->calls[number % 2];
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
    bool arrived = l->broken.code == EXO_OK && arrive_locked(l, c, rank, args);
    bool met = arrived && c->committed;
    bool is_broken = l->broken.code != EXO_OK;
    pthread_mutex_unlock(&l->lock);
    if (is_broken)
        wake_lanes(l);
    if (arrived && lane)
        meet_in_virtual_time(l, c, rank, lane, met, deadline, args->encoder);
    if (!met) {
        if (!lane)
            exo_compute_pause();
        pthread_mutex_lock(&l->lock);
        if (arrived && !lane)
            meet_locked(l, c, deadline);
        if (!arrived || !c->committed) { /* who is not in the call must not look at its record: it may be an old one */
            st = l->broken.code;
            if (err)
                *err = l->broken;
        }
        pthread_mutex_unlock(&l->lock);
        if (!lane)
            exo_compute_resume();
    }
    if (st == EXO_OK) {
        help(l, c, args->encoder);
        pthread_mutex_lock(&l->lock);
        while (atomic_load(&c->done) < c->blocks)
            pthread_cond_wait(&l->changed, &l->lock); /* bounded: others are computing their blocks */
        pthread_mutex_unlock(&l->lock);
        if (atomic_load(&c->failed))
            st = exo_fail(err, (exo_status)atomic_load(&c->failed), "%s: the codec failed",
                          operation_names[c->args.operation]);
    }
    if (st == EXO_OK)
        st = await_end(l, c, rank, lane, deadline, err);
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
    for (int k = 0; k < 2; k++)
        if (l->calls[k].arrived > 0 && !l->calls[k].committed)
            break_by_absence(l); /* somebody waits for it */
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
    for (int k = 0; k < 2; k++) {
        exo_free(l->calls[k].data);
        exo_free(l->calls[k].here);
        exo_free(l->calls[k].begins);
        exo_free(l->calls[k].ends);
    }
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

static const exo_comm_backend local_backend = {.join = local_join,
                                               .leave = local_leave,
                                               .fail = local_fail,
                                               .run = local_run,
                                               .warm = local_warm,
                                               .free = local_free};

/* What an edge with links or on the virtual clock needs besides. */
static bool
allocate_edge(struct local *l, const exo_comm_edge *edge)
{
    bool memory = true;
    l->edge = *edge;
    l->lanes = exo_calloc(l->size, sizeof *l->lanes);
    l->hosts = exo_calloc(l->size, sizeof *l->hosts);
    l->times = exo_calloc(2 * (size_t)l->size, sizeof *l->times);
    l->bytes = exo_calloc(l->size, sizeof *l->bytes);
    l->edge.hosts = l->hosts;
    for (int k = 0; k < 2 && edge->links; k++) {
        l->calls[k].begins = exo_calloc(l->size, sizeof *l->calls[k].begins);
        l->calls[k].ends = exo_calloc(l->size, sizeof *l->calls[k].ends);
        memory = memory && l->calls[k].begins && l->calls[k].ends;
    }
    if (l->hosts && edge->links)
        memcpy(l->hosts, edge->hosts, l->size * sizeof *l->hosts);
    return memory && l->lanes && l->hosts && l->times && l->bytes;
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
    bool memory = l->members != NULL;
    for (int k = 0; k < 2; k++) {
        l->calls[k].data = exo_calloc(size, sizeof *l->calls[k].data);
        l->calls[k].here = exo_calloc(size, sizeof *l->calls[k].here);
        memory = memory && l->calls[k].data && l->calls[k].here;
    }
    if (edge)
        memory = allocate_edge(l, edge) && memory;
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
