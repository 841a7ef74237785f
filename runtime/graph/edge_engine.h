/* The engine that a collective's edge names (`engine: gpu`): it moves the data of its calls in place of
 * the library's own engines, so arrays need not leave the devices that they are on. No state. Read next:
 * exogym/engine.h, site.c, host.c. */
#ifndef EXO_GRAPH_EDGE_ENGINE_H
#define EXO_GRAPH_EDGE_ENGINE_H

#include "comm/far.h"
#include "graph/spec.h"

/* Reads the key `engine`; NULL in edge->engine: the library's. INVAL, with its place: the edge is no
 * collective, there is no such engine, or it cannot be loaded. */
exo_status exo_edge_read_engine(exo_edge_spec *edge, exo_err *err);
/* Refuses what the engine lacks: codecs, emulated links, the virtual clock, lives after a death. */
exo_status exo_edge_check_engine(const exo_graph_spec *spec, const exo_edge_spec *edge,
                                 exo_err *err);
/* Makes the communicator of an edge with an engine, of `size` actors of this process. Errors: those of
 * exo_comm_open. */
exo_status exo_edge_open_engine(exo_comm **out, const exo_edge_spec *edge, uint32_t size,
                                const exo_clock *clock, exo_err *err);
/* The same for one actor in a worker. `space` distinguishes the run from others on these hosts.
 * UNSUPPORTED: the engine is for actors in one process. */
exo_status exo_edge_open_engine_far(exo_comm **out, const exo_edge_spec *edge, const char *space,
                                    const exo_comm_far_opts *opts, exo_err *err);

#endif
