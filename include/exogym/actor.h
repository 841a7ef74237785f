/* Actors: named state that only messages reach. An actor lives in this process or, if the runtime
 * belongs to a cluster (cluster.h), in any process of the cluster. References and calls are the
 * same in both cases.
 *
 * An actor class has methods, and each method runs on one of the class's lanes. A lane is a bounded
 * mailbox, first in first out for each caller, that runs at most max_concurrency messages at once.
 * Light lanes share the runtime's pool of threads. A blocking lane, whose methods may wait or
 * compute for long, has threads of its own. The control methods (ping, dump, cancel, stop) are
 * answered whatever the lanes do.
 *
 * A call returns a future, which is completed exactly once: with a value, the method's error,
 * TIMEOUT, CANCELLED, or PEER_LOST with the cause of the actor's death. Every wait has a deadline.
 * Deadlines are absolute times on the runtime's clock.
 *
 * Threads: any thread may call every function, also inside a method, unless the contract says
 * otherwise. No method, `start` or `stop` runs under a lock. A method must not wait for a future of
 * its own lane.
 *
 * A child of fork has none of the runtime's threads. There every function that takes the runtime of
 * the parent and returns a status, and each wait for a pending call of it, is UNSUPPORTED at once; a
 * runtime that the child opens is its own.
 *
 * docs/actors.md explains the model. payload.h describes arguments and replies.
 */
#ifndef EXOGYM_ACTOR_H
#define EXOGYM_ACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/config.h>
#include <exogym/payload.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The actors of this process, and the threads that serve them. */
typedef struct exo_runtime exo_runtime;
/* The outcome of a call, which may still be pending; counted references. */
typedef struct exo_future exo_future;
/* The call that a method serves. */
typedef struct exo_call_context exo_call_context;

/* A reference to one life of an actor: a restarted actor has another one. An id of 0 is none. */
typedef struct exo_ref {
    uint64_t id; /* valid in this runtime only; for other processes see exo_ref_export */
} exo_ref;

/* --- Classes ---------------------------------------------------------------------------------- */

/* The most lanes of one class. */
enum {
    EXO_MAX_LANES = 15,
    EXO_MAX_GPUS = 64 /* of a process */
};

/* A lane of a class. exo_lane_opts can change its limits for one actor. */
typedef struct exo_lane_class {
    const char *name;         /* the name in dumps and in exo_lane_opts */
    bool blocking;            /* true: max_concurrency threads of its own; false: the shared pool */
    uint32_t capacity;        /* most waiting messages, further ones get FULL; 0 counts as 1024 */
    uint32_t max_concurrency; /* most messages that run at once; 0 counts as 1 */
} exo_lane_class;

/* The roles of keys (docs/security.md) that may call a class or a method from another process. A
 * value of 0 allows every role that the cluster allows. Other values only restrict: the cluster,
 * the class and the method must all allow the caller. A refused call gets DENIED.
 *
 * Admins may always call, because an admin could load any code. Processes of the same host that
 * need no key, and calls within the process, are not checked. ping, dump, stop and the like are not
 * methods of a class and so not restricted, unless the class itself has a method of that name. */
typedef enum exo_callers {
    EXO_CALLERS_DRIVERS = 2, /* drivers of the actor's namespace */
    EXO_CALLERS_WORKERS = 4, /* actors of other workers */
    EXO_CALLERS_ADMINS = 8,  /* this bit alone: admins only */
} exo_callers;

/* A method of a class. */
typedef struct exo_method {
    const char *name;
    uint8_t lane; /* index into lanes */
    /* Serves one call. `args` belongs to the runtime; the content of *reply passes to the runtime.
     * If `run` returns an error, the caller's future fails with this status and the text of `err`.
     * The actor lives on, unless the method called exo_call_die. */
    exo_status (*run)(exo_call_context *call, void *self, const exo_payload *args,
                      exo_payload *reply, exo_err *err);
    /* True: the method may run twice for one call. If the actor is lost before it answers a call
     * from another process, the call is repeated at the actor's next life, until the call's
     * deadline. This needs an actor with a name and a restart rule. All other calls are made
     * once. */
    bool idempotent;
    uint8_t callers; /* bits of exo_callers; 0: every caller that the class allows */
} exo_method;

