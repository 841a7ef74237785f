/* The worker: an actor (`worker` in the namespace "exogym") that makes actors for the head, and ends them.
 *
 * Methods:
 *     spawn(Spawn) -> uint64_t, then the names of the class's idempotent methods, each with a 0: the new actor's reference; loads the
 *                     plugins that it names first
 *     kill(exo_head_kill)           ends an actor
 *     end()                         ends the process, as SIGTERM does */
#ifndef EXO_CLUSTER_WORKER_H
#define EXO_CLUSTER_WORKER_H

#include <exogym/actor.h>

/* What the worker needs of the process that it is in. */
typedef struct exo_worker_env {
    /* An actor that the head asked for is about to be made by this thread, with a name (true), or was made (false, with its
     * reference; 0: it was not). */
    void (*making)(void *context, bool begins, uint64_t key, exo_ref actor);
    void (*end)(void *context); /* the process shall end */
    void *context;
} exo_worker_env;

/* Started with a pointer to an exo_worker_env, which is copied. */
extern const exo_actor_class exo_worker_class;

#endif
