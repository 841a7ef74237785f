/* For the watcher of a worker's process: what it does when the process has ended (epitaph.c). */
#ifndef EXO_CLUSTER_WATCH_H
#define EXO_CLUSTER_WATCH_H

#include <exogym/cluster.h>

/* The facts about an ended process. The texts are never NULL. */
typedef struct exo_epitaph {
    uint64_t node;       /* exo_cluster_node_id of the process */
    const char *name;    /* its node's name */
    const char *cause;   /* "was killed by signal 9 (SIGKILL)"  */
    const char *running; /* methods that ran, or "" */
    const char *log;     /* its last lines of output, or "" */
} exo_epitaph;

/* Sends them to the head. Blocks until `deadline`. Errors: those of exo_wait. */
exo_status exo_cluster_send_epitaph(exo_cluster *cluster, const exo_epitaph *epitaph,
                                    exo_time deadline, exo_err *err);

/* The number of this process in the cluster, which no other process ever has. */
uint64_t exo_cluster_node_id(const exo_cluster *cluster);

/* Writes the private folder of the cluster's sockets, and makes it if necessary. `opts`: cluster
 * and folder. INVAL, IO. */
exo_status exo_cluster_folder(const exo_cluster_opts *opts, char *out, size_t size, exo_err *err);
/* Removes the sockets of an ended worker's process. */
void exo_cluster_remove_sockets(const char *folder, int pid);

#endif
