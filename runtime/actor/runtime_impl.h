/* The inside of the actor runtime. Read in this order: future.h, lane.c (mailboxes; runs messages),
 * pool.c (threads of light lanes), actor.c (creation and calls), death.c, ties.c (links and
 * monitors), runtime.c (the table of actors).
 *
 * A call to a busy light lane takes no lock: it holds the actor by its slot, pushes its message
 * into the lane's inbox, and drops the actor. A caller takes the pool's lock only if the inbox was
 * idle, to queue the lane for a turn.
 *
 * Order of locks: actor->lock, runtime->lock, pool->lock. Two locks stand alone: future->lock and
 * the lock of kept futures. No lock is held while a method, `start`, `stop` or release function
 * runs.
 *
 * References keep an actor's memory: being alive is one, and each call on its way, each queued turn
 * of a lane and each thread of a lane holds another. The actor's state ends with `stop`, once the
 * actor is dead and none of its methods runs (settle in death.c). */
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

/* A mailbox and its running messages. A message enters the inbox and moves on to the queue, which
 * keeps the order of arrival. */
struct exo_lane {
    exo_actor *actor;
    const exo_lane_class *lane_class;
    _Atomic(exo_message *) inbox; /* newest first, or a mark (lane.c); any thread pushes */
    atomic_uint queued;           /* number of messages in inbox and queue */
    exo_message *first, **last;   /* the queue; from here on guarded by actor->lock */
    exo_message *current;         /* running messages, linked */
    uint32_t running;
    uint32_t capacity, concurrency; /* set before it is opened */
    /* blocking lane: number of its threads. Light lane with max_concurrency > 1: number of its
     * turns, queued or running */
    uint32_t servers;
    pthread_cond_t *wake; /* wakes a blocking lane's threads; made with the first thread */
    exo_lane *next;       /* in the pool's queue; guarded by pool->lock, like tickets */
    uint32_t tickets;     /* number of turns in the pool's queue */
};

typedef enum exo_actor_state {
    EXO_ACTOR_STARTING, /* accepts calls, runs none */
    EXO_ACTOR_ALIVE,
    EXO_ACTOR_DRAINING, /* accepts no calls, runs the queued ones, then stops */
    EXO_ACTOR_DEAD,
} exo_actor_state;

/* The futures that the actor's death completes; the list holds each of them. NULL: a future that
 * was over; there are `empty` of these. */
struct exo_tied {
    exo_future **futures;
    size_t count, cap, empty;
    size_t next; /* that is looked at: see ties.c */
};

/* The links, monitors and deferred calls that an actor's death concerns. */
struct exo_ties {
    uint64_t *links; /* ids of actors */
    size_t num_links, cap_links;
    struct exo_tied monitors, deferred; /* deferred: calls whose method has deferred the reply */
    /* Of a dead actor, like `cause`, until its linked actors have died, too. Owner: the thread that
     * ends them. */
    struct exo_ties *next;
    char cause[EXO_CAUSE]; /* the linked actors' cause of death */
};

/* One block of memory: this struct, the lanes, the state of the class. */
struct exo_actor {
    exo_runtime *runtime;
    exo_slot *slot; /* counts the references; NULL until the actor is in the table */
    uint64_t id;
    uint64_t gpus; /* that it was given, a bit each */
    const exo_actor_class *actor_class;
    const char *name; /* NULL: anonymous. Part of `entry` */
    exo_name *entry;  /* owned */
    pthread_mutex_t lock;
    void *self;            /* guarded by lock, like all below but `stopping`. NULL: ended */
    struct exo_ties *ties; /* NULL: none */
    exo_actor_state state;
    bool started;         /* `start` has returned, or is not called */
    bool drains;          /* exo_stop has asked the actor to drain */
    bool will_settle;     /* is in the list of a thread that will run `stop`, or `interrupt` runs */
    bool settled;         /* `stop` has run */
    bool failed;          /* died of a failure */
    atomic_bool stopping; /* read by exo_call_cancelled */
    exo_actor *next_ending; /* in the list of will_settle; owner: its thread */
    uint8_t num_lanes;
    exo_lane lanes[];
};

struct exo_call_context {
    exo_runtime *runtime;
    exo_actor *actor;
    exo_message *message; /* NULL while `start` runs */
    bool deferred;        /* exo_reply will complete the call's future */
    bool dies;
    char cause[EXO_CAUSE]; /* set if `dies` */
};

/* --- runtime.c: the table of actors ----------------------------------------------------------- */

