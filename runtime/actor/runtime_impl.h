/* Inside of the actor runtime.
 *
 * Locks, in the order in which they may be taken: actor->lock, runtime->lock, pool->lock, future->lock, waiter->lock. No lock is held
 * while a method, start, stop or release function runs.
 *
 * An actor's memory lives as long as somebody holds it (references): the table of the living, a lane that runs, a thread of its own.
 * Its state is freed when it is dead and nothing of it runs any more (exo_actor_settle). */
#ifndef EXO_RUNTIME_IMPL_H
#define EXO_RUNTIME_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "future.h"

typedef struct exo_actor exo_actor;
typedef struct exo_lane exo_lane;
typedef struct exo_message exo_message;

enum {
    EXO_CAUSE = 256
};

struct exo_message {
    exo_message *next;
    const exo_method *method;
    exo_payload args;
    exo_future *future; /* held */
    exo_time begun;     /* when it runs */
};

struct exo_lane {
    exo_actor *actor;
    const exo_lane_class *lane_class;
    exo_message *first, **last; /* queued; guarded by actor->lock, as all below */
    uint32_t queued, running;
    uint32_t threads;     /* of its own */
    exo_message *current; /* running ones, linked */
    exo_lane *next;       /* in the pool's queue; guarded by pool->lock */
    uint32_t tickets;     /* in the pool's queue */
    pthread_cond_t *wake; /* of a blocking lane's threads; made with the first thread */
};

typedef enum exo_actor_state {
    EXO_ACTOR_STARTING,
    EXO_ACTOR_ALIVE,
    EXO_ACTOR_DRAINING, /* takes no calls, serves what is queued, then stops */
    EXO_ACTOR_DEAD,
} exo_actor_state;

struct exo_actor {
    exo_runtime *runtime;
    atomic_uint references;
    uint64_t id;
    const exo_actor_class *actor_class;
    char *name, *space; /* of the namespace; name may be NULL */
    void *self;
    pthread_mutex_t lock;
    exo_actor_state state; /* guarded by lock, as all below but `stopping` */
    bool settled;          /* stop has run, self is freed */
    bool failed;           /* died of a failure           */
    atomic_bool stopping;  /* what exo_call_cancelled reads */
    char cause[EXO_CAUSE];
    uint64_t *links; /* ids */
    size_t num_links, cap_links;
    exo_future **monitors; /* held */
    size_t num_monitors, cap_monitors;
    size_t num_lanes;
    exo_lane lanes[];
};

struct exo_call_context {
    exo_runtime *runtime;
    exo_actor *actor;
    exo_message *message;
    bool dies;
    char cause[EXO_CAUSE];
};

/* --- runtime.c: the table of actors ------------------------------------------------------------------------------------ */

/* The living actor, held; NULL if it is dead or never was. */
exo_actor *exo_runtime_find(exo_runtime *runtime, exo_ref ref);
void exo_actor_hold(exo_actor *actor);
void exo_actor_drop(exo_actor *actor);
/* Takes an actor and its name out of the table and remembers the cause of its death; false: somebody has done so. */
bool exo_runtime_forget(exo_runtime *runtime, exo_actor *actor, const char *cause);
/* Counts threads that close must wait for. */
void exo_runtime_thread_began(exo_runtime *runtime);
void exo_runtime_thread_ended(exo_runtime *runtime);
/* The cause of a dead actor as "cause", or a text that says that none is known. */
void exo_runtime_cause(exo_runtime *runtime, uint64_t id, char *text, size_t size);

/* --- actor.c: life and lanes --------------------------------------------------------------------------------------------- */

exo_status exo_actor_new(exo_runtime *runtime, const exo_actor_class *actor_class, exo_actor **out, exo_err *err);
/* Ends it; failure: linked actors die with it. Any thread, no lock held. */
void exo_actor_die(exo_actor *actor, const char *cause, bool failure);
/* Runs one message of a light lane, on a thread of the pool. */
void exo_lane_run_one(exo_lane *lane);

/* --- pool.c: threads of light lanes --------------------------------------------------------------------------------------- */

typedef struct exo_pool exo_pool;

exo_status exo_pool_open(exo_pool **out, exo_runtime *runtime, unsigned threads, exo_err *err);
/* Queues one ticket of a lane: one message of it will be run. The lane's actor is held until then. */
void exo_pool_push(exo_pool *pool, exo_lane *lane);
/* Tells the threads to end when the queue is empty. */
void exo_pool_stop(exo_pool *pool);
void exo_pool_free(exo_pool **pool);
exo_pool *exo_runtime_pool(exo_runtime *runtime);

#endif
