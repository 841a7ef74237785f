/* The start of a cluster, and its memory:
 *
 *     bench_start [--rounds N] [--values]
 *
 * Starts exogym-head and four exogym-workers of the same build, as a user's script would, and calls
 * an actor on each worker (the counter of tests/plugins). Prints the times from the start until the
 * head says that it is ready, until all workers do, and until all calls have their replies. Also
 * the private memory of a worker, of its watcher and of the head, and to compare, the time to run a
 * process that does nothing. --values prints NAME=VALUE lines. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/cluster.h>

#include "limits.h"

extern char **environ;

enum {
    WORKERS = 4,
    PATH = 512
};

/* The folder of the build, and a folder for the cluster's sockets. */
static char build[PATH], folder[] = "/tmp/exo-bench-XXXXXX";

struct figures {
    double process[BENCH_MAX_REPEATS], head[BENCH_MAX_REPEATS], workers[BENCH_MAX_REPEATS],
        called[BENCH_MAX_REPEATS]; /* ms */
    double worker_memory[BENCH_MAX_REPEATS], watcher_memory[BENCH_MAX_REPEATS],
        head_memory[BENCH_MAX_REPEATS]; /* MiB */
};

static _Noreturn void
give_up(const char *what)
{
    fprintf(stderr, "bench_start: %s\n", what);
    exit(1);
}

static void
must(exo_status st, const exo_err *err)
{
    if (st != EXO_OK)
        give_up(err->text);
}

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 30 * EXO_SECOND);
}

/* Starts a program. Its standard output can be read from *out; what actors print is dropped. */
static pid_t
start(char *const words[], int *out)
{
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        give_up("no pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, words[0], &actions, NULL, words, environ) != 0)
        give_up("a program cannot be started; was it built?");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *out = ends[0];
    return pid;
}

/* Waits until the program has written or has ended. */
static void
await_line(int fd)
{
    char text[512];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 30000) != 1 || read(fd, text, sizeof text) < 0)
        give_up("a program does not say that it is ready");
    close(fd);
}

static double
ms_since(int64_t began)
{
    return (double)(bench_now() - began) / 1e6;
}

/* The private memory of a process, in MiB. */
static double
private_memory(pid_t pid)
{
    char path[64], line[256];
    double kib = 0, value;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Private_Clean: %lf", &value) == 1 ||
            sscanf(line, "Private_Dirty: %lf", &value) == 1)
            kib += value;
    if (file)
        fclose(file);
    return kib / 1024;
}

static pid_t
child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%d", &child) != 1)
        give_up("a watcher has no worker");
    fclose(file);
    return child;
}

/* Spawns an actor on each worker, calls each of them, and waits for the replies. */
static void
call_each(exo_runtime *runtime)
{
    exo_future *futures[WORKERS];
    exo_ref refs[WORKERS];
    exo_err err = {0};
    for (unsigned i = 0; i < WORKERS; i++) {
        char node[16];
        snprintf(node, sizeof node, "w%u", i);
        const exo_spawn_opts opts = {.placement = EXO_PLACE_STRICT, .node = node};
        must(exo_spawn_class(runtime, "counter", &opts, soon(), &refs[i], &err), &err);
        must(exo_call(runtime, refs[i], "add", (exo_payload){0}, soon(), &futures[i], &err), &err);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        must(exo_wait(futures[i], soon(), NULL, &err), &err);
        exo_future_drop(&futures[i]);
    }
}

static void
stop(pid_t pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

static double
time_process(void)
{
    char *const words[] = {(char[]){"/bin/true"}, NULL};
    int out;
    int64_t began = bench_now();
    pid_t pid = start(words, &out);
    waitpid(pid, NULL, 0);
    close(out);
    return ms_since(began);
}

static void
run(struct figures *f, size_t round)
{
    char head[PATH + 16], worker[PATH + 16], plugin[PATH + 32], names[WORKERS][16];
    exo_runtime *runtime;
    exo_cluster *cluster;
    exo_err err = {0};
    pid_t head_pid, pids[WORKERS];
    int out, outs[WORKERS];
    snprintf(head, sizeof head, "%s/exogym-head", build);
    snprintf(worker, sizeof worker, "%s/exogym-worker", build);
    snprintf(plugin, sizeof plugin, "%s/bench/actors.so", build);

    f->process[round] = time_process();
    int64_t began = bench_now();
    head_pid = start((char *[]){head, "--folder", folder, "--state", "none", NULL}, &out);
    await_line(out);
    f->head[round] = ms_since(began);
    for (unsigned i = 0; i < WORKERS; i++) {
        snprintf(names[i], sizeof names[i], "w%u", i);
        pids[i] = start(
            (char *[]){worker, "--folder", folder, "--name", names[i], "--plugin", plugin, NULL},
            &outs[i]);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        await_line(outs[i]);
    f->workers[round] = ms_since(began);
    must(exo_runtime_open(&runtime, NULL, &err), &err);
    const exo_cluster_opts opts = {.role = EXO_ROLE_DRIVER, .folder = folder};
    must(exo_cluster_join(&cluster, runtime, &opts, soon(), &err), &err);
    call_each(runtime);
    f->called[round] = ms_since(began);
    f->worker_memory[round] = private_memory(child_of(pids[0]));
    f->watcher_memory[round] = private_memory(pids[0]);
    f->head_memory[round] = private_memory(head_pid);
    exo_cluster_leave(cluster);
    exo_runtime_close(&runtime, soon(), &err);
    exo_cluster_free(&cluster);
    for (unsigned i = 0; i < WORKERS; i++)
        stop(pids[i]);
    stop(head_pid);
}

int
main(int argc, char **argv)
{
    static struct figures f;
    size_t rounds = 11;
    bool values = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--values") == 0)
            values = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = strtoul(argv[++i], NULL, 10);
        else
            rounds = 0;
    }
    if (rounds == 0 || rounds > BENCH_MAX_REPEATS)
        give_up("usage: bench_start [--rounds 1..64] [--values]");
    ssize_t length = readlink("/proc/self/exe", build, sizeof build - 1);
    for (int i = 0; i < 2; i++) { /* the parent of the folder of this program */
        char *slash = length > 0 ? strrchr(build, '/') : NULL;
        if (!slash)
            give_up("where is this program?");
        *slash = 0;
    }
    if (!mkdtemp(folder))
        give_up("no folder in /tmp");
    for (size_t i = 0; i < rounds; i++)
        run(&f, i);
    printf(values
               ? "process_ms=%.1f\nhead_ready_ms=%.1f\nworkers_ready_ms=%.1f\nfirst_calls_s=%.4f\n"
                 "idle_actor_private_mib=%.2f\nwatcher_private_mib=%.2f\nhead_private_mib=%.2f\n"
               : "a process that does nothing          %7.1f ms\nexogym-head is ready after        "
                 "   %7.1f ms\n"
                 "with four workers                    %7.1f ms\nwith a first call to each of them "
                 "   %7.1f ms\n"
                 "private memory: worker %.2f MiB, its watcher %.2f MiB, head %.2f MiB\n",
           bench_median(f.process, rounds), bench_median(f.head, rounds),
           bench_median(f.workers, rounds), bench_median(f.called, rounds) / (values ? 1e3 : 1),
           bench_median(f.worker_memory, rounds), bench_median(f.watcher_memory, rounds),
           bench_median(f.head_memory, rounds));
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}
