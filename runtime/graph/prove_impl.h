/* Types and functions shared by the files of a proof: see prove.h. */
#ifndef EXO_GRAPH_PROVE_IMPL_H
#define EXO_GRAPH_PROVE_IMPL_H

#include "graph/prove.h"

#include "graph/order.h"

/* A wait at a port that can lead to itself: the actors on the cycle, and the edges between them. */
typedef struct exo_port_cycle {
    bool found;
    bool undeclared; /* the class of `actor`, which is on the cycle, declares no order */
    uint32_t actor;
    size_t length;
    const exo_edge_spec *edges[16];
} exo_port_cycle;

/* prove_ports.c */
exo_status exo_prove_ports(const exo_graph_spec *spec, exo_port_cycle *out, exo_err *err);
/* prove_order.c: the declared order of the actor, without the steps at ports that have no edge. A
 * loop that becomes empty is left out, unless it is endless: an actor that reaches an empty endless
 * loop never ends and never waits again. */
void exo_prove_order(exo_order *out, const exo_graph_spec *spec, uint32_t actor);

/* The reason why a search is incomplete. */
typedef enum exo_limit_kind {
    EXO_LIMIT_NONE,
    EXO_LIMIT_UNDECLARED, /* the class of an actor declares no order */
    EXO_LIMIT_MAY_SEND,   /* an actor has alternatives, one of which is a send */
    EXO_LIMIT_ACTORS,     /* too many actors, channels, or words of a state */
    EXO_LIMIT_CHANNELS,
    EXO_LIMIT_WORDS,
    EXO_LIMIT_STATES /* too many states: `count` were tried */
} exo_limit_kind;

typedef struct exo_search_limit {
    exo_limit_kind kind;
    uint32_t actor; /* of UNDECLARED and MAY_SEND */
    size_t count;   /* the excessive number; of STATES: states that were tried */
} exo_search_limit;

/* prove_search.c: sets the verdict, and the text if it is a stall; *limit if nothing is proven. */
exo_status exo_prove_search(const exo_graph_spec *spec, size_t effort, exo_proof *out,
                            exo_search_limit *limit, exo_err *err);

#endif
