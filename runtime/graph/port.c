/* Ports: the functions of exogym/graph.h that an actor calls. They run on the actor's thread;
 * place.h has the state that they share with other threads. Read next: outlet.c, inlet.c. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "actor/hooks.h"
#include "graph/place.h"

/* --- The actor's place ------------------------------------------------------------------------ */

static exo_place *
place_of(const exo_graph_actor *actor)
{
    return (exo_place *)actor;
}

const char *
exo_graph_name(const exo_graph_actor *actor)
{
    return actor->name;
}

uint32_t
exo_graph_index(const exo_graph_actor *actor)
{
    return actor->index;
}

uint32_t
exo_graph_count(const exo_graph_actor *actor)
{
    return actor->count;
}

uint32_t
exo_graph_device_place(const exo_graph_actor *actor)
{
    const exo_place *place = place_of(actor);
    return place->runtime ? exo_actor_place(place->runtime, place->self, actor->index)
                          : actor->index;
}

uint32_t
exo_graph_life(const exo_graph_actor *actor)
{
    exo_place *place = place_of(actor);
    pthread_mutex_lock(&place->lock);
    uint32_t life = place->life;
    pthread_mutex_unlock(&place->lock);
    return life;
}

bool
exo_graph_resumes(const exo_graph_actor *actor)
{
    return actor->resumes;
}

uint64_t
exo_graph_run_number(const exo_graph_actor *actor)
{
    return actor->run;
}

uint64_t
exo_graph_seed(const exo_graph_actor *actor)
{
    return actor->site->spec->seed;
}

bool
exo_graph_is_virtual(const exo_graph_actor *actor)
{
    return actor->site->sim != NULL;
}

exo_time
exo_graph_now(const exo_graph_actor *actor)
{
    return exo_place_now(place_of(actor));
}

bool
exo_graph_cancelled(const exo_graph_actor *actor)
{
    exo_place *place = place_of(actor);
    pthread_mutex_lock(&place->lock);
    bool cancelled = place->cancelled || place->failed.code != EXO_OK;
    pthread_mutex_unlock(&place->lock);
    return cancelled;
}

const char *
exo_graph_folder(const exo_graph_actor *actor)
{
    return actor->site->folder;
}

void
exo_graph_phase(exo_graph_actor *actor, const char *name)
{
    exo_place *place = place_of(actor);
    exo_time cost = -1;
    for (size_t i = 0; name && i < place->spec->num_compute; i++)
        if (strcmp(place->spec->compute[i].phase, name) == 0)
            cost = place->spec->compute[i].cost;
    exo_pace_phase(&place->pace, name, cost);
}

exo_meters *
exo_graph_meters(exo_graph_actor *actor)
{
    return place_of(actor)->meters;
}

static exo_port *
find_port(exo_graph_actor *actor, const char *name, exo_port_direction direction, size_t *index)
{
    exo_place *place = place_of(actor);
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        const exo_graph_port *port = &place->spec->class->ports[i];
        if (port->direction != direction || strcmp(port->name, name) != 0)
            continue;
        pthread_mutex_lock(&place->lock); /* a change adds edges */
        bool used = place->ports[i].num_edges > 0;
        pthread_mutex_unlock(&place->lock);
        if (used) {
            *index = i;
            return &place->ports[i];
        }
    }
    return NULL;
}

exo_port *
exo_graph_output(exo_graph_actor *actor, const char *name)
{
    size_t index = 0;
    return find_port(actor, name, EXO_PORT_OUTPUT, &index);
}

exo_port *
exo_graph_input(exo_graph_actor *actor, const char *name)
{
    size_t index = 0;
    return find_port(actor, name, EXO_PORT_INPUT, &index);
}

exo_status
exo_graph_set_device(exo_graph_actor *actor, exo_device *device, exo_err *err)
{
    exo_place *p = place_of(actor);
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < p->spec->class->num_ports; i++)
        if (p->groups[i].group)
            st = exo_group_set_device(p->groups[i].group, device, err);
    return st;
}

exo_group *
exo_graph_group(exo_graph_actor *actor, const char *name)
{
    size_t index = 0;
    exo_port *port = find_port(actor, name, EXO_PORT_COLLECTIVE, &index);
    return port ? place_of(actor)->groups[index].group : NULL;
}

