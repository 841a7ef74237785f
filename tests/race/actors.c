/* Actors under the thread sanitizer: concurrent callers, cancellations, kills, links, names that
 * are taken and given up, and a runtime that is closed under load. Every future must be completed
 * exactly once and every payload released exactly once.
 *
 * Each test owns its `struct scene`, whose threads end before it does. Read next:
 * runtime/actor/runtime_impl.h; docs/concurrency.md. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/exogym.h>

#include "actor/future.h"
#include "support/check.h"

enum {
    CALLERS = 4,
    ROUNDS = 300
};

static atomic_long payloads; /* created and not yet released */

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
    uint64_t sum; /* not atomic: only the lane uses it */
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
                                     {.name = "spin", .lane = 1, .run = spin}};
static const exo_actor_class counter_class = {.name = "counter",
                                              .state_size = sizeof(struct counter),
                                              .lanes = lanes,
                                              .num_lanes = 2,
                                              .methods = methods,
                                              .num_methods = 2};

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

/* Makes calls that are cancelled or meet the death of their actor. */
static void *
call_and_cancel(void *argument)
{
    struct scene *s = argument;
    for (int i = 0; i < ROUNDS; i++) {
        exo_future *f[3] = {NULL};
        size_t count = 0, index = 0;
        for (int k = 0; k < 3; k++)
            if (exo_call(s->runtime, s->actor, k == 1 ? "spin" : "add", counted(1), soon(s),
                         &f[count], NULL) == EXO_OK)
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
    CHECK(exo_spawn(s.runtime, &counter_class, &(exo_spawn_opts){.name = "victim"}, &s.actor,
                    NULL) == EXO_OK);
    CHECK(exo_monitor(s.runtime, s.actor, &died, NULL) == EXO_OK);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_and_cancel, &s) == 0);
    struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    CHECK((drain ? exo_stop(s.runtime, s.actor, true, NULL)
                 : exo_kill(s.runtime, s.actor, "a test", NULL)) == EXO_OK);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(exo_wait(died, soon(&s), NULL, NULL) == (drain ? EXO_OK : EXO_PEER_LOST));
    exo_future_drop(&died);
    CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    CHECK(payloads == 0);
}

/* Threads take and kill one name: no thread may find a life by the name after it has killed that
 * life. */
static void *
fight_for_a_name(void *argument)
{
    struct scene *s = argument;
    for (int i = 0; i < ROUNDS; i++) {
        exo_ref ref = {0};
        exo_status st =
            exo_spawn(s->runtime, &counter_class,
                      &(exo_spawn_opts){.name = "one", .get_if_exists = true}, &ref, NULL);
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

/* A ring of links: the death of any actor kills all of them. */
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

/* Closes a runtime whose actors have running and queued work. The caller's thread ends before the
 * close, as it must. */
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

/* --- Lock-free parts -------------------------------------------------------------------------- */

/* An actor replies with its own reference. Threads make actors in a few places, call the actor of a
 * place, and kill it. Slots are reused again and again, and a call must reach the intended life or
 * none. */
enum {
    PLACES = 8
};

static _Atomic uint64_t places[PLACES];

static exo_status
who(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    (void)args;
    (void)err;
    *reply = counted(exo_call_self(call).id);
    return EXO_OK;
}

static const exo_method who_methods[] = {{.name = "who", .run = who}};
static const exo_actor_class who_class = {.name = "who", .methods = who_methods, .num_methods = 1};

static void *
replace_and_call(void *argument)
{
    struct scene *s = argument;
    static atomic_uint salt;
    unsigned random = ++salt * 2654435761u;
    for (int i = 0; i < 4 * ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        _Atomic uint64_t *place = &places[(random >> 16) % PLACES];
        exo_ref there = {.id = atomic_load(place)};
        if ((random >> 24) % 4 == 0) {
            exo_ref fresh;
            CHECK(exo_spawn(s->runtime, &who_class, NULL, &fresh, NULL) == EXO_OK);
            exo_ref old = {.id = atomic_exchange(place, fresh.id)};
            if (old.id)
                CHECK(exo_kill(s->runtime, old, "replaced", NULL) == EXO_OK);
            CHECK(exo_kill(s->runtime, old, "twice", NULL) == EXO_PEER_LOST);
            continue;
        }
        exo_future *f = NULL;
        const exo_payload *reply = NULL;
        exo_status st = exo_call(s->runtime, there, "who", counted(0), soon(s), &f, NULL);
        if (st == EXO_OK)
            st = exo_wait(f, soon(s), &reply, NULL);
        CHECK(st == EXO_OK || st == EXO_PEER_LOST);
        if (st == EXO_OK)
            CHECK(*(const uint64_t *)reply->data == there.id);
        exo_future_drop(&f);
    }
    return NULL;
}

static void
slots(void)
{
    struct scene s = {0};
    CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 2}, NULL) == EXO_OK);
    run_threads(replace_and_call, &s);
    CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
    CHECK(payloads == 0);
}

