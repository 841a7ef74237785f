/* The worker: an actor (`worker` in the namespace "exogym") that makes actors for the head, and
 * ends them.
 *
 * Methods:
 *     spawn(Spawn) -> uint64_t, then the names of the class's idempotent methods, each with a 0: the new actor's reference; loads the
 *                     plugins that it names first
 *     kill(exo_head_kill)           ends an actor
 *     end()                         ends the process, as SIGTERM does */
#ifndef EXO_CLUSTER_WORKER_H
#define EXO_CLUSTER_WORKER_H

#include <exogym/actor.h>

#include "base/audit.h"
#include "cluster/messages.h"

/* What the worker needs of the process that it is in. */
typedef struct exo_worker_env {
    /* An actor that the head asked for is about to be made by this thread, with a name (true), or
     * was made (false, with its reference; 0: it was not). */
    void (*making)(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor);
    /* The life of an actor that was made so; 0: it is not there (any more). */
    exo_ref (*find)(void *context, uint64_t key, uint64_t incarnation);
    void (*end)(void *context); /* the process shall end */
    void *context;
    exo_audit *audit; /* of who asked for what; NULL: none. Lives as long as the worker */
} exo_worker_env;

/* Started with a pointer to an exo_worker_env, which is copied. */
extern const exo_actor_class exo_worker_class;

#endif
