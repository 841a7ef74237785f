/* What the edges of a graph cost: bytes exactly where the codec's size is exact, times by closed
 * forms that a run refines. */
#ifndef EXO_GRAPH_PLAN_H
#define EXO_GRAPH_PLAN_H

#include "graph/spec.h"

/* One edge. What is not known is NAN. */
typedef struct exo_plan_edge {
    const exo_edge_spec *edge;
    /* actors that send */
    uint32_t senders;
    /* actors that get one item: 1, or all of a broadcast; of an all_reduce those that meet in
     * one */
    uint32_t targets;
    /* bytes of an item before the codec */
    double item;
    /* bytes of an item after it */
    double encoded;
    /* `encoded`, and what follows from it, is a bound: the codec's size depends on values */
    bool at_most;
    /* What one sender puts on its link for an item, its copies included; in an all_reduce 2 (N - 1)
     * shards, on average. */
    double sent;
    /* the same of all senders together, a step of each: by `interval` and `every` */
    double per_step;
    /* until an item has arrived everywhere, or an all_reduce is over */
    double seconds;
    double seconds_per_step;
} exo_plan_edge;

/* Writes a plan of each edge to plan (num_edges). NOMEM. */
exo_status exo_graph_plan(const exo_graph_spec *spec, exo_plan_edge *plan, exo_err *err);

/* What the phases of an actor that are declared cost together, on the slowest of its hosts, in
 * seconds. NAN: none is. */
double exo_plan_compute(const exo_graph_spec *spec, const exo_actor_spec *actor);

#endif
