/* Messages of channels on the virtual clock: each passes the emulated link, and arrives by an event of
 * the simulation. An outage without an end holds a message: it has no event, and each change of the
 * graph asks the links for it again. So do the later messages of its channel, which keep their order.
 *
 * State: `held` of the sender's place. It belongs to the holder of the baton. Read next: outlet.c. */
#include <exogym/memory.h>

#include "graph/place.h"

struct exo_passage {
    exo_passage *next; /* in `held` */
    exo_passage_way way;
    exo_payload message;
};

static void
free_passage(exo_passage *p)
{
    exo_payload_release(&p->message);
    exo_free(p);
}

static void
on_arrival(void *context, exo_time at)
{
    exo_passage *p = context;
    (void)at;
    exo_place_deliver(p->way.to, &p->message, 0, NULL);
    exo_free(p);
}

/* Whether the message, or an earlier one of its channel, is held; then it is in the list. */
static bool
hold(exo_passage *p, const exo_transit *transit)
{
    exo_passage **at = &p->way.from->held;
    bool held = transit && transit->arrives == INT64_MAX;
    for (; *at; at = &(*at)->next)
        held = held || ((*at)->way.to == p->way.to && (*at)->way.flow == p->way.flow);
    if (held)
        *at = p;
    return held;
}

/* Moves the passage to its event, or to the list. */
static exo_status
begin(exo_passage *p, exo_err *err)
{
    const exo_site *site = p->way.from->actor.site;
    const exo_passage_way *way = &p->way;
    exo_outlet *outlet = way->outlet;
    p->next = NULL;
    if (hold(p, NULL))
        return EXO_OK;
    exo_time now = exo_place_now(way->from);
    exo_transit transit = {.starts = now, .sent = now, .arrives = now};
    if (way->links)
        exo_links_send(way->links, way->sender, way->receiver, way->flow, way->bytes, now,
                       &transit);
    if (hold(p, &transit))
        return EXO_OK;
    exo_status st = exo_sim_at(site->sim, transit.arrives + site->origin, on_arrival, p, err);
    if (st != EXO_OK)
        free_passage(p);
    return st == EXO_OK && outlet ? exo_sim_at(site->sim, transit.sent + site->origin,
                                               exo_outlet_departed, outlet, err)
                                  : st;
}

exo_status
exo_passage_begin(const exo_passage_way *way, exo_payload *message, exo_err *err)
{
    exo_passage *p = exo_calloc(1, sizeof *p);
    if (!p) {
        exo_payload_release(message);
        return exo_fail(err, EXO_NOMEM, "no memory for a message");
    }
    *p = (exo_passage){.way = *way, .message = *message};
    return begin(p, err);
}

void
exo_passages_ask_again(exo_place *place)
{
    exo_passage *p = place->held, *next;
    exo_err err = {0};
    place->held = NULL;
    for (; p; p = next) {
        next = p->next;
        if (begin(p, &err) != EXO_OK)
            exo_place_fail(place, &err);
    }
}

void
exo_passages_free(exo_place *place)
{
    for (exo_passage *p = place->held, *next; p; p = next) {
        next = p->next;
        free_passage(p);
    }
    place->held = NULL;
}
