/* Functions shared by the files that read and check a graph. They run on the thread of the caller
 * that reads the graph; the spec owns what they allocate. */
#ifndef EXO_GRAPH_SPEC_IMPL_H
#define EXO_GRAPH_SPEC_IMPL_H

#include "base/config_edit.h"
#include "base/nearest.h"
#include "graph/spec.h"

/* document.c: resolves `include`, presets, overrides and variables in the document. */
exo_status exo_graph_prepare(exo_config_doc *doc, const exo_graph_opts *opts, exo_err *err);

/* spec_network.c: reads `hosts`, before the actors, and `links`, after them. */
exo_status exo_graph_read_hosts(exo_graph_spec *spec, exo_err *err);
exo_status exo_graph_read_links(exo_graph_spec *spec, exo_err *err);
/* Makes a host for each actor of a graph without `hosts`. */
exo_status exo_graph_default_hosts(exo_graph_spec *spec, exo_err *err);
/* Fills in actor->hosts from the key `host`. */
exo_status exo_graph_place(exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err);

/* spec_edges.c */
exo_status exo_graph_read_edges(exo_graph_spec *spec, exo_err *err);

/* check.c, check_cycles.c */
exo_status exo_graph_check(exo_graph_spec *spec, exo_err *err);
exo_status exo_graph_check_cycles(const exo_graph_spec *spec, exo_err *err);

/* Allocates zeroed memory of the spec's document; NULL and NOMEM on failure. */
void *exo_graph_alloc(const exo_graph_spec *spec, size_t count, size_t size, exo_err *err);
/* Reads the key `targets` of an edge, whose route is known. */
exo_status exo_graph_read_targets(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err);
/* The index of an actor name, of a group of hosts; -1: there is none. */
int exo_graph_find_actor(const exo_graph_spec *spec, const char *name);
int exo_graph_find_group(const exo_graph_spec *spec, const char *name);

/* Fails with INVAL at the place of `node`: there is no WHAT 'WORD'; the text has the nearest name,
 * or all names. name(context, i) returns the names, and NULL after the last. */
exo_status exo_graph_fail_name(const exo_config *node, const char *what, const char *word,
                               const char *(*name)(const void *context, size_t index),
                               const void *context, exo_err *err);

#endif
