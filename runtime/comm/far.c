/* Collectives among actors elsewhere: see far.h. One lock guards all of a member's state; it is not held while anything is called. */
#include "far.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "backend.h"
#include "future.h"
#include "pace.h"
#include "parallel.h"
#include "reduce.h"
#include "timing.h"

enum {
    MAX_SIZE = 4096,
    REDUCE = 0, /* phases of a call */
    GATHER = 1,
    FAILED = 2, /* not a phase: a member says that one died */
    NAME = 64
};

/* Before the data of every message; little endian, as all machines that this runs on. */
struct header {
    uint32_t channel, phase, from, operation; /* from: a rank; root: a place */
    uint64_t number, count;                   /* number: of the calls that both were in, from 0 */
    uint32_t dtype, reduce, root;
    uint32_t members; /* tells the sets of members apart that call together; 0: all */
    uint64_t bytes;   /* that follow */
    exo_time passing; /* of an emulated link: how long after it was sent it may be seen */
};
_Static_assert(sizeof(struct header) == EXO_COMM_HEADER, "the ledger counts it");

struct message {
    struct message *next;
    struct header header;
    exo_payload payload; /* header included */
    exo_time ready;      /* it may be seen from then on, on the communicator's clock */
};

struct watch {
    struct far *far;
    uint32_t rank;
    exo_future *future; /* held; NULL: over */
};

struct far {
    exo_comm_far_opts opts;
    exo_comm_edge edge; /* without links: nothing is emulated */
    uint32_t *hosts;    /* the edge's, copied */
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    exo_ref *members;      /* (size); NULL until connected. Guarded by lock, as all below */
    struct watch *watches; /* (size) */
    unsigned watching;
    bool *left;      /* (size) stopped cleanly */
    uint64_t *calls; /* (size) how many this member was in with each other one. Owner: who calls, as is */
    uint32_t among;  /* members_of() the call under way                                        */
    struct message *inbox;
    char name[NAME];
    bool open;
    exo_err broken; /* code OK: it is not */
};

static void
break_locked(struct far *f, exo_status status, const char *text)
{
    if (f->broken.code != EXO_OK)
        return;
    exo_fail(&f->broken, status, "%s", text);
    pthread_cond_broadcast(&f->changed);
}

static void
break_by(struct far *f, exo_status status, const char *text)
{
    pthread_mutex_lock(&f->lock);
    break_locked(f, status, text);
    pthread_mutex_unlock(&f->lock);
}

/* --- Watching the members -------------------------------------------------------------------------------------------------------- */

static void
member_ended(void *context, uint64_t tag, exo_future *future)
{
    struct watch *w = context;
    struct far *f = w->far;
    exo_err reason = {0};
    char text[EXO_ERR_TEXT];
    (void)tag;
    exo_status st = exo_wait(future, INT64_MAX, NULL, &reason);
    pthread_mutex_lock(&f->lock);
    if (st == EXO_PEER_LOST) {
        snprintf(text, sizeof text, "node_%u (rank %u) died: %.400s", w->rank, w->rank, reason.text);
        break_locked(f, EXO_PEER_LOST, text);
    }
    f->left[w->rank] = true;
    exo_future *held = w->future;
    w->future = NULL;
    f->watching--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    exo_future_drop(&held);
}

static const exo_future_hook watch_hook = {.done = member_ended};

static exo_status
watch(struct far *f, uint32_t rank, exo_err *err)
{
    struct watch *w = &f->watches[rank];
    exo_future *future = NULL;
    exo_status st = exo_monitor(f->opts.runtime, f->members[rank], &future, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&f->lock);
    *w = (struct watch){.far = f, .rank = rank, .future = exo_future_hold(future)};
    f->watching++;
    pthread_mutex_unlock(&f->lock);
    exo_future_set_hook(future, &watch_hook, w, 0);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_comm_far_connect(exo_comm *comm, const exo_ref *members, exo_err *err)
{
    struct far *f = comm->state;
    exo_ref *copy = exo_calloc(f->opts.size, sizeof *copy);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    memcpy(copy, members, f->opts.size * sizeof *copy);
    pthread_mutex_lock(&f->lock);
    f->members = copy;
    pthread_mutex_unlock(&f->lock);
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < f->opts.size; r++)
        if (r != f->opts.rank)
            st = watch(f, r, err);
    return st;
}

