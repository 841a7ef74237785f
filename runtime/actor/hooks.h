/* Where the actor runtime meets other processes: the cluster sets these functions, and every
 * function of actor.h that is given a reference to an actor elsewhere, or a name that nobody has
 * here, goes through them.
 *
 * A reference with the bit EXO_REMOTE belongs to the cluster; what its other bits mean is the
 * cluster's. */
#ifndef EXO_ACTOR_HOOKS_H
#define EXO_ACTOR_HOOKS_H

#include "actor/future.h"

#define EXO_REMOTE (UINT64_C(1) << 63)

/* A method that every actor has, served like ping: a line for each method of its class and each of
 * its control lane's, "NAME<TAB>LANE<TAB>blocking|light|control<TAB>idempotent|once". A class's own
 * methods have no '$'. */
#define EXO_METHOD_METHODS "$methods"

typedef struct exo_remote_ops {
    /* Calls; completes `future`, which it holds on to. *args is moved, also on failure. */
    exo_status (*call)(void *context, exo_ref actor, const char *method, exo_payload *args,
                       exo_future *future, exo_err *err);
    /* The actor of that name, wherever it is: also a local one, as a local reference. Blocks.
     * NOT_FOUND, TIMEOUT. */
    exo_status (*find)(void *context, const char *space, const char *name, exo_ref *out,
                       exo_err *err);
    /* A named actor was entered here, and is about to start: the name is claimed for it. EXISTS.
     * Blocks. */
    exo_status (*claim)(void *context, const char *space, const char *name, exo_ref actor,
                        exo_err *err);
    /* exo_spawn_group. The args of all are moved, also on failure. */
    exo_status (*spawn)(void *context, const exo_spawn_item *items, size_t count, exo_time deadline,
                        exo_ref *out, exo_err *err);
    exo_status (*export)(void *context, exo_ref actor, exo_actor_id *out, exo_err *err);
    exo_status (*import)(void *context, const exo_actor_id *id, exo_time deadline, exo_ref *out,
                         exo_err *err);
    /* An actor that was entered here has died. Must not block. name: NULL if it had none. */
    void (*died)(void *context, const char *space, const char *name, exo_ref actor,
                 const char *cause, bool failure);
    /* What exo_stop, exo_kill, exo_monitor and exo_cause do. */
    exo_status (*stop)(void *context, exo_ref actor, bool drain, exo_err *err);
    exo_status (*kill)(void *context, exo_ref actor, const char *cause, exo_err *err);
    exo_status (*monitor)(void *context, exo_ref actor, exo_future *future, exo_err *err);
    exo_status (*cause)(void *context, exo_ref actor, char *text, size_t size);
    /* Who this process is in the cluster, and a call to the process `node` itself, as to an actor:
     * its method `method` of the cluster's own. Blocks while it connects. */
    uint64_t (*node)(void *context);
    exo_status (*call_node)(void *context, uint64_t node, const char *method, exo_payload *args,
                            exo_time deadline, exo_future **out, exo_err *err);
} exo_remote_ops;

/* What was set; NULL: there is nothing but this process. */
const exo_remote_ops *exo_runtime_remote(const exo_runtime *runtime, void **context);

/* Before there are actors that matter; NULL takes them away again: then nothing of the runtime may
 * run any more that might use them. */
void exo_runtime_set_remote(exo_runtime *runtime, const exo_remote_ops *ops, void *context);

/* A call that came from elsewhere: as exo_call, with a future of the caller's making. The actor is
 * local. *args is moved, also on failure. `caller`: who calls, NULL: this process. */
exo_status exo_runtime_deliver(exo_runtime *runtime, exo_ref actor, const char *method,
                               exo_payload *args, const exo_identity *caller, exo_future *future,
                               exo_err *err);
/* Who made the call that a method serves, until the call is over; NULL: this process itself. */
const exo_identity *exo_call_identity(const exo_call_context *call);
/* The process that made the call; 0: this one. */
uint64_t exo_call_node(const exo_call_context *call);
/* The method that it is served by; "" while its actor starts. */
const char *exo_call_method(const exo_call_context *call);

/* What a living actor of this process is. Its texts are good until exo_actor_info_release. */
typedef struct exo_actor_info {
    const exo_actor_class *actor_class;
    const char *space, *name; /* NULL: anonymous */
    void *held;
} exo_actor_info;

/* The namespace of the actors that belong to the cluster itself. */
#define EXO_SYSTEM_SPACE "exogym"

/* False: it is dead, and there is nothing to release. */
bool exo_runtime_look(exo_runtime *runtime, exo_ref actor, exo_actor_info *out);
void exo_actor_info_release(exo_actor_info *info);
/* Whether an actor of this process lives, or starts, or ends. What does not will never do so again:
 * a reference is one life's. */
bool exo_runtime_lives(exo_runtime *runtime, exo_ref actor);
/* exo_get_actor among the actors of this process only. */
exo_status exo_runtime_find_name(exo_runtime *runtime, const char *space, const char *name,
                                 exo_ref *out, exo_err *err);
/* exo_monitor with a future of the caller's making. */
exo_status exo_runtime_monitor(exo_runtime *runtime, exo_ref actor, exo_future *future,
                               exo_err *err);

/* From now on, lanes to which this thread brings work are kept back instead of being given to the
 * pool... */
void exo_lanes_collect(void);
/* ...until now. If it is one lane and `run`, this thread serves it for a turn; else the pool
 * does. */
void exo_lanes_settle(exo_runtime *runtime, bool run);

#endif
