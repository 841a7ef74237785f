/* Inside of the actor runtime. Read in this order: future.h, lane.c (mailboxes, and the running of
 * messages), pool.c (threads of light lanes), actor.c (life and calls), death.c, ties.c (links and
 * monitors), runtime.c (the table of actors).
 *
 * A call takes no lock on its way to a light lane that is at work: it holds the actor by its slot,
 * pushes its message into the lane's inbox, and drops the actor. Only whoever pushes into an inbox
 * that was idle takes the pool's lock, to have the lane served.
 *
 * Locks, in the order in which they may be taken: actor->lock, runtime->lock, pool->lock; and by
 * themselves: future->lock, the lock of kept futures. No lock is held while a method, start, stop
 * or release function runs.
 *
 * An actor's memory lives as long as somebody holds it (references): being alive, a call on its
 * way, a lane that is to be served, a thread of its own. Its state ends with `stop`, when it is
 * dead and nothing of it runs any more (death.c, settle). */
#ifndef EXO_RUNTIME_IMPL_H
#define EXO_RUNTIME_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "actor/future.h"
#include "actor/hooks.h"

typedef struct exo_actor exo_actor;
typedef struct exo_lane exo_lane;
typedef struct exo_slot exo_slot;
typedef struct exo_name exo_name;

enum {
    EXO_CAUSE = 256
};

/* An actor's place in the table (runtime.c). */
struct exo_slot {
    _Atomic uint64_t life; /* generation << 32 | references */
    exo_actor *actor;      /* while there are references    */
    uint32_t index;
    uint32_t next_free; /* index + 1; guarded by runtime->lock */
};

/* A mailbox, and what of it runs. Messages come into the inbox and go on to the queue, which is in
 * the order of their coming. */
struct exo_lane {
    exo_actor *actor;
    const exo_lane_class *lane_class;
    _Atomic(exo_message *) inbox; /* the latest first, or a mark: see lane.c. Any thread pushes */
    atomic_uint queued;           /* in inbox and queue */
    exo_message *first, **last;   /* the queue; guarded by actor->lock, as all below */
    exo_message *current;         /* running ones, linked */
    uint32_t running;
    uint32_t capacity, concurrency; /* set before it is opened */
    /* blocking: its threads. Light with max_concurrency > 1: its turns, waiting or at work */
    uint32_t servers;
    pthread_cond_t *wake; /* of a blocking lane's threads; made with the first thread */
    exo_lane *next;       /* in the pool's queue; guarded by pool->lock, as tickets */
    uint32_t tickets;     /* turns in the pool's queue */
};

typedef enum exo_actor_state {
    EXO_ACTOR_STARTING, /* takes calls, serves none */
    EXO_ACTOR_ALIVE,
    EXO_ACTOR_DRAINING, /* takes no calls, serves what is queued, then stops */
    EXO_ACTOR_DEAD,
} exo_actor_state;

/* Futures that are completed with a death, each held. */
struct exo_tied {
    exo_future **futures;
    size_t count, cap;
};

/* Who wants to hear of a death. */
struct exo_ties {
    uint64_t *links; /* ids */
    size_t num_links, cap_links;
    struct exo_tied monitors, deferred; /* deferred: of calls that will be answered */
    struct exo_ties
        /* of a dead actor, as below, until its linked ones have died, too; owner: the thread that
         * ends them */
        *next;
    char cause[EXO_CAUSE]; /* theirs */
};

/* One block of memory: this, the lanes, the state of the class. */
struct exo_actor {
    exo_runtime *runtime;
    exo_slot *slot; /* counts the references; NULL before it is entered into the table */
    uint64_t id;
    const exo_actor_class *actor_class;
    const char *name; /* NULL: anonymous. In `entry` */
    exo_name *entry;  /* owned */
    pthread_mutex_t lock;
    void *self;            /* guarded by lock, as all below but `stopping`. NULL: it ended */
    struct exo_ties *ties; /* NULL: none */
    exo_actor_state state;
    bool drains;            /* told to stop while it was starting */
    bool will_settle;       /* is in the list of a thread that will have stop run */
    bool settled;           /* stop has run          */
    bool failed;            /* died of a failure     */
    atomic_bool stopping;   /* what exo_call_cancelled reads */
    exo_actor *next_ending; /* in that list; owner: its thread */
    uint8_t num_lanes;
    exo_lane lanes[];
};

struct exo_call_context {
    exo_runtime *runtime;
    exo_actor *actor;
    exo_message *message; /* NULL: start runs */
    bool deferred;        /* somebody else completes the call's future */
    bool dies;
    char cause[EXO_CAUSE]; /* set if it dies */
};

