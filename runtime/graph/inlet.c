/* Inlets: the arrival of messages (place.h). This code runs on the actor's mail lane, one message
 * at a time, or with the baton of the virtual clock. It decodes items before the actor asks for
 * them. */
#include <inttypes.h>

#include <exogym/memory.h>

#include "graph/place.h"

/* --- Finding the end of a message ------------------------------------------------------------- */

static exo_port_edge *
find_edge_locked(exo_place *place, uint32_t edge, exo_port_direction direction, exo_port **port)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        *port = &place->ports[i];
        if ((*port)->class_port->direction != direction)
            continue;
        for (uint32_t e = 0; e < (*port)->num_edges; e++)
            if ((*port)->edges[e]->id == edge)
                return (*port)->edges[e];
    }
    return NULL;
}

/* The edge stays where it is when the place changes. */
static exo_port_edge *
find_edge(exo_place *place, uint32_t edge, exo_port_direction direction, exo_port **port)
{
    pthread_mutex_lock(&place->lock);
    exo_port_edge *found = find_edge_locked(place, edge, direction, port);
    pthread_mutex_unlock(&place->lock);
    return found;
}

static const char *
name_of(exo_place *place, uint32_t edge)
{
    exo_port *port = NULL;
    const exo_port_edge *found = find_edge(place, edge, EXO_PORT_INPUT, &port);
    found = found ? found : find_edge(place, edge, EXO_PORT_OUTPUT, &port);
    return found ? found->edge->name : "?";
}

static exo_inlet *
find_inlet(exo_place *place, const exo_channel_header *header, exo_port **port)
{
    exo_port_edge *edge = find_edge(place, header->edge, EXO_PORT_INPUT, port);
    if (edge && header->from < edge->count && edge->inlets[header->from].from == header->from)
        return &edge->inlets[header->from]; /* its index if every sender reaches this receiver */
    for (uint32_t i = 0; edge && i < edge->count; i++)
        if (edge->inlets[i].from == header->from)
            return &edge->inlets[i];
    return NULL;
}

static exo_outlet *
find_outlet(exo_place *place, const exo_channel_header *header)
{
    exo_port *port = NULL;
    exo_port_edge *edge = find_edge(place, header->edge, EXO_PORT_OUTPUT, &port);
    if (edge && header->to < edge->count && edge->outlets[header->to].to == header->to)
        return &edge->outlets[header->to];
    for (uint32_t i = 0; edge && i < edge->count; i++)
        if (edge->outlets[i].to == header->to)
            return &edge->outlets[i];
    return NULL;
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Drops the channel's oldest item in the port's queue. */
static void
drop_oldest_locked(exo_port *port, exo_inlet *in)
{
    exo_arrival *before = NULL, *a = port->first;
    while (a && a->inlet != in) {
        before = a;
        a = a->next;
    }
    if (!a)
        return;
    if (before)
        before->next = a->next;
    else
        port->first = a->next;
    if (port->last == a)
        port->last = before;
    in->buffered--;
    in->traffic->drops++;
    exo_item_drop(&a->item);
    exo_free(a);
}

/* docs/channels.md, rules 1 and 2: a credit for each item that has room. While the actor waits in
 * send, an input on a feedback edge owes one credit even without room. */
static uint32_t
credits_owed(const exo_inlet *in)
{
    if (in->gone || !exo_edge_needs_credits(in->edge))
        /* Ended senders get credits, too, so that counts do not depend on the order of threads. */
        return 0;
    if (in->edge->capacity > in->buffered + in->out)
        return in->edge->capacity - in->buffered - in->out;
    return in->place->sending && in->edge->feedback && in->out == 0 ? 1 : 0;
}

exo_channel_lives
exo_inlet_lives_locked(const exo_inlet *in)
{
    return (exo_channel_lives){.mine = in->place->life, .other = in->peer_life, .peer = in->sender};
}

void
exo_inlet_settle_locked(exo_inlet *in)
{
    uint32_t owed = credits_owed(in);
    bool over = in->ended && in->buffered == 0 && !in->gone;
    if (owed == 0 && !over)
        return;
    in->out += owed;
    in->gone = in->gone || over;
    if (owed > 0)
        exo_channel_count_locked(in->traffic);
    if (over)
        exo_channel_count_locked(in->traffic);
    exo_channel_lives lives = exo_inlet_lives_locked(in);
    pthread_mutex_unlock(&in->place->lock);
    if (owed > 0)
        exo_inlet_tell(in, EXO_CHANNEL_CREDIT, owed, lives);
    if (over)
        exo_inlet_tell(in, EXO_CHANNEL_GONE, 0, lives);
    pthread_mutex_lock(&in->place->lock);
}

void
exo_place_settle_locked(exo_place *place)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->inlets && k < place->ports[i].edges[e]->count; k++)
                exo_inlet_settle_locked(&place->ports[i].edges[e]->inlets[k]);
}

