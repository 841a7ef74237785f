/* Calls among actors that do not go directly: each member makes its moves, step by step. See ways.h;
 * far_impl.h has the state. Owner: the thread that makes the call. */
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tensor.h>

#include "comm/far_impl.h"
#include "comm/reduce.h"
#include "comm/ways.h"

/* The moves of one member. */
struct own {
    uint32_t place;
    size_t count;
    exo_comm_move *moves; /* NULL: they are only counted */
};

static void
keep_own(void *context, const exo_comm_move *m)
{
    struct own *own = context;
    if (m->from != own->place && m->to != own->place)
        return;
    if (own->moves)
        own->moves[own->count] = *m;
    own->count++;
}

static exo_status
send_move(exo_far *f, const exo_collective_args *args, const exo_comm_move *m, const char *data,
          exo_err *err)
{
    size_t size = exo_dtype_size(args->dtype);
    uint32_t to = exo_far_rank_at(args, m->to);
    exo_far_header header;
    exo_far_describe(&header, f, to, EXO_FAR_MOVE + m->number, args, m->length * size);
    return exo_far_send(f, to, &header, NULL, m->length > 0 ? data + m->first * size : NULL,
                        m->length, err);
}

static exo_status
receive_move(exo_far *f, const exo_collective_args *args, const exo_comm_move *m, char *data,
             exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t size = exo_dtype_size(args->dtype);
    exo_far_message *message = exo_far_await(f, EXO_FAR_MOVE + m->number, m->from, args,
                                             m->length * size, deadline, &st, err);
    if (!message)
        return st;
    void *own = m->length > 0 ? data + m->first * size : NULL,
         *theirs = (char *)message->payload.data + sizeof(exo_far_header);
    if (m->length > 0 && m->adds)
        exo_reduce_into(&own, 1, (void *[]){own, theirs}, 2, m->length, args->dtype, EXO_SUM);
    else if (m->length > 0)
        memcpy(own, theirs, m->length * size);
    exo_far_message_free(message);
    return EXO_OK;
}

/* Makes the member's moves in `data`. In a step it sends first: what it sends is from the steps
 * before. */
static exo_status
make_moves(exo_far *f, const exo_collective_args *args, const struct own *own, char *data,
           exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0, next; st == EXO_OK && i < own->count; i = next) {
        next = i;
        while (next < own->count && own->moves[next].step == own->moves[i].step)
            next++;
        for (size_t k = i; st == EXO_OK && k < next; k++)
            if (own->moves[k].from == args->place)
                st = send_move(f, args, &own->moves[k], data, err);
        for (size_t k = i; st == EXO_OK && k < next; k++)
            if (own->moves[k].to == args->place)
                st = receive_move(f, args, &own->moves[k], data, deadline, err);
    }
    return st;
}

static void
divide(const exo_collective_args *args)
{
    size_t first = 0, length = args->count;
    if (args->operation == EXO_REDUCE_SCATTER)
        exo_shard(args->count, args->size, args->place, &first, &length);
    if (length > 0)
        exo_vec_divide(exo_host_array(EXO_F32, (float *)args->data + first, length),
                       (float)args->size);
}

/* A tree's reduction: gathers all data, and sums in rank order what this member needs. */
static exo_status
gather_and_sum(exo_far *f, const exo_collective_args *args, const struct own *own,
               exo_time deadline, exo_err *err)
{
    size_t size = exo_dtype_size(args->dtype), bytes = args->count * size, first = 0,
           length = args->count;
    void *parts[EXO_WAYS_MEMBERS];
    char *all = exo_alloc_aligned(bytes * args->size + 1);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory to gather %zu bytes", bytes * args->size);
    if (bytes > 0)
        memcpy(all + args->place * bytes, args->data, bytes);
    exo_status st = make_moves(f, args, own, all, deadline, err);
    if (args->operation == EXO_REDUCE_SCATTER)
        exo_shard(args->count, args->size, args->place, &first, &length);
    for (uint32_t m = 0; m < args->size; m++)
        parts[m] = all + m * bytes + first * size;
    if (st == EXO_OK && length > 0) {
        void *out = (char *)args->data + first * size;
        exo_reduce_into(&out, 1, parts, args->size, length, args->dtype, args->reduce);
    }
    exo_free(all);
    return st;
}

exo_status
exo_far_move(exo_far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    struct own own = {.place = args->place};
    bool reduces = args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER;
    exo_comm_moves(args, keep_own, &own);
    own.moves = exo_calloc(own.count, sizeof *own.moves);
    if (!own.moves)
        return exo_fail(err, EXO_NOMEM, "no memory for a call of %u members", args->size);
    own.count = 0;
    exo_comm_moves(args, keep_own, &own);
    exo_status st = reduces && args->way == EXO_WAY_TREE
                        ? gather_and_sum(f, args, &own, deadline, err)
                        : make_moves(f, args, &own, args->data, deadline, err);
    if (st == EXO_OK && exo_comm_ways_reorders(args) && args->reduce == EXO_MEAN)
        divide(args);
    exo_free(own.moves);
    return st;
}
