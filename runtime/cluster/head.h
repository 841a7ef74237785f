/* The head: an actor (`head` in the namespace "exogym") that knows which nodes there are, which
 * actors live where under which names, which jobs run; that decides where an actor is made, and
 * makes those again that died and shall live. It never waits: what it asks of a worker comes back
 * to it as a message. So one light lane is enough, and nothing of it needs a lock.
 *
 * Methods, with messages of cluster.proto:
 *     register(Register) -> RegisterReply     a worker or driver is there, or there again; in several parts if it has many actors
 *     leave(NodeInfo)                         it goes of its own accord
 *     spawn(Spawn) -> SpawnReply              when the actor has started
 *     find(Name) -> Actor                     waits while it is starting or restarting; node and id: that life is dead. TIMEOUT, a little
 *                                             before the call's deadline, says what the actor is instead, and why
 *     give_up(Name) -> Actor                  one that does not live just now is dead, and gets no other life
 *     node(NodeInfo) -> Actor                 where a process is
 *     claim(Name) -> Actor                    a name for an actor that was made without the head
 *     died(Name)                              an actor that has a key or a name
 *     lost(NodeInfo)                          a connection is gone: from this process's own net
 *     epitaph(Epitaph)                        why a process ended: from its watcher
 *     report(Report)                          how a job goes: from its driver, again and again
 *     holds(Holdings)                         what others hold of a node: from it, when that changes
 *     list() -> Listing, list(key) -> Listing with the actors after that one; why(Name) -> text
 *     log(LogLines), logs(number) -> lines after it, waits for some; logs() -> the oldest there are, at once
 *     end()                                   ends the workers, then this process; the reply comes when the workers have left
 *     tick()                                  something is due
 *     go_on()                                 the next slice of what is done with many actors
 *
 * What one process may hold of it is bounded: quota.h. */
#ifndef EXO_CLUSTER_HEAD_H
#define EXO_CLUSTER_HEAD_H

#include <stdatomic.h>

#include <exogym/actor.h>

#include "cluster/quota.h"
#include "cluster/remote.h"

/* What the head needs of the process that it is in. Context: the cluster. */
typedef struct exo_head_env {
    /* The worker actor of a registered node. */
    exo_status (*worker_of)(void *context, uint64_t node, exo_ref *out, exo_err *err);
    void *context;
    /* What its process holds for another one; zeroed if that is not connected. May be NULL. */
    void (*held_for)(void *context, uint64_t node, exo_remote_held *out);
    /* Whether a key that is let in has that name. May be NULL. */
    bool (*is_key)(void *context, const char *name);
    const exo_quotas *quotas; /* NULL: the default ones */
    exo_audit *audit;         /* of who asked for what; NULL: none. Lives as long as the head */
    const char *cluster;
    const char *state_path;      /* NULL: nothing is kept                                 */
    void (*wake)(void *context); /* `due` is earlier now */
    void (*end)(void *context);  /* the process shall end */
    /* when the next tick is due on the runtime's clock; written by the head */
    _Atomic exo_time *due;
} exo_head_env;

/* Started with a pointer to an exo_head_env, which is copied. */
extern const exo_actor_class exo_head_class;

/* "$XDG_STATE_HOME/exogym/CLUSTER.db", its folder made. */
exo_status exo_head_default_state(const char *cluster, char *out, size_t size, exo_err *err);

#endif
