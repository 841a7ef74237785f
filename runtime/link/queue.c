/* What shares a rate: see queue.h. */
#include "queue.h"

#include <assert.h>
#include <string.h>

static void
remove_at(exo_link_queue *q, uint32_t index, uint32_t count)
{
    q->count -= count;
    memmove(q->arrivals + index, q->arrivals + index + count, (q->count - index) * sizeof *q->arrivals);
}

static void
forget_before(exo_link_queue *q, exo_time now)
{
    uint32_t past = 0;
    while (past < q->count && q->arrivals[past].at <= now)
        past++;
    if (past > 0) {
        q->free = q->arrivals[past - 1].done;
        remove_at(q, 0, past);
    }
}

/* Makes room: the two neighbours that come closest after each other become one. */
static void
join_closest(exo_link_queue *q)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < q->count; i++)
        if (q->arrivals[i + 1].at - q->arrivals[i].at < q->arrivals[best + 1].at - q->arrivals[best].at)
            best = i;
    q->arrivals[best].bits += q->arrivals[best + 1].bits;
    q->arrivals[best].done = q->arrivals[best + 1].done;
    remove_at(q, best + 1, 1);
}

/* How many come until `at`. */
static uint32_t
count_until(const exo_link_queue *q, exo_time at)
{
    uint32_t count = q->count;
    while (count > 0 && q->arrivals[count - 1].at > at)
        count--;
    return count;
}

static exo_time
done_before(const exo_link_queue *q, uint32_t index)
{
    return index > 0 ? q->arrivals[index - 1].done : q->free;
}

exo_time
exo_link_queue_done(const exo_link_queue *q, exo_time at)
{
    return done_before(q, count_until(q, at));
}

exo_time
exo_link_queue_put(exo_link_queue *q, const exo_link_path *path, exo_time now, exo_time at, double bits,
                   exo_time *start)
{
    assert(q->capacity >= 2);
    forget_before(q, now);
    uint32_t index = count_until(q, at);
    exo_time from = exo_link_max(done_before(q, index), at), done = exo_link_path_pass(path, from, bits);
    if (start)
        *start = from;
    if (done == EXO_LINK_NEVER)
        return done;
    q->busy += done - from;
    if (index > 0 && q->arrivals[index - 1].at == at) {
        q->arrivals[index - 1].bits += bits;
        q->arrivals[index - 1].done = done;
    } else if (at <= now && index == 0) {
        q->free = done;
    } else {
        if (q->count == q->capacity) {
            join_closest(q);
            index = count_until(q, at);
        }
        memmove(q->arrivals + index + 1, q->arrivals + index, (q->count - index) * sizeof *q->arrivals);
        q->arrivals[index++] = (exo_link_arrival){.at = at, .done = done, .bits = bits};
        q->count++;
    }
    for (exo_time before = done; index < q->count; index++) { /* who comes later waits for it */
        exo_link_arrival *a = &q->arrivals[index];
        exo_time later = exo_link_path_pass(path, exo_link_max(before, a->at), a->bits);
        if (later == a->done || later == EXO_LINK_NEVER)
            break;
        before = a->done = later;
    }
    return done;
}
