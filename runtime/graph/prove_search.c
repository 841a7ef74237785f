/* Tries every order of steps of a graph: see prove.h.
 *
 * A state is what every actor is about to do and how many items each channel holds, in the
 * receiver's buffer or in the sender's outbox. A step is one action of one actor; items arrive at
 * once, as what is on its way comes at last. Where a route or a port leaves a choice (a key, a
 * draw, which of several senders was first, whether a poll finds something) every choice is tried.
 * A step that no other can disturb, on a channel that is alone at both its ends, is tried alone,
 * unless it leads to where the search has been (Godefroid, Partial-Order Methods for the
 * Verification of Concurrent Systems, 1996).
 *
 * In each state those who wait for each other are looked for, so that others who go on do not hide
 * them. */
#include "graph/prove_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "graph/place.h"

enum {
    MAX_INSTANCES = 64,
    MAX_CHANNELS = 1024,
    MAX_WORDS = 4096,
    WORDS = 4 << 20, /* of states that wait to be looked at */
    EFFORT = 40000,
    CHOSEN = 1 << 20
};

/* One sender and one receiver of an edge. */
struct channel {
    const exo_edge_spec *edge;
    uint32_t edge_index, from, to; /* instances */
    uint32_t room;                 /* with the outbox; UINT32_MAX: it drops */
    /* the only one at the input that it leads to, which is not polled */
    bool alone;
};

struct instance {
    uint32_t actor, index;
    const exo_order *order; /* of `orders` */
};

/* Words of a state: of each instance ENDED .. COUNTERS + DEPTH, then of each instance and edge its
 * turn and its sends, then a count for each channel. */
enum {
    AT,     /* the step; the order's length: it has ended */
    EDGE,   /* in a send: edges that are done */
    TARGET, /* in a send: targets that are done, or the chosen one and CHOSEN */
    COUNTERS,
    INSTANCE = COUNTERS + EXO_ORDER_DEPTH
};

struct search {
    const exo_graph_spec *spec;
    struct instance instances[MAX_INSTANCES];
    uint32_t num_instances;
    exo_order *orders; /* (spec->num_actors) what of each is done in this graph */
    struct channel *channels;
    uint32_t num_channels;
    size_t words;
    uint64_t *seen; /* hashes; 0: free */
    size_t seen_room, num_seen;
    uint32_t *stack;
    size_t length, room;
    uint32_t *state, *next;
    bool lasts;    /* nobody ever ends */
    bool dry;      /* nothing is pushed: only whether something would be */
    bool branched; /* there was a choice */
    bool full;     /* there was no room for a state */
    exo_search_limit *limit;
};

static uint32_t *
part_of(uint32_t *state, uint32_t i)
{
    return state + (size_t)i * INSTANCE;
}

static uint32_t *
turn_of(const struct search *s, uint32_t *state, uint32_t i, uint32_t edge)
{
    return state + (size_t)s->num_instances * INSTANCE +
           2 * ((size_t)i * s->spec->num_edges + edge);
}

static uint32_t *
count_of(const struct search *s, uint32_t *state, uint32_t channel)
{
    return state + (size_t)s->num_instances * (INSTANCE + 2 * s->spec->num_edges) + channel;
}

static bool
has_ended(const struct search *s, uint32_t *state, uint32_t i)
{
    return part_of(state, i)[AT] >= s->instances[i].order->length;
}

static const exo_graph_port *
port_of(const struct search *s, uint32_t i, const exo_order_step *step)
{
    return &s->spec->actors[s->instances[i].actor].class->ports[step->port];
}

/* Goes through loops to the next action, or to a loop that has none and no end, where it stays.
 * Every other loop has one, or is left out: so this comes to an end. */
