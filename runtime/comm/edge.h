/* The edge of the graph that a communicator is: what its data is encoded with, and what it passes
 * over.
 *
 * On an edge with links a call takes the time that its messages take: those of the direct exchange
 * of far.c, whichever engine moves the data. On the real clock members wait until then; on the
 * virtual clock they are woken then. */
#ifndef EXO_COMM_EDGE_H
#define EXO_COMM_EDGE_H

#include <stdbool.h>

#include <exogym/codec.h>
#include <exogym/comm.h>

#include "base/sim.h"
#include "link/link.h"

typedef struct exo_comm_edge {
    const char *name;      /* a literal, or as long-lived as the communicator */
    exo_links *links;      /* NULL: messages take no time */
    const uint32_t *hosts; /* (size) where each member is; copied; NULL without links */
    uint32_t flow;         /* tells its connections from those of other edges */
    exo_sim *sim;          /* NULL: the real clock */
    exo_time origin;       /* of the run, on the clock */
    /* of what is reduced or gathered, fp32 only: one that has no state and a fixed size; NULL:
     * raw */
    const char *codec;
} exo_comm_edge;

/* As exo_comm_local. INVAL: the codec is wrong, or has a state. */
exo_status exo_comm_local_on(exo_comm **out, uint32_t size, const exo_clock *clock,
                             const exo_comm_edge *edge, exo_err *err);
/* The run begins at `origin`: of one on the real clock that was made before. Before the first
 * call. */
void exo_comm_local_begin(exo_comm *comm, exo_time origin);

/* Changes the codec of a communicator while none of its members is in a call. NULL: raw. INVAL as
 * above, NOMEM; it then stays as it was. */
exo_status exo_comm_recode(exo_comm *comm, const char *codec, exo_err *err);

/* How many codecs its groups have made so far: one each when they were opened, one each after a
 * change, none in a call. Any thread. */
uint64_t exo_comm_codecs_made(const exo_comm *comm);

/* Begins a call without data: takes the time and is counted as if there were `count` elements. For
 * communicators among the threads of a process. As exo_comm_begin_all_reduce. */
exo_status exo_comm_begin_rehearsal(exo_request **out, exo_group *group, size_t count,
                                    exo_dtype dtype, exo_err *err);

/* What a member of a communicator waits for in the call that it is in. */
typedef struct exo_comm_look {
    /* it needs something of each of the missing ones, and nothing of theirs has come */
    bool waits;
    /* members that it waits for */
    uint32_t num_missing;
    /* messages go between them, and are counted */
    bool counts;
    /* its message, or one for it, passes the edge's links just now */
    bool passing;
    bool inside;           /* it is in a call: */
    const char *operation; /* "all_reduce" */
    uint64_t number;       /* of its calls, from 1 */
    exo_time since;        /* on the communicator's clock */
} exo_comm_look;

/* Looks at member `rank`. `missing` (the communicator's size) gets the ranks of those that it waits
 * for; where members are in several processes that is one at a time, and `counts` (twice the size)
 * gets how many messages went to each member, then how many came from each. Any thread. */
void exo_comm_look_at(exo_comm *comm, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                      uint64_t *counts);

/* What the members exchange beside the run, as for an evaluation, passes over the edge's
 * connections too, and leaves them warm. To be said by member `rank` after an all_reduce of `count`
 * fp32 elements; where messages take no time it is nothing. */
void exo_comm_warm(exo_comm *comm, uint32_t rank, size_t count);

#endif