/* --- Sending ---------------------------------------------------------------------------------- */

/* The error that ends every call at a port, if any. */
static exo_status
check_locked(const exo_place *place, exo_err *err)
{
    if (place->failed.code != EXO_OK) {
        if (err)
            *err = place->failed;
        return place->failed.code;
    }
    return place->cancelled ? exo_fail(err, EXO_CANCELLED, "%s: the run ends", place->actor.name)
                            : EXO_OK;
}

/* The limit of a call at a port. `needs`: it waits at least as long as the edge's deadline, so its
 * item must come. With less patience the actor has something else to do. */
struct patience {
    exo_time deadline;
    bool needs;
};

static struct patience
patience_of(exo_place *place, const exo_port *port, exo_time timeout)
{
    exo_time now = exo_place_now(place), longest = 0;
    pthread_mutex_lock(&place->lock); /* a change adds edges */
    for (uint32_t e = 0; e < port->num_edges; e++)
        longest =
            port->edges[e]->edge->deadline > longest ? port->edges[e]->edge->deadline : longest;
    pthread_mutex_unlock(&place->lock);
    if (timeout == EXO_PORT_TIMEOUT)
        timeout = longest;
    return (struct patience){.deadline = timeout > INT64_MAX - now ? INT64_MAX : now + timeout,
                             .needs = timeout >= longest};
}

void
exo_outlet_put_locked(exo_outlet *o, exo_item *item)
{
    o->outbox[o->waiting++] =
        (struct exo_outgoing){.item = exo_item_hold(item), .number = o->number++};
    o->traffic->items++;
    exo_outlet_pump_locked(o);
}

/* True: no item can be sent to the receiver. It is gone, or the output was finished and only other
 * receivers' next lives have opened it again. */
static bool
is_shut(const exo_outlet *o)
{
    return o->gone || o->finished;
}

static void
drop_oldest_locked(exo_outlet *o)
{
    exo_item_drop(&o->outbox[0].item);
    memmove(&o->outbox[0], &o->outbox[1], (EXO_OUTBOX - 1) * sizeof o->outbox[0]);
    o->waiting--;
    o->traffic->drops++;
}

/* Tells of a wait for room, which begins. */
static void
begin_wait_locked(exo_outlet *o, bool ends_by_itself)
{
    exo_place *place = o->place;
    pthread_mutex_unlock(&place->lock);
    exo_pace_wait_begin(&place->pace, o->edge->name, EXO_SPAN_SEND_BLOCKED);
    pthread_mutex_lock(&place->lock);
    place->sending = true;
    exo_place_wait_begin_locked(
        place,
        (exo_place_wait){.kind = EXO_WAIT_SEND, .outlet = o, .ends_by_itself = ends_by_itself});
    exo_place_settle_locked(place);
}

static void
end_wait_locked(exo_outlet *o)
{
    exo_place *place = o->place;
    place->sending = false;
    exo_place_wait_end_locked(place);
    pthread_mutex_unlock(&place->lock);
    const exo_time blocked = exo_pace_wait_end(&place->pace);
    pthread_mutex_lock(&place->lock);
    o->traffic->send_blocked += blocked;
}

/* Puts an item into one outlet; on_full decides if the outbox is full. *taken: it was put in or dropped;
 * false: the receiver takes nothing over this channel. */
