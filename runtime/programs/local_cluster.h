/* A cluster for one command: either an existing one (--head), or a head and workers that the
 * command starts on this host and stops afterwards (--workers). Owner: the command; one thread. A
 * second thread watches a started head. */
#ifndef EXO_PROGRAMS_LOCAL_CLUSTER_H
#define EXO_PROGRAMS_LOCAL_CLUSTER_H

#include <sys/types.h>

#include <exogym/cluster.h>

enum {
    EXO_MAX_WORKERS = 256
};

typedef struct exo_local_cluster_opts {
    unsigned workers;      /* to start; 0: none, join `head` */
    const char *transport; /* "ipc", "tcp" or "curve" */
    /* of an MPI job with several ranks, in place of `workers`: each rank becomes a worker; NULL:
     * none */
    struct exo_mpi_job *mpi;
    const char *head, *head_key, *keys, *cluster;
    const char *job;
    /* folder for the logs of workers that fail; it outlives the cluster's own folder. NULL: the
     * cluster's own */
    const char *logs;
    const char *const *plugins; /* that workers load */
    size_t num_plugins;
    /* set to EXO_STOP_LOST, unless it is already set, when a started head ends; may be NULL */
    _Atomic int *lost;
} exo_local_cluster_opts;

typedef struct exo_local_cluster {
    exo_runtime *runtime;
    exo_cluster *cluster;
    char folder[64]; /* of the processes that were started; "" if none were */
    int lock;        /* of that folder (cluster_folder.h) */
    pid_t head;
    struct exo_head_watch *watch; /* of a started head */
    pid_t workers[EXO_MAX_WORKERS];
    unsigned num_workers;
    struct exo_mpi_job *mpi; /* dismissed at the end */
} exo_local_cluster;

/* Starts the processes, joins, and waits until all workers have joined. */
exo_status exo_local_cluster_open(exo_local_cluster *cluster, const exo_local_cluster_opts *opts,
                                  exo_err *err);
/* Returns why the cluster cannot go on, such as "the head ... was killed by signal 9 (SIGKILL)",
 * once the started head has ended; else NULL. The text lives as long as the cluster. When the head
 * ends, *opts->lost is set, calls to the head fail at once, and workers that still have calls to
 * answer ten seconds later are killed. */
const char *exo_local_cluster_lost(const exo_local_cluster *cluster);
/* Says that all workers that were started have ended, if so; else NULL. Nobody starts others. */
const char *exo_local_cluster_forlorn(const void *cluster);
/* Leaves the cluster, stops the started processes and removes their folder. */
void exo_local_cluster_close(exo_local_cluster *cluster);

#endif
