/* A process's part in a cluster: joining it, leaving it, waiting for its end.
 *
 * Owns struct exo_cluster; cluster_impl.h says which file and thread each member belongs to, and
 * what the lock guards. Read next: cluster_head.c (the connection to the head), cluster_known.c
 * (the actors that the head knows of this process), cluster_names.c and cluster_reach.c (actors
 * elsewhere), cluster_spawn.c (making them), cluster_keeper.c (the thread), cluster_ops.c (the
 * runtime's requests); then remote.c (calls), head.c. */
#include <exogym/cluster.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/forks.h"
#include "base/printable.h"
#include "base/thread.h"
#include "base/version.h"
#include "base/waiting.h"
#include "cluster/cluster_impl.h"
#include "cluster/head.h"
#include "cluster/watch.h"
#include "cluster/worker.h"
#include "store/region.h"

/* the time after which a worker that waits for its head says so */
#define SILENT (2 * EXO_SECOND)

exo_time
exo_cluster_now(void)
{
    return exo_now(exo_clock_real());
}

void
exo_cluster_wait_until_locked(exo_cluster *c, exo_time until)
{
    exo_time left = until - exo_cluster_now();
    left = left < 0 ? 0 : left > 10 * EXO_SECOND ? 10 * EXO_SECOND : left;
    exo_condition_wait_for(&c->changed, &c->lock, left);
}

bool
exo_cluster_set_name(exo_cluster *c, const char *name)
{
    struct name *n;
    pthread_mutex_lock(&c->lock);
    /* a name that the process had before is used again */
    LL_FOREACH (c->names, n)
        if (strcmp(n->text, name) == 0)
            break;
    if (n)
        LL_DELETE(c->names, n);
    else if ((n = exo_calloc(1, sizeof *n + strlen(name) + 1)))
        strcpy(n->text, name);
    if (n)
        LL_PREPEND(c->names, n);
    pthread_mutex_unlock(&c->lock);
    return n != NULL;
}

/* --- Requests of head and worker -------------------------------------------------------------- */

static void
end_process(void *context)
{
    exo_cluster_interrupt(context);
}

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    exo_peer *peer = exo_remote_peer(c->remote, node);
    if (!peer)
        return exo_fail(err, EXO_PEER_LOST, "its node is lost");
    exo_status st = exo_remote_system(c->remote, peer, "worker", out, err);
    exo_peer_drop(&peer);
    return st;
}

static void
held_for(void *context, uint64_t node, exo_remote_held *out)
{
    exo_cluster *c = context;
    exo_remote_held_for(c->remote, node, out);
}

static bool
is_heard(void *context, uint64_t node)
{
    exo_cluster *c = context;
    exo_peer *peer = exo_remote_peer(c->remote, node);
    const bool heard = peer && exo_net_hears(exo_remote_net(c->remote), peer);
    exo_peer_drop(&peer);
    return heard;
}

static bool
is_key(void *context, const char *name)
{
    const exo_cluster *c = context;
    return c->place.allowed && exo_allow_list_names(c->place.allowed, name);
}

/* --- Joining and leaving ---------------------------------------------------------------------- */

static void
record_process(exo_cluster *c, const char *what)
{
    char detail[256];
    snprintf(detail, sizeof detail, "%s: exogym %s, %s of the cluster %s, process %d, %s", what,
             exo_version, c->role == EXO_ROLE_HEAD ? "head" : "worker", c->place.cluster,
             (int)getpid(), c->place.has_keys ? "with keys" : "without keys");
    exo_audit_add(c->audit, &(exo_audit_record){.event = EXO_AUDIT_PROCESS,
                                                .subject = exo_cluster_node_name(c),
                                                .detail = detail});
}

static exo_status
open_audit(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    if (opts->role != EXO_ROLE_HEAD && opts->role != EXO_ROLE_WORKER)
        return exo_fail(err, EXO_INVAL, "only a head or a worker has an audit log");
    exo_status st = exo_audit_open(&c->audit, opts->audit, NULL, err);
    if (st != EXO_OK)
        return st;
    record_process(c, "begins");
    if (c->place.allowed)
        exo_allow_list_audit(c->place.allowed, c->audit);
    return EXO_OK;
}

