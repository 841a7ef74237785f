/* The head: an actor (`head` in the namespace "exogym"). It knows the nodes, the actors with their
 * names and places, and the running jobs. It decides where an actor is made, and restarts actors by
 * their rules. It never waits: replies of workers come back to it as messages. So one light lane is
 * enough, and its state needs no lock.
 *
 * Methods, with messages of cluster.proto:
 *     register(Register) -> RegisterReply  a worker or driver registers, or registers again; in
 *                                          parts if it has many actors
 *     gone(NodeInfo)                       a node left (state "left"), or its connection is lost
 *     spawn(Spawn) -> SpawnReply           makes actors; answers when they have started
 *     started(exo_outcome)                 a worker's reply to its `spawn`: from the head itself
 *     find(Name) -> Actor                  waits while the actor is starting or restarting, unless
 *                                          `at_once`. `node` and `id` name a life that the caller
 *                                          knows to be dead. TIMEOUT, a little before the call's
 *                                          deadline, describes the actor's state
 *     give_up(Name) -> Actor               ends for good an actor that is not alive at the moment. With
 *                                          `alive` also one that is: its node ends it, and the reply
 *                                          is NOT_FOUND once it has; TIMEOUT, a little before the
 *                                          call's deadline
 *     node(NodeInfo) -> Actor              the address of a process
 *     claim(Name) -> Actor                 a name for an actor that was made without the head
 *     died(Name)                           an actor of the head's table has died: from its node
 *     epitaph(Epitaph)                     why a process ended: from its watcher
 *     report(Report)                       progress of a job: from its driver, repeatedly
 *     holds(Holdings)                      what others hold of a node: from the node, repeatedly
 *     list(Name) -> Listing                nodes, jobs and the first page of actors; with a key,
 *                                          the actors after that one
 *     why(Name) -> text                    the cause of a death
 *     log(LogLines)                        lines of a worker's output
 *     logs(...) -> number, lines           such lines: see exo_head_logs
 *     end()                                ends the workers, then this process; answers when the
 *                                          workers have left
 *     tick()                               something is due: from the keeper
 *     go_on()                              the next slice of work on many actors: from itself
 *
 * Quotas bound what one process may hold of the head: quota.h. */
#ifndef EXO_CLUSTER_HEAD_H
#define EXO_CLUSTER_HEAD_H

#include <stdatomic.h>

#include <exogym/actor.h>

#include "cluster/quota.h"
#include "cluster/remote.h"

/* What the head needs of its process. Context: the cluster. */
typedef struct exo_head_env {
    /* Finds the worker actor of a registered node. */
    exo_status (*worker_of)(void *context, uint64_t node, exo_ref *out, exo_err *err);
    void *context;
    /* Writes what this process holds for another one; zeros if that is not connected. May be
     * NULL. */
    void (*held_for)(void *context, uint64_t node, exo_remote_held *out);
    /* Whether a process was heard lately, in half the time after which it would be lost. NULL: each. */
    bool (*is_heard)(void *context, uint64_t node);
    /* Whether an authorized key has that name. May be NULL. */
    bool (*is_key)(void *context, const char *name);
    const exo_quotas *quotas; /* NULL: the default ones */
    exo_audit *audit;         /* the audit log; NULL: none. Outlives the head */
    const char *cluster;
    const char *state_path;      /* the file of the head's state; NULL: none */
    void (*wake)(void *context); /* `due` is earlier now */
    void (*end)(void *context);  /* the process is to end */
    /* time of the next tick on the runtime's clock; the head writes it */
    _Atomic exo_time *due;
} exo_head_env;

/* Its argument is an exo_head_env, which is copied. */
extern const exo_actor_class exo_head_class;

/* Writes "$XDG_STATE_HOME/exogym/CLUSTER.db" and makes its folder. INVAL, IO, NOT_FOUND (neither
 * XDG_STATE_HOME nor HOME is set). */
exo_status exo_head_default_state(const char *cluster, char *out, size_t size, exo_err *err);

#endif
