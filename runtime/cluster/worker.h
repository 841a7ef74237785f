/* The worker: an actor (`worker` in the namespace "exogym") that makes and ends actors for the
 * head.
 *
 * Methods:
 *     spawn(Spawn) -> uint64_t, names  loads the plugins of the spec and makes the actor. The reply
 *                                      has its reference, then the names of the class's idempotent
 *                                      methods, each with its 0
 *     kill(exo_head_kill)              ends an actor
 *     end()                            ends the process, like SIGTERM */
#ifndef EXO_CLUSTER_WORKER_H
#define EXO_CLUSTER_WORKER_H

#include <exogym/actor.h>

#include "base/audit.h"
#include "cluster/messages.h"

/* What the worker needs of its process. Context: the cluster. */
typedef struct exo_worker_env {
    /* Called by the thread that makes an actor for the head: with true before an actor with a name
     * is made, and with false afterwards, with its reference (0: it was not made). */
    void (*making)(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor);
    /* The living actor of that key and incarnation; 0: none. */
    exo_ref (*find)(void *context, uint64_t key, uint64_t incarnation);
    void (*end)(void *context); /* the process is to end */
    void *context;
    exo_audit *audit; /* the audit log; NULL: none. Outlives the worker */
} exo_worker_env;

/* Its argument is an exo_worker_env, which is copied. */
extern const exo_actor_class exo_worker_class;

#endif
