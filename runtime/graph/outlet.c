/* Outlets: the departure of items (place.h).
 *
 * An item that has a credit is taken from the outbox, encoded, passed over the emulated link, and
 * sent.
 *
 * On the real clock, the thread that brings the item or the credit (the actor's thread or the mail
 * lane) transmits a light item if nothing is emulated. One thread at a time transmits, marked by
 * `busy`. For other items the outlet has a thread, which can sleep until the link has passed the
 * item; it starts with the first such item. If no further thread can be started, the thread that
 * brings a large item transmits it and is held up.
 *
 * On the virtual clock the same steps are events of the simulation, run with the baton. Encoding
 * takes no time. exo_outlet_departed runs when the link has passed the item and the next one may
 * follow; passage.c delivers the item to the other end. */
#include <errno.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/thread.h"
#include "base/waiting.h"
#include "graph/place.h"

/* the longest wait for a light item that another thread still transmits when its outlet stops */
#define LAST_ITEM EXO_SECOND

bool
exo_edge_needs_credits(const exo_edge_spec *edge)
{
    return edge->on_full != EXO_FULL_DROP_OLDEST && edge->on_full != EXO_FULL_LATEST;
}

static void
fail_place(exo_place *place, const exo_err *reason)
{
    exo_err err = *reason;
    exo_fail_in(&err, err.code, "%s", place->actor.name);
    exo_place_fail(place, &err);
}

/* The place at the other end of a channel, on the virtual clock. */
static exo_place *
peer_of(const exo_place *place, const exo_edge_spec *edge, uint32_t from, uint32_t to,
        bool to_receiver)
{
    const exo_site *site = place->actor.site;
    return site->places[to_receiver ? site->first[edge->to] + to : site->first[edge->from] + from];
}

static uint32_t
host_of(const exo_place *place, uint32_t actor, uint32_t index)
{
    return place->actor.site->spec->actors[actor].hosts[index];
}

/* --- Messages --------------------------------------------------------------------------------- */

void
exo_outlet_departed(void *context, exo_time at)
{
    exo_outlet *o = context;
    pthread_mutex_lock(&o->place->lock);
    o->busy = false;
    exo_outlet_pump_locked(o);
    exo_place_signal_locked(o->place, o, at - o->place->actor.site->origin);
    pthread_mutex_unlock(&o->place->lock);
}

/* Sends a message on the real clock; *message is moved. *answered is completed when the message was
 * read, and may be NULL. */
static exo_status
hand_over(const exo_place *place, exo_ref target, exo_payload *message, exo_future **answered,
          exo_err *err)
{
    if (answered)
        return exo_call(place->runtime, target, "channel", *message, INT64_MAX, answered, err);
    return exo_delivery_send(place->delivery, place->runtime, target, "channel", *message, 0, err);
}

void
exo_channel_count_locked(exo_traffic *traffic)
{
    traffic->messages++;
    traffic->wire_bytes += sizeof(exo_channel_header) + EXO_CHANNEL_ENVELOPE;
}

/* A message without an item, and its way. */
struct telling {
    exo_place *place;
    const exo_edge_spec *edge;
    exo_links *links;
    exo_channel_header header;
    bool to_receiver;
    exo_ref target;
    exo_traffic *traffic;
};

/* The rest of the way of a message, for its header. Endless outages have an end there: they end by a
 * change of the graph only, and then somebody asks again. */
static exo_time
passing_of(exo_time from, exo_time arrives)
{
    return arrives - from < EXO_PASSING_MAX ? arrives - from : EXO_PASSING_MAX;
}

/* The other end has died. That is no error here: the runner hears of it. */
static bool
is_loss(exo_status st)
{
    return st == EXO_PEER_LOST || st == EXO_NOT_FOUND || st == EXO_CLOSED;
}

