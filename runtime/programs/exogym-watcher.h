/* The watcher of a worker: a process that has no threads and does nothing but wait, so that it is
 * there when the worker is killed.
 *
 * It copies what the worker prints to standard error and to a log, passes SIGTERM and SIGINT on,
 * and when the worker has not ended well it tells the head why: the signal or status, what ran
 * (flight.h), and the last lines. If the watcher is killed, so is the worker. */
#ifndef EXO_PROGRAMS_WATCHER_H
#define EXO_PROGRAMS_WATCHER_H

#include <stdio.h>

#include <exogym/cluster.h>

/* What the worker has of its watcher. */
typedef struct exo_watched {
    struct exo_watch_page *page; /* shared; NULL: this is the watcher */
    char name[128];              /* of the node                       */
    char log[4096];
    FILE *out; /* standard output as it was before the watcher took it */
} exo_watched;

/* Divides this process in two, which must have one thread. The worker goes on at once with all of
 * *out, its standard output and error going to the watcher. The watcher comes back when the worker
 * has ended, with the worker's exit status in *status and page NULL. logs: the folder for the log;
 * NULL: that of the cluster. */
exo_status exo_watch(const exo_cluster_opts *opts, const char *logs, exo_watched *out, int *status,
                     exo_err *err);

/* In the worker: it has joined (context: the exo_watched), so that the head wants to know of its
 * end; it has left. */
void exo_watched_joined(void *watched, const exo_cluster *cluster);
void exo_watched_left(exo_watched *watched);

#endif
