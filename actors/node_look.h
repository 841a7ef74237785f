/* What a node of a training job waits for in a collective, for whoever looks for stalls (fit_watch.c). */
#ifndef EXO_NODE_LOOK_H
#define EXO_NODE_LOOK_H

#include <exogym/actor.h>
#include <exogym/comm.h>

#include "protocol/protocol.h"

enum {
    EXO_NODE_MISSING = 16 /* members that a look names at most */
};

/* Which communicator a call is of; the numbers of Exo__Train__NodeComm. */
enum {
    EXO_NODE_COMPUTES, /* it is in no call */
    EXO_NODE_IN_STRATEGY,
    EXO_NODE_IN_SIDE /* set-up, averages, correlations */
};

/* What is asked: also how many messages it has sent to node `to` over communicator `of`; 0: nothing more. */
typedef struct exo_node_ask {
    uint32_t of, to;
} exo_node_ask;

typedef struct exo_node_look {
    exo_time waited; /* in the call     */
    uint64_t number; /* of it, from 1   */
    uint64_t
        came; /* messages from the first that is missing, where members are in several processes */
    uint64_t
        sent; /* what was asked for                                                              */
    uint32_t
        of; /* the communicator                                                                 */
    uint32_t
        waits; /* not for the links, nor for others' work: for the missing                         */
    uint32_t num_missing;
    uint32_t missing[EXO_NODE_MISSING]; /* ranks */
    char operation[20];
} exo_node_look;

/* Looks at node `rank` of `nodes`. Any thread. NOMEM. */
exo_status exo_node_look_at(exo_node_look *out, exo_comm *strategy, exo_comm *side, uint32_t rank,
                            uint32_t nodes, const exo_node_ask *ask, exo_err *err);
/* The message that says it, and what such a message says of a run of `nodes`. NOMEM; INVAL: it is none. */
exo_status exo_node_look_pack(exo_payload *out, const exo_node_look *look, exo_err *err);
exo_status exo_node_look_read(exo_node_look *out, const exo_payload *message, uint32_t nodes,
                              exo_err *err);

#endif