static void
tell(struct telling *t)
{
    exo_place *place = t->place;
    const exo_site *site = place->actor.site;
    uint32_t from = t->header.from, to = t->header.to;
    uint32_t ends[2] = {host_of(place, t->edge->from, from), host_of(place, t->edge->to, to)};
    const exo_passage_way way = {.from = place,
                                 .to = site->sim ? peer_of(place, t->edge, from, to, t->to_receiver)
                                                 : NULL,
                                 .links = t->links,
                                 .sender = ends[!t->to_receiver],
                                 .receiver = ends[t->to_receiver],
                                 .flow = t->header.edge,
                                 .bytes = sizeof t->header + EXO_CHANNEL_ENVELOPE};
    exo_payload message = {0};
    exo_err err = {0};
    if (!site->sim) {
        exo_time now = exo_place_now(place);
        exo_transit transit = {.arrives = now};
        if (t->links)
            exo_links_send(t->links, way.sender, way.receiver, way.flow, way.bytes, now, &transit);
        t->header.passing = passing_of(now, transit.arrives);
    }
    exo_status st = exo_channel_write(&message, &t->header, NULL, 0, &err);
    if (st == EXO_OK)
        st = site->sim ? exo_passage_begin(&way, &message, &err)
                       : hand_over(place, t->target, &message, NULL, &err);
    if (st != EXO_OK && !is_loss(st))
        fail_place(place, &err);
}

void
exo_outlet_tell_end(exo_outlet *o, exo_channel_lives lives)
{
    struct telling t = {.place = o->place,
                        .edge = o->edge,
                        .links = o->links,
                        .header = {.kind = EXO_CHANNEL_END,
                                   .edge = o->edge_id,
                                   .from = o->place->actor.index,
                                   .to = o->to,
                                   .life = lives.mine,
                                   .peer_life = lives.other,
                                   .number = o->number},
                        .to_receiver = true,
                        .target = lives.peer,
                        .traffic = o->traffic};
    tell(&t);
}

void
exo_inlet_tell(exo_inlet *in, exo_channel_kind kind, uint64_t number, exo_channel_lives lives)
{
    struct telling t = {.place = in->place,
                        .edge = in->edge,
                        .links = in->links,
                        .header = {.kind = kind,
                                   .edge = in->edge_id,
                                   .from = in->from,
                                   .to = in->place->actor.index,
                                   .life = lives.mine,
                                   .peer_life = lives.other,
                                   .number = number},
                        .target = lives.peer,
                        .traffic = in->traffic};
    tell(&t);
}

static exo_status
write_item(exo_outlet *o, const struct exo_outgoing *out, exo_payload *message,
           exo_item_sizes *sizes, exo_err *err)
{
    const exo_channel_header header = {.kind = EXO_CHANNEL_DATA,
                                       .edge = o->edge_id,
                                       .from = o->place->actor.index,
                                       .to = o->to,
                                       .life = out->lives.mine,
                                       .peer_life = out->lives.other,
                                       .number = out->number,
                                       .version = out->item->version,
                                       .key = out->item->key,
                                       .sent = out->item->sent};
    const exo_item_form form = {.codec = o->codec,
                                .seed = o->place->actor.site->spec->seed,
                                .way = out->way,
                                .reader = &o->reader};
    return exo_item_write(message, &header, out->item, &form, sizes, err);
}

/* Requests the link's times for a message of `bytes` that leaves now. */
static exo_transit
pass(exo_outlet *o, uint64_t bytes)
{
    exo_place *place = o->place;
    exo_time now = exo_place_now(place);
    exo_transit transit = {.starts = now, .sent = now, .arrives = now};
    if (o->links)
        exo_links_send(o->links, place->host, host_of(place, o->edge->to, o->to), o->edge_id, bytes,
                       now, &transit);
    return transit;
}

static void
count_locked(exo_outlet *o, const exo_item *item, const exo_item_sizes *sizes)
{
    o->traffic->messages++;
    o->traffic->payload_bytes += exo_item_bytes(item);
    o->traffic->encoded_bytes += sizes->encoded;
    o->traffic->wire_bytes += sizes->message + EXO_CHANNEL_ENVELOPE;
    o->traffic->device_bytes += sizes->on_device;
}

/* --- The next item ---------------------------------------------------------------------------- */

/* Collects credits that have arrived over an emulated link. Returns the arrival time of the next
 * credit; INT64_MAX: none is on its way. */