static exo_status
put_into_locked(exo_outlet *o, exo_item *item, struct patience patience, bool *taken, exo_err *err)
{
    exo_place *place = o->place;
    const exo_edge_spec *edge = o->edge;
    exo_status st = EXO_OK;
    bool waited = false;
    while (st == EXO_OK && !is_shut(o) && o->waiting == EXO_OUTBOX) {
        st = check_locked(place, err);
        if (st != EXO_OK)
            break;
        switch (edge->on_full) {
        case EXO_FULL_BLOCK:
            if (!waited) {
                waited = true;
                begin_wait_locked(o, !patience.needs);
            } else if (exo_place_now(place) >= patience.deadline) {
                st = exo_fail(err, EXO_TIMEOUT,
                              "edge %s: %s_%u takes nothing from %s in time: its 'deadline' is "
                              "%.6g s",
                              edge->name, place->actor.site->spec->actors[edge->to].name, o->to,
                              place->actor.name, (double)edge->deadline * 1e-9);
            } else {
                exo_place_wait_locked(place, o, patience.deadline);
            }
            break;
        case EXO_FULL_FAIL:
            st = exo_fail(err, EXO_FULL, "edge %s: the buffer of %s_%u is full", edge->name,
                          place->actor.site->spec->actors[edge->to].name, o->to);
            break;
        case EXO_FULL_DROP_NEWEST:
            o->number++;
            o->traffic->items++;
            o->traffic->drops++;
            *taken = true;
            return EXO_OK;
        case EXO_FULL_DROP_OLDEST:
        case EXO_FULL_LATEST:
            drop_oldest_locked(o);
            break;
        }
    }
    if (waited)
        end_wait_locked(o);
    *taken = st == EXO_OK && !is_shut(o);
    if (*taken)
        exo_outlet_put_locked(o, item);
    return st;
}

/* The outlet to the same receiver of the edge that a change has put in the place of the outlet's; NULL:
 * the edge is in use, or is gone. */
static exo_outlet *
successor_locked(const exo_port *port, const exo_outlet *o)
{
    for (uint32_t e = 0; e < port->num_edges; e++) {
        const exo_port_edge *edge = port->edges[e];
        if (edge->retired != UINT64_MAX || strcmp(edge->edge->name, o->edge->name) != 0)
            continue;
        for (uint32_t i = 0; i < edge->count; i++)
            if (edge->outlets[i].to == o->to)
                return &edge->outlets[i] == o ? NULL : &edge->outlets[i];
    }
    return NULL;
}

/* Sends an item to one outlet. If its edge is retired meanwhile, and the receiver dies, whose next life
 * does not know the channel, the item goes over the edge that has taken its place; *at is that outlet. */
static exo_status
send_to_locked(const exo_port *port, exo_outlet **at, exo_item *item, struct patience patience,
               exo_err *err)
{
    bool taken = false;
    exo_status st = put_into_locked(*at, item, patience, &taken, err);
    for (exo_outlet *o; st == EXO_OK && !taken && (o = successor_locked(port, *at));) {
        *at = o;
        st = put_into_locked(o, item, patience, &taken, err);
    }
    return st;
}

/* Credits without an item: a measure of how soon a new item leaves. */
static int64_t
room_locked(const exo_outlet *o)
{
    return (int64_t)o->credits + o->credits_coming - o->waiting - o->busy;
}

/* Chooses the outlet for an item of this edge, and counts the choice; NULL: all outlets. */
static exo_outlet *
choose_locked(exo_port_edge *edge, const exo_item *item)
{
    exo_place *place = edge->outlets[0].place;
    uint32_t index = place->actor.index, at = 0;
    uint64_t turn = edge->turn++;
    exo_rng rng;
    switch (edge->edge->route) {
    case EXO_ROUTE_BROADCAST:
    case EXO_ROUTE_ALL_REDUCE:
        return NULL;
    case EXO_ROUTE_ONE:
        break;
    case EXO_ROUTE_MODULO:
    case EXO_ROUTE_LISTED:
        at = (uint32_t)(turn % edge->count);
        break;
    case EXO_ROUTE_ROUND_ROBIN:
        /* different senders begin with different targets */
        at = (uint32_t)((index + turn) % edge->count);
        break;
    case EXO_ROUTE_HASH:
        at = (uint32_t)(item->key % edge->count);
        break;
    case EXO_ROUTE_LEAST_LOADED:
        for (uint32_t i = 1; i < edge->count; i++)
            if (is_shut(&edge->outlets[at]) ||
                (!is_shut(&edge->outlets[i]) &&
                 room_locked(&edge->outlets[i]) > room_locked(&edge->outlets[at])))
                at = i;
        break;
    case EXO_ROUTE_GOSSIP:
        exo_rng_init(&rng, place->actor.site->spec->seed, EXO_RNG_GOSSIP, index, turn);
        at = exo_rng_below(&rng, edge->count);
        break;
    }
    for (uint32_t i = 0; i < edge->count && is_shut(&edge->outlets[at]); i++)
        at = (at + 1) % edge->count; /* skips receivers that are gone */
    return &edge->outlets[at];
}

