/* What the files of exo_cluster, a process's part in a cluster, share. Read <exogym/cluster.h>
 * first, then cluster.c.
 *
 * `lock` guards what is marked; it is held for moments, and not while anything is called or waited
 * for, but for `changed`. It stands alone: nothing else is locked under it. Functions that end in
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

/* of exo_get_actor and of claims, which have no deadline of their own */
#define LOOKUP_TIMEOUT  (30 * EXO_SECOND)
#define CONNECT_TIMEOUT (5 * EXO_SECOND)
/* A process of this host that lives is not lost by silence: it waits for a processor, or is
 * stopped. */
#define NEAR_TIMEOUT (30 * EXO_SECOND)
/* of one attempt to meet the head, see exo_cluster_patience */
#define MOST_PATIENCE (30 * EXO_SECOND)
/* after which the keeper tries again to reach a head that is away */
#define RETRY (50 * EXO_MS)

struct known;   /* cluster_known.c */
struct attempt; /* cluster_reach.c */

/* A name of this process, as the head has given it. */
struct name {
    struct name *next;
    char text[];
};

struct exo_cluster {
    exo_cluster_role role; /* set by exo_cluster_join, as all to `boot`, and only read then */
    exo_runtime *runtime;
    exo_remote *remote;
    exo_retrier *retrier;
    exo_cluster_place place;
    exo_audit *audit; /* NULL: none */
    char job[128];
    char address[EXO_CLUSTER_PLACE_ADDRESSES];
    char boot[EXO_BOOT_ID];
    _Atomic exo_time due; /* of a head: its lane sets it, the keeper takes it */
    pthread_t keeper;     /* of who joins, leaves and frees, as the next two */
    bool has_keeper, left;
    exo_future *system; /* held: the death of the head's or worker's actor */
    /* what of it is passed on to the head; -1: nothing. Join's, then the keeper's, as its path */
    int log_file;
    char log_path[4096];

    pthread_mutex_t lock;
    pthread_cond_t changed; /* head, closing, woken, interrupted */
    /* guarded by lock, as all below; 0: it is away. Of a head: join sets it, once and for all */
    exo_ref head;
    exo_peer *head_peer; /* held; NULL: it is away. cluster_head.c, as head_lost */
    exo_time head_lost;  /* when; 0: it is there */
    /* all that this process has had, the present one first; each stays as it is until the end */
    struct name *names;
    struct known *known;  /* cluster_known.c, as the next two */
    struct known *deaths; /* that the head is to be told of, the first one first */
    uint64_t num_told;    /* how often a head was told what lives here             */
    bool closing;         /* by exo_cluster_leave */
    bool interrupted;     /* by exo_cluster_interrupt */
    char forsaken[160];   /* why the head will not come back; "": it may. Set once */
    char broken[240];     /* what of this process has died, and why; "": nothing. Set once */
    /* cluster_reach.c: whom threads of this process connect to right now; on their stacks */
    struct attempt *attempts;
    bool woken; /* by exo_cluster_wake_keeper; the keeper clears it */
    /* when a head looks for sockets of killed processes; 0: nobody was lost. The keeper clears
     * it */
    exo_time sweep_at;
};

/* --- Common to all (cluster.c) ---------------------------------------------------------------- */

/* On the real clock. */
exo_time exo_cluster_now(void);
/* The process is called so from now on. False: no memory, and it keeps its name. */
bool exo_cluster_set_name(exo_cluster *c, const char *name);
/* Until something changes, for 10 s at most: the caller looks again. */
void exo_cluster_wait_until_locked(exo_cluster *c, exo_time until);
exo_runtime *exo_cluster_runtime(const exo_cluster *cluster);

/* --- The connection to the head (cluster_head.c) ---------------------------------------------- */

/* For exo_remote_open; context: the cluster. */
extern const exo_remote_events exo_cluster_events;

/* Calls the head and waits for its reply, which the caller releases with exo_future_drop(future).
 * `again`: the call may be made twice, as when the head was lost before it answered. */
exo_status exo_cluster_call_head(exo_cluster *c, const char *method, const ProtobufCMessage *args,
                                 bool again, exo_time deadline, exo_future **future,
                                 const exo_payload **reply, exo_err *err);
/* False: it is away. */
bool exo_cluster_tell_head(exo_cluster *c, const char *method, const ProtobufCMessage *message);
/* How long the head may take to answer an attempt to meet it; `failed`: those before it that ended
 * in TIMEOUT. A head that dies between Hello and Welcome answers nobody, and neither does the next
 * one: so the first attempts are short. One that is only slow is given twice the time at each
 * further one. */
exo_time exo_cluster_patience(const exo_cluster *c, unsigned failed);
/* Whether there is somebody who may answer at the head's address, as far as can be seen from
 * here. */
bool exo_cluster_is_head_there(const exo_cluster *c);
/* Connects to the head, for `patience` at most, and registers, once. */
exo_status exo_cluster_meet_head(exo_cluster *c, exo_time patience, exo_time deadline,
                                 exo_err *err);

/* --- The actors of this process that the head knows (cluster_known.c) ------------------------- */

exo_status exo_cluster_register(exo_cluster *c, exo_ref head, exo_time deadline, exo_err *err);
/* Tells the head of the deaths that it has not been told of; if it is away, later. */
void exo_cluster_tell_deaths(exo_cluster *c);
/* When nothing can use it any more. */
void exo_cluster_forget_known(exo_cluster *c);
/* For exo_worker_env. */
void exo_cluster_making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor);
/* For exo_remote_events. */
bool exo_cluster_made_from(void *context, exo_ref actor, char space[256],
                           char owner[EXO_IDENTITY_NAME]);
exo_ref exo_cluster_find_made(void *context, uint64_t key, uint64_t incarnation);

/* --- Actors by name (cluster_names.c) --------------------------------------------------------- */

/* The head says that the name is taken: by one whose death it had not heard of yet? */
bool exo_cluster_is_free_again(exo_cluster *c, const char *space, const char *name,
                               exo_time deadline);

/* --- Actors and processes elsewhere (cluster_reach.c) ----------------------------------------- */

/* A reference to an actor as the head describes it. PEER_LOST: its process cannot be reached, or is
 * not there any more. */
exo_status exo_cluster_refer_to(exo_cluster *c, const Exo__Cluster__Actor *info, exo_time deadline,
                                exo_ref *out, exo_err *err);

/* --- The keeper (cluster_keeper.c) ------------------------------------------------------------ */

/* Opens the log of this process to read it: the file, and nothing that a link leads to. -1: there
 * is none. */
int exo_cluster_open_log(const char *path);
/* The thread; argument: the cluster. It ends when `closing` is set. */
void *exo_cluster_keep(void *argument);
/* For exo_head_env: `due` is earlier now. */
void exo_cluster_wake_keeper(void *context);

/* --- What the runtime asks for (the table: cluster_ops.c) ------------------------------------- */

/* For exo_runtime_set_remote; context: the cluster. */
extern const exo_remote_ops exo_cluster_ops;

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
