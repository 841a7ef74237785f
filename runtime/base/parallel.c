/* Compute slots and the helpers of parallel loops.
 *
 * One lock guards the slots and the list of open loops. A helper thread takes a free slot and then
 * runs pieces of an open loop until none is left; it never holds a slot while it sleeps. An atomic
 * counter distributes the pieces, so a helper takes the lock twice a loop, not once a piece. Loops
 * live on their callers' stacks: before it returns, a caller removes its loop from the list and
 * waits until no helper is inside. Read next: pace.c. */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <exogym/tensor.h>

#include "base/environment.h"
#include "base/float_mode.h"
#include "base/thread.h"

enum {
    MAX_THREADS = EXO_MAX_THREADS
};

struct loop {
    void (*piece)(void *context, size_t index);
    void *context;
    size_t count;
    exo_float_mode mode; /* of the caller */
    atomic_size_t next;  /* the first piece that no thread has taken */
    unsigned helpers;    /* inside the loop; guarded by pool.lock */
    struct loop *link;   /* guarded by pool.lock */
};

static struct {
    pthread_mutex_t lock;
    /* a slot is free: for threads in exo_compute_enter */
    pthread_cond_t slot_free;
    /* a loop is open or a slot is free: for helpers */
    pthread_cond_t work;
    /* a helper has left a loop: for the loop's owner */
    pthread_cond_t helper_left;
    unsigned slots; /* 0: not determined yet */
    unsigned used;
    unsigned waiting; /* threads in exo_compute_enter */
    unsigned threads; /* helper threads that were started */
    struct loop *loops;
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .slot_free = PTHREAD_COND_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .helper_left = PTHREAD_COND_INITIALIZER,
};

static _Thread_local unsigned depth; /* nested enters of this thread */
static _Thread_local bool paused;
static _Thread_local bool in_piece;
static _Thread_local bool rehearsing;

unsigned
exo_usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    return 1;
}

static unsigned
default_slots(void)
{
    unsigned wanted = exo_environment_threads();
    return wanted ? wanted : exo_usable_cores();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void watch_forks(void);

static unsigned
slots_locked(void)
{
    pthread_once(&once, watch_forks);
    if (pool.slots == 0)
        pool.slots = default_slots();
    return pool.slots;
}

void
exo_set_num_threads(unsigned threads)
{
    pthread_mutex_lock(&pool.lock);
    pool.slots = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    pthread_cond_broadcast(&pool.slot_free);
    pthread_mutex_unlock(&pool.lock);
}

unsigned
exo_num_threads(void)
{
    pthread_mutex_lock(&pool.lock);
    unsigned slots = slots_locked();
    pthread_mutex_unlock(&pool.lock);
    return slots;
}

static void
take_slot_locked(void)
{
    pool.waiting++;
    while (pool.used >= slots_locked())
        pthread_cond_wait(&pool.slot_free, &pool.lock);
    pool.waiting--;
    pool.used++;
}

static void
give_slot_locked(void)
{
    pool.used--;
    if (pool.waiting)
        pthread_cond_signal(&pool.slot_free);
    else if (pool.loops)
        pthread_cond_signal(&pool.work);
}

void
exo_compute_enter(void)
{
    if (depth++ > 0)
        return;
    pthread_mutex_lock(&pool.lock);
    take_slot_locked();
    pthread_mutex_unlock(&pool.lock);
}

void
exo_compute_leave(void)
{
    if (--depth > 0)
        return;
    pthread_mutex_lock(&pool.lock);
    give_slot_locked();
    pthread_mutex_unlock(&pool.lock);
}

void
exo_compute_pause(void)
{
    if (depth == 0 || paused)
        return;
    paused = true;
    pthread_mutex_lock(&pool.lock);
    give_slot_locked();
    pthread_mutex_unlock(&pool.lock);
}

void
exo_compute_resume(void)
{
    if (!paused)
        return;
    pthread_mutex_lock(&pool.lock);
    take_slot_locked();
    pthread_mutex_unlock(&pool.lock);
    paused = false;
}

void
exo_compute_resume_after(exo_status st)
{
    if (st == EXO_OK)
        exo_compute_resume();
    if (!paused)
        return;
    pthread_mutex_lock(&pool.lock);
    pool.used++;
    pthread_mutex_unlock(&pool.lock);
    paused = false;
}

static void
run_pieces(struct loop *loop)
{
    in_piece = true;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed);
        if (i >= loop->count)
            break;
        loop->piece(loop->context, i);
    }
    in_piece = false;
}

