/* Communicators and groups: arguments are checked and bytes counted here, data is moved by a backend (backend.h, local.c).
 * A group belongs to one thread at a time, but for its figures, which `lock` guards; a communicator is safe from any thread. */
#include <exogym/comm.h>

#include <pthread.h>

#include <exogym/memory.h>

#include "comm/async.h"
#include "comm/backend.h"
#include "comm/timing.h"

#define DEFAULT_TIMEOUT (60 * EXO_SECOND)

struct exo_group {
    exo_comm *comm;    /* held */
    exo_group *parent; /* of a group of some: whose place this is; else NULL */
    uint32_t rank;     /* in the communicator */
    uint32_t size, place;
    uint32_t *ranks; /* (size) of a group of some; NULL: all */
    exo_time timeout;
    exo_encoder encoder; /* a parent's only */
    uint32_t codings;    /* of the communicator, when the encoder was made */
    pthread_mutex_t lock;
    exo_time waited; /* guarded by lock, as traffic */
    exo_traffic traffic;
};

const char *
exo_collective_name(exo_collective operation)
{
    static const char *const names[] = {
        [EXO_ALL_REDUCE] = "all_reduce", [EXO_REDUCE_SCATTER] = "reduce_scatter",
        [EXO_ALL_GATHER] = "all_gather", [EXO_BROADCAST] = "broadcast",
        [EXO_BARRIER] = "barrier",
    };
    return names[operation];
}

exo_comm *
exo_comm_hold(exo_comm *comm)
{
    comm->references++;
    return comm;
}

void
exo_comm_drop(exo_comm **comm)
{
    exo_comm *c = *comm;
    *comm = NULL;
    if (!c || --c->references > 0)
        return;
    c->backend->free(c->state);
    exo_free((char *)c->codec);
    exo_free(c);
}

exo_status
exo_group_open(exo_group **out, exo_comm *comm, uint32_t rank, const char *name, exo_err *err)
{
    if (rank >= comm->size)
        return exo_fail(err, EXO_INVAL, "rank %u is not in a communicator of %u", rank, comm->size);
    exo_group *g = exo_calloc(1, sizeof *g);
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory for a group");
    exo_status st = comm->backend->join(comm->state, rank, name, err);
    if (st != EXO_OK) {
        exo_free(g);
        return st;
    }
    *g = (exo_group){
        .comm = exo_comm_hold(comm), .rank = rank, .size = comm->size, .place = rank, .timeout = DEFAULT_TIMEOUT};
    pthread_mutex_init(&g->lock, NULL);
    g->codings = comm->codings;
    st = exo_encoder_init(&g->encoder, comm->codec, err);
    if (st != EXO_OK)
        exo_group_close(&g);
    *out = g;
    return st;
}

/* The place of this member among `ranks`, which must be ascending. */
static exo_status
find_place(const exo_group *parent, const uint32_t *ranks, uint32_t size, uint32_t *place, exo_err *err)
{
    bool found = false;
    if (size == 0)
        return exo_fail(err, EXO_INVAL, "a group of no members");
    for (uint32_t i = 0; i < size; i++) {
        if (ranks[i] >= parent->size)
            return exo_fail(err, EXO_INVAL, "rank %u is not in a group of %u", ranks[i], parent->size);
        if (i > 0 && ranks[i] <= ranks[i - 1])
            return exo_fail(err, EXO_INVAL, "the ranks of a group ascend: %u stands before %u", ranks[i - 1], ranks[i]);
        if (ranks[i] == parent->place) {
            *place = i;
            found = true;
        }
    }
    return found ? EXO_OK : exo_fail(err, EXO_INVAL, "rank %u is not in the group that it opens", parent->place);
}

exo_status
exo_group_among(exo_group **out, exo_group *parent, const uint32_t *ranks, uint32_t size, exo_err *err)
{
    uint32_t place = 0;
    exo_status st = find_place(parent, ranks, size, &place, err);
    if (st != EXO_OK)
        return st;
    exo_group *g = exo_calloc(1, sizeof *g);
    uint32_t *own = size < parent->comm->size ? exo_calloc(size, sizeof *own) : NULL; /* all of them: as if not named */
    if (!g || (!own && size < parent->comm->size)) {
        exo_free(g);
        return exo_fail(err, EXO_NOMEM, "no memory for a group");
    }
    for (uint32_t i = 0; own && i < size; i++)
        own[i] = parent->ranks ? parent->ranks[ranks[i]] : ranks[i];
    *g = (exo_group){.comm = exo_comm_hold(parent->comm),
                     .parent = parent,
                     .rank = parent->rank,
                     .size = size,
                     .place = place,
                     .ranks = own,
                     .timeout = parent->timeout};
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return EXO_OK;
}

