/* Proofs that graphs cannot stall: see prove.h. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "config_edit.h"
#include "prove_impl.h"

static bool
chooses_blindly(const exo_edge_spec *edge)
{
    return edge->route == EXO_ROUTE_HASH || edge->route == EXO_ROUTE_GOSSIP || edge->route == EXO_ROUTE_LEAST_LOADED;
}

/* Which edges could wait for each other, and what is not known of them. */
static void
say_what_is_missing(const exo_graph_spec *spec, const exo_port_cycle *cycle, exo_proof *out)
{
    exo_text edges = {0};
    const exo_edge_spec *blind = NULL;
    for (size_t i = 0; i < cycle->length; i++) {
        exo_text_add(&edges, "%s'%s'", i ? ", " : "", cycle->edges[i]->name);
        blind = !blind && chooses_blindly(cycle->edges[i]) ? cycle->edges[i] : blind;
    }
    const char *list = edges.data ? edges.data : "";
    out->at = cycle->length ? cycle->edges[0]->node : NULL;
    if (cycle->undeclared)
        snprintf(out->text, sizeof out->text,
                 "class '%s' of actor '%s' does not declare the order in which it uses its ports (edges %.500s)",
                 spec->actors[cycle->actor].class->name, spec->actors[cycle->actor].name, list);
    else if (blind)
        snprintf(out->text, sizeof out->text,
                 "edge '%s' chooses its targets by route %s, whoever waits for items (edges %.500s)", blind->name,
                 exo_route_names[blind->route], list);
    else
        snprintf(out->text, sizeof out->text, "the graph is too large to try every order of steps (edges %.500s)",
                 list);
    exo_free(edges.data);
}

exo_status
exo_graph_prove(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_err *err)
{
    exo_port_cycle cycle;
    *out = (exo_proof){0};
    exo_status st = exo_prove_ports(spec, &cycle, err);
    if (st != EXO_OK || !cycle.found)
        return st;
    st = exo_prove_search(spec, effort, out, err);
    if (st == EXO_OK && out->verdict == EXO_NOT_PROVEN)
        say_what_is_missing(spec, &cycle, out);
    return st;
}
