/* What the two halves of a proof share: see prove.h. */
#ifndef EXO_GRAPH_PROVE_IMPL_H
#define EXO_GRAPH_PROVE_IMPL_H

#include "prove.h"

#include "order.h"

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
/* prove_search.c: sets the verdict and, of a stall, the text. */
exo_status exo_prove_search(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_err *err);

#endif
