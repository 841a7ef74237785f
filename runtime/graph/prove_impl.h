/* What the parts of a proof share: see prove.h. */
#ifndef EXO_GRAPH_PROVE_IMPL_H
#define EXO_GRAPH_PROVE_IMPL_H

#include "graph/prove.h"

#include "graph/order.h"

/* A wait at a port that can lead to itself: the actors on the way and the edges between them. */
typedef struct exo_port_cycle {
    bool found;
    bool undeclared; /* an actor on the way does not declare its order: `actor` */
    uint32_t actor;
    size_t length;
    const exo_edge_spec *edges[16];
} exo_port_cycle;

/* prove_ports.c */
exo_status exo_prove_ports(const exo_graph_spec *spec, exo_port_cycle *out, exo_err *err);
/* prove_order.c: the order of the actor, which declares one, without the steps at ports that have
 * no edge. A loop that is empty then is left out, but for one without an end: an actor that comes
 * to it never ends and never waits again. */
void exo_prove_order(exo_order *out, const exo_graph_spec *spec, uint32_t actor);

/* Why a search did not come to its end. */
typedef enum exo_limit_kind {
    EXO_LIMIT_NONE,
    EXO_LIMIT_UNDECLARED, /* an actor does not declare its order */
    EXO_LIMIT_MAY_SEND,   /* of an actor's alternatives one is to send */
    EXO_LIMIT_ACTORS,     /* more actors, channels, or words of a state */
    EXO_LIMIT_CHANNELS,
    EXO_LIMIT_WORDS,
    EXO_LIMIT_STATES /* more states than were to be tried: `count` were */
} exo_limit_kind;

typedef struct exo_search_limit {
    exo_limit_kind kind;
    uint32_t actor; /* of the first two */
    size_t count;   /* that is too many; of states: that were looked at */
} exo_search_limit;

/* prove_search.c: sets the verdict and, of a stall, the text; *limit of what is not proven. */
exo_status exo_prove_search(const exo_graph_spec *spec, size_t effort, exo_proof *out,
                            exo_search_limit *limit, exo_err *err);

#endif
