/* The runtime's requests to the cluster: the table of hooks.h. Functions that only pass a request
 * on stand here, the others with their subject: cluster_names.c, cluster_known.c, cluster_spawn.c,
 * cluster_reach.c. Keeps nothing; any thread. Read next: retry.c, remote.c. */
#include "cluster/cluster_impl.h"

static exo_status
ops_call(void *context, exo_ref actor, const char *method, exo_payload *args, exo_future *future,
         exo_err *err)
{
    exo_cluster *c = context;
    exo_status st;
    if (exo_retrier_call(c->retrier, actor, method, args, future, &st, err)) {
        exo_payload_release(args);
        return st;
    }
    return exo_remote_call(c->remote, actor, method, args, future, err);
}

static exo_status
ops_stop(void *context, exo_ref actor, bool drain, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_stop(c->remote, actor, drain, err);
}

static exo_status
ops_kill(void *context, exo_ref actor, const char *cause, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_kill(c->remote, actor, cause, err);
}

static exo_status
ops_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_monitor(c->remote, actor, future, err);
}

static exo_status
ops_cause(void *context, exo_ref actor, char *text, size_t size)
{
    exo_cluster *c = context;
    return exo_remote_cause(c->remote, actor, text, size);
}

static bool
ops_is_near(void *context, exo_ref actor)
{
    exo_cluster *c = context;
    return exo_remote_is_near(c->remote, actor);
}

static uint64_t
ops_node(void *context)
{
    exo_cluster *c = context;
    return exo_net_node(exo_remote_net(c->remote));
}

static void
ops_close(void *context)
{
    exo_cluster *c = context;
    exo_cluster_leave(c);
    c->runtime_closed = true;
}

const exo_remote_ops exo_cluster_ops = {.call = ops_call,
                                        .find = exo_cluster_find,
                                        .claim = exo_cluster_claim,
                                        .spawn = exo_cluster_spawn,
                                        .export = exo_cluster_export,
                                        .import = exo_cluster_import,
                                        .died = exo_cluster_died,
                                        .stop = ops_stop,
                                        .kill = ops_kill,
                                        .monitor = ops_monitor,
                                        .cause = ops_cause,
                                        .is_near = ops_is_near,
                                        .node = ops_node,
                                        .close = ops_close,
                                        .call_node = exo_cluster_call_node};
