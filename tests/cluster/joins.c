/* Drivers and guests join and leave, again and again, while the head is killed at random moments
 * and restarted at once. A kill often comes between a member's Hello and its answer. Every member
 * joins as soon as there is a head, and no attempt leaves anything behind.
 *
 * EXO_CHAOS_ROUNDS: number of kills (40). EXO_CHAOS_SEED: seed of the moments. Each thread owns its
 * `struct joiner`; `stop` and `joins` are shared. Read next: tests/support/processes.h. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/actor.h>

#include "support/check.h"
#include "support/processes.h"

enum {
    JOINERS = 4
};

#define PATIENCE (60 * EXO_SECOND) /* of a join: far more than a head needs to restart */

/* One thread that joins and leaves. The thread owns it until it is joined. */
struct joiner {
    pthread_t thread;
    unsigned index;
    uint64_t seed, joined;
    char head[128], why[EXO_ERR_TEXT];
    bool failed;
};

static processes all;
static atomic_bool stop;
static atomic_ullong joins;

static void
one_join(struct joiner *j)
{
    exo_err err = {0};
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL;
    char job[32];
    snprintf(job, sizeof job, "job-%u-%llu", j->index, (unsigned long long)j->joined);
    const exo_cluster_opts opts = {.role = processes_random(&j->seed) % 4 ? EXO_ROLE_DRIVER
                                                                          : EXO_ROLE_GUEST,
                                   .cluster = "t",
                                   .folder = all.folder,
                                   .head = j->head,
                                   .job = job};
    CHECK(exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 1}, &err) == EXO_OK);
    exo_status st =
        exo_cluster_join(&cluster, runtime, &opts, exo_deadline(exo_clock_real(), PATIENCE), &err);
    j->failed = st != EXO_OK;
    snprintf(j->why, sizeof j->why, "%d %s", (int)st, err.text);
    exo_cluster_leave(cluster);
    CHECK(exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), PATIENCE), &err) == EXO_OK);
    exo_cluster_free(&cluster);
    j->joined += !j->failed;
    atomic_fetch_add(&joins, 1);
}

static void *
join_and_leave(void *argument)
{
    struct joiner *j = argument;
    while (!atomic_load(&stop) && !j->failed)
        one_join(j);
    return NULL;
}

/* Waits until more joins than `since` have ended: the head of this life has then answered
 * somebody. */
static bool
await_join(unsigned long long since)
{
    exo_time deadline = processes_now() + 2 * PATIENCE;
    while (atomic_load(&joins) == since && processes_now() < deadline)
        usleep(500);
    return atomic_load(&joins) != since;
}

static void
kill_the_head(void)
{
    kill(all.head, SIGKILL);
    CHECK(waitpid(all.head, NULL, 0) == all.head);
    all.head = 0;
}

int
main(void)
{
    uint64_t rounds = processes_setting("EXO_CHAOS_ROUNDS", 40), done = 0, joined = 0;
    uint64_t seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now());
    struct joiner joiners[JOINERS] = {0};
    printf("EXO_CHAOS_SEED=%llu EXO_CHAOS_ROUNDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)rounds);
    fflush(stdout);
    processes_open(&all);
    CHECK(processes_start_head(&all));
    unsigned descriptors = processes_descriptors(getpid());
    for (unsigned i = 0; i < JOINERS; i++) {
        joiners[i].index = i;
        joiners[i].seed = seed + i;
        snprintf(joiners[i].head, sizeof joiners[i].head, "ipc://%s/t/head", all.folder);
        CHECK(pthread_create(&joiners[i].thread, NULL, join_and_leave, &joiners[i]) == 0);
    }
    for (; done < rounds && !all.failed; done++) {
        usleep((useconds_t)(processes_random(&seed) % 20000));
        kill_the_head();
        unsigned long long before = atomic_load(&joins);
        if (!processes_start_head(&all)) {
            all.failed = true; /* processes_close shows the output of the processes */
            break;
        }
        all.failed = !await_join(before);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < JOINERS; i++) {
        pthread_join(joiners[i].thread, NULL);
        joined += joiners[i].joined;
        if (joiners[i].failed)
            fprintf(stderr, "joiner %u: %s\n", i, joiners[i].why);
        all.failed = all.failed || joiners[i].failed;
    }
    unsigned now = processes_descriptors(getpid());
    if (now > descriptors) {
        fprintf(stderr, "%u descriptors were %u\n", now, descriptors);
        all.failed = true;
    }
    bool good = processes_close(&all);
    printf("the head was killed %llu times, %llu joins: %s\n", (unsigned long long)done,
           (unsigned long long)joined, good ? "good" : "failed");
    return good ? 0 : 1;
}