/* A class of actors: read-only, and valid as long as any actor of it lives. */
typedef struct exo_actor_class {
    const char *name;  /* unique in the process if the class is registered */
    size_t state_size; /* bytes of the state `self`, which begins zeroed */
    /* `start` runs on the spawning thread before any method. If it fails, it undoes its own work:
     * `stop` does not run. `stop` runs after the last method, on the thread that ended the actor.
     * If a `stop` ends further actors, their `stop` runs after it has returned, so that a chain of
     * any length can end without deep recursion. Both may be NULL. */
    exo_status (*start)(exo_call_context *call, void *self, const exo_payload *args, exo_err *err);
    void (*stop)(void *self);
    /* Runs once if the actor ends while methods of it run, on the thread that ended it and beside
     * them, when exo_call_cancelled is already true; `stop` follows. It ends their waits, which
     * `stop` would wait for, and must not block. NULL: they end by themselves. */
    void (*interrupt)(void *self);
    const exo_lane_class *lanes; /* NULL: one light lane "main" */
    size_t num_lanes;            /* 0 where lanes is NULL; at most EXO_MAX_LANES */
    const exo_method *methods;   /* (num_methods) */
    size_t num_methods;
    /* bits of exo_callers, for all methods; 0: every caller that its namespace allows */
    uint8_t callers;
} exo_actor_class;

/* Registers a class under its name, for exo_spawn_class and for workers. The class must live as
 * long as the process. To register the same class again is OK. Errors: EXISTS (another class has
 * the name), INVAL (no name), FULL (1024 classes). Any thread. */
EXO_API exo_status exo_actor_class_register(const exo_actor_class *actor_class, exo_err *err);

/* The class of a name; the index-th class in the order of names, from 0. NULL: there is none. Any
 * thread. */
EXO_API const exo_actor_class *exo_actor_class_find(const char *name);
EXO_API const exo_actor_class *exo_actor_class_at(size_t index);

/* --- Runtime ---------------------------------------------------------------------------------- */

/* Options of a runtime. Zeroed: all defaults. */
typedef struct exo_runtime_opts {
    const exo_clock *clock; /* NULL: real */
    unsigned threads;       /* threads of the pool for light lanes; 0: the number of usable cores */
} exo_runtime_opts;

/* Opens a runtime and starts its pool of threads. `opts` may be NULL; the clock must outlive the
 * runtime. The caller closes it. Errors: NOMEM, FAILED (a thread cannot be started), INVAL (names a
 * variable EXOGYM_* of the environment that has a wrong value). */
EXO_API exo_status exo_runtime_open(exo_runtime **out, const exo_runtime_opts *opts, exo_err *err);
/* Leaves the cluster, if there is one that it has not left yet (exo_cluster_leave); stops every actor
 * and frees everything; sets *runtime to NULL and accepts NULL in it. Running
 * methods are interrupted and see exo_call_cancelled. Waits until `deadline` for these methods and
 * for every `stop`, also for a `stop` that another thread is about to run. TIMEOUT: the text has the
 * number of threads and actors that did not end, and their memory is leaked. UNSUPPORTED: this process
 * was forked from that of the runtime, which stays as it is. Not from inside a method. */
EXO_API exo_status exo_runtime_close(exo_runtime **runtime, exo_time deadline, exo_err *err);
/* The clock that the runtime was opened with. Lives at least as long as the runtime. */
EXO_API const exo_clock *exo_runtime_clock(const exo_runtime *runtime);

/* --- Life ------------------------------------------------------------------------------------- */

/* A resource: "cpus", "gpus", "memory" (bytes), or a name that the user chooses. */
typedef struct exo_resource {
    const char *name;
    double amount; /* the amount that a worker has, or that an actor takes */
} exo_resource;

/* The choice among the workers that have room for an actor. */
typedef enum exo_placement {
    EXO_PLACE_PACK,   /* the fullest worker that has room: leaves other workers empty */
    EXO_PLACE_SPREAD, /* the emptiest worker */
    EXO_PLACE_STRICT, /* the worker `node`, or none */
} exo_placement;

/* The deaths after which an actor is restarted. */
typedef enum exo_restart_when {
    EXO_RESTART_NEVER,
    EXO_RESTART_ON_FAILURE, /* not after a clean stop */
    EXO_RESTART_ALWAYS,
} exo_restart_when;

