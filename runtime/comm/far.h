/* Collectives among actors, which may be in different processes.
 *
 * Each member has a communicator of its own, which has references to the other members as actors.
 * It sends them calls of one of their methods, which passes the payload to exo_comm_far_deliver. A
 * reduction is a direct exchange. A member sends each other member its part of that member's shard,
 * sums the parts of its own shard in rank order, and sends the sum to all. So a member sends as
 * much as in a ring, 2 (N - 1)/N of the buffer, and the bits are the same as those of every other
 * engine. Read next: far_impl.h, far.c. */
#ifndef EXO_COMM_FAR_H
#define EXO_COMM_FAR_H

#include <exogym/actor.h>
#include <exogym/comm.h>
#include <exogym/engine.h>

#include "comm/edge.h"

typedef struct exo_comm_far_opts {
    exo_runtime *runtime;
    uint32_t size, rank;
    /* distinguishes the communicators of one member; the first four bytes of a payload (little
     * endian) */
    uint32_t channel;
    /* name of the members' method that takes payloads; a literal */
    const char *method;
    /* links, on the real clock, and codec; copied; NULL: neither */
    const exo_comm_edge *edge;
    uint32_t home; /* the member that has the communicator's server (exogym/server.h) */
    bool goes_on;  /* for exo_comm_far_on: exo_engine_post.goes_on */
    /* what errors call a member, before its rank: "trainer"; copied. NULL: "node" */
    const char *noun;
} exo_comm_far_opts;

/* Makes this member's communicator, in which exo_group_open takes the rank `rank` only. Messages
 * that arrive before it is connected wait. Errors: INVAL (size or rank), NOMEM. */
exo_status exo_comm_far(exo_comm **out, const exo_comm_far_opts *opts, exo_err *err);
/* Makes this member's communicator on `engine`, which promises EXO_ENGINE_POST: it moves the data, and
 * what exo_comm_far makes carries its small messages. The functions below take such a communicator,
 * too, except exo_comm_far_measure. key: as in exo_engine_opts. Errors: those of exo_comm_far and of
 * the engine; UNSUPPORTED: it has no `open`. far_post.c. */
exo_status exo_comm_far_on(exo_comm **out, const exo_engine_class *engine, const char *key,
                           const exo_comm_far_opts *opts, exo_err *err);
/* Says that the members change, before the group of this member is closed: exo_engine_post.moves_on.
 * On the thread of that group. */
void exo_comm_far_move_on(exo_comm *comm);
/* Sets the references of the members (size), and monitors these actors. A reference with id 0 is an
 * absent member: no call may include it (exo_group_among). Errors: NOMEM, those of
 * exo_monitor. */
exo_status exo_comm_far_connect(exo_comm *comm, const exo_ref *members, exo_err *err);
/* Takes a message of another member; *payload is moved unless it is refused. from: the process that
 * sent it; 0: this one. Does not block. INVAL: the payload is no message for this communicator, or
 * does not come from the member's process. NOMEM breaks the communicator. */
exo_status exo_comm_far_deliver(exo_comm *comm, exo_payload *payload, uint64_t from, exo_err *err);
/* The channel of a payload; UINT32_MAX: the payload is too short. */
uint32_t exo_comm_far_channel(const exo_payload *payload);
/* Measures the links from this member to each other one, and writes them to row (size); that of the
 * member itself is zero. All members make this call at the same place among their calls, on a
 * communicator of all members. Pairs that have no member in common are measured at the same time.
 * On emulated links messages take their time. It takes about a second, or as long as 16 messages to
 * each member and back, whichever is more. The messages are not counted. Errors: UNSUPPORTED: more
 * than EXO_WAYS_MEMBERS members; those of a collective. far_measure.c. */
exo_status exo_comm_far_measure(exo_comm *comm, exo_time deadline, struct exo_link_figure *row,
                                exo_err *err);
/* Writes to figures (size, size) what the rows of all members say together, which may be the same
 * array: the latency of a pair is the mean of both directions. */
void exo_comm_far_merge(uint32_t size, const struct exo_link_figure *rows,
                        struct exo_link_figure *figures);
/* Stops the monitors. Call it before the last reference is dropped. */
void exo_comm_far_disconnect(exo_comm *comm);

#endif
