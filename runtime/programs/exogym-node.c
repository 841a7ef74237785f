/* A process that stays in a cluster until it is told to end: see exogym-node.h.
 *
 * SIGTERM, SIGINT and SIGHUP are blocked in every thread but one, which waits for them and
 * interrupts the wait of the main thread. */
#include "programs/exogym-node.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/thread.h"
#include "programs/folder.h"
#include "programs/text.h"

#define CLOSE_TIMEOUT  (10 * EXO_SECOND)
#define ORPHAN_TIMEOUT EXO_SECOND /* nobody is left who needs what a method still does */

/* Blocks the signals that end a node in all threads; a thread of exo_node_stay waits for them. */
static sigset_t
block_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP); /* an ignored SIGHUP (nohup) is never delivered */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    return signals;
}

/* Removes a temporary folder, which would otherwise be left behind. */
static void
clean(const exo_node_options *node)
{
    if (node->temporary)
        exo_folder_remove(node->opts.folder);
}

/* Ends the process with its parent. Fails if the parent is already gone. */
static exo_status
tie_to_parent(exo_node_options *node, const char *text, exo_err *err)
{
    char *end = NULL;
    long parent = strtol(text, &end, 10);
    if (!*text || *end || parent < 1 || parent > INT_MAX)
        return exo_fail(err, EXO_INVAL, "--parent: expected a process number, got '%.40s'", text);
    block_signals(); /* a signal of the parent's end must not skip the clean-up */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    node->parent = pidfd_open((pid_t)parent, 0);
    if (node->parent >= 0 && getppid() == (pid_t)parent)
        return EXO_OK;
    clean(node);
    return exo_fail(err, EXO_FAILED, "the process %ld is not there, or not what started this one",
                    parent);
}

exo_status
exo_node_read(exo_node_options *node, const struct exo_node_args *args, exo_cluster_role role,
              exo_err *err)
{
    exo_status st = EXO_OK;
    *node = (exo_node_options){.grace = role == EXO_ROLE_HEAD ? INT64_MAX : 60 * EXO_SECOND,
                               .temporary = args->temporary,
                               .parent = -1};
    node->opts = (exo_cluster_opts){.role = role,
                                    .name = args->name,
                                    .cluster = args->cluster,
                                    .head = args->head,
                                    .head_key = args->head_key,
                                    .listen = args->listen.items,
                                    .num_listen = args->listen.length,
                                    .no_ipc = args->no_ipc,
                                    .advertise = args->advertise,
                                    .keys = args->keys,
                                    .authorized = args->authorized,
                                    .insecure = args->insecure,
                                    .keys_for_local = args->keys_for_local,
                                    .resources = node->resources,
                                    .num_resources = args->resources.length,
                                    .state = args->state,
                                    .audit = args->audit,
                                    .folder = args->folder,
                                    .folder_exists = args->parent != NULL};
    if (args->resources.length > EXO_NODE_RESOURCES)
        return exo_fail(err, EXO_INVAL, "more than %d resources", (int)EXO_NODE_RESOURCES);
    for (size_t i = 0; st == EXO_OK && i < args->resources.length; i++) {
        node->resources[i].name = node->names[i];
        st = exo_text_read_resource(args->resources.items[i], node->names[i], sizeof node->names[i],
                                    &node->resources[i].amount, err);
    }
    if (st == EXO_OK && args->peer_timeout)
        st =
            exo_text_read_time(args->peer_timeout, "--peer-timeout", &node->opts.peer_timeout, err);
    /* 0 would mean the default */
    if (st == EXO_OK && args->peer_timeout && node->opts.peer_timeout < EXO_MS)
        return exo_fail(err, EXO_INVAL, "--peer-timeout: '%.40s' is too short", args->peer_timeout);
    if (st == EXO_OK && args->grace)
        st = exo_text_read_time(args->grace, "--grace", &node->grace, err);
    if (st == EXO_OK && args->threads) {
        char *end = NULL;
        long threads = strtol(args->threads, &end, 10);
        if (*end || threads < 1 || threads > 1024)
            return exo_fail(err, EXO_INVAL,
                            "--threads: expected a number from 1 to 1024, got '%.40s'",
                            args->threads);
        node->threads = (unsigned)threads;
    }
    if (st == EXO_OK && args->no_ipc && args->listen.length == 0)
        return exo_fail(err, EXO_INVAL,
                        "--no-ipc leaves nothing to listen on: say where with --listen");
    if (st == EXO_OK && args->temporary && !args->folder)
        return exo_fail(err, EXO_INVAL, "--temporary: --folder must name the folder to remove");
    return st == EXO_OK && args->parent ? tie_to_parent(node, args->parent, err) : st;
}

