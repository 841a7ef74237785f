/* Finds out which waits can lead to which: see prove.h. No state outlives a call.
 *
 * A node is an actor name and a port at which its actors may wait. An arrow leads from a wait to
 * each wait of the actor at the other end that can prolong it. An arrow is left out if both waits
 * cannot last at the same time:
 *
 * - A wait for room at an input. The receiver does not wait at that input, because the input has
 *   items.
 * - A wait for room on a feedback edge. The receiver does not wait in a send (docs/channels.md,
 *   rule 2).
 * - A wait for room at members of a collective, if the route is round_robin or broadcast, every
 *   member takes equally many items between two calls, and the members are no more than the
 *   buffer's capacity and 3. The receiver does not wait in the collective: it has taken no more
 *   items than the other members, and the member that it waits for is not so far behind that all
 *   senders are stuck elsewhere.
 * - A wait in a collective whose members declare their order. The other members do not wait in
 *   another collective, because all reach the collectives in one order.
 * - A wait for an item. A sender with one target does not wait to send that item.
 *
 * A stall is a cycle of waits, and every such cycle follows a cycle of arrows. */
#include "graph/prove_impl.h"

#include <string.h>

#include <exogym/memory.h>

struct wait {
    uint32_t actor;
    const exo_graph_port *port;
};

struct ports {
    const exo_graph_spec *spec;
    struct wait *waits;
    size_t num_waits;
    const exo_edge_spec **path;
    size_t *on_path; /* indices of waits */
    unsigned char *seen;
    exo_port_cycle *out;
};

static bool
is_collective(const exo_edge_spec *edge)
{
    return edge->route == EXO_ROUTE_ALL_REDUCE;
}

/* True: the class may wait at this port. A class without a declared order may wait at every output
 * and collective, and at inputs that block. */
static bool
may_use(const exo_actor_spec *actor, const exo_graph_port *port)
{
    const exo_order *order = actor->order;
    if (!order)
        return port->direction != EXO_PORT_INPUT || port->blocking;
    for (uint32_t i = 0; i < order->length; i++)
        if (order->steps[i].kind < EXO_ORDER_POLL &&
            &actor->class->ports[order->steps[i].port] == port)
            return true;
    return false;
}

static bool
may_wait(const exo_graph_spec *spec, uint32_t a, const exo_graph_port *port)
{
    for (size_t e = 0; e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        bool here = port->direction == EXO_PORT_OUTPUT
                        ? edge->from == a && edge->output == port && !is_collective(edge) &&
                              edge->on_full == EXO_FULL_BLOCK
                    : port->direction == EXO_PORT_INPUT
                        ? edge->to == a && edge->input == port && !is_collective(edge)
                        : edge->from == a && edge->output == port && spec->actors[a].count > 1;
        if (here)
            return may_use(&spec->actors[a], port);
    }
    return false;
}

/* True: every sender of the edge has one target, and no other edge leaves its port. */
static bool
has_one_target(const exo_graph_spec *spec, const exo_edge_spec *edge)
{
    for (size_t e = 0; e < spec->num_edges; e++)
        if (&spec->edges[e] != edge && spec->edges[e].from == edge->from &&
            spec->edges[e].output == edge->output)
            return false;
    for (uint32_t i = 0; i < spec->actors[edge->from].count; i++)
        if (exo_edge_targets(spec, edge, i, NULL) > 1)
            return false;
    return true;
}

/* True: the actor decides how many items it takes at the port. */
static bool
takes_at_will(const exo_actor_spec *actor, const exo_graph_port *port)
{
    for (uint32_t i = 0; i < actor->order->length; i++) {
        const exo_order_step *step = &actor->order->steps[i];
        if (step->or_next ||
            (step->kind == EXO_ORDER_POLL && &actor->class->ports[step->port] == port))
            return true;
    }
    return false;
}

/* True: all members of a collective get equally many items, so that no member waits in it while the
 * items of another are stuck. */
static bool
is_balanced(const exo_graph_spec *spec, const exo_edge_spec *edge)
{
    const exo_actor_spec *to = &spec->actors[edge->to];
    size_t into = 0;
    for (size_t e = 0; e < spec->num_edges; e++)
        into += spec->edges[e].to == edge->to && spec->edges[e].input == edge->input;
    return (edge->route == EXO_ROUTE_ROUND_ROBIN || edge->route == EXO_ROUTE_BROADCAST) &&
           to->order && !takes_at_will(to, edge->input) && into == 1 && edge->from != edge->to &&
           to->count <= (uint64_t)edge->capacity + 3;
}