void
exo_comm_far_disconnect(exo_comm *comm)
{
    struct far *f = comm->state;
    break_by(f, EXO_CLOSED, "the communicator was disconnected");
    for (uint32_t r = 0; r < f->opts.size; r++) {
        pthread_mutex_lock(&f->lock);
        exo_future *future = f->watches[r].future ? exo_future_hold(f->watches[r].future) : NULL;
        pthread_mutex_unlock(&f->lock);
        if (future)
            exo_cancel(future);
        exo_future_drop(&future);
    }
    pthread_mutex_lock(&f->lock);
    while (f->watching > 0) /* those that end just now: a few instructions */
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

/* --- Messages -------------------------------------------------------------------------------------------------------------------- */

uint32_t
exo_comm_far_channel(const exo_payload *payload)
{
    uint32_t channel = UINT32_MAX;
    if (payload->size >= sizeof(struct header))
        memcpy(&channel, payload->data, sizeof channel);
    return channel;
}

exo_status
exo_comm_far_deliver(exo_comm *comm, exo_payload *payload, exo_err *err)
{
    struct far *f = comm->state;
    struct header header;
    char text[EXO_ERR_TEXT];
    if (payload->size < sizeof header)
        return exo_fail(err, EXO_INVAL, "a message of %zu bytes is none of a collective", payload->size);
    memcpy(&header, payload->data, sizeof header);
    if (header.from >= f->opts.size || header.channel != f->opts.channel ||
        header.bytes != payload->size - sizeof header)
        return exo_fail(err, EXO_INVAL, "a message that is not for this communicator");
    if (header.phase == FAILED) {
        size_t length = header.bytes < 400 ? header.bytes : 400;
        uint32_t rank = header.root < f->opts.size ? header.root : header.from;
        snprintf(text, sizeof text, "node_%u (rank %u) died: %.*s", rank, rank, (int)length,
                 (const char *)payload->data + sizeof header);
        break_by(f, EXO_PEER_LOST, text);
        exo_payload_release(payload);
        return EXO_OK;
    }
    struct message *m = exo_calloc(1, sizeof *m);
    if (!m) {
        break_by(f, EXO_NOMEM, "no memory for a message of a collective");
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a collective");
    }
    m->header = header;
    exo_time now = exo_now(f->clock);
    m->ready = !f->edge.links || header.passing < 0 ? now
               : header.passing < INT64_MAX - now   ? now + header.passing
                                                    : INT64_MAX;
    m->payload = *payload;
    *payload = (exo_payload){0};
    pthread_mutex_lock(&f->lock);
    m->next = f->inbox;
    f->inbox = m;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return EXO_OK;
}

static void
free_message(struct message *m)
{
    exo_payload_release(&m->payload);
    exo_free(m);
}

/* *ready is when it may be taken, if it is here but may not be seen yet. */
static struct message *
take_message_locked(struct far *f, uint64_t number, uint32_t phase, uint32_t from, exo_time *ready)
{
    for (struct message **at = &f->inbox; *at; at = &(*at)->next) {
        struct message *m = *at;
        if (m->header.number == number && m->header.phase == phase && m->header.from == from) {
            if (f->edge.links && m->ready > exo_now(f->clock)) {
                *ready = m->ready;
                return NULL;
            }
            *at = m->next;
            return m;
        }
    }
    return NULL;
}

static uint32_t
rank_at(const exo_collective_args *args, uint32_t place)
{
    return args->ranks ? args->ranks[place] : place;
}

/* FNV-1a over the ranks (http://www.isthe.com/chongo/tech/comp/fnv/); 0 for all. */
static uint32_t
members_of(const exo_collective_args *args)
{
    uint32_t hash = 2166136261u;
    for (uint32_t m = 0; args->ranks && m < args->size; m++)
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ ((args->ranks[m] >> (8 * byte)) & 255)) * 16777619u;
    return !args->ranks ? 0 : hash ? hash : 1;
}

