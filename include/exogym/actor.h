/* Actors: named state that is reached by messages only, in this process or, where the runtime
 * belongs to a cluster (cluster.h), in any of its processes. References and calls are the same.
 *
 * An actor class has methods; each method runs on one of the class's lanes. A lane is a bounded
 * mailbox, first in first out for each caller, that runs at most max_concurrency messages at once.
 * A light lane shares the runtime's pool of threads; a blocking lane, which may wait or compute for
 * long, has threads of its own. Every actor has a control lane besides, which answers ping, dump,
 * cancel and stop whatever its other lanes do.
 *
 * A call gives a future, completed exactly once: with a value, the method's error, TIMEOUT,
 * CANCELLED, or PEER_LOST with the cause of the actor's death. No wait is without a deadline;
 * deadlines are absolute times on the runtime's clock.
 *
 * Threads: every function may be called from any thread, also from inside methods, unless it says
 * otherwise. No callback runs under a lock. A method must not wait for a future of its own lane.
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

/* this process's actors, and the threads that serve them */
typedef struct exo_runtime exo_runtime;
/* the outcome of a call, once it is there; counted references */
typedef struct exo_future exo_future;
/* what a method knows of the call it serves */
typedef struct exo_call_context exo_call_context;

/* An actor: this life of it. 0 is none. */
typedef struct exo_ref {
    uint64_t id; /* means something to this runtime only: exo_ref_export names it elsewhere */
} exo_ref;

/* --- Classes ---------------------------------------------------------------------------------- */

/* The most lanes of one class. */
enum {
    EXO_MAX_LANES = 15
};

/* A lane of a class, as exo_spawn makes it unless exo_lane_opts say otherwise. */
typedef struct exo_lane_class {
    const char *name;         /* in dumps and exo_lane_opts */
    bool blocking;            /* threads of its own, one for each message it may run at once */
    uint32_t capacity;        /* messages that wait at most; 0 counts as 1024. Beyond: FULL */
    uint32_t max_concurrency; /* 0 counts as 1 */
} exo_lane_class;

/* Roles of keys (docs/security.md) that a class or a method of it may be called with from other
 * processes. 0: with every role that the cluster lets call it. Else with these only: it takes
 * rights away and gives none. Admins call everything, since they could load any code, and so do
 * processes of the same host that need no key; calls within the process are never asked. Refused
 * calls give DENIED. A method must allow the caller, and its class must. ping, dump, stop and the
 * like are no methods of a class, unless it has one of that name. */
typedef enum exo_callers {
    EXO_CALLERS_DRIVERS = 2, /* of its namespace */
    EXO_CALLERS_WORKERS = 4, /* actors of other workers */
    EXO_CALLERS_ADMINS = 8,  /* always; alone: nobody else */
} exo_callers;

/* A method: what a call names, and what then runs. */
typedef struct exo_method {
    const char *name;
    uint8_t lane; /* index into lanes */
    /* Serves one call. `args` belongs to the runtime; what is put into *reply is handed over. A
     * status other than OK with its reason in `err` is the future's error; the actor lives on,
     * unless it calls exo_call_die. */
    exo_status (*run)(exo_call_context *call, void *self, const exo_payload *args,
                      exo_payload *reply, exo_err *err);
    /* Running it twice does no harm: a call from another process whose actor is lost before it
     * answered is made again at the actor's next life, if it has a name and a restart rule, until
     * the call's deadline. All other calls are made once. */
    bool idempotent;
    uint8_t callers; /* of exo_callers; 0: whoever may call the class */
} exo_method;

/* What actors of a kind have in common: read-only, and alive as long as any of them. */
typedef struct exo_actor_class {
    const char *name;  /* unique in the process, if it is registered */
    size_t state_size; /* bytes of zeroed state, `self` */
    /* `start` runs on the spawning thread, before any method; what it did it undoes itself if it
     * fails. `stop` runs after the last method, on the thread that ended the actor; what a `stop`
     * ends is stopped when it has returned, so that a chain of any length can end. May be NULL. */
    exo_status (*start)(exo_call_context *call, void *self, const exo_payload *args, exo_err *err);
    void (*stop)(void *self);
    const exo_lane_class *lanes; /* NULL: one light lane "main" */
    size_t num_lanes;            /* 0 where lanes is NULL; at most EXO_MAX_LANES */
    const exo_method *methods;   /* (num_methods) */
    size_t num_methods;
    /* of exo_callers, for all of its methods; 0: whoever may call actors of its namespace */
    uint8_t callers;
} exo_actor_class;

