/* Changing a parsed document: what jobs do with presets and with strategies that share options. One thread at a time. */
#ifndef EXO_BASE_CONFIG_EDIT_H
#define EXO_BASE_CONFIG_EDIT_H

#include <exogym/config.h>

/* Puts a copy of `value`, which keeps its place for messages, at "a.b.c" of its own document. Errors: INVAL, NOMEM. */
exo_status exo_config_put(exo_config *value, const char *path, exo_err *err);

/* A new mapping with the entries of `base` (may be NULL), each replaced as a whole by the entry of `top` of the same key, and
 * the other entries of `top`. `top` is a mapping, or a scalar that stands for {name: scalar}. Belongs to top's document. */
exo_status exo_config_overlay(const exo_config *base, exo_config *top, exo_config **out, exo_err *err);

/* Takes a key out of a mapping; nothing if it is not there. */
void exo_config_remove(exo_config *map, const char *key);

/* The value under `key`, whatever it is, or NULL; marks the key as known. NULL also if `map` is NULL or no mapping. */
exo_config *exo_config_get(exo_config *map, const char *key);

#endif
