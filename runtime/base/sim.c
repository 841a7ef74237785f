/* Virtual time: see sim.h. One lock guards everything here. Each lane sleeps on its own condition,
 * so passing the baton wakes one thread.
 *
 * One heap contains the future turns of lanes and events, ordered by (time, events first, tie). A
 * lane's entry is valid while its ticket equals the lane's. Every change of a lane's state draws a
 * new ticket, so the heap is never searched. Read next: pace.c. */
#include "base/sim.h"

#include <pthread.h>

#include <exogym/memory.h>

#include "base/parallel.h"

enum state {
    OUTSIDE,
    READY,   /* wants the baton */
    RUNNING, /* has it          */
    WAITING, /* for a wake or its deadline */
};

struct exo_sim_lane {
    exo_sim *sim;
    exo_sim_lane *next; /* in the list of all lanes */
    uint64_t number;
    double speed;
    pthread_cond_t go;
    /* Guarded by sim->lock, like everything in this file, except that the thread in the lane reads
     * its own time without it. */
    enum state state;
    uint64_t ticket;
    /* draws for ties; counted per lane, so that they do not depend on the order of threads */
    uint64_t draws;
    exo_time time;
    exo_time until; /* WAITING: its deadline; woken: when it continues */
    bool woken;
    /* woken from outside while it ran: its next wait ends at once */
    bool woken_before;
    bool measure;
    /* on the real clock: earlier computation is in `time` already */
    exo_time since;
};

struct entry {
    exo_time time;
    uint64_t order;     /* events: 0 .. 2^63 - 1 in the order of creation; lanes: above */
    exo_sim_lane *lane; /* NULL: an event */
    uint64_t ticket;
    void (*callback)(void *context, exo_time at);
    void *context;
};

struct exo_sim {
    exo_clock clock; /* first: a pointer to the clock is one to the simulation */
    pthread_mutex_t lock;
    struct entry *heap;
    size_t length, room;
    exo_sim_lane *lanes;
    uint64_t num_lanes, num_events;
    size_t pending; /* events in the heap */
    uint64_t tie_seed;
    unsigned expected;     /* lanes that have yet to enter */
    unsigned inside;       /* lanes that have entered and not left */
    bool holds;            /* while no lane is inside, events later than `left` wait */
    bool busy;             /* a lane or an event runs */
    _Atomic exo_time now;  /* of the lane or event that ran last; never decreases */
    _Atomic exo_time left; /* the latest time at which a lane has left */
};

static _Thread_local exo_sim_lane *current;
static _Thread_local bool in_event; /* the thread is in a callback */

/* --- The heap --------------------------------------------------------------------------------- */

