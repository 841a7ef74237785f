/* Records of an actor's waits, for the search for stalls (stall.h). The code here only reads the
 * place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "comm/edge.h"
#include "graph/place.h"

/* The parts of a record under construction. */
struct writer {
    exo_wait_record *record;
    exo_wait_end *ends;
    uint32_t *missing, *scratch; /* (actors of its name) */
    uint64_t *counts;            /* (2 * actors of its name) */
    size_t room;                 /* capacity of ends */
};

static uint32_t
number_of(const exo_place *place, uint32_t actor, uint32_t index)
{
    return place->actor.site->first[actor] + index;
}

static size_t
count_ends_locked(const exo_place *place)
{
    size_t count = 0;
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            count += place->groups[i].edge ? 2 * (size_t)place->actor.count
                                           : place->ports[i].edges[e]->count;
    return count;
}

/* --- Waits that end without others ------------------------------------------------------------ */

/* True: the actor continues whatever the others do. It was woken and has not run yet, or its wait
 * ends by itself. */
static bool
goes_on_locked(const exo_place *place)
{
    const exo_place_wait *wait = &place->wait;
    if (place->cancelled || place->failed.code != EXO_OK || wait->ends_by_itself)
        return true;
    if (wait->kind == EXO_WAIT_SEND)
        return wait->outlet->gone || wait->outlet->waiting < EXO_OUTBOX;
    return wait->kind == EXO_WAIT_RECEIVE && (wait->port->first || wait->port->finished);
}

/* --- Ends ------------------------------------------------------------------------------------- */

/* True: nothing is sent to this reference, or comes from it, any more. */
static bool
is_lost(const exo_place *place, exo_ref peer)
{
    char cause[64];
    return !place->actor.site->whole && peer.id &&
           exo_cause(place->runtime, peer, cause, sizeof cause) == EXO_OK;
}

static void
add_outlet(struct writer *w, const exo_place *place, const exo_outlet *o, bool awaited)
{
    w->ends[w->record->num_ends++] = (exo_wait_end){.edge = o->edge_id,
                                                    .peer = number_of(place, o->edge->to, o->to),
                                                    .number = o->left,
                                                    .amount = o->waiting,
                                                    .output = true,
                                                    .awaited = awaited,
                                                    .over = o->ending || o->ended || o->gone,
                                                    .busy = o->busy,
                                                    .passing = o->passing,
                                                    .returning = o->links && o->credits_coming > 0,
                                                    .lost = is_lost(place, o->target)};
}

static void
add_inlet(struct writer *w, const exo_place *place, const exo_inlet *in, bool awaited)
{
    const exo_arrival *first =
        place->wait.kind == EXO_WAIT_RECEIVE ? place->wait.port->first : NULL;
    bool passing =
        awaited && first && first->inlet == in && first->item->received > exo_place_now(place);
    w->ends[w->record->num_ends++] =
        (exo_wait_end){.edge = in->edge_id,
                       .peer = number_of(place, in->edge->from, in->from),
                       .number = in->expected,
                       .amount = in->out,
                       .awaited = awaited && !in->ended,
                       .over = in->ended,
                       .gone = in->gone,
                       .passing = passing,
                       .lost = is_lost(place, in->sender)};
}

/* Adds all ends; for an actor that does not wait, only those with an item on a link. */
static void
add_ends_locked(struct writer *w, const exo_place *place)
{
    bool waits = w->record->kind != EXO_WAIT_NONE;
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        const exo_port *port = &place->ports[i];
        bool received_from = place->wait.kind == EXO_WAIT_RECEIVE && place->wait.port == port;
        for (uint32_t e = 0; e < port->num_edges; e++) {
            const exo_port_edge *edge = port->edges[e];
            for (uint32_t k = 0; k < edge->count && w->record->num_ends < w->room; k++) {
                const exo_outlet *o = edge->outlets ? &edge->outlets[k] : NULL;
                if (o && (waits || o->passing))
                    add_outlet(w, place, o,
                               place->wait.kind == EXO_WAIT_SEND && place->wait.outlet == o);
                else if (!o && edge->inlets && waits)
                    add_inlet(w, place, &edge->inlets[k], received_from);
            }
        }
    }
}

static int
compare_ends(const void *x, const void *y)
{
    const exo_wait_end *a = x, *b = y;
    if (a->output != b->output)
        return a->output - b->output;
    if (a->edge != b->edge)
        return a->edge < b->edge ? -1 : 1;
    return (a->peer > b->peer) - (a->peer < b->peer);
}

/* --- Collectives ------------------------------------------------------------------------------ */

