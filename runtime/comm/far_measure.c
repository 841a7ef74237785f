/* Measures the links among the members of a collective among actors: see far.h. State: the caller's
 * row, and the calls of far_impl.h. Owner: the thread that calls.
 *
 * Members meet in the rounds of a tournament, in which each meets every other one once, so that the
 * pairs of a round have no member in common. In a pair first the lower rank sends, then the other
 * one. The sender sends probes, one at a time, and the other answers each one with an empty message;
 * a probe without data is the last one. So no clocks are compared. A figure is the best of several
 * probes: other work on the machines makes a probe slower and never faster. */
#include "comm/far.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/parallel.h"
#include "comm/far_impl.h"

/* for all pairs of a member */
#define SHARE_OF_ALL EXO_SECOND
/* The time that the data of the largest probe is to take: well above the noise of a latency. */
#define LONG (10 * EXO_MS)
/* no link is faster, bit/s; finite also where a message is only handed over */
#define FASTEST 1e12

enum {
    SMALL = 64,           /* bytes of a probe of the latency */
    FIRST = 8 << 10,      /* of the first probe of the rate */
    LARGEST = 4 << 20,    /* of any probe */
    GROWTH = 64,          /* the most from one probe to the next */
    SMALL_PROBES = 8,     /* the most */
    LAST_PROBES = 3,      /* the most of the last size */
    LEAST_ROUND_TRIPS = 6 /* a pair takes longer than its share on long ways */
};

struct pair {
    exo_far *far;
    const exo_collective_args *args;
    uint32_t peer;
    exo_time deadline;
    exo_time share; /* the time for one direction */
    char *data;     /* (LARGEST) what is sent, and what has come */
};

static exo_status
send_bytes(const struct pair *p, size_t bytes, exo_err *err)
{
    exo_far_header header;
    exo_far_describe(&header, p->far, p->peer, EXO_FAR_PROBE, p->args, bytes);
    return exo_far_send(p->far, p->peer, &header, NULL, p->data, 0, err);
}

/* Waits for a message and reads it, as a call does. */
static exo_status
receive_bytes(const struct pair *p, size_t *bytes, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_far_message *m =
        exo_far_await(p->far, EXO_FAR_PROBE, p->peer, p->args, SIZE_MAX, p->deadline, &st, err);
    if (!m)
        return st;
    *bytes = m->header.bytes < LARGEST ? m->header.bytes : LARGEST;
    memcpy(p->data, (const char *)m->payload.data + sizeof(exo_far_header), *bytes);
    exo_far_message_free(m);
    return EXO_OK;
}

/* Answers probes up to the last one. */
static exo_status
answer(const struct pair *p, exo_err *err)
{
    size_t bytes = 0;
    exo_status st = receive_bytes(p, &bytes, err);
    while (st == EXO_OK && bytes > 0) {
        st = send_bytes(p, 0, err);
        if (st == EXO_OK)
            st = receive_bytes(p, &bytes, err);
    }
    return st;
}

/* Sends a probe, and lowers *least to its time there and back. */
static exo_status
probe(const struct pair *p, size_t bytes, exo_time *least, exo_err *err)
{
    exo_time before = exo_now(p->far->clock);
    exo_status st = send_bytes(p, bytes, err);
    if (st == EXO_OK)
        st = receive_bytes(p, &bytes, err);
    exo_time took = exo_now(p->far->clock) - before;
    *least = took < *least ? took : *least;
    return st;
}

/* The time of the data alone, at least as long as on the fastest link. */
static double
passing(size_t bytes, exo_time least, exo_time trip)
{
    return fmax((double)(least - trip) * 1e-9, 8.0 * (double)bytes / FASTEST);
}

/* The size of the next probe, whose data takes LONG if the last one's says so. */
static size_t
larger(size_t bytes, double passed)
{
    double factor = fmin(fmax((double)LONG * 1e-9 / passed, 2), GROWTH);
    return (size_t)fmin((double)bytes * factor, LARGEST);
}

