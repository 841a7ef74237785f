/* Dealers: see dealer.h. */
#include "experience/dealer.h"

#include <exogym/memory.h>

enum {
    FIRST_ROOM = 64
};

/* What became of a draw. */
enum stage {
    FREE,
    NEW,
    OFFERED,
    TAKEN,
    DONE
};

struct draw {
    enum stage stage;
    uint32_t maker; /* of NEW, OFFERED, TAKEN */
};

struct maker {
    bool meets, told; /* told: that all draws are dealt */
    uint64_t room;    /* draws that it may hold; 0: it was not heard */
    uint64_t portion; /* draws that it gets at once, if there are so many */
    uint64_t held;    /* of the stages NEW, OFFERED, TAKEN */
    uint64_t fresh;   /* of NEW */
};

struct exo_dealer {
    uint64_t rank, size;
    uint64_t low, next;   /* all below `low` are DONE, all from `next` on FREE */
    uint64_t first;       /* none below it is FREE */
    uint64_t total;       /* draws of the run, of all trainers */
    bool told;            /* a maker was told that all are dealt */
    struct draw *draws;   /* (room) draw i, in [low, next), is at i mod room */
    size_t room;          /* 0, or a power of two */
    struct maker *makers; /* (count) by their index */
    size_t count;
};

exo_status
exo_dealer_new(exo_dealer **out, uint32_t rank, uint32_t size, exo_err *err)
{
    exo_dealer *d = exo_calloc(1, sizeof *d);
    *out = d;
    if (!d)
        return exo_fail(err, EXO_NOMEM, "no memory for a dealer");
    d->rank = rank;
    d->size = size;
    d->total = UINT64_MAX;
    return EXO_OK;
}

void
exo_dealer_free(exo_dealer **dealer)
{
    exo_dealer *d = *dealer;
    *dealer = NULL;
    if (!d)
        return;
    exo_free(d->draws);
    exo_free(d->makers);
    exo_free(d);
}

/* --- Draws ------------------------------------------------------------------------------------ */

static struct draw *
at(const exo_dealer *d, uint64_t index)
{
    return &d->draws[index & (d->room - 1)];
}

