/* The watcher of a worker: see exogym-watcher.h. Read next: flight.h, cluster/watch.h. */
#include "programs/exogym-watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor/flight.h"
#include "base/dir.h"
#include "base/memory_limits.h"
#include "base/printable.h"
#include "cluster/watch.h"
#include "programs/program.h"

#define REPORT_TIMEOUT (5 * EXO_SECOND)

enum {
    LOG_SIZE = 16 << 20, /* bytes; then a new file is begun */
    TAIL = 8192,
    TAIL_LINES = 30
};

struct exo_watch_page {
    _Alignas(EXO_FLIGHT_SLOT) unsigned char flight[EXO_FLIGHT_SIZE];
    _Atomic uint64_t node; /* 0: the worker has not joined */
    char name[128];        /* the node's name at the head; written before `node` */
    atomic_bool left;
};

struct watcher {
    const exo_cluster_opts *opts;
    exo_watched *watched;
    char folder[4096];
    pid_t worker;
    int output, signals; /* the worker's pipe; a signalfd */
    int log;
    size_t log_size;
    char tail[TAIL]; /* the end of the worker's output */
    size_t tail_size;
    long long oom_kills; /* before the worker started; -1: unknown */
};

/* --- The log ---------------------------------------------------------------------------------- */

/* Opens and locks a log. -1: it cannot be opened, or another process has it locked. errno is EEXIST
 * if the path is not a plain file, or has a second hard link. */
static int
open_log(const char *path)
{
    struct stat info;
    int fd = exo_dir_open(path, O_CREAT | O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1)) {
        close(fd);
        fd = -1;
        errno = EEXIST;
    } else if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Renames the log to PATH.1, which replaces an older one, and begins a new file. */
static int
begin_log(const char *path, int old)
{
    char before[4096 + 8];
    snprintf(before, sizeof before, "%s.1", path);
    exo_dir_rename(path, before, 0);
    close(old);
    return open_log(path);
}

static exo_status
find_log(struct watcher *w, const char *folder, exo_err *err)
{
    exo_watched *out = w->watched;
    struct stat info;
    int n = snprintf(out->log, sizeof out->log, "%s/%s.log", folder, out->name);
    w->log = n > 0 && (size_t)n < sizeof out->log ? open_log(out->log) : -1;
    if (w->log < 0) { /* another worker has this name */
        snprintf(out->log, sizeof out->log, "%.*s/%s-%d.log", (int)sizeof out->log - 160, folder,
                 out->name, (int)getpid());
        w->log = open_log(out->log);
    }
    if (w->log >= 0 && fstat(w->log, &info) == 0 && info.st_size > 0)
        w->log = begin_log(out->log, w->log);
    return w->log >= 0 ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", out->log, exo_dir_reason(errno));
}

static void
write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* ignored: a full disk or a closed terminal must not end the watcher */
        data += n;
        size -= (size_t)n;
    }
}

static void
keep_tail(struct watcher *w, const char *data, size_t size)
{
    if (size > TAIL) {
        data += size - TAIL;
        size = TAIL;
    }
    size_t stays = w->tail_size + size > TAIL ? TAIL - size : w->tail_size;
    memmove(w->tail, w->tail + (w->tail_size - stays), stays);
    memcpy(w->tail + stays, data, size);
    w->tail_size = stays + size;
}

/* Copies output of the worker. False: no more for now, or end of the output. */
static bool
copy_output(struct watcher *w)
{
    char data[16384];
    ssize_t got = read(w->output, data, sizeof data);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    write_all(STDERR_FILENO, data, (size_t)got);
    if (w->log_size > LOG_SIZE) {
        w->log = begin_log(w->watched->log, w->log);
        w->log_size = 0;
    }
    write_all(w->log, data, (size_t)got);
    w->log_size += (size_t)got;
    keep_tail(w, data, (size_t)got);
    return true;
}

/* --- The worker's end ------------------------------------------------------------------------- */

static void
describe_end(const struct watcher *w, int status, char *out, size_t size)
{
    const char *name = WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : NULL;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && w->oom_kills >= 0 &&
        exo_memory_group_read().oom_kills > w->oom_kills)
        snprintf(out, size, "was killed by the kernel for want of memory");
    else if (WIFSIGNALED(status))
        snprintf(out, size, "was killed by signal %d (SIG%s)%s", WTERMSIG(status),
                 name ? name : "?", WCOREDUMP(status) ? ", and left a core file" : "");
    else
        snprintf(out, size, "exited with status %d", WEXITSTATUS(status));
}

/* The last lines of the worker's output. */
static const char *
last_lines(struct watcher *w)
{
    static char text[TAIL + 1];
    memcpy(text, w->tail, w->tail_size);
    text[w->tail_size] = 0;
    const char *at = text + strlen(text);
    for (int lines = 0; at > text; at--)
        if (at[-1] == '\n' && at[0] && ++lines == TAIL_LINES)
            break;
    return at;
}

