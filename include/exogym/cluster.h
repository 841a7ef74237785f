/* Clusters: runtimes of several processes, on one host or many, whose actors find and call each
 * other.
 *
 * A cluster has one head and any number of workers. The head knows names, nodes and jobs, and
 * places actors; workers host the actors. A process joins with its runtime. From then on the
 * functions of actor.h work across processes: exo_get_actor finds names anywhere, exo_spawn_class
 * makes actors where there is room, and calls, links, monitors and kills reach actors in other
 * processes. Calls go directly from process to process, so they continue while the head is away.
 *
 * Security: an ipc address is a socket in a folder that belongs to the user; a tcp address needs
 * keys (docs/security.md).
 *
 * Threads: any thread, unless the contract says otherwise; exo_cluster_free after all other calls
 * have returned. docs/cluster.md describes running a cluster, and its failures.
 */
#ifndef EXOGYM_CLUSTER_H
#define EXOGYM_CLUSTER_H

#include <exogym/actor.h>

EXO_DECLS_BEGIN

/* The membership of a process in a cluster. */
typedef struct exo_cluster exo_cluster;

/* The role of a process in its cluster. */
typedef enum exo_cluster_role {
    /* uses the cluster; at its end its job's actors end, detached ones excepted */
    EXO_ROLE_DRIVER,
    EXO_ROLE_WORKER, /* hosts actors */
    EXO_ROLE_HEAD,
    EXO_ROLE_GUEST, /* only looks and calls: is in no list, has no job, cannot be called */
} exo_cluster_role;

/* Options of a member. Zeroed: a driver. */
typedef struct exo_cluster_opts {
    exo_cluster_role role;
    const char *name;    /* name of this node; NULL: made from the role and process number */
    const char *cluster; /* NULL: "default" */
    /* The head's address, "ipc:///path" or "tcp://host:port". NULL: $EXOGYM_HEAD, else the usual
     * ipc address of a head of this cluster on this host. */
    const char *head;
    /* The public key of a head with CURVE: Z85 text, or a path to NAME.key. NULL:
     * $EXOGYM_HEAD_KEY. */
    const char *head_key;
    const char *const *listen; /* further endpoints, such as "tcp://127.0.0.1:0", besides ipc */
    size_t num_listen;         /* entries of `listen` */
    bool no_ipc;               /* listen at the endpoints of `listen` only */
    /* Requires a key with its role also from processes of this host. The ipc socket is then
     * FOLDER/.../NAME.curve, and this process connects by ipc to such sockets only. Needs `keys`. A
     * member that finds its head behind such a socket gets one, too, without this option. */
    bool keys_for_local;
    /* The tcp address that other processes use, if it differs from the endpoint. */
    const char *advertise;
    /* Path of NAME.secret. Required to listen on tcp; `head_key` is then required to reach a head
     * by tcp. */
    const char *keys;
    /* Folder of the public keys that are admitted; NULL: "authorized" beside the keys. */
    const char *authorized;
    /* Allows tcp without keys, both for listening (on loopback, too) and for a worker that reaches
     * its head by tcp. Everybody who reaches the port, or who answers at the head's address, may
     * then run code. */
    bool insecure;
    /* (num_resources) of a worker; cpus, gpus and memory are detected unless named here. */
    const exo_resource *resources;
    size_t num_resources; /* entries of `resources` */
    const char *state;    /* of a head: its SQLite file; NULL: in the user's state folder */
    /* Of a driver: the name of its job; NULL: made from the process number. Of a guest: the name of
     * a driver's job, whose end also ends the actors that the guest makes. */
    const char *job;
    exo_time peer_timeout; /* silence after which another host counts as dead; 0: 5 s */
    /* How long to wait for a head of this host that is not there, and may be starting; 0: until the
     * deadline. One that is there has until the deadline to answer. */
    exo_time absence;
    /* Of a worker: the file of its output, for members that ask for it. May be NULL. The file may
     * be renamed, and a new one made under the name. */
    const char *log;
    const char *folder; /* of sockets; NULL: $XDG_RUNTIME_DIR/exogym or /tmp/exogym-UID */
    /* `folder` must exist and is not made: its maker also removes it. */
    bool folder_exists;
    /* Of a head or worker: the audit log, a file of requests and their senders (docs/security.md).
     * NULL: none. */
    const char *audit;
} exo_cluster_opts;

/* Joins a cluster. The runtime must be new; to close it leaves the cluster. Waits for the head until
 * `deadline` (real clock). After an error the runtime is as before. Errors: TIMEOUT (no head; the
 * text has its address), UNSUPPORTED (the head refused), INVAL, EXISTS (another head is at this
 * address, or another process has the audit log), IO. */
EXO_API exo_status exo_cluster_join(exo_cluster **out, exo_runtime *runtime,
                                    const exo_cluster_opts *opts, exo_time deadline, exo_err *err);
/* Leaves the cluster within about a second: a driver's job ends, and all connections close. The
 * runtime then works alone. The caller closes the runtime next, and then frees the cluster. Nothing
 * happens in a child of fork, which is not a member. */
