/* Actors under the thread sanitizer: many callers, cancellations, kills, links, names that are taken and left, and a runtime that is
 * closed under load. Every future must be completed exactly once and every payload released exactly once. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/exogym.h>

#include "check.h"

enum {
    CALLERS = 4,
    ROUNDS = 300
};

static atomic_long payloads; /* made and not yet released */

static void
count_release(void *data)
{
    payloads--;
    free(data);
}

static exo_payload
counted(uint64_t value)
{
    uint64_t *data = malloc(sizeof *data);
    *data = value;
    payloads++;
    return (exo_payload){.data = data, .size = sizeof *data, .release = count_release};
}

struct counter {
    uint64_t sum; /* plain: the lane alone touches it */
};

static exo_status
add(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)err;
    struct counter *c = self;
    c->sum += *(const uint64_t *)args->data;
    *reply = counted(c->sum);
    return EXO_OK;
}

static exo_status
spin(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    while (!exo_call_cancelled(call))
        sched_yield();
    return exo_fail(err, EXO_CANCELLED, "asked to");
}

static const exo_lane_class lanes[] = {{.name = "light", .capacity = 1 << 16},
                                       {.name = "heavy", .blocking = true, .max_concurrency = 2}};
static const exo_method methods[] = {{.name = "add", .lane = 0, .run = add},
                                     {.name = "heavy_add", .lane = 1, .run = spin},
                                     {.name = "spin", .lane = 1, .run = spin}};
static const exo_actor_class counter_class = {.name = "counter",
                                              .state_size = sizeof(struct counter),
                                              .lanes = lanes,
                                              .num_lanes = 2,
                                              .methods = methods,
                                              .num_methods = 3};

struct scene {
    exo_runtime *runtime;
    exo_ref actor;
    atomic_bool stop;
};

static void
run_threads(void *(*main)(void *), void *argument)
{
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&threads[i], NULL, main, argument) == 0);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static exo_time
soon(struct scene *s)
{
    return exo_deadline(exo_runtime_clock(s->runtime), 60 * EXO_SECOND);
}

static void *
call_and_wait(void *argument)
{
    struct scene *s = argument;
    for (int i = 0; i < ROUNDS; i++) {
        exo_future *f = NULL;
        exo_status st = exo_call(s->runtime, s->actor, "add", counted(1), soon(s), &f, NULL);
        CHECK(st == EXO_OK);
        const exo_payload *reply = NULL;
        CHECK(exo_wait(f, soon(s), &reply, NULL) == EXO_OK && reply->size == 8);
        exo_future_drop(&f);
    }
    return NULL;
}

static void
many_callers(void)
{
    struct scene s = {0};
    CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 3}, NULL) == EXO_OK);
    CHECK(exo_spawn(s.runtime, &counter_class, NULL, &s.actor, NULL) == EXO_OK);
    run_threads(call_and_wait, &s);
    exo_future *f = NULL;
    const exo_payload *reply = NULL;
    CHECK(exo_call(s.runtime, s.actor, "add", counted(0), soon(&s), &f, NULL) == EXO_OK);
    CHECK(exo_wait(f, soon(&s), &reply, NULL) == EXO_OK);
    CHECK(*(const uint64_t *)reply->data == CALLERS * ROUNDS);
    exo_future_drop(&f);
    CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    CHECK(payloads == 0);
}

/* Calls that are cancelled, time out, or meet the death of their actor. */
static void *
call_and_cancel(void *argument)
{
    struct scene *s = argument;
    for (int i = 0; i < ROUNDS; i++) {
        exo_future *f[3] = {NULL};
        size_t count = 0, index = 0;
        for (int k = 0; k < 3; k++)
            if (exo_call(s->runtime, s->actor, k == 1 ? "spin" : "add", counted(1), soon(s), &f[count], NULL) == EXO_OK)
                count++;
        if (count == 0)
            break;
        if (i % 2)
            exo_cancel(f[count - 1]);
        for (size_t k = 0; k < count; k++)
            exo_cancel(f[k]);
        CHECK(exo_wait_any(f, count, soon(s), &index, NULL) == EXO_OK);
        exo_status st = exo_wait_all(f, count, soon(s), NULL);
        CHECK(st == EXO_OK || st == EXO_CANCELLED || st == EXO_PEER_LOST);
        for (size_t k = 0; k < count; k++) {
            CHECK(exo_future_ready(f[k]));
            exo_future_drop(&f[k]);
        }
    }
    return NULL;
}

