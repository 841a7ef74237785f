/* Futures: concurrent calls, waiting for the first of several, deadlines, and cancellation.
 *
 * The actor estimates pi: it throws darts at a square and counts those that hit the inscribed
 * circle. It has a blocking lane with four threads, so four calls run at once.
 *
 * CMakeLists.txt builds this file twice: as the program, and as a plugin, from which the workers of
 * a cluster load the actor's class.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

/* --- The actor -------------------------------------------------------------------------------- */

struct throws {
    uint32_t player; /* each player has its own random numbers: the sum is the same in any order */
    uint64_t darts;
};

static exo_status
throw_darts(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *err)
{
    (void)self; /* no state: with four calls at once it would need a lock or atomics */
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
        if (i % 4096 == 0 && exo_call_cancelled(call)) /* a long method asks now and then */
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

/* --- The caller ------------------------------------------------------------------------------- */

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
    exo_payload args; /* a copy, since the call may outlive this function's variables */
    exo_status st = exo_payload_copy(&args, &(struct throws){.player = player, .darts = count},
                                     sizeof(struct throws));
    return st == EXO_OK ? exo_call(runtime, actor, "throw", args, deadline, out, err) : st;
}

/* Makes four calls at once, and takes each result as it arrives. */
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
            st = exo_wait(futures[i], in(0), &reply, err); /* complete: does not wait */
        if (st != EXO_OK)
            break;
        memcpy(&hits, reply->data, sizeof hits);
        printf("player %" PRIu32 " hit %" PRIu64 " times\n", player[i], hits);
        sum += hits;
        exo_future_drop(&futures[i]); /* frees the reply, too */
        futures[i] = futures[--left]; /* the last future takes its place */
        player[i] = player[left];
    }
    while (left > 0)
        exo_future_drop(&futures[--left]);
    if (st == EXO_OK)
        printf("pi is about %.4f\n", 4.0 * (double)sum / ((double)PLAYERS * DARTS));
    return st;
}

/* Four calls that would take years keep all four threads busy. A fifth one misses its deadline, and
 * the four are cancelled. */
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
        /* The deadline of a wait ends the wait only: the call continues. */
        exo_status waited = exo_wait(endless[0], in(10 * EXO_MS), NULL, &reason);
        printf("waiting: %s\n", exo_status_text(waited));
        /* The deadline of a call drops the call if it has not begun by then. */
        waited = exo_wait(late, in(60 * EXO_SECOND), NULL, &reason);
        printf("the fifth call: %s\n", exo_status_text(waited));
        /* A cancellation completes the future at once and sets a flag. The method ends when it next
         * asks for that flag. */
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
    exo_cluster *cluster = NULL; /* stays NULL without --head: all actors live in this process */
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