static bool
somebody_is_left_locked(const exo_port *port)
{
    for (uint32_t e = 0; e < port->num_edges; e++)
        for (uint32_t i = 0; i < port->edges[e]->count && port->edges[e]->retired == UINT64_MAX;
             i++)
            if (!is_shut(&port->edges[e]->outlets[i]))
                return true;
    return port->num_edges == 0;
}

static exo_status
send_over_locked(const exo_port *port, exo_port_edge *edge, exo_item *item,
                 struct patience patience, exo_err *err)
{
    if (edge->count == 0 || edge->sends++ % edge->edge->every != 0)
        return EXO_OK;
    exo_outlet *one = choose_locked(edge, item);
    if (one)
        return send_to_locked(port, &one, item, patience, err);
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < edge->count; i++) {
        one = &edge->outlets[i];
        st = send_to_locked(port, &one, item, patience, err);
    }
    return st;
}

/* Sends over the edges of the generation at the time of the call, because the graph may change
 * while the call waits for room. */
static exo_status
send_over_all_locked(exo_port *port, exo_item *item, struct patience patience, exo_err *err)
{
    exo_status st = EXO_OK;
    uint64_t generation = port->generation;
    port->inside = true;
    for (uint32_t e = 0; st == EXO_OK && e < port->num_edges; e++)
        if (port->edges[e]->born <= generation && generation < port->edges[e]->retired)
            st = send_over_locked(port, port->edges[e], item, patience, err);
    port->inside = false;
    exo_port_end_retired_locked(port);
    return st;
}

/* Begins a call that sends an item. Under the lock. */
static exo_status
begin_send_locked(const exo_port *port, exo_err *err)
{
    exo_status st = check_locked(port->place, err);
    return st == EXO_OK && port->finished
               ? exo_fail(err, EXO_CLOSED, "%s has finished its port '%s'", port->place->actor.name,
                          port->class_port->name)
               : st;
}

exo_status
exo_port_send(exo_port *port, exo_item **item, exo_time timeout, exo_err *err)
{
    exo_item *i = *item;
    *item = NULL;
    if (!port) {
        exo_item_drop(&i);
        return EXO_OK;
    }
    exo_place *place = port->place;
    if (place->pace.lane)
        exo_sim_sync(place->pace.lane);
    struct patience patience = patience_of(place, port, timeout);
    i->sent = exo_place_now(place);
    exo_status st = exo_item_mark(i, err);
    pthread_mutex_lock(&place->lock);
    st = st == EXO_OK ? begin_send_locked(port, err) : st;
    if (st == EXO_OK && port->class_port->retained) {
        exo_item_drop(&port->newest);
        port->newest = exo_item_hold(i);
    }
    if (st == EXO_OK)
        st = send_over_all_locked(port, i, patience, err);
    if (st == EXO_OK && !somebody_is_left_locked(port))
        st = exo_fail(err, EXO_CLOSED, "%s: nobody takes '%s' any more", place->actor.name,
                      port->class_port->name);
    pthread_mutex_unlock(&place->lock);
    exo_item_drop(&i);
    return st;
}

/* The outlet of a target, numbered over the edges in use; NULL: there is none. */
static exo_outlet *
target_locked(const exo_port *port, uint32_t target)
{
    for (uint32_t e = 0; e < port->num_edges; e++) {
        const exo_port_edge *edge = port->edges[e];
        if (edge->retired != UINT64_MAX)
            continue;
        if (target < edge->count)
            return &edge->outlets[target];
        target -= edge->count;
    }
    return NULL;
}

static exo_status
send_to_target_locked(exo_port *port, uint32_t target, exo_item *item, struct patience patience,
                      exo_err *err)
{
    exo_outlet *o = target_locked(port, target);
    if (!o)
        return exo_fail(err, EXO_INVAL, "%s: the port '%s' has no target %u",
                        port->place->actor.name, port->class_port->name, target);
    if (o->edge->every > 1)
        return exo_fail(
            err, EXO_INVAL,
            "edge %s: 'every' does not fit this edge, because %s chooses who gets what: "
            "leave 'every' out",
            o->edge->name, port->place->actor.name);
    port->inside = true;
    exo_status st = send_to_locked(port, &o, item, patience, err);
    port->inside = false;
    bool gone = is_shut(o);
    const char *edge = o->edge->name;
    exo_port_end_retired_locked(port);
    return st == EXO_OK && gone
               ? exo_fail(err, EXO_CLOSED, "edge %s: target %u takes nothing any more", edge,
                          target)
               : st;
}

