/* Tries every order of steps of a graph: see prove.h. State: struct search, for one call.
 *
 * A state of the graph has the next step of every actor, and the number of items in each channel,
 * in the receiver's buffer and the sender's outbox. A step is one action of one actor. Items arrive
 * at once, because an item on its way arrives eventually. Where a route or a port has a choice,
 * every choice is tried: a key, a draw, the first of several senders, whether a poll finds an item.
 * A step that no other step can disturb, on a channel that is alone at both ends, is tried alone,
 * unless it leads to a known state (Godefroid, Partial-Order Methods for the Verification of
 * Concurrent Systems, 1996).
 *
 * Each state is searched for actors that wait for each other, so that other actors that continue do
 * not hide them. */
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
    WORDS = 4 << 20, /* for the states on the stack */
    EFFORT = 40000,
    CHOSEN = 1 << 20
};

/* One sender and one receiver of an edge. */
struct channel {
    const exo_edge_spec *edge;
    uint32_t edge_index, from, to; /* indices into instances */
    uint32_t room;                 /* capacity with the outbox; UINT32_MAX: the edge drops items */
    /* no other channel leads to its input, which is not polled */
    bool alone;
};

struct instance {
    uint32_t actor, index;
    const exo_order *order; /* one of search.orders */
};

/* The words of a state: for each instance AT .. COUNTERS + DEPTH; for each instance and edge,
 * its turn and its sends; for each channel, its items. */
enum {
    AT,     /* index of the step; the order's length: the actor has ended */
    EDGE,   /* in a send: edges done */
    TARGET, /* in a send: targets done, or the chosen target and CHOSEN */
    COUNTERS,
    INSTANCE = COUNTERS + EXO_ORDER_DEPTH
};

