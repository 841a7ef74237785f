/* Places (place.h): their life, time and waits. port.c has the actor's side. */
#include "graph/place.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/waiting.h"
#include "comm/choose.h"

exo_time
exo_place_now(const exo_place *place)
{
    return exo_now(place->actor.site->clock) - place->actor.site->origin;
}

void
exo_place_wait_locked(exo_place *place, const void *what, exo_time until)
{
    const exo_site *site = place->actor.site;
    exo_time at = until > INT64_MAX - site->origin ? INT64_MAX : until + site->origin;
    if (site->sim) {
        place->waiting = true;
        pthread_mutex_unlock(&place->lock);
        exo_sim_wait(place->pace.lane, at);
        pthread_mutex_lock(&place->lock);
        place->waiting = false;
        return;
    }
    place->awaited = what;
    exo_condition_wait_until(&place->changed, &place->lock, at);
    place->awaited = NULL;
}

void
exo_place_signal_locked(exo_place *place, const void *what, exo_time at)
{
    const exo_site *site = place->actor.site;
    place->moves++;
    if (!site->sim && place->awaited == what)
        pthread_cond_signal(&place->changed);
    else if (site->sim && place->waiting)
        exo_sim_wake(place->pace.lane, at + site->origin);
}

/* Wakes every thread of the place, which is to end. */
static void
wake_all_locked(exo_place *place)
{
    exo_place_signal_locked(place, place->awaited, 0);
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++)
                exo_outlet_wake_locked(&place->ports[i].edges[e]->outlets[k]);
}

void
exo_place_wait_begin_locked(exo_place *place, exo_place_wait wait)
{
    place->wait = wait;
    place->wait.since = exo_place_now(place);
    place->moves++;
}

void
exo_place_wait_end_locked(exo_place *place)
{
    place->wait = (exo_place_wait){0};
    place->moves++;
}

exo_comm *
exo_place_comm(const exo_place *place, size_t i)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&place->lock;
    pthread_mutex_lock(lock);
    exo_comm *comm = place->groups[i].comm;
    pthread_mutex_unlock(lock);
    return comm;
}

void
exo_place_fail_collectives(exo_place *p, const char *cause)
{
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        exo_comm *comm = exo_place_comm(p, i);
        if (comm)
            exo_comm_fail(comm, p->actor.index, cause);
    }
}

void
exo_place_leave_collectives(exo_place *p)
{
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        exo_group *group = NULL;
        exo_comm *comm = exo_place_comm(p, i);
        if (!comm || !exo_comm_is_foreign(exo_comm_engine_of(comm)))
            continue;
        pthread_mutex_lock(&p->lock);
        group = p->groups[i].group;
        p->groups[i].group = NULL;
        if (group) {
            p->groups[i].has_left = true;
            p->groups[i].left = exo_group_traffic(group);
        }
        pthread_mutex_unlock(&p->lock);
        exo_group_close(&group);
    }
}

bool
exo_place_hears_collective(const exo_place *p, size_t i)
{
    const exo_comm *comm = exo_place_comm(p, i);
    const exo_engine_class *engine = comm ? exo_comm_engine_of(comm) : NULL;
    return comm && !p->actor.site->whole &&
           (!exo_comm_is_foreign(engine) || exo_comm_engine_posts(engine));
}

void
exo_place_cancel(exo_place *place)
{
    pthread_mutex_lock(&place->lock);
    place->cancelled = true;
    wake_all_locked(place);
    pthread_mutex_unlock(&place->lock);
}

void
exo_place_fail(exo_place *place, const exo_err *reason)
{
    pthread_mutex_lock(&place->lock);
    if (place->failed.code == EXO_OK)
        place->failed = *reason;
    wake_all_locked(place);
    pthread_mutex_unlock(&place->lock);
}

/* --- Life ------------------------------------------------------------------------------------- */