void
exo_group_close(exo_group **group)
{
    exo_group *g = *group;
    if (!g)
        return;
    if (!g->parent)
        g->comm->backend->leave(g->comm->state, g->rank);
    exo_free(g->ranks);
    exo_encoder_release(&g->encoder);
    exo_comm_drop(&g->comm);
    pthread_mutex_destroy(&g->lock);
    exo_free(g);
    *group = NULL;
}

void
exo_comm_fail(exo_comm *comm, uint32_t rank, const char *cause)
{
    if (rank < comm->size)
        comm->backend->fail(comm->state, rank, cause && *cause ? cause : "unknown cause");
}

uint32_t
exo_group_rank(const exo_group *group)
{
    return group->place;
}

uint32_t
exo_group_size(const exo_group *group)
{
    return group->size;
}

void
exo_group_set_timeout(exo_group *group, exo_time timeout)
{
    group->timeout = timeout;
}

exo_comm_stats
exo_group_stats(const exo_group *group)
{
    pthread_mutex_lock((pthread_mutex_t *)&group->lock);
    const exo_comm_stats stats = {
        .calls = group->traffic.items, .bytes_sent = group->traffic.payload_bytes, .waited = group->waited};
    pthread_mutex_unlock((pthread_mutex_t *)&group->lock);
    return stats;
}

exo_traffic
exo_group_traffic(const exo_group *group)
{
    pthread_mutex_lock((pthread_mutex_t *)&group->lock);
    const exo_traffic traffic = group->traffic;
    pthread_mutex_unlock((pthread_mutex_t *)&group->lock);
    return traffic;
}

/* --- What a member sends ------------------------------------------------------------------------------------------------ */

/* Adds `messages` that carry `count` elements each. */
static void
add_messages(exo_traffic *t, const exo_collective_args *args, size_t count, uint64_t messages)
{
    uint64_t encoded = exo_comm_shard_bytes(args, count);
    t->messages += messages;
    t->payload_bytes += messages * count * exo_dtype_size(args->dtype);
    t->encoded_bytes += messages * encoded;
    t->wire_bytes += messages * (encoded + EXO_COMM_HEADER + EXO_COMM_ENVELOPE);
}

/* In a direct exchange (far.h) a member sends
 *   to reduce: to each other one the part of its shard;
 *   to gather: to each other one its own shard;
 *   to broadcast: everything to everyone, if it is the root, and they that it came. */
static void
count_call_locked(exo_group *g, const exo_collective_args *args)
{
    uint32_t size = args->size;
    size_t first, own;
    g->traffic.items++;
    if (size == 1)
        return;
    exo_shard(args->count, size, args->place, &first, &own);
    if (args->operation == EXO_BROADCAST) {
        bool root = args->place == args->root;
        exo_collective_args plain = *args;
        plain.encoder = NULL;
        add_messages(&g->traffic, &plain, root ? args->count : 0, root ? size - 1 : 1);
        return;
    }
    if (args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER) {
        /* Shards have one of two lengths: the longer ones first. */
        size_t longer = args->count % size, length = args->count / size;
        bool own_is_longer = args->place < longer;
        add_messages(&g->traffic, args, length + 1, longer - own_is_longer);
        add_messages(&g->traffic, args, length, size - longer - !own_is_longer);
    }
    if (args->operation != EXO_REDUCE_SCATTER)
        add_messages(&g->traffic, args, own, size - 1);
}

/* --- Calls ----------------------------------------------------------------------------------------------------------------- */

exo_status
exo_comm_recode(exo_comm *comm, const char *codec, exo_err *err)
{
    exo_encoder probe = {0};
    char *copy = codec ? exo_strdup(codec) : NULL;
    exo_status st = codec && !copy ? exo_fail(err, EXO_NOMEM, "no memory for a codec") : EXO_OK;
    if (st == EXO_OK)
        st = exo_encoder_init(&probe, codec, err);
    exo_encoder_release(&probe);
    if (st != EXO_OK) {
        exo_free(copy);
        return st;
    }
    exo_free((char *)comm->codec);
    comm->codec = copy;
    comm->codings++;
    return EXO_OK;
}

void
exo_comm_warm(exo_comm *comm, uint32_t rank, size_t count)
{
    if (comm->backend->warm)
        comm->backend->warm(comm->state, rank, count);
}

void
exo_comm_look_at(exo_comm *comm, uint32_t rank, exo_comm_look *look, uint32_t *missing, uint64_t *counts)
{
    *look = (exo_comm_look){0};
    comm->backend->look(comm->state, rank, look, missing, counts);
}