/* When and how often an actor is restarted. A new life has the arguments of the first one.
 * References to an earlier life stay dead; the name leads to the new life.
 *
 * The first restart is immediate unless `backoff` says otherwise; repeated failures back off
 * exponentially. The first wait is `backoff`, the second one at least 10 ms. While each life is
 * shorter than 10 s, every further wait doubles, up to 30 s. */
typedef struct exo_restart_rule {
    exo_restart_when when; /* zeroed: NEVER */
    uint32_t max;          /* restarts within `within`; one more death is final. 0: no limit */
    exo_time within;       /* 0: the whole time */
    exo_time backoff;      /* the wait before the first restart */
} exo_restart_rule;

/* The members of a supervision group that restart when one of them fails. */
typedef enum exo_group_rule {
    EXO_ONE_FOR_ONE,
    EXO_ALL_FOR_ONE,
    EXO_REST_FOR_ONE, /* the failed member, and the members that were made after it */
} exo_group_rule;

/* Limits of lanes for one actor, instead of those of its class. */
typedef struct exo_lane_opts {
    const char *lane;         /* the lane's name; NULL: every lane */
    uint32_t max_concurrency; /* 0: the class's */
    /* the lane's capacity: most waiting calls, further ones get FULL; 0: the class's */
    uint32_t max_pending_calls;
} exo_lane_opts;

/* Options of a new actor. Zeroed: anonymous, without arguments, never restarted. */
typedef struct exo_spawn_opts {
    const char *name;           /* unique among living actors of the namespace; NULL: anonymous */
    const char *namespace_name; /* NULL: "default" */
    bool get_if_exists;         /* return the living actor of that name instead of EXISTS */
    exo_payload args;           /* arguments of `start`; moved to the runtime */
    /* (num_lanes); if several name the same lane, the last one counts */
    const exo_lane_opts *lanes;
    size_t num_lanes; /* entries of `lanes` */
    /* of exo_spawn: a bit for each GPU of this process that the actor has (exo_actor_gpus); of an actor
     * of a cluster, the head chooses them by the resource `gpus` */
    uint64_t gpus;
    /* The fields below are for exo_spawn_class and exo_spawn_group. */
    bool detached;                 /* the actor outlives the job that made it */
    const exo_resource *resources; /* (num_resources) that the actor takes of its worker */
    size_t num_resources;          /* entries of `resources` */
    exo_placement placement;       /* the choice among workers with room */
    const char *node;              /* the worker's name; required for EXO_PLACE_STRICT */
    exo_restart_rule restart;      /* zeroed: never restarted */
    const char *group;             /* supervision group, within the namespace; NULL: none */
    exo_group_rule group_rule;     /* equal for all members of a group, else INVAL */
    /* (num_plugins) that the worker loads before it makes the actor. If this process can read a file
     * of that path, too, the worker must have the same one: else FAILED. */
    const char *const *plugins;
    size_t num_plugins; /* entries of `plugins` */
} exo_spawn_opts;

/* Makes an actor in this process, runs its `start` and returns its reference. Blocks while `start`
 * runs. The class must live as long as the actor. `opts` may be NULL. Errors: EXISTS, INVAL (also
 * for an inconsistent class), NOMEM, those of `start`. */
EXO_API exo_status exo_spawn(exo_runtime *runtime, const exo_actor_class *actor_class,
                             const exo_spawn_opts *opts, exo_ref *out, exo_err *err);
/* Makes an actor of a registered class on a worker that has room for it. Without a cluster the
 * actor is made in this process, and resources and restart rules are ignored. Blocks until the
 * actor has started, or until `deadline`. Errors: those of exo_spawn (INVAL also for EXO_PLACE_STRICT
 * without `node`, with a cluster and without), NOT_FOUND (no such class,
 * here or at the worker), FULL (no worker has the resources), TIMEOUT, PEER_LOST. */
EXO_API exo_status exo_spawn_class(exo_runtime *runtime, const char *class_name,
                                   const exo_spawn_opts *opts, exo_time deadline, exo_ref *out,
                                   exo_err *err);
/* One actor of exo_spawn_group. */
typedef struct exo_spawn_item {
    const char *class_name; /* of a registered class */
    exo_spawn_opts opts;    /* opts.args is moved to the runtime */
} exo_spawn_item;

