/* Forks: see forks.h. */
#include "base/forks.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint forks; /* written in a child, which has one thread then */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void
watch(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned
exo_forks(void)
{
    pthread_once(&once, watch);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
