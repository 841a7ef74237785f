/* The costs of a graph's edges: bytes, exact where the codec's size is exact, and times by closed
 * forms, which a run refines. No state. */
#ifndef EXO_GRAPH_PLAN_H
#define EXO_GRAPH_PLAN_H

#include "graph/spec.h"

/* The costs of one edge. An unknown value is NAN. */
typedef struct exo_plan_edge {
    const exo_edge_spec *edge;
    /* senders of the edge */
    uint32_t senders;
    /* receivers of one item: 1, or all targets of a broadcast; in an all_reduce, the members of a
     * group */
    uint32_t targets;
    /* bytes of an item before its codec */
    double item;
    /* bytes of an item after its codec */
    double encoded;
    /* `encoded`, and the figures that depend on it, are upper bounds: the codec's size depends on
     * values */
    bool at_most;
    /* Bytes that a sender puts on its link for an item, with all copies. In an all_reduce among N
     * members this is 2 (N - 1) shards, on average. */
    double sent;
    /* bytes of all senders together in a step of each, by `interval` and `every` */
    double per_step;
    /* seconds until an item has arrived at all targets, or an all_reduce is over */
    double seconds;
    double seconds_per_step;
} exo_plan_edge;

/* Writes the costs of each edge to plan (num_edges). Errors: NOMEM. */
exo_status exo_graph_plan(const exo_graph_spec *spec, exo_plan_edge *plan, exo_err *err);

/* The total of an actor's declared phases on the slowest of its hosts, in seconds; NAN: no phase is
 * declared. */
double exo_plan_compute(const exo_graph_spec *spec, const exo_actor_spec *actor);

#endif