/* --- runtime.c: the table of actors ----------------------------------------------------------- */

/* The living actor, held; NULL if it is dead or never was. Takes no lock. */
exo_actor *exo_runtime_find(exo_runtime *runtime, exo_ref ref);
/* Of an actor in the table, by whoever holds it. */
void exo_actor_hold(exo_actor *actor);
/* NULL is fine. */
void exo_actor_drop(exo_actor *actor);
/* Takes an actor and its name out of the table and remembers the cause of its death; false:
 * somebody has done so. */
bool exo_runtime_forget(exo_runtime *runtime, exo_actor *actor, const char *cause);
/* The namespace of its name; NULL: anonymous. */
const char *exo_actor_space(const exo_actor *actor);
/* Counts threads that close must wait for. */
void exo_runtime_thread_began(exo_runtime *runtime);
void exo_runtime_thread_ended(exo_runtime *runtime);
/* The cause of a dead actor as "cause", or a text that says that none is known. */
void exo_runtime_cause(exo_runtime *runtime, uint64_t id, char *text, size_t size);

/* --- actor.c: life ---------------------------------------------------------------------------- */

exo_status exo_actor_new(exo_runtime *runtime, const exo_actor_class *actor_class, exo_actor **out,
                         exo_err *err);
/* Of one that nobody holds. */
void exo_actor_free(exo_actor *actor);
/* Start is over: the lanes serve what has come and what comes. */
void exo_actor_open(exo_actor *actor);
/* For messages: its name, else its class's. */
const char *exo_actor_name(const exo_actor *actor);

/* The living actor, held, or PEER_LOST with the cause of its death. */
exo_status exo_actor_find(exo_runtime *runtime, exo_ref ref, exo_actor **out, exo_err *err);
exo_status exo_actor_fail_dead(exo_runtime *runtime, exo_ref ref, exo_err *err);
/* Who serves a reference that says that its actor is elsewhere; NULL: it is here. */
const exo_remote_ops *exo_runtime_elsewhere(exo_runtime *runtime, exo_ref actor, void **context);

/* --- death.c ---------------------------------------------------------------------------------- */

/* Ends it; failure: linked actors die with it. Any thread, no lock held. Those who are to hear of
 * it have heard when it returns, and all linked ones are dead; `stop` has run, too, unless a method
 * is not over yet, or this thread is itself in a death or a stop: then soon. */
void exo_actor_die(exo_actor *actor, const char *cause, bool failure);
/* To be called, without a lock, after anything that may have been the last that an actor did that
 * is not simply alive. */
void exo_actor_rest(exo_actor *actor);
/* Has `stop` run for the runtime's actors that wait for it on this thread: it is about to end. */
void exo_actors_settle(const exo_runtime *runtime);

/* --- ties.c ----------------------------------------------------------------------------------- */

void exo_ties_free(struct exo_ties *ties);
/* Has the future completed when the actor dies; false: it is dead, or there is no memory. */
bool exo_actor_tie_deferred(exo_actor *actor, exo_future *future);

/* --- lane.c: mailboxes and the running of messages -------------------------------------------- */

void exo_lane_init(exo_lane *lane, exo_actor *actor, const exo_lane_class *lane_class);
void exo_lane_release(exo_lane *lane);
/* Puts a message under way; on failure (FULL, PEER_LOST, NOMEM) it stays the caller's. The caller
 * holds the actor. */
exo_status exo_lane_put(exo_lane *lane, exo_message *message, exo_err *err);
/* Serves what has come while its actor was starting. */
void exo_lane_open_locked(exo_lane *lane);
/* Nothing comes in from now on; what has come is in the queue. */
void exo_lane_close_locked(exo_lane *lane);
/* Takes the queue away, linked; the order stays. */
exo_message *exo_lane_take_queue_locked(exo_lane *lane);
/* Serves a light lane for a while, on a thread of the pool; true: it wants another turn, after the
 * others. */
bool exo_lane_run_turn(exo_lane *lane);
void exo_message_free(exo_message *message);

/* --- pool.c: threads of light lanes ----------------------------------------------------------- */

typedef struct exo_pool exo_pool;

exo_status exo_pool_open(exo_pool **out, exo_runtime *runtime, unsigned threads, exo_err *err);
/* Queues one turn of a lane. The lane's actor is held until it is over. */
void exo_pool_push(exo_pool *pool, exo_lane *lane);
/* Tells the threads to end when the queue is empty. */
void exo_pool_stop(exo_pool *pool);
void exo_pool_free(exo_pool **pool);
exo_pool *exo_runtime_pool(exo_runtime *runtime);

#endif
