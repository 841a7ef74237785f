/* The class that a config names: `reward: NAME` or `reward: {name: NAME, ...}`. Pure functions, any
 * thread. */
#ifndef EXO_NAMED_CLASS_H
#define EXO_NAMED_CLASS_H

#include <exogym/config.h>

#include "base/registry.h"

/* Finds the class of a registry that `node`, a name or a mapping with `name`, names; `key`: the key
 * of the node, for messages. *map: the mapping; NULL: the node is a name. INVAL (with its place). */
exo_status exo_named_class_find(const void **out, exo_registry *registry, exo_config *node,
                                const char *key, exo_config **map, exo_err *err);

#endif