static void
free_edge(exo_port_edge *edge)
{
    for (uint32_t i = 0; edge->outlets && i < edge->count; i++) {
        exo_outlet *o = &edge->outlets[i];
        for (uint32_t k = 0; k < o->waiting; k++)
            exo_item_drop(&o->outbox[k].item);
        exo_codec_free(&o->codec);
        exo_free(o->credit_due);
        exo_joint_reader_release(&o->reader);
        if (o->num_lent > 0)
            exo_outlet_take_back(o, true);
        exo_free(o->lent);
        if (o->place) /* the condition was initialized */
            pthread_cond_destroy(&o->changed);
    }
    for (uint32_t i = 0; edge->inlets && i < edge->count; i++)
        exo_codec_free(&edge->inlets[i].codec);
    exo_free(edge->outlets);
    exo_free(edge->inlets);
    exo_free(edge);
}

static void
release_port(exo_port *port)
{
    for (exo_arrival *a = port->first, *next; a; a = next) {
        next = a->next;
        exo_item_drop(&a->item);
        exo_free(a);
    }
    exo_item_drop(&port->newest);
    exo_joint_reader_release(&port->reader);
    for (uint32_t e = 0; e < port->num_edges; e++)
        free_edge(port->edges[e]);
    exo_free(port->edges);
}

void
exo_place_free(exo_place **place)
{
    exo_place *p = *place;
    *place = NULL;
    if (!p)
        return;
    exo_delivery_close(p->delivery); /* it looks at ports */
    size_t ports = p->spec->class->num_ports;
    for (size_t i = 0; i < ports; i++) {
        if (p->ports)
            release_port(&p->ports[i]);
        if (p->groups) {
            exo_group_close(&p->groups[i].group);
            exo_comm_drop(&p->groups[i].comm);
            for (size_t k = 0; k < p->groups[i].num_former; k++)
                exo_comm_drop(&p->groups[i].former[k]);
            exo_free(p->groups[i].former);
        }
    }
    exo_passages_free(p);
    exo_free(p->ports);
    exo_free(p->groups);
    exo_pace_release(&p->pace);
    exo_meters_free(&p->meters);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    exo_free(p);
    exo_joint_sweep();
}

/* Makes an outlet for each receiver that this sender reaches over the edge. */
static exo_status
make_outlets(exo_place *p, exo_port_edge *edge, exo_err *err)
{
    const exo_graph_spec *spec = p->actor.site->graph;
    uint32_t *targets = exo_calloc(spec->actors[edge->edge->to].count, sizeof *targets);
    if (!targets)
        return exo_fail(err, EXO_NOMEM, "no memory for an edge");
    edge->count = exo_edge_targets(spec, edge->edge, p->actor.index, targets);
    edge->outlets = exo_calloc(edge->count + 1, sizeof *edge->outlets);
    exo_status st = edge->outlets ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for an edge");
    for (uint32_t i = 0; st == EXO_OK && i < edge->count; i++) {
        exo_outlet *o = &edge->outlets[i];
        *o = (exo_outlet){.place = p,
                          .edge = edge->edge,
                          .links = p->actor.site->links[edge->id],
                          .edge_id = edge->id,
                          .to = targets[i],
                          .traffic = &edge->traffic,
                          .credits = edge->edge->capacity,
                          .capacity = edge->edge->capacity,
                          .credit_due = exo_calloc(edge->edge->capacity, sizeof *o->credit_due)};
        exo_condition_init(&o->changed);
        st = o->credit_due ? exo_codec_parse(&o->codec, edge->edge->codec_text, err)
                           : exo_fail(err, EXO_NOMEM, "no memory for an edge");
    }
    exo_free(targets);
    return st;
}

