/* The engines of the library and their registry. */
#ifndef EXO_COMM_ENGINES_H
#define EXO_COMM_ENGINES_H

#include <exogym/engine.h>

#include "base/registry.h"

extern exo_registry exo_engine_registry;
extern const exo_engine_class exo_local_engine; /* local.c */
/* far.c; its groups are made by exo_comm_far only */
extern const exo_engine_class exo_net_engine;

#endif
