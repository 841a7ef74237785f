/* Proofs that graphs cannot stall: see prove.h. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "graph/prove_impl.h"

static bool
chooses_blindly(const exo_edge_spec *edge)
{
    return edge->route == EXO_ROUTE_HASH || edge->route == EXO_ROUTE_GOSSIP ||
           edge->route == EXO_ROUTE_LEAST_LOADED;
}

/* Writes why the search did not try every order of steps. */
static void
say_limit(const exo_graph_spec *spec, const exo_search_limit *limit, char *out, size_t size)
{
    const exo_actor_spec *actor = &spec->actors[limit->actor];
    switch (limit->kind) {
    case EXO_LIMIT_NONE:
        break;
    case EXO_LIMIT_UNDECLARED:
        snprintf(out, size,
                 "class '%s' of actor '%s' does not declare the order in which it uses its ports",
                 actor->class->name, actor->name);
        return;
    case EXO_LIMIT_MAY_SEND:
        snprintf(out, size,
                 "class '%s' of actor '%s' chooses between sending and something else, which is "
                 "not tried",
                 actor->class->name, actor->name);
        return;
    case EXO_LIMIT_ACTORS:
        snprintf(out, size, "its %zu actors are too many to try every order of steps",
                 limit->count);
        return;
    case EXO_LIMIT_CHANNELS:
        snprintf(out, size, "it has more than %zu channels, too many to try every order of steps",
                 limit->count);
        return;
    case EXO_LIMIT_WORDS:
        snprintf(out, size, "the graph is too large to try every order of steps");
        return;
    case EXO_LIMIT_STATES:
        snprintf(out, size,
                 "%zu states of the graph were tried and none stalls, and there are more",
                 limit->count);
        return;
    }
    snprintf(out, size, "not every order of steps was tried");
}

/* Writes which edges may wait for each other, and why nothing is proven about them. */
static void
say_what_is_missing(const exo_graph_spec *spec, const exo_port_cycle *cycle, exo_search_limit limit,
                    exo_proof *out)
{
    exo_text edges = {0};
    const exo_edge_spec *blind = NULL;
    char why[300], route[300] = "";
    for (size_t i = 0; i < cycle->length; i++) {
        exo_text_add(&edges, "%s'%s'", i ? ", " : "", cycle->edges[i]->name);
        blind = !blind && chooses_blindly(cycle->edges[i]) ? cycle->edges[i] : blind;
    }
    if (limit.kind == EXO_LIMIT_UNDECLARED && cycle->undeclared)
        /* names an actor on the cycle, if several actors declare no order */
        limit.actor = cycle->actor;
    say_limit(spec, &limit, why, sizeof why);
    if (blind)
        snprintf(
            route, sizeof route,
            "edge '%s' chooses its targets by route %s, whichever of them waits for items, and ",
            blind->name, exo_route_names[blind->route]);
    out->at = cycle->length ? cycle->edges[0]->node : NULL;
    snprintf(out->text, sizeof out->text, "%.250s%s (edges %.250s)", route, why,
             edges.data ? edges.data : "");
    exo_free(edges.data);
}

exo_status
exo_graph_prove(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_err *err)
{
    exo_port_cycle cycle;
    exo_search_limit limit;
    *out = (exo_proof){0};
    exo_status st = exo_prove_ports(spec, &cycle, err);
    if (st != EXO_OK || !cycle.found)
        return st;
    st = exo_prove_search(spec, effort, out, &limit, err);
    if (st == EXO_OK && out->verdict == EXO_NOT_PROVEN)
        say_what_is_missing(spec, &cycle, limit, out);
    return st;
}
