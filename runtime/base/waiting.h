/* Conditions whose waits end by the monotonic clock, exo_clock_real's. No state. */
#ifndef EXO_BASE_WAITING_H
#define EXO_BASE_WAITING_H

#include <pthread.h>

#include <exogym/clock.h>

void exo_condition_init(pthread_cond_t *condition);
/* Wait for a signal: until the time `at`, or as long as `left`. The caller holds the lock. */
void exo_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, exo_time at);
void exo_condition_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, exo_time left);

/* A mutex that threads hold for less time than it takes to sleep and be woken: one that finds it taken
 * spins for a moment first. */
void exo_mutex_init_brief(pthread_mutex_t *mutex);

#endif