/* Inboxes that are closed while callers send. After a drain, every accepted message was served
 * exactly once, and in each caller's order; after a kill, at most once. */
enum {
    BROAD = 3
};

static atomic_long taken, served;
static atomic_int at_once[3];

struct ordered {
    uint64_t last[CALLERS];
};

static void
enter_lane(int lane, int limit)
{
    CHECK(++at_once[lane] <= limit);
}

static exo_status
serve_narrow(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
             exo_err *err)
{
    (void)call;
    (void)reply;
    (void)err;
    struct ordered *o = self;
    uint64_t value = *(const uint64_t *)args->data, caller = value >> 32,
             number = value & UINT32_MAX;
    enter_lane(0, 1);
    CHECK(number > o->last[caller]);
    o->last[caller] = number;
    served++;
    at_once[0]--;
    return EXO_OK;
}

static exo_status
serve_broad(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    enter_lane(1, BROAD);
    sched_yield();
    served++;
    at_once[1]--;
    return EXO_OK;
}

static exo_status
serve_own(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    enter_lane(2, 2);
    served++;
    at_once[2]--;
    return EXO_OK;
}

static const exo_lane_class fire_lanes[] = {
    {.name = "narrow", .capacity = 32},
    {.name = "broad", .capacity = 32, .max_concurrency = BROAD},
    {.name = "own", .capacity = 32, .blocking = true, .max_concurrency = 2}};
static const exo_method fire_methods[] = {{.name = "narrow", .lane = 0, .run = serve_narrow},
                                          {.name = "broad", .lane = 1, .run = serve_broad},
                                          {.name = "own", .lane = 2, .run = serve_own}};
static const exo_actor_class fire_class = {.name = "fire",
                                           .state_size = sizeof(struct ordered),
                                           .lanes = fire_lanes,
                                           .num_lanes = 3,
                                           .methods = fire_methods,
                                           .num_methods = 3};

static void *
fire(void *argument)
{
    static atomic_uint callers;
    struct scene *s = argument;
    uint64_t caller = callers++ % CALLERS;
    for (uint64_t i = 1;; i++) {
        const char *method = fire_methods[i % 3].name;
        exo_status st =
            exo_send(s->runtime, s->actor, method, counted(caller << 32 | i), INT64_MAX, NULL);
        if (st == EXO_PEER_LOST)
            return NULL;
        CHECK(st == EXO_OK || st == EXO_FULL);
        taken += st == EXO_OK;
        if (st == EXO_FULL)
            sched_yield();
    }
}

