/* Another life of an actor, at the ends of its channels (place.h, decision 40).
 *
 *   the new life's own ends       exo_place_begin_life in the same process; a new process makes a new
 *                                 place
 *   the peers' ends               exo_place_relink, before the new life runs
 *
 * Both ends begin as they do at the start of a run: all credits are at the sender, and no word was
 * said. Messages name both lives; those of another pair of lives are late, and are ignored
 * (inlet.c). So nothing that is under way has to be recalled. Items that have arrived stay with the
 * receiver, and items that still wait in the outbox go to the new life. */
#include <exogym/memory.h>

#include "graph/place.h"

/* Joins the thread of an outlet that has said its last word: the thread has ended. */
static void
join_ended_thread(exo_outlet *o)
{
    pthread_mutex_lock(&o->place->lock);
    bool join = o->has_thread && o->ended;
    pthread_t thread = o->thread;
    if (join)
        o->has_thread = false;
    pthread_mutex_unlock(&o->place->lock);
    if (join)
        pthread_join(thread, NULL);
}

static void
drop_outbox_locked(exo_outlet *o)
{
    for (uint32_t i = 0; i < o->waiting; i++) {
        exo_item_drop(&o->outbox[i].item);
        o->traffic->drops++;
    }
    o->waiting = 0;
}

static void
open_outlet_locked(exo_outlet *o, bool closed)
{
    o->credits = o->capacity;
    o->credits_coming = 0;
    o->gone = o->ending = o->ended = closed;
    o->reach = EXO_REACH_UNKNOWN;
    if (closed)
        drop_outbox_locked(o);
}

/* --- The peers' ends -------------------------------------------------------------------------- */

/* A receiver that is alone, or gets everything, gets what was sent last. */
static exo_item *
retained_locked(const exo_port *port, const exo_port_edge *edge, const exo_outlet *o)
{
    bool gets = edge->count == 1 || edge->edge->route == EXO_ROUTE_BROADCAST;
    return gets && o->waiting == 0 && !o->finished && !o->gone ? port->newest : NULL;
}

static void
relink_outlet(exo_port *port, exo_port_edge *edge, exo_outlet *o, uint16_t life, exo_ref ref)
{
    exo_place *place = o->place;
    join_ended_thread(o);
    pthread_mutex_lock(&place->lock);
    bool closed = edge->retired != UINT64_MAX; /* the new life does not know this channel */
    o->peer_life = life;
    o->target = ref;
    o->node = exo_place_node_of(place, ref);
    o->connected = false; /* until it starts */
    o->finished = place->returned;
    port->finished = place->returned;
    open_outlet_locked(o, closed);
    o->left = 0; /* nothing has left for this life */
    exo_item *last = retained_locked(port, edge, o);
    if (last)
        exo_outlet_put_locked(o, last);
    exo_place_signal_locked(place, o, exo_place_now(place));
    exo_place_signal_locked(place, place, exo_place_now(place));
    pthread_mutex_unlock(&place->lock);
    if (closed ||
        (place->runtime && !ref.id)) /* such a life has not begun: the next one is told of */
        return;
    exo_err reason = {0};
    if (exo_outlet_start(o, &reason) != EXO_OK)
        exo_place_fail(place, &reason);
    if (place->actor.site->sim) {
        pthread_mutex_lock(&place->lock);
        exo_outlet_pump_locked(o);
        pthread_mutex_unlock(&place->lock);
    }
}

static void
relink_inlet(exo_port *port, const exo_port_edge *edge, exo_inlet *in, uint16_t life, exo_ref ref)
{
    exo_place *place = in->place;
    pthread_mutex_lock(&place->lock);
    in->peer_life = life;
    in->sender = ref;
    in->node = exo_place_node_of(place, ref);
    in->expected = 0;
    in->out = edge->edge->capacity;
    in->lost = false;
    in->ended = in->gone = edge->retired != UINT64_MAX;
    exo_place_signal_locked(place, port, exo_place_now(place));
    pthread_mutex_unlock(&place->lock);
}

