/* What the members of a group tell each other, and the end of a group. See group.h. */
#include "nccl/group.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

/* --- Ends ------------------------------------------------------------------------------------- */

exo_status
exo_nccl_broken(exo_nccl_group *g, exo_err *err)
{
    pthread_mutex_lock(&g->lock);
    const exo_err reason = g->broken;
    pthread_mutex_unlock(&g->lock);
    return reason.code == EXO_OK ? EXO_OK : exo_fail(err, reason.code, "%s", reason.text);
}

/* The first reason stays. Returns whether this is it. */
static bool
set_broken(exo_nccl_group *g, exo_status status, const char *text)
{
    pthread_mutex_lock(&g->lock);
    const bool first = g->broken.code == EXO_OK;
    if (first)
        exo_fail(&g->broken, status, "%s", text);
    pthread_mutex_unlock(&g->lock);
    return first;
}

void
exo_nccl_break(exo_nccl_group *g, exo_status status, const char *text)
{
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_BROKEN, .value = (uint64_t)status};
    snprintf(message.body, sizeof message.body, "%s", text);
    if (set_broken(g, status, text) && g->post)
        exo_nccl_tell(g, g->post->rank, NULL, &message, NULL); /* the dead cannot be told */
}

/* What members are called before their rank, by the name of the one that is here: "trainer" of
 * "trainer_0". */
static void
find_noun_locked(const exo_nccl_group *g, char out[EXO_NCCL_NAME])
{
    char end[16];
    const char *name = g->post ? g->members[g->post->rank].name : "";
    const int length = snprintf(end, sizeof end, "_%u", g->post ? g->post->rank : 0);
    const size_t whole = strlen(name), tail = (size_t)length;
    const bool fits = whole > tail && strcmp(name + whole - tail, end) == 0;
    snprintf(out, EXO_NCCL_NAME, "%.*s", fits ? (int)(whole - tail) : 4, fits ? name : "node");
}

void
exo_nccl_describe(exo_nccl_group *g, uint32_t rank, char *out, size_t size)
{
    char noun[EXO_NCCL_NAME];
    pthread_mutex_lock(&g->lock);
    find_noun_locked(g, noun);
    if (g->members[rank].name[0])
        snprintf(out, size, "%s (rank %u)", g->members[rank].name, rank);
    else
        snprintf(out, size, "%s_%u (rank %u)", noun, rank, rank);
    pthread_mutex_unlock(&g->lock);
}

/* --- Notes ------------------------------------------------------------------------------------ */

static exo_nccl_note *
find_note(exo_nccl_group *g, uint64_t set, uint32_t from)
{
    exo_nccl_note *n = g->notes;
    while (n && (n->set != set || n->from != from))
        n = n->next;
    return n;
}

exo_nccl_note
exo_nccl_note_of(exo_nccl_group *g, uint64_t set, uint32_t from)
{
    pthread_mutex_lock(&g->lock);
    const exo_nccl_note *n = find_note(g, set, from);
    const exo_nccl_note copy = n ? *n : (exo_nccl_note){0};
    pthread_mutex_unlock(&g->lock);
    return copy;
}

static exo_status
new_note_locked(exo_nccl_note **out, exo_nccl_group *g, uint64_t set, uint32_t from, exo_err *err)
{
    if (g->members[from].told >= EXO_NCCL_SETS)
        return exo_fail(err, EXO_INVAL, "rank %u tells of more than %d sets of members", from,
                        EXO_NCCL_SETS);
    exo_nccl_note *n = exo_calloc(1, sizeof *n);
    if (!n)
        return exo_fail(err, EXO_NOMEM, "no memory for what a member says");
    *n = (exo_nccl_note){.next = g->notes, .set = set, .from = from};
    g->members[from].told++;
    g->notes = *out = n;
    return EXO_OK;
}

/* Only the first plan of a set counts: others may have read it. */
static exo_status
take_plan_locked(exo_nccl_note *n, const exo_nccl_message *m, exo_err *err)
{
    if (n->plan || m->value > EXO_NCCL_KEPT)
        return exo_fail(err, EXO_INVAL, "rank %u tells a plan that is none, or another one",
                        n->from);
    exo_nccl_plan *plan = exo_calloc(1, sizeof *plan);
    if (!plan)
        return exo_fail(err, EXO_NOMEM, "no memory for what a member says");
    plan->way = (exo_nccl_way)m->value;
    memcpy(&plan->id, m->body, sizeof plan->id);
    memcpy(plan->order, m->body, sizeof plan->order);
    n->plan = plan;
    return EXO_OK;
}

/* Writes down what a member has said. NOMEM, INVAL. */
static exo_status
take_note(exo_nccl_group *g, uint32_t from, const exo_nccl_message *m, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&g->lock);
    exo_nccl_note *n = find_note(g, m->set, from);
    if (!n && m->kind != EXO_NCCL_TELLS_END)
        st = new_note_locked(&n, g, m->set, from, err);
    if (m->kind == EXO_NCCL_TELLS_END) {
        g->members[from].left = true;
    } else if (n && m->kind == EXO_NCCL_TELLS_PLAN) {
        st = take_plan_locked(n, m, err);
    } else if (n && m->kind == EXO_NCCL_TELLS_ID) {
        memcpy(&n->id, m->body, sizeof n->id);
        n->has_id = true;
        n->grows = m->value != 0;
    } else if (n && m->kind == EXO_NCCL_TELLS_OFFER) {
        n->has_offer = true;
        memcpy(&n->offer, m->body, sizeof n->offer);
    } else if (n && m->kind == EXO_NCCL_TELLS_BARRIER) {
        n->barriers = m->value;
    } else if (n && m->kind == EXO_NCCL_TELLS_CALLS) {
        n->calls = m->value;
    }
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* Whether a message may come from that member: a plan comes from the first of a set, and an offer from
 * another to the first. An id is read only from the member that the plan names. A set that this member has not called among is not known yet; of its notes
 * those of its members alone are read. */