static void
settle(const struct search *s, uint32_t *state, uint32_t i)
{
    uint32_t *p = part_of(state, i);
    const exo_order *order = s->instances[i].order;
    while (p[AT] < order->length) {
        const exo_order_step *step = &order->steps[p[AT]];
        uint32_t *left = &p[COUNTERS + step->level];
        if (step->kind == EXO_ORDER_LOOP && step->other > p[AT] + 1) {
            *left = step->count == EXO_ORDER_ENDLESS ? UINT32_MAX
                    /* more states than are ever tried */
                    : step->count >= UINT32_MAX ? UINT32_MAX - 1
                                                : (uint32_t)step->count;
            p[AT]++;
        } else if (step->kind == EXO_ORDER_END) {
            *left -= *left != UINT32_MAX;
            p[AT] = *left ? step->other + 1 : p[AT] + 1;
        } else {
            return;
        }
    }
}

/* The step after the one that is done: alternatives of it are passed over. */
static void
advance(const struct search *s, uint32_t *state, uint32_t i)
{
    uint32_t *p = part_of(state, i);
    const exo_order *order = s->instances[i].order;
    while (order->steps[p[AT]].or_next)
        p[AT]++;
    p[AT]++;
    p[EDGE] = p[TARGET] = 0;
    settle(s, state, i);
}

static void
end(const struct search *s, uint32_t *state, uint32_t i)
{
    part_of(state, i)[AT] = s->instances[i].order->length;
}

/* --- States ----------------------------------------------------------------------------------- */

static uint64_t
hash_of(const struct search *s, const uint32_t *state)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < s->words; i++) {
        hash = (hash ^ state[i]) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

/* False: it was there before. */
static bool
note(struct search *s, uint64_t hash)
{
    size_t at = hash % s->seen_room;
    while (s->seen[at] && s->seen[at] != hash)
        at = (at + 1) % s->seen_room;
    if (s->seen[at])
        return false;
    s->seen[at] = hash;
    s->num_seen++;
    return true;
}

/* `next` is to be looked at, if it is new; gives whether. */
static bool
push(struct search *s)
{
    if (s->dry)
        return true;
    if (s->num_seen >= s->seen_room / 2 || s->length == s->room) {
        s->full = true;
        return false;
    }
    if (!note(s, hash_of(s, s->next)))
        return false;
    memcpy(s->stack + s->length++ * s->words, s->next, s->words * sizeof *s->next);
    return true;
}

/* --- Steps ------------------------------------------------------------------------------------ */

static struct channel *
channel_between(const struct search *s, uint32_t edge, uint32_t from, uint32_t target)
{
    uint32_t at = 0;
    for (uint32_t c = 0; c < s->num_channels; c++)
        if (s->channels[c].edge_index == edge && s->channels[c].from == from && at++ == target)
            return &s->channels[c];
    return NULL;
}

/* The k-th edge at the port that instance i sends to; the spec's number of edges: there are no
 * more. */
static uint32_t
edge_at(const struct search *s, uint32_t i, const exo_graph_port *port, uint32_t k)
{
    uint32_t e = 0;
    for (; e < s->spec->num_edges; e++)
        if (s->spec->edges[e].from == s->instances[i].actor && s->spec->edges[e].output == port &&
            k-- == 0)
            break;
    return e;
}

static uint32_t
targets_of(const struct search *s, uint32_t i, uint32_t edge)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < s->num_channels; c++)
        count += s->channels[c].edge_index == edge && s->channels[c].from == i;
    return count;
}

/* The channel that a send has still to put its item into; NULL: it has not chosen, or has none. */
static struct channel *
sending_to(const struct search *s, uint32_t *state, uint32_t i)
{
    uint32_t *p = part_of(state, i);
    const exo_order_step *step = &s->instances[i].order->steps[p[AT]];
    if (has_ended(s, state, i) || step->kind != EXO_ORDER_SEND)
        return NULL;
    uint32_t edge = edge_at(s, i, port_of(s, i, step), p[EDGE]);
    if (edge == s->spec->num_edges || !(p[TARGET] & CHOSEN))
        return NULL;
    return channel_between(s, edge, i, p[TARGET] & (CHOSEN - 1));
}