/* Makes a class known by its name, for exo_spawn_class and for workers that are told to make such
 * an actor. It must live as long as the process. Errors: EXISTS (another class has the name; again
 * with the same is fine), INVAL (no name), FULL (1024 of them). Any thread. */
EXO_API exo_status exo_actor_class_register(const exo_actor_class *actor_class, exo_err *err);

/* The class of that name, and the index-th class in the order of names, from 0. NULL: there is
 * none. Any thread. */
EXO_API const exo_actor_class *exo_actor_class_find(const char *name);
EXO_API const exo_actor_class *exo_actor_class_at(size_t index);

/* --- Runtime ---------------------------------------------------------------------------------- */

/* Zeroed: all defaults. */
typedef struct exo_runtime_opts {
    const exo_clock *clock; /* NULL: real */
    unsigned threads;       /* of the pool for light lanes; 0: the number of usable cores */
} exo_runtime_opts;

/* Errors: NOMEM; FAILED (no thread can be made); INVAL: a variable EXOGYM_* of the environment is
 * wrong, and which. */
EXO_API exo_status exo_runtime_open(exo_runtime **out, const exo_runtime_opts *opts, exo_err *err);
/* Stops every actor (running methods see exo_call_cancelled), waits until `deadline` for their
 * methods and for every `stop`, also one that another thread is about to run, and frees everything.
 * TIMEOUT says how many did not end; their memory is then left alone. Not from inside a method. */
EXO_API exo_status exo_runtime_close(exo_runtime **runtime, exo_time deadline, exo_err *err);
/* The clock of its deadlines: the one it was opened with. Lives as long as the runtime, at
 * least. */
EXO_API const exo_clock *exo_runtime_clock(const exo_runtime *runtime);

/* --- Life ------------------------------------------------------------------------------------- */

/* cpus, gpus, memory (bytes), or a name of the user's. */
typedef struct exo_resource {
    const char *name;
    double amount; /* of it: how much there is, or how much is taken */
} exo_resource;

/* Which of the workers that have room gets an actor. */
typedef enum exo_placement {
    EXO_PLACE_PACK,   /* on the fullest worker that has room: leaves others whole */
    EXO_PLACE_SPREAD, /* on the emptiest */
    EXO_PLACE_STRICT, /* on the worker `node`, or not at all */
} exo_placement;

/* After which deaths an actor lives again. */
typedef enum exo_restart_when {
    EXO_RESTART_NEVER,
    EXO_RESTART_ON_FAILURE, /* not after a clean stop */
    EXO_RESTART_ALWAYS,
} exo_restart_when;

/* When an actor that died lives again: with the arguments of its first life, as another
 * incarnation. References to the earlier life stay dead; its name leads to the new one. While each
 * life is shorter than 10 s, the wait before the next one doubles, to 30 s at most. It is `backoff`
 * the first time, and at least 10 ms the second time: the first restart is immediate unless
 * `backoff` says otherwise, and repeated failures back off exponentially. */
typedef struct exo_restart_rule {
    exo_restart_when when; /* NEVER where it is zeroed */
    uint32_t max;     /* more deaths than this within `within`, and it stays dead; 0: any number */
    exo_time within;  /* 0: for ever */
    exo_time backoff; /* before the first restart */
} exo_restart_rule;

/* Who is restarted with a member of a group that failed. */
typedef enum exo_group_rule {
    EXO_ONE_FOR_ONE,
    EXO_ALL_FOR_ONE,
    EXO_REST_FOR_ONE, /* those that were made after it */
} exo_group_rule;

/* What lanes of one actor have instead of what its class says. */
typedef struct exo_lane_opts {
    const char *lane;           /* its name; NULL: every lane */
    uint32_t max_concurrency;   /* 0: the class's */
    uint32_t max_pending_calls; /* that wait at most, beyond: FULL; 0: the class's */
} exo_lane_opts;

