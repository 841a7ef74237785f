/* When a collective is over, over emulated links. */
#ifndef EXO_COMM_TIMING_H
#define EXO_COMM_TIMING_H

#include "comm/backend.h"

/* What one message of `bytes` puts on a wire beside them: the collective's header, and, as of
 * channels (runtime/graph/place.h), the call's envelope and ZeroMQ's framing. */
enum {
    EXO_COMM_HEADER = 64,
    EXO_COMM_ENVELOPE = 68
};

/* The encoded bytes of a shard of `count` elements. */
size_t exo_comm_shard_bytes(const exo_collective_args *args, size_t count);
/* ends (size): when each member has its result, if member r comes at begins[r]; times from the
 * run's origin. `scratch` (2 size) times and `bytes` (size) are the caller's. */
exo_status exo_comm_timing(const exo_comm_edge *edge, uint32_t size,
                           const exo_collective_args *args, const exo_time *begins, exo_time *ends,
                           exo_time *scratch, uint64_t *bytes, exo_err *err);
/* Says so to the edge's links, of both halves of an all_reduce that ends at `now` of the clock: see
 * exo_comm_warm(). */
void exo_comm_warm_links(const exo_comm_edge *edge, uint32_t size, uint32_t rank, size_t count,
                         exo_time now);

#endif