/* Sends probes and writes the figure. */
static exo_status
measure(const struct pair *p, exo_link_figure *out, exo_err *err)
{
    exo_time trip = INT64_MAX, least = INT64_MAX, end = 0;
    size_t bytes = FIRST;
    exo_status st = probe(p, SMALL, &trip, err); /* opens the connection; the other may be late */
    const exo_time began = exo_now(p->far->clock);
    trip = INT64_MAX;
    for (int i = 0; st == EXO_OK &&
                    (i < 2 || (i < SMALL_PROBES && exo_now(p->far->clock) < began + p->share / 8));
         i++)
        st = probe(p, SMALL, &trip, err);
    if (st == EXO_OK)
        end = began + (p->share > LEAST_ROUND_TRIPS * trip ? p->share : LEAST_ROUND_TRIPS * trip);
    while (st == EXO_OK && (st = probe(p, bytes, &least, err)) == EXO_OK) {
        double passed = passing(bytes, least, trip);
        if (bytes == LARGEST || passed >= (double)LONG * 1e-9 || exo_now(p->far->clock) >= end)
            break;
        bytes = larger(bytes, passed);
        least = INT64_MAX;
    }
    for (int i = 1; st == EXO_OK && i < LAST_PROBES && (i < 2 || exo_now(p->far->clock) < end); i++)
        st = probe(p, bytes, &least, err);
    if (st == EXO_OK)
        st = send_bytes(p, 0, err);
    *out = (exo_link_figure){.rate = 8.0 * (double)bytes / passing(bytes, least, trip),
                             .latency = (double)trip * 0.5e-9};
    return st;
}

static exo_status
meet(const struct pair *p, exo_link_figure *out, exo_err *err)
{
    bool first = p->far->opts.rank < p->peer;
    exo_status st = first ? measure(p, out, err) : answer(p, err);
    if (st == EXO_OK)
        st = first ? answer(p, err) : measure(p, out, err);
    p->far->calls[p->peer]++;
    return st;
}

/* Whom a member meets in a round, of a tournament of an even number of players: the last one stays
 * in its place, and the others go around. */
static uint32_t
opponent(uint32_t players, uint32_t round, uint32_t rank)
{
    uint32_t others = players - 1, place = (2 * round + others - rank % others) % others;
    if (rank == others)
        return round;
    return place == rank ? others : place;
}

static exo_status
meet_all(exo_far *f, exo_time deadline, exo_link_figure *row, exo_err *err)
{
    const uint32_t size = f->opts.size, rank = f->opts.rank, players = size + size % 2;
    const exo_collective_args args = {.operation = EXO_BARRIER, .size = size, .place = rank};
    char *data = exo_calloc(1, LARGEST);
    struct pair pair = {.far = f,
                        .args = &args,
                        .deadline = deadline,
                        .share = SHARE_OF_ALL / (2 * players),
                        .data = data};
    exo_status st = data ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to measure links");
    if (data)
        memset(data, 1, LARGEST); /* real pages */
    row[rank] = (exo_link_figure){0};
    f->among = 0;
    f->deadline = deadline;
    for (uint32_t round = 0; st == EXO_OK && round + 1 < players; round++) {
        pair.peer = opponent(players, round, rank);
        if (pair.peer < size)
            st = meet(&pair, &row[pair.peer], err);
    }
    exo_free(data);
    return st;
}

exo_status
exo_comm_far_measure(exo_comm *comm, exo_time deadline, exo_link_figure *row, exo_err *err)
{
    exo_far *f = comm->state;
    exo_err reason = {0};
    if (f->opts.size > EXO_WAYS_MEMBERS)
        return exo_fail(err, EXO_UNSUPPORTED, "links are measured among at most %d members, not %u",
                        EXO_WAYS_MEMBERS, f->opts.size);
    pthread_mutex_lock(&f->lock);
    reason = f->broken;
    if (reason.code == EXO_OK && !f->members)
        exo_fail(&reason, EXO_CLOSED, "the communicator is not connected");
    f->inside = true;
    f->operation = EXO_BARRIER;
    f->since = exo_now(f->clock);
    pthread_mutex_unlock(&f->lock);
    exo_compute_pause();
    exo_status st = reason.code == EXO_OK ? meet_all(f, deadline, row, &reason) : reason.code;
    exo_compute_resume_after(st);
    pthread_mutex_lock(&f->lock);
    f->inside = false;
    if (st != EXO_OK)
        exo_far_break_locked(f, st, reason.text);
    pthread_mutex_unlock(&f->lock);
    return st == EXO_OK ? st : exo_fail(err, st, "measuring the links: %.480s", reason.text);
}

void
exo_comm_far_merge(uint32_t size, const exo_link_figure *rows, exo_link_figure *figures)
{
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b <= a; b++) {
            const exo_link_figure there = rows[a * size + b], back = rows[b * size + a];
            const double latency = 0.5 * (there.latency + back.latency);
            figures[a * size + b] = (exo_link_figure){there.rate, latency};
            figures[b * size + a] = (exo_link_figure){back.rate, latency};
        }
}