static bool
may_say(exo_nccl_group *g, uint32_t from, const exo_nccl_message *m)
{
    uint32_t place = 0;
    pthread_mutex_lock(&g->lock);
    const exo_nccl_set *s = g->post ? g->members[g->post->rank].sets : NULL;
    while (s && s->key != m->set)
        s = s->next;
    while (s && place < s->size && exo_nccl_rank_at(s, place) != from)
        place++;
    const bool fine =
        !s || (place < s->size && (m->kind == EXO_NCCL_TELLS_PLAN    ? place == 0
                                   : m->kind == EXO_NCCL_TELLS_OFFER ? s->place == 0 && place > 0
                                                                     : true));
    pthread_mutex_unlock(&g->lock);
    return fine;
}

static exo_status
known_status(uint64_t value)
{
    switch (value) {
#define KNOWN(name, number, text) case (number):
        EXO_STATUS_TABLE(KNOWN)
#undef KNOWN
        return value == EXO_OK ? EXO_FAILED : (exo_status)value;
    default:
        return EXO_FAILED;
    }
}

exo_status
exo_nccl_hear(void *group, uint32_t from, const void *data, size_t bytes, exo_err *err)
{
    exo_nccl_group *g = group;
    exo_nccl_message m;
    if (bytes != sizeof m || from >= g->size)
        return exo_fail(err, EXO_INVAL, "a message of %zu bytes is none of the engine nccl", bytes);
    memcpy(&m, data, sizeof m);
    if (m.kind > EXO_NCCL_TELLS_BROKEN)
        return exo_fail(err, EXO_INVAL, "the engine nccl has no message of kind %u", m.kind);
    if (m.kind == EXO_NCCL_TELLS_BROKEN) {
        m.body[sizeof m.body - 1] = '\0';
        return set_broken(g, known_status(m.value), m.body), EXO_OK;
    }
    if (m.kind != EXO_NCCL_TELLS_END && !may_say(g, from, &m))
        return exo_fail(err, EXO_INVAL, "rank %u may not tell this of a set of members", from);
    exo_status st = take_note(g, from, &m, err);
    if (st == EXO_NOMEM)
        set_broken(g, st, "no memory for what a member says");
    return st;
}

exo_status
exo_nccl_tell(exo_nccl_group *g, uint32_t from, const exo_nccl_set *set,
              const exo_nccl_message *message, exo_err *err)
{
    const uint32_t size = set ? set->size : g->size;
    exo_status st = EXO_OK;
    const bool decides = message->kind == EXO_NCCL_TELLS_PLAN || message->kind == EXO_NCCL_TELLS_ID;
    if (!g->post && message->kind == EXO_NCCL_TELLS_BROKEN)
        return EXO_OK;       /* all members see the group's reason */
    if (!g->post || decides) /* the member reads its own decision as the others do */
        st = take_note(g, from, message, err);
    for (uint32_t p = 0; g->post && p < size; p++) {
        const uint32_t to = set ? exo_nccl_rank_at(set, p) : p;
        exo_err reason = {0};
        exo_status sent =
            to == from ? EXO_OK
                       : g->post->send(g->post->context, to, message, sizeof *message, &reason);
        if (sent != EXO_OK && st == EXO_OK)
            st = exo_fail(err, sent, "%s", reason.text);
    }
    return st;
}

/* --- Agreement -------------------------------------------------------------------------------- */

static uint64_t
digest_of(const exo_collective_args *a)
{
    const uint64_t parts[] = {(uint64_t)a->operation, a->count, (uint64_t)a->dtype,
                              (uint64_t)a->reduce, a->root};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = (hash ^ parts[i]) * UINT64_C(1099511628211);
    return hash;
}

static exo_nccl_digests *
digests_of_locked(exo_nccl_group *g, uint64_t set)
{
    exo_nccl_digests *d = g->digests;
    while (d && d->set != set)
        d = d->next;
    if (!d && (d = exo_calloc(1, sizeof *d))) {
        d->set = set;
        d->next = g->digests;
        g->digests = d;
    }
    return d;
}

exo_status
exo_nccl_agree(exo_nccl_group *g, uint32_t rank, const exo_nccl_set *set,
               const exo_collective_args *args, exo_err *err)
{
    const uint64_t mine = digest_of(args);
    const size_t at = set->calls % EXO_NCCL_DIGESTS;
    uint32_t other = rank;
    if (g->post)
        return EXO_OK; /* the members of other processes are not asked */
    pthread_mutex_lock(&g->lock);
    exo_nccl_digests *d = digests_of_locked(g, set->key);
    if (d && d->number[at] == set->calls + 1 && d->digest[at] != mine)
        other = d->from[at];
    if (d && d->number[at] <= set->calls) {
        d->number[at] = set->calls + 1;
        d->digest[at] = mine;
        d->from[at] = rank;
    }
    pthread_mutex_unlock(&g->lock);
    if (!d)
        return exo_fail(err, EXO_NOMEM, "no memory for the calls of a group");
    return other == rank
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "members disagree: rank %u calls %s of %zu, rank %u another operation, "
                          "count or type",
                          rank, exo_collective_name(args->operation), args->count, other);
}
