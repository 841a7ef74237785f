/* Arrays of items that are on devices, at the ends of channels (place.h):
 *
 *     the receiver is        the message has                      and the receiver
 *     in this process        the item                             holds the same memory
 *     in another one         the bytes, and a name to try         answers REACH, if it has a GPU
 *       after REACH(1)       names                                opens the memory
 *       after REACH(0)       the bytes
 *     behind a codec         the bytes
 *
 * REACH holds for arrays on the GPUs on which the item was (exo_item_units): a sender that goes to another
 * one tries again.
 *
 * A sender keeps an item whose names it has sent until the receiver has answered the message, which it
 * does when it holds the names. State: lent items, in the outlet. Read next: item_far.c. */
#include <string.h>

#include <exogym/memory.h>

#include "graph/place.h"

/* Whether the receiver is an actor of this process. */
static bool
is_here(const exo_outlet *o)
{
    const exo_place *place = o->place;
    return place->actor.site->sim || !place->runtime ||
           (o->node != 0 && o->node == exo_place_node_of(place, place->self));
}

exo_item_way
exo_outlet_way_locked(const exo_outlet *o, const exo_item *item)
{
    if (!exo_item_is_far(item) || strcmp(exo_codec_text(o->codec), "raw") != 0)
        return EXO_WAY_BYTES;
    if (is_here(o))
        return EXO_WAY_ITSELF;
    if (o->reach == EXO_REACH_UNKNOWN || o->reach_units != exo_item_units(item))
        return EXO_WAY_TRY;
    return o->reach == EXO_REACH_YES ? EXO_WAY_NAME : EXO_WAY_BYTES;
}

void
exo_outlet_hear_locked(exo_outlet *o, uint64_t number)
{
    o->reach = number & 1 ? EXO_REACH_YES : EXO_REACH_NO;
    o->reach_units = number >> 1;
}

void
exo_outlet_lend(exo_outlet *o, exo_item **item, exo_future **future)
{
    pthread_mutex_lock(&o->place->lock);
    if (o->num_lent == o->lent_room) {
        uint32_t room = o->lent_room ? o->lent_room * 2 : 4;
        struct exo_lent *lent = exo_realloc(o->lent, room, sizeof *lent);
        o->lent = lent ? lent : o->lent;
        o->lent_room = lent ? room : o->lent_room;
    }
    /* without memory the receiver may find that the array is gone, as if its sender had died */
    if (o->num_lent < o->lent_room) {
        o->lent[o->num_lent++] = (struct exo_lent){.item = *item, .future = *future};
        *item = NULL;
        *future = NULL;
    }
    pthread_mutex_unlock(&o->place->lock);
    exo_item_drop(item);
    exo_future_drop(future);
}

/* Takes one of the items that are to be dropped out of the list. */
static bool
take_one(exo_outlet *o, bool all, struct exo_lent *out)
{
    bool found = false;
    pthread_mutex_lock(&o->place->lock);
    for (uint32_t i = 0; i < o->num_lent && !found; i++) {
        found = all || exo_future_ready(o->lent[i].future);
        if (!found)
            continue;
        *out = o->lent[i];
        o->lent[i] = o->lent[--o->num_lent];
    }
    pthread_mutex_unlock(&o->place->lock);
    return found;
}

void
exo_outlet_take_back(exo_outlet *o, bool all)
{
    struct exo_lent lent;
    while (take_one(o, all, &lent)) {
        exo_item_drop(&lent.item);
        exo_future_drop(&lent.future);
    }
}

exo_status
exo_port_land(exo_port *port, exo_inlet *in, exo_item *item, exo_err *err)
{
    int reach = -1;
    exo_status st = exo_item_land(item, port->device, &port->reader, &reach, err);
    if (st != EXO_OK && st != EXO_PEER_LOST)
        exo_fail_in(err, st, "%s: edge %s", port->place->actor.name, in->edge->name);
    if (reach < 0)
        return st;
    pthread_mutex_lock(&port->place->lock);
    exo_channel_lives lives = exo_inlet_lives_locked(in);
    pthread_mutex_unlock(&port->place->lock);
    exo_inlet_tell(in, EXO_CHANNEL_REACH, exo_item_units(item) << 1 | (uint64_t)reach, lives);
    return st;
}

void
exo_port_set_device(exo_port *port, exo_device *device)
{
    if (port)
        port->device = device;
}