/* Adds the message counts of each collective. If the actor does not wait at a port, also adds the
 * collective that it waits in. */
static void
add_groups(struct writer *w, exo_place *place, bool in_collective)
{
    exo_wait_record *r = w->record;
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        const exo_port_group *g = &place->groups[i];
        exo_comm_look look = {0};
        exo_comm *comm = exo_place_comm(place, i);
        if (!comm)
            continue;
        exo_comm_look_at(comm, place->actor.index, &look, w->scratch, w->counts);
        for (uint32_t k = 0; look.counts && k < 2 * place->actor.count && r->num_ends < w->room;
             k++)
            w->ends[r->num_ends++] =
                (exo_wait_end){.edge = g->id,
                               .peer = number_of(place, place->spec_index, k % place->actor.count),
                               .number = w->counts[k],
                               .output = k < place->actor.count};
        if (!in_collective || (r->kind == EXO_WAIT_COLLECTIVE && !r->goes_on))
            continue;
        r->kind = EXO_WAIT_COLLECTIVE; /* without missing members it waits for messages on links */
        r->goes_on = !look.waits;
        r->on_link = look.passing;
        r->edge = g->id;
        r->num_missing = look.waits ? look.num_missing : 0;
        snprintf(r->edge_name, sizeof r->edge_name, "%s", g->edge->name);
        for (uint32_t m = 0; m < r->num_missing; m++)
            w->missing[m] = number_of(place, place->spec_index, w->scratch[m]);
    }
}

/* --- The record ------------------------------------------------------------------------------- */

static const char *
edge_of_locked(const exo_place *place)
{
    const exo_place_wait *wait = &place->wait;
    if (wait->kind == EXO_WAIT_SEND)
        return wait->outlet->edge->name;
    if (wait->kind == EXO_WAIT_RECEIVE && wait->port->num_edges > 0)
        return wait->port->edges[0]->edge->name;
    return "";
}

static void
write_port_wait_locked(struct writer *w, const exo_place *place, exo_time now, exo_time longer_than)
{
    exo_wait_record *r = w->record;
    r->moves = place->moves;
    if (place->wait.kind != EXO_WAIT_NONE && now - place->wait.since >= longer_than) {
        r->kind = (uint32_t)place->wait.kind;
        r->since = place->wait.since;
        r->goes_on = goes_on_locked(place);
        snprintf(r->edge_name, sizeof r->edge_name, "%s", edge_of_locked(place));
    }
    add_ends_locked(w, place);
}

/* Joins the parts into one payload. */
static exo_status
pack(const struct writer *w, exo_payload *out, exo_err *err)
{
    const exo_wait_record *r = w->record;
    size_t ends = r->num_ends * sizeof *w->ends, missing = r->num_missing * sizeof *w->missing;
    char *bytes = exo_calloc(1, sizeof *r + ends + missing);
    if (!bytes)
        return exo_fail(err, EXO_NOMEM, "no memory for what an actor waits for");
    memcpy(bytes, r, sizeof *r);
    memcpy(bytes + sizeof *r, w->ends, ends);
    memcpy(bytes + sizeof *r + ends, w->missing, missing);
    *out = (exo_payload){.data = bytes, .size = sizeof *r + ends + missing, .release = exo_free};
    return EXO_OK;
}

/* True: the actor has waited for that long at a port, or elsewhere by its pace; or an item of it is
 * on a link. */
static bool
says_something_locked(const exo_place *place, exo_time now, exo_time longer_than,
                      bool *in_collective)
{
    exo_time since = place->pace.waits_since;
    *in_collective = place->wait.kind == EXO_WAIT_NONE && since >= 0 &&
                     now - (since - place->actor.site->origin) >= longer_than;
    if (*in_collective ||
        (place->wait.kind != EXO_WAIT_NONE && now - place->wait.since >= longer_than))
        return true;
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++)
                if (place->ports[i].edges[e]->outlets[k].passing)
                    return true;
    return false;
}

