/* A cluster for one command: see local_cluster.h. Read next: exogym-head.c, exogym-worker.c. */
#include "programs/local_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/thread.h"
#include "net/auth.h"
#include "programs/child.h"
#include "programs/cluster_folder.h"
#include "programs/folder.h"
#include "programs/mpi_job.h"
#include "programs/stopping.h"

extern char **environ;

#define READY_TIMEOUT (30 * EXO_SECOND)
/* for an existing cluster, which either answers or does not exist */
#define THERE_TIMEOUT (5 * EXO_SECOND)
/* time for workers to save state after the head has ended */
#define STOP_TIMEOUT (10 * EXO_SECOND)
#define LOST_GRACE   (10 * EXO_SECOND)
/* timeout of the first attempt; each further one takes twice as long */
#define JOIN_ATTEMPT (2 * EXO_SECOND)
/* All are on this host: the end of a process ends its connections, also those by tcp, and silence
 * is but a pause, as after ctrl-Z. */
#define PEER_TIMEOUT (3600 * EXO_SECOND)
#define HEAD         "the head of this run"

enum {
    MAX_WORDS = 64,
    WORD = 256,
    CAUSE = 160,
    ENDING_MS = 1000
};

/* A command line under construction. */
struct words {
    char text[MAX_WORDS][WORD];
    char *list[MAX_WORDS + 1];
    size_t count;
};

static void
add_word(struct words *w, const char *word)
{
    if (w->count >= MAX_WORDS)
        return;
    snprintf(w->text[w->count], WORD, "%s", word);
    w->list[w->count] = w->text[w->count];
    w->list[++w->count] = NULL;
}

static void
add_option(struct words *w, const char *name, const char *value)
{
    add_word(w, name);
    add_word(w, value);
}

/* Adds the program of that name in this program's folder; if there is none, it is searched on the
 * path. */
static void
add_program(struct words *w, const char *name)
{
    char path[WORD];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    size_t room = slash ? sizeof path - (size_t)(slash + 1 - path) : 0;
    if (slash && strlen(name) < room) {
        memcpy(slash + 1, name, strlen(name) + 1);
        if (access(path, X_OK) == 0) {
            add_word(w, path);
            return;
        }
    }
    add_word(w, name);
}

/* Starts a program. *out is a pipe from its standard output. */
static exo_status
start(const struct words *w, pid_t *pid, int *out, exo_err *err)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return exo_fail(err, EXO_IO, "no pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    /* A process group of its own keeps ctrl-C from it: this process stops it after its state is
     * saved. */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawnp(pid, w->list[0], &actions, &attributes, w->list, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        *pid = 0;
        return exo_fail(err, EXO_NOT_FOUND, "cannot start %s: %s", w->list[0], strerror(failed));
    }
    *out = ends[0];
    return EXO_OK;
}

/* Describes how a child process has ended. The child must not have been waited for. */
static void
describe_end(const char *what, pid_t pid, char *out, size_t size)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        snprintf(out, size, "%s (process %d) has ended", what, (int)pid);
    else if (info.si_code == CLD_EXITED)
        snprintf(out, size, "%s (process %d) exited with status %d", what, (int)pid,
                 info.si_status);
    else
        snprintf(out, size, "%s (process %d) was killed by signal %d (SIG%s)", what, (int)pid,
                 info.si_status, sigabbrev_np(info.si_status) ? sigabbrev_np(info.si_status) : "?");
}

/* Fails with the reason of the process's end. The end becomes visible a moment after its output is
 * closed. */
static exo_status
fail_before_ready(const char *program, pid_t pid, exo_err *err)
{
    char how[CAUSE];
    int end = pidfd_open(pid, 0);
    struct pollfd p = {.fd = end, .events = POLLIN};
    if (end >= 0 && poll(&p, 1, ENDING_MS) >= 0)
        close(end);
    describe_end(program, pid, how, sizeof how);
    return exo_fail(err, EXO_FAILED, "%s before it was ready", how);
}

