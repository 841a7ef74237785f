/* A queue for a shared rate: see queue.h. */
#include "link/queue.h"

#include <assert.h>
#include <string.h>

enum {
    /* iterations: a load delays the bits, which then share the rate with more of the load */
    LOAD_ROUNDS = 3
};

static void
remove_at(exo_link_queue *q, uint32_t index, uint32_t count)
{
    q->count -= count;
    memmove(q->arrivals + index, q->arrivals + index + count,
            (q->count - index) * sizeof *q->arrivals);
}

/* Counts an arrival as past: the queue is busy with it until `done`. */
static void
pass(exo_link_queue *q, exo_time at, exo_time done)
{
    if (at > q->free)
        q->since = at;
    q->free = done;
}

static void
forget_before(exo_link_queue *q, exo_time now)
{
    uint32_t past = 0;
    for (; past < q->count && q->arrivals[past].at <= now; past++)
        pass(q, q->arrivals[past].at, q->arrivals[past].done);
    if (past > 0)
        remove_at(q, 0, past);
}

/* Makes room: joins the two neighbours with the smallest difference in time. */
static void
join_closest(exo_link_queue *q)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < q->count; i++)
        if (q->arrivals[i + 1].at - q->arrivals[i].at <
            q->arrivals[best + 1].at - q->arrivals[best].at)
            best = i;
    q->arrivals[best].bits += q->arrivals[best + 1].bits;
    q->arrivals[best].done = q->arrivals[best + 1].done;
    q->arrivals[best].count += q->arrivals[best + 1].count;
    remove_at(q, best + 1, 1);
}

/* The number of arrivals until `at`. */
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
exo_link_queue_busy(exo_link_queue *q, exo_time now, exo_time t)
{
    forget_before(q, now);
    return t >= q->since && t < q->free ? q->free : t;
}

/* Moves `done` back for the arrivals that the bits overtake: their times are final, so the bits
 * wait for as much of each as they have themselves. */
static exo_time
share(const exo_link_queue *q, const exo_link_path *path, uint32_t index, exo_time from,
      exo_time done, double bits)
{
    double sum = bits;
    for (; index < q->count && q->arrivals[index].at < done && done != EXO_LINK_NEVER; index++) {
        const exo_link_arrival *a = &q->arrivals[index];
        sum += a->bits < bits * a->count ? a->bits : bits * a->count;
        done = exo_link_path_pass(path, from, sum);
    }
    return done;
}

void
exo_link_queue_load(exo_link_queue *q, exo_time now, exo_link_load load)
{
    exo_link_load *first = &q->loads[0];
    for (size_t i = 1; i < EXO_LINK_LOADS; i++)
        first = q->loads[i].until < first->until ? &q->loads[i] : first;
    if (load.until <= load.from)
        return;
    if (first->until <= now) {
        *first = load;
        return;
    }
    /* no room: two loads become one */
    first->from = load.from < first->from ? load.from : first->from;
    first->until = exo_link_max(load.until, first->until);
    first->bits += load.bits;
}

/* The time when `bits` that begin at `from` have passed beside the loads. */
static exo_time
pass_loads(const exo_link_queue *q, const exo_link_path *path, exo_time from, double bits)
{
    exo_time done = exo_link_path_pass(path, from, bits);
    for (int round = 0; round < LOAD_ROUNDS; round++) {
        double sum = bits;
        for (size_t i = 0; i < EXO_LINK_LOADS; i++) {
            const exo_link_load *load = &q->loads[i];
            exo_time begin = exo_link_max(load->from, from),
                     end = load->until < done ? load->until : done;
            if (end > begin)
                sum += load->bits * ((double)(end - begin) / (double)(load->until - load->from));
        }
        if (sum == bits)
            break;
        done = exo_link_path_pass(path, from, sum);
    }
    return done;
}

exo_time
exo_link_queue_put(exo_link_queue *q, const exo_link_path *path, exo_time now, exo_time at,
                   double bits, exo_time *start)
{
    assert(q->capacity >= 2);
    forget_before(q, now);
    uint32_t index = count_until(q, at);
    exo_time from = exo_link_max(done_before(q, index), at), done = pass_loads(q, path, from, bits);
    if (start)
        *start = from;
    if (done == EXO_LINK_NEVER)
        return done;
    const exo_time told = share(q, path, index, from, done, bits);
    q->busy += done - from;
    if (index > 0 && q->arrivals[index - 1].at == at) {
        q->arrivals[index - 1].bits += bits;
        q->arrivals[index - 1].done = done;
        q->arrivals[index - 1].count++;
    } else if (at <= now) {
        pass(q, at, done);
    } else {
        if (q->count == q->capacity) {
            join_closest(q);
            index = count_until(q, at);
        }
        memmove(q->arrivals + index + 1, q->arrivals + index,
                (q->count - index) * sizeof *q->arrivals);
        q->arrivals[index++] = (exo_link_arrival){.at = at, .done = done, .bits = bits, .count = 1};
        q->count++;
    }
    /* later arrivals wait for this one */
    for (exo_time before = done; index < q->count; index++) {
        exo_link_arrival *a = &q->arrivals[index];
        exo_time later = exo_link_path_pass(path, exo_link_max(before, a->at), a->bits);
        if (later == a->done || later == EXO_LINK_NEVER)
            break;
        before = a->done = later;
    }
    return told;
}