struct search {
    const exo_graph_spec *spec;
    struct instance instances[MAX_INSTANCES];
    uint32_t num_instances;
    exo_order *orders; /* (spec->num_actors) each actor's order, reduced to this graph */
    struct channel *channels;
    uint32_t num_channels;
    size_t words;
    uint64_t *seen; /* hashes of states; 0: free */
    size_t seen_room, num_seen;
    uint32_t *stack;
    size_t length, room;
    uint32_t *state, *next;
    bool lasts;    /* no actor ever ends */
    bool dry;      /* push stores nothing; it only reports that a step exists */
    bool branched; /* a choice was tried */
    bool full;     /* no room for another state */
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

/* Walks through loops to the next action, or to an empty endless loop, where the actor stays. Every
 * other empty loop was left out (exo_prove_order), so the walk terminates. */
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
                    /* more repetitions than the search can try */
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

/* Moves past the step that was done, and past its alternatives. */
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

/* Records a state; false: it is known. */
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

/* Pushes `next` if it is a new state; returns whether it is. */
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

/* The k-th edge at the port that instance i sends to; the number of edges: there is no such
 * edge. */
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

/* The channel that the current send puts its item into next; NULL: it has not chosen yet, or the
 * instance does not send. */
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

/* True: the send has no room. While the receiver itself waits to send, a feedback edge has room. */
static bool
is_shut(const struct search *s, uint32_t *state, const struct channel *c)
{
    const struct channel *theirs = sending_to(s, state, c->to);
    return is_full(s, state, c) && !(c->edge->feedback && theirs && is_full(s, state, theirs));
}

/* True: an item can be received at the port. *open: a sender has not ended. */
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

/* Copies the state, as the base of the next one. */
static void
begin_step(struct search *s)
{
    memcpy(s->next, s->state, s->words * sizeof *s->next);
}

/* Continues a send after a channel or an edge was served or skipped. */
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

/* Chooses a target of a send. An item to a receiver that has ended is lost. When the buffer there is
 * full, the sender waits, and hears of the end. */
static bool
push_choice(struct search *s, uint32_t i, uint32_t e, uint32_t target)
{
    const struct channel *c = channel_between(s, e, i, target);
    if (has_ended(s, s->state, c->to) && *count_of(s, s->state, index_of(s, c)) >= c->room &&
        s->spec->edges[e].route != EXO_ROUTE_BROADCAST)
        return false;
    const uint32_t *turn = turn_of(s, s->state, i, e);
    begin_step(s);
    uint32_t *later = turn_of(s, s->next, i, e);
    later[0] = (turn[0] + 1) % targets_of(s, i, e);
    later[1] = (uint32_t)((turn[1] + 1) % s->spec->edges[e].every);
    part_of(s->next, i)[TARGET] = CHOSEN | target;
    return push(s);
}

/* Tries all choices of a send. A sender learns of the end of a receiver only later, so it may still
 * choose it. */
static bool
choose(struct search *s, uint32_t i, uint32_t e)
{
    const exo_edge_spec *edge = &s->spec->edges[e];
    uint32_t count = targets_of(s, i, e), first = 0, last = 0;
    uint32_t *turn = turn_of(s, s->state, i, e);
    bool pushed = false, left = false, skip = turn[1] % edge->every != 0;
    for (uint32_t t = 0; t < count; t++)
        left = left || !has_ended(s, s->state, channel_between(s, e, i, t)->to);
    if (count > 0 && !left) {
        s->branched = true; /* timing decides whether it sent before they ended */
        begin_step(s);
        end(s, s->next, i); /* as a send without any receiver left does */
        pushed = push(s);
    }
    if (count == 0 || skip) {
        begin_step(s); /* no item goes over this edge */
        turn_of(s, s->next, i, e)[1] = (uint32_t)((turn[1] + 1) % edge->every);
        after_put(s, i, e, false);
        return push(s) || pushed;
    }
    bool free_choice = edge->route == EXO_ROUTE_HASH || edge->route == EXO_ROUTE_GOSSIP ||
                       edge->route == EXO_ROUTE_LEAST_LOADED;
    if (edge->route == EXO_ROUTE_ROUND_ROBIN)
        first = last = (s->instances[i].index + turn[0]) % count;
    else if (edge->route == EXO_ROUTE_MODULO || edge->route == EXO_ROUTE_LISTED)
        first = last = turn[0] % count;
    else if (free_choice)
        last = count - 1;
    s->branched = s->branched || first != last;
    for (uint32_t t = first; t <= last; t++) {
        pushed = push_choice(s, i, e, t) || pushed;
        uint32_t at = t;
        while (left && edge->route != EXO_ROUTE_BROADCAST &&
               has_ended(s, s->state, channel_between(s, e, i, at)->to))
            at = (at + 1) % count;
        if (at == t)
            continue;
        s->branched =
            true; /* timing decides whether the sender knows that the receiver has ended */
        pushed = push_choice(s, i, e, at) || pushed;
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
    /* The choice among several targets depends on the receivers that have ended by then. */
    *alone = s->lasts || edge->route == EXO_ROUTE_BROADCAST || targets_of(s, i, e) <= 1;
    if (!c)
        return choose(s, i, e);
    if (is_shut(s, s->state, c))
        return false;
    *alone = c->alone && !edge->feedback && edge->on_full == EXO_FULL_BLOCK;
    /* timing decides whether the item is dropped */
    s->branched = s->branched || c->room == UINT32_MAX || has_ended(s, s->state, c->to);
    begin_step(s);
    uint32_t *count = count_of(s, s->next, index_of(s, c));
    if (*count < (c->room == UINT32_MAX           ? edge->capacity
                  : has_ended(s, s->state, c->to) ? c->room
                                                  : UINT32_MAX))
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
        begin_step(s); /* the port is CLOSED, which is the usual end */
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

/* A poll takes no item, a part of the items, or all of them. Even with a full buffer it may take
 * none, because the items may be on their way. A feedback edge has no bound while nothing is taken,
 * so a full buffer there counts as arrived; this is an assumption, not a proof. */
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
    s->branched = s->branched || any || open; /* timing decides what has arrived */
    return pushed;
}

/* True: the member is in this collective. */
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
            end(s, s->next, m); /* all members get an error, which is no stall */
    }
    return push(s);
}

/* Does all possible next steps of instance i, alternatives included; *alone: no other step disturbs
 * it. True: this led to new states. */
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

/* True: the step to `next` ends an actor that has a living sender. The effect of a send to it
 * depends on the order of both. */
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

/* Tries a single undisturbed step if one leads to a new state; otherwise all steps of all
 * instances. */
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

/* --- Stuck actors ----------------------------------------------------------------------------- */

/* True: instance i waits at this step in vain, for *peer over *edge. False: it can continue. */
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

/* True: instance i waits in vain at all alternatives. The named step is the first. */
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
    for (uint32_t k = 0; k < s->num_instances; k++, at = next) /* afterwards `at` is in the cycle */
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

/* True: instances are stuck, and `out` has their cycle. */
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

/* True: a send is among alternatives. A state does not show whether such a send has begun. */
static bool
may_not_send(const exo_order *order)
{
    for (uint32_t i = 0; i < order->length; i++)
        if (order->steps[i].kind == EXO_ORDER_SEND &&
            (order->steps[i].or_next || (i > 0 && order->steps[i - 1].or_next)))
            return true;
    return false;
}

/* True: the order ends with an endless loop, so the actor never ends by itself. */
static bool
is_endless(const exo_order *order)
{
    const exo_order_step *last = order->length ? &order->steps[order->length - 1] : NULL;
    return last && last->kind == EXO_ORDER_END &&
           order->steps[last->other].count == EXO_ORDER_ENDLESS;
}

/* Ends the search before it tries anything. */
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

/* Makes the instances. FULL: the graph is too large, or an order is missing or cannot be tried. */
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
