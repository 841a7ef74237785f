/* Aborts of communicators beside the member's thread. ncclCommAbort tells the kernels of its communicator to
 * end, and then frees memory, which waits for all work of the GPU: also for the calls of other communicators,
 * which the same member may have to abort. So each abort has a thread, and nobody waits for it beyond a deadline.
 * One that is late ends by itself, when the GPU is quiet.
 *
 * State: the counts of exo_nccl_aborts, which its threads and the member share. See group.h. */
#include "nccl/group.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <exogym/memory.h>

#define SLEEP_NS (50 * 1000)

enum {
    STACK = 1 << 20 /* bytes, at least */
};

struct exo_nccl_aborts {
    _Atomic unsigned running, holders; /* holders: the running ones, and the member */
};

struct abort {
    exo_nccl_aborts *all;
    const exo_nccl_table *nccl;
    exo_nccl_comm comm;
    exo_nccl_set *shrinks; /* held; may be NULL */
};

static void
drop(exo_nccl_aborts *all)
{
    if (atomic_fetch_sub(&all->holders, 1) == 1)
        exo_free(all);
}

static void *
abort_main(void *argument)
{
    struct abort *a = argument;
    (void)a->nccl->CommAbort(a->comm);
    exo_nccl_set_drop(a->nccl, a->shrinks);
    atomic_fetch_sub(&a->all->running, 1);
    drop(a->all);
    exo_free(a);
    return NULL;
}

/* Starts the thread as base/thread.c starts those of the library, whose functions a plugin does not reach: with a stack
 * that is large enough for NCCL, and no float mode of its maker's. */
static bool
start_thread(struct abort *a)
{
    pthread_attr_t attr;
    pthread_t thread;
    fenv_t before;
    size_t stack = 0;
    if (pthread_attr_init(&attr) != 0)
        return false;
    if (pthread_attr_getstacksize(&attr, &stack) == 0 && stack < STACK)
        pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    const int number = pthread_create(&thread, &attr, abort_main, a);
    fesetenv(&before);
    pthread_attr_destroy(&attr);
    return number == 0;
}

/* Returns whether the thread has begun. */
static bool
begin(exo_nccl_aborts *all, const exo_nccl_table *nccl, exo_nccl_comm comm, exo_nccl_set *shrinks)
{
    struct abort *a = exo_calloc(1, sizeof *a);
    if (!a)
        return false;
    *a = (struct abort){.all = all, .nccl = nccl, .comm = comm, .shrinks = shrinks};
    if (shrinks)
        __atomic_add_fetch(&shrinks->holders, 1, __ATOMIC_RELAXED);
    atomic_fetch_add(&all->running, 1);
    atomic_fetch_add(&all->holders, 1);
    if (start_thread(a))
        return true;
    atomic_fetch_sub(&all->running, 1);
    exo_nccl_set_drop(nccl, shrinks);
    drop(all);
    exo_free(a);
    return false;
}

void
exo_nccl_abort(exo_nccl_aborts **aborts, const exo_nccl_table *nccl, exo_nccl_comm comm,
               exo_nccl_set *shrinks)
{
    if (!*aborts && (*aborts = exo_calloc(1, sizeof **aborts)))
        (*aborts)->holders = 1;
    if (!*aborts || !begin(*aborts, nccl, comm, shrinks))
        (void)nccl->CommAbort(comm); /* without memory, as well as it goes */
}

bool
exo_nccl_await_aborts(exo_nccl_aborts **aborts, exo_time deadline)
{
    exo_nccl_aborts *all = *aborts;
    *aborts = NULL;
    if (!all)
        return true;
    while (atomic_load(&all->running) > 0 && exo_now(exo_clock_real()) < deadline)
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    const bool ended = atomic_load(&all->running) == 0;
    drop(all);
    return ended;
}