/* Makes several actors, all or none; in a cluster they start in parallel. `out` (count) gets their
 * references. If one of them does not start, the others are ended and its error is returned.
 * Deadline and errors as for exo_spawn_class. */
EXO_API exo_status exo_spawn_group(exo_runtime *runtime, const exo_spawn_item *items, size_t count,
                                   exo_time deadline, exo_ref *out, exo_err *err);
/* Finds the living actor of a name. A namespace_name of NULL means "default". In a cluster the call
 * waits up to 30 s for an actor that is starting or restarting. Errors: NOT_FOUND (the text names
 * the actor and the cause of its death, if it died), TIMEOUT (the text says whether it starts or
 * restarts, why, and for what it waits). */
EXO_API exo_status exo_get_actor(exo_runtime *runtime, const char *namespace_name, const char *name,
                                 exo_ref *out, exo_err *err);
/* Stops an actor cleanly. With `drain` the queued messages are served first; without it they get
 * CANCELLED, and only the running ones finish. Does not wait. PEER_LOST: the actor is dead. Of an
 * actor in another process OK means only that the request was sent; exo_monitor tells the rest. */
EXO_API exo_status exo_stop(exo_runtime *runtime, exo_ref actor, bool drain, exo_err *err);
/* Ends an actor as if it had failed with `cause`: linked actors die with it. An actor that is ended
 * inside the `stop` of another actor runs its own `stop` only after the other `stop` has returned:
 * the other `stop` must not wait for it or free what it uses. Errors: as exo_stop. */
EXO_API exo_status exo_kill(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err);
/* Links two actors: when one dies of a failure (not of a clean stop), the other one is killed with
 * a cause that names the first. PEER_LOST: one of them is dead. */
EXO_API exo_status exo_link(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err);
/* Gives a future that is completed when the actor has died: OK after a clean stop, else PEER_LOST
 * with the cause; of an actor that is dead already, this call or the future fails with PEER_LOST. The
 * caller may drop the future earlier; the actor then forgets it, possibly with a delay. */
EXO_API exo_status exo_monitor(exo_runtime *runtime, exo_ref actor, exo_future **out, exo_err *err);
/* Writes the cause of an actor's death, one line, into `text` (size bytes). The runtime remembers
 * the last 1024 deaths. NOT_FOUND: the actor is alive, never existed, or is forgotten. */
EXO_API exo_status exo_cause(exo_runtime *runtime, exo_ref actor, char *text, size_t size);

/* --- Calls ------------------------------------------------------------------------------------ */

/* Calls a method by name. `args` is moved to the runtime, also on failure. If the method has not
 * begun at `deadline`, the call is dropped and its future fails with TIMEOUT. The caller drops the
 * future, at any time. Errors returned at once: NOT_FOUND (no such method), FULL (mailbox),
 * PEER_LOST, NOMEM. Of an actor in another process NOT_FOUND, PEER_LOST and the FULL of its mailbox
 * come with the future; FULL at once then means that 65,536 calls to that process are unanswered. A
 * caller that slows down by FULL, or finds the next life, therefore looks for it in both places. *out
 * is NULL after an error, so that it may be dropped; so it is with exo_monitor. */
EXO_API exo_status exo_call(exo_runtime *runtime, exo_ref actor, const char *method,
                            exo_payload args, exo_time deadline, exo_future **out, exo_err *err);
/* Calls a method and waits for the reply until `deadline`. The caller releases *reply (`reply` may
 * be NULL). Errors: those of the call. */
EXO_API exo_status exo_call_wait(exo_runtime *runtime, exo_ref actor, const char *method,
                                 exo_payload args, exo_time deadline, exo_payload *reply,
                                 exo_err *err);
/* Calls a method without a future: nobody waits for the reply. */
EXO_API exo_status exo_send(exo_runtime *runtime, exo_ref actor, const char *method,
                            exo_payload args, exo_time deadline, exo_err *err);
/* Drops a queued call; marks a running one as cancelled (exo_call_cancelled). The future is
 * completed with CANCELLED unless it is complete already. NULL does nothing. */
EXO_API void exo_cancel(exo_future *future);

/* Counts one more reference and returns `future`. */
EXO_API exo_future *exo_future_hold(exo_future *future);
/* Drops a reference and sets *future to NULL; accepts NULL in it. The call goes on: only exo_cancel
 * ends it. */