/* Reads the line that a program prints when it is ready. `head`: a pidfd of the head that the
 * program needs; -1: none. */
static exo_status
await_line(const exo_local_cluster *c, const char *program, pid_t pid, int fd, int head, char *line,
           size_t size, exo_err *err)
{
    char how[CAUSE];
    size_t at = 0;
    exo_time deadline = exo_deadline(exo_clock_real(), READY_TIMEOUT);
    while (at + 1 < size) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = head, .events = POLLIN}};
        exo_time left = deadline - exo_now(exo_clock_real());
        int ready = left > 0 ? poll(fds, 2, (int)(left / EXO_MS) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            return exo_fail(err, EXO_TIMEOUT, "%s is not ready after %d s", program,
                            (int)(READY_TIMEOUT / EXO_SECOND));
        if (fds[1].revents) {
            describe_end(HEAD, c->head, how, sizeof how);
            return exo_fail(err, EXO_PEER_LOST, "%s", how);
        }
        ssize_t got = read(fd, line + at, 1);
        if (got <= 0)
            return fail_before_ready(program, pid, err);
        if (line[at] == '\n')
            break;
        at++;
    }
    line[at] = 0;
    return EXO_OK;
}

/* --- Starting processes ----------------------------------------------------------------------- */

static exo_status
make_key(const exo_local_cluster *c, const char *name, exo_access role, exo_err *err)
{
    const exo_grant grant = {.role = role};
    exo_keys keys = {0};
    char from[128], to[128];
    exo_status st = exo_keys_generate(&keys, err);
    if (st == EXO_OK)
        st = exo_keys_save(&keys, &grant, c->folder, name, err);
    exo_keys_release(&keys);
    snprintf(from, sizeof from, "%s/%s.key", c->folder, name);
    snprintf(to, sizeof to, "%s/authorized/%s.key", c->folder, name);
    if (st == EXO_OK && link(from, to) != 0)
        st = exo_fail(err, EXO_IO, "%s: %s", to, strerror(errno));
    return st;
}

