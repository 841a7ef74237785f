/* Aborts of communicators beside the member's thread. ncclCommAbort tells the kernels of its communicator to
 * end, and then frees memory, which waits for all work of the GPU: also for the calls of other communicators,
 * which the same member may have to abort. So each abort has a thread, and nobody waits for it beyond a deadline.
 * One that is late ends by itself, when the GPU is quiet.
 *
 * State: the counts of exo_nccl_aborts, which its threads and the member share. See group.h. */
#include "nccl/group.h"

#include <stdatomic.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/thread.h"

#define SLEEP_NS (50 * 1000)

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

/* Returns whether the thread has begun. */
static bool
begin(exo_nccl_aborts *all, const exo_nccl_table *nccl, exo_nccl_comm comm, exo_nccl_set *shrinks)
{
    pthread_t thread;
    struct abort *a = exo_calloc(1, sizeof *a);
    if (!a)
        return false;
    *a = (struct abort){.all = all, .nccl = nccl, .comm = comm, .shrinks = shrinks};
    if (shrinks)
        __atomic_add_fetch(&shrinks->holders, 1, __ATOMIC_RELAXED);
    atomic_fetch_add(&all->running, 1);
    atomic_fetch_add(&all->holders, 1);
    if (exo_thread_start(&thread, abort_main, a, "the abort of a communicator", NULL) == EXO_OK) {
        pthread_detach(thread);
        return true;
    }
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
