/* Waiting for one of very many futures. */
#ifndef EXO_ACTOR_MANY_H
#define EXO_ACTOR_MANY_H

#include <exogym/actor.h>

/* As exo_wait_any. That takes a seat at every future each time; with thousands of them, one
 * completed after the other, this does not: it looks at them, and sleeps for some ms where none is
 * complete. NULL among them is passed over; INVAL: there is none. */
exo_status exo_wait_any_of_many(exo_future *const *futures, size_t count, exo_time deadline,
                                size_t *index, exo_err *err);

#endif
