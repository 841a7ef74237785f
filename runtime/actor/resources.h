/* Resources in configurations. Pure functions of a document. */
#ifndef EXO_ACTOR_RESOURCES_H
#define EXO_ACTOR_RESOURCES_H

#include <exogym/actor.h>
#include <exogym/config.h>

/* Reads the mapping `resources` of `map`: amounts by name, `memory` in bytes. The list belongs to the
 * document; without the key *out is left as it is. INVAL, NOMEM. */
exo_status exo_resources_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err);
/* The same for what an actor needs, which may not be every amount: exo_gpus_check. */
exo_status exo_needs_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err);
/* INVAL: an actor cannot take this amount of `gpus`. It takes a part of one GPU, or whole ones. */
exo_status exo_gpus_check(double amount, exo_err *err);

#endif
