/* Shared by the files of exo_cluster, a process's part in a cluster. Read <exogym/cluster.h> first,
 * then cluster.c.
 *
 * `lock` guards the marked members. Each holder keeps it briefly: nothing is called or waited for
 * under it, except a wait on `changed`. No other lock is taken under it. Functions that end in
 * _locked are called under it. */
#ifndef EXO_CLUSTER_IMPL_H
#define EXO_CLUSTER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include <exogym/cluster.h>

#include "actor/future.h"
#include "cluster/messages.h"
#include "cluster/place.h"
#include "cluster/remote.h"
#include "cluster/retry.h"
#include "net/process.h"

/* the deadline of requests that have none: exo_get_actor, claims, the keeper's registrations */
#define LOOKUP_TIMEOUT  (30 * EXO_SECOND)
#define CONNECT_TIMEOUT (5 * EXO_SECOND)
/* For connecting to a process of this host. Such a process is not given up for its silence: it may
 * wait for a processor, or be stopped. */
#define NEAR_TIMEOUT (30 * EXO_SECOND)
/* the longest attempt to meet the head, see exo_cluster_patience */
#define MOST_PATIENCE (30 * EXO_SECOND)
/* the keeper's pause before its next attempt to reach a head that is away */
#define RETRY (50 * EXO_MS)

struct known;   /* cluster_known.c */
struct attempt; /* cluster_reach.c */

/* A name of this process that the head has given or confirmed. */
struct name {
    struct name *next;
    char text[];
};

struct exo_cluster {
    /* exo_cluster_join sets the members up to `boot`; afterwards they are only read */
    exo_cluster_role role;
    exo_runtime *runtime;
    unsigned forks; /* exo_forks() of the process that joined */
    exo_remote *remote;
    exo_retrier *retrier;
    exo_cluster_place place;
    exo_audit *audit; /* NULL: none */
    char job[128];
    char address[EXO_CLUSTER_PLACE_ADDRESSES];
    char boot[EXO_BOOT_ID];
    /* next tick of a head, on the runtime's clock: its lane sets it, the keeper takes it */
    _Atomic exo_time due;
    pthread_t keeper; /* owner, also of the next three: the thread that joins, leaves and frees */
    bool has_keeper, left, runtime_closed;
    /* held: completed by the death of the head's or worker's actor */
    exo_future *system;
    /* The log whose lines go to the head; -1: none. Owner, also of log_path: exo_cluster_join, then
     * the keeper. */
    int log_file;
    char log_path[4096];

    pthread_mutex_t lock;
    /* broadcast when head, closing, woken, interrupted, forsaken, broken or attempts change */
    pthread_cond_t changed;
    /* guarded by lock, like all below; 0: it is away. In a head's own process exo_cluster_join sets
     * it once. */
    exo_ref head;
    /* held; NULL: it is away. Owner, also of head_lost: cluster_head.c */
    exo_peer *head_peer;
    exo_time head_lost; /* time of the loss; 0: the head is there */
    /* All names that this process has had, the present one first. Each text stays valid until the
     * end. */
    struct name *names;
    struct known *known;  /* owner, also of the next two: cluster_known.c */
    struct known *deaths; /* deaths that the head has not been told of, the oldest first */
    uint64_t num_told;    /* number of times that the actors here were listed for a head */
    bool closing;         /* set by exo_cluster_leave */
    bool interrupted;     /* set by exo_cluster_interrupt */
    char farewell[160];   /* the reason that peers hear at the end; "": none but that */
    char forsaken[160];   /* why the head will not come back; "": it may. Set once */
    char broken[240];     /* which actor of this process has died, and why; "": none. Set once */
    /* connections that threads of this process are making; on their stacks (cluster_reach.c) */
    struct attempt *attempts;
    bool woken; /* set by exo_cluster_wake_keeper; the keeper clears it */
    /* The time at which a head looks for sockets of killed processes; 0: no process was lost. The
     * keeper clears it. */
    exo_time sweep_at;
};

/* --- Common to all (cluster.c) ---------------------------------------------------------------- */

/* Now, on the real clock. */
exo_time exo_cluster_now(void);
/* Sets the name of the process. False: no memory, and it keeps its name. */
bool exo_cluster_set_name(exo_cluster *c, const char *name);
/* Waits until something changes, until `until`, or for 10 s, whichever is first. The caller checks
 * its condition again. */
void exo_cluster_wait_until_locked(exo_cluster *c, exo_time until);
exo_runtime *exo_cluster_runtime(const exo_cluster *cluster);
/* UNSUPPORTED in a child of fork. */
exo_status exo_cluster_check_own(const exo_cluster *cluster, exo_err *err);

/* --- The connection to the head (cluster_head.c) ---------------------------------------------- */