exo_status
exo_port_send_to(exo_port *port, uint32_t target, exo_item **item, exo_time timeout, exo_err *err)
{
    exo_item *i = *item;
    *item = NULL;
    if (!port) {
        exo_item_drop(&i);
        return exo_fail(err, EXO_INVAL, "a port without an edge has no target");
    }
    exo_place *place = port->place;
    if (place->pace.lane)
        exo_sim_sync(place->pace.lane);
    struct patience patience = patience_of(place, port, timeout);
    i->sent = exo_place_now(place);
    exo_status st = exo_item_mark(i, err);
    pthread_mutex_lock(&place->lock);
    st = st == EXO_OK ? begin_send_locked(port, err) : st;
    if (st == EXO_OK)
        st = send_to_target_locked(port, target, i, patience, err);
    pthread_mutex_unlock(&place->lock);
    exo_item_drop(&i);
    return st;
}

uint32_t
exo_port_targets(const exo_port *port)
{
    uint32_t count = 0;
    if (!port)
        return 0;
    pthread_mutex_lock(&port->place->lock);
    for (uint32_t e = 0; e < port->num_edges; e++)
        count += port->edges[e]->retired == UINT64_MAX ? port->edges[e]->count : 0;
    pthread_mutex_unlock(&port->place->lock);
    return count;
}

bool
exo_port_target(const exo_port *port, uint32_t target, char *name, size_t size, uint32_t *index)
{
    if (!port)
        return false;
    exo_place *place = port->place;
    pthread_mutex_lock(&place->lock);
    const exo_outlet *o = target_locked(port, target);
    bool there = o && !o->gone;
    if (there) {
        *index = o->to;
        snprintf(name, size, "%s_%u", place->actor.site->spec->actors[o->edge->to].name, o->to);
    }
    pthread_mutex_unlock(&place->lock);
    return there;
}

uint32_t
exo_port_target_life(const exo_port *port, uint32_t target)
{
    if (!port)
        return 0;
    pthread_mutex_lock(&port->place->lock);
    const exo_outlet *o = target_locked(port, target);
    uint32_t life = o ? o->peer_life : 0;
    pthread_mutex_unlock(&port->place->lock);
    return life;
}

bool
exo_graph_may_restart(const exo_graph_actor *actor)
{
    return place_of(actor)->spec->restart.when != EXO_RESTART_NEVER;
}

bool
exo_port_may_restart(const exo_port *port)
{
    bool may = false;
    if (!port)
        return false;
    exo_place *place = port->place;
    const exo_graph_spec *spec = place->actor.site->spec;
    pthread_mutex_lock(&place->lock);
    for (uint32_t e = 0; e < port->num_edges; e++) {
        const exo_edge_spec *edge = port->edges[e]->edge;
        uint32_t other = port->class_port->direction == EXO_PORT_OUTPUT ? edge->to : edge->from;
        may = may || spec->actors[other].restart.when != EXO_RESTART_NEVER;
    }
    pthread_mutex_unlock(&place->lock);
    return may;
}

/* --- Receiving -------------------------------------------------------------------------------- */

/* Takes the first arrival, and grants its sender the room. */
static void
take_locked(exo_port *port, exo_item **out, exo_inlet **inlet)
{
    exo_arrival *a = port->first;
    exo_inlet *in = *inlet = a->inlet;
    port->first = a->next;
    if (!port->first)
        port->last = NULL;
    in->buffered--;
    *out = a->item;
    exo_free(a);
    exo_inlet_settle_locked(in);
}

static bool
all_have_ended_locked(const exo_port *port)
{
    for (uint32_t e = 0; e < port->num_edges; e++)
        for (uint32_t i = 0; i < port->edges[e]->count; i++)
            if (!port->edges[e]->inlets[i].ended)
                return false;
    return true;
}

