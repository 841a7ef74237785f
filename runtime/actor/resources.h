/* Resources in configurations. Pure functions of a document. */
#ifndef EXO_ACTOR_RESOURCES_H
#define EXO_ACTOR_RESOURCES_H

#include <exogym/actor.h>
#include <exogym/config.h>

/* Reads the mapping `resources` of `map`: amounts by name, `memory` in bytes. The list belongs to the
 * document; without the key *out is left as it is. INVAL, NOMEM. */
exo_status exo_resources_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err);
/* The same for what an actor needs, which may not be every amount: gpus.h. */
exo_status exo_needs_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err);

#endif