/* What goes to `to`, a rank, in this call. */
static void
describe(struct header *h, const struct far *f, uint32_t to, uint32_t phase, const exo_collective_args *args,
         size_t bytes)
{
    *h = (struct header){.channel = f->opts.channel,
                         .phase = phase,
                         .from = f->opts.rank,
                         .operation = (uint32_t)args->operation,
                         .number = f->calls[to],
                         .count = args->count,
                         .dtype = (uint32_t)args->dtype,
                         .reduce = (uint32_t)args->reduce,
                         .root = args->root,
                         .members = f->among,
                         .bytes = bytes};
}

/* Waits until a message of `bytes` would have left on the edge's links; *passing is the rest of its way. */
static void
pass_links(struct far *f, uint32_t to, uint64_t bytes, exo_time *passing)
{
    exo_transit transit;
    exo_time now = exo_now(f->clock) - f->edge.origin;
    exo_links_send(f->edge.links, f->hosts[f->opts.rank], f->hosts[to], f->edge.flow,
                   bytes + EXO_COMM_HEADER + EXO_COMM_ENVELOPE, now, &transit);
    *passing = transit.arrives - transit.sent;
    exo_time at = transit.sent + f->edge.origin;
    const struct timespec until = {.tv_sec = (time_t)(at / EXO_SECOND), .tv_nsec = (long)(at % EXO_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* `data` becomes header->bytes bytes: as they are, or encoded. */
static exo_status
write_data(exo_encoder *encoder, const struct header *header, const void *data, size_t count, char *out, exo_err *err)
{
    const exo_codec_place place = {0};
    size_t size = header->bytes;
    if (!encoder) {
        memcpy(out, data, size);
        return EXO_OK;
    }
    return exo_codec_encode(encoder->codec, &place, data, count, out, &size, err);
}

static exo_status
send_to(struct far *f, uint32_t to, struct header *header, exo_encoder *encoder, const void *data, size_t count,
        exo_err *err)
{
    size_t room = encoder ? exo_codec_bound(encoder->codec, count) : header->bytes;
    char *copy = exo_calloc(1, sizeof *header + room);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory to send %llu bytes", (unsigned long long)header->bytes);
    exo_status st = header->bytes ? write_data(encoder, header, data, count, copy + sizeof *header, err) : EXO_OK;
    if (st != EXO_OK) {
        exo_free(copy);
        return st;
    }
    if (f->edge.links && header->phase != FAILED)
        pass_links(f, to, header->bytes, &header->passing);
    memcpy(copy, header, sizeof *header);
    const exo_payload payload = {.data = copy, .size = sizeof *header + header->bytes, .release = exo_free};
    return exo_send(f->opts.runtime, f->members[to], f->opts.method, payload, INT64_MAX, err);
}

/* What the member at `place` sends in this call; checked against our part of the call. NULL: *st says why. */
static struct message *
await_message(struct far *f, uint32_t phase, uint32_t place, const exo_collective_args *args, size_t bytes,
              exo_time deadline, exo_status *st, exo_err *err)
{
    uint32_t from = rank_at(args, place);
    struct message *m = NULL;
    char text[EXO_ERR_TEXT];
    pthread_mutex_lock(&f->lock);
    exo_time ready = 0;
    while (!(m = take_message_locked(f, f->calls[from], phase, from, &ready)) && f->broken.code == EXO_OK) {
        exo_time now = exo_now(f->clock), left = (ready && ready < deadline ? ready : deadline) - now;
        if (f->left[from] && !ready) {
            snprintf(text, sizeof text, "node_%u (rank %u) has left", from, from);
            break_locked(f, EXO_PEER_LOST, text);
        } else if (now >= deadline) {
            snprintf(text, sizeof text, "deadline passed while waiting for node_%u (rank %u)", from, from);
            break_locked(f, EXO_TIMEOUT, text);
        } else {
            exo_time slice = f->clock == exo_clock_real() ? EXO_SECOND : 2 * EXO_MS;
            left = left < slice ? left : slice;
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + left;
            until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND), .tv_nsec = (long)(at % EXO_SECOND)};
            pthread_cond_timedwait(&f->changed, &f->lock, &until);
        }
    }
    if (m && (m->header.operation != (uint32_t)args->operation || m->header.count != args->count ||
              m->header.dtype != (uint32_t)args->dtype || m->header.reduce != (uint32_t)args->reduce ||
              m->header.root != args->root || m->header.bytes != bytes || m->header.members != f->among)) {
        snprintf(text, sizeof text,
                 "members disagree: node_%u (rank %u) calls another operation, count or type, or among others", from,
                 from);
        break_locked(f, EXO_INVAL, text);
        free_message(m);
        m = NULL;
    }
    if (!m) {
        *st = f->broken.code;
        if (err)
            *err = f->broken;
    }
    pthread_mutex_unlock(&f->lock);
    return m;
}

/* --- The work -------------------------------------------------------------------------------------------------------------------- */

struct part {
    size_t first, length; /* elements */
};

static struct part
shard(const exo_collective_args *args, uint32_t place)
{
    struct part p;
    exo_shard(args->count, args->size, place, &p.first, &p.length);
    return p;
}

/* The codec of this call, or NULL. */
static exo_encoder *
encoder_of(const exo_collective_args *args)
{
    return args->encoder && args->encoder->codec && args->dtype == EXO_F32 ? args->encoder : NULL;
}

/* Sends every other member its part: the reduce phase each its own shard, the gather phase ours. */
static exo_status
send_shards(struct far *f, uint32_t phase, const exo_collective_args *args, exo_err *err)
{
    size_t size = exo_dtype_size(args->dtype);
    exo_status st = EXO_OK;
    for (uint32_t i = 1; st == EXO_OK && i < args->size; i++) {
        uint32_t place = (args->place + i) % args->size, to = rank_at(args, place); /* not all to the same one first */
        struct header header;
        struct part p = shard(args, phase == REDUCE ? place : args->place);
        describe(&header, f, to, phase, args, exo_comm_shard_bytes(args, p.length));
        st = send_to(f, to, &header, encoder_of(args), (const char *)args->data + p.first * size, p.length, err);
    }
    return st;
}

/* The elements of a member's message: where they lie in it, or decoded to `out`. */
static exo_status
read_data(const exo_collective_args *args, const struct message *m, void *out, size_t count, const void **data,
          exo_err *err)
{
    const exo_codec_place place = {0};
    exo_encoder *encoder = encoder_of(args);
    *data = (const char *)m->payload.data + sizeof(struct header);
    if (!encoder || count == 0)
        return EXO_OK;
    const void *encoded = *data;
    *data = out;
    return exo_codec_decode(encoder->codec, &place, encoded, m->header.bytes, out, count, err);
}

/* Sums our shard over all members, in rank order. What it becomes for the others it becomes for us, too. */
static exo_status
reduce_shard(struct far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    float sum[EXO_REDUCE_BLOCK]; /* or int32_t */
    uint32_t size = args->size;
    struct part p = shard(args, args->place);
    struct message **from = exo_calloc(size, sizeof *from);
    void **data = exo_calloc(size, sizeof *data);
    exo_encoder *encoder = encoder_of(args);
    exo_status st = from && data ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a reduction");
    for (uint32_t r = 0; st == EXO_OK && r < size; r++) {
        const void *part = (float *)args->data + p.first;
        if (r != args->place &&
            (from[r] = await_message(f, REDUCE, r, args, exo_comm_shard_bytes(args, p.length), deadline, &st, err)))
            st = read_data(args, from[r], encoder ? encoder->floats + r * p.length : NULL, p.length, &part, err);
        data[r] = (void *)part;
    }
    for (size_t at = 0; st == EXO_OK && at < p.length; at += EXO_REDUCE_BLOCK) {
        size_t count = p.length - at < EXO_REDUCE_BLOCK ? p.length - at : EXO_REDUCE_BLOCK;
        exo_reduce_block(sum, data, size, at, count, args->dtype, args->reduce);
        memcpy((float *)args->data + p.first + at, sum, count * sizeof(float));
    }
    for (uint32_t r = 0; from && r < size; r++)
        if (from[r])
            free_message(from[r]);
    exo_free(from);
    exo_free(data);
    return st;
}

static exo_status
receive_shards(struct far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    size_t size = exo_dtype_size(args->dtype);
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
        struct part p = shard(args, r);
        char *own = (char *)args->data + p.first * size;
        if (r == args->place) {
            if (encoder_of(args) && p.length)
                st = exo_encoder_round_trip(args->encoder, (float *)(void *)own, (float *)(void *)own, p.length, err);
            continue;
        }
        const void *data = NULL;
        struct message *m = await_message(f, GATHER, r, args, exo_comm_shard_bytes(args, p.length), deadline, &st, err);
        if (!m)
            break;
        st = read_data(args, m, own, p.length, &data, err);
        if (st == EXO_OK && p.length && data != own)
            memcpy(own, data, p.length * size);
        free_message(m);
    }
    return st;
}