/* Makes an inlet for each sender that reaches this receiver over the edge. */
static exo_status
make_inlets(exo_place *p, exo_port_edge *edge, exo_err *err)
{
    const exo_graph_spec *spec = p->actor.site->graph;
    uint32_t senders = spec->actors[edge->edge->from].count;
    uint32_t *targets = exo_calloc(spec->actors[edge->edge->to].count, sizeof *targets);
    edge->inlets = exo_calloc(senders, sizeof *edge->inlets);
    exo_status st =
        targets && edge->inlets ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for an edge");
    for (uint32_t i = 0; st == EXO_OK && i < senders; i++) {
        uint32_t reached = exo_edge_targets(spec, edge->edge, i, targets);
        bool here = false;
        for (uint32_t t = 0; t < reached; t++)
            here = here || targets[t] == p->actor.index;
        if (!here)
            continue;
        exo_inlet *in = &edge->inlets[edge->count++];
        *in = (exo_inlet){.place = p,
                          .edge = edge->edge,
                          .links = p->actor.site->links[edge->id],
                          .edge_id = edge->id,
                          .from = i,
                          .traffic = &edge->traffic,
                          .out = edge->edge->capacity};
        st = exo_codec_parse(&in->codec, edge->edge->codec_text, err);
    }
    exo_free(targets);
    return st;
}

/* True: the edge begins or ends at the port. */
static bool
is_at(const exo_place *p, const exo_edge_spec *edge, const exo_graph_port *port)
{
    bool output = port->direction == EXO_PORT_OUTPUT;
    return (output ? edge->from : edge->to) == p->spec_index &&
           strcmp(edge->carries, port->name) == 0 &&
           (edge->route == EXO_ROUTE_ALL_REDUCE) == (port->direction == EXO_PORT_COLLECTIVE);
}

/* Makes edge `e` of the site's graph for the port. Other threads do not see the edge until it is
 * complete and is added under the lock. */
static exo_status
make_edge(exo_place *p, const exo_port *port, size_t e, exo_port_edge **out, exo_err *err)
{
    const exo_site *site = p->actor.site;
    exo_port_edge *edge = exo_calloc(1, sizeof *edge);
    if (!edge)
        return exo_fail(err, EXO_NOMEM, "no memory for an edge");
    *edge =
        (exo_port_edge){.edge = &site->graph->edges[e], .id = site->ids[e], .retired = UINT64_MAX};
    *out = edge;
    if (port->class_port->direction == EXO_PORT_OUTPUT)
        return make_outlets(p, edge, err);
    return port->class_port->direction == EXO_PORT_INPUT ? make_inlets(p, edge, err) : EXO_OK;
}

/* Adds the edge to its port, which then owns it; after NOMEM the caller still does. Under the lock,
 * if other threads run. */
static exo_status
add_edge_locked(exo_port *port, exo_port_edge *edge, exo_err *err)
{
    if (port->num_edges == port->room) {
        uint32_t room = port->room ? port->room * 2 : 4;
        exo_port_edge **edges = exo_realloc(port->edges, room, sizeof(exo_port_edge *));
        if (!edges)
            return exo_fail(err, EXO_NOMEM, "no memory for a port");
        port->edges = edges;
        port->room = room;
    }
    edge->born = port->generation;
    port->edges[port->num_edges++] = edge;
    return EXO_OK;
}

static exo_status
make_port(exo_place *p, size_t index, exo_err *err)
{
    const exo_site *site = p->actor.site;
    exo_port *port = &p->ports[index];
    *port = (exo_port){.place = p, .class_port = &p->spec->class->ports[index]};
    exo_status st = EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < site->graph->num_edges; e++) {
        exo_port_edge *edge = NULL;
        if (!is_at(p, &site->graph->edges[e], port->class_port))
            continue;
        st = make_edge(p, port, e, &edge, err);
        /* a half-made edge, too, so that the port frees it */
        exo_status added = edge ? add_edge_locked(port, edge, err) : EXO_OK;
        if (added != EXO_OK)
            free_edge(edge);
        st = st == EXO_OK ? added : st;
        if (st == EXO_OK && port->class_port->direction == EXO_PORT_COLLECTIVE)
            p->groups[index] = (exo_port_group){.edge = edge->edge, .id = edge->id};
    }
    return st;
}

/* An exo_delivery_lost. Nobody sends the item again, and no credit comes back for it. */
static void
lose_item(void *context, uint64_t tag, const exo_err *reason)
{
    exo_place *p = context;
    exo_err err = *reason;
    (void)tag;
    exo_fail_in(&err, err.code, "%s: the receiver of an item cannot take it", p->actor.name);
    exo_place_fail(p, &err);
}

