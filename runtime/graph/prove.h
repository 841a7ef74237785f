/* Proves from the declared orders of port use (exogym/graph.h) that a graph cannot stall, or
 * reports what cannot be proven.
 *
 * The first proof looks at waits alone: if no wait at a port can lead, from actor to actor, back to
 * itself, no wait lasts for ever (prove_ports.c). Otherwise, every order of steps of the graph is
 * tried, with its own buffers and routes, if the graph is small enough (prove_search.c). A proof
 * holds if the classes keep to their declared orders. It makes no statement about times.
 *
 * No state. Read next: order.h, prove_impl.h. */
#ifndef EXO_GRAPH_PROVE_H
#define EXO_GRAPH_PROVE_H

#include "graph/spec.h"

typedef enum exo_verdict {
    EXO_SOUND,     /* it cannot stall */
    EXO_STALLS,    /* it stalls in every order of steps */
    EXO_CAN_STALL, /* it stalls in some orders of steps, or with some keys of its items */
    EXO_NOT_PROVEN,
} exo_verdict;

typedef struct exo_proof {
    exo_verdict verdict;
    exo_config *at; /* the edge for the position of messages; NULL: none */
    char text[800]; /* the cycle, or the missing condition; "" for a sound graph */
} exo_proof;

/* Proves or refutes that the graph cannot stall. effort: the most states of the graph that are
 * tried; 0: the default of prove_search.c. Errors: NOMEM. */
exo_status exo_graph_prove(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_err *err);

#endif
