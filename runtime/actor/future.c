/* Futures: see future.h. A thread that waits for one future sleeps on the future's word. A thread
 * that waits for any of several has a word of its own, on its stack; a seat links it into each of
 * these futures. The thread leaves its seats, under the futures' locks, before it returns.
 *
 * Each call makes and frees a future, so each thread keeps some freed ones for its next calls; a
 * depot passes a thread's surplus to threads that have none. This raises the rate from 6.0 to 8.0
 * million messages a second where one thread sends and another one drops (bench_actors, 1 caller,
 * sends). Within one thread the allocator is as fast. */
#include "actor/future.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/forks.h"

enum {
    SLICE_MS = 2,
    SMALL = 16
};

/* The word: a phase and marks. */
enum {
    QUEUED,
    RUNNING,
    CLAIMED, /* a thread is writing the result: a few instructions */
    DONE,
    PHASE = 3,
    SLEEPERS = 4, /* threads sleep on the word */
    SEATS = 8,    /* threads wait in seats */
    HOOK = 16,    /* hooks[0] is set */
    HOOK2 = 32    /* hooks[1] is set */
};

/* A thread that waits for any of several futures. */
struct waiter {
    atomic_uint signalled;
};

/* A waiter's place in one future's list. Guarded by the future's lock. */
struct seat {
    struct waiter *waiter;
    struct seat *next, **at;
};

struct exo_future {
    atomic_uint references;
    atomic_uint word;
    atomic_bool cancelled;
    unsigned forks;    /* exo_forks() of the process that made it */
    exo_status status; /* written once, by the thread that made the step to CLAIMED */
    const exo_clock *clock;
    exo_time deadline;
    char *reason;      /* like status; may be NULL */
    exo_payload reply; /* like status */
    exo_message message;
    struct {
        const exo_future_hook *hook;
        void *context;
        uint64_t tag;
    } hooks[EXO_FUTURE_HOOKS]; /* each is written before its mark is set */
    struct seat *seats;        /* guarded by lock */
    pthread_mutex_t lock;      /* used only while there are seats */
};

/* --- Memory ----------------------------------------------------------------------------------- */

enum {
    BATCH = 64,  /* futures that move between a thread and the depot at once */
    DEPOT = 256, /* batches that the depot holds at most */
#if defined(__SANITIZE_ADDRESS__)
    KEEP = 0 /* none, so that the sanitizer sees uses after the free */
#else
    KEEP = 2 * BATCH /* futures that a thread keeps at most */
#endif
};

/* Freed futures, linked by message.next. */
struct chain {
    exo_message *first;
    unsigned count;
};

static _Thread_local struct chain kept; /* owner: its thread */
/* thread_ends will give this thread's futures to the depot */
static _Thread_local bool will_return;

static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool has_key;
    pthread_mutex_t lock;
    struct chain chains[DEPOT]; /* guarded by lock */
    unsigned count;
} depot = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void
free_chain(struct chain chain)
{
    for (exo_message *m = chain.first, *next; m; m = next) {
        next = m->next;
        pthread_mutex_destroy(&m->future->lock);
        exo_free(m->future);
    }
}

static void
give_to_depot(struct chain chain)
{
    pthread_mutex_lock(&depot.lock);
    bool room = depot.count < DEPOT;
    if (room && chain.count)
        depot.chains[depot.count++] = chain;
    pthread_mutex_unlock(&depot.lock);
    if (!room)
        free_chain(chain);
}

static void
thread_ends(void *unused)
{
    (void)unused;
    struct chain chain = kept;
    kept = (struct chain){0};
    will_return = false;
    give_to_depot(chain);
}

/* In a child of fork, where the thread that may have changed it is not. The child makes new ones. */
static void
forget_depot(void)
{
    depot.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    depot.count = 0;
}

static void
make_key(void)
{
    depot.has_key = pthread_key_create(&depot.key, thread_ends) == 0;
    pthread_atfork(NULL, NULL, forget_depot);
}

/* Whether thread_ends will run: a thread that is not sure of that keeps no futures. */
static bool
may_keep(void)
{
    if (KEEP > 0 && !will_return) {
        pthread_once(&depot.once, make_key);
        will_return = depot.has_key && pthread_setspecific(depot.key, &depot) == 0;
    }
    return will_return;
}

/* Returns a used future, its lock initialized, everything else stale; NULL: there is none. */
static exo_future *
take_kept(void)
{
    if (!kept.first && may_keep()) {
        pthread_mutex_lock(&depot.lock);
        if (depot.count)
            kept = depot.chains[--depot.count];
        pthread_mutex_unlock(&depot.lock);
    }
    exo_message *m = kept.first;
    if (!m)
        return NULL;
    kept.first = m->next;
    kept.count--;
    return m->future;
}

