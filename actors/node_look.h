/* A look at a node of a training job: the call of a collective that it is in, and the members that
 * are missing there. fit_watch.c uses looks to detect stalls. No state. */
#ifndef EXO_NODE_LOOK_H
#define EXO_NODE_LOOK_H

#include <exogym/actor.h>
#include <exogym/comm.h>

#include "protocol/protocol.h"

enum {
    EXO_NODE_MISSING = 16 /* most members that a look names */
};

/* The communicator of a call, with the numbers of Exo__Train__NodeComm. */
enum {
    EXO_NODE_COMPUTES, /* it is in no call */
    EXO_NODE_IN_STRATEGY,
    EXO_NODE_IN_SIDE /* set-up, averages, correlations */
};

/* A question: the number of messages that the node has sent to node `to` over communicator `of`. If
 * `of` is 0, no number is asked for. */
typedef struct exo_node_ask {
    uint32_t of, to;
} exo_node_ask;

typedef struct exo_node_look {
    exo_time waited; /* time in the call */
    uint64_t number; /* number of the call, from 1 */
    /* Number of messages received from the first missing member, if members are in several
     * processes. */
    uint64_t came;
    uint64_t sent;  /* the answer to exo_node_ask */
    uint32_t of;    /* the communicator */
    uint32_t waits; /* it waits for the missing members, not for links or for others' work */
    uint32_t num_missing;
    uint32_t missing[EXO_NODE_MISSING]; /* ranks */
    char operation[20];
} exo_node_look;

/* Looks at node `rank` of `nodes`. Any thread. NOMEM. */
exo_status exo_node_look_at(exo_node_look *out, exo_comm *strategy, exo_comm *side, uint32_t rank,
                            uint32_t nodes, const exo_node_ask *ask, exo_err *err);
/* Write a look as a message, and read it from a message of a run of `nodes` nodes. NOMEM; INVAL:
 * the message is not a look. */
exo_status exo_node_look_pack(exo_payload *out, const exo_node_look *look, exo_err *err);
exo_status exo_node_look_read(exo_node_look *out, const exo_payload *message, uint32_t nodes,
                              exo_err *err);

#endif
