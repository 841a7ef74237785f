/* The times of collectives: see timing.h. They are the times of the messages of far.c. No state. */
#include "comm/timing.h"

#include <string.h>

#include "comm/ways.h"

size_t
exo_comm_shard_bytes(const exo_collective_args *args, size_t count)
{
    size_t size = count * exo_dtype_size(args->dtype);
    if (args->codec)
        exo_codec_size(args->codec, count, &size);
    return size;
}

void
exo_comm_part(const exo_collective_args *args, uint32_t place, size_t *first, size_t *length)
{
    *first = 0;
    *length = args->count;
    if (args->operation != EXO_SWAP && args->operation != EXO_SHIFT)
        exo_shard(args->count, args->size, place, first, length);
}

static void
broadcast_timing(const exo_comm_edge *edge, uint32_t size, const exo_collective_args *args,
                 const exo_time *begins, exo_time *ends)
{
    const uint64_t overhead = EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
    uint32_t root = args->root;
    exo_transit transit;
    exo_time last = begins[root];
    for (uint32_t i = 1; i < size; i++) {
        uint32_t r = (root + i) % size;
        exo_links_send(edge->links, edge->hosts[root], edge->hosts[r], edge->flow,
                       args->count * exo_dtype_size(args->dtype) + overhead, begins[root],
                       &transit);
        ends[r] = transit.arrives > begins[r] ? transit.arrives : begins[r];
        exo_links_send(edge->links, edge->hosts[r], edge->hosts[root], edge->flow, overhead,
                       ends[r], &transit);
        last = transit.arrives > last ? transit.arrives : last;
    }
    ends[root] = last;
}

/* All messages of a shift are on their way at the same time. */
static void
shift_timing(const exo_comm_edge *edge, const exo_collective_args *args, const exo_time *begins,
             exo_time *ends)
{
    exo_transit transit;
    memcpy(ends, begins, args->size * sizeof *ends);
    for (uint32_t r = 0; args->root > 0 && r < args->size; r++) {
        uint32_t to = exo_shift_target(args, r);
        exo_links_send(edge->links, edge->hosts[r], edge->hosts[to], edge->flow,
                       exo_comm_shard_bytes(args, args->count) + EXO_COMM_HEADER +
                           EXO_COMM_ENVELOPE,
                       begins[r], &transit);
        ends[r] = transit.sent > ends[r] ? transit.sent : ends[r];
        ends[to] = transit.arrives > ends[to] ? transit.arrives : ends[to];
    }
}

struct timing {
    const exo_comm_edge *edge;
    const exo_collective_args *args;
    exo_time *now, *next; /* (size) when the members begin this step, and the next one */
    uint32_t step;
};

static void
time_move(void *context, const exo_comm_move *m)
{
    struct timing *t = context;
    exo_transit transit;
    if (m->step != t->step)
        memcpy(t->now, t->next, t->args->size * sizeof *t->now);
    t->step = m->step;
    exo_links_send(t->edge->links, t->edge->hosts[m->from], t->edge->hosts[m->to], t->edge->flow,
                   exo_comm_shard_bytes(t->args, m->length) + EXO_COMM_HEADER + EXO_COMM_ENVELOPE,
                   t->now[m->from], &transit);
    t->next[m->to] = transit.arrives > t->next[m->to] ? transit.arrives : t->next[m->to];
}

static void
moves_timing(const exo_comm_edge *edge, const exo_collective_args *args, const exo_time *begins,
             exo_time *ends, exo_time *scratch)
{
    struct timing t = {.edge = edge, .args = args, .now = scratch, .next = ends};
    memcpy(scratch, begins, args->size * sizeof *scratch);
    memcpy(ends, begins, args->size * sizeof *ends);
    exo_comm_moves(args, time_move, &t);
}

exo_status
exo_comm_timing(const exo_comm_edge *edge, uint32_t size, const exo_collective_args *args,
                const exo_time *begins, exo_time *ends, exo_time *scratch, uint64_t *bytes,
                exo_err *err)
{
    if (size == 1) {
        ends[0] = begins[0];
        return EXO_OK;
    }
    if (args->way != EXO_WAY_DIRECT) {
        moves_timing(edge, args, begins, ends, scratch);
        return EXO_OK;
    }
    if (args->operation == EXO_BROADCAST) {
        broadcast_timing(edge, size, args, begins, ends);
        return EXO_OK;
    }
    if (args->operation == EXO_SHIFT) {
        shift_timing(edge, args, begins, ends);
        return EXO_OK;
    }
    for (uint32_t r = 0; r < size; r++) {
        size_t first, length;
        exo_comm_part(args, r, &first, &length);
        bytes[r] = exo_comm_shard_bytes(args, length) + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
    }
    const exo_time *from = begins;
    exo_status st = EXO_OK;
    if (args->operation != EXO_ALL_GATHER && args->operation != EXO_BARRIER) {
        exo_time *to = args->operation == EXO_ALL_REDUCE ? scratch : ends;
        st = exo_links_exchange(edge->links, EXO_EXCHANGE_SCATTER, size, edge->hosts, edge->flow,
                                bytes, from, to, NULL, err);
        from = to;
    }
    if (st == EXO_OK && from != ends)
        st = exo_links_exchange(edge->links, EXO_EXCHANGE_GATHER, size, edge->hosts, edge->flow,
                                bytes, from, ends, NULL, err);
    return st;
}

void
exo_comm_warm_links(const exo_comm_edge *edge, uint32_t size, uint32_t rank, size_t count,
                    exo_time now)
{
    size_t first, length;
    if (!edge->links || size == 1)
        return;
    exo_shard(count, size, rank, &first, &length);
    for (int half = 0; half < 2; half++)
        exo_links_warm(edge->links, size, edge->hosts, edge->flow, rank,
                       length * sizeof(float) + EXO_COMM_HEADER + EXO_COMM_ENVELOPE,
                       now - edge->origin);
}