exo_status
exo_place_new(exo_place **out, exo_site *site, uint32_t spec_index, uint32_t index,
              exo_runtime *runtime, exo_err *err)
{
    const exo_actor_spec *spec = &site->spec->actors[spec_index];
    exo_place *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for an actor");
    p->actor = (struct exo_graph_actor){.index = index, .count = spec->count, .site = site};
    snprintf(p->actor.name, sizeof p->actor.name, "%s_%u", spec->name, index);
    p->spec = spec;
    p->spec_index = spec_index;
    p->host = spec->hosts[index];
    p->runtime = site->sim ? NULL : runtime;
    pthread_mutex_init(&p->lock, NULL);
    exo_condition_init(&p->changed);
    size_t ports = spec->class->num_ports;
    p->ports = exo_calloc(ports + 1, sizeof *p->ports);
    p->groups = exo_calloc(ports + 1, sizeof *p->groups);
    p->delivery = exo_delivery_open(lose_item, p);
    exo_status st = p->ports && p->groups && p->delivery
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for an actor");
    if (st == EXO_OK)
        st = exo_meters_new(&p->meters, err);
    if (st == EXO_OK)
        st =
            exo_pace_init(&p->pace, site->sim, site->origin, site->spec->hosts[p->host].speed, err);
    p->pace.track.limit = site->span_limit;
    for (size_t i = 0; st == EXO_OK && i < ports; i++)
        st = make_port(p, i, err);
    if (st != EXO_OK) {
        exo_place_free(&p);
        return st;
    }
    *out = p;
    return EXO_OK;
}

uint64_t
exo_place_node_of(const exo_place *place, exo_ref actor)
{
    exo_actor_id id = {0};
    if (!place->runtime || exo_ref_export(place->runtime, actor, &id, NULL) != EXO_OK)
        return 0;
    return id.node ? id.node : UINT64_MAX;
}

/* Sets the references of the actors at the other ends, and starts the outlets. */
static exo_status
connect_edge(exo_place *place, exo_port_edge *edge, const exo_ref *actors, exo_err *err)
{
    const exo_site *site = place->actor.site;
    exo_status st = EXO_OK;
    for (uint32_t k = 0; st == EXO_OK && k < edge->count; k++) {
        if (edge->inlets && actors) {
            edge->inlets[k].sender = actors[site->first[edge->edge->from] + edge->inlets[k].from];
            edge->inlets[k].node = exo_place_node_of(place, edge->inlets[k].sender);
        }
        if (!edge->outlets)
            continue;
        if (actors) {
            edge->outlets[k].target = actors[site->first[edge->edge->to] + edge->outlets[k].to];
            edge->outlets[k].node = exo_place_node_of(place, edge->outlets[k].target);
        }
        /* a receiver that has died is linked when its next life begins */
        if (!actors || edge->outlets[k].target.id)
            st = exo_outlet_start(&edge->outlets[k], err);
    }
    return st;
}

exo_status
exo_place_connect(exo_place *place, const exo_ref *actors, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; st == EXO_OK && e < place->ports[i].num_edges; e++)
            st = connect_edge(place, place->ports[i].edges[e], actors, err);
    return st;
}

static void finish_port_locked(exo_port *port);

/* --- Changes ---------------------------------------------------------------------------------- */

static bool
has_edge(const exo_port *port, uint32_t id)
{
    for (uint32_t e = 0; e < port->num_edges; e++)
        if (port->edges[e]->id == id)
            return true;
    return false;
}

static uint16_t
life_of(const exo_place *place, uint32_t number)
{
    const exo_site *site = place->actor.site;
    if (!site->whole)
        return place->lives ? place->lives[number] : 0;
    exo_place *other = site->places[number];
    pthread_mutex_lock(&other->lock);
    uint16_t life = other->life;
    pthread_mutex_unlock(&other->lock);
    return life;
}

