/* The boundary between the actor runtime and other processes. The cluster sets these functions. The
 * functions of actor.h use them for references to actors of other processes, and for names that no
 * local actor has.
 *
 * A reference with the bit EXO_REMOTE belongs to the cluster, which alone interprets its other
 * bits. */
#ifndef EXO_ACTOR_HOOKS_H
#define EXO_ACTOR_HOOKS_H

#include "actor/future.h"

#define EXO_REMOTE (UINT64_C(1) << 63)

/* A method of every actor, served like ping. The reply has a line for each method of the class and
 * of the control lane: "NAME<TAB>LANE<TAB>blocking|light|control<TAB>idempotent|once". Methods of
 * classes have no '$' in their names. */
#define EXO_METHOD_METHODS "$methods"

typedef struct exo_remote_ops {
    /* Calls an actor. Holds `future` and completes it with the outcome. *args is moved, also on
     * failure. */
    exo_status (*call)(void *context, exo_ref actor, const char *method, exo_payload *args,
                       exo_future *future, exo_err *err);
    /* Finds the actor of that name in any process; a local one gives a local reference. Blocks.
     * Errors: NOT_FOUND, TIMEOUT. */
    exo_status (*find)(void *context, const char *space, const char *name, exo_ref *out,
                       exo_err *err);
    /* Claims the name of a local actor, which is in the table and about to start. Blocks. Errors:
     * EXISTS. */
    exo_status (*claim)(void *context, const char *space, const char *name, exo_ref actor,
                        exo_err *err);
    /* exo_spawn_group. The args of all items are moved, also on failure. */
    exo_status (*spawn)(void *context, const exo_spawn_item *items, size_t count, exo_time deadline,
                        exo_ref *out, exo_err *err);
    exo_status (*export)(void *context, exo_ref actor, exo_actor_id *out, exo_err *err);
    exo_status (*import)(void *context, const exo_actor_id *id, exo_time deadline, exo_ref *out,
                         exo_err *err);
    /* Reports the death of a local actor. Must not block. name: NULL if it had none. */
    void (*died)(void *context, const char *space, const char *name, exo_ref actor,
                 const char *cause, bool failure);
    /* exo_stop, exo_kill, exo_monitor and exo_cause for actors of other processes. */
    exo_status (*stop)(void *context, exo_ref actor, bool drain, exo_err *err);
    exo_status (*kill)(void *context, exo_ref actor, const char *cause, exo_err *err);
    exo_status (*monitor)(void *context, exo_ref actor, exo_future *future, exo_err *err);
    exo_status (*cause)(void *context, exo_ref actor, char *text, size_t size);
    /* Whether the actor's process is on this host and connected by ipc. */
    bool (*is_near)(void *context, exo_ref actor);
    /* This process's number in the cluster. */
    uint64_t (*node)(void *context);
    /* The runtime is about to close: leaves the cluster, unless that is done. Blocks. NULL:
     * nothing to do. */
    void (*close)(void *context);
    /* Calls a method of the process `node` itself, one of the cluster's own. Blocks while it
     * connects. */
    exo_status (*call_node)(void *context, uint64_t node, const char *method, exo_payload *args,
                            exo_time deadline, exo_future **out, exo_err *err);
} exo_remote_ops;

/* The functions that were set; NULL: the runtime has no cluster. */
const exo_remote_ops *exo_runtime_remote(const exo_runtime *runtime, void **context);
/* UNSUPPORTED in a child of fork, which has none of the runtime's threads and may find its locks taken
 * for good. */
exo_status exo_runtime_check_own(const exo_runtime *runtime, exo_err *err);

/* Sets the functions. Call it before the runtime has actors that other processes may reach. NULL
 * removes them; call that once nothing may use them any more. */
void exo_runtime_set_remote(exo_runtime *runtime, const exo_remote_ops *ops, void *context);

/* Delivers a call from another process: exo_call with a future that the caller made. The actor is
 * local. *args is moved, also on failure. caller: the calling process; NULL: this one. */
exo_status exo_runtime_deliver(exo_runtime *runtime, exo_ref actor, const char *method,
                               exo_payload *args, const exo_identity *caller, exo_future *future,
                               exo_err *err);
/* The caller of the call that a method serves, valid until the call is over; NULL: this process
 * itself. */
const exo_identity *exo_call_identity(const exo_call_context *call);
/* The number of the process that made the call; 0: this one. */
uint64_t exo_call_node(const exo_call_context *call);
/* The name of the method that serves the call; "" while its actor starts. */
const char *exo_call_method(const exo_call_context *call);

/* The place by which an actor of this process opens its device (exo_device_open_place): the first GPU that
 * it was given, else `otherwise`. */
uint32_t exo_actor_place(exo_runtime *runtime, exo_ref actor, uint32_t otherwise);

/* Describes a living actor of this process. Its texts are valid until exo_actor_info_release. */
typedef struct exo_actor_info {
    const exo_actor_class *actor_class;
    const char *space, *name; /* NULL: anonymous */
    void *held;
} exo_actor_info;

/* The namespace of the actors that belong to the cluster itself. */
#define EXO_SYSTEM_SPACE "exogym"

/* Fills *out and holds the actor. False: the actor is dead, and nothing is to be released. */
bool exo_runtime_look(exo_runtime *runtime, exo_ref actor, exo_actor_info *out);
void exo_actor_info_release(exo_actor_info *info);
/* Whether an actor of this process is starting, alive or draining. Once false, always false: a
 * reference names one life. */
bool exo_runtime_lives(exo_runtime *runtime, exo_ref actor);
/* exo_stop without draining, for a cause, of an actor of this process. */
exo_status exo_runtime_stop(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err);
/* exo_get_actor, limited to the actors of this process. */
exo_status exo_runtime_find_name(exo_runtime *runtime, const char *space, const char *name,
                                 exo_ref *out, exo_err *err);
/* exo_monitor with a future that the caller made. */
exo_status exo_runtime_monitor(exo_runtime *runtime, exo_ref actor, exo_future *future,
                               exo_err *err);

/* From now on, lanes that get work from this thread are kept back instead of being queued in the
 * pool. */
void exo_lanes_collect(void);
/* Ends exo_lanes_collect. With one lane and `run`, this thread runs its turn; otherwise the pool
 * runs them. */
void exo_lanes_settle(exo_runtime *runtime, bool run);

#endif
