/* Processes of a cluster under test: see processes.h. Read next: remains.h. */
#include "support/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/check.h"
#include "support/remains.h"
#include "support/temp.h"

extern char **environ;

#define READY_TIMEOUT (60 * EXO_SECOND)

exo_time
processes_now(void)
{
    return exo_now(exo_clock_real());
}

uint64_t
processes_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t
processes_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* --- Start and end ---------------------------------------------------------------------------- */

void
processes_open(processes *p)
{
    *p = (processes){0};
    temp_folder(p->folder, sizeof p->folder);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphaned processes become children of this one */
    signal(SIGPIPE, SIG_IGN);
    remains_begin(p->folder);
}

bool
processes_is_ready(const processes *p, const char *name)
{
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s.out", p->folder, name);
    return stat(path, &info) == 0 && info.st_size > 0;
}

static bool
has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* False: the process ended, or printed nothing in time. */
static bool
await_ready(const processes *p, pid_t pid, const char *name)
{
    exo_time deadline = processes_now() + READY_TIMEOUT;
    while (!processes_is_ready(p, name) && !has_ended(pid) && processes_now() < deadline)
        usleep(1000);
    return processes_is_ready(p, name);
}

pid_t
processes_start(const processes *p, const char *network, const char *name, bool ready,
                const char *const *words)
{
    char path[512], log[128], out[128], folder[128],
        *list[64] = {"ip", "netns", "exec", (char *)(uintptr_t)network};
    size_t count = network ? 4 : 0;
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    snprintf(path, sizeof path, "%s%s%s", words[0][0] == '/' ? "" : EXO_PROGRAMS_DIR,
             words[0][0] == '/' ? "" : "/", words[0]);
    list[count++] = path;
    for (size_t i = 1; words[i]; i++) {
        CHECK(count < 62);
        list[count++] = (char *)(uintptr_t)words[i];
    }
    snprintf(log, sizeof log, "%s/%s.err", p->folder, name);
    snprintf(out, sizeof out, "%s/%s.out", p->folder, name);
    unlink(out);
    remains_folder_of(p->folder, name, path, folder, sizeof folder);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, O_CREAT | O_WRONLY | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_CREAT | O_WRONLY | O_APPEND,
                                     0600);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawnp(&pid, list[0], &actions, &attributes, list, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed || (ready && !await_ready(p, pid, name))) {
        fprintf(stderr, "%s did not start\n", name);
        if (!failed) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        pid = 0;
    }
    return pid;
}

bool
processes_start_head(processes *p)
{
    char state[128];
    snprintf(state, sizeof state, "%s/state.db", p->folder);
    const char *const words[] = {"exogym-head", "--cluster", "t",   "--folder",
                                 p->folder,     "--state",   state, NULL};
    p->head = processes_start(p, NULL, "head", true, words);
    return p->head > 0;
}

bool
processes_start_worker(processes *p, unsigned i, bool ready)
{
    char name[16], head[128];
    snprintf(name, sizeof name, "w%u", i);
    snprintf(head, sizeof head, "ipc://%s/t/head", p->folder);
    const char *const words[] = {"exogym-worker",
                                 "--cluster",
                                 "t",
                                 "--folder",
                                 p->folder,
                                 "--name",
                                 name,
                                 "--head",
                                 head,
                                 "--plugin",
                                 PROCESSES_PLUGIN("victim"),
                                 "--threads",
                                 "2",
                                 "--resource",
                                 "cpus=1000",
                                 NULL};
    p->workers[i] = processes_start(p, NULL, name, ready, words);
    return p->workers[i] > 0;
}

pid_t
processes_host_of(pid_t watcher)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)watcher, (int)watcher);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &pid) != 1)
        pid = 0;
    if (file)
        fclose(file);
    /* When a watcher ends, its child may be the leak sanitizer's tracer, which shares the watcher's
     * memory. It does not count: a test would wait for its end in vain. */
    if (pid && syscall(SYS_kcmp, watcher, pid, KCMP_VM, 0, 0) == 0)
        pid = 0;
    return pid;
}

bool
processes_await(pid_t pid, exo_time deadline, int *status)
{
    pid_t got;
    while ((got = waitpid(pid, status, WNOHANG)) == 0 && processes_now() < deadline)
        usleep(2000);
    return got == pid;
}

bool
processes_output(const processes *p, const char *network, const char *const *words, char *text,
                 size_t size)
{
    char path[128];
    int status = -1;
    size_t got = 0;
    pid_t pid = processes_start(p, network, "output", false, words);
    if (pid <= 0 || !processes_await(pid, processes_now() + READY_TIMEOUT, &status))
        return false;
    snprintf(path, sizeof path, "%s/output.out", p->folder);
    FILE *file = fopen(path, "re");
    if (file) {
        got = fread(text, 1, size - 1, file);
        fclose(file);
    }
    text[got] = 0;
    return status == 0;
}