exo_status
exo_place_look(exo_place *place, exo_time longer_than, exo_payload *out, exo_err *err)
{
    exo_wait_record record = {0};
    bool in_collective = false;
    exo_time now = exo_place_now(place);
    *out = (exo_payload){0};
    pthread_mutex_lock(&place->lock);
    bool says = says_something_locked(place, now, longer_than, &in_collective);
    size_t room = count_ends_locked(place);
    pthread_mutex_unlock(&place->lock);
    if (!says)
        return EXO_OK;

    struct writer w = {.record = &record,
                       .ends = exo_calloc(room + 1, sizeof *w.ends),
                       .missing = exo_calloc(place->actor.count, sizeof *w.missing),
                       .scratch = exo_calloc(place->actor.count, sizeof *w.scratch),
                       .counts = exo_calloc(2 * (size_t)place->actor.count, sizeof *w.counts),
                       .room = room};
    exo_status st = w.ends && w.missing && w.scratch && w.counts
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for what an actor waits for");
    if (st == EXO_OK) {
        record.kind = in_collective ? EXO_WAIT_COLLECTIVE : EXO_WAIT_NONE;
        record.goes_on = true;
        exo_time since = place->pace.waits_since;
        pthread_mutex_lock(&place->lock);
        write_port_wait_locked(&w, place, now, longer_than);
        in_collective = in_collective && place->wait.kind == EXO_WAIT_NONE && since >= 0;
        pthread_mutex_unlock(&place->lock);
        if (in_collective)
            record.since = since - place->actor.site->origin;
        add_groups(&w, place, in_collective);
        if (record.kind == EXO_WAIT_COLLECTIVE && !record.edge_name[0])
            record.kind = EXO_WAIT_NONE; /* the actor was about to begin a wait at a port */
        record.waited = now - record.since;
        if (record.num_ends > 1) /* an edge added meanwhile may find no room */
            qsort(w.ends, record.num_ends, sizeof *w.ends, compare_ends);
        st = pack(&w, out, err);
    }
    exo_free(w.ends);
    exo_free(w.missing);
    exo_free(w.scratch);
    exo_free(w.counts);
    return st;
}

/* --- Without a record ------------------------------------------------------------------------- */

/* True: all senders that have not ended are stuck, and there is one. An item of any sender would
 * end the wait. */
static bool
receives_in_vain_locked(const exo_place *place, const bool *stuck)
{
    bool waits = false;
    const exo_port *port = place->wait.port;
    for (uint32_t e = 0; e < port->num_edges; e++)
        for (uint32_t k = 0; k < port->edges[e]->count; k++) {
            const exo_inlet *in = &port->edges[e]->inlets[k];
            if (in->ended)
                continue;
            if (!stuck[number_of(place, in->edge->from, in->from)])
                return false;
            waits = true;
        }
    return waits;
}

/* True: an item waits for a stuck receiver. One such receiver is enough. */
static bool
finishes_in_vain_locked(const exo_place *place, const bool *stuck)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < place->ports[i].num_edges; e++)
            for (uint32_t k = 0;
                 place->ports[i].edges[e]->outlets && k < place->ports[i].edges[e]->count; k++) {
                const exo_outlet *o = &place->ports[i].edges[e]->outlets[k];
                if (o->waiting > 0 && stuck[number_of(place, o->edge->to, o->to)])
                    return true;
            }
    return false;
}

static bool
waits_in_vain_locked(const exo_place *place, const bool *stuck)
{
    const exo_place_wait *wait = &place->wait;
    if (goes_on_locked(place))
        return false;
    switch (wait->kind) {
    case EXO_WAIT_SEND:
        return stuck[number_of(place, wait->outlet->edge->to, wait->outlet->to)];
    case EXO_WAIT_RECEIVE:
        return receives_in_vain_locked(place, stuck);
    case EXO_WAIT_FINISH:
        return finishes_in_vain_locked(place, stuck);
    case EXO_WAIT_NONE:
    case EXO_WAIT_COLLECTIVE:
        break;
    }
    return false;
}

static bool
meets_in_vain(const exo_place *place, const bool *stuck, uint32_t *scratch, uint64_t *counts)
{
    for (size_t i = 0; i < place->spec->class->num_ports; i++) {
        exo_comm_look look = {0};
        exo_comm *comm = exo_place_comm(place, i);
        if (!comm)
            continue;
        exo_comm_look_at(comm, place->actor.index, &look, scratch, counts);
        for (uint32_t m = 0; look.waits && !look.unsure && m < look.num_missing; m++)
            if (stuck[number_of(place, place->spec_index, scratch[m])])
                return true;
    }
    return false;
}

bool
exo_place_may_be_stuck(exo_place *place, const bool *stuck, uint32_t *scratch, uint64_t *counts,
                       uint64_t *mark)
{
    pthread_mutex_lock(&place->lock);
    exo_time since = place->pace.waits_since;
    bool at_port = place->wait.kind != EXO_WAIT_NONE;
    bool in_vain = at_port && waits_in_vain_locked(place, stuck);
    *mark = (*mark ^ place->moves ^ ((uint64_t)since << 20)) * UINT64_C(0x100000001b3);
    pthread_mutex_unlock(&place->lock);
    return in_vain || (!at_port && since >= 0 && meets_in_vain(place, stuck, scratch, counts));
}