/* Inserts an arrival after all that are ready at its time or before. */
static void
insert_locked(exo_port *port, exo_arrival *a)
{
    exo_arrival **at = &port->first;
    if (port->last && port->last->ready <= a->ready)
        at = &port->last->next;
    while (*at && (*at)->ready <= a->ready)
        at = &(*at)->next;
    a->next = *at;
    *at = a;
    if (!a->next)
        port->last = a;
}

/* True: the message is of the present life of the actor at the other end, and for this one's. Others
 * are late, and are ignored. */
static bool
is_timely(const exo_channel_header *header, exo_channel_lives lives)
{
    return header->life == lives.other && header->peer_life == lives.mine;
}

/* Decodes an item. *out is NULL if it is late. */
static exo_status
read_arrival(exo_place *place, exo_inlet *in, const exo_channel_header *header,
             const exo_payload *message, exo_arrival **out, exo_err *err)
{
    const exo_site *site = place->actor.site;
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    pthread_mutex_lock(&place->lock);
    bool timely = !in->lost && is_timely(header, exo_inlet_lives_locked(in));
    if (timely && (in->ended || header->number < in->expected))
        st = exo_fail(err, EXO_INVAL, "item %" PRIu64 " comes after item %" PRIu64, header->number,
                      in->expected);
    pthread_mutex_unlock(&place->lock);
    if (st != EXO_OK || !timely)
        return st;
    st = exo_item_read(&item, message, header, in->codec, site->spec->seed, err);
    if (st == EXO_PEER_LOST || st == EXO_NOT_FOUND)
        return EXO_OK; /* the life of the sender has ended, and its arrays with it */
    exo_arrival *a = st == EXO_OK ? exo_calloc(1, sizeof *a) : NULL;
    if (st == EXO_OK && !a)
        st = exo_fail(err, EXO_NOMEM, "no memory for an item");
    if (st != EXO_OK) {
        exo_item_drop(&item);
        return st;
    }
    exo_time arrived = exo_place_now(place) + (site->sim ? 0 : header->passing);
    item->received = arrived;
    *a = (exo_arrival){.inlet = in, .item = item, .ready = arrived + in->edge->delay};
    *out = a;
    return EXO_OK;
}

/* Puts an arrival into the port's queue. False: the actor takes no more items, or the item is late;
 * *late: GONE is to be sent, as the channel was opened after the actor had ended. */
static bool
queue_locked(exo_port *port, exo_inlet *in, const exo_channel_header *header, exo_arrival *a,
             bool *late, exo_status *st, exo_err *err)
{
    if (in->lost || !is_timely(header, exo_inlet_lives_locked(in)))
        return false;
    in->expected = header->number + 1;
    bool needs = exo_edge_needs_credits(in->edge);
    if (needs && in->out == 0) {
        *st = exo_fail(err, EXO_INVAL, "item %" PRIu64 " came without a credit", header->number);
        return false;
    }
    *late = port->finished && !in->gone;
    if (*late) {
        in->gone = true;
        exo_channel_count_locked(in->traffic);
    }
    if (in->gone)
        return false;
    in->out -= needs;
    if (!needs && in->buffered >= in->edge->capacity)
        drop_oldest_locked(port, in);
    insert_locked(port, a);
    in->buffered++;
    return true;
}

