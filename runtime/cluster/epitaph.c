/* After the end of a worker's process: the report to the head, and removal of the worker's sockets.
 * See watch.h. */
#include "cluster/watch.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cluster/cluster_impl.h"
#include "cluster/place.h"

exo_status
exo_cluster_send_epitaph(exo_cluster *cluster, const exo_epitaph *epitaph, exo_time deadline,
                         exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Epitaph message = EXO__CLUSTER__EPITAPH__INIT;
    message.node = epitaph->node;
    message.name = exo_pb_text(epitaph->name);
    message.cause = exo_pb_text(epitaph->cause);
    message.running = exo_pb_text(epitaph->running);
    message.log = exo_pb_text(epitaph->log);
    exo_status st = exo_cluster_call_head(cluster, "epitaph", &message.base, true, deadline,
                                          &future, &reply, err);
    exo_future_drop(&future);
    return st;
}

exo_status
exo_cluster_folder(const exo_cluster_opts *opts, char *out, size_t size, exo_err *err)
{
    exo_cluster_place place = {.lock = -1};
    exo_status st = exo_cluster_place_folder(&place, opts, err);
    if (st == EXO_OK)
        snprintf(out, size, "%s", place.folder);
    return st;
}

void
exo_cluster_remove_sockets(const char *folder, int pid)
{
    char prefix[64];
    int length = snprintf(prefix, sizeof prefix, "worker-%d-", pid);
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (strncmp(entry->d_name, prefix, (size_t)length) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}
