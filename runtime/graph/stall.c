/* Finds stalls in the records of all actors: see stall.h. No state. */
#include "graph/stall.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/config_edit.h"

/* --- Records ---------------------------------------------------------------------------------- */

static const exo_wait_record *
record_of(const exo_payload *record)
{
    return record->size ? record->data : NULL;
}

static const exo_wait_end *
ends_of(const exo_wait_record *r)
{
    return (const exo_wait_end *)(const void *)(r + 1);
}

static const uint32_t *
missing_of(const exo_wait_record *r)
{
    return (const uint32_t *)(const void *)(ends_of(r) + r->num_ends);
}

bool
exo_wait_record_is_whole(const exo_payload *record, uint32_t count)
{
    const exo_wait_record *r = record->data;
    if (record->size == 0)
        return true;
    if (record->size < sizeof *r || r->kind > EXO_WAIT_FINISH ||
        !memchr(r->edge_name, 0, sizeof r->edge_name))
        return false;
    size_t left = record->size - sizeof *r;
    if (r->num_ends > left / sizeof(exo_wait_end) || r->num_missing > left / sizeof(uint32_t) ||
        left != r->num_ends * sizeof(exo_wait_end) + r->num_missing * sizeof(uint32_t))
        return false;
    for (uint32_t e = 0; e < r->num_ends; e++)
        if (ends_of(r)[e].peer >= count)
            return false;
    for (uint32_t m = 0; m < r->num_missing; m++)
        if (missing_of(r)[m] >= count)
            return false;
    return true;
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

/* The end of a channel in the record `r`; NULL: the record has none. */
static const exo_wait_end *
find_end(const exo_wait_record *r, bool output, uint32_t edge, uint32_t peer)
{
    const exo_wait_end key = {.output = output, .edge = edge, .peer = peer};
    return r->num_ends ? bsearch(&key, ends_of(r), r->num_ends, sizeof key, compare_ends) : NULL;
}

bool
exo_stall_is_same(const exo_payload *before, const exo_payload *after, const bool *stuck,
                  uint32_t count)
{
    const size_t skip = sizeof(exo_time); /* `waited` */
    for (uint32_t i = 0; i < count; i++)
        if (stuck[i] && (before[i].size != after[i].size || after[i].size == 0 ||
                         memcmp((const char *)before[i].data + skip,
                                (const char *)after[i].data + skip, after[i].size - skip) != 0))
            return false;
    return true;
}

/* --- Removing actors that can continue -------------------------------------------------------- */

struct search {
    const exo_payload *records;
    uint32_t count;
    bool *stuck;
};

/* True: the receiver of this end is stuck and has no credit out, and items wait to leave. */
static bool
is_shut(const struct search *s, uint32_t sender, const exo_wait_end *out)
{
    if (out->over || out->busy || out->amount == 0 || !s->stuck[out->peer])
        return false;
    const exo_wait_end *in = find_end(record_of(&s->records[out->peer]), false, out->edge, sender);
    return in && in->amount == 0 && !in->gone;
}

/* True: the sender of this end is stuck, and no item of it is on its way. */
static bool
is_dry(const struct search *s, uint32_t receiver, const exo_wait_end *in)
{
    if (!s->stuck[in->peer])
        return false;
    const exo_wait_end *out = find_end(record_of(&s->records[in->peer]), true, in->edge, receiver);
    return out && !out->over && !out->busy && out->amount == 0 && out->number == in->number;
}

/* True: actor `i` has from the member what it waits for in a collective between processes, or will
 * have it: a message is on its way, or the member has begun the call (exo_comm_look). */
static bool
has_come(const exo_payload *records, uint32_t i, uint32_t member)
{
    const exo_wait_record *r = record_of(&records[i]), *of = record_of(&records[member]);
    const exo_wait_end *in = find_end(r, false, r->edge, member);
    const exo_wait_end *out = in && of ? find_end(of, true, r->edge, i) : NULL;
    return in && out && out->number > in->number;
}

/* True: the member is stuck. In a collective between processes, nothing of it has come, or will. */
static bool
is_silent(const struct search *s, uint32_t i, uint32_t member)
{
    const exo_wait_record *r = record_of(&s->records[i]);
    if (!s->stuck[member] || !find_end(r, false, r->edge, member))
        return s->stuck[member];
    return find_end(record_of(&s->records[member]), true, r->edge, i) &&
           !has_come(s->records, i, member);
}

/* True: actor `i` waits in vain, and *peer is a stuck actor that it waits for. False: it can
 * continue. */
static bool
waits_in_vain(const struct search *s, uint32_t i, uint32_t *peer)
{
    const exo_wait_record *r = record_of(&s->records[i]);
    uint32_t awaited = 0;
    switch ((exo_wait_kind)r->kind) {
    case EXO_WAIT_NONE:
        break;
    case EXO_WAIT_SEND:
    case EXO_WAIT_FINISH: /* one stuck target is enough */
        for (uint32_t e = 0; e < r->num_ends; e++) {
            const exo_wait_end *end = &ends_of(r)[e];
            bool counts = end->output && (end->awaited || r->kind == EXO_WAIT_FINISH);
            *peer = end->peer;
            if (counts && is_shut(s, i, end))
                return true;
        }
        break;
    case EXO_WAIT_RECEIVE: /* all senders must be stuck: an item of any of them ends the wait */
        for (uint32_t e = 0; e < r->num_ends; e++) {
            const exo_wait_end *end = &ends_of(r)[e];
            if (!end->awaited)
                continue;
            if (!is_dry(s, i, end))
                return false;
            *peer = awaited++ == 0 ? end->peer : *peer;
        }
        return awaited > 0;
    case EXO_WAIT_COLLECTIVE: /* one stuck member is enough */
        for (uint32_t m = 0; m < r->num_missing; m++) {
            *peer = missing_of(r)[m];
            if (is_silent(s, i, *peer))
                return true;
        }
        break;
    }
    return false;
}

static void
take_away_who_goes_on(const struct search *s)
{
    bool changed = true;
    uint32_t peer = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const exo_wait_record *r = record_of(&s->records[i]);
        s->stuck[i] = r && r->kind != EXO_WAIT_NONE && !r->goes_on;
    }
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < s->count; i++)
            if (s->stuck[i] && !waits_in_vain(s, i, &peer)) {
                s->stuck[i] = false;
                changed = true;
            }
    }
}