static void
cancel_and_kill(bool drain)
{
    struct scene s = {0};
    pthread_t threads[CALLERS];
    exo_future *died = NULL;
    CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 2}, NULL) == EXO_OK);
    CHECK(exo_spawn(s.runtime, &counter_class, &(exo_spawn_opts){.name = "victim"}, &s.actor, NULL) == EXO_OK);
    CHECK(exo_monitor(s.runtime, s.actor, &died, NULL) == EXO_OK);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_and_cancel, &s) == 0);
    struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    CHECK((drain ? exo_stop(s.runtime, s.actor, true, NULL) : exo_kill(s.runtime, s.actor, "a test", NULL)) == EXO_OK);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(exo_wait(died, soon(&s), NULL, NULL) == (drain ? EXO_OK : EXO_PEER_LOST));
    exo_future_drop(&died);
    CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    CHECK(payloads == 0);
}

/* One name, taken by whoever comes first, killed by anybody: a reference must never be to a dead life that was alive later. */
static void *
fight_for_a_name(void *argument)
{
    struct scene *s = argument;
    for (int i = 0; i < ROUNDS; i++) {
        exo_ref ref = {0};
        exo_status st =
            exo_spawn(s->runtime, &counter_class, &(exo_spawn_opts){.name = "one", .get_if_exists = true}, &ref, NULL);
        CHECK(st == EXO_OK && ref.id != 0);
        exo_future *f = NULL;
        st = exo_call(s->runtime, ref, "add", counted(1), soon(s), &f, NULL);
        if (st == EXO_OK) {
            st = exo_wait(f, soon(s), NULL, NULL);
            exo_future_drop(&f);
        }
        CHECK(st == EXO_OK || st == EXO_PEER_LOST);
        if (i % 3 == 0)
            exo_kill(s->runtime, ref, "to make room", NULL);
        exo_ref found = {0};
        st = exo_get_actor(s->runtime, NULL, "one", &found, NULL);
        CHECK(st == EXO_OK || st == EXO_NOT_FOUND);
        CHECK(i % 3 != 0 || found.id != ref.id);
    }
    return NULL;
}

static void
names(void)
{
    struct scene s = {0};
    CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 2}, NULL) == EXO_OK);
    run_threads(fight_for_a_name, &s);
    CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    CHECK(payloads == 0);
}

/* A ring of links: one death takes all, from wherever it starts. */
static void
links(void)
{
    enum {
        RING = 16
    };
    for (int round = 0; round < 20; round++) {
        struct scene s = {0};
        exo_ref ring[RING];
        exo_future *died[RING];
        CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 2}, NULL) == EXO_OK);
        for (int i = 0; i < RING; i++) {
            CHECK(exo_spawn(s.runtime, &counter_class, NULL, &ring[i], NULL) == EXO_OK);
            CHECK(exo_monitor(s.runtime, ring[i], &died[i], NULL) == EXO_OK);
            if (i)
                CHECK(exo_link(s.runtime, ring[i], ring[i - 1], NULL) == EXO_OK);
        }
        CHECK(exo_kill(s.runtime, ring[round % RING], "the first", NULL) == EXO_OK);
        for (int i = 0; i < RING; i++) {
            CHECK(exo_wait(died[i], soon(&s), NULL, NULL) == EXO_PEER_LOST);
            exo_future_drop(&died[i]);
        }
        CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    }
}

static void *
call_until_closed(void *argument)
{
    struct scene *s = argument;
    while (!atomic_load(&s->stop)) {
        exo_future *f = NULL;
        if (exo_call(s->runtime, s->actor, "spin", counted(1), soon(s), &f, NULL) == EXO_OK) {
            exo_cancel(f);
            exo_future_drop(&f);
        }
    }
    return NULL;
}

/* Actors with work running and queued; callers have ended before the runtime goes, as they must. */
static void
close_under_load(void)
{
    for (int round = 0; round < 5; round++) {
        struct scene s = {0};
        pthread_t thread;
        CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 2}, NULL) == EXO_OK);
        CHECK(exo_spawn(s.runtime, &counter_class, NULL, &s.actor, NULL) == EXO_OK);
        CHECK(pthread_create(&thread, NULL, call_until_closed, &s) == 0);
        for (int i = 0; i < 50; i++)
            exo_send(s.runtime, s.actor, "add", counted(1), soon(&s), NULL);
        exo_send(s.runtime, s.actor, "spin", counted(1), soon(&s), NULL);
        s.stop = true;
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
        CHECK(payloads == 0);
    }
}

int
main(void)
{
    many_callers();
    cancel_and_kill(false);
    cancel_and_kill(true);
    names();
    links();
    close_under_load();
    puts("6 passed, 0 failed");
    return 0;
}