/* A loop with pieces left, if a slot is free and no thread waits for one; else NULL. */
static struct loop *
helpable_locked(void)
{
    if (pool.waiting || pool.used >= slots_locked())
        return NULL;
    for (struct loop *l = pool.loops; l; l = l->link)
        if (atomic_load_explicit(&l->next, memory_order_relaxed) < l->count)
            return l;
    return NULL;
}

/* Runs pieces in the caller's mode, so that the results are the same on any thread. */
static void
help(struct loop *loop)
{
    const exo_float_mode own = exo_float_mode_get();
    const bool same = exo_float_mode_same(&own, &loop->mode);
    if (!same)
        exo_float_mode_set(loop->mode);
    run_pieces(loop);
    if (!same)
        exo_float_mode_set(own);
}

static void *
helper_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        struct loop *loop = helpable_locked();
        if (!loop) {
            pthread_cond_wait(&pool.work, &pool.lock);
            continue;
        }
        pool.used++;
        loop->helpers++;
        pthread_mutex_unlock(&pool.lock);

        depth = 1; /* this thread holds the slot while it helps */
        help(loop);
        depth = 0;

        pthread_mutex_lock(&pool.lock);
        loop->helpers--;
        if (loop->helpers == 0)
            pthread_cond_broadcast(&pool.helper_left);
        give_slot_locked();
    }
    return NULL;
}

/* In a child of fork, which has this thread alone. */
static void
begin_anew(void)
{
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.slot_free = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.work = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.helper_left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.used = depth > 0 && !paused;
    pool.waiting = 0;
    pool.threads = 0;
    pool.loops = NULL;
}

static void
watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_anew);
}

static void
start_helpers_locked(void)
{
    while (pool.threads + 1 < slots_locked()) {
        pthread_t thread;
        if (exo_thread_start(&thread, helper_main, NULL, "computation", NULL) != EXO_OK)
            return; /* the loop's owner then runs all pieces itself */
        pthread_detach(thread);
        pool.threads++;
    }
}

static atomic_size_t scratch;

void
exo_parallel_need_scratch(size_t bytes)
{
    size_t most = atomic_load(&scratch);
    while (bytes > most && !atomic_compare_exchange_weak(&scratch, &most, bytes))
        ;
}

size_t
exo_parallel_scratch(void)
{
    return atomic_load(&scratch);
}

void
exo_parallel_rehearse(bool on)
{
    rehearsing = on;
}

void
exo_parallel_for(size_t count, void (*piece)(void *context, size_t index), void *context)
{
    if (rehearsing)
        return;
    if (count <= 1 || in_piece) {
        for (size_t i = 0; i < count; i++)
            piece(context, i);
        return;
    }
    struct loop loop = {
        .piece = piece, .context = context, .count = count, .mode = exo_float_mode_get()};
    exo_compute_enter();

    pthread_mutex_lock(&pool.lock);
    start_helpers_locked();
    loop.link = pool.loops;
    pool.loops = &loop;
    unsigned idle = slots_locked() > pool.used ? slots_locked() - pool.used : 0;
    for (unsigned i = 0; i < idle && i + 1 < count; i++)
        pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);

    run_pieces(&loop);

    pthread_mutex_lock(&pool.lock);
    for (struct loop **at = &pool.loops; *at; at = &(*at)->link) {
        if (*at == &loop) {
            *at = loop.link;
            break;
        }
    }
    while (loop.helpers > 0)
        pthread_cond_wait(&pool.helper_left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    exo_compute_leave();
}
