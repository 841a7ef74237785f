/* The times of collectives on emulated links. No state. */
#ifndef EXO_COMM_TIMING_H
#define EXO_COMM_TIMING_H

#include "comm/backend.h"

/* Bytes on a wire for one message besides its data: the collective's header; and the call's
 * envelope with ZeroMQ's framing, as for channels (runtime/graph/place.h). */
enum {
    EXO_COMM_HEADER = 64,
    EXO_COMM_ENVELOPE = 68
};

/* The elements that go to the member at `place`, or come from it: its shard, which is its block of
 * an all_to_all; of a swap or shift all. */
void exo_comm_part(const exo_collective_args *args, uint32_t place, size_t *first, size_t *length);
/* The encoded size of a shard of `count` elements. */
size_t exo_comm_shard_bytes(const exo_collective_args *args, size_t count);
/* Computes ends (size), the time at which each member has its result, from begins (size), the
 * arrivals of the members; times are from the run's origin. `scratch` (2 size) and `bytes` (size)
 * are working memory of the caller. Errors: NOMEM. */
exo_status exo_comm_timing(const exo_comm_edge *edge, uint32_t size,
                           const exo_collective_args *args, const exo_time *begins, exo_time *ends,
                           exo_time *scratch, uint64_t *bytes, exo_err *err);
/* Records both halves of an all_reduce that ends at `now`, on the clock, on the edge's links: see
 * exo_comm_warm(). */
void exo_comm_warm_links(const exo_comm_edge *edge, uint32_t size, uint32_t rank, size_t count,
                         exo_time now);

#endif
