/* Proves that a graph cannot stall, from the order in which its classes use their ports
 * (exogym/graph.h), or says what it cannot prove.
 *
 * First by what can wait for what at all: if no wait at a port can lead, from actor to actor, back
 * to itself, nobody can wait for ever (prove_ports.c). Else by trying every order of steps of the
 * graph itself, its buffers and routes as they are, where it is small enough (prove_search.c). A
 * proof holds for orders that are as declared; what it says of times is nothing.
 *
 * No state. Read next: order.h, prove_impl.h. */
#ifndef EXO_GRAPH_PROVE_H
#define EXO_GRAPH_PROVE_H

#include "graph/spec.h"

typedef enum exo_verdict {
    EXO_SOUND,     /* it cannot stall */
    EXO_STALLS,    /* it stalls, whatever the order of steps */
    EXO_CAN_STALL, /* it does in some order of steps, or with some keys of its items */
    EXO_NOT_PROVEN,
} exo_verdict;

typedef struct exo_proof {
    exo_verdict verdict;
    exo_config *at; /* the edge that messages point to; NULL: none */
    char text[800]; /* the cycle, or what is not known; "" of a sound graph */
} exo_proof;

/* `effort`: states of the graph that are tried at most; 0: as many as a check takes. NOMEM. */
exo_status exo_graph_prove(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_err *err);

#endif