static bool
before(const struct entry *a, const struct entry *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

/* Reserves memory for the heap when lanes and events are made, so that a lane that must sleep never
 * fails. */
static bool
reserve_locked(exo_sim *sim, size_t room)
{
    if (room <= sim->room)
        return true;
    size_t grown = sim->room ? sim->room * 2 : 64;
    grown = grown < room ? room : grown;
    struct entry *heap = exo_realloc(sim->heap, grown, sizeof *heap);
    if (!heap)
        return false;
    sim->heap = heap;
    sim->room = grown;
    return true;
}

static void
push_locked(exo_sim *sim, struct entry entry)
{
    size_t at = sim->length++;
    while (at > 0 && before(&entry, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = entry;
}

static void
pop_locked(exo_sim *sim)
{
    struct entry last = sim->heap[--sim->length];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->length)
            break;
        if (child + 1 < sim->length && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!before(&sim->heap[child], &last))
            break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (sim->length > 0)
        sim->heap[at] = last;
}

static bool
is_stale(const struct entry *entry)
{
    return entry->lane && entry->lane->ticket != entry->ticket;
}

static void
drop_stale_locked(exo_sim *sim)
{
    while (sim->length > 0 && is_stale(&sim->heap[0]))
        pop_locked(sim);
}

/* A fixed mixing function of 64 bits (splitmix64, Steele et al., 2014). */
static uint64_t
mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Removes stale entries: at least half of a full heap. */
static void
compact_locked(exo_sim *sim)
{
    size_t length = sim->length;
    sim->length = 0;
    for (size_t i = 0; i < length; i++) {
        struct entry entry = sim->heap[i]; /* read before push_locked writes here */
        if (!is_stale(&entry))
            push_locked(sim, entry);
    }
}

/* The place of a lane in the order at `time`. */
static struct entry
entry_of(exo_sim_lane *lane, exo_time time)
{
    uint64_t tie = lane->sim->tie_seed
                       ? mix(mix(lane->sim->tie_seed + lane->number) + lane->draws++) >> 1
                       : lane->number;
    return (struct entry){.time = time, .order = (UINT64_C(1) << 63) | tie, .lane = lane};
}

static void
schedule_locked(exo_sim_lane *lane, struct entry entry)
{
    exo_sim *sim = lane->sim;
    if (sim->length == sim->room)
        compact_locked(sim);
    entry.ticket = ++lane->ticket;
    push_locked(sim, entry);
}

/* --- The baton -------------------------------------------------------------------------------- */

static exo_time
real_now(void)
{
    return exo_now(exo_clock_real());
}

static bool
is_held(const exo_sim *sim)
{
    return sim->holds && sim->inside == 0 && sim->heap[0].time > sim->left;
}

/* Starts the next entry while nothing runs. Events are called here, without the lock. */
static void
dispatch_locked(exo_sim *sim)
{
    while (!sim->busy && sim->expected == 0) {
        drop_stale_locked(sim);
        if (sim->length == 0 || is_held(sim))
            return;
        struct entry entry = sim->heap[0];
        pop_locked(sim);
        sim->busy = true;
        sim->pending -= !entry.lane;
        if (entry.time > sim->now)
            sim->now = entry.time;
        if (entry.lane) {
            exo_sim_lane *lane = entry.lane;
            lane->ticket++;
            lane->time = entry.time > lane->time ? entry.time : lane->time;
            lane->state = RUNNING;
            pthread_cond_signal(&lane->go);
            return;
        }
        /* inside a callback the clock shows the event's time, whichever thread calls it */
        exo_sim_lane *own = current;
        pthread_mutex_unlock(&sim->lock);
        current = NULL;
        in_event = true;
        entry.callback(entry.context, entry.time);
        in_event = false;
        current = own;
        pthread_mutex_lock(&sim->lock);
        sim->busy = false;
    }
}

/* Sleeps until the lane has the baton. */
static void
await_baton_locked(exo_sim_lane *lane)
{
    exo_sim *sim = lane->sim;
    if (lane->state != RUNNING) {
        pthread_mutex_unlock(&sim->lock);
        exo_compute_pause();
        pthread_mutex_lock(&sim->lock);
        while (lane->state != RUNNING)
            /* bounded: every lane waits with a deadline in virtual time */
            pthread_cond_wait(&lane->go, &sim->lock);
        pthread_mutex_unlock(&sim->lock);
        exo_compute_resume();
        pthread_mutex_lock(&sim->lock);
    }
    lane->since = real_now();
}

/* Adds a cost to the lane's time, at most up to INT64_MAX. */
static void
add_cost(exo_sim_lane *lane, exo_time cost)
{
    double scaled = (double)cost / lane->speed;
    exo_time left = INT64_MAX - lane->time;
    lane->time = scaled < (double)left ? lane->time + (exo_time)scaled : INT64_MAX;
}

static void
settle(exo_sim_lane *lane)
{
    if (!lane->measure)
        return;
    exo_time now = real_now();
    add_cost(lane, now - lane->since);
    lane->since = now;
}

/* Lets lanes with an earlier time run. */
static void
yield_locked(exo_sim_lane *lane)
{
    exo_sim *sim = lane->sim;
    drop_stale_locked(sim);
    struct entry own = entry_of(lane, lane->time);
    if (sim->length == 0 || !before(&sim->heap[0], &own)) {
        if (lane->time > sim->now)
            sim->now = lane->time;
        return;
    }
    lane->state = READY;
    schedule_locked(lane, own);
    sim->busy = false;
    dispatch_locked(sim);
    await_baton_locked(lane);
}

/* --- Lanes ------------------------------------------------------------------------------------ */

exo_sim_lane *
exo_sim_lane_new(exo_sim *sim, double speed)
{
    exo_sim_lane *lane = exo_calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    pthread_mutex_lock(&sim->lock);
    bool room = reserve_locked(sim, 2 * (sim->num_lanes + sim->pending + 1));
    if (room) {
        *lane = (exo_sim_lane){
            .sim = sim, .next = sim->lanes, .number = sim->num_lanes++, .speed = speed};
        pthread_cond_init(&lane->go, NULL);
        lane->time = sim->now;
        sim->lanes = lane;
    }
    pthread_mutex_unlock(&sim->lock);
    if (!room) {
        exo_free(lane);
        return NULL;
    }
    return lane;
}

void
exo_sim_restore(exo_sim *sim, exo_time now)
{
    sim->now = sim->left = now;
}

void
exo_sim_lane_restore(exo_sim_lane *lane, exo_time time)
{
    lane->time = time;
}

void
exo_sim_expect(exo_sim *sim, unsigned lanes)
{
    pthread_mutex_lock(&sim->lock);
    sim->expected += lanes;
    pthread_mutex_unlock(&sim->lock);
}

void
exo_sim_expect_no_more(exo_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    sim->expected = 0;
    dispatch_locked(sim);
    pthread_mutex_unlock(&sim->lock);
}

void
exo_sim_hold(exo_sim *sim, bool hold)
{
    pthread_mutex_lock(&sim->lock);
    sim->holds = hold;
    dispatch_locked(sim);
    pthread_mutex_unlock(&sim->lock);
}

void
exo_sim_enter(exo_sim_lane *lane, exo_time at)
{
    exo_sim *sim = lane->sim;
    pthread_mutex_lock(&sim->lock);
    if (at > lane->time)
        lane->time = at;
    lane->state = READY;
    lane->measure = false;
    lane->woken = lane->woken_before = false;
    schedule_locked(lane, entry_of(lane, lane->time));
    sim->inside++;
    if (sim->expected > 0)
        sim->expected--;
    dispatch_locked(sim);
    await_baton_locked(lane);
    pthread_mutex_unlock(&sim->lock);
    current = lane;
}

void
exo_sim_leave(exo_sim_lane *lane)
{
    exo_sim *sim = lane->sim;
    settle(lane);
    current = NULL;
    pthread_mutex_lock(&sim->lock);
    lane->state = OUTSIDE;
    lane->ticket++;
    if (lane->time > sim->left)
        sim->left = lane->time;
    sim->inside--;
    sim->busy = false;
    dispatch_locked(sim);
    if (!sim->busy && lane->time > sim->now) /* no other lane is in */
        sim->now = lane->time;
    pthread_mutex_unlock(&sim->lock);
}

exo_sim_lane *
exo_sim_current(void)
{
    return current;
}

exo_time
exo_sim_time(exo_sim_lane *lane)
{
    if (lane == current)
        settle(lane);
    return lane->time;
}

void
exo_sim_measure(exo_sim_lane *lane, bool measure)
{
    settle(lane);
    lane->measure = measure;
    lane->since = real_now();
}

void
exo_sim_spend(exo_sim_lane *lane, exo_time cost)
{
    settle(lane);
    add_cost(lane, cost);
}

void
exo_sim_sync(exo_sim_lane *lane)
{
    settle(lane);
    pthread_mutex_lock(&lane->sim->lock);
    yield_locked(lane);
    pthread_mutex_unlock(&lane->sim->lock);
}

bool
exo_sim_wait(exo_sim_lane *lane, exo_time until)
{
    exo_sim *sim = lane->sim;
    settle(lane);
    pthread_mutex_lock(&sim->lock);
    if (lane->woken_before) {
        lane->woken_before = false;
        pthread_mutex_unlock(&sim->lock);
        return true;
    }
    lane->woken = false;
    lane->state = WAITING;
    lane->until = until > lane->time ? until : lane->time;
    schedule_locked(lane, entry_of(lane, lane->until));
    sim->busy = false;
    dispatch_locked(sim);
    await_baton_locked(lane);
    bool woken = lane->woken;
    pthread_mutex_unlock(&sim->lock);
    return woken;
}

void
exo_sim_wake(exo_sim_lane *lane, exo_time at)
{
    exo_sim *sim = lane->sim;
    pthread_mutex_lock(&sim->lock);
    bool waits = lane->state == WAITING || (lane->state == READY && lane->woken);
    /* lane->time: its own thread changes it while it runs */
    if (waits && at < lane->time)
        at = lane->time;
    if (waits && !sim->busy && at < sim->now)
        at = sim->now;
    if (waits && at <= lane->until) {
        lane->state = READY;
        lane->woken = true;
        lane->until = at;
        schedule_locked(lane, entry_of(lane, at));
        dispatch_locked(sim);
    } else if (lane->state == RUNNING && !in_event && !(current && current->sim == sim)) {
        lane->woken_before = true;
    }
    pthread_mutex_unlock(&sim->lock);
}

/* --- Events, and the simulation itself -------------------------------------------------------- */

exo_status
exo_sim_at(exo_sim *sim, exo_time at, void (*callback)(void *context, exo_time at), void *context,
           exo_err *err)
{
    pthread_mutex_lock(&sim->lock);
    bool room = reserve_locked(sim, 2 * (sim->num_lanes + sim->pending + 1));
    if (room) {
        if (sim->length == sim->room)
            compact_locked(sim);
        sim->pending++;
        push_locked(sim, (struct entry){.time = at > sim->now ? at : sim->now,
                                        .order = sim->num_events++,
                                        .callback = callback,
                                        .context = context});
        dispatch_locked(sim);
    }
    pthread_mutex_unlock(&sim->lock);
    return room ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for an event of the simulation");
}

exo_time
exo_sim_next(exo_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    drop_stale_locked(sim);
    exo_time next = sim->length > 0 ? sim->heap[0].time : INT64_MAX;
    pthread_mutex_unlock(&sim->lock);
    return next;
}

static exo_time
sim_now(const exo_clock *clock)
{
    const exo_sim *sim = (const exo_sim *)clock;
    return current && current->sim == sim ? exo_sim_time(current) : sim->now;
}

exo_status
exo_sim_new(exo_sim **out, uint64_t tie_seed, exo_err *err)
{
    exo_sim *sim = exo_calloc(1, sizeof *sim);
    if (!sim)
        return exo_fail(err, EXO_NOMEM, "no memory for a simulation");
    sim->clock.now = sim_now;
    sim->tie_seed = tie_seed;
    pthread_mutex_init(&sim->lock, NULL);
    *out = sim;
    return EXO_OK;
}

void
exo_sim_free(exo_sim **sim)
{
    exo_sim *s = *sim;
    *sim = NULL;
    if (!s)
        return;
    for (exo_sim_lane *lane = s->lanes, *next; lane; lane = next) {
        next = lane->next;
        pthread_cond_destroy(&lane->go);
        exo_free(lane);
    }
    pthread_mutex_destroy(&s->lock);
    exo_free(s->heap);
    exo_free(s);
}

const exo_clock *
exo_sim_clock(exo_sim *sim)
{
    return &sim->clock;
}

exo_time
exo_sim_now(exo_sim *sim)
{
    return sim->left;
}