/* Returns the actor, held; NULL if it is dead or never existed. Takes no lock. */
exo_actor *exo_runtime_find(exo_runtime *runtime, exo_ref ref);
/* Adds a reference. The caller holds one already. */
void exo_actor_hold(exo_actor *actor);
/* Drops a reference; the last one frees the actor. NULL is allowed. */
void exo_actor_drop(exo_actor *actor);
/* Takes an actor and its name out of the table and remembers the cause of its death. False: another
 * caller has done so. */
bool exo_runtime_forget(exo_runtime *runtime, exo_actor *actor, const char *cause);
/* The namespace of the actor's name; NULL: anonymous. */
const char *exo_actor_space(const exo_actor *actor);
/* Count the threads that exo_runtime_close waits for. */
void exo_runtime_thread_began(exo_runtime *runtime);
void exo_runtime_thread_ended(exo_runtime *runtime);
/* Writes the cause of a dead actor's death, or a text that says that none is known. */
void exo_runtime_cause(exo_runtime *runtime, uint64_t id, char *text, size_t size);

/* --- actor.c: life ---------------------------------------------------------------------------- */

exo_status exo_actor_new(exo_runtime *runtime, const exo_actor_class *actor_class, exo_actor **out,
                         exo_err *err);
/* Frees an actor without references. */
void exo_actor_free(exo_actor *actor);
/* Ends the start: the lanes run the calls that have come, and later ones. */
void exo_actor_open(exo_actor *actor);
/* The actor's name, else its class's; for messages to people. */
const char *exo_actor_name(const exo_actor *actor);

/* Returns the living actor, held, or PEER_LOST with the cause of its death. */
exo_status exo_actor_find(exo_runtime *runtime, exo_ref ref, exo_actor **out, exo_err *err);
/* Returns PEER_LOST with the cause of the actor's death. */
exo_status exo_actor_fail_dead(exo_runtime *runtime, exo_ref ref, exo_err *err);
/* The functions that serve a reference to an actor of another process; NULL: the actor is local. */
const exo_remote_ops *exo_runtime_elsewhere(exo_runtime *runtime, exo_ref actor, void **context);

/* --- death.c ---------------------------------------------------------------------------------- */

/* Ends the actor; failure: linked actors die with it. Any thread, no lock held. On return, callers
 * and monitors have been told, and all linked actors are dead. `stop` has run, too, with two
 * exceptions: it runs later if a method of the actor is still running, or if this thread is inside
 * another death or `stop`. */
void exo_actor_die(exo_actor *actor, const char *cause, bool failure);
/* Ends a draining actor that has nothing left to run, and runs the `stop` of a dead one. Call it,
 * without a lock, after each event that may have been the last for an actor that is not ALIVE. */
void exo_actor_rest(exo_actor *actor);
/* Runs `stop` for the actors of this runtime that wait for it on this thread. For the runtime's
 * end. */
void exo_actors_settle(const exo_runtime *runtime);

/* --- ties.c ----------------------------------------------------------------------------------- */

void exo_ties_free(struct exo_ties *ties);
/* The actor's death completes the future. False: the actor is dead, or there is no memory. */
bool exo_actor_tie_deferred(exo_actor *actor, exo_future *future);

/* --- lane.c: mailboxes and the running of messages -------------------------------------------- */

void exo_lane_init(exo_lane *lane, exo_actor *actor, const exo_lane_class *lane_class);
void exo_lane_release(exo_lane *lane);
/* Delivers a message. After a failure (FULL, PEER_LOST, NOMEM, FAILED) it still belongs to the
 * caller. The caller holds the actor. */
exo_status exo_lane_put(exo_lane *lane, exo_message *message, exo_err *err);
/* Runs the messages that came while the actor was starting. */
void exo_lane_open_locked(exo_lane *lane);
/* Closes the inbox for good and moves its messages to the queue. */
void exo_lane_close_locked(exo_lane *lane);
/* Empties the queue and returns its messages, linked in their order. */
exo_message *exo_lane_take_queue_locked(exo_lane *lane);
/* Runs one turn of a light lane, on a thread of the pool. True: the lane needs another turn, after
 * the other lanes'. */
bool exo_lane_run_turn(exo_lane *lane);
void exo_message_free(exo_message *message);

/* --- pool.c: threads of light lanes ----------------------------------------------------------- */

typedef struct exo_pool exo_pool;

exo_status exo_pool_open(exo_pool **out, exo_runtime *runtime, unsigned threads, exo_err *err);
/* Queues one turn of a lane and holds its actor until the turn is over. */
void exo_pool_push(exo_pool *pool, exo_lane *lane);
/* Ends the threads once the queue is empty. */
void exo_pool_stop(exo_pool *pool);
void exo_pool_free(exo_pool **pool);
exo_pool *exo_runtime_pool(exo_runtime *runtime);

#endif
