/* A hostile process that was let in, beside an honest one. tests/support/hostile_peer.c has the
 * kinds of hostility. Every honest call, to the head and to an actor, must be answered rightly, and
 * the memory of head and worker must stay within the quotas (docs/security.md).
 *
 * An honest call is due every 20 ms, whether or not the previous calls have been answered, and the
 * time of a late call counts from its due time. A standstill is therefore measured in full. The
 * test prints the calls' times beside those without a hostile process, and does not judge them.
 *
 * EXO_HOSTILE_SECONDS: seconds of each kind (1). EXO_HOSTILE_KIND: names of kinds, separated by
 * commas (all). Each thread owns its `struct caller`; the main thread owns the rest. Read next:
 * tests/support/hostile_peer.h. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/actor.h>
#include <exogym/memory.h>

#include "support/check.h"
#include "support/hostile_peer.h"
#include "support/processes.h"
#include "support/victim.h"

#define PATIENCE (60 * EXO_SECOND)
#define EVERY    (20 * EXO_MS)
#define ALONE    (15 * EXO_SECOND) /* the longest measurement without a hostile process */

enum {
    CALLERS = 2,
    HEAD = 0,
    ACTOR = 1,
#ifdef __SANITIZE_ADDRESS__
    SHADOWED = 1 /* the sanitizer keeps freed memory and needs memory of its own */
#else
    SHADOWED = 0
#endif
};

static processes all;
static exo_cluster *cluster;
static exo_runtime *runtime;
static exo_ref victim;
static char worker_endpoint[160];
static exo_actor_id prey; /* the actor that the hostile process may call */

/* --- The hostile process ---------------------------------------------------------------------- */

/* Starts this program again with the arguments --be KIND HEAD WORKER ACTOR. The hostile process
 * ends when *rein is closed. */
static pid_t
start_hostile(const char *kind, int *rein)
{
    char head[128], actor[32];
    int ends[2];
    snprintf(head, sizeof head, "ipc://%s/t/head", all.folder);
    snprintf(actor, sizeof actor, "%llu", (unsigned long long)prey.id);
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "hostile", "--be", kind, head, worker_endpoint, actor,
              (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    *rein = ends[1];
    return pid;
}

static void
end_hostile(const char *kind, pid_t pid, int rein)
{
    int status = 0;
    close(rein);
    if (!processes_await(pid, processes_now() + PATIENCE, &status)) {
        fprintf(stderr, "%s: the hostile one does not end\n", kind);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        all.failed = true;
    } else if (status != 0) {
        fprintf(stderr, "%s: the hostile one ended with %d\n", kind, status);
        all.failed = true;
    }
}

/* --- The honest process ----------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    const char *what;
    exo_status (*call)(exo_time deadline, exo_err *err);
    exo_time began, until;
    exo_time *took; /* (most) */
    size_t count, most;
};

static exo_status
call_head(exo_time deadline, exo_err *err)
{
    char *text = NULL;
    exo_status st = exo_cluster_why(cluster, "default", "nobody", deadline, &text, err);
    exo_free(text);
    return st == EXO_NOT_FOUND ? EXO_OK
                               : exo_fail(err, EXO_FAILED, "why: %d: %s", (int)st, err->text);
}

