/* Clusters: runtimes of several processes, on one host or many, whose actors find and call each
 * other.
 *
 * A cluster has a head, which knows names, nodes and jobs and decides who runs where, and workers,
 * which host actors. A process joins with its runtime; from then on every function of actor.h
 * reaches beyond it: exo_get_actor finds names anywhere, exo_spawn_class makes actors where there
 * is room, calls, links, monitors and kills go to them. Calls go directly between the processes,
 * never through the head; it may even be away for a while.
 *
 * Security: an ipc address is a socket in a folder of the user's own; a tcp address needs keys
 * (docs/security.md).
 */
#ifndef EXOGYM_CLUSTER_H
#define EXOGYM_CLUSTER_H

#include <exogym/actor.h>

EXO_DECLS_BEGIN

typedef struct exo_cluster exo_cluster; /* a process's membership in a cluster */

/* What a process is in its cluster. */
typedef enum exo_cluster_role {
    /* uses the cluster; its job's actors end with it unless they are detached */
    EXO_ROLE_DRIVER,
    EXO_ROLE_WORKER, /* hosts actors */
    EXO_ROLE_HEAD,
    EXO_ROLE_GUEST, /* looks and calls: is in no list, has no job, and cannot be called */
} exo_cluster_role;

/* How a process joins. Zeroed: a driver of the cluster whose head is found as `head` says. */
typedef struct exo_cluster_opts {
    exo_cluster_role role;
    const char *name;    /* of this node; NULL: from the role and process number */
    const char *cluster; /* NULL: "default" */
    /* its address: "ipc:///path" or "tcp://host:port"; NULL: $EXOGYM_HEAD, or where the cluster
     * of that name has its head on this host */
    const char *head;
    /* Z85 public key, or a path to NAME.key, of a head with CURVE; NULL: $EXOGYM_HEAD_KEY */
    const char *head_key;
    const char *const *listen; /* further endpoints, "tcp://127.0.0.1:0"; ipc is always there */
    size_t num_listen;         /* of `listen` */
    bool no_ipc;               /* listen only where `listen` says */
    /* Processes of this host must show a key, too, and have its role; the ipc socket is
     * FOLDER/.../NAME.curve. Connects by ipc to such sockets only. Needs keys. Also without it, one
     * that finds its head behind such a socket has one, too. */
    bool keys_for_local;
    /* the tcp address that others use, where it is not the one listened on */
    const char *advertise;
    /* path of NAME.secret; needed to listen on tcp, and then head_key to meet a head by tcp */
    const char *keys;
    /* folder of public keys that are let in; NULL: "authorized" beside the keys */
    const char *authorized;
    /* Listens on tcp, loopback too, and a worker meets its head by tcp, without keys: whoever
     * reaches the port, or answers, may run code. */
    bool insecure;
    /* of a worker; cpus, gpus and memory are found if they are not named */
    const exo_resource *resources;
    size_t num_resources; /* of `resources` */
    const char *state;    /* of a head: its SQLite file; NULL: in the user's state folder */
    /* of a driver: its name; NULL: from the process number. Of a guest: that of a driver, whose
     * end also ends what the guest makes */
    const char *job;
    exo_time peer_timeout; /* silence of another host that is taken for its death; 0: 5 s */
    /* of a worker: the file that its output goes to; passed on to whoever looks. May be NULL;
     * may be renamed, with another one of the name after it */
    const char *log;
    const char *folder; /* for sockets; NULL: $XDG_RUNTIME_DIR/exogym or /tmp/exogym-UID */
    /* `folder` must be there, and is not made: it goes with whoever made it */
    bool folder_exists;
    /* of a head or worker: a file of who asked for what (docs/security.md); NULL: none */
    const char *audit;
} exo_cluster_opts;

/* Joins. The runtime must be new and outlive the cluster. Waits for the head until `deadline` (of
 * the real clock). After an error the runtime is as it was. Errors: TIMEOUT (no head; the text has
 * its address), UNSUPPORTED (refused), INVAL, EXISTS (a head: there is one at this address; another
 * process has the audit log), IO. */
EXO_API exo_status exo_cluster_join(exo_cluster **out, exo_runtime *runtime,
                                    const exo_cluster_opts *opts, exo_time deadline, exo_err *err);
