/* Reduces a declared order to its steps in a graph: see prove_impl.h. No state. */
#include "graph/prove_impl.h"

/* True: an edge of the graph begins or ends at this port of the actor. */
static bool
is_used(const exo_graph_spec *spec, uint32_t actor, const exo_graph_port *port)
{
    for (size_t e = 0; e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        if ((port->direction == EXO_PORT_INPUT ? edge->to == actor && edge->input == port
                                               : edge->from == actor && edge->output == port) &&
            (edge->route == EXO_ROUTE_ALL_REDUCE) == (port->direction == EXO_PORT_COLLECTIVE))
            return true;
    }
    return false;
}

/* Copies the action at `at`, or the alternatives that begin there, if the graph uses their ports;
 * returns the index of the next step. */
static uint32_t
copy_actions(exo_order *out, const exo_graph_spec *spec, uint32_t actor, uint32_t at)
{
    const exo_order *order = spec->actors[actor].order;
    uint32_t first = out->length;
    for (bool more = true; more; at++) {
        const exo_order_step *step = &order->steps[at];
        more = step->or_next;
        if (!is_used(spec, actor, &spec->actors[actor].class->ports[step->port]))
            continue;
        out->steps[out->length] = *step;
        out->steps[out->length++].or_next = true;
    }
    if (out->length > first)
        out->steps[out->length - 1].or_next = false;
    return at;
}

/* Copies the steps from `at` up to `end`. Drops a loop that becomes empty, unless it is endless. */
static void
copy_steps(exo_order *out, const exo_graph_spec *spec, uint32_t actor, uint32_t at, uint32_t end)
{
    const exo_order *order = spec->actors[actor].order;
    while (at < end) {
        const exo_order_step *step = &order->steps[at];
        if (step->kind != EXO_ORDER_LOOP) {
            at = copy_actions(out, spec, actor, at);
            continue;
        }
        uint32_t begin = out->length;
        out->steps[out->length++] = *step;
        if (step->count > 0)
            copy_steps(out, spec, actor, at + 1, step->other);
        at = step->other + 1;
        if (out->length == begin + 1 && step->count != EXO_ORDER_ENDLESS) {
            out->length = begin;
            continue;
        }
        out->steps[begin].other = out->length;
        out->steps[out->length] = order->steps[step->other];
        out->steps[out->length++].other = begin;
    }
}

void
exo_prove_order(exo_order *out, const exo_graph_spec *spec, uint32_t actor)
{
    out->length = 0;
    copy_steps(out, spec, actor, 0, spec->actors[actor].order->length);
}