/* --- The cycle -------------------------------------------------------------------------------- */

static exo_stall_wait
wait_of(const struct search *s, uint32_t i)
{
    const exo_wait_record *r = record_of(&s->records[i]);
    exo_stall_wait wait = {.actor = i, .kind = (exo_wait_kind)r->kind, .waited = r->waited};
    memcpy(wait.edge, r->edge_name, sizeof wait.edge);
    waits_in_vain(s, i, &wait.peer);
    return wait;
}

/* Follows the waits from a stuck actor, as many steps as actors are stuck, to a point in a cycle;
 * then walks around that cycle. */
static exo_status
read_cycle(const struct search *s, exo_stall *out, exo_err *err)
{
    uint32_t at = 0, lowest = 0, next = 0;
    for (uint32_t i = s->count; i-- > 0;) {
        out->num_stuck += s->stuck[i];
        at = s->stuck[i] ? i : at;
    }
    if (out->num_stuck == 0)
        return EXO_OK;
    /* afterwards `at` is in the cycle */
    for (size_t step = 0; step < out->num_stuck; step++, at = next)
        waits_in_vain(s, at, &next);
    lowest = at;
    size_t length = 0;
    uint32_t around = at;
    do {
        lowest = around < lowest ? around : lowest;
        waits_in_vain(s, around, &next);
        around = next;
        length++;
    } while (around != at);
    out->cycle = exo_calloc(length, sizeof *out->cycle);
    if (!out->cycle)
        return exo_fail(err, EXO_NOMEM, "no memory for a stall");
    for (around = lowest; out->length < length; around = out->cycle[out->length++].peer)
        out->cycle[out->length] = wait_of(s, around);
    return EXO_OK;
}