static exo_status
take_item(exo_place *place, exo_port *port, exo_inlet *in, const exo_channel_header *header,
          const exo_payload *message, exo_err *err)
{
    exo_arrival *a = NULL;
    bool late = false;
    exo_status st = read_arrival(place, in, header, message, &a, err);
    if (!a)
        return st;
    pthread_mutex_lock(&place->lock);
    exo_channel_lives lives = exo_inlet_lives_locked(in);
    bool queued = queue_locked(port, in, header, a, &late, &st, err);
    if (queued) {
        exo_place_signal_locked(place, port, a->ready);
        exo_inlet_settle_locked(in);
    }
    pthread_mutex_unlock(&place->lock);
    if (late)
        exo_inlet_tell(in, EXO_CHANNEL_GONE, 0, lives);
    if (!queued) {
        exo_item_drop(&a->item);
        exo_free(a);
    }
    return st;
}

/* --- Messages --------------------------------------------------------------------------------- */

/* Handles a receiver's answer: CREDIT, GONE or REACH. */
static exo_status
take_answer(exo_place *place, exo_outlet *o, const exo_channel_header *header, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_time due =
        exo_place_now(place) + (place->actor.site->sim || !o->links ? 0 : header->passing);
    pthread_mutex_lock(&place->lock);
    const exo_channel_lives lives = {.mine = place->life, .other = o->peer_life};
    if (!is_timely(header, lives)) {
        pthread_mutex_unlock(&place->lock);
        return EXO_OK;
    }
    if (header->kind == EXO_CHANNEL_GONE)
        o->gone = true;
    else if (header->kind == EXO_CHANNEL_REACH)
        exo_outlet_hear_locked(o, header->number);
    else if (header->number > o->capacity - o->credits - o->credits_coming)
        st = exo_fail(err, EXO_INVAL, "more credits came than were given");
    for (uint64_t i = 0; st == EXO_OK && header->kind == EXO_CHANNEL_CREDIT && i < header->number;
         i++)
        o->credit_due[o->credits_coming++] = due;
    if (st == EXO_OK) {
        exo_outlet_pump_locked(o);
        exo_place_signal_locked(place, o, due);
    }
    pthread_mutex_unlock(&place->lock);
    exo_outlet_take_back(o, false);
    return st;
}

/* Handles a sender's message: DATA or END. */
static exo_status
take_sent(exo_place *place, exo_port *port, exo_inlet *in, const exo_channel_header *header,
          const exo_payload *message, exo_err *err)
{
    if (header->kind == EXO_CHANNEL_DATA)
        return take_item(place, port, in, header, message, err);
    pthread_mutex_lock(&place->lock);
    if (is_timely(header, exo_inlet_lives_locked(in))) {
        in->ended = true;
        exo_place_signal_locked(place, port, exo_place_now(place));
        exo_inlet_settle_locked(in);
    }
    pthread_mutex_unlock(&place->lock);
    return EXO_OK;
}

exo_status
exo_place_deliver(exo_place *place, exo_payload *message, uint64_t from, exo_err *err)
{
    exo_channel_header header = {0};
    exo_err reason = {0};
    exo_port *port = NULL;
    exo_outlet *o = NULL;
    exo_inlet *in = NULL;
    exo_status st = exo_channel_read(message, &header, &reason);
    bool answers = header.kind == EXO_CHANNEL_CREDIT || header.kind == EXO_CHANNEL_GONE ||
                   header.kind == EXO_CHANNEL_REACH;
    if (st == EXO_OK && answers)
        o = find_outlet(place, &header);
    else if (st == EXO_OK)
        in = find_inlet(place, &header, &port);
    if (!o && !in) { /* for no end of this place */
        exo_payload_release(message);
        return exo_fail(err, EXO_INVAL, "%s: %s", place->actor.name,
                        reason.text[0] ? reason.text : "a message for no channel");
    }
    uint64_t node = o ? o->node : in->node;
    if (from && node && from != node) {
        exo_payload_release(message);
        return exo_fail(err, EXO_INVAL,
                        "%s: edge %s: a message of another process than the one at its other end",
                        place->actor.name, name_of(place, header.edge));
    }
    st = o ? take_answer(place, o, &header, &reason)
           : take_sent(place, port, in, &header, message, &reason);
    exo_payload_release(message);
    if (st == EXO_OK)
        return st;
    exo_fail_in(&reason, st, "%s: edge %s", place->actor.name, name_of(place, header.edge));
    exo_place_fail(place, &reason);
    return exo_fail(err, st, "%s", reason.text);
}
