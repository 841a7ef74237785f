/* Collectives among actors that may be in different processes.
 *
 * Each member has a communicator of its own, which knows the others as actors: what it sends them
 * are calls of one of their methods, which hands the payload to exo_comm_far_deliver. A reduction
 * is a direct exchange: a member sends each other one its part of that one's shard, sums what comes
 * for its own shard in rank order, and sends the sum to all; so a member sends as much as in a
 * ring, 2 (N - 1)/N of the buffer, and the bits are those of every other backend. */
#ifndef EXO_COMM_FAR_H
#define EXO_COMM_FAR_H

#include <exogym/actor.h>
#include <exogym/comm.h>

#include "comm/edge.h"

typedef struct exo_comm_far_opts {
    exo_runtime *runtime;
    uint32_t size, rank;
    /* tells the communicators of one member apart: the first four bytes of a payload (little
     * endian) */
    uint32_t channel;
    /* of the members, that takes payloads; a literal */
    const char *method;
    /* links, on the real clock, and codec; copied; NULL: neither */
    const exo_comm_edge *edge;
} exo_comm_far_opts;

/* This member's communicator; exo_group_open takes the place `rank` only. What comes before it is
 * connected waits. */
exo_status exo_comm_far(exo_comm **out, const exo_comm_far_opts *opts, exo_err *err);
/* Says who the members are: (size) references. Watches their lives. */
exo_status exo_comm_far_connect(exo_comm *comm, const exo_ref *members, exo_err *err);
/* Takes what another member sent; *payload is moved, unless it is refused. from: the process that
 * sent it, 0: this one. Does not block. INVAL: it is no message for it, or of another process than
 * the member's. */
exo_status exo_comm_far_deliver(exo_comm *comm, exo_payload *payload, uint64_t from, exo_err *err);
/* The channel that a payload is for; UINT32_MAX: it is too short. */
uint32_t exo_comm_far_channel(const exo_payload *payload);
/* Stops watching; before the last reference is dropped. */
void exo_comm_far_disconnect(exo_comm *comm);

#endif