/* Leaves, within about a second: the job of a driver ends, every connection too. What the runtime
 * still does it does alone; it is to be closed next, and then the cluster is freed. */
EXO_API void exo_cluster_leave(exo_cluster *cluster);
/* Leaves if that has not been done, frees it and sets *cluster to NULL; accepts NULL in it.
 * After its runtime was closed. */
EXO_API void exo_cluster_free(exo_cluster **cluster);

/* The text stays until the cluster is freed. A head that was started again may give the process
 * another name: then later calls give that. */
EXO_API const char *exo_cluster_node_name(const exo_cluster *cluster);
/* Where others can reach this node: addresses with spaces between. */
EXO_API const char *exo_cluster_address(const exo_cluster *cluster);
/* Waits until `deadline` (TIMEOUT), until the head has been lost for longer than `grace`
 * (PEER_LOST), or until this process was told to end, by exo_cluster_interrupt or `exogym stop`
 * (CLOSED), or until its own head or worker has died (FAILED, with the cause). For programs that do
 * nothing else. */
EXO_API exo_status exo_cluster_wait(exo_cluster *cluster, exo_time grace, exo_time deadline,
                                    exo_err *err);
/* Ends exo_cluster_wait, now or when it is called. Any thread, but not from a signal's handler. */
EXO_API void exo_cluster_interrupt(exo_cluster *cluster);
/* The head will not come back: whoever waits for it, now or later, fails with PEER_LOST and
 * `cause`. For the process that started the head and saw it end. Calls to actors go on. Any thread,
 * but not from a signal's handler. */
EXO_API void exo_cluster_forsake_head(exo_cluster *cluster, const char *cause);
/* The head, to call its methods. Waits for one that is away. */
EXO_API exo_status exo_cluster_head(exo_cluster *cluster, exo_time deadline, exo_ref *out,
                                    exo_err *err);
/* Tells the head how this driver's job goes: `json`, an object of at most 64 KiB, stands as
 * "report" in the job's entry of exo_cluster_list until the next one takes its place or the job
 * ends. It is kept in memory only: a head that is started again has the next one. Waits for the
 * head until `deadline`. Errors: INVAL (no object, or too long; not a driver), NOT_FOUND (the head
 * knows no such job, or not yet again), TIMEOUT. */
EXO_API exo_status exo_cluster_report(exo_cluster *cluster, const char *json, exo_time deadline,
                                      exo_err *err);
/* What is there, as JSON: {"cluster", "nodes": [...], "actors": [...], "jobs": [...]}. The caller
 * frees *json with exo_free. */
EXO_API exo_status exo_cluster_list(exo_cluster *cluster, exo_time deadline, char **json,
                                    exo_err *err);
/* The shared objects that workers and drivers hold, as a JSON array: [{"node", "id", "bytes",
 * "references", "borrowers", "sealed", "imported"}]. Asks every process. The caller frees *json
 * with exo_free. */
EXO_API exo_status exo_cluster_list_objects(exo_cluster *cluster, exo_time deadline, char **json,
                                            exo_err *err);
/* Ends the actor of that name for good if it does not live just now: it starts, or waits to be
 * restarted or for its node to come back. *given_up is false if it lives: then nothing was done,
 * and exo_kill and exo_stop end it. NOT_FOUND: there is none, or it is dead. */
EXO_API exo_status exo_cluster_give_up(exo_cluster *cluster, const char *namespace_name,
                                       const char *name, const char *cause, exo_time deadline,
                                       bool *given_up, exo_err *err);
/* As exo_get_actor, but not longer than `deadline` says. TIMEOUT: the head, or the actor's process,
 * has not answered by then. */
EXO_API exo_status exo_cluster_get_actor(exo_cluster *cluster, const char *namespace_name,
                                         const char *name, exo_time deadline, exo_ref *out,
                                         exo_err *err);
/* Why the actor (of the latest life) of that name died, in a few lines. The caller frees *text. */
EXO_API exo_status exo_cluster_why(exo_cluster *cluster, const char *namespace_name,
                                   const char *name, exo_time deadline, char **text, exo_err *err);

EXO_DECLS_END

#endif
