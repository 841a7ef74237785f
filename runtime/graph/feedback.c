/* Feedback edges: on these, a sender may exceed the capacity of a buffer, so that no cycle of
 * senders can wait (docs/channels.md, rule 2). No state. */
#include "graph/spec.h"

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

/* The memory of a breadth-first search. */
struct search {
    bool *seen;      /* (num_actors) */
    uint32_t *queue; /* (num_actors) reached actors, in the order of the search */
};

/* True: a path of blocking edges leads from actor `from` to `to`. without_initial: initial edges
 * are left out. */
static bool
leads_to(const exo_graph_spec *spec, const struct search *s, uint32_t from, uint32_t to,
         bool without_initial)
{
    size_t reached = 1;
    memset(s->seen, 0, spec->num_actors * sizeof *s->seen);
    s->queue[0] = from;
    s->seen[from] = true;
    for (size_t at = 0; at < reached && !s->seen[to]; at++) {
        for (size_t e = 0; e < spec->num_edges; e++) {
            const exo_edge_spec *edge = &spec->edges[e];
            if (edge->from != s->queue[at] || s->seen[edge->to] || !blocks(edge) ||
                (without_initial && is_initial(edge)))
                continue;
            s->seen[edge->to] = true;
            s->queue[reached++] = edge->to;
        }
    }
    return s->seen[to];
}

void
exo_graph_mark_feedback(exo_graph_spec *spec)
{
    const struct search search = {.seen = exo_calloc(spec->num_actors + 1, sizeof *search.seen),
                                  .queue = exo_calloc(spec->num_actors + 1, sizeof *search.queue)};
    for (size_t e = 0; e < spec->num_edges; e++) {
        exo_edge_spec *edge = &spec->edges[e];
        if (!blocks(edge))
            continue;
        /* without memory, every edge becomes a feedback edge, which is safe */
        if (!search.seen || !search.queue) {
            edge->feedback = true;
            continue;
        }
        edge->feedback = leads_to(spec, &search, edge->to, edge->from, !is_initial(edge));
    }
    exo_free(search.seen);
    exo_free(search.queue);
}