/* The root sends all of it, and hears from each that it came: so it never runs ahead of the others. */
static exo_status
broadcast(struct far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    struct header header;
    size_t bytes = args->count * exo_dtype_size(args->dtype);
    if (args->place == args->root) {
        for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
            if (r == args->root)
                continue;
            describe(&header, f, rank_at(args, r), GATHER, args, bytes);
            st = send_to(f, rank_at(args, r), &header, NULL, args->data, args->count, err);
        }
        for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
            struct message *m = NULL;
            if (r != args->root && (m = await_message(f, REDUCE, r, args, 0, deadline, &st, err)))
                free_message(m);
        }
        return st;
    }
    struct message *m = await_message(f, GATHER, args->root, args, bytes, deadline, &st, err);
    if (!m)
        return st;
    if (bytes)
        memcpy(args->data, (char *)m->payload.data + sizeof(struct header), bytes);
    free_message(m);
    describe(&header, f, rank_at(args, args->root), REDUCE, args, 0);
    return send_to(f, rank_at(args, args->root), &header, NULL, NULL, 0, err);
}

static exo_status
exchange(struct far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    if (args->operation == EXO_BROADCAST)
        return broadcast(f, args, deadline, err);
    bool reduces = args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER;
    exo_status st = reduces ? send_shards(f, REDUCE, args, err) : EXO_OK;
    if (st == EXO_OK && reduces)
        st = reduce_shard(f, args, deadline, err);
    if (st != EXO_OK || args->operation == EXO_REDUCE_SCATTER)
        return st;
    st = send_shards(f, GATHER, args, err); /* of a barrier: nothing, which says that we are here */
    return st == EXO_OK ? receive_shards(f, args, deadline, err) : st;
}

