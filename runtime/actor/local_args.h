/* Pointers as arguments of an actor's `start`, for classes whose actors only code of this process
 * makes.
 *
 * Arguments from another process are always bytes, never pointers. The release function tells the
 * two apart, and no message can set it: a `start` that takes pointers calls exo_local_args_get and
 * refuses all other payloads. No state; any thread. */
#ifndef EXO_ACTOR_LOCAL_ARGS_H
#define EXO_ACTOR_LOCAL_ARGS_H

#include <exogym/payload.h>

/* A payload that borrows `what` (size bytes) until the actor has started. */
exo_payload exo_local_args(const void *what, size_t size);
/* Returns the pointer given to exo_local_args; NULL: the payload has another origin or size. */
const void *exo_local_args_get(const exo_payload *args, size_t size);

#endif
