/* The watcher of a worker: a process without threads that only waits, so that it survives when the
 * worker is killed.
 *
 * It copies the worker's output to standard error and to a log, and forwards SIGTERM, SIGINT and
 * SIGHUP. When the worker fails, the watcher tells the head the reason: the signal or status, the
 * running methods (flight.h), and the last lines of output. If the watcher is killed, the kernel
 * kills the worker. Read next: exogym-watcher.c. */
#ifndef EXO_PROGRAMS_WATCHER_H
#define EXO_PROGRAMS_WATCHER_H

#include <stdio.h>

#include <exogym/cluster.h>

/* The worker's connection to its watcher. */
typedef struct exo_watched {
    struct exo_watch_page *page; /* shared memory; NULL: this process is the watcher */
    char name[128];              /* of the node */
    char log[4096];
    FILE *out; /* standard output as it was before the fork */
} exo_watched;

/* Forks this process, which must have one thread. In the worker it returns at once with all of
 * *out; standard output and error go to the watcher. In the watcher it returns when the worker has
 * ended, with the worker's exit status in *status and page NULL. logs: the folder for the log;
 * NULL: that of the cluster. */
exo_status exo_watch(const exo_cluster_opts *opts, const char *logs, exo_watched *out, int *status,
                     exo_err *err);

/* For the worker. exo_watched_joined (watched: the exo_watched): it has joined, so its end is
 * reported to the head. exo_watched_left: it has left. */
void exo_watched_joined(void *watched, const exo_cluster *cluster);
void exo_watched_left(exo_watched *watched);

#endif