static exo_status
open_net(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    const exo_net_opts net = {.name = exo_cluster_node_name(c),
                              .cluster = c->place.any_cluster ? "" : c->place.cluster,
                              .endpoints = c->place.endpoints,
                              .num_endpoints = c->place.num_endpoints,
                              .keys = c->place.has_keys ? &c->place.keys : NULL,
                              .allowed = c->place.allowed,
                              .trusted = opts->role == EXO_ROLE_HEAD ? NULL : c->place.head_key,
                              .peer_timeout = opts->peer_timeout,
                              .audit = c->audit};
    exo_status st = exo_remote_open(&c->remote, c->runtime, &net, &exo_cluster_events, c, err);
    if (st == EXO_OK)
        st = exo_retrier_new(&c->retrier, c->runtime, c->remote, exo_cluster_find, c, err);
    if (st != EXO_OK)
        return st;
    size_t at = 0;
    for (size_t i = 0; i < c->place.num_endpoints && at < sizeof c->address; i++) {
        const char *bound = exo_net_endpoint(exo_remote_net(c->remote), i);
        char address[EXO_CLUSTER_PLACE_PATH + 256];
        exo_cluster_place_public(&c->place, opts, bound, address, sizeof address);
        at += (size_t)snprintf(c->address + at, sizeof c->address - at, "%s%s", at ? " " : "",
                               address);
    }
    return at < sizeof c->address ? EXO_OK : exo_fail(err, EXO_INVAL, "the addresses are too long");
}

/* The head's or worker's actor of this process has died. The process is of no use without it, so
 * exo_cluster_wait reports it to the process's supervisor. */