/* Lets draw `index` be one of [low, next). */
static exo_status
reach(exo_dealer *d, uint64_t index, exo_err *err)
{
    size_t room = d->room ? d->room : FIRST_ROOM;
    while (room < index + 1 - d->low)
        room *= 2;
    if (room > d->room) {
        struct draw *more = exo_calloc(room, sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu draws", room);
        for (uint64_t i = d->low; i < d->next; i++)
            more[i & (room - 1)] = *at(d, i);
        exo_free(d->draws);
        d->draws = more;
        d->room = room;
    }
    for (; d->next <= index; d->next++)
        *at(d, d->next) = (struct draw){0};
    return EXO_OK;
}

void
exo_dealer_begin(exo_dealer *d, uint64_t index)
{
    d->low = d->next = d->first = index;
}

exo_status
exo_dealer_arrived(exo_dealer *d, uint64_t draw, exo_err *err)
{
    uint64_t index = draw / d->size;
    if (index < d->low)
        return EXO_OK;
    exo_status st = reach(d, index, err);
    if (st != EXO_OK)
        return st;
    struct draw *a = at(d, index);
    if (a->stage != FREE && a->stage != DONE)
        d->makers[a->maker].held--;
    if (a->stage == NEW)
        d->makers[a->maker].fresh--;
    a->stage = DONE;
    while (d->low < d->next && at(d, d->low)->stage == DONE)
        d->low++;
    d->first = d->first > d->low ? d->first : d->low;
    return EXO_OK;
}

/* --- Makers ----------------------------------------------------------------------------------- */

exo_status
exo_dealer_meet(exo_dealer *d, uint32_t maker, exo_err *err)
{
    if (maker >= d->count) {
        struct maker *more = exo_realloc(d->makers, (size_t)maker + 1, sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for %u makers", maker + 1);
        d->makers = more;
        while (d->count <= maker)
            more[d->count++] = (struct maker){0};
    }
    d->makers[maker].meets = true;
    return EXO_OK;
}

void
exo_dealer_hear(exo_dealer *d, uint32_t maker, uint64_t room, uint64_t portion, uint64_t total)
{
    if (maker >= d->count)
        return;
    d->makers[maker].room = room;
    d->makers[maker].portion = portion ? portion : 1;
    d->total = total;
}

void
exo_dealer_taken(exo_dealer *d, uint32_t maker)
{
    for (uint64_t i = d->low; i < d->next; i++)
        if (at(d, i)->stage == OFFERED && at(d, i)->maker == maker)
            at(d, i)->stage = TAKEN;
}

void
exo_dealer_lost(exo_dealer *d, uint32_t maker)
{
    if (maker >= d->count)
        return;
    struct maker *m = &d->makers[maker];
    m->told = false;
    for (uint64_t i = d->low; i < d->next; i++) {
        struct draw *a = at(d, i);
        if (a->stage == FREE || a->stage == DONE || a->maker != maker)
            continue;
        a->stage = d->told ? NEW : FREE;
        if (!d->told && i < d->first)
            d->first = i;
    }
    m->held = d->told ? m->held : 0;
    m->fresh = m->held;
}

/* --- Dealing ---------------------------------------------------------------------------------- */

/* The draws of this trainer in the run. */
static uint64_t
end_of(const exo_dealer *d)
{
    if (d->total == UINT64_MAX)
        return UINT64_MAX;
    return d->total > d->rank ? (d->total - d->rank + d->size - 1) / d->size : 0;
}

/* Whether a maker has room for a portion. */
static bool
is_ready(const struct maker *m)
{
    return m->meets && m->held + m->portion <= m->room;
}

/* The maker that has room for most draws, the first of several, and how many of them are ready; NULL:
 * none. */
static struct maker *
neediest(const exo_dealer *d, uint64_t *ready)
{
    struct maker *best = NULL;
    *ready = 0;
    for (size_t i = 0; i < d->count; i++) {
        struct maker *m = &d->makers[i];
        if (!is_ready(m))
            continue;
        ++*ready;
        if (!best || m->room - m->held > best->room - best->held)
            best = m;
    }
    return best;
}

/* Gives a maker the draw `first`, if nobody has it. */
static exo_status
give(exo_dealer *d, struct maker *m, uint64_t *count, exo_err *err)
{
    exo_status st = reach(d, d->first, err);
    struct draw *a = st == EXO_OK ? at(d, d->first) : NULL;
    if (a && a->stage == FREE) {
        *a = (struct draw){.stage = NEW, .maker = (uint32_t)(m - d->makers)};
        m->held++;
        m->fresh++;
        ++*count;
    }
    d->first += st == EXO_OK;
    return st;
}

exo_status
exo_dealer_deal(exo_dealer *d, uint64_t limit, exo_err *err)
{
    uint64_t end = end_of(d) < limit ? end_of(d) : limit, ready = 0;
    struct maker *m = NULL;
    exo_status st = EXO_OK;
    for (size_t i = 0; i < d->count; i++)
        if (d->makers[i].meets && d->makers[i].room == 0)
            return EXO_OK;
    while (st == EXO_OK && d->first < end && (m = neediest(d, &ready))) {
        uint64_t share = (end - d->first + ready - 1) / ready, count = 0;
        share = share < m->portion ? share : m->portion;
        while (st == EXO_OK && count < share && d->first < end)
            st = give(d, m, &count, err);
    }
    return st;
}

bool
exo_dealer_has_ended(const exo_dealer *d)
{
    return d->first >= end_of(d);
}

bool
exo_dealer_has_news(const exo_dealer *d, uint32_t maker)
{
    const struct maker *m = &d->makers[maker];
    return maker < d->count && (m->fresh > 0 || (exo_dealer_has_ended(d) && !m->told));
}

size_t
exo_dealer_span(const exo_dealer *d)
{
    return (size_t)(d->next - d->low);
}

void
exo_dealer_offer(exo_dealer *d, uint32_t maker, int64_t *pairs, size_t *count)
{
    struct maker *m = &d->makers[maker];
    for (uint64_t i = d->low; i < d->next; i++) {
        struct draw *a = at(d, i);
        if ((a->stage != NEW && a->stage != OFFERED) || a->maker != maker)
            continue;
        a->stage = OFFERED;
        pairs[2 * *count] = maker;
        pairs[2 * *count + 1] = (int64_t)(i * d->size + d->rank);
        (*count)++;
    }
    m->fresh = 0;
    m->told = exo_dealer_has_ended(d);
    d->told = d->told || m->told;
}
