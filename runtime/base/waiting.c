/* Conditions: see waiting.h. */
#include "base/waiting.h"

#include <time.h>

void
exo_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
}

void
exo_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, exo_time at)
{
    const struct timespec until = {.tv_sec = (time_t)(at / EXO_SECOND),
                                   .tv_nsec = (long)(at % EXO_SECOND)};
    pthread_cond_timedwait(condition, lock, &until);
}

void
exo_condition_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, exo_time left)
{
    exo_condition_wait_until(condition, lock, exo_now(exo_clock_real()) + left);
}

void
exo_mutex_init_brief(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
#if defined(__GLIBC__)
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}