EXO_API void exo_future_drop(exo_future **future);
/* Whether the future is complete. Never blocks. */
EXO_API bool exo_future_ready(const exo_future *future);

/* Waits until the future is complete, or until `deadline` (TIMEOUT; the future stays valid). Returns
 * the status of the call, which may be TIMEOUT, too: exo_future_ready is then true. *reply (`reply`
 * may be NULL) points to the reply, which belongs to the future. */
EXO_API exo_status exo_wait(exo_future *future, exo_time deadline, const exo_payload **reply,
                            exo_err *err);
/* Waits until any of `count` futures is complete; *index is the first complete one in the order of
 * the array. NULL entries are skipped. Errors: TIMEOUT, INVAL (there is no future), NOMEM. */
EXO_API exo_status exo_wait_any(exo_future *const *futures, size_t count, exo_time deadline,
                                size_t *index, exo_err *err);
/* Waits until all futures are complete; NULL entries are skipped. Returns OK, TIMEOUT, or the first
 * error in the order of the array. */
EXO_API exo_status exo_wait_all(exo_future *const *futures, size_t count, exo_time deadline,
                                exo_err *err);

/* --- References in messages ------------------------------------------------------------------- */

/* The identity of an actor for every process of the cluster: plain numbers that may stand in a
 * message. */
typedef struct exo_actor_id {
    uint64_t node, id; /* the process, 0 without a cluster; the actor in it */
} exo_actor_id;

/* Writes the id of `actor`, for a message. Blocks: never. PEER_LOST: the actor is dead. */
EXO_API exo_status exo_ref_export(exo_runtime *runtime, exo_ref actor, exo_actor_id *out,
                                  exo_err *err);
/* Gives this process's reference to the actor of an id. Blocks while it connects, until `deadline`.
 * PEER_LOST: the actor's process has ended. */
EXO_API exo_status exo_ref_import(exo_runtime *runtime, const exo_actor_id *id, exo_time deadline,
                                  exo_ref *out, exo_err *err);

/* --- Inside a method -------------------------------------------------------------------------- */

/* The actor's runtime; the actor itself; the caller's deadline, which is INT64_MAX in `start`. */
EXO_API exo_runtime *exo_call_runtime(const exo_call_context *call);
EXO_API exo_ref exo_call_self(const exo_call_context *call);
EXO_API exo_time exo_call_deadline(const exo_call_context *call);

/* Moves the call's arguments to the method, which releases them. They may outlive the method. */
EXO_API void exo_call_take_args(exo_call_context *call, exo_payload *out);
/* Whether the call was cancelled or the actor was told to stop. A long method asks now and then. */
EXO_API bool exo_call_cancelled(const exo_call_context *call);
/* Defers the reply: any thread answers later with exo_reply. The return value of the method is then
 * ignored, and its lane goes on. If the actor dies before the reply, the caller gets PEER_LOST.
 * exo_reply takes the future; an actor that will not answer any more, as in `stop`, drops it
 * (exo_future_drop). A call that nobody answers ends at its caller's deadline. NULL: no memory; the
 * method must answer at once. */
EXO_API exo_future *exo_call_defer(exo_call_context *call);
/* Answers a deferred call, once. *reply (`reply` may be NULL) is moved to the runtime; `reason` is
 * the text for a status other than OK. */
EXO_API void exo_reply(exo_future **deferred, exo_status status, const char *reason,
                       exo_payload *reply);
/* Makes the actor die with this cause after the method has returned. */
EXO_API void exo_call_die(exo_call_context *call, const char *cause);

/* The GPUs that an actor of this process was given, as numbers of those that the process sees, from 0:
 * writes the first `most` of them, ascending, and returns how many there are. 0: it was given none, as
 * without a cluster, or without `gpus` among its resources. Any thread; also 0 for a dead actor. */
EXO_API size_t exo_actor_gpus(exo_runtime *runtime, exo_ref actor, uint32_t *out, size_t most);

/* --- Inspection ------------------------------------------------------------------------------- */

/* Describes the lanes of an actor, one line each: name, queued messages, running method and its
 * duration. Works while the lanes are busy. The caller frees *out with exo_free. */
EXO_API exo_status exo_dump(exo_runtime *runtime, exo_ref actor, char **out, exo_err *err);

EXO_DECLS_END

#endif