static uint32_t
index_of(const struct search *s, const struct channel *c)
{
    return (uint32_t)(c - s->channels);
}

static bool
is_full(const struct search *s, uint32_t *state, const struct channel *c)
{
    return !has_ended(s, state, c->to) && *count_of(s, state, index_of(s, c)) >= c->room;
}

/* Has this send no room? Its own receiver may be let in on a feedback edge while it waits to send
 * itself. */
static bool
is_shut(const struct search *s, uint32_t *state, const struct channel *c)
{
    const struct channel *theirs = sending_to(s, state, c->to);
    return is_full(s, state, c) && !(c->edge->feedback && theirs && is_full(s, state, theirs));
}

/* Is there something to receive at the port, or somebody who may still send? */
static bool
look_at_input(const struct search *s, uint32_t *state, uint32_t i, const exo_graph_port *port,
              bool *open)
{
    bool any = false;
    *open = false;
    for (uint32_t c = 0; c < s->num_channels; c++) {
        if (s->channels[c].to != i || s->channels[c].edge->input != port)
            continue;
        any = any || *count_of(s, state, c) > 0;
        *open = *open || !has_ended(s, state, s->channels[c].from);
    }
    return any;
}

/* The next state begins as this one. */
static void
begin_step(struct search *s)
{
    memcpy(s->next, s->state, s->words * sizeof *s->next);
}

/* Goes on in a send after an item was put into, or passed over, a channel or an edge. */
static void
after_put(struct search *s, uint32_t i, uint32_t edge, bool all)
{
    uint32_t *p = part_of(s->next, i), target = p[TARGET] & (CHOSEN - 1);
    const exo_graph_port *port = port_of(s, i, &s->instances[i].order->steps[p[AT]]);
    p[TARGET] = CHOSEN | (target + 1);
    if (!all || target + 1 >= targets_of(s, i, edge)) {
        p[EDGE]++;
        p[TARGET] = 0;
    }
    if (edge_at(s, i, port, p[EDGE]) == s->spec->num_edges)
        advance(s, s->next, i);
}

/* Tries what a send may choose. */
static bool
choose(struct search *s, uint32_t i, uint32_t e)
{
    const exo_edge_spec *edge = &s->spec->edges[e];
    uint32_t count = targets_of(s, i, e), first = 0, last = 0;
    uint32_t *turn = turn_of(s, s->state, i, e);
    bool pushed = false, left = false, skip = turn[1] % edge->every != 0;
    for (uint32_t t = 0; t < count; t++)
        left = left || !has_ended(s, s->state, channel_between(s, e, i, t)->to);
    /* it goes nowhere over this edge; if nobody is left at all, that is the end */
    if (count == 0 || skip || !left) {
        /* whether it sent before they ended depends on times */
        s->branched = s->branched || (count > 0 && !left);
        begin_step(s);
        turn_of(s, s->next, i, e)[1] = (uint32_t)((turn[1] + 1) % edge->every);
        if (count > 0 && !left)
            end(s, s->next, i);
        else
            after_put(s, i, e, false);
        return push(s);
    }
    bool free_choice = edge->route == EXO_ROUTE_HASH || edge->route == EXO_ROUTE_GOSSIP ||
                       edge->route == EXO_ROUTE_LEAST_LOADED;
    if (edge->route == EXO_ROUTE_ROUND_ROBIN)
        first = last = (s->instances[i].index + turn[0]) % count;
    else if (edge->route == EXO_ROUTE_MODULO)
        first = last = turn[0] % count;
    else if (free_choice)
        last = count - 1;
    s->branched = s->branched || first != last;
    for (uint32_t t = first; t <= last; t++) {
        uint32_t at = t;
        begin_step(s);
        while (edge->route != EXO_ROUTE_BROADCAST &&
               has_ended(s, s->state, channel_between(s, e, i, at)->to)) {
            s->branched = true; /* whether it had ended by then depends on times */
            at = (at + 1) % count;
        }
        uint32_t *later = turn_of(s, s->next, i, e);
        later[0] = (turn[0] + 1) % count;
        later[1] = (uint32_t)((turn[1] + 1) % edge->every);
        part_of(s->next, i)[TARGET] = CHOSEN | at;
        pushed = push(s) || pushed;
    }
    return pushed;
}

