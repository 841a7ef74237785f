/* Reuse of names. Each round makes an actor, finds it by name, ends it in one of four ways, and
 * uses its name again at once. Every 50th round kills the actor's process. Afterwards memory and
 * descriptors have not grown.
 *
 * EXO_CHAOS_ROUNDS: number of rounds (1000). EXO_CHAOS_SEED: seed of the choices. The main thread
 * owns all state. Read next: tests/plugins/victim.c, the actor. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/actor.h>

#include "support/check.h"
#include "support/processes.h"
#include "support/victim.h"

#define PATIENCE (60 * EXO_SECOND) /* for anything: no step waits for a time */

enum {
    WORKERS = 2,
    KILL_EVERY = 50,
    WARM_UP = 60, /* rounds before memory and descriptors are measured */
    NAMES = 3
};

/* The sanitizers keep freed memory for a time, in the head too. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED true
#else
#define SANITIZED false
#endif

static processes all;
static exo_runtime *runtime;
static exo_cluster *cluster;
static uint64_t seed, round_number;

static exo_time
within(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: round %llu: %s: ", __FILE__, __LINE__,                         \
                    (unsigned long long)round_number, #condition);                                 \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            all.failed = true;                                                                     \
        }                                                                                          \
    } while (0)

static exo_status
poke(exo_ref ref, struct victim_reply *out, exo_err *err)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    const exo_payload *reply = NULL;
    uint64_t nonce = processes_random(&seed);
    CHECK(exo_payload_copy(&args, &nonce, sizeof nonce) == EXO_OK);
    exo_status st = exo_call(runtime, ref, "poke", args, within(PATIENCE), &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, within(2 * PATIENCE), &reply, err);
    if (st == EXO_OK) {
        CHECK(reply->size == sizeof *out);
        memcpy(out, reply->data, sizeof *out);
        EXPECT(out->nonce == nonce, "the reply is another call's");
        EXPECT(out->repeated == 0, "a call ran twice");
    }
    exo_future_drop(&future);
    return st;
}

static exo_status
spawn(const char *name, exo_ref *out, exo_err *err)
{
    const char *plugin = PROCESSES_PLUGIN("victim");
    return exo_spawn_class(runtime, "victim",
                           &(exo_spawn_opts){.name = name, .plugins = &plugin, .num_plugins = 1},
                           within(PATIENCE), out, err);
}

static unsigned
worker_of(pid_t host)
{
    unsigned i = 0;
    while (i < WORKERS && processes_host_of(all.workers[i]) != host)
        i++;
    CHECK(i < WORKERS);
    return i;
}

static void
restart_worker(unsigned i)
{
    int status;
    EXPECT(processes_await(all.workers[i], within(PATIENCE), &status), "the watcher does not end");
    EXPECT(processes_start_worker(&all, i, true), "the worker does not start");
}

static void
one_round(const char *name)
{
    exo_ref ref = {0}, second = {0}, found = {0};
    exo_err err = {0};
    struct victim_reply first = {0}, same = {0};
    exo_future *death = NULL;
    exo_status st = spawn(name, &ref, &err);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
    if (st != EXO_OK)
        return;
    st = spawn(name, &second, &err);
    EXPECT(st == EXO_EXISTS, "%d", (int)st);
    st = poke(ref, &first, &err);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
    EXPECT(first.runs == 1, "a new actor has run %llu calls", (unsigned long long)first.runs);
    st = exo_get_actor(runtime, NULL, name, &found, &err);
    EXPECT(st == EXO_OK && found.id == ref.id, "%d %s", (int)st, err.text);
    if (st == EXO_OK && (st = poke(found, &same, &err)) == EXO_OK)
        EXPECT(same.life == first.life, "a name led to two lives");
    st = exo_monitor(runtime, ref, &death, &err);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);

    bool process = round_number % KILL_EVERY == KILL_EVERY - 1;
    unsigned way = (unsigned)(processes_random(&seed) % 3);
    unsigned worker = process && first.pid ? worker_of((pid_t)first.pid) : 0;
    if (process && first.pid)
        kill((pid_t)first.pid, SIGKILL);
    else if (way == 0)
        exo_kill(runtime, ref, "the test", &err);
    else
        exo_stop(runtime, ref, way == 1, &err);
    if (death) {
        st = exo_wait(death, within(PATIENCE), NULL, &err);
        EXPECT(st == (process || way == 0 ? EXO_PEER_LOST : EXO_OK), "%d %s", (int)st, err.text);
    }
    exo_future_drop(&death);
    st = poke(ref, &same, &err);
    EXPECT(st == EXO_PEER_LOST, "a call to a dead actor: %d %s", (int)st, err.text);
    if (round_number % 2) {
        st = exo_get_actor(runtime, NULL, name, &found, &err);
        EXPECT(st == EXO_NOT_FOUND, "a dead actor's name: %d %s", (int)st, err.text);
    }
    if (round_number % 3) { /* the dead actor's name is free */
        st = spawn(name, &second, &err);
        EXPECT(st == EXO_OK, "a dead actor's name used again: %d %s", (int)st, err.text);
        if (st == EXO_OK) {
            st = poke(second, &same, &err);
            EXPECT(st == EXO_OK && same.life != first.life && same.runs == 1, "%d %s", (int)st,
                   err.text);
            if (exo_monitor(runtime, second, &death, &err) == EXO_OK) {
                exo_kill(runtime, second, "the test", &err);
                exo_wait(death, within(PATIENCE), NULL, &err);
                exo_future_drop(&death);
            }
        }
    }
    if (process)
        restart_worker(worker);
}

int
main(void)
{
    uint64_t rounds = processes_setting("EXO_CHAOS_ROUNDS", 1000),
             first_seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now());
    unsigned descriptors = 0, head_descriptors = 0;
    unsigned long here = 0, head = 0;
    char name[16];
    seed = first_seed;
    printf("EXO_CHAOS_SEED=%llu EXO_CHAOS_ROUNDS=%llu\n", (unsigned long long)first_seed,
           (unsigned long long)rounds);
    fflush(stdout);
    processes_open(&all);
    CHECK(processes_start_head(&all));
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK(processes_start_worker(&all, i, true));
    cluster = processes_join(&all, "names", &runtime);
    for (round_number = 0; round_number < rounds && !all.failed; round_number++) {
        if (round_number == WARM_UP) {
            descriptors = processes_descriptors(getpid());
            head_descriptors = processes_descriptors(all.head);
            here = processes_memory(getpid());
            head = processes_memory(all.head);
        }
        snprintf(name, sizeof name, "name-%u", (unsigned)(round_number % NAMES));
        one_round(name);
    }
    if (rounds > WARM_UP && !all.failed) {
        unsigned now = processes_descriptors(getpid()), head_now = processes_descriptors(all.head);
        EXPECT(now <= descriptors + 8, "%u descriptors were %u", now, descriptors);
        EXPECT(head_now <= head_descriptors + 8, "%u descriptors of the head were %u", head_now,
               head_descriptors);
        unsigned long grown = processes_memory(getpid()) - here,
                      head_grown = processes_memory(all.head) - head;
        printf("memory: driver %lu kB and %ld kB more, head %lu kB and %ld kB more\n", here,
               (long)grown, head, (long)head_grown);
        EXPECT(SANITIZED || ((long)grown < 4096 + (long)rounds &&
                             (long)head_grown < 4096 + 2 * (long)rounds),
               "memory has grown");
    }
    processes_leave(&cluster, &runtime);
    bool good = processes_close(&all);
    printf("%llu rounds: %s\n", (unsigned long long)round_number, good ? "good" : "failed");
    return good ? 0 : 1;
}
