/* What the files that read and check a graph share. They run on the thread of whoever reads it;
 * what they make is the spec's. */
#ifndef EXO_GRAPH_SPEC_IMPL_H
#define EXO_GRAPH_SPEC_IMPL_H

#include "base/config_edit.h"
#include "base/nearest.h"
#include "graph/spec.h"

/* document.c: what `include`, presets, overrides and variables leave. */
exo_status exo_graph_prepare(exo_config_doc *doc, const exo_graph_opts *opts, exo_err *err);

/* spec_network.c: `hosts`, before the actors, and `links`, after them. */
exo_status exo_graph_read_hosts(exo_graph_spec *spec, exo_err *err);
exo_status exo_graph_read_links(exo_graph_spec *spec, exo_err *err);
/* Where nothing is said of hosts: one for each actor. */
exo_status exo_graph_default_hosts(exo_graph_spec *spec, exo_err *err);
/* Fills in actor->hosts by what `host` says. */
exo_status exo_graph_place(exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err);

/* spec_edges.c */
exo_status exo_graph_read_edges(exo_graph_spec *spec, exo_err *err);

/* check.c, check_cycles.c */
exo_status exo_graph_check(exo_graph_spec *spec, exo_err *err);
exo_status exo_graph_check_cycles(const exo_graph_spec *spec, exo_err *err);

/* Zeroed memory of the spec's document; NULL and NOMEM if there is none. */
void *exo_graph_alloc(const exo_graph_spec *spec, size_t count, size_t size, exo_err *err);
/* The mapping `resources`: amounts by name, `memory` in bytes. */
exo_status exo_graph_read_resources(exo_graph_spec *spec, exo_config *map, exo_resource **out,
                                    size_t *count, exo_err *err);
/* The number of an actor name, -1 if there is none. */
int exo_graph_find_actor(const exo_graph_spec *spec, const char *name);
int exo_graph_find_group(const exo_graph_spec *spec, const char *name);

/* INVAL at the place of `node`: there is no WHAT 'WORD', with the nearest of the names or all of
 * them. name(context, i) gives them, NULL after the last. */
exo_status exo_graph_fail_name(const exo_config *node, const char *what, const char *word,
                               const char *(*name)(const void *context, size_t index),
                               const void *context, exo_err *err);

#endif