static bool
do_send(struct search *s, uint32_t i, const exo_order_step *step, bool *alone)
{
    uint32_t *p = part_of(s->state, i);
    uint32_t e = edge_at(s, i, port_of(s, i, step), p[EDGE]);
    struct channel *c = sending_to(s, s->state, i);
    const exo_edge_spec *edge = &s->spec->edges[e];
    /* Which of several it chooses depends on who has ended by then. */
    *alone = s->lasts || edge->route == EXO_ROUTE_BROADCAST || targets_of(s, i, e) <= 1;
    if (!c)
        return choose(s, i, e);
    if (is_shut(s, s->state, c))
        return false;
    *alone = c->alone && !edge->feedback && edge->on_full == EXO_FULL_BLOCK;
    /* it depends on times */
    s->branched = s->branched || c->room == UINT32_MAX || has_ended(s, s->state, c->to);
    begin_step(s);
    uint32_t *count = count_of(s, s->next, index_of(s, c));
    if (!has_ended(s, s->state, c->to) &&
        *count < (c->room == UINT32_MAX ? edge->capacity : UINT32_MAX))
        ++*count;
    after_put(s, i, e, edge->route == EXO_ROUTE_BROADCAST);
    return push(s);
}

static bool
do_receive(struct search *s, uint32_t i, uint32_t at, const exo_order_step *step, bool *alone)
{
    const exo_graph_port *port = port_of(s, i, step);
    bool open = false, pushed = false;
    uint32_t senders = 0;
    if (!look_at_input(s, s->state, i, port, &open)) {
        if (open)
            return false;
        begin_step(s); /* CLOSED: the usual end */
        end(s, s->next, i);
        *alone = true;
        return push(s);
    }
    for (uint32_t c = 0; c < s->num_channels; c++) {
        if (s->channels[c].to != i || s->channels[c].edge->input != port ||
            *count_of(s, s->state, c) == 0)
            continue;
        senders++;
        *alone = s->channels[c].alone && !s->channels[c].edge->feedback &&
                 s->channels[c].edge->on_full == EXO_FULL_BLOCK && !step->or_next;
        begin_step(s);
        --*count_of(s, s->next, c);
        part_of(s->next, i)[AT] = at;
        advance(s, s->next, i);
        pushed = push(s) || pushed;
    }
    s->branched = s->branched || senders > 1;
    return pushed;
}

/* Nothing has come yet, or some of what was sent, or all of it, which is taken. Also of a full
 * buffer: what fills it may be on its way. Feedback edges are let in without end while nothing is
 * taken: there a full buffer counts as one that has come, which is no proof of it. */
static bool
do_poll(struct search *s, uint32_t i, const exo_order_step *step)
{
    const exo_graph_port *port = port_of(s, i, step);
    bool open = false, any = look_at_input(s, s->state, i, port, &open), pushed = false;
    uint32_t most = 0, least = 0;
    for (uint32_t c = 0; c < s->num_channels; c++)
        if (s->channels[c].to == i && s->channels[c].edge->input == port &&
            *count_of(s, s->state, c) > most)
            most = *count_of(s, s->state, c);
    for (uint32_t c = 0; c < s->num_channels; c++)
        if (s->channels[c].to == i && s->channels[c].edge->input == port &&
            s->channels[c].edge->feedback && *count_of(s, s->state, c) >= s->channels[c].room)
            least = most;
    for (uint32_t takes = least; takes <= most; takes++) {
        begin_step(s);
        for (uint32_t c = 0; c < s->num_channels; c++) {
            uint32_t *count = count_of(s, s->next, c);
            if (s->channels[c].to == i && s->channels[c].edge->input == port)
                *count -= takes < *count ? takes : *count;
        }
        advance(s, s->next, i);
        pushed = push(s) || pushed;
    }
    s->branched = s->branched || any || open; /* what has come by now depends on times */
    return pushed;
}

