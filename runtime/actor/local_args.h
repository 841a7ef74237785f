/* Pointers as the arguments of an actor's start: for classes that only code of this process makes
 * actors of.
 *
 * What comes from another process is bytes, whoever sends it and whatever they say. Pointers are
 * told from bytes by the function that releases them, which no message can name: a start that takes
 * pointers asks exo_local_args_get, and refuses everything else. No state; any thread. */
#ifndef EXO_ACTOR_LOCAL_ARGS_H
#define EXO_ACTOR_LOCAL_ARGS_H

#include <exogym/payload.h>

/* `what` (size bytes) is borrowed until the actor has started. */
exo_payload exo_local_args(const void *what, size_t size);
/* What exo_local_args was given; NULL: the payload is not of its making, or of another size. */
const void *exo_local_args_get(const exo_payload *args, size_t size);

#endif
