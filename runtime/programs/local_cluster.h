/* A cluster for one command: either one that is there (--head), or a head and workers that are
 * started on this host and stopped after (--workers). */
#ifndef EXO_PROGRAMS_LOCAL_CLUSTER_H
#define EXO_PROGRAMS_LOCAL_CLUSTER_H

#include <sys/types.h>

#include <exogym/cluster.h>

enum {
    EXO_MAX_WORKERS = 256
};

typedef struct exo_local_cluster_opts {
    unsigned workers;      /* to start; 0: none, join `head`           */
    const char *transport; /* "ipc", "tcp", "curve"                    */
    const char *head, *head_key, *keys, *cluster;
    const char *job;
    const char *
        /* folder for the logs of workers that do not end well, which outlive the cluster's own;
         * NULL: that one */
        logs;
    const char *const *plugins; /* that workers load */
    size_t num_plugins;
    _Atomic int *
        /* gets EXO_STOP_LOST, unless it is set already, when a head that was started ends; may be
         * NULL */
        lost;
} exo_local_cluster_opts;

typedef struct exo_local_cluster {
    exo_runtime *runtime;
    exo_cluster *cluster;
    char folder[64]; /* of those that were started; "" */
    pid_t head;
    struct exo_head_watch *watch; /* of a head that was started */
    pid_t workers[EXO_MAX_WORKERS];
    unsigned num_workers;
} exo_local_cluster;

/* Starts what is to be started, joins, and waits until all workers are there. */
exo_status exo_local_cluster_open(exo_local_cluster *cluster, const exo_local_cluster_opts *opts,
                                  exo_err *err);
/* Why the cluster cannot go on, "the head ... was killed by signal 9 (SIGKILL)", once its own head
 * has ended; else NULL. The text lives as long as the cluster. Then *opts->lost is set as well,
 * whoever waits for the head fails at once, and workers that still have calls to answer ten seconds
 * later are killed. */
const char *exo_local_cluster_lost(const exo_local_cluster *cluster);
/* Leaves, and stops what was started: nothing of it is left. */
void exo_local_cluster_close(exo_local_cluster *cluster);

#endif