/* True: `to`, a wait at the other end of `edge`, can prolong the wait `from`. */
static bool
can_keep(const exo_graph_spec *spec, const struct wait *from, const struct wait *to,
         const exo_edge_spec *edge)
{
    switch (from->port->direction) {
    case EXO_PORT_OUTPUT:
        if (edge->on_full != EXO_FULL_BLOCK || to->actor != edge->to || to->port == edge->input)
            return false;
        if (to->port->direction == EXO_PORT_OUTPUT)
            return !edge->feedback;
        return to->port->direction == EXO_PORT_INPUT || !is_balanced(spec, edge);
    case EXO_PORT_INPUT:
        return to->actor == edge->from && !(to->port == edge->output && has_one_target(spec, edge));
    case EXO_PORT_COLLECTIVE:
        return to->actor == from->actor && to->port != from->port &&
               !(to->port->direction == EXO_PORT_COLLECTIVE && spec->actors[to->actor].order);
    }
    return false;
}

static bool
is_at(const struct wait *wait, const exo_edge_spec *edge)
{
    if (is_collective(edge) != (wait->port->direction == EXO_PORT_COLLECTIVE))
        return false;
    return wait->port->direction == EXO_PORT_INPUT
               ? edge->to == wait->actor && edge->input == wait->port
               : edge->from == wait->actor && edge->output == wait->port;
}

static void
tell_cycle(struct ports *p, size_t length, size_t back_to)
{
    size_t first = 0;
    while (p->on_path[first] != back_to)
        first++;
    p->out->found = true;
    for (size_t i = first; i < length; i++) {
        const struct wait *wait = &p->waits[p->on_path[i]];
        if (!p->spec->actors[wait->actor].order && !p->out->undeclared) {
            p->out->undeclared = true;
            p->out->actor = wait->actor;
        }
        if (p->out->length < sizeof p->out->edges / sizeof *p->out->edges)
            p->out->edges[p->out->length++] = p->path[i];
    }
}

/* Searches in depth; the depth is at most the number of waits. */
static void
search_from(struct ports *p, size_t at, size_t depth)
{
    p->seen[at] = 1;
    p->on_path[depth] = at;
    for (size_t e = 0; e < p->spec->num_edges && !p->out->found; e++) {
        const exo_edge_spec *edge = &p->spec->edges[e];
        if (!is_at(&p->waits[at], edge))
            continue;
        p->path[depth] = edge;
        for (size_t next = 0; next < p->num_waits && !p->out->found; next++) {
            if (p->seen[next] == 2 || !can_keep(p->spec, &p->waits[at], &p->waits[next], edge))
                continue;
            if (p->seen[next] == 1)
                tell_cycle(p, depth + 1, next);
            else
                search_from(p, next, depth + 1);
        }
    }
    p->seen[at] = 2;
}

exo_status
exo_prove_ports(const exo_graph_spec *spec, exo_port_cycle *out, exo_err *err)
{
    size_t room = 0;
    *out = (exo_port_cycle){0};
    for (size_t a = 0; a < spec->num_actors; a++)
        room += spec->actors[a].class->num_ports;
    struct ports p = {.spec = spec,
                      .out = out,
                      .waits = exo_calloc(room + 1, sizeof *p.waits),
                      .path = exo_calloc(room + 1, sizeof *p.path),
                      .on_path = exo_calloc(room + 1, sizeof *p.on_path),
                      .seen = exo_calloc(room + 1, sizeof *p.seen)};
    exo_status st = p.waits && p.path && p.on_path && p.seen
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (uint32_t a = 0; st == EXO_OK && a < spec->num_actors; a++)
        for (size_t i = 0; i < spec->actors[a].class->num_ports; i++)
            if (may_wait(spec, a, &spec->actors[a].class->ports[i]))
                p.waits[p.num_waits++] =
                    (struct wait){.actor = a, .port = &spec->actors[a].class->ports[i]};
    for (size_t i = 0; st == EXO_OK && i < p.num_waits && !out->found; i++)
        if (!p.seen[i])
            search_from(&p, i, 0);
    exo_free(p.waits);
    exo_free(p.path);
    exo_free(p.on_path);
    exo_free(p.seen);
    return st;
}