static exo_time
collect_credits_locked(exo_outlet *o)
{
    exo_time now = exo_place_now(o->place);
    uint32_t here = 0;
    while (here < o->credits_coming && o->credit_due[here] <= now)
        here++;
    o->credits += here;
    o->credits_coming -= here;
    memmove(o->credit_due, o->credit_due + here, o->credits_coming * sizeof *o->credit_due);
    return o->credits_coming ? o->credit_due[0] : INT64_MAX;
}

static bool
can_leave_locked(const exo_outlet *o)
{
    return o->waiting > 0 && !o->busy && !o->gone &&
           (o->credits > 0 || !exo_edge_needs_credits(o->edge));
}

static exo_channel_lives
lives_locked(const exo_outlet *o)
{
    return (exo_channel_lives){.mine = o->place->life, .other = o->peer_life, .peer = o->target};
}

static struct exo_outgoing
take_locked(exo_outlet *o)
{
    struct exo_outgoing first = o->outbox[0];
    first.lives = lives_locked(o);
    first.way = exo_outlet_way_locked(o, first.item);
    memmove(&o->outbox[0], &o->outbox[1], (EXO_OUTBOX - 1) * sizeof o->outbox[0]);
    o->waiting--;
    o->left = first.number + 1;
    if (exo_edge_needs_credits(o->edge))
        o->credits--;
    o->busy = true;
    return first;
}

/* --- On the virtual clock --------------------------------------------------------------------- */

static void
transmit_virtually_locked(exo_outlet *o)
{
    exo_place *place = o->place;
    struct exo_outgoing out = take_locked(o);
    exo_payload message = {0};
    exo_err err = {0};
    exo_item_sizes sizes = {0};
    pthread_mutex_unlock(&place->lock);
    exo_status st = write_item(o, &out, &message, &sizes, &err);
    const exo_passage_way way = {.from = place,
                                 .to = peer_of(place, o->edge, place->actor.index, o->to, true),
                                 .outlet = o,
                                 .links = o->links,
                                 .sender = place->host,
                                 .receiver = host_of(place, o->edge->to, o->to),
                                 .flow = o->edge_id,
                                 .bytes = sizes.message + EXO_CHANNEL_ENVELOPE};
    if (st == EXO_OK)
        st = exo_passage_begin(&way, &message, &err);
    if (st != EXO_OK)
        fail_place(place, &err);
    pthread_mutex_lock(&place->lock);
    if (st == EXO_OK)
        count_locked(o, out.item, &sizes);
    exo_item_drop(&out.item);
}

/* True: neither actor of the channel has another life since. */
static bool
is_life_locked(const exo_outlet *o, exo_channel_lives lives)
{
    return o->place->life == lives.mine && o->peer_life == lives.other;
}

static void
tell_end_locked(exo_outlet *o)
{
    o->ending = true; /* before the lock opens, so that END is sent once */
    exo_channel_count_locked(o->traffic);
    exo_channel_lives lives = lives_locked(o);
    pthread_mutex_unlock(&o->place->lock);
    exo_outlet_tell_end(o, lives);
    pthread_mutex_lock(&o->place->lock);
    if (is_life_locked(o, lives))
        o->ended = true;
}

/* Drops the outbox of a receiver that is gone, and sends END. */
static void
give_up_locked(exo_outlet *o)
{
    for (uint32_t i = 0; i < o->waiting; i++) {
        exo_item_drop(&o->outbox[i].item);
        o->traffic->drops++;
    }
    o->waiting = 0;
    if (!o->ending && !o->busy)
        tell_end_locked(o);
}

/* --- On the real clock ------------------------------------------------------------------------ */

static bool
is_over_locked(const exo_place *place)
{
    return place->cancelled || place->failed.code != EXO_OK;
}

/* Sleeps until a signal, or until `until`. On the outlet's thread, or in exo_outlet_stop. */
static void
wait_locked(exo_outlet *o, exo_time until)
{
    const exo_site *site = o->place->actor.site;
    exo_time at = until > INT64_MAX - site->origin ? INT64_MAX : until + site->origin;
    exo_condition_wait_until(&o->changed, &o->place->lock, at);
}

