/* A call as calls of NCCL. NCCL's own operations take shards of one length; where a count is no
 * multiple of the members, or NCCL's ranks are not their places, each shard is an operation of its own, all
 * in one group. No state. See group.h. */
#include "nccl/group.h"

typedef struct move {
    const exo_nccl_table *nccl;
    const exo_nccl_set *set;
    const exo_collective_args *args;
    char *data;       /* on the GPU */
    const char *copy; /* of the data, where it is replaced while it is sent */
    size_t size;      /* bytes of an element */
    int type, op;
    void *stream;
} move;

static int
type_of(exo_dtype dtype)
{
    switch (dtype) {
    case EXO_F32:
        return EXO_NCCL_F32;
    case EXO_BF16:
        return EXO_NCCL_BF16;
    case EXO_F16:
        return EXO_NCCL_F16;
    case EXO_I32:
        return EXO_NCCL_I32;
    case EXO_I64:
        return EXO_NCCL_I64;
    default:
        return EXO_NCCL_I8;
    }
}

/* The first failure, or the first sign that a call goes on by itself, of two results. */
static int
both(int first, int second)
{
    const bool fine =
        first == EXO_NCCL_SUCCESS || (first == EXO_NCCL_IN_PROGRESS && second != EXO_NCCL_SUCCESS);
    return fine ? second : first;
}

static int
each_shard(const move *m, int (*shard)(const move *m, uint32_t place, char *at, size_t length))
{
    int result = m->nccl->GroupStart();
    for (uint32_t p = 0; p < m->args->size; p++) {
        size_t first, length;
        exo_shard(m->args->count, m->args->size, p, &first, &length);
        if (length > 0)
            result = both(result, shard(m, p, m->data + first * m->size, length));
    }
    return both(result, m->nccl->GroupEnd());
}

static int
reduce_shard(const move *m, uint32_t place, char *at, size_t length)
{
    return m->nccl->Reduce(at, at, length, m->type, m->op, exo_nccl_rank_of(m->set, place),
                           m->set->comm, m->stream);
}

static int
gather_shard(const move *m, uint32_t place, char *at, size_t length)
{
    return m->nccl->Broadcast(at, at, length * m->size, EXO_NCCL_U8,
                              exo_nccl_rank_of(m->set, place), m->set->comm, m->stream);
}

/* Block p goes to member p, and its block comes in its place. */
static int
exchange_shard(const move *m, uint32_t place, char *at, size_t length)
{
    if (place == m->args->place)
        return EXO_NCCL_SUCCESS;
    const int other = exo_nccl_rank_of(m->set, place);
    return both(m->nccl->Send(m->copy + (at - m->data), length * m->size, EXO_NCCL_U8, other,
                              m->set->comm, m->stream),
                m->nccl->Recv(at, length * m->size, EXO_NCCL_U8, other, m->set->comm, m->stream));
}

/* Sends all data to the member at place `to`, and gets that of the one at `from`. */
static int
pass_on(const move *m, uint32_t to, uint32_t from)
{
    const size_t bytes = m->args->count * m->size;
    int result = m->nccl->GroupStart();
    result = both(result, m->nccl->Send(m->copy, bytes, EXO_NCCL_U8, exo_nccl_rank_of(m->set, to),
                                        m->set->comm, m->stream));
    result = both(result, m->nccl->Recv(m->data, bytes, EXO_NCCL_U8, exo_nccl_rank_of(m->set, from),
                                        m->set->comm, m->stream));
    return both(result, m->nccl->GroupEnd());
}

/* Whether NCCL's own operation has the shards of the members: equal ones, in the order of its ranks. */
static bool
has_shards(const move *m)
{
    return m->args->count % m->args->size == 0 && !m->set->order;
}

static int
scatter(const move *m)
{
    const size_t shard = m->args->count / m->args->size;
    if (!has_shards(m))
        return each_shard(m, reduce_shard);
    return m->nccl->ReduceScatter(m->data, m->data + m->args->place * shard * m->size, shard,
                                  m->type, m->op, m->set->comm, m->stream);
}

static int
gather(const move *m)
{
    const size_t shard = m->args->count / m->args->size * m->size; /* bytes */
    if (!has_shards(m))
        return each_shard(m, gather_shard);
    return m->nccl->AllGather(m->data + m->args->place * shard, m->data, shard, EXO_NCCL_U8,
                              m->set->comm, m->stream);
}

static int
ask(const move *m)
{
    const exo_collective_args *a = m->args;
    switch (a->operation) {
    case EXO_ALL_REDUCE:
        return m->nccl->AllReduce(m->data, m->data, a->count, m->type, m->op, m->set->comm,
                                  m->stream);
    case EXO_REDUCE_SCATTER:
        return scatter(m);
    case EXO_ALL_GATHER:
        return gather(m);
    case EXO_BROADCAST:
        return m->nccl->Broadcast(m->data, m->data, a->count * m->size, EXO_NCCL_U8,
                                  exo_nccl_rank_of(m->set, a->root), m->set->comm, m->stream);
    case EXO_ALL_TO_ALL:
        return each_shard(m, exchange_shard);
    case EXO_SWAP:
        return pass_on(m, 1 - a->place, 1 - a->place);
    case EXO_SHIFT:
        return pass_on(m, exo_shift_target(a, a->place), exo_shift_source(a, a->place));
    case EXO_BARRIER:
        break;
    }
    return EXO_NCCL_SUCCESS;
}

exo_status
exo_nccl_move(exo_nccl_group *g, exo_nccl_member *member, const exo_engine_request *r, exo_err *err)
{
    const exo_nccl_call *call = r->own;
    exo_status st = exo_cuda_side_select(member->side, err);
    if (st != EXO_OK)
        return st;
    const move m = {.nccl = g->nccl,
                    .set = call->set,
                    .args = &r->args,
                    .data = call->stage.data ? call->stage.data : r->args.data,
                    .copy = call->copy.data,
                    .size = exo_dtype_size(r->args.dtype),
                    .type = type_of(r->args.dtype),
                    .op = r->args.reduce == EXO_MEAN ? EXO_NCCL_AVG : EXO_NCCL_SUM,
                    .stream = exo_cuda_side_stream(member->side)};
    return exo_nccl_status(g, call->set->comm, ask(&m), exo_collective_name(r->args.operation),
                           err);
}