static exo_status
make_keys(const exo_local_cluster *c, exo_err *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/authorized", c->folder);
    if (mkdir(path, 0700) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    exo_status st = make_key(c, "head", EXO_ACCESS_ADMIN, err);
    if (st == EXO_OK)
        st = make_key(c, "worker", EXO_ACCESS_WORKER, err);
    return st == EXO_OK ? make_key(c, "driver", EXO_ACCESS_ADMIN, err) : st;
}

static void
add_common(struct words *w, const exo_local_cluster *c, const exo_local_cluster_opts *opts,
           const char *key)
{
    char path[128], parent[16], timeout[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    add_option(w, "--cluster", "run");
    add_option(w, "--folder", c->folder);
    add_option(w, "--parent", parent);
    if (strcmp(opts->transport, "ipc") == 0)
        return;
    add_option(w, "--listen", "tcp://127.0.0.1:0");
    snprintf(timeout, sizeof timeout, "%ds", (int)(PEER_TIMEOUT / EXO_SECOND));
    add_option(w, "--peer-timeout", timeout);
    add_word(w, "--no-ipc");
    if (strcmp(opts->transport, "curve") != 0) {
        add_word(w, "--insecure");
        return;
    }
    snprintf(path, sizeof path, "%s/%s.secret", c->folder, key);
    add_option(w, "--keys", path);
}

/* Starts the head and writes its address to `address`. */
static exo_status
start_head(exo_local_cluster *c, const exo_local_cluster_opts *opts, char address[WORD],
           exo_err *err)
{
    struct words w = {0};
    char line[1024];
    int out = -1;
    add_program(&w, "exogym-head");
    add_common(&w, c, opts, "head");
    add_option(&w, "--state", "none");
    add_word(&w, "--temporary"); /* the folder goes even if this process is killed */
    exo_status st = start(&w, &c->head, &out, err);
    if (st != EXO_OK)
        return st;
    st = await_line(c, "exogym-head", c->head, out, -1, line, sizeof line, err);
    close(out);
    char *at = st == EXO_OK ? strstr(line, "://") : NULL;
    if (st == EXO_OK && (!at || at - line < 3))
        return exo_fail(err, EXO_FAILED, "exogym-head says no address: %s", line);
    if (st == EXO_OK)
        snprintf(address, WORD, "%.*s", (int)strcspn(at - 3, " \n"), at - 3);
    return st;
}

static exo_status
start_workers(exo_local_cluster *c, const exo_local_cluster_opts *opts, const char *address,
              exo_err *err)
{
    int outs[EXO_MAX_WORKERS] = {0};
    char text[WORD], line[1024];
    int head = pidfd_open(c->head, 0);
    exo_status st =
        head < 0 ? exo_fail(err, EXO_FAILED, "the head cannot be watched: %s", strerror(errno))
                 : EXO_OK;
    for (unsigned i = 0; st == EXO_OK && i < opts->workers; i++) {
        struct words w = {0};
        add_program(&w, "exogym-worker");
        add_common(&w, c, opts, "worker");
        snprintf(text, sizeof text, "worker_%u", i);
        add_option(&w, "--name", text);
        add_option(&w, "--head", address);
        if (strcmp(opts->transport, "curve") == 0) {
            snprintf(text, sizeof text, "%s/head.key", c->folder);
            add_option(&w, "--head-key", text);
        }
        if (opts->logs && strlen(opts->logs) < WORD)
            add_option(&w, "--logs", opts->logs);
        for (size_t p = 0; p < opts->num_plugins; p++)
            add_option(&w, "--plugin", opts->plugins[p]);
        st = start(&w, &c->workers[i], &outs[i], err);
        c->num_workers += st == EXO_OK;
    }
    for (unsigned i = 0; i < c->num_workers; i++) { /* all start in parallel */
        if (st == EXO_OK)
            st = await_line(c, "exogym-worker", c->workers[i], outs[i], head, line, sizeof line,
                            err);
        close(outs[i]);
    }
    if (st == EXO_TIMEOUT && strcmp(opts->transport, "ipc") != 0)
        st = exo_fail(err, st,
                      "exogym-worker does not reach the head at %s within %d s: is the loopback "
                      "interface up?",
                      address, (int)(READY_TIMEOUT / EXO_SECOND));
    if (head >= 0)
        close(head);
    return st;
}

/* --- Watching the head ------------------------------------------------------------------------ */

/* A thread that waits for the end of the started head. The run cannot go on without its head,
 * because nobody restarts it. */
struct exo_head_watch {
    exo_local_cluster *cluster;
    _Atomic int *lost_flag;
    pthread_t thread;
    int head, closing; /* a pidfd; an eventfd */
    char cause[CAUSE]; /* written before `lost` is set */
    _Atomic bool lost;
};

static void *
watch_main(void *argument)
{
    struct exo_head_watch *w = argument;
    struct pollfd fds[2] = {{.fd = w->closing, .events = POLLIN},
                            {.fd = w->head, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    if (fds[0].revents || !fds[1].revents)
        return NULL;
    describe_end(HEAD, w->cluster->head, w->cause, sizeof w->cause);
    w->lost = true;
    exo_cluster_forsake_head(w->cluster->cluster, w->cause);
    int nobody = 0;
    if (w->lost_flag)
        atomic_compare_exchange_strong(w->lost_flag, &nobody, EXO_STOP_LOST);
    exo_time deadline = exo_deadline(exo_clock_real(), LOST_GRACE), left;
    int ready = 0;
    while (ready <= 0 && (left = deadline - exo_now(exo_clock_real())) > 0)
        ready = poll(fds, 1, (int)(left / EXO_MS) + 1);
    for (unsigned i = 0; ready <= 0 && i < w->cluster->num_workers; i++)
        kill(w->cluster->workers[i], SIGKILL);
    return NULL;
}

static exo_status
watch_head(exo_local_cluster *c, _Atomic int *lost, exo_err *err)
{
    struct exo_head_watch *w = exo_calloc(1, sizeof *w);
    if (!w)
        return exo_fail(err, EXO_NOMEM, "no memory to watch the head");
    *w = (struct exo_head_watch){.cluster = c,
                                 .lost_flag = lost,
                                 .head = pidfd_open(c->head, 0),
                                 .closing = eventfd(0, EFD_CLOEXEC)};
    exo_status st =
        w->head < 0 || w->closing < 0
            ? exo_fail(err, EXO_FAILED, "the head cannot be watched: %s", strerror(errno))
            : exo_thread_start(&w->thread, watch_main, w, "watching the head", err);
    if (st == EXO_OK) {
        c->watch = w;
        return EXO_OK;
    }
    if (w->head >= 0)
        close(w->head);
    if (w->closing >= 0)
        close(w->closing);
    exo_free(w);
    return st;
}

/* Call it before the cluster is left or its processes are stopped, or their end would be taken for
 * a loss. */
static void
stop_watching(exo_local_cluster *c)
{
    struct exo_head_watch *w = c->watch;
    if (!w)
        return;
    eventfd_write(w->closing, 1);
    pthread_join(w->thread, NULL);
    close(w->head);
    close(w->closing);
    exo_free(w);
    c->watch = NULL;
}

const char *
exo_local_cluster_lost(const exo_local_cluster *c)
{
    return c->watch && c->watch->lost ? c->watch->cause : NULL;
}

/* --- Joining ---------------------------------------------------------------------------------- */

static bool
has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

const char *
exo_local_cluster_forlorn(const void *cluster)
{
    const exo_local_cluster *c = cluster;
    for (unsigned i = 0; i < c->num_workers; i++)
        if (!has_ended(c->workers[i]))
            return NULL;
    return c->num_workers > 0 ? "all workers that --workers has started have ended" : NULL;
}

/* Joins in several attempts. Between attempts it checks whether a started head has ended, so that
 * it does not wait for a dead one. */
static exo_status
join_cluster(exo_local_cluster *c, const exo_cluster_opts *join, exo_err *err)
{
    exo_time deadline = exo_deadline(exo_clock_real(), c->head > 0 ? READY_TIMEOUT : THERE_TIMEOUT),
             soon;
    exo_time attempt = c->head > 0 ? JOIN_ATTEMPT : THERE_TIMEOUT;
    exo_status st;
    do {
        soon = exo_deadline(exo_clock_real(), attempt);
        st =
            exo_cluster_join(&c->cluster, c->runtime, join, soon < deadline ? soon : deadline, err);
        attempt *= 2;
    } while (st == EXO_TIMEOUT && soon < deadline && c->head > 0 && !has_ended(c->head));
    if (st != EXO_OK && c->head > 0 && has_ended(c->head)) {
        char how[CAUSE];
        describe_end(HEAD, c->head, how, sizeof how);
        st = exo_fail(err, EXO_PEER_LOST, "%s", how);
    }
    return st;
}

exo_status
exo_local_cluster_open(exo_local_cluster *c, const exo_local_cluster_opts *opts, exo_err *err)
{
    static const char *const loopback[] = {"tcp://127.0.0.1:0"};
    char address[WORD] = "", secret[128], head_key[128];
    exo_cluster_opts join = {.role = EXO_ROLE_DRIVER,
                             .cluster = opts->cluster,
                             .head = opts->head,
                             .head_key = opts->head_key,
                             .keys = opts->keys,
                             .job = opts->job};
    *c = (exo_local_cluster){0};
    exo_status st = EXO_OK;
    if (opts->workers > 0 || opts->mpi) {
        (void)exo_cluster_folder_sweep(true);
        st = exo_cluster_folder_make(c->folder, sizeof c->folder, &c->lock, err);
        if (st != EXO_OK)
            return st;
        bool curve = strcmp(opts->transport, "curve") == 0,
             tcp = curve || strcmp(opts->transport, "tcp") == 0;
        if (curve)
            st = make_keys(c, err);
        if (st == EXO_OK)
            st = start_head(c, opts, address, err);
        c->mpi = opts->mpi;
        if (st == EXO_OK && opts->mpi)
            st = exo_mpi_job_invite(opts->mpi, address, c->folder, opts->plugins, opts->num_plugins,
                                    err);
        else if (st == EXO_OK)
            st = start_workers(c, opts, address, err);
        snprintf(secret, sizeof secret, "%s/driver.secret", c->folder);
        snprintf(head_key, sizeof head_key, "%s/head.key", c->folder);
        join.cluster = "run";
        join.folder = c->folder;
        join.head = address;
        join.keys = curve ? secret : NULL;
        join.head_key = curve ? head_key : NULL;
        join.listen = loopback;
        join.num_listen = tcp;
        join.no_ipc = tcp;
        join.peer_timeout = tcp ? PEER_TIMEOUT : 0;
        join.insecure = tcp && !curve;
    }
    if (st == EXO_OK)
        st = exo_runtime_open(&c->runtime, NULL, err);
    if (st == EXO_OK)
        st = join_cluster(c, &join, err);
    if (st == EXO_OK && c->head > 0)
        st = watch_head(c, opts->lost, err);
    if (st != EXO_OK)
        exo_local_cluster_close(c);
    return st;
}

/* Whether a process of this host is stopped, as by SIGSTOP. */
static bool
is_stopped(const char *number)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%.20s/stat", number);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    const char *name_end = read ? strrchr(text, ')') : NULL;
    return name_end && strncmp(name_end, ") T", 3) == 0;
}

/* Whether a process, or a child of it as a watcher's worker, is stopped: as long as it is, it does not end
 * when it is asked to. */
static bool
is_held_up(pid_t pid)
{
    char path[64], number[24], text[256] = "", *rest = NULL;
    snprintf(number, sizeof number, "%d", (int)pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof text, file))
        text[0] = '\0';
    if (file)
        fclose(file);
    bool stopped = is_stopped(number);
    for (char *child = strtok_r(text, " \n", &rest); child && !stopped;
         child = strtok_r(NULL, " \n", &rest))
        stopped = is_stopped(child);
    return stopped;
}

/* Asks all processes to end, and kills those that do not end in time, or stay stopped. */
static void
stop_all(exo_local_cluster *c)
{
    exo_time deadline = exo_deadline(exo_clock_real(), STOP_TIMEOUT);
    for (unsigned i = 0; i < c->num_workers; i++)
        kill(c->workers[i], SIGTERM);
    for (unsigned i = 0; i <= c->num_workers; i++) {
        pid_t pid = i < c->num_workers ? c->workers[i] : c->head;
        exo_standstill still = {0};
        if (i == c->num_workers && pid > 0)
            kill(pid, SIGTERM);
        while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
            const exo_time now = exo_now(exo_clock_real());
            if (now >= deadline || exo_stands_still(&still, is_held_up(pid), now)) {
                kill(pid, SIGKILL); /* a watcher's worker dies with it */
                waitpid(pid, NULL, 0);
                break;
            }
            usleep(2000);
        }
    }
}

void
exo_local_cluster_close(exo_local_cluster *c)
{
    stop_watching(c);
    if (c->cluster)
        exo_cluster_leave(c->cluster);
    if (c->runtime)
        exo_runtime_close(&c->runtime, exo_deadline(exo_clock_real(), STOP_TIMEOUT), NULL);
    exo_cluster_free(&c->cluster);
    if (c->mpi)
        exo_mpi_job_dismiss(c->mpi);
    stop_all(c);
    if (c->folder[0]) {
        exo_folder_remove(c->folder);
        close(c->lock);
    }
    *c = (exo_local_cluster){0};
}
