/* Communicators and groups: arguments are checked and bytes counted here, data is moved by a backend (backend.h, local.c).
 * A group belongs to one thread at a time; a communicator is safe from any thread. */
#include <exogym/comm.h>

#include <exogym/memory.h>

#include "backend.h"

#define DEFAULT_TIMEOUT (60 * EXO_SECOND)

struct exo_group {
    exo_comm *comm; /* held */
    uint32_t rank;
    uint64_t calls;
    exo_time timeout;
    exo_comm_stats stats;
};

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
    *g = (exo_group){.comm = exo_comm_hold(comm), .rank = rank, .timeout = DEFAULT_TIMEOUT};
    *out = g;
    return EXO_OK;
}

void
exo_group_close(exo_group **group)
{
    exo_group *g = *group;
    if (!g)
        return;
    g->comm->backend->leave(g->comm->state, g->rank);
    exo_comm_drop(&g->comm);
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
    return group->rank;
}

uint32_t
exo_group_size(const exo_group *group)
{
    return group->comm->size;
}

void
exo_group_set_timeout(exo_group *group, exo_time timeout)
{
    group->timeout = timeout;
}

exo_comm_stats
exo_group_stats(const exo_group *group)
{
    return group->stats;
}

void
exo_shard(size_t count, uint32_t size, uint32_t rank, size_t *first, size_t *length)
{
    size_t each = count / size, longer = count % size;
    *first = each * rank + (rank < longer ? rank : longer);
    *length = each + (rank < longer);
}

/* --- Bytes of the ring algorithms --------------------------------------------------------------------------------------- */

static uint64_t
shard_length(const exo_group *g, size_t count, uint32_t rank)
{
    size_t first, length;
    exo_shard(count, g->comm->size, rank % g->comm->size, &first, &length);
    return length;
}

/* Elements that this member sends. In a ring each member passes shards on to its right-hand neighbour:
 *   reduce-scatter, so that shard r ends at r: all shards but r's own;
 *   all-gather: all but the one that it gets last, its neighbour's;
 *   all-reduce: both, the first with the shards turned by one;
 *   broadcast: everything, but for the last of the chain. */
static uint64_t
elements_sent(const exo_group *g, const exo_collective_args *args)
{
    uint32_t size = g->comm->size, r = g->rank;
    uint64_t n = args->count;
    if (size == 1)
        return 0;
    switch (args->operation) {
    case EXO_ALL_REDUCE:
        return 2 * n - shard_length(g, n, r + 1) - shard_length(g, n, r + 2);
    case EXO_REDUCE_SCATTER:
        return n - shard_length(g, n, r);
    case EXO_ALL_GATHER:
        return n - shard_length(g, n, r + 1);
    case EXO_BROADCAST:
        return (r + 1) % size == args->root ? 0 : n;
    case EXO_BARRIER:
        return 0;
    }
    return 0;
}

/* --- Calls ----------------------------------------------------------------------------------------------------------------- */

static exo_status
run(exo_group *g, const exo_collective_args *args, exo_err *err)
{
    exo_comm *c = g->comm;
    exo_time deadline = exo_deadline(c->clock, g->timeout);
    exo_status st = c->backend->run(c->state, g->rank, g->calls, args, deadline, &g->stats.waited, err);
    g->calls++;
    if (st != EXO_OK)
        return st;
    g->stats.calls++;
    g->stats.bytes_sent += elements_sent(g, args) * exo_dtype_size(args->dtype);
    return EXO_OK;
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
exo_all_reduce(exo_group *group, void *data, size_t count, exo_dtype dtype, exo_reduce op, exo_err *err)
{
    const exo_collective_args args = {
        .operation = EXO_ALL_REDUCE, .data = data, .count = count, .dtype = dtype, .reduce = op};
    exo_status st = check_reduction(dtype, op, err);
    return st == EXO_OK ? run(group, &args, err) : st;
}

exo_status
exo_reduce_scatter(exo_group *group, void *data, size_t count, exo_dtype dtype, exo_reduce op, exo_err *err)
{
    const exo_collective_args args = {
        .operation = EXO_REDUCE_SCATTER, .data = data, .count = count, .dtype = dtype, .reduce = op};
    exo_status st = check_reduction(dtype, op, err);
    return st == EXO_OK ? run(group, &args, err) : st;
}

exo_status
exo_all_gather(exo_group *group, void *data, size_t count, exo_dtype dtype, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_ALL_GATHER, .data = data, .count = count, .dtype = dtype};
    return run(group, &args, err);
}

exo_status
exo_broadcast(exo_group *group, void *data, size_t count, exo_dtype dtype, uint32_t root, exo_err *err)
{
    const exo_collective_args args = {
        .operation = EXO_BROADCAST, .data = data, .count = count, .dtype = dtype, .root = root};
    if (root >= group->comm->size)
        return exo_fail(err, EXO_INVAL, "the root %u is not in a communicator of %u", root, group->comm->size);
    return run(group, &args, err);
}

exo_status
exo_barrier(exo_group *group, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_BARRIER, .dtype = EXO_F32};
    return run(group, &args, err);
}