/* --- Remains ---------------------------------------------------------------------------------- */

static bool
end(pid_t *pid, const char *name)
{
    int status = 0;
    if (*pid <= 0)
        return true;
    kill(*pid, SIGCONT);
    kill(*pid, SIGTERM);
    bool ended = processes_await(*pid, processes_now() + 20 * EXO_SECOND, &status);
    if (!ended) {
        fprintf(stderr, "%s does not end\n", name);
        kill(*pid, SIGABRT);
        waitpid(*pid, &status, 0);
    } else if (status != 0) {
        fprintf(stderr, "%s ended with status %#x\n", name, (unsigned)status);
    }
    *pid = 0;
    return ended && status == 0;
}

/* The lock of heads and logs of killed workers may stay. */
static bool
may_stay(const char *name)
{
    return name[0] == '.' || strcmp(name, "head.lock") == 0 || strstr(name, ".log");
}

/* Looks for files in the cluster's folder and in /dev/shm. Files of the engine of
 * examples/22_shm_engine belong to a job that may run beside this test. */
static bool
no_files_left(const char *folder)
{
    bool none = true;
    char path[600];
    snprintf(path, sizeof path, "%s/t", folder);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!may_stay(e->d_name)) {
            fprintf(stderr, "a file is left: %s\n", e->d_name);
            none = false;
        }
    }
    if (dir)
        closedir(dir);
    dir = opendir("/dev/shm");
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        struct stat info;
        snprintf(path, sizeof path, "/dev/shm/%s", e->d_name);
        if (strstr(e->d_name, "exo") && strncmp(e->d_name, "shm_engine.", 11) != 0 &&
            lstat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            fprintf(stderr, "shared memory is left: %s\n", e->d_name);
            none = false;
        }
    }
    if (dir)
        closedir(dir);
    return none;
}

static void
show_logs(const char *folder)
{
    char path[600], line[1024];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        size_t length = strlen(e->d_name);
        if (length < 4 || strcmp(e->d_name + length - 4, ".err") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *file = fopen(path, "re");
        fprintf(stderr, "--- %s\n", e->d_name);
        if (file && fseek(file, -6000, SEEK_END) != 0)
            rewind(file);
        while (file && fgets(line, sizeof line, file))
            fputs(line, stderr);
        if (file)
            fclose(file);
    }
    if (dir)
        closedir(dir);
}

bool
processes_close(processes *p)
{
    bool good = !p->failed;
    char name[16];
    for (unsigned i = 0; i < PROCESSES_WORKERS; i++) {
        snprintf(name, sizeof name, "w%u", i);
        good = end(&p->workers[i], name) && good;
    }
    good = end(&p->head, "head") && good;
    /* for processes whose watcher was killed */
    exo_time deadline = processes_now() + READY_TIMEOUT;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && processes_now() < deadline)
        usleep(pid == 0 ? 2000 : 0);
    if (pid >= 0) {
        fprintf(stderr, "a process is left\n");
        good = false;
    }
    good = no_files_left(p->folder) && good;
    bool keep = remains_show(p->folder);
    good = good && !keep;
    if (!good) {
        show_logs(p->folder);
        remains_show_pattern();
    }
    if (keep || getenv("EXO_KEEP"))
        fprintf(stderr, "kept: %s\n", p->folder);
    else
        temp_remove(p->folder);
    return good;
}

unsigned
processes_descriptors(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

unsigned long
processes_memory(pid_t pid)
{
    char path[64], line[256];
    unsigned long kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %lu", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* --- Drivers ---------------------------------------------------------------------------------- */

exo_cluster *
processes_join(const processes *p, const char *job, exo_runtime **runtime)
{
    exo_err err = {0};
    exo_cluster *cluster = NULL;
    char head[128];
    snprintf(head, sizeof head, "ipc://%s/t/head", p->folder);
    const exo_cluster_opts opts = {
        .role = EXO_ROLE_DRIVER, .cluster = "t", .folder = p->folder, .head = head, .job = job};
    exo_status st = exo_runtime_open(runtime, &(exo_runtime_opts){.threads = 2}, &err);
    if (st == EXO_OK)
        st = exo_cluster_join(&cluster, *runtime, &opts,
                              exo_deadline(exo_clock_real(), READY_TIMEOUT), &err);
    if (st != EXO_OK) {
        fprintf(stderr, "joining: %s\n", err.text);
        exit(1);
    }
    return cluster;
}

void
processes_leave(exo_cluster **cluster, exo_runtime **runtime)
{
    exo_err err = {0};
    exo_cluster_leave(*cluster);
    if (exo_runtime_close(runtime, exo_deadline(exo_clock_real(), READY_TIMEOUT), &err) != EXO_OK) {
        fprintf(stderr, "closing: %s\n", err.text);
        exit(1);
    }
    exo_cluster_free(cluster);
}