static void
report(struct watcher *w, const char *cause)
{
    char running[1024];
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL;
    exo_err err = {0};
    const struct exo_watch_page *page = w->watched->page;
    exo_cluster_opts opts = *w->opts;
    exo_time deadline = exo_deadline(exo_clock_real(), REPORT_TIMEOUT);
    exo_flight_read(page->flight, running, sizeof running);
    char shown[2048]; /* names of methods are untrusted */
    exo_printable(shown, sizeof shown, running, EXO_SHOWN_LINE);
    fprintf(stderr, "%s: %s %s%s%s; its log is %s\n", exo_program()->name, page->name, cause,
            running[0] ? ", in " : "", shown, w->watched->log);
    opts.role = EXO_ROLE_GUEST;
    opts.name = NULL;
    opts.num_listen = 0;
    opts.audit = NULL;
    exo_status st = exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 1}, &err);
    if (st == EXO_OK)
        st = exo_cluster_join(&cluster, runtime, &opts, deadline, &err);
    if (st == EXO_OK) {
        const exo_epitaph epitaph = {.node = atomic_load(&page->node),
                                     .name = page->name,
                                     .cause = cause,
                                     .running = running,
                                     .log = last_lines(w)};
        st = exo_cluster_send_epitaph(cluster, &epitaph, deadline, &err);
        exo_cluster_leave(cluster);
    }
    exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), REPORT_TIMEOUT), NULL);
    exo_cluster_free(&cluster);
    if (st != EXO_OK)
        fprintf(stderr, "%s: the head was not told: %s\n", exo_program()->name, err.text);
}

static int
finish(struct watcher *w, int status)
{
    char cause[256], before[4096 + 8];
    const struct exo_watch_page *page = w->watched->page;
    while (copy_output(w))
        ;
    exo_cluster_remove_sockets(w->folder, (int)w->worker);
    bool well = (WIFEXITED(status) && WEXITSTATUS(status) == 0) || !atomic_load(&page->node);
    if (well) {
        snprintf(before, sizeof before, "%s.1", w->watched->log);
        exo_dir_unlink(w->watched->log);
        exo_dir_unlink(before);
    } else if (!atomic_load(&page->left)) {
        describe_end(w, status, cause, sizeof cause);
        report(w, cause);
    }
    return WIFSIGNALED(status) ? EXO_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int
watch(struct watcher *w)
{
    struct pollfd fds[2] = {{.fd = w->signals, .events = POLLIN},
                            {.fd = w->output, .events = POLLIN}};
    struct signalfd_siginfo signal;
    int status = 0;
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents && !copy_output(w) && (fds[1].revents & POLLHUP))
            fds[1].fd = -1; /* closed: the worker ends soon */
        if (!(fds[0].revents & POLLIN) || read(w->signals, &signal, sizeof signal) != sizeof signal)
            continue;
        if (signal.ssi_signo != SIGCHLD)
            kill(w->worker, (int)signal.ssi_signo);
        else if (waitpid(w->worker, &status, WNOHANG) == w->worker)
            break;
    }
    return finish(w, status);
}

/* --- The worker's start ----------------------------------------------------------------------- */

static void
become_worker(exo_watched *out, int pipe_end, const sigset_t *before, pid_t watcher)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != watcher)
        _exit(EXO_EXIT_FAILURE);
    sigprocmask(SIG_SETMASK, before, NULL);
    int original = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    out->out = original >= 0 ? fdopen(original, "w") : NULL;
    if (!out->out)
        out->out = stdout;
    dup2(pipe_end, STDOUT_FILENO);
    dup2(pipe_end, STDERR_FILENO);
    close(pipe_end);
    setvbuf(stdout, NULL, _IOLBF, 0);
    exo_flight_use(out->page->flight);
}

exo_status
exo_watch(const exo_cluster_opts *opts, const char *logs, exo_watched *out, int *status,
          exo_err *err)
{
    static struct watcher w;
    char host[64] = "host";
    int pipes[2];
    sigset_t signals, before;
    w = (struct watcher){
        .opts = opts, .watched = out, .oom_kills = exo_memory_group_read().oom_kills};
    gethostname(host, sizeof host - 1);
    if (opts->name && *opts->name)
        snprintf(out->name, sizeof out->name, "%s", opts->name);
    else
        snprintf(out->name, sizeof out->name, "worker-%.40s-%d", host, (int)getpid());
    if (strchr(out->name, '/'))
        return exo_fail(err, EXO_INVAL, "the node's name '%.60s': expected no '/'", out->name);
    exo_status st = exo_cluster_folder(opts, w.folder, sizeof w.folder, err);
    if (st == EXO_OK)
        st = find_log(&w, logs ? logs : w.folder, err);
    if (st != EXO_OK)
        return st;
    struct exo_watch_page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || pipe2(pipes, O_CLOEXEC) != 0)
        return exo_fail(err, EXO_IO, "the worker cannot be watched: %s", strerror(errno));
    out->page = page;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t watcher = getpid();
    w.worker = fork();
    if (w.worker < 0)
        return exo_fail(err, EXO_IO, "no process can be started: %s", strerror(errno));
    if (w.worker == 0) {
        close(pipes[0]);
        close(w.log);
        become_worker(out, pipes[1], &before, watcher);
        return EXO_OK;
    }
    close(pipes[1]);
    signal(SIGPIPE, SIG_IGN);
    w.output = pipes[0];
    fcntl(w.output, F_SETFL, O_NONBLOCK);
    w.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    *status = watch(&w);
    out->page = NULL;
    return EXO_OK;
}

void
exo_watched_joined(void *watched, const exo_cluster *cluster)
{
    struct exo_watch_page *page = ((exo_watched *)watched)->page;
    snprintf(page->name, sizeof page->name, "%s", exo_cluster_node_name(cluster));
    atomic_store(&page->node, exo_cluster_node_id(cluster));
}

void
exo_watched_left(exo_watched *watched)
{
    atomic_store(&watched->page->left, true);
}