/* Is the member at this collective? */
static bool
is_reducing(const struct search *s, uint32_t i, const exo_graph_port *port)
{
    if (has_ended(s, s->state, i))
        return false;
    const exo_order_step *step = &s->instances[i].order->steps[part_of(s->state, i)[AT]];
    return step->kind == EXO_ORDER_REDUCE && port_of(s, i, step) == port;
}

static bool
do_reduce(struct search *s, uint32_t i, const exo_order_step *step)
{
    const exo_graph_port *port = port_of(s, i, step);
    bool all = true, gone = false;
    for (uint32_t m = 0; m < s->num_instances; m++) {
        if (s->instances[m].actor != s->instances[i].actor)
            continue;
        all = all && is_reducing(s, m, port);
        gone = gone || has_ended(s, s->state, m);
    }
    if (!all && !gone)
        return false;
    begin_step(s);
    for (uint32_t m = 0; m < s->num_instances; m++) {
        if (s->instances[m].actor != s->instances[i].actor || !is_reducing(s, m, port))
            continue;
        if (all)
            advance(s, s->next, m);
        else
            end(s, s->next, m); /* an error for all of them, and no stall */
    }
    return push(s);
}

/* What instance i can do next, alternatives included; alone: nothing else disturbs it. True: that
 * led to new states. */
static bool
step_instance(struct search *s, uint32_t i, bool *alone)
{
    const exo_order *order = s->instances[i].order;
    uint32_t at = part_of(s->state, i)[AT];
    bool pushed = false;
    *alone = false;
    for (bool more = !has_ended(s, s->state, i); more; at++) {
        const exo_order_step *step = &order->steps[at];
        bool one = false;
        more = step->or_next;
        s->branched = s->branched || more;
        if (step->kind == EXO_ORDER_SEND)
            pushed = do_send(s, i, step, &one) || pushed;
        else if (step->kind == EXO_ORDER_RECEIVE)
            pushed = do_receive(s, i, at, step, &one) || pushed;
        else if (step->kind == EXO_ORDER_POLL)
            pushed = do_poll(s, i, step) || pushed;
        else if (step->kind == EXO_ORDER_REDUCE)
            pushed = do_reduce(s, i, step) || pushed;
        *alone = (one || step->kind == EXO_ORDER_REDUCE) && !more && at == part_of(s->state, i)[AT];
    }
    return pushed;
}

/* Does the step to `next` end an actor to whom somebody may still send? What that send does depends
 * on which comes first. */
static bool
ends_a_receiver(struct search *s)
{
    for (uint32_t c = 0; c < s->num_channels; c++) {
        uint32_t to = s->channels[c].to;
        if (!has_ended(s, s->state, to) && has_ended(s, s->next, to) &&
            !has_ended(s, s->state, s->channels[c].from))
            return true;
    }
    return false;
}

/* All that can be done next; or, if there is one, a step that nothing else disturbs, unless it
 * leads back. */
static void
expand(struct search *s)
{
    bool alone = false;
    for (uint32_t i = 0; i < s->num_instances; i++) {
        s->dry = true;
        bool can = step_instance(s, i, &alone);
        s->dry = false;
        if (can && ends_a_receiver(s)) {
            s->branched = true;
            alone = false;
        }
        if (can && alone && step_instance(s, i, &alone))
            return;
    }
    for (uint32_t i = 0; i < s->num_instances; i++)
        step_instance(s, i, &alone);
}

/* --- Who is stuck ----------------------------------------------------------------------------- */

/* Whom instance i waits for at a step, if that is in vain: *peer and the edge. False: it may go
 * on. */