/* How an actor is made. Zeroed: anonymous, without arguments, never restarted. */
typedef struct exo_spawn_opts {
    const char *name;           /* unique among living actors of the namespace; NULL: anonymous */
    const char *namespace_name; /* NULL: "default" */
    bool get_if_exists;         /* give the living actor of that name instead of EXISTS */
    exo_payload args;           /* for start; handed over */
    const exo_lane_opts *lanes; /* in this order: a later one counts */
    size_t num_lanes;           /* of `lanes` */
    /* What follows is for exo_spawn_class. */
    bool detached;                 /* outlives the job that made it */
    const exo_resource *resources; /* that it takes of its worker */
    size_t num_resources;          /* of `resources` */
    exo_placement placement;       /* on which of the workers that have room */
    const char *node;              /* the worker's name; needed for EXO_PLACE_STRICT */
    exo_restart_rule restart;      /* zeroed: it stays dead */
    const char *group;             /* supervision group, within the namespace; NULL: none */
    exo_group_rule group_rule;     /* the same for all of a group, else INVAL */
    const char *const *plugins;    /* that the worker loads first */
    size_t num_plugins;            /* of `plugins` */
} exo_spawn_opts;

/* Makes an actor; gives its reference when `start` is over. Errors: EXISTS, INVAL (a class that
 * makes no sense, too), NOMEM, start's own. The class must live as long as the actor. */
EXO_API exo_status exo_spawn(exo_runtime *runtime, const exo_actor_class *actor_class,
                             const exo_spawn_opts *opts, exo_ref *out, exo_err *err);
/* Makes an actor of a registered class, on the worker that has room for it; without a cluster in
 * this process, where resources and restart rules do not count. Blocks until it has started, or
 * `deadline`. Errors: as exo_spawn, NOT_FOUND (no such class, also at the worker), FULL (no worker
 * has the resources), TIMEOUT, PEER_LOST. */
EXO_API exo_status exo_spawn_class(exo_runtime *runtime, const char *class_name,
                                   const exo_spawn_opts *opts, exo_time deadline, exo_ref *out,
                                   exo_err *err);
/* One of several actors that are made together. */
typedef struct exo_spawn_item {
    const char *class_name; /* of a registered class */
    exo_spawn_opts opts;    /* args are handed over */
} exo_spawn_item;

/* Makes several actors, which are placed all or not at all, and started side by side. `out`
 * (count) gets their references; if one does not start, the others are ended again, and the
 * error is its. Deadline and errors as exo_spawn_class. */
EXO_API exo_status exo_spawn_group(exo_runtime *runtime, const exo_spawn_item *items, size_t count,
                                   exo_time deadline, exo_ref *out, exo_err *err);
/* The living actor of that name; NOT_FOUND names it and, if it died, its cause. namespace_name may
 * be NULL. In a cluster it waits, 30 s at most, for one that is starting or restarting; TIMEOUT
 * then says which, why, and what it waits for. */
EXO_API exo_status exo_get_actor(exo_runtime *runtime, const char *namespace_name, const char *name,
                                 exo_ref *out, exo_err *err);
/* Stops after what is queued (drain) or after what runs; what is queued then gets CANCELLED. Does
 * not wait. */
EXO_API exo_status exo_stop(exo_runtime *runtime, exo_ref actor, bool drain, exo_err *err);
/* Ends an actor as if it had failed with `cause`: linked actors die with it. An actor that is ended
 * from within the `stop` of another one runs its own `stop` after that one has returned: a `stop`
 * must not wait for it, nor free what it uses. */
EXO_API exo_status exo_kill(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err);
/* When either dies of a failure (not of a clean stop), the other is killed with a cause that names
 * the first. */
EXO_API exo_status exo_link(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err);
/* A future that is completed when the actor has died: OK after a clean stop, else PEER_LOST with
 * the cause. It may be dropped before: then the actor forgets it, if not at once. */
EXO_API exo_status exo_monitor(exo_runtime *runtime, exo_ref actor, exo_future **out, exo_err *err);
/* Why a dead actor died, in one line; NOT_FOUND if it lives or was never there. `text` has room for
 * `size` bytes. */
EXO_API exo_status exo_cause(exo_runtime *runtime, exo_ref actor, char *text, size_t size);

/* --- Calls ------------------------------------------------------------------------------------ */

/* Calls a method by name. `args` is handed over, also on failure. The call is dropped if it has not
 * begun at `deadline`, and its future times out then. The caller drops the future (at any time).
 * Errors, at once: NOT_FOUND (no such method), FULL (mailbox), PEER_LOST, NOMEM. */
EXO_API exo_status exo_call(exo_runtime *runtime, exo_ref actor, const char *method,
                            exo_payload args, exo_time deadline, exo_future **out, exo_err *err);