static exo_status
far_run(void *state, uint32_t rank, const exo_collective_args *args, exo_time deadline, exo_time *waited, exo_err *err)
{
    struct far *f = state;
    exo_err reason = {0};
    exo_pace *pace = exo_pace_current();
    exo_pace_wait_begin(pace, f->edge.name ? f->edge.name : "collective", EXO_SPAN_RECV_BLOCKED);
    exo_time before = exo_now(f->clock);
    (void)rank;
    pthread_mutex_lock(&f->lock);
    exo_status st = f->broken.code;
    if (st == EXO_OK && !f->members && f->opts.size > 1)
        st = exo_fail(&f->broken, EXO_CLOSED, "the communicator is not connected");
    if (st == EXO_OK && args->rehearsal)
        st = exo_fail(&f->broken, EXO_UNSUPPORTED, "a rehearsal is for members in one process");
    reason = f->broken;
    pthread_mutex_unlock(&f->lock);
    if (st == EXO_OK) {
        exo_compute_pause();
        f->among = members_of(args);
        st = exchange(f, args, deadline, &reason);
        exo_compute_resume();
        for (uint32_t m = 0; m < args->size; m++)
            f->calls[rank_at(args, m)]++;
        if (st != EXO_OK)
            break_by(f, st, reason.text);
    }
    if (st != EXO_OK && err)
        *err = reason;
    *waited += exo_now(f->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

/* --- Places ---------------------------------------------------------------------------------------------------------------------- */

static exo_status
far_join(void *state, uint32_t rank, const char *name, exo_err *err)
{
    struct far *f = state;
    pthread_mutex_lock(&f->lock);
    bool mine = rank == f->opts.rank && !f->open;
    f->open = f->open || mine;
    snprintf(f->name, sizeof f->name, "%s", name ? name : "");
    pthread_mutex_unlock(&f->lock);
    return mine ? EXO_OK : exo_fail(err, EXO_EXISTS, "rank %u is not this member's, or taken", rank);
}

static void
far_leave(void *state, uint32_t rank)
{
    struct far *f = state;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    f->open = false;
    pthread_mutex_unlock(&f->lock);
}

/* Tells the others, too: they may wait for this member. */
static void
far_fail(void *state, uint32_t rank, const char *cause)
{
    struct far *f = state;
    char text[EXO_ERR_TEXT];
    pthread_mutex_lock(&f->lock);
    bool tell = f->broken.code == EXO_OK && f->members;
    snprintf(text, sizeof text, "node_%u (rank %u) died: %.400s", rank, rank, cause);
    break_locked(f, EXO_PEER_LOST, text);
    pthread_mutex_unlock(&f->lock);
    if (!tell)
        return;
    struct header header = {
        .channel = f->opts.channel, .phase = FAILED, .from = f->opts.rank, .root = rank, .bytes = strlen(cause)};
    for (uint32_t r = 0; r < f->opts.size; r++)
        if (r != f->opts.rank)
            send_to(f, r, &header, NULL, cause, 0, NULL);
}

static void
far_free(void *state)
{
    struct far *f = state;
    for (struct message *m = f->inbox, *next; m; m = next) {
        next = m->next;
        free_message(m);
    }
    exo_free(f->members);
    exo_free(f->watches);
    exo_free(f->left);
    exo_free(f->calls);
    exo_free(f->hosts);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    exo_free(f);
}

static void
far_warm(void *state, uint32_t rank, size_t count)
{
    struct far *f = state;
    exo_comm_edge edge = f->edge;
    edge.hosts = f->hosts;
    exo_comm_warm_links(&edge, f->opts.size, rank, count, exo_now(f->clock));
}

static const exo_comm_backend far_backend = {
    .join = far_join, .leave = far_leave, .fail = far_fail, .run = far_run, .warm = far_warm, .free = far_free};

exo_status
exo_comm_far(exo_comm **out, const exo_comm_far_opts *opts, exo_err *err)
{
    if (opts->size < 1 || opts->size > MAX_SIZE || opts->rank >= opts->size)
        return exo_fail(err, EXO_INVAL, "rank %u of a communicator of %u: it has 1 to %d members", opts->rank,
                        opts->size, MAX_SIZE);
    exo_comm *c = exo_calloc(1, sizeof *c);
    struct far *f = exo_calloc(1, sizeof *f);
    if (!c || !f) {
        exo_free(c);
        exo_free(f);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    }
    const exo_clock *clock = exo_runtime_clock(opts->runtime);
    *c = (exo_comm){.references = 1, .size = opts->size, .clock = clock, .backend = &far_backend, .state = f};
    f->opts = *opts;
    f->clock = clock;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &attr);
    pthread_condattr_destroy(&attr);
    f->watches = exo_calloc(opts->size, sizeof *f->watches);
    f->left = exo_calloc(opts->size, sizeof *f->left);
    f->hosts = exo_calloc(opts->size, sizeof *f->hosts);
    f->calls = exo_calloc(opts->size, sizeof *f->calls);
    bool memory = f->watches && f->left && f->hosts && f->calls;
    if (opts->edge) {
        f->edge = *opts->edge;
        f->opts.edge = NULL;
        if (f->hosts && f->edge.links)
            memcpy(f->hosts, f->edge.hosts, opts->size * sizeof *f->hosts);
        if (f->edge.codec)
            memory = (c->codec = exo_strdup(f->edge.codec)) && memory;
    }
    if (!memory) {
        exo_comm_drop(&c);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", opts->size);
    }
    *out = c;
    return EXO_OK;
}