/* A wait as long as the longest deadline of the port's edges says which edge to change. */
static exo_status
nothing_came(const exo_port *port, struct patience patience, exo_err *err)
{
    const char *actor = port->place->actor.name, *input = port->class_port->name;
    if (!patience.needs)
        return exo_fail(err, EXO_TIMEOUT, "%s: nothing came to '%s' in time", actor, input);
    const exo_edge_spec *slowest = port->edges[0]->edge;
    for (uint32_t e = 1; e < port->num_edges; e++)
        if (port->edges[e]->edge->deadline > slowest->deadline)
            slowest = port->edges[e]->edge;
    return exo_fail(err, EXO_TIMEOUT,
                    "%s: nothing came to '%s' in time: the deadline of edge %s is %.6g s; set its "
                    "'deadline' higher for slower actors or links",
                    actor, input, slowest->name, (double)slowest->deadline * 1e-9);
}

static exo_status
receive_locked(exo_port *port, struct patience patience, exo_item **out, exo_inlet **inlet,
               exo_err *err)
{
    exo_place *place = port->place;
    exo_time deadline = patience.deadline;
    bool waited = false;
    exo_status st = EXO_OK;
    for (;;) {
        exo_time now = exo_place_now(place);
        st = check_locked(place, err);
        if (st != EXO_OK)
            break;
        if (port->first && port->first->ready <= now) {
            /* take_locked opens the lock to grant the room: from here on, a search for stalls must
             * not see a wait whose item is gone from the port. */
            if (waited)
                exo_place_wait_end_locked(place);
            take_locked(port, out, inlet);
            break;
        }
        if (!port->first && (port->finished || all_have_ended_locked(port))) {
            st = exo_fail(err, EXO_CLOSED, "%s: all who send '%s' have ended", place->actor.name,
                          port->class_port->name);
            break;
        }
        if (now >= deadline) {
            st = nothing_came(port, patience, err);
            break;
        }
        if (!waited) {
            waited = true;
            const char *edge = port->edges[0]->edge->name;
            pthread_mutex_unlock(&place->lock);
            exo_pace_wait_begin(&place->pace, edge, EXO_SPAN_RECV_BLOCKED);
            pthread_mutex_lock(&place->lock);
            exo_place_wait_begin_locked(place, (exo_place_wait){.kind = EXO_WAIT_RECEIVE,
                                                                .port = port,
                                                                .ends_by_itself = !patience.needs});
            continue;
        }
        exo_place_wait_locked(place, port,
                              port->first && port->first->ready < deadline ? port->first->ready
                                                                           : deadline);
    }
    if (waited) {
        exo_place_wait_end_locked(place);
        pthread_mutex_unlock(&place->lock);
        exo_time blocked = exo_pace_wait_end(&place->pace);
        pthread_mutex_lock(&place->lock);
        port->edges[0]->traffic.recv_blocked += blocked;
    }
    return st;
}

exo_status
exo_port_receive(exo_port *port, exo_time timeout, exo_item **out, exo_err *err)
{
    *out = NULL;
    if (!port)
        return exo_fail(err, EXO_CLOSED, "no edge leads to this port");
    exo_place *place = port->place;
    if (place->pace.lane)
        exo_sim_sync(place->pace.lane);
    struct patience patience = patience_of(place, port, timeout);
    exo_status st = EXO_PEER_LOST;
    while (st == EXO_PEER_LOST) { /* an item whose arrays died with its sender has never come */
        exo_inlet *inlet = NULL;
        exo_item_drop(out);
        pthread_mutex_lock(&place->lock);
        st = receive_locked(port, patience, out, &inlet, err);
        pthread_mutex_unlock(&place->lock);
        exo_joint_sweep();
        if (st != EXO_OK)
            return st;
        st = exo_port_land(port, inlet, *out, err);
    }
    if (st != EXO_OK)
        exo_item_drop(out);
    return st;
}

size_t
exo_port_pending(const exo_port *port)
{
    size_t count = 0;
    if (!port)
        return 0;
    exo_place *place = port->place;
    if (place->pace.lane)
        exo_sim_sync(place->pace.lane);
    exo_time now = exo_place_now(place);
    pthread_mutex_lock(&place->lock);
    for (const exo_arrival *a = port->first; a && a->ready <= now; a = a->next)
        count++;
    pthread_mutex_unlock(&place->lock);
    return count;
}