/* Sets the lives of the actors at the other ends of a new edge, which no other thread sees yet. */
static void
set_peers(const exo_place *place, exo_port_edge *edge)
{
    const exo_site *site = place->actor.site;
    for (uint32_t k = 0; k < edge->count; k++) {
        exo_outlet *o = edge->outlets ? &edge->outlets[k] : NULL;
        exo_inlet *in = edge->inlets ? &edge->inlets[k] : NULL;
        uint32_t number =
            o ? site->first[edge->edge->to] + o->to : site->first[edge->edge->from] + in->from;
        bool ended = !site->whole && place->ended && place->ended[number];
        if (o) {
            o->peer_life = life_of(place, number);
            o->gone = o->ending = o->ended = o->finished = ended;
        } else {
            in->peer_life = life_of(place, number);
            in->ended = in->lost = ended;
        }
    }
}

/* Makes the edges of the site's graph that the port lacks. Reads port->edges without the lock: only
 * the thread that changes the place writes to it. */
static exo_status
add_new_edges(exo_place *place, exo_port *port, const exo_ref *actors, exo_err *err)
{
    const exo_site *site = place->actor.site;
    exo_status st = EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < site->graph->num_edges; e++) {
        exo_port_edge *edge = NULL;
        if (!is_at(place, &site->graph->edges[e], port->class_port) || has_edge(port, site->ids[e]))
            continue;
        st = make_edge(place, port, e, &edge, err);
        if (st != EXO_OK) {
            if (edge)
                free_edge(edge);
            return st;
        }
        set_peers(place, edge);
        pthread_mutex_lock(&place->lock);
        st = add_edge_locked(port, edge, err);
        if (st == EXO_OK)
            edge->born = port->generation + 1; /* valid from the coming change on */
        pthread_mutex_unlock(&place->lock);
        if (st == EXO_OK)
            st = connect_edge(place, edge, actors, err);
        else
            free_edge(edge);
    }
    return st;
}

static bool
is_there_still(const exo_site *site, const exo_port_edge *edge)
{
    for (size_t e = 0; e < site->graph->num_edges; e++)
        if (site->ids[e] == edge->id)
            return true;
    return false;
}

void
exo_port_end_retired_locked(exo_port *port)
{
    for (uint32_t e = 0; e < port->num_edges && !port->inside; e++) {
        exo_port_edge *edge = port->edges[e];
        if (edge->retired > port->generation || edge->finished)
            continue;
        edge->finished = true;
        for (uint32_t i = 0; i < edge->count; i++) {
            edge->outlets[i].finished = true;
            exo_outlet_pump_locked(&edge->outlets[i]);
        }
    }
}

exo_status
exo_place_change_inputs(exo_place *place, const exo_ref *actors, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < place->spec->class->num_ports; i++)
        if (place->ports[i].class_port->direction == EXO_PORT_INPUT)
            st = add_new_edges(place, &place->ports[i], actors, err);
    return st;
}

/* What still comes over a retired edge is received. But a later life of its sender does not know it,
 * and does not end it (relink.c). */
static void
retire_edges_locked(exo_port *port)
{
    port->generation++;
    for (uint32_t e = 0; e < port->num_edges; e++)
        if (port->edges[e]->retired == UINT64_MAX &&
            !is_there_still(port->place->actor.site, port->edges[e]))
            port->edges[e]->retired = port->generation;
}

/* The links may have changed, too. */
static void
relink_outlets(exo_place *place)
{
    pthread_mutex_lock(&place->lock);
    place->changes++;
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++)
                exo_outlet_relink_locked(&place->ports[i].edges[e]->outlets[k]);
    pthread_mutex_unlock(&place->lock);
    exo_passages_ask_again(place);
}

exo_status
exo_place_change_outputs(exo_place *place, const exo_ref *actors, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < place->spec->class->num_ports; i++) {
        exo_port *port = &place->ports[i];
        if (port->class_port->direction == EXO_PORT_INPUT) {
            pthread_mutex_lock(&place->lock);
            retire_edges_locked(port);
            pthread_mutex_unlock(&place->lock);
        }
        if (port->class_port->direction != EXO_PORT_OUTPUT)
            continue;
        st = add_new_edges(place, port, actors, err);
        pthread_mutex_lock(&place->lock);
        retire_edges_locked(port);
        if (port->finished) /* the new outlets end like the others */
            finish_port_locked(port);
        exo_port_end_retired_locked(port);
        pthread_mutex_unlock(&place->lock);
    }
    relink_outlets(place);
    return st;
}

