/* What a job's graph says of its nodes: for the fit, and for nodes elsewhere. */
#ifndef EXO_FIT_NETWORK_H
#define EXO_FIT_NETWORK_H

#include "graph/spec.h"

/* What a step costs by declaration on a host of speed 1; -1: it is measured. `graph` may be NULL. */
exo_time exo_fit_step_cost(const exo_graph_spec *graph);
/* The codec that a strategy's edge was given besides what the strategy does itself; NULL: none. */
const char *exo_fit_edge_codec(const exo_edge_spec *edge);

#endif
