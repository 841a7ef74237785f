/* Futures: calls that run side by side, whichever comes first, deadlines, and cancelling.
 *
 * The actor throws darts at a square and counts those that hit the circle in it, which gives pi. Its lane is a blocking one with four
 * threads, so four calls run at once. This file is built twice: as the program, and as a plugin that brings the class to the workers of
 * a cluster, which have never heard of it (CMakeLists.txt).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

/* --- The actor --------------------------------------------------------------------------------------------------------------- */

struct throws {
    uint32_t player; /* each has random numbers of its own: the sum is the same in any order */
    uint64_t darts;
};

static exo_status
throw_darts(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *err)
{
    (void)self; /* stateless: with four calls at once, state would need a lock or atomics */
    struct throws t;
    exo_rng rng;
    uint64_t hits = 0;
    if (args->size != sizeof t)
        return exo_fail(err, EXO_INVAL, "throw: %zu bytes of arguments instead of %zu", args->size,
                        sizeof t);
    memcpy(&t, args->data, sizeof t);
    exo_rng_init(&rng, 1, EXO_RNG_USER, t.player, 0);
    for (uint64_t i = 0; i < t.darts; i++) {
        float x = exo_rng_uniform(&rng), y = exo_rng_uniform(&rng);
        hits += x * x + y * y < 1;
        if (i % 4096 == 0 &&
            exo_call_cancelled(call)) /* whoever computes for long asks now and then */
            return exo_fail(err, EXO_CANCELLED, "stopped after %" PRIu64 " darts", i);
    }
    return exo_payload_copy(reply, &hits, sizeof hits);
}

static const exo_lane_class lanes[] = {
    {.name = "throwing", .blocking = true, .max_concurrency = 4}};
static const exo_method methods[] = {{.name = "throw", .run = throw_darts}};
static const exo_actor_class darts = {
    .name = "example.darts", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 1};

EXO_PLUGIN
{
    return exo_actor_class_register(&darts, err);
}

/* --- Who calls it -------------------------------------------------------------------------------------------------------------- */

enum {
    PLAYERS = 4,
    DARTS = 2000000
};

static exo_time
in(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static exo_status
begin(exo_runtime *runtime, exo_ref actor, uint32_t player, uint64_t count, exo_time deadline,
      exo_future **out, exo_err *err)
{
    exo_payload args; /* a copy: a call may outlive this function's variables */
    exo_status st = exo_payload_copy(&args, &(struct throws){.player = player, .darts = count},
                                     sizeof(struct throws));
    return st == EXO_OK ? exo_call(runtime, actor, "throw", args, deadline, out, err) : st;
}

/* Four calls at once; each result as soon as it is there, in the order in which they come. */
static exo_status
side_by_side(exo_runtime *runtime, exo_ref actor, exo_err *err)
{
    exo_future *futures[PLAYERS] = {0};
    uint32_t player[PLAYERS];
    uint64_t hits, sum = 0;
    const exo_payload *reply;
    size_t left = 0, i;
    exo_status st = EXO_OK;
    for (; left < PLAYERS && st == EXO_OK; left += st == EXO_OK) {
        player[left] = (uint32_t)left;
        st = begin(runtime, actor, player[left], DARTS, in(60 * EXO_SECOND), &futures[left], err);
    }
    while (left > 0 && st == EXO_OK) {
        st = exo_wait_any(futures, left, in(60 * EXO_SECOND), &i, err);
        if (st == EXO_OK)
            st = exo_wait(futures[i], in(0), &reply,
                          err); /* it is complete: this gives its status and its reply */
        if (st != EXO_OK)
            break;
        memcpy(&hits, reply->data, sizeof hits);
        printf("player %" PRIu32 " hit %" PRIu64 " times\n", player[i], hits);
        sum += hits;
        exo_future_drop(&futures[i]); /* the reply goes with it */
        futures[i] = futures[--left]; /* the last one takes its place */
        player[i] = player[left];
    }
    while (left > 0)
        exo_future_drop(&futures[--left]);
    if (st == EXO_OK)
        printf("pi is about %.4f\n", 4.0 * (double)sum / ((double)PLAYERS * DARTS));
    return st;
}

/* Calls that would take years keep all four threads busy. */
static exo_status
patience(exo_runtime *runtime, exo_ref actor, exo_err *err)
{
    exo_future *endless[PLAYERS] = {0}, *late = NULL;
    exo_status st = EXO_OK;
    for (uint32_t i = 0; i < PLAYERS && st == EXO_OK; i++)
        st = begin(runtime, actor, i, UINT64_MAX, in(60 * EXO_SECOND), &endless[i], err);
    if (st == EXO_OK)
        st = begin(runtime, actor, 0, DARTS, in(50 * EXO_MS), &late, err);
    if (st == EXO_OK) {
        exo_err reason = {0};
        /* A wait's own deadline ends the wait; the call goes on, and may be waited for again. */
        exo_status waited = exo_wait(endless[0], in(10 * EXO_MS), NULL, &reason);
        printf("waiting: %s\n", exo_status_text(waited));
        /* A call's deadline drops it if it has not begun by then. */
        waited = exo_wait(late, in(60 * EXO_SECOND), NULL, &reason);
        printf("the fifth call: %s\n", exo_status_text(waited));
        /* Cancelling completes the future at once and flags the method, which gives up when it looks. */
        for (size_t i = 0; i < PLAYERS; i++)
            exo_cancel(endless[i]);
        waited = exo_wait(endless[0], in(60 * EXO_SECOND), NULL, &reason);
        printf("the first one: %s\n", exo_status_text(waited));
    }
    exo_future_drop(&late);
    for (size_t i = 0; i < PLAYERS; i++)
        exo_future_drop(&endless[i]);
    return st;
}

int
main(int argc, char **argv)
{
    static const char *const plugins[] = {PLUGIN};
    const char *head =
        argc == 3 && strcmp(argv[1], "--head") == 0 ? argv[2] : getenv("EXOGYM_HEAD");
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL; /* none: all of it is in this process */
    exo_ref actor;
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(&cluster, runtime,
                              &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head},
                              in(10 * EXO_SECOND), &err);
    if (st == EXO_OK)
        st = exo_spawn_class(runtime, "example.darts",
                             &(exo_spawn_opts){.plugins = plugins, .num_plugins = 1},
                             in(10 * EXO_SECOND), &actor, &err);
    if (st == EXO_OK)
        st = side_by_side(runtime, actor, &err);
    if (st == EXO_OK)
        st = patience(runtime, actor, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "futures: %s\n", err.text);
        return EXIT_FAILURE;
    }
    exo_cluster_leave(cluster);
    st = exo_runtime_close(&runtime, in(10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