void
exo_place_relink(exo_place *place, uint32_t spec_index, uint32_t index, uint16_t life, exo_ref ref)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        exo_port *port = &place->ports[i];
        /* The newest edges first: an item that waits at a retired one goes over them (port.c). */
        for (uint32_t e = port->num_edges; e-- > 0;) {
            exo_port_edge *edge = port->edges[e];
            for (uint32_t k = 0; k < edge->count; k++) {
                if (edge->outlets && edge->edge->to == spec_index && edge->outlets[k].to == index)
                    relink_outlet(port, edge, &edge->outlets[k], life, ref);
                if (edge->inlets && edge->edge->from == spec_index && edge->inlets[k].from == index)
                    relink_inlet(port, edge, &edge->inlets[k], life, ref);
            }
        }
    }
}

/* Ends a channel with an actor that takes nothing and sends nothing any more. */
static void
close_ends_locked(const exo_port_edge *edge, uint32_t k)
{
    if (edge->outlets) {
        open_outlet_locked(&edge->outlets[k], true);
        edge->outlets[k].finished = true;
    }
    if (edge->inlets && !edge->inlets[k].ended)
        edge->inlets[k].ended = edge->inlets[k].lost = true;
}

/* Whether end `k` of an edge is that of a channel with actor `index` of spec->actors[spec_index]. */
static bool
leads_to(const exo_port_edge *edge, uint32_t k, uint32_t spec_index, uint32_t index)
{
    return edge->outlets ? edge->edge->to == spec_index && edge->outlets[k].to == index
                         : edge->edge->from == spec_index && edge->inlets[k].from == index;
}

void
exo_place_set_peer(exo_place *place, uint32_t spec_index, uint32_t index, uint16_t life, bool ended)
{
    pthread_mutex_lock(&place->lock);
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++) {
            exo_port_edge *edge = place->ports[i].edges[e];
            for (uint32_t k = 0; k < edge->count; k++) {
                if (!leads_to(edge, k, spec_index, index))
                    continue;
                if (edge->outlets)
                    edge->outlets[k].peer_life = life;
                else
                    edge->inlets[k].peer_life = life;
                if (ended)
                    close_ends_locked(edge, k);
            }
        }
    pthread_mutex_unlock(&place->lock);
}

void
exo_place_lose(exo_place *place, uint32_t spec_index, uint32_t index)
{
    pthread_mutex_lock(&place->lock);
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        exo_port *port = &place->ports[i];
        for (uint32_t e = 0; e < port->num_edges; e++)
            for (uint32_t k = 0; k < port->edges[e]->count; k++) {
                if (!leads_to(port->edges[e], k, spec_index, index))
                    continue;
                close_ends_locked(port->edges[e], k);
                if (port->edges[e]->outlets)
                    exo_place_signal_locked(place, &port->edges[e]->outlets[k],
                                            exo_place_now(place));
            }
        exo_place_signal_locked(place, port, exo_place_now(place));
    }
    exo_place_signal_locked(place, place, exo_place_now(place));
    pthread_mutex_unlock(&place->lock);
}

/* --- The own ends ----------------------------------------------------------------------------- */

static void
empty_port_locked(exo_port *port)
{
    for (exo_arrival *next; port->first; port->first = next) {
        next = port->first->next;
        exo_item_drop(&port->first->item);
        exo_free(port->first);
    }
    port->last = NULL;
    exo_item_drop(&port->newest);
    port->finished = port->inside = false;
    port->device = NULL;
}

static void
begin_edge_locked(exo_port_edge *edge)
{
    bool closed = edge->retired != UINT64_MAX;
    edge->sends = edge->turn = 0;
    for (uint32_t k = 0; k < edge->count; k++) {
        if (edge->inlets) {
            exo_inlet *in = &edge->inlets[k];
            in->expected = in->buffered = 0;
            in->out = edge->edge->capacity;
            in->ended = in->gone = closed;
            in->lost = false;
        }
        if (edge->outlets) {
            exo_outlet *o = &edge->outlets[k];
            drop_outbox_locked(o);
            open_outlet_locked(o, closed);
            o->number = o->left = 0;
            o->finished = closed;
        }
    }
}

void
exo_place_begin_life(exo_place *place, uint16_t life)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++)
                exo_outlet_stop(&place->ports[i].edges[e]->outlets[k]);
    pthread_mutex_lock(&place->lock);
    place->life = life;
    place->regroups = place->returned = false;
    place->failed = (exo_err){0};
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        empty_port_locked(&place->ports[i]);
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            begin_edge_locked(place->ports[i].edges[e]);
    }
    pthread_mutex_unlock(&place->lock);
}