/* --- The end ---------------------------------------------------------------------------------- */

static void
finish_port_locked(exo_port *port)
{
    port->finished = true;
    for (uint32_t e = 0; e < port->num_edges; e++)
        for (uint32_t i = 0; port->edges[e]->outlets && i < port->edges[e]->count; i++) {
            exo_outlet *o = &port->edges[e]->outlets[i];
            o->finished = true;
            exo_outlet_pump_locked(o);
        }
}

void
exo_port_finish(exo_port *port)
{
    if (!port || port->class_port->direction != EXO_PORT_OUTPUT)
        return;
    exo_sim_lane *lane = port->place->pace.lane;
    if (lane)
        exo_sim_sync(lane);
    pthread_mutex_lock(&port->place->lock);
    finish_port_locked(port);
    pthread_mutex_unlock(&port->place->lock);
}

static bool
all_have_left_locked(const exo_place *place)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        const exo_port *port = &place->ports[i];
        for (uint32_t e = 0; e < port->num_edges; e++)
            for (uint32_t k = 0; port->edges[e]->outlets && k < port->edges[e]->count; k++)
                if (!port->edges[e]->outlets[k].ended)
                    return false;
    }
    return true;
}

/* Drops the queue of an input, and sends GONE to its senders. */
static void
close_input(exo_place *place, exo_port *port)
{
    pthread_mutex_lock(&place->lock);
    exo_arrival *first = port->first;
    port->first = port->last = NULL;
    port->finished = true;
    pthread_mutex_unlock(&place->lock);
    for (exo_arrival *next; first; first = next) {
        next = first->next;
        exo_item_drop(&first->item);
        exo_free(first);
    }
    for (uint32_t e = 0; e < port->num_edges; e++) {
        exo_port_edge *edge = port->edges[e];
        for (uint32_t k = 0; edge->inlets && k < edge->count; k++) {
            exo_inlet *in = &edge->inlets[k];
            pthread_mutex_lock(&place->lock);
            bool tell = !in->gone;
            in->gone = true;
            in->buffered = 0;
            if (tell)
                exo_channel_count_locked(in->traffic);
            exo_channel_lives lives = exo_inlet_lives_locked(in);
            pthread_mutex_unlock(&place->lock);
            if (tell)
                exo_inlet_tell(in, EXO_CHANNEL_GONE, 0, lives);
        }
    }
}

exo_status
exo_place_finish(exo_place *place, exo_time timeout, exo_err *err)
{
    exo_time now = exo_place_now(place),
             deadline = timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
    pthread_mutex_lock(&place->lock);
    place->returned = true;
    pthread_mutex_unlock(&place->lock);
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        exo_port *port = &place->ports[i];
        if (port->class_port->direction == EXO_PORT_OUTPUT)
            exo_port_finish(port);
        else if (port->class_port->direction == EXO_PORT_INPUT)
            close_input(place, port);
    }
    pthread_mutex_lock(&place->lock);
    exo_status st = EXO_OK;
    exo_place_wait_begin_locked(place, (exo_place_wait){.kind = EXO_WAIT_FINISH});
    while (!all_have_left_locked(place) && !place->cancelled && place->failed.code == EXO_OK &&
           st == EXO_OK) {
        if (exo_place_now(place) >= deadline)
            st = exo_fail(err, EXO_TIMEOUT, "%s: what it sent last has not left in time",
                          place->actor.name);
        else
            exo_place_wait_locked(place, place, deadline);
    }
    exo_place_wait_end_locked(place);
    pthread_mutex_unlock(&place->lock);
    return st;
}

void
exo_place_stop(exo_place *place)
{
    exo_place_cancel(place);
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++)
                exo_outlet_stop(&place->ports[i].edges[e]->outlets[k]);
}
