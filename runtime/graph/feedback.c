/* Feedback edges: where a sender may be let in beyond the capacity of a buffer, so that no circle of senders waits (docs/channels.md, rule
 * 2). No state. */
#include "spec.h"

#include <string.h>

#include <exogym/memory.h>

static bool
blocks(const exo_edge_spec *edge)
{
    return edge->route != EXO_ROUTE_ALL_REDUCE && edge->on_full == EXO_FULL_BLOCK;
}

static bool
is_initial(const exo_edge_spec *edge)
{
    return edge->output && edge->output->initial;
}

/* Is there a way from actor `at` to `to` over edges that block, initial ones left out if `without_initial`? `seen` (num_actors) is 0. */
static bool
leads_to(const exo_graph_spec *spec, uint32_t at, uint32_t to, bool without_initial, bool *seen)
{
    if (at == to)
        return true;
    seen[at] = true;
    for (size_t e = 0; e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        if (edge->from == at && blocks(edge) && !(without_initial && is_initial(edge)) && !seen[edge->to] &&
            leads_to(spec, edge->to, to, without_initial, seen))
            return true;
    }
    return false;
}

void
exo_graph_mark_feedback(exo_graph_spec *spec)
{
    bool *seen = exo_calloc(spec->num_actors + 1, sizeof *seen);
    for (size_t e = 0; e < spec->num_edges; e++) {
        exo_edge_spec *edge = &spec->edges[e];
        if (!blocks(edge))
            continue;
        if (!seen) { /* no memory to find out: more of them than needed do no harm */
            edge->feedback = true;
            continue;
        }
        memset(seen, 0, spec->num_actors * sizeof *seen);
        edge->feedback = leads_to(spec, edge->to, edge->from, !is_initial(edge), seen);
    }
    exo_free(seen);
}