exo_status
exo_stall_find(exo_stall *out, const exo_payload *records, uint32_t count, bool *stuck,
               exo_err *err)
{
    const struct search s = {.records = records, .count = count, .stuck = stuck};
    *out = (exo_stall){0};
    take_away_who_goes_on(&s);
    return read_cycle(&s, out, err);
}

void
exo_stall_release(exo_stall *stall)
{
    exo_free(stall->cycle);
    *stall = (exo_stall){0};
}

/* --- Texts ------------------------------------------------------------------------------------ */

/* The spec of an actor, by its number, and its index in its name. */
static const exo_actor_spec *
actor_of(const exo_graph_spec *spec, uint32_t number, uint32_t *index)
{
    *index = number;
    for (size_t a = 0; a < spec->num_actors; a++) {
        if (*index < spec->actors[a].count)
            return &spec->actors[a];
        *index -= spec->actors[a].count;
    }
    return NULL;
}

void
exo_stall_name(const exo_graph_spec *spec, uint32_t number, char *out, size_t size)
{
    uint32_t index = 0;
    const exo_actor_spec *actor = actor_of(spec, number, &index);
    snprintf(out, size, "%s_%" PRIu32, actor ? actor->name : "?", index);
}

void
exo_stall_wait_text(const exo_graph_spec *spec, const exo_stall_wait *w, exo_time now, char *out,
                    size_t size)
{
    char actor[96], peer[96];
    double since = (double)(now - w->waited) * 1e-9;
    exo_stall_name(spec, w->actor, actor, sizeof actor);
    exo_stall_name(spec, w->peer, peer, sizeof peer);
    switch (w->kind) {
    case EXO_WAIT_NONE:
        break;
    case EXO_WAIT_SEND:
        exo_c_snprintf(
            out, size,
            "%s waits to send on '%s' to %s, whose buffer is full, since %.2f s into the run",
            actor, w->edge, peer, since);
        return;
    case EXO_WAIT_RECEIVE:
        exo_c_snprintf(out, size, "%s waits to receive on '%s' from %s since %.2f s into the run",
                       actor, w->edge, peer, since);
        return;
    case EXO_WAIT_COLLECTIVE:
        exo_c_snprintf(out, size, "%s waits in '%s' for %s since %.2f s into the run", actor,
                       w->edge, peer, since);
        return;
    case EXO_WAIT_FINISH:
        exo_c_snprintf(
            out, size,
            "%s has ended, and what it sent last waits for room at %s since %.2f s into the run",
            actor, peer, since);
        return;
    }
    snprintf(out, size, "%s does not wait", actor);
}

exo_status
exo_stall_text(const exo_graph_spec *spec, const exo_stall *stall, exo_time now, exo_err *out)
{
    char wait[512];
    exo_text text = {0};
    for (size_t i = 0; i < stall->length; i++) {
        exo_stall_wait_text(spec, &stall->cycle[i], now, wait, sizeof wait);
        exo_text_add(&text, "%s%s", i ? ", " : "", wait);
    }
    exo_fail(out, EXO_FAILED, "the graph stalls: %s", text.failed || !text.data ? "" : text.data);
    exo_free(text.data);
    return EXO_FAILED;
}

/* --- Long waits ------------------------------------------------------------------------------- */

static const exo_edge_spec *
edge_called(const exo_graph_spec *spec, const char *name)
{
    for (size_t e = 0; e < spec->num_edges; e++)
        if (strncmp(spec->edges[e].name, name, EXO_WAIT_EDGE - 1) == 0)
            return &spec->edges[e];
    return NULL;
}