static bool
is_in_vain(const struct search *s, const bool *stuck, uint32_t i, const exo_order_step *step,
           uint32_t *peer, const exo_edge_spec **edge)
{
    const exo_graph_port *port = port_of(s, i, step);
    uint32_t senders = 0;
    bool open = false;
    const struct channel *c = sending_to(s, s->state, i);
    switch (step->kind) {
    case EXO_ORDER_SEND:
        if (!c || !is_shut(s, s->state, c) || !stuck[c->to])
            return false;
        *peer = c->to;
        *edge = c->edge;
        return true;
    case EXO_ORDER_RECEIVE:
        if (look_at_input(s, s->state, i, port, &open) || !open)
            return false;
        for (uint32_t k = 0; k < s->num_channels; k++) {
            if (s->channels[k].to != i || s->channels[k].edge->input != port ||
                has_ended(s, s->state, s->channels[k].from))
                continue;
            if (!stuck[s->channels[k].from])
                return false;
            *peer = senders++ == 0 ? s->channels[k].from : *peer;
            *edge = s->channels[k].edge;
        }
        return senders > 0;
    case EXO_ORDER_REDUCE:
        for (size_t e = 0; e < s->spec->num_edges; e++)
            if (s->spec->edges[e].output == port && s->spec->edges[e].from == s->instances[i].actor)
                *edge = &s->spec->edges[e];
        for (uint32_t m = 0; m < s->num_instances; m++)
            if (s->instances[m].actor == s->instances[i].actor && has_ended(s, s->state, m))
                return false;
        for (uint32_t m = 0; m < s->num_instances; m++)
            if (s->instances[m].actor == s->instances[i].actor && stuck[m] &&
                !is_reducing(s, m, port)) {
                *peer = m;
                return true;
            }
        return false;
    case EXO_ORDER_POLL:
    case EXO_ORDER_LOOP:
    case EXO_ORDER_END:
        break;
    }
    return false;
}

/* All alternatives must be. The step that is named is the first. */
static bool
waits_in_vain(const struct search *s, const bool *stuck, uint32_t i, uint32_t *peer,
              const exo_edge_spec **edge, const exo_order_step **named)
{
    const exo_order *order = s->instances[i].order;
    uint32_t at = part_of(s->state, i)[AT], other = 0;
    const exo_edge_spec *unused = NULL;
    if (has_ended(s, s->state, i))
        return false;
    *named = &order->steps[at];
    if (!is_in_vain(s, stuck, i, *named, peer, edge))
        return false;
    for (; order->steps[at].or_next; at++)
        if (!is_in_vain(s, stuck, i, &order->steps[at + 1], &other, &unused))
            return false;
    return true;
}

static void
name_of(const struct search *s, uint32_t i, char *out, size_t size)
{
    snprintf(out, size, "%s_%u", s->spec->actors[s->instances[i].actor].name,
             s->instances[i].index);
}

static void
tell_cycle(const struct search *s, const bool *stuck, uint32_t at, exo_proof *out)
{
    static const char *const verbs[] = {[EXO_ORDER_SEND] = "to send on",
                                        [EXO_ORDER_RECEIVE] = "to receive on",
                                        [EXO_ORDER_REDUCE] = "in"};
    static const char *const preposition[] = {
        [EXO_ORDER_SEND] = "to", [EXO_ORDER_RECEIVE] = "from", [EXO_ORDER_REDUCE] = "for"};
    uint32_t next = 0;
    const exo_edge_spec *edge = NULL;
    const exo_order_step *step = NULL;
    exo_text text = {0};
    for (uint32_t k = 0; k < s->num_instances; k++, at = next) /* now it is in the cycle */
        waits_in_vain(s, stuck, at, &next, &edge, &step);
    uint32_t first = at;
    do {
        char actor[96], peer[96];
        waits_in_vain(s, stuck, at, &next, &edge, &step);
        name_of(s, at, actor, sizeof actor);
        name_of(s, next, peer, sizeof peer);
        exo_text_add(&text, "%s%s waits %s '%s' %s %s", text.length ? ", " : "", actor,
                     verbs[step->kind], edge->name, preposition[step->kind], peer);
        out->at = out->at ? out->at : edge->node;
        at = next;
    } while (at != first);
    snprintf(out->text, sizeof out->text, "%s", text.data ? text.data : "");
    exo_free(text.data);
}