static void
system_died(void *context, uint64_t tag, exo_future *future)
{
    exo_cluster *c = context;
    exo_err reason = {0};
    (void)tag;
    if (exo_wait(future, INT64_MAX, NULL, &reason) == EXO_OK)
        snprintf(reason.text, sizeof reason.text, "it was stopped");
    pthread_mutex_lock(&c->lock);
    if (!c->closing && !c->broken[0])
        snprintf(c->broken, sizeof c->broken, "the actor '%s' of this process has died: %.150s",
                 c->role == EXO_ROLE_HEAD ? "head" : "worker", reason.text);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static const exo_future_hook system_hook = {.done = system_died};

static exo_status
watch_system(exo_cluster *c, exo_ref actor, exo_err *err)
{
    exo_status st = exo_monitor(c->runtime, actor, &c->system, err);
    if (st == EXO_OK)
        exo_future_set_hook(c->system, &system_hook, c, 0);
    return st;
}

static exo_status
start_head(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    char state[4096];
    exo_status st = EXO_OK;
    if (opts->state && strlen(opts->state) < sizeof state)
        snprintf(state, sizeof state, "%s", opts->state);
    else
        st = exo_head_default_state(c->place.cluster, state, sizeof state, err);
    const exo_head_env env = {.worker_of = worker_of,
                              .held_for = held_for,
                              .is_heard = is_heard,
                              .is_key = is_key,
                              .context = c,
                              .cluster = c->place.cluster,
                              .state_path = strcmp(state, "none") == 0 ? NULL : state,
                              .wake = exo_cluster_wake_keeper,
                              .end = end_process,
                              .audit = c->audit,
                              .due = &c->due};
    if (st == EXO_OK)
        st = exo_spawn(c->runtime, &exo_head_class,
                       &(exo_spawn_opts){.name = "head",
                                         .namespace_name = EXO_SYSTEM_SPACE,
                                         .args = exo_payload_borrow(&env, sizeof env)},
                       &c->head, err);
    return st == EXO_OK ? watch_system(c, c->head, err) : st;
}

static exo_status
start_worker(exo_cluster *c, exo_err *err)
{
    exo_ref worker;
    const exo_worker_env env = {.making = exo_cluster_making,
                                .find = exo_cluster_find_made,
                                .end = end_process,
                                .context = c,
                                .audit = c->audit};
    exo_status st = exo_spawn(c->runtime, &exo_worker_class,
                              &(exo_spawn_opts){.name = "worker",
                                                .namespace_name = EXO_SYSTEM_SPACE,
                                                .args = exo_payload_borrow(&env, sizeof env)},
                              &worker, err);
    return st == EXO_OK ? watch_system(c, worker, err) : st;
}

static exo_status
name_process(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    static const char *const roles[] = {"driver", "worker", "head", "guest"};
    char host[64] = "host", name[128];
    gethostname(host, sizeof host - 1);
    if (opts->name && *opts->name)
        snprintf(name, sizeof name, "%s", opts->name);
    else
        snprintf(name, sizeof name, "%s-%.40s-%d", roles[opts->role], host, (int)getpid());
    if (!exo_cluster_set_name(c, name))
        return exo_fail(err, EXO_NOMEM, "no memory to join a cluster");
    if (opts->role == EXO_ROLE_GUEST && opts->job)
        snprintf(c->job, sizeof c->job, "%s", opts->job);
    if (opts->role == EXO_ROLE_DRIVER) {
        if (opts->job && *opts->job)
            snprintf(c->job, sizeof c->job, "%s", opts->job);
        else
            snprintf(c->job, sizeof c->job, "job-%.40s-%d", host, (int)getpid());
    }
    return EXO_OK;
}

/* A worker warns of the mistake, and goes on: processes of its host can reach it, and so can others
 * through tunnels whose ends have the same address. */
static void
warn_if_hidden(const exo_cluster *c, const exo_cluster_opts *opts)
{
    if (opts->role == EXO_ROLE_WORKER && exo_cluster_place_is_hidden(&c->place, opts))
        EXO_LOG(
            WARN, CLUSTER,
            "head=%s address=%s this worker cannot be reached from other hosts, and its head is on "
            "one: give it --listen tcp://0.0.0.0:0, or --advertise if a tunnel leads to it",
            c->place.head, c->address);
}

static exo_status
fail_no_head(const exo_cluster *c, const exo_err *reason, exo_err *err)
{
    const char *unresolved;
    if (!exo_cluster_place_resolves(c->place.head, &unresolved))
        return exo_fail(
            err, EXO_TIMEOUT,
            "no head can be reached: the name of the host in '%.200s' cannot be resolved: %s",
            c->place.head, unresolved);
    return exo_fail(err, EXO_TIMEOUT,
                    "no head can be reached (%.200s): start one with `exogym-head`", reason->text);
}

/* Tells the user of a worker, once, what it waits for: at once if the name of the head's host is not
 * known, else when it has waited for a while. reason: of the latest attempt; NULL: there was none. */
static bool
tell_wait(const exo_cluster *c, exo_time began, exo_time deadline, const exo_err *reason)
{
    const char *unresolved = "";
    if (c->role != EXO_ROLE_WORKER || (reason && exo_cluster_now() - began < SILENT))
        return false;
    const bool resolves = exo_cluster_place_resolves(c->place.head, &unresolved);
    if (resolves && !reason)
        return false;
    EXO_LOG(WARN, CLUSTER, "head=%s waits_s=%lld the head is not there yet, and is waited for: %s",
            c->place.head, (long long)((deadline - began + EXO_SECOND / 2) / EXO_SECOND),
            resolves ? reason->text : unresolved);
    return true;
}

/* Tries until the deadline, because the head may be starting, or as long as the head may be absent. */
static exo_status
find_head(exo_cluster *c, exo_time absence, exo_time deadline, exo_err *err)
{
    exo_status st;
    exo_err reason = {0};
    unsigned late = 0;
    const exo_time began = exo_cluster_now();
    bool told = tell_wait(c, began, deadline, NULL);
    const exo_time until = absence ? exo_cluster_now() + absence : deadline;
    while ((st = exo_cluster_meet_head(c, exo_cluster_patience(c, late), deadline, &reason)) ==
               EXO_TIMEOUT ||
           st == EXO_PEER_LOST) {
        const exo_time next = exo_cluster_now() + RETRY / 10;
        told = told || tell_wait(c, began, deadline, &reason);
        if (next >= deadline || (next >= until && !exo_cluster_is_head_there(c)))
            return fail_no_head(c, &reason, err);
        late += st == EXO_TIMEOUT && exo_cluster_is_head_there(c);
        pthread_mutex_lock(&c->lock);
        exo_cluster_wait_until_locked(c, exo_cluster_now() + RETRY / 10);
        pthread_mutex_unlock(&c->lock);
    }
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

/* Stops the actors that this folder put into the runtime. The runtime is the caller's, to use on or
 * to close. */
static void
stop_own(exo_cluster *c)
{
    static const char *const names[] = {"head", "worker"};
    exo_ref actor;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (exo_runtime_find_name(c->runtime, EXO_SYSTEM_SPACE, names[i], &actor, NULL) == EXO_OK)
            exo_stop(c->runtime, actor, false, NULL);
}

exo_status
exo_cluster_join(exo_cluster **out, exo_runtime *runtime, const exo_cluster_opts *opts,
                 exo_time deadline, exo_err *err)
{
    *out = NULL;
    exo_status st = exo_runtime_check_own(runtime, err);
    exo_cluster *c = st == EXO_OK ? exo_calloc(1, sizeof *c) : NULL;
    if (!c)
        return st == EXO_OK ? exo_fail(err, EXO_NOMEM, "no memory to join a cluster") : st;
    pthread_mutex_init(&c->lock, NULL);
    exo_condition_init(&c->changed);
    c->role = opts->role;
    c->runtime = runtime;
    c->forks = exo_forks();
    c->due = INT64_MAX;
    c->log_file = -1;
    exo_boot_id(c->boot);
    exo_region_enable();
    st = name_process(c, opts, err);
    if (st == EXO_OK)
        st = exo_cluster_place_init(&c->place, opts, err);
    if (st == EXO_OK && opts->audit)
        st = open_audit(c, opts, err);
    if (st == EXO_OK)
        st = open_net(c, opts, err);
    if (st == EXO_OK)
        warn_if_hidden(c, opts);
    if (st == EXO_OK && opts->role == EXO_ROLE_HEAD)
        st = start_head(c, opts, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_WORKER)
        st = start_worker(c, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_WORKER && opts->log &&
        strlen(opts->log) < sizeof c->log_path) {
        snprintf(c->log_path, sizeof c->log_path, "%s", opts->log);
        c->log_file = exo_cluster_open_log(opts->log);
    }
    if (st == EXO_OK)
        exo_runtime_set_remote(runtime, &exo_cluster_ops, c);
    /* only now, when all actors that others call exist; finding the head needs it */
    if (st == EXO_OK)
        st = exo_remote_start(c->remote, err);
    if (st == EXO_OK && opts->role != EXO_ROLE_HEAD)
        st = find_head(c, opts->absence, deadline, err);
    if (st == EXO_OK) {
        st = exo_thread_start(&c->keeper, exo_cluster_keep, c, "the cluster", err);
        c->has_keeper = st == EXO_OK;
    }
    *out = c;
    if (st != EXO_OK) {
        exo_cluster_leave(c);
        *out = NULL;
        exo_runtime_set_remote(runtime, NULL, NULL);
        stop_own(c);
        exo_cluster_free(&c);
    }
    return st;
}

void
exo_cluster_leave(exo_cluster *c)
{
    char farewell[sizeof c->farewell];
    if (!c || c->left || exo_cluster_check_own(c, NULL) != EXO_OK)
        return;
    c->left = true;
    if (c->role == EXO_ROLE_DRIVER || c->role == EXO_ROLE_WORKER) {
        Exo__Cluster__NodeInfo info = EXO__CLUSTER__NODE_INFO__INIT;
        exo_future *future = NULL;
        const exo_payload *reply;
        info.node = c->remote ? exo_net_node(exo_remote_net(c->remote)) : 0;
        info.state = exo_pb_text("left");
        info.cause = exo_pb_text("it left");
        pthread_mutex_lock(&c->lock);
        bool there = c->head.id != 0;
        pthread_mutex_unlock(&c->lock);
        if (there && exo_cluster_call_head(c, "gone", &info.base, false,
                                           exo_deadline(exo_clock_real(), EXO_SECOND), &future,
                                           &reply, NULL) == EXO_OK)
            exo_future_drop(&future);
    }
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    snprintf(farewell, sizeof farewell, "%s", c->farewell);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    exo_retrier_stop(c->retrier);
    /* before the threads are joined, because they may wait for a reply */
    exo_remote_close(c->remote, farewell[0] ? farewell : NULL);
    if (c->has_keeper)
        pthread_join(c->keeper, NULL);
    c->has_keeper = false;
    exo_retrier_join(c->retrier);
}

void
exo_cluster_free(exo_cluster **cluster)
{
    exo_cluster *c = *cluster;
    *cluster = NULL;
    if (!c || exo_cluster_check_own(c, NULL) != EXO_OK)
        return;
    exo_cluster_leave(c);
    if (!c->runtime_closed)
        exo_runtime_set_remote(c->runtime, NULL, NULL);
    exo_future_drop(&c->system);
    exo_peer_drop(&c->head_peer);
    exo_remote_free(&c->remote);
    exo_retrier_free(&c->retrier);
    exo_cluster_place_release(&c->place);
    if (c->audit)
        record_process(c, "ends");
    exo_audit_close(&c->audit);
    exo_cluster_forget_known(c);
    for (struct name *n = c->names, *next; n; n = next) {
        next = n->next;
        exo_free(n);
    }
    if (c->log_file >= 0)
        close(c->log_file);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    exo_free(c);
}

/* --- Looking ---------------------------------------------------------------------------------- */

exo_runtime *
exo_cluster_runtime(const exo_cluster *cluster)
{
    return cluster->runtime;
}

exo_status
exo_cluster_check_own(const exo_cluster *cluster, exo_err *err)
{
    return cluster->forks == exo_forks()
               ? EXO_OK
               : exo_fail(err, EXO_UNSUPPORTED,
                          "this process was forked from a member of the cluster, and is none: join "
                          "with a runtime of its own");
}

const char *
exo_cluster_node_name(const exo_cluster *cluster)
{
    exo_cluster *c = (exo_cluster *)(uintptr_t)cluster; /* only to take its lock */
    pthread_mutex_lock(&c->lock);
    const char *name = c->names->text;
    pthread_mutex_unlock(&c->lock);
    return name;
}

const char *
exo_cluster_address(const exo_cluster *cluster)
{
    return cluster->address;
}

/* The process is to end for the head's absence, and other processes hear that. */
static exo_status
give_up_head(exo_cluster *c, exo_time grace, exo_err *err)
{
    char late[80];
    exo_c_snprintf(late, sizeof late, "did not come back within the grace of %.3g s",
                   (double)grace * 1e-9);
    pthread_mutex_lock(&c->lock);
    snprintf(c->farewell, sizeof c->farewell, "it ended, because the head %s (--grace)", late);
    pthread_mutex_unlock(&c->lock);
    return exo_fail(err, EXO_PEER_LOST, "the head at %s %s", c->place.head, late);
}

exo_status
exo_cluster_wait(exo_cluster *cluster, exo_time grace, exo_time deadline, exo_err *err)
{
    exo_status st = exo_cluster_check_own(cluster, err);
    if (st != EXO_OK)
        return st;
    st = EXO_TIMEOUT;
    pthread_mutex_lock(&cluster->lock);
    for (;;) {
        exo_time now = exo_cluster_now(), until = deadline;
        if (cluster->broken[0])
            st = EXO_FAILED;
        else if (cluster->interrupted)
            st = EXO_CLOSED;
        else if (cluster->head_lost && now - cluster->head_lost >= grace)
            st = EXO_PEER_LOST;
        if (st != EXO_TIMEOUT || now >= deadline)
            break;
        if (cluster->head_lost && grace < deadline - cluster->head_lost)
            until = cluster->head_lost + grace;
        exo_cluster_wait_until_locked(cluster, until);
    }
    pthread_mutex_unlock(&cluster->lock);
    return st == EXO_FAILED      ? exo_fail(err, st, "%s", cluster->broken)
           : st == EXO_PEER_LOST ? give_up_head(cluster, grace, err)
           : st == EXO_CLOSED    ? exo_fail(err, st, "this process was told to end")
                                 : exo_fail(err, st, "nothing happened");
}

void
exo_cluster_interrupt(exo_cluster *cluster)
{
    if (exo_cluster_check_own(cluster, NULL) != EXO_OK)
        return;
    pthread_mutex_lock(&cluster->lock);
    cluster->interrupted = true;
    pthread_cond_broadcast(&cluster->changed);
    pthread_mutex_unlock(&cluster->lock);
}

uint64_t
exo_cluster_node_id(const exo_cluster *cluster)
{
    return exo_net_node(exo_remote_net(cluster->remote));
}