static exo_status
call_actor(exo_time deadline, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    uint64_t nonce = 7;
    struct victim_reply out = {0};
    exo_status st = exo_call(runtime, victim, "poke", exo_payload_borrow(&nonce, sizeof nonce),
                             deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    if (st == EXO_OK && reply->size == sizeof out)
        memcpy(&out, reply->data, sizeof out);
    exo_future_drop(&future);
    return st != EXO_OK || out.nonce == nonce ? st
                                              : exo_fail(err, EXO_FAILED, "another one's reply");
}

static void
sleep_until(exo_time at)
{
    exo_time left = at - processes_now();
    if (left > 0)
        usleep((useconds_t)(left / EXO_US));
}

static void *
call_honestly(void *argument)
{
    struct caller *c = argument;
    for (exo_time due = c->began; due < c->until && c->count < c->most && !all.failed;
         due += EVERY) {
        exo_err err = {0};
        sleep_until(due);
        exo_status st = c->call(due + PATIENCE, &err);
        c->took[c->count++] = processes_now() - due;
        if (st != EXO_OK) {
            fprintf(stderr, "an honest call to the %s: %s\n", c->what, err.text);
            all.failed = true;
        }
    }
    return NULL;
}

/* Memory of head and worker. */
struct use {
    unsigned long head, worker; /* kB */
};

static struct use
use_now(void)
{
    return (struct use){processes_memory(all.head),
                        processes_memory(processes_host_of(all.workers[0]))};
}

static int
compare(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return (x > y) - (x < y);
}

static void
print_times(const char *when, struct caller *c)
{
    qsort(c->took, c->count, sizeof *c->took, compare);
    if (c->count > 0)
        printf("  %-7s %-6s %8zu calls  p50 %8.2f ms  p99 %8.2f ms  p99.9 %8.2f ms  longest %8.1f "
               "ms\n",
               when, c->what, c->count, (double)c->took[c->count / 2] / 1e6,
               (double)c->took[c->count * 99 / 100] / 1e6,
               (double)c->took[c->count * 999 / 1000] / 1e6, (double)c->took[c->count - 1] / 1e6);
}

/* Calls head and actor for a time. Returns the largest memory seen. */
static struct use
call_both(const char *when, exo_time length)
{
    struct caller callers[CALLERS] = {[HEAD] = {.what = "head", .call = call_head},
                                      [ACTOR] = {.what = "actor", .call = call_actor}};
    struct use most = {0};
    exo_time began = processes_now();
    for (int i = 0; i < CALLERS; i++) {
        struct caller *c = &callers[i];
        c->began = began + i * EVERY / CALLERS;
        c->until = c->began + length;
        c->most = (size_t)(length / EVERY) + 1;
        CHECK((c->took = exo_calloc(c->most, sizeof *c->took)));
        CHECK(pthread_create(&c->thread, NULL, call_honestly, c) == 0);
    }
    while (processes_now() < began + length) {
        struct use now = use_now();
        most.head = now.head > most.head ? now.head : most.head;
        most.worker = now.worker > most.worker ? now.worker : most.worker;
        usleep(20000);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        print_times(when, &callers[i]);
        exo_free(callers[i].took);
    }
    return most;
}

static void
expect_bounded(const char *kind, const char *what, unsigned long before, unsigned long most,
               unsigned long quota)
{
    unsigned long more = most > before ? (most - before) / 1024 : 0;
    printf("  %-6s %lu MB, at most %lu more (quota %lu)\n", what, before / 1024, more, quota);
    if (more <= quota || SHADOWED)
        return;
    fprintf(stderr, "%s: the %s has taken %lu MB more, and may take %lu\n", kind, what, more,
            quota);
    all.failed = true;
}

static void
try(const hostile_kind *kind, uint64_t seconds)
{
    int rein = -1;
    exo_time length = (exo_time)seconds * EXO_SECOND;
    printf("%s: %s\n", kind->name, kind->what);
    call_both("without", length / 4 < ALONE ? length / 4 : ALONE);
    struct use before = use_now();
    pid_t pid = start_hostile(kind->name, &rein);
    struct use most = call_both("beside", length);
    end_hostile(kind->name, pid, rein);
    expect_bounded(kind->name, "head", before.head, most.head, kind->head_mb);
    expect_bounded(kind->name, "worker", before.worker, most.worker, kind->worker_mb);
    fflush(stdout);
}

/* Is the name in the comma-separated list? A list of NULL has every name. */
static bool
is_wanted(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == 0))
            return true;
    return !list;
}

static exo_ref
spawn(const char *name)
{
    const char *plugin = PROCESSES_PLUGIN("victim");
    exo_ref ref = {0};
    exo_err err = {0};
    if (exo_spawn_class(runtime, "victim",
                        &(exo_spawn_opts){.name = name, .plugins = &plugin, .num_plugins = 1},
                        processes_now() + PATIENCE, &ref, &err) != EXO_OK)
        fprintf(stderr, "no victim: %s\n", err.text);
    CHECK(ref.id);
    return ref;
}

int
main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--be") == 0)
        return hostile_be(argv[2], &(hostile_place){argv[3], argv[4], strtoull(argv[5], NULL, 10)});
    uint64_t seconds = processes_setting("EXO_HOSTILE_SECONDS", 1);
    const char *only = getenv("EXO_HOSTILE_KIND");
    exo_err err = {0};
    const hostile_kind *kind;
    processes_open(&all);
    CHECK(processes_start_head(&all) && processes_start_worker(&all, 0, true));
    snprintf(worker_endpoint, sizeof worker_endpoint, "ipc://%s/t/worker-%d-0", all.folder,
             (int)processes_host_of(all.workers[0]));
    cluster = processes_join(&all, "honest", &runtime);
    CHECK(cluster);
    victim = spawn("victim");
    CHECK(exo_ref_export(runtime, spawn("prey"), &prey, &err) == EXO_OK);
    for (size_t i = 0; (kind = hostile_kind_at(i)) && !all.failed; i++)
        if (is_wanted(only, kind->name))
            try(kind, seconds);
    processes_leave(&cluster, &runtime);
    bool good = processes_close(&all);
    printf("%s\n", good ? "good" : "failed");
    return good ? 0 : 1;
}
