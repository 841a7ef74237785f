/* The engines of the library and their registry. */
#ifndef EXO_COMM_ENGINES_H
#define EXO_COMM_ENGINES_H

#include <exogym/engine.h>

#include "base/registry.h"

extern exo_registry exo_engine_registry;
extern const exo_engine_class exo_local_engine; /* local.c */
/* far.c; only exo_comm_far makes its groups */
extern const exo_engine_class exo_net_engine;

#endif