/* True: somebody is, and `out` says who. */
static bool
find_stuck(const struct search *s, exo_proof *out)
{
    bool stuck[MAX_INSTANCES], changed = true, any = false;
    uint32_t peer = 0;
    const exo_edge_spec *edge = NULL;
    const exo_order_step *step = NULL;
    for (uint32_t i = 0; i < s->num_instances; i++)
        stuck[i] = !has_ended(s, s->state, i);
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < s->num_instances; i++)
            if (stuck[i] && !waits_in_vain(s, stuck, i, &peer, &edge, &step)) {
                stuck[i] = false;
                changed = true;
            }
    }
    for (uint32_t i = 0; i < s->num_instances && !any; i++)
        if (stuck[i]) {
            any = true;
            tell_cycle(s, stuck, i, out);
        }
    return any;
}

/* --- The search ------------------------------------------------------------------------------- */

static bool
polls(const exo_order *order, const exo_graph_class *class, const exo_graph_port *port)
{
    for (uint32_t i = 0; i < order->length; i++)
        if (order->steps[i].kind == EXO_ORDER_POLL && &class->ports[order->steps[i].port] == port)
            return true;
    return false;
}

/* Is a send one of alternatives? Then whether it has begun is not in a state. */
static bool
may_not_send(const exo_order *order)
{
    for (uint32_t i = 0; i < order->length; i++)
        if (order->steps[i].kind == EXO_ORDER_SEND &&
            (order->steps[i].or_next || (i > 0 && order->steps[i - 1].or_next)))
            return true;
    return false;
}

/* Does the order never come to its end by itself? It ends with an endless loop. */
static bool
is_endless(const exo_order *order)
{
    const exo_order_step *last = order->length ? &order->steps[order->length - 1] : NULL;
    return last && last->kind == EXO_ORDER_END &&
           order->steps[last->other].count == EXO_ORDER_ENDLESS;
}

/* Nothing is tried. */
static exo_status
give_up(const struct search *s, exo_limit_kind kind, uint32_t actor, size_t count)
{
    *s->limit = (exo_search_limit){.kind = kind, .actor = actor, .count = count};
    return EXO_FULL;
}

static exo_status
add_channels(struct search *s, exo_err *err)
{
    const exo_graph_spec *spec = s->spec;
    uint32_t first[EXO_GRAPH_MAX_NAMES] = {0}, sum = 0;
    for (size_t a = 0; a < spec->num_actors; a++) {
        first[a] = sum;
        sum += spec->actors[a].count;
    }
    s->channels = exo_calloc(MAX_CHANNELS, sizeof *s->channels);
    if (!s->channels)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (uint32_t e = 0; e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        uint32_t targets[MAX_INSTANCES];
        for (uint32_t i = 0;
             edge->route != EXO_ROUTE_ALL_REDUCE && i < spec->actors[edge->from].count; i++) {
            uint32_t count = exo_edge_targets(spec, edge, i, targets);
            for (uint32_t t = 0; t < count; t++) {
                if (s->num_channels == MAX_CHANNELS)
                    return give_up(s, EXO_LIMIT_CHANNELS, 0, MAX_CHANNELS);
                s->channels[s->num_channels++] = (struct channel){
                    .edge = edge,
                    .edge_index = e,
                    .from = first[edge->from] + i,
                    .to = first[edge->to] + targets[t],
                    .room =
                        edge->on_full == EXO_FULL_BLOCK ? edge->capacity + EXO_OUTBOX : UINT32_MAX};
            }
        }
    }
    for (uint32_t c = 0; c < s->num_channels; c++) {
        const exo_edge_spec *edge = s->channels[c].edge;
        s->channels[c].alone =
            !polls(spec->actors[edge->to].order, spec->actors[edge->to].class, edge->input);
        for (uint32_t d = 0; d < s->num_channels; d++)
            if (d != c && s->channels[d].to == s->channels[c].to &&
                s->channels[d].edge->input == s->channels[c].edge->input)
                s->channels[c].alone = false;
    }
    return EXO_OK;
}

