/* The engines of the library and their registry. */
#ifndef EXO_COMM_ENGINES_H
#define EXO_COMM_ENGINES_H

#include <exogym/engine.h>

#include "base/registry.h"

extern exo_registry exo_engine_registry;
extern const exo_engine_class exo_local_engine; /* local.c */
/* far.c; only exo_comm_far makes its groups */
extern const exo_engine_class exo_net_engine;

/* Loads the plugin of the library's own that has the engine `name`; does nothing for other names.
 * Errors: NOT_FOUND (this installation lacks the plugin), those of exo_plugin_load. */
exo_status exo_engine_load_optional(const char *name, exo_err *err);
/* The name of such an engine, also if this installation lacks it; NULL after the last. */
const char *exo_engine_optional_at(size_t index);

#endif