/* The codec may have been changed since the last call. */
static exo_status
follow_codec(exo_group *g, exo_err *err)
{
    uint32_t codings = g->comm->codings;
    if (g->codings == codings)
        return EXO_OK;
    exo_encoder_release(&g->encoder);
    exo_status st = exo_encoder_init(&g->encoder, g->comm->codec, err);
    g->codings = st == EXO_OK ? codings : g->codings;
    return st;
}

/* Room to encode in: a reduction decodes every member's part of one shard. */
static exo_status
prepare_encoder(exo_group *g, exo_collective_args *args, exo_err *err)
{
    if (!g->encoder.codec || args->dtype != EXO_F32 || args->operation == EXO_BROADCAST || args->size == 1)
        return EXO_OK;
    if (args->rehearsal) { /* sizes are all that counts */
        args->encoder = &g->encoder;
        return EXO_OK;
    }
    size_t shard = args->count / args->size + 1;
    args->encoder = &g->encoder;
    return exo_encoder_reserve(&g->encoder, shard * (args->size + 1), shard, err);
}

/* The group of all, whose encoder those of some share. */
static exo_group *
whole_of(exo_group *g)
{
    while (g->parent)
        g = g->parent;
    return g;
}

static exo_status
run(exo_group *g, exo_collective_args *args, exo_err *err)
{
    exo_comm *c = g->comm;
    exo_group *whole = whole_of(g);
    args->size = g->size;
    args->place = g->place;
    args->ranks = g->ranks;
    exo_status st = follow_codec(whole, err);
    if (st == EXO_OK)
        st = prepare_encoder(whole, args, err);
    if (st != EXO_OK) {
        exo_comm_fail(c, g->rank, "no memory to encode"); /* the others would wait for it in vain */
        return st;
    }
    exo_time deadline = exo_deadline(c->clock, g->timeout), waited = 0;
    st = c->backend->run(c->state, g->rank, args, deadline, &waited, err);
    for (exo_group *each = g; each; each = each->parent) {
        pthread_mutex_lock(&each->lock);
        each->waited += waited;
        each->traffic.recv_blocked += waited;
        if (st == EXO_OK)
            count_call_locked(each, args);
        pthread_mutex_unlock(&each->lock);
    }
    return st;
}

/* A call on an array. Backends read and write the host's memory: what lies elsewhere goes there and back. */
static exo_status
run_on(exo_group *g, exo_array data, exo_collective_args *args, exo_err *err)
{
    args->count = data.count;
    args->dtype = data.dtype;
    args->data = data.data;
    if (!data.device || exo_device_is_host(data.device))
        return run(g, args, err);
    args->data = exo_alloc_aligned(data.count * exo_dtype_size(data.dtype));
    exo_status st = args->data ? exo_array_read(data, args->data, err)
                               : exo_fail(err, EXO_NOMEM, "no memory for a collective of %zu elements", data.count);
    if (st == EXO_OK)
        st = run(g, args, err);
    if (st == EXO_OK)
        st = exo_array_write(data, args->data, err);
    exo_free(args->data);
    return st;
}

static exo_status
check_reduction(exo_dtype dtype, exo_reduce op, exo_err *err)
{
    if (dtype != EXO_F32 && dtype != EXO_I32)
        return exo_fail(err, EXO_UNSUPPORTED, "a reduction takes fp32 or int32, not %s", exo_dtype_name(dtype));
    if (op == EXO_MEAN && dtype != EXO_F32)
        return exo_fail(err, EXO_UNSUPPORTED, "a mean of integers is not an integer: reduce by sum");
    return EXO_OK;
}

exo_status
exo_all_reduce(exo_group *group, exo_array data, exo_reduce op, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_ALL_REDUCE, .reduce = op};
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? run_on(group, data, &args, err) : st;
}

exo_status
exo_rehearse_all_reduce(exo_group *group, size_t count, exo_dtype dtype, exo_err *err)
{
    exo_collective_args args = {
        .operation = EXO_ALL_REDUCE, .count = count, .dtype = dtype, .reduce = EXO_SUM, .rehearsal = true};
    return run(group, &args, err);
}

exo_status
exo_reduce_scatter(exo_group *group, exo_array data, exo_reduce op, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_REDUCE_SCATTER, .reduce = op};
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? run_on(group, data, &args, err) : st;
}

exo_status
exo_all_gather(exo_group *group, exo_array data, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_ALL_GATHER};
    return run_on(group, data, &args, err);
}

exo_status
exo_broadcast(exo_group *group, exo_array data, uint32_t root, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_BROADCAST, .root = root};
    if (root >= group->size)
        return exo_fail(err, EXO_INVAL, "the root %u is not in a group of %u", root, group->size);
    return run_on(group, data, &args, err);
}

exo_status
exo_barrier(exo_group *group, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_BARRIER, .dtype = EXO_F32};
    return run(group, &args, err);
}