EXO_API void exo_cluster_leave(exo_cluster *cluster);
/* Leaves if the process has not left yet, frees the cluster and sets *cluster to NULL; accepts NULL
 * in it. To be called after the runtime was closed, because its actors may use the cluster. In a
 * child of fork its memory stays. */
EXO_API void exo_cluster_free(exo_cluster **cluster);

/* The name of this node. The text stays valid until the cluster is freed. A restarted head may give
 * the process another name, which later calls then return. */
EXO_API const char *exo_cluster_node_name(const exo_cluster *cluster);
/* The addresses of this node for other processes, separated by spaces. */
EXO_API const char *exo_cluster_address(const exo_cluster *cluster);
/* Waits for the end of a member that does nothing else. Returns TIMEOUT at `deadline`; PEER_LOST
 * when the head has been lost for longer than `grace`; CLOSED after exo_cluster_interrupt or
 * `exogym stop`; FAILED, with the cause, when the process's own head or worker actor has died. */
EXO_API exo_status exo_cluster_wait(exo_cluster *cluster, exo_time grace, exo_time deadline,
                                    exo_err *err);
/* Ends the current or the next exo_cluster_wait. Any thread, but not from a signal handler. */
EXO_API void exo_cluster_interrupt(exo_cluster *cluster);
/* Declares that the head will not come back: everybody who waits for the head, now or later, gets
 * PEER_LOST with `cause`. For the process that started the head and saw it end. Calls to actors go
 * on. Any thread, but not from a signal handler. */
EXO_API void exo_cluster_forsake_head(exo_cluster *cluster, const char *cause);
/* A reference to the head, for calls of its methods. Waits until `deadline` for a head that is
 * away. */
EXO_API exo_status exo_cluster_head(exo_cluster *cluster, exo_time deadline, exo_ref *out,
                                    exo_err *err);
/* Reports the progress of this driver's job. `json` is an object of at most 64 KiB. It appears as
 * "report" in the job's entry of exo_cluster_list until the next report or the end of the job. The
 * head keeps it in memory only, so a restarted head has none until the next report. Waits for the
 * head until `deadline`. Errors: INVAL (not an object, too long, or not a driver), NOT_FOUND (the
 * head does not know the job, or not yet again), TIMEOUT. */
EXO_API exo_status exo_cluster_report(exo_cluster *cluster, const char *json, exo_time deadline,
                                      exo_err *err);
/* Lists the cluster as JSON: {"cluster", "nodes": [...], "actors": [...], "jobs": [...]}. The
 * caller frees *json with exo_free. */
EXO_API exo_status exo_cluster_list(exo_cluster *cluster, exo_time deadline, char **json,
                                    exo_err *err);
/* Lists the shared objects of workers and drivers as a JSON array: [{"node", "id", "bytes",
 * "references", "borrowers", "sealed", "imported", "on_device"}], also "gpu", the number of the GPU,
 * if the process has its bytes on one. Asks every process; of one that does not answer within
 * seconds, or may not be asked by this process's role ("denied"), there is {"node", "error",
 * "denied"}. The caller frees *json with exo_free. */
EXO_API exo_status exo_cluster_list_objects(exo_cluster *cluster, exo_time deadline, char **json,
                                            exo_err *err);
/* Ends for good an actor that is not alive at the moment: it starts, waits for its restart, or
 * waits for its node to come back. If the actor is alive, nothing happens and *given_up is false;
 * exo_kill and exo_stop end such an actor. NOT_FOUND: there is no such actor, or it is dead. */
EXO_API exo_status exo_cluster_give_up(exo_cluster *cluster, const char *namespace_name,
                                       const char *name, const char *cause, exo_time deadline,
                                       bool *given_up, exo_err *err);
/* Ends for good an actor that may be alive, and that this process may have lost: the head has the
 * actor's own process end it, and its restart rule gives it no other life. Does not wait. *out, which
 * the caller drops, completes with NOT_FOUND once the actor is dead; with OK if it was not alive, or if
 * a head of an earlier version has let it live; else with the error of the request, after which the
 * actor may be alive: DENIED (a driver's key has not made it), INVAL (it is in a driver's process),
 * PEER_LOST, FULL or TIMEOUT, after which one may ask again.
 * is_lost: its node cannot be reached from here; an actor of that name, or of another life of it in a
 * graph, is made elsewhere for a while if there is room. Errors: TIMEOUT (the head is away), CLOSED,
 * NOMEM. */
EXO_API exo_status exo_cluster_end_actor(exo_cluster *cluster, const char *namespace_name,
                                         const char *name, const char *cause, bool is_lost,
                                         exo_time deadline, exo_future **out, exo_err *err);
/* As exo_get_actor, with a deadline of its own. TIMEOUT: the head, or the actor's process, has not
 * answered by then. */
EXO_API exo_status exo_cluster_get_actor(exo_cluster *cluster, const char *namespace_name,
                                         const char *name, exo_time deadline, exo_ref *out,
                                         exo_err *err);
/* Describes in a few lines why the latest life of a named actor ended. The caller frees *text with
 * exo_free. */
EXO_API exo_status exo_cluster_why(exo_cluster *cluster, const char *namespace_name,
                                   const char *name, exo_time deadline, char **text, exo_err *err);

EXO_DECLS_END

#endif