/* Gives the older half to the depot; the newer half is still in this core's cache. */
static void
give_half(void)
{
    exo_message *last = kept.first;
    for (unsigned i = 1; i < kept.count - BATCH; i++)
        last = last->next;
    give_to_depot((struct chain){.first = last->next, .count = BATCH});
    last->next = NULL;
    kept.count -= BATCH;
}

static void
keep(exo_future *f)
{
    f->message.future = f;
    f->message.next = NULL;
    if (!may_keep()) {
        free_chain((struct chain){.first = &f->message, .count = 1});
        return;
    }
    f->message.next = kept.first;
    kept.first = &f->message;
    if (++kept.count > KEEP)
        give_half();
}

/* --- Life ------------------------------------------------------------------------------------- */

exo_status
exo_future_new(exo_future **out, const exo_clock *clock, exo_time deadline, exo_err *err)
{
    exo_future *f = take_kept();
    if (!f) {
        f = exo_calloc(1, sizeof *f);
        if (!f)
            return exo_fail(err, EXO_NOMEM, "no memory for a future");
        pthread_mutex_init(&f->lock, NULL);
    }
    atomic_init(&f->references, 1);
    atomic_init(&f->word, QUEUED);
    atomic_init(&f->cancelled, false);
    f->forks = exo_forks();
    f->status = EXO_OK;
    f->clock = clock;
    f->deadline = deadline;
    f->reason = NULL;
    f->reply = (exo_payload){0};
    f->message = (exo_message){0};
    f->seats = NULL;
    *out = f;
    return EXO_OK;
}

exo_future *
exo_future_hold(exo_future *future)
{
    atomic_fetch_add(&future->references, 1);
    return future;
}

void
exo_future_drop(exo_future **future)
{
    exo_future *f = *future;
    *future = NULL;
    if (!f || atomic_fetch_sub(&f->references, 1) > 1)
        return;
    exo_payload_release(&f->reply);
    exo_free(f->reason);
    exo_identity_drop(&f->message.caller);
    keep(f);
}

exo_message *
exo_future_message(exo_future *future)
{
    return &future->message;
}

exo_time
exo_future_deadline(const exo_future *future)
{
    return future->deadline;
}

/* --- The word --------------------------------------------------------------------------------- */

static void
futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps while *word is `seen`, at most `left` ns. With a clock other than the real one it returns
 * after a few milliseconds, so that the caller reads the clock again. */