/* FULL: the graph is too large, or says too little. */
static exo_status
open_instances(struct search *s, exo_err *err)
{
    const exo_graph_spec *spec = s->spec;
    size_t actors = 0;
    for (uint32_t a = 0; a < spec->num_actors; a++) {
        if (!spec->actors[a].order)
            return give_up(s, EXO_LIMIT_UNDECLARED, a, 0);
        actors += spec->actors[a].count;
    }
    if (actors > MAX_INSTANCES)
        return give_up(s, EXO_LIMIT_ACTORS, 0, actors);
    s->orders = exo_calloc(spec->num_actors, sizeof *s->orders);
    if (!s->orders)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (uint32_t a = 0; a < spec->num_actors; a++) {
        exo_prove_order(&s->orders[a], spec, a);
        if (may_not_send(&s->orders[a]))
            return give_up(s, EXO_LIMIT_MAY_SEND, a, 0);
        for (uint32_t i = 0; i < spec->actors[a].count; i++)
            s->instances[s->num_instances++] =
                (struct instance){.actor = a, .index = i, .order = &s->orders[a]};
    }
    return EXO_OK;
}

static exo_status
open_search(struct search *s, size_t effort, exo_err *err)
{
    const exo_graph_spec *spec = s->spec;
    exo_status st = open_instances(s, err);
    if (st == EXO_OK)
        st = add_channels(s, err);
    if (st != EXO_OK)
        return st;
    s->lasts = true;
    for (uint32_t i = 0; i < s->num_instances; i++)
        s->lasts = s->lasts && is_endless(s->instances[i].order);
    s->words = (size_t)s->num_instances * (INSTANCE + 2 * spec->num_edges) + s->num_channels;
    if (s->words > MAX_WORDS)
        return give_up(s, EXO_LIMIT_WORDS, 0, s->words);
    effort = effort ? effort : EFFORT;
    s->room = WORDS / s->words < effort ? WORDS / s->words : effort;
    s->seen_room = 2 * effort + 16;
    s->stack = exo_calloc(s->room, s->words * sizeof *s->stack);
    s->seen = exo_calloc(s->seen_room, sizeof *s->seen);
    s->state = exo_calloc(s->words, sizeof *s->state);
    s->next = exo_calloc(s->words, sizeof *s->next);
    return s->stack && s->seen && s->state && s->next
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
}

exo_status
exo_prove_search(const exo_graph_spec *spec, size_t effort, exo_proof *out, exo_search_limit *limit,
                 exo_err *err)
{
    bool stuck = false;
    struct search *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    *limit = (exo_search_limit){0};
    s->spec = spec;
    s->limit = limit;
    exo_status st = open_search(s, effort, err);
    if (st == EXO_OK) {
        for (uint32_t i = 0; i < s->num_instances; i++)
            settle(s, s->next, i);
        push(s);
    }
    while (st == EXO_OK && s->length > 0 && !s->full && !stuck) {
        memcpy(s->state, s->stack + --s->length * s->words, s->words * sizeof *s->state);
        stuck = find_stuck(s, out);
        if (!stuck)
            expand(s);
    }
    out->verdict = stuck                      ? s->branched ? EXO_CAN_STALL : EXO_STALLS
                   : st == EXO_OK && !s->full ? EXO_SOUND
                                              : EXO_NOT_PROVEN;
    if (st == EXO_OK && s->full)
        *limit = (exo_search_limit){.kind = EXO_LIMIT_STATES, .count = s->num_seen};
    exo_free(s->orders);
    exo_free(s->channels);
    exo_free(s->seen);
    exo_free(s->stack);
    exo_free(s->state);
    exo_free(s->next);
    exo_free(s);
    return st == EXO_FULL ? EXO_OK : st;
}