/* For exo_remote_open; context: the cluster. */
extern const exo_remote_events exo_cluster_events;

/* Calls the head and waits for its reply, which the caller releases with exo_future_drop(future).
 * `again`: the call may be repeated if the head is lost before its answer. */
exo_status exo_cluster_call_head(exo_cluster *c, const char *method, const ProtobufCMessage *args,
                                 bool again, exo_time deadline, exo_future **future,
                                 const exo_payload **reply, exo_err *err);
/* Sends the head a message. False: it is away, or there is no memory. */
bool exo_cluster_tell_head(exo_cluster *c, const char *method, const ProtobufCMessage *message);
/* The time that the head gets to answer one attempt to meet it. failed: number of earlier attempts
 * that ended in TIMEOUT. The first attempts are short, because a head that dies between Hello and
 * Welcome never answers, and a restarted one is met only by a new attempt. Each further attempt
 * gets twice the time, for a head that is only slow. */
exo_time exo_cluster_patience(const exo_cluster *c, unsigned failed);
/* Whether a process may answer at the head's address, as far as this host can tell. */
bool exo_cluster_is_head_there(const exo_cluster *c);
/* One attempt: connects to the head within `patience`, and registers unless this process is a
 * guest. */
exo_status exo_cluster_meet_head(exo_cluster *c, exo_time patience, exo_time deadline,
                                 exo_err *err);

/* --- The actors of this process that the head knows (cluster_known.c) ------------------------- */

/* Registers this process at the head, and tells it of the actors here. Ends actors that the head
 * declares dead, and takes the name that the head gives. Blocks until `deadline`. */
exo_status exo_cluster_register(exo_cluster *c, exo_ref head, exo_time deadline, exo_err *err);
/* Tells the head of the deaths that it does not know. If it is away, it is told after the next
 * registration. */
void exo_cluster_tell_deaths(exo_cluster *c);
/* Frees the notes, once nothing can use them. */
void exo_cluster_forget_known(exo_cluster *c);
/* For exo_worker_env.making. */
void exo_cluster_making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor);
/* For exo_remote_events and exo_worker_env. */
bool exo_cluster_made_from(void *context, exo_ref actor, char space[256],
                           char owner[EXO_IDENTITY_NAME]);
exo_ref exo_cluster_find_made(void *context, uint64_t key, uint64_t incarnation);

/* --- Actors by name (cluster_names.c) --------------------------------------------------------- */

/* After the head has said that a name is taken: asks again, in case the head had not heard of a
 * death. True: the name is free now. Blocks for 2 s at most. */
bool exo_cluster_is_free_again(exo_cluster *c, const char *space, const char *name,
                               exo_time deadline);

/* --- Actors and processes elsewhere (cluster_reach.c) ----------------------------------------- */

/* Makes a reference to an actor as the head describes it. PEER_LOST: its process cannot be reached,
 * or has ended. */
exo_status exo_cluster_refer_to(exo_cluster *c, const Exo__Cluster__Actor *info, exo_time deadline,
                                exo_ref *out, exo_err *err);

/* --- The keeper (cluster_keeper.c) ------------------------------------------------------------ */

/* Opens the log of this process for reading. Only a regular file is opened, and no link is
 * followed. -1: there is none. */
int exo_cluster_open_log(const char *path);
/* The thread's function; argument: the cluster. It ends when `closing` is set. */
void *exo_cluster_keep(void *argument);
/* For exo_head_env.wake: `due` is earlier now. */
void exo_cluster_wake_keeper(void *context);

/* --- The runtime's requests (the table: cluster_ops.c) ---------------------------------------- */

/* For exo_runtime_set_remote; context: the cluster. */
extern const exo_remote_ops exo_cluster_ops;

/* The functions of that table; hooks.h has their contracts. */
exo_status exo_cluster_find(void *context, const char *space, const char *name, exo_ref *out,
                            exo_err *err);
exo_status exo_cluster_claim(void *context, const char *space, const char *name, exo_ref actor,
                             exo_err *err);
exo_status exo_cluster_spawn(void *context, const exo_spawn_item *items, size_t count,
                             exo_time deadline, exo_ref *out, exo_err *err);
exo_status exo_cluster_export(void *context, exo_ref actor, exo_actor_id *out, exo_err *err);
exo_status exo_cluster_import(void *context, const exo_actor_id *id, exo_time deadline,
                              exo_ref *out, exo_err *err);
void exo_cluster_died(void *context, const char *space, const char *name, exo_ref actor,
                      const char *cause, bool failure);
exo_status exo_cluster_call_node(void *context, uint64_t node, const char *method,
                                 exo_payload *args, exo_time deadline, exo_future **out,
                                 exo_err *err);

#endif
