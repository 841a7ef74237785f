/* The driver of a job: it spawns four actors of a class that a plugin has (primes.c), and gives
 * each actor the next range of numbers as soon as the last one is done. One call decides where the
 * actors live: after exo_cluster_join on the workers of a cluster, without it in this process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "primes.h"

enum {
    ACTORS = 4,
    RANGE = 10000,
    LAST = 500000
};

struct job {
    exo_ref actors[ACTORS];
    exo_future *futures[ACTORS]; /* the call of each actor; NULL: none */
    uint32_t next, primes, ranges;
};

static exo_time
in(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static exo_status
give_work(exo_runtime *runtime, struct job *job, size_t i, exo_err *err)
{
    exo_payload args;
    exo_status st = exo_payload_copy(&args, &(struct range){job->next, job->next + RANGE},
                                     sizeof(struct range));
    if (st == EXO_OK)
        st = exo_call(runtime, job->actors[i], "count", args, in(60 * EXO_SECOND), &job->futures[i],
                      err);
    job->next += RANGE;
    return st;
}

static exo_status
run(exo_runtime *runtime, struct job *job, exo_err *err)
{
    static const char *const plugins[] = {PLUGIN}; /* the same path on every host */
    static const exo_resource cpu = {.name = "cpus", .amount = 1};
    const exo_spawn_opts opts = {.plugins = plugins,
                                 .num_plugins = 1,
                                 .placement = EXO_PLACE_SPREAD,
                                 .resources = &cpu, /* each actor takes a free CPU of its worker */
                                 .num_resources = 1};
    exo_status st = EXO_OK;
    for (size_t i = 0; i < ACTORS && st == EXO_OK; i++) {
        st = exo_spawn_class(runtime, "example.primes", &opts, in(20 * EXO_SECOND), &job->actors[i],
                             err);
        if (st == EXO_OK)
            st = give_work(runtime, job, i, err);
    }
    while (job->ranges < LAST / RANGE && st == EXO_OK) {
        size_t i, at = 0, waiting[ACTORS];
        exo_future *list[ACTORS];
        const exo_payload *reply;
        uint32_t primes;
        for (i = 0; i < ACTORS; i++) {
            if (job->futures[i]) {
                waiting[at] = i;
                list[at++] = job->futures[i];
            }
        }
        st = exo_wait_any(list, at, in(60 * EXO_SECOND), &at, err);
        if (st == EXO_OK)
            st = exo_wait(list[at], in(0), &reply, err);
        if (st != EXO_OK)
            break;
        memcpy(&primes, reply->data, sizeof primes);
        job->primes += primes;
        job->ranges++;
        exo_future_drop(&job->futures[waiting[at]]);
        if (job->next < LAST)
            st = give_work(runtime, job, waiting[at], err);
    }
    for (size_t i = 0; i < ACTORS; i++)
        exo_future_drop(&job->futures[i]);
    return st;
}

int
main(int argc, char **argv)
{
    const char *head =
        argc == 3 && strcmp(argv[1], "--head") == 0 ? argv[2] : getenv("EXOGYM_HEAD");
    struct job job = {0};
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL;
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(
            &cluster, runtime,
            &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head, .job = "primes"},
            in(10 * EXO_SECOND), &err);
    if (st == EXO_OK)
        st = run(runtime, &job, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "driver: %s\n", err.text);
        return EXIT_FAILURE;
    }
    printf("%u primes below %u, counted by %u actors in %u calls\n", job.primes, (unsigned)LAST,
           (unsigned)ACTORS, job.ranges);
    exo_cluster_leave(cluster); /* ends the job and its actors */
    st = exo_runtime_close(&runtime, in(10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