static void
sleep_until_locked(exo_outlet *o, exo_time until)
{
    while (!is_over_locked(o->place) && exo_place_now(o->place) < until)
        wait_locked(o, until);
}

/* Requests the link's times again after each change of the graph, while an outage without an end
 * holds the message. */
static exo_transit
pass_outages(exo_outlet *o, uint64_t bytes)
{
    exo_place *place = o->place;
    exo_transit transit = {0};
    pthread_mutex_lock(&place->lock);
    for (bool again = true; again;) {
        uint64_t changes = place->changes;
        pthread_mutex_unlock(&place->lock);
        transit = pass(o, bytes);
        pthread_mutex_lock(&place->lock);
        o->passing = o->links != NULL;
        while (transit.arrives == INT64_MAX && changes == place->changes && !is_over_locked(place))
            wait_locked(o, INT64_MAX);
        again = transit.arrives == INT64_MAX && !is_over_locked(place);
    }
    pthread_mutex_unlock(&place->lock);
    return transit;
}

static void
transmit_locked(exo_outlet *o)
{
    exo_place *place = o->place;
    struct exo_outgoing out = take_locked(o);
    exo_payload message = {0};
    exo_err err = {0};
    exo_item_sizes sizes = {0};
    exo_future *answered = NULL;
    const bool lends = out.way == EXO_WAY_NAME || out.way == EXO_WAY_TRY;
    exo_place_signal_locked(place, o, 0); /* the outbox has room */
    pthread_mutex_unlock(&place->lock);
    exo_status st = write_item(o, &out, &message, &sizes, &err);
    exo_transit transit = {0};
    if (st == EXO_OK) {
        transit = pass_outages(o, sizes.message + EXO_CHANNEL_ENVELOPE);
        ((exo_channel_header *)message.data)->passing = passing_of(transit.sent, transit.arrives);
    }
    pthread_mutex_lock(&place->lock);
    if (st == EXO_OK) {
        if (o->links) {
            sleep_until_locked(o, transit.sent);
            o->passing = false;
        }
        count_locked(o, out.item, &sizes);
    }
    pthread_mutex_unlock(&place->lock);
    if (st == EXO_OK)
        st = hand_over(place, out.lives.peer, &message, lends ? &answered : NULL, &err);
    bool lost = is_loss(st);
    if (st != EXO_OK && !lost)
        fail_place(place, &err);
    if (answered)
        exo_outlet_lend(o, &out.item, &answered);
    exo_item_drop(&out.item);
    exo_outlet_take_back(o, false);
    pthread_mutex_lock(&place->lock);
    if (lost && is_life_locked(o, out.lives))
        o->connected = false; /* until the receiver's next life */
    o->busy = false;
    pthread_cond_broadcast(&o->changed); /* for exo_outlet_stop */
}

/* True: the outlet's thread transmits the next item. What waits for a device, or copies from it, is
 * never light. */
static bool
is_heavy_locked(const exo_outlet *o)
{
    const exo_item *item = o->outbox[0].item;
    bool waits = exo_item_is_far(item) && exo_outlet_way_locked(o, item) != EXO_WAY_ITSELF;
    return o->links || waits || exo_item_host_bytes(item) > EXO_LIGHT_ITEM;
}

static void *outlet_main(void *argument);

static exo_status
start_thread(exo_outlet *o, exo_err *err)
{
    exo_err reason = {0};
    if (!o->has_thread)
        o->has_thread =
            exo_thread_start(&o->thread, outlet_main, o, "a channel", &reason) == EXO_OK;
    return o->has_thread ? EXO_OK
                         : exo_fail(err, EXO_FULL, "edge %s: %s", o->edge->name, reason.text);
}

/* Wakes or starts the outlet's thread. False: no thread can be started. */
static bool
call_thread_locked(exo_outlet *o)
{
    bool fresh = !o->has_thread;
    if (start_thread(o, NULL) != EXO_OK)
        return false;
    if (!fresh)
        pthread_cond_signal(&o->changed);
    return true;
}

