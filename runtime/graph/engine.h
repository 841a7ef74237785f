/* The engines of a graph's collectives: the keys `engine` and `equal_bits` of an edge whose route is
 * all_reduce (docs/graph.md). `auto` is `net` among actors in workers, and in one process `local`, or
 * `gpu` if all actors of the name compute on one GPU and the engine can do what the edge needs. The
 * numbers are the same.
 *
 * No state. Read next: comm/choose.h, site.c. */
#ifndef EXO_GRAPH_ENGINE_H
#define EXO_GRAPH_ENGINE_H

#include "comm/choose.h"
#include "comm/far.h"
#include "graph/site.h"

/* Checks what an edge says about its engine, without the run's conditions. An engine of the library's
 * plugins that this installation lacks is left to the run. INVAL (with its place). Part of reading a
 * graph, after the checks of the actors' options. */
exo_status exo_graph_check_engine(const exo_graph_spec *spec, const exo_edge_spec *edge,
                                  exo_err *err);
/* Checks that a run can use the engines of all edges. far: the actors go to workers. Errors: INVAL,
 * UNSUPPORTED and NOT_FOUND (with their places). */
exo_status exo_graph_check_engines(const exo_graph_spec *spec, bool far, exo_err *err);
/* The engine of a collective at this site; NULL: the library's own. NOT_FOUND: this process lacks it. */
exo_status exo_graph_engine(const exo_engine_class **out, const exo_site *site,
                            const exo_edge_spec *edge, exo_err *err);
/* Makes the communicator of a collective of a whole site on an engine that is not the library's. */
exo_status exo_graph_open_engine(exo_comm **out, const exo_site *site, const exo_edge_spec *edge,
                                 const exo_engine_class *engine, exo_err *err);
/* The same in a worker, for the life `life` of a member. */
exo_status exo_graph_open_engine_far(exo_comm **out, const exo_site *site,
                                     const exo_edge_spec *edge, const exo_engine_class *engine,
                                     const exo_comm_far_opts *opts, uint32_t life, exo_err *err);

#endif