static void
futex_wait(atomic_uint *word, unsigned seen, const exo_clock *clock, exo_time left)
{
    const exo_time longest = 24 * 3600 * EXO_SECOND;
    if (clock != exo_clock_real() && left > SLICE_MS * EXO_MS)
        left = SLICE_MS * EXO_MS;
    left = left > longest ? longest : left;
    const struct timespec timeout = {.tv_sec = (time_t)(left / EXO_SECOND),
                                     .tv_nsec = (long)(left % EXO_SECOND)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

/* Sleeps on the future's word, which was `word`, as futex_wait. */
static void
sleep_on(exo_future *f, unsigned word, const exo_clock *clock, exo_time left)
{
    if ((word & SLEEPERS) || atomic_compare_exchange_strong(&f->word, &word, word | SLEEPERS))
        futex_wait(&f->word, word | SLEEPERS, clock, left);
}

/* Moves on to phase `to` from any phase up to `from`; the marks stay. False: the phase was
 * later. */
static bool
step(exo_future *f, unsigned from, unsigned to)
{
    unsigned word = atomic_load(&f->word);
    while ((word & PHASE) <= from)
        if (atomic_compare_exchange_weak(&f->word, &word, (word & ~(unsigned)PHASE) | to))
            return true;
    return false;
}

static unsigned
phase(const exo_future *f)
{
    return atomic_load(&f->word) & PHASE;
}

static void
wake_seats(exo_future *f)
{
    pthread_mutex_lock(&f->lock);
    for (struct seat *s = f->seats; s; s = s->next) {
        atomic_store(&s->waiter->signalled, 1);
        futex_wake_all(&s->waiter->signalled);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Writes the result of a future that this thread has moved to CLAIMED. */
static void
finish(exo_future *f, exo_status status, const char *reason, exo_payload *reply)
{
    f->status = status;
    /* without memory the status code must do */
    f->reason = reason && *reason ? exo_strdup(reason) : NULL;
    if (reply) {
        f->reply = *reply;
        *reply = (exo_payload){0};
    }
    /* The hooks whose marks are read here stay in place: a later hook takes the next place. */
    unsigned marks = atomic_fetch_or(&f->word, DONE);
    if (marks & SLEEPERS)
        futex_wake_all(&f->word);
    if (marks & SEATS)
        wake_seats(f);
    for (int i = 0; i < EXO_FUTURE_HOOKS; i++)
        if (marks & (unsigned)(HOOK << i))
            f->hooks[i].hook->done(f->hooks[i].context, f->hooks[i].tag, f);
}

void
exo_future_set_hook(exo_future *future, const exo_future_hook *hook, void *context, uint64_t tag)
{
    int i = atomic_load(&future->word) & HOOK ? 1 : 0;
    future->hooks[i].hook = hook;
    future->hooks[i].context = context;
    future->hooks[i].tag = tag;
    if ((atomic_fetch_or(&future->word, (unsigned)(HOOK << i)) & PHASE) == DONE)
        hook->done(context, tag, future);
}

exo_status
exo_future_take(exo_future *future, exo_payload *reply, exo_err *err)
{
    *reply = future->reply;
    future->reply = (exo_payload){0};
    if (future->status == EXO_OK)
        return EXO_OK;
    return exo_fail(err, future->status, "%s",
                    future->reason ? future->reason : exo_status_text(future->status));
}

bool
exo_future_begin_at(exo_future *future, exo_time now)
{
    if (now >= future->deadline)
        exo_future_complete(future, EXO_TIMEOUT, "the call had not begun at its deadline", NULL);
    return step(future, QUEUED, RUNNING);
}

bool
exo_future_begin(exo_future *future)
{
    return exo_future_begin_at(future,
                               future->deadline < INT64_MAX ? exo_now(future->clock) : INT64_MIN);
}

void
exo_future_complete(exo_future *future, exo_status status, const char *reason, exo_payload *reply)
{
    if (step(future, RUNNING, CLAIMED))
        finish(future, status, reason, reply);
    if (reply)
        exo_payload_release(reply);
}

/* Whether the future is done. Completes it first if its call is too late to begin; a call that
 * begins at the same moment wins. */
static bool
is_done(exo_future *f)
{
    if (phase(f) == QUEUED && f->deadline < INT64_MAX && exo_now(f->clock) >= f->deadline &&
        step(f, QUEUED, CLAIMED))
        finish(f, EXO_TIMEOUT, "the call had not begun at its deadline", NULL);
    return phase(f) == DONE;
}

bool
exo_future_is_over(const exo_future *future, exo_time now)
{
    unsigned at = phase(future);
    return at == DONE || (at == QUEUED && now >= future->deadline);
}

bool
exo_future_is_forsaken(const exo_future *future, unsigned hooks)
{
    unsigned word = atomic_load(&future->word);
    unsigned there = (unsigned)((word & HOOK) != 0) + (unsigned)((word & HOOK2) != 0);
    return there <= hooks && atomic_load(&future->references) == 1;
}

bool
exo_future_ready(const exo_future *future)
{
    return is_done((exo_future *)(uintptr_t)future);
}

void
exo_cancel(exo_future *future)
{
    if (!future || future->forks != exo_forks())
        return; /* a child of fork leaves the calls of its parent alone */
    atomic_store(&future->cancelled, true);
    exo_future_complete(future, EXO_CANCELLED, "the call was cancelled", NULL);
    /* Another thread may be writing the result. If it was interrupted, it needs this core. */
    for (unsigned word; ((word = atomic_load(&future->word)) & PHASE) != DONE;)
        sleep_on(future, word, exo_clock_real(), INT64_MAX);
}

bool
exo_future_cancelled(const exo_future *future)
{
    return atomic_load(&future->cancelled);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

/* The earlier of `deadline` and the future's own, which counts until its call begins. */
static exo_time
earlier(const exo_future *f, exo_time deadline)
{
    return phase(f) == QUEUED && f->deadline < deadline ? f->deadline : deadline;
}

/* The time until `until`. Reads no clock if there is no deadline. */
static exo_time
time_left(const exo_clock *clock, exo_time until)
{
    if (until == INT64_MAX)
        return INT64_MAX;
    exo_time now = exo_now(clock);
    return until > now ? until - now : 0;
}

static bool
done_by_now(void *future)
{
    return is_done(future);
}

/* Waits until the future is done. False: `deadline` has passed. */
static bool
wait_for(exo_future *f, exo_time deadline)
{
    if ((atomic_load(&f->word) & HOOK) && f->hooks[0].hook->drive && f->clock == exo_clock_real() &&
        !is_done(f))
        f->hooks[0].hook->drive(f->hooks[0].context, done_by_now, f, earlier(f, deadline));
    while (!is_done(f)) {
        exo_time left = time_left(f->clock, earlier(f, deadline));
        if (left == 0 && time_left(f->clock, deadline) == 0)
            return is_done(f);
        unsigned word = atomic_load(&f->word);
        if ((word & PHASE) == DONE)
            return true;
        sleep_on(f, word, f->clock, left);
    }
    return true;
}

static void
take_seat(exo_future *f, struct seat *seat, struct waiter *waiter)
{
    seat->waiter = waiter;
    pthread_mutex_lock(&f->lock);
    seat->next = f->seats;
    seat->at = &f->seats;
    if (f->seats)
        f->seats->at = &seat->next;
    f->seats = seat;
    pthread_mutex_unlock(&f->lock);
    /* A thread that completes the future from now on sees the mark. An earlier completion is seen
     * by the waiter, which checks the phase next. */
    atomic_fetch_or(&f->word, SEATS);
}

static void
leave_seat(exo_future *f, struct seat *seat)
{
    pthread_mutex_lock(&f->lock);
    *seat->at = seat->next;
    if (seat->next)
        seat->next->at = seat->at;
    pthread_mutex_unlock(&f->lock);
}

/* Waits until one of the futures is done, or until `deadline`. Returns its index, or `count`. */
static size_t
wait_for_one(exo_future *const *futures, size_t count, struct seat *seats, exo_time deadline)
{
    struct waiter waiter = {0};
    size_t done = count;
    const exo_clock *clock = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!futures[i])
            continue;
        clock = futures[i]->clock;
        take_seat(futures[i], &seats[i], &waiter);
    }
    for (;;) {
        exo_time until = deadline;
        atomic_store(&waiter.signalled, 0);
        for (size_t i = 0; i < count && done == count; i++) {
            if (!futures[i])
                continue;
            if (is_done(futures[i]))
                done = i;
            else
                until = earlier(futures[i], until);
        }
        if (done < count || time_left(clock, deadline) == 0)
            break;
        futex_wait(&waiter.signalled, 0, clock, time_left(clock, until));
    }
    for (size_t i = 0; i < count; i++)
        if (futures[i])
            leave_seat(futures[i], &seats[i]);
    return done;
}

/* Whether the call can be answered in this process. In a child of fork the threads that would do so
 * are missing, and one of them may have held the future's lock. */
static exo_status
check_own(exo_future *f, exo_err *err)
{
    return !f || is_done(f) || f->forks == exo_forks()
               ? EXO_OK
               : exo_fail(err, EXO_UNSUPPORTED,
                          "this process was forked from the one that made the call, which alone "
                          "gets the reply: wait for it there");
}

static exo_status
check_all_own(exo_future *const *futures, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = check_own(futures[i], err);
    return st;
}

exo_status
exo_wait(exo_future *future, exo_time deadline, const exo_payload **reply, exo_err *err)
{
    exo_status own = check_own(future, err);
    if (own != EXO_OK)
        return own;
    if (!wait_for(future, deadline))
        return exo_fail(err, EXO_TIMEOUT, "the call was not complete at the deadline");
    if (future->status != EXO_OK)
        return exo_fail(err, future->status, "%s",
                        future->reason ? future->reason : exo_status_text(future->status));
    if (reply)
        *reply = &future->reply;
    return EXO_OK;
}

exo_status
exo_wait_any(exo_future *const *futures, size_t count, exo_time deadline, size_t *index,
             exo_err *err)
{
    struct seat few[SMALL], *seats = few;
    if (count == 0)
        return exo_fail(err, EXO_INVAL, "no future was given");
    size_t there = 0;
    for (size_t i = 0; i < count; i++) {
        if (futures[i] && is_done(futures[i])) {
            *index = i;
            return EXO_OK;
        }
        there += futures[i] != NULL;
    }
    if (there == 0)
        return exo_fail(err, EXO_INVAL, "no future was given");
    exo_status own = check_all_own(futures, count, err);
    if (own != EXO_OK)
        return own;
    if (count > SMALL && !(seats = exo_calloc(count, sizeof *seats)))
        return exo_fail(err, EXO_NOMEM, "no memory to wait for %zu futures", count);
    *index = wait_for_one(futures, count, seats, deadline);
    if (seats != few)
        exo_free(seats);
    return *index < count ? EXO_OK
                          : exo_fail(err, EXO_TIMEOUT,
                                     "none of %zu calls was complete at the deadline", count);
}

exo_status
exo_wait_all(exo_future *const *futures, size_t count, exo_time deadline, exo_err *err)
{
    exo_status first = check_all_own(futures, count, err);
    if (first != EXO_OK)
        return first;
    for (size_t i = 0; i < count; i++)
        if (futures[i] && !wait_for(futures[i], deadline))
            return exo_fail(err, EXO_TIMEOUT, "%zu of %zu calls were complete at the deadline", i,
                            count);
    for (size_t i = 0; i < count && first == EXO_OK; i++)
        first = futures[i] ? exo_wait(futures[i], INT64_MAX, NULL, err) : EXO_OK;
    return first;
}