/* Does the outlet's next step on this thread. A thread that is not the outlet's own leaves heavy
 * items to it. True: an item was transmitted, and another step may follow. A thread that finds the
 * outlet busy need not come back, because the busy thread looks again. */
static bool
serve_locked(exo_outlet *o, bool own_thread)
{
    if (is_over_locked(o->place) || !o->connected || o->busy || o->ending)
        return false;
    if (o->gone) {
        give_up_locked(o);
    } else if (can_leave_locked(o)) {
        if (!own_thread && is_heavy_locked(o) && call_thread_locked(o))
            return false;
        transmit_locked(o);
        return true;
    } else if (o->finished && o->waiting == 0) {
        tell_end_locked(o);
    } else {
        return false;
    }
    exo_place_signal_locked(o->place, o, 0);
    exo_place_signal_locked(o->place, o->place, 0);
    return false;
}

static void *
outlet_main(void *argument)
{
    exo_outlet *o = argument;
    exo_place *place = o->place;
    pthread_mutex_lock(&place->lock);
    while (!is_over_locked(place) && !o->ended) {
        exo_time next = collect_credits_locked(o);
        if (!serve_locked(o, true) && !o->ended)
            wait_locked(o, next);
    }
    pthread_mutex_unlock(&place->lock);
    return NULL;
}

static void
pump_now_locked(exo_outlet *o)
{
    if (o->links) {
        exo_outlet_wake_locked(o);
        return;
    }
    do
        collect_credits_locked(o);
    while (serve_locked(o, false));
    if (o->ended)
        exo_outlet_wake_locked(o);
}

/* --- Both clocks ------------------------------------------------------------------------------ */

void
exo_outlet_pump_locked(exo_outlet *o)
{
    if (!o->place->actor.site->sim) {
        pump_now_locked(o);
        return;
    }
    collect_credits_locked(o);
    if (o->gone)
        give_up_locked(o);
    else if (can_leave_locked(o))
        transmit_virtually_locked(o);
    else if (o->finished && o->waiting == 0 && !o->busy && !o->ending && !o->ended)
        tell_end_locked(o);
}

exo_status
exo_outlet_start(exo_outlet *o, exo_err *err)
{
    exo_status st = EXO_OK;
    if (o->place->actor.site->sim)
        return st;
    pthread_mutex_lock(&o->place->lock);
    o->connected = true;
    if (o->links)
        st = start_thread(o, err);
    else
        exo_outlet_pump_locked(o); /* the outlet may have been told to end already */
    pthread_mutex_unlock(&o->place->lock);
    return st;
}

void
exo_outlet_relink_locked(exo_outlet *o)
{
    const exo_place *place = o->place;
    exo_time now = exo_place_now(place);
    if (!o->links || place->actor.site->sim)
        return;
    for (uint32_t i = 0; i < o->credits_coming; i++) {
        exo_transit transit;
        if (o->credit_due[i] - now < EXO_PASSING_MAX / 2)
            continue;
        exo_links_send(o->links, host_of(place, o->edge->to, o->to), place->host, o->edge_id,
                       sizeof(exo_channel_header) + EXO_CHANNEL_ENVELOPE, now, &transit);
        o->credit_due[i] = now + passing_of(now, transit.arrives);
    }
    exo_outlet_wake_locked(o);
}

void
exo_outlet_wake_locked(exo_outlet *o)
{
    if (o->has_thread)
        pthread_cond_signal(&o->changed);
}

void
exo_outlet_stop(exo_outlet *o)
{
    pthread_mutex_lock(&o->place->lock);
    bool join = o->has_thread;
    o->has_thread = false;
    pthread_mutex_unlock(&o->place->lock);
    if (join)
        pthread_join(o->thread, NULL);
    if (o->place->actor.site->sim)
        return;
    /* Another thread, the mail lane's, may be transmitting an item with the lock open. */
    pthread_mutex_lock(&o->place->lock);
    exo_time until = exo_place_now(o->place) + LAST_ITEM;
    while (o->busy && exo_place_now(o->place) < until)
        wait_locked(o, until);
    pthread_mutex_unlock(&o->place->lock);
}
