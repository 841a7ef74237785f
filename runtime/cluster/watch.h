/* What the watcher of a worker's process needs: it is told here what to do when the process has
 * ended (epitaph.c). */
#ifndef EXO_CLUSTER_WATCH_H
#define EXO_CLUSTER_WATCH_H

#include <exogym/cluster.h>

/* What a process left behind. Texts, none NULL. */
typedef struct exo_epitaph {
    uint64_t node;       /* exo_cluster_node_id of the process */
    const char *name;    /* its node's                          */
    const char *cause;   /* "was killed by signal 9 (SIGKILL)"  */
    const char *running; /* methods that ran, or ""             */
    const char *log;     /* its last lines, or ""               */
} exo_epitaph;

/* Tells the head. Errors: of exo_wait. */
exo_status exo_cluster_send_epitaph(exo_cluster *cluster, const exo_epitaph *epitaph,
                                    exo_time deadline, exo_err *err);

/* Identity of this process in the cluster: no other ever has it. */
uint64_t exo_cluster_node_id(const exo_cluster *cluster);

/* The private folder of the cluster's sockets, made if it is not there. `opts`: cluster and folder.
 * INVAL, IO. */
exo_status exo_cluster_folder(const exo_cluster_opts *opts, char *out, size_t size, exo_err *err);
/* Removes the sockets of a worker's process that has ended. */
void exo_cluster_remove_sockets(const char *folder, int pid);

#endif