static void
close_inboxes(bool drain)
{
    for (int round = 0; round < 20; round++) {
        struct scene s = {0};
        pthread_t threads[CALLERS];
        exo_future *died = NULL;
        taken = served = 0;
        CHECK(exo_runtime_open(&s.runtime, &(exo_runtime_opts){.threads = 3}, NULL) == EXO_OK);
        CHECK(exo_spawn(s.runtime, &fire_class, NULL, &s.actor, NULL) == EXO_OK);
        CHECK(exo_monitor(s.runtime, s.actor, &died, NULL) == EXO_OK);
        for (int i = 0; i < CALLERS; i++)
            CHECK(pthread_create(&threads[i], NULL, fire, &s) == 0);
        while (served < 100)
            sched_yield();
        CHECK((drain ? exo_stop(s.runtime, s.actor, true, NULL)
                     : exo_kill(s.runtime, s.actor, "a test", NULL)) == EXO_OK);
        for (int i = 0; i < CALLERS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(exo_wait(died, soon(&s), NULL, NULL) == (drain ? EXO_OK : EXO_PEER_LOST));
        exo_future_drop(&died);
        CHECK(exo_runtime_close(&s.runtime, soon(&s), NULL) == EXO_OK);
        CHECK(drain ? served == taken : served <= taken);
        CHECK(payloads == 0);
    }
}

/* Futures that other threads complete, cancel and wait for, alone and with other futures. All
 * waiters must see one result, and no wake may be lost. */
struct meeting {
    exo_future *futures[2];
    atomic_int arrived;
    atomic_int completed; /* a set of bits: which results waiters have seen */
};

static void *
meet(void *argument)
{
    static atomic_uint roles;
    struct meeting *m = argument;
    size_t index = 9;
    exo_payload reply = counted(7);
    exo_time deadline = exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
    m->arrived++;
    switch (roles++ % CALLERS) {
    case 0:
        while (m->arrived < CALLERS)
            sched_yield();
        for (int i = 0; i < 5; i++) /* the other threads mostly sleep by now */
            sched_yield();
        exo_future_complete(m->futures[0], exo_future_begin(m->futures[0]) ? EXO_OK : EXO_FAILED,
                            NULL, &reply);
        exo_future_complete(m->futures[1], EXO_FAILED, "a reason", NULL);
        break;
    case 1:
        while (m->arrived < CALLERS)
            sched_yield();
        exo_cancel(m->futures[0]);
        CHECK(exo_future_ready(m->futures[0]));
        break;
    case 2:
        CHECK(exo_wait_any(m->futures, 2, deadline, &index, NULL) == EXO_OK && index < 2);
        break;
    default:
        break;
    }
    exo_status st = exo_wait(m->futures[0], deadline, NULL, NULL);
    CHECK(st == EXO_OK || st == EXO_CANCELLED);
    m->completed |= 1 << (st == EXO_OK);
    CHECK(exo_wait(m->futures[1], deadline, NULL, NULL) == EXO_FAILED);
    exo_payload_release(&reply);
    return NULL;
}

static void
futures(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct meeting m = {0};
        for (int i = 0; i < 2; i++)
            CHECK(exo_future_new(&m.futures[i], exo_clock_real(), INT64_MAX, NULL) == EXO_OK);
        run_threads(meet, &m);
        CHECK(m.completed == 1 || m.completed == 2);
        for (int i = 0; i < 2; i++)
            exo_future_drop(&m.futures[i]);
        CHECK(payloads == 0);
    }
}

/* --- Hooks ------------------------------------------------------------------------------------ */

/* One thread completes a future while another sets its second hook. Each hook is called once, with
 * its own context. */
struct hooked {
    atomic_uint round, ready, called[2];
    exo_future *future;
};

static void
count_hook(void *context, uint64_t tag, exo_future *future)
{
    struct hooked *h = context;
    CHECK(future == h->future);
    h->called[tag]++;
}

static const exo_future_hook hook = {.done = count_hook};

enum {
    HOOKED = 5000
};

static void *
complete_hooked(void *argument)
{
    struct hooked *h = argument;
    for (unsigned round = 1; round <= HOOKED; round++) {
        while (h->round < round)
            sched_yield();
        exo_future_complete(h->future, EXO_OK, NULL, NULL);
        h->ready = round;
    }
    return NULL;
}

static void
hooks(void)
{
    struct hooked h = {0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, complete_hooked, &h) == 0);
    for (unsigned round = 1; round <= HOOKED; round++) {
        CHECK(exo_future_new(&h.future, exo_clock_real(), INT64_MAX, NULL) == EXO_OK);
        exo_future_set_hook(h.future, &hook, &h, 0);
        h.round = round;
        /* the future is complete, and its first hook is about to be called */
        while (round % 2 && !exo_future_ready(h.future))
            sched_yield();
        exo_future_set_hook(h.future, &hook, &h, 1);
        while (h.ready < round)
            sched_yield();
        CHECK(h.called[0] == round && h.called[1] == round);
        exo_future_drop(&h.future);
    }
    pthread_join(thread, NULL);
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
    slots();
    close_inboxes(true);
    close_inboxes(false);
    futures();
    hooks();
    puts("11 passed, 0 failed");
    return 0;
}