/* --- Signals ---------------------------------------------------------------------------------- */

struct listener {
    pthread_mutex_t lock;
    exo_cluster *cluster; /* guarded by lock; NULL: not joined yet */
    sigset_t signals;
    const exo_node_options *node;
};

static void *
listen_main(void *argument)
{
    struct listener *l = argument;
    int number = 0;
    if (sigwait(&l->signals, &number) != 0)
        return NULL;
    pthread_mutex_lock(&l->lock);
    if (!l->cluster) {
        clean(l->node);
        _exit(EXO_EXIT_SIGNAL + number);
    }
    exo_cluster_interrupt(l->cluster);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Whether the process of --parent has ended. */
static bool
is_orphan(const exo_node_options *node)
{
    struct pollfd parent = {.fd = node->parent, .events = POLLIN};
    return node->parent >= 0 && poll(&parent, 1, 0) > 0;
}

/* --- The stay --------------------------------------------------------------------------------- */

/* Ends the process if methods still run after a time: they may use any memory. */
static void
end_actors(const exo_node_options *node, exo_runtime **runtime)
{
    exo_err late = {0};
    const bool orphan = is_orphan(node);
    exo_time patience = orphan ? ORPHAN_TIMEOUT : CLOSE_TIMEOUT;
    if (exo_runtime_close(runtime, exo_deadline(exo_clock_real(), patience), &late) == EXO_OK)
        return;
    if (!orphan)
        fprintf(stderr, "%s: %s\n", exo_program()->name, late.text);
    clean(node);
    _exit(orphan ? EXO_EXIT_OK : EXO_EXIT_FAILURE);
}

static exo_status
stay(const exo_node_options *node, struct listener *l, exo_runtime *runtime, FILE *ready,
     void (*joined)(void *context, const exo_cluster *cluster), void *context, exo_err *err)
{
    exo_cluster *cluster = NULL;
    exo_time patience = node->grace < INT64_MAX ? node->grace : CLOSE_TIMEOUT;
    exo_status st = exo_cluster_join(&cluster, runtime, &node->opts,
                                     exo_deadline(exo_clock_real(), patience), err);
    if (st != EXO_OK) {
        clean(node);
        _exit(exo_report(err)); /* the runtime's threads end with the process */
    }
    if (joined)
        joined(context, cluster);
    pthread_mutex_lock(&l->lock);
    l->cluster = cluster;
    pthread_mutex_unlock(&l->lock);
    fprintf(ready, "%s: %s is ready at %s\n", exo_program()->name, exo_cluster_node_name(cluster),
            exo_cluster_address(cluster));
    fflush(ready);
    st = exo_cluster_wait(cluster, node->grace, INT64_MAX, err);
    exo_cluster_leave(cluster);
    end_actors(node, &runtime);
    /* never unlocked: a late signal must not find the freed cluster */
    pthread_mutex_lock(&l->lock);
    exo_cluster_free(&cluster);
    clean(node);
    return st == EXO_CLOSED ? EXO_OK : st;
}

exo_status
exo_node_stay(const exo_node_options *node, FILE *ready,
              void (*joined)(void *context, const exo_cluster *cluster), void *context,
              exo_err *err)
{
    static struct listener l = {.lock = PTHREAD_MUTEX_INITIALIZER};
    exo_runtime *runtime = NULL;
    pthread_t thread;
    l.node = node;
    l.signals = block_signals();
    signal(SIGPIPE, SIG_IGN);
    exo_status st = exo_thread_start(&thread, listen_main, &l, "signals", err);
    if (st != EXO_OK)
        return st;
    pthread_detach(thread);
    st = exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = node->threads}, err);
    if (st == EXO_OK && node->confine && node->confine(err) != EXO_OK) {
        clean(node);
        _exit(exo_report(err));
    }
    return st == EXO_OK ? stay(node, &l, runtime, ready, joined, context, err) : st;
}