/* Calls, and waits for the reply until `deadline`: for when nothing else is to be done meanwhile.
 * *reply (may be NULL) is the caller's to release. Errors: the call's. */
EXO_API exo_status exo_call_wait(exo_runtime *runtime, exo_ref actor, const char *method,
                                 exo_payload args, exo_time deadline, exo_payload *reply,
                                 exo_err *err);
/* The same without a future: nobody waits for the reply. */
EXO_API exo_status exo_send(exo_runtime *runtime, exo_ref actor, const char *method,
                            exo_payload args, exo_time deadline, exo_err *err);
/* Drops a queued call, flags a running one (exo_call_cancelled). Its future is completed with
 * CANCELLED unless it is already complete. */
EXO_API void exo_cancel(exo_future *future);

/* Counts one more reference and returns `future`. */
EXO_API exo_future *exo_future_hold(exo_future *future);
/* Gives a reference back and sets *future to NULL; accepts NULL in it. The call goes on:
 * exo_cancel ends it. */
EXO_API void exo_future_drop(exo_future **future);
/* Is it complete? Never blocks. */
EXO_API bool exo_future_ready(const exo_future *future);

/* Waits until the future is complete, or `deadline`: TIMEOUT, and the future stays valid. Otherwise
 * the call's own status; its reply is in *reply (may be NULL), which the future keeps. */
EXO_API exo_status exo_wait(exo_future *future, exo_time deadline, const exo_payload **reply,
                            exo_err *err);
/* Waits until any of `count` futures is complete; *index is the first such. NULL among them is
 * passed over. INVAL: there is none. */
EXO_API exo_status exo_wait_any(exo_future *const *futures, size_t count, exo_time deadline,
                                size_t *index, exo_err *err);
/* Waits until all are complete; NULL is passed over. OK, TIMEOUT, or the first error in the order
 * of the array. */
EXO_API exo_status exo_wait_all(exo_future *const *futures, size_t count, exo_time deadline,
                                exo_err *err);

/* --- References in messages ------------------------------------------------------------------- */

/* Who an actor is, for every process of the cluster: plain numbers, to be put into a message. */
typedef struct exo_actor_id {
    uint64_t node, id; /* the process, 0 without a cluster; the actor in it */
} exo_actor_id;

/* The id of `actor`, for a message. Blocks: never. PEER_LOST: it is dead. */
EXO_API exo_status exo_ref_export(exo_runtime *runtime, exo_ref actor, exo_actor_id *out,
                                  exo_err *err);
/* This process's reference to it. Blocks while it connects, until `deadline`. PEER_LOST: its
 * process is gone. */
EXO_API exo_status exo_ref_import(exo_runtime *runtime, const exo_actor_id *id, exo_time deadline,
                                  exo_ref *out, exo_err *err);

/* --- Inside a method -------------------------------------------------------------------------- */

/* The runtime that the actor is in; the actor itself; and until when the caller waits, INT64_MAX
 * in `start`. */
EXO_API exo_runtime *exo_call_runtime(const exo_call_context *call);
EXO_API exo_ref exo_call_self(const exo_call_context *call);
EXO_API exo_time exo_call_deadline(const exo_call_context *call);

/* Moves the call's arguments out: they are the method's to release then, and may outlive it. */
EXO_API void exo_call_take_args(exo_call_context *call, exo_payload *out);
/* Has the call been cancelled, or its actor been told to stop? Long methods ask now and then. */
EXO_API bool exo_call_cancelled(const exo_call_context *call);
/* The call will be answered later, with exo_reply from any thread: what the method gives back does
 * not count, and its lane goes on. The caller gets PEER_LOST if the actor dies before. NULL: no
 * memory; then answer at once. */
EXO_API exo_future *exo_call_defer(exo_call_context *call);
/* Answers a deferred call, once; *reply (may be NULL) is handed over, `reason` is for a status
 * other than OK. */
EXO_API void exo_reply(exo_future **deferred, exo_status status, const char *reason,
                       exo_payload *reply);
/* After this method returns, the actor is dead with this cause. */
EXO_API void exo_call_die(exo_call_context *call, const char *cause);

/* --- Looking ---------------------------------------------------------------------------------- */

/* What an actor's lanes do now, a line each: lane, queued, running method and for how long. Works
 * while they are busy. The caller frees *out with exo_free. */
EXO_API exo_status exo_dump(exo_runtime *runtime, exo_ref actor, char **out, exo_err *err);

EXO_DECLS_END

#endif
