/* Waits for any of thousands of futures. */
#ifndef EXO_ACTOR_MANY_H
#define EXO_ACTOR_MANY_H

#include <exogym/actor.h>

/* exo_wait_any for large sets. exo_wait_any takes a seat at every future in each call, which costs
 * too much if thousands complete one after the other. Above 64 futures, this function polls them
 * instead and sleeps some milliseconds while none is complete. NULL entries are skipped. Errors:
 * TIMEOUT; INVAL if there is no future. */
exo_status exo_wait_any_of_many(exo_future *const *futures, size_t count, exo_time deadline,
                                size_t *index, exo_err *err);

#endif