/* Writes the link between two actors, such as "home_0 -> dc". */
static void
name_link(const exo_graph_spec *spec, const char *edge_name, uint32_t from, uint32_t to, char *out,
          size_t size)
{
    uint32_t i = 0, j = 0;
    const exo_actor_spec *a = actor_of(spec, from, &i), *b = actor_of(spec, to, &j);
    const exo_edge_spec *edge = edge_called(spec, edge_name);
    if (!a || !b)
        return;
    uint32_t x = a->hosts[i], y = b->hosts[j];
    bool own = edge && edge->link >= 0;
    const exo_link_spec *link = !edge ? NULL
                                : own ? &spec->links[edge->link].spec
                                      : exo_graph_link_between(spec, x, y);
    double rate = link ? link->bandwidth : 0, up = spec->hosts[x].spec.up,
           down = spec->hosts[y].spec.down;
    rate = !own && up < rate ? up : rate;
    rate = !own && down < rate ? down : rate;
    if (edge && rate > 0 && rate < 1e15)
        exo_c_snprintf(out, size, "%s -> %s (%.6g Mbit/s)", spec->hosts[x].spec.name,
                       spec->hosts[y].spec.name, rate * 1e-6);
    else
        snprintf(out, size, "%s -> %s", spec->hosts[x].spec.name, spec->hosts[y].spec.name);
}

/* Writes what a wait is for: a link with a message on it, or else an actor. */
static void
explain(const exo_graph_spec *spec, const exo_payload *records, uint32_t i, exo_slow_wait *out)
{
    const exo_wait_record *r = record_of(&records[i]);
    bool receives = r->kind == EXO_WAIT_RECEIVE;
    for (uint32_t e = 0; e < r->num_ends && !out->link; e++) {
        const exo_wait_end *end = &ends_of(r)[e];
        if (!end->awaited && !(r->kind == EXO_WAIT_FINISH && end->output && !end->over))
            continue;
        const exo_wait_record *peer = record_of(&records[end->peer]);
        const exo_wait_end *other = peer && receives ? find_end(peer, true, end->edge, i) : NULL;
        out->link =
            receives ? end->passing || (other && other->passing) : end->passing || end->returning;
        bool comes = receives || end->returning;
        if (out->link)
            name_link(spec, r->edge_name, comes ? end->peer : i, comes ? i : end->peer, out->on,
                      sizeof out->on);
        else if (!out->on[0])
            exo_stall_name(spec, end->peer, out->on, sizeof out->on);
    }
    if (r->kind != EXO_WAIT_COLLECTIVE)
        return;
    uint32_t at = 0;
    while (at + 1 < r->num_missing && has_come(records, i, missing_of(r)[at]))
        at++;
    const exo_wait_record *missing = r->num_missing ? record_of(&records[missing_of(r)[at]]) : NULL;
    out->link = r->on_link || (missing && missing->kind == EXO_WAIT_COLLECTIVE &&
                               missing->on_link && missing->edge == r->edge);
    if (out->link)
        snprintf(out->on, sizeof out->on, "the links of its members");
    else if (r->num_missing)
        exo_stall_name(spec, missing_of(r)[at], out->on, sizeof out->on);
}

size_t
exo_stall_slow(const exo_graph_spec *spec, const exo_payload *records, uint32_t count,
               exo_time longer_than, exo_slow_wait *out, size_t room)
{
    size_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        const exo_wait_record *r = record_of(&records[i]);
        if (!r || r->kind == EXO_WAIT_NONE || r->waited < longer_than)
            continue;
        size_t at = length;
        while (at > 0 && out[at - 1].waited < r->waited)
            at--;
        if (at >= room)
            continue;
        size_t kept = length < room ? length : room - 1;
        memmove(&out[at + 1], &out[at], (kept - at) * sizeof *out);
        length = kept + 1;
        out[at] = (exo_slow_wait){.kind = (exo_wait_kind)r->kind, .waited = r->waited};
        exo_stall_name(spec, i, out[at].actor, sizeof out[at].actor);
        memcpy(out[at].edge, r->edge_name, sizeof out[at].edge);
        explain(spec, records, i, &out[at]);
    }
    return length;
}
