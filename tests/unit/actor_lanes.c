/* Lanes of actors: how many messages are queued and run at once, their order, turns between busy
 * lanes, and what a lane still serves while its actor starts and stops.
 *
 * Each test owns its runtime. The counters are shared with the methods, and therefore atomic. Read
 * next: runtime/actor/lane.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/actor_room.h"

/* --- Bounds ------------------------------------------------------------------------------------ */

Test(actor_lanes, a_full_mailbox_refuses)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *f[6] = {call(&r, ref, "wait", NULL)};
    until_at_gate(1);
    for (int i = 1; i <= 4; i++)
        f[i] = call(&r, ref, "write_at_desk", "x");
    cr_expect_eq(exo_call(r.runtime, ref, "write_at_desk", (exo_payload){0}, FAR, &f[5], &r.err),
                 EXO_FULL);
    cr_expect(strstr(r.err.text, "desk"), "%s", r.err.text);
    gate = true;
    cr_expect_eq(exo_wait_all(f, 5, FAR, NULL), EXO_OK);
    for (int i = 0; i < 5; i++)
        exo_future_drop(&f[i]);
    room_release(&r);
}

Test(actor_lanes, lanes_do_not_wait_for_each_other)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *busy = call(&r, ref, "wait", NULL), *light = call(&r, ref, "write", "x");
    until_at_gate(1);
    cr_expect_eq(exo_wait(light, FAR, NULL, NULL), EXO_OK);
    cr_expect_not(exo_future_ready(busy));
    gate = true;
    cr_expect_eq(exo_wait(busy, FAR, NULL, NULL), EXO_OK);
    exo_future_drop(&busy);
    exo_future_drop(&light);
    room_release(&r);
}

Test(actor_lanes, max_concurrency_is_kept)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *f[5];
    for (int i = 0; i < 5; i++)
        f[i] = call(&r, ref, "wait_wide", NULL);
    until_at_gate(3);
    for (int i = 0; i < 1000; i++) {
        cr_assert_leq(at_gate, 3);
        sched_yield();
    }
    gate = true;
    cr_expect_eq(exo_wait_all(f, 5, FAR, NULL), EXO_OK);
    for (int i = 0; i < 5; i++)
        exo_future_drop(&f[i]);
    room_release(&r);
}

/* --- Order and fairness ----------------------------------------------------------------------- */

/* An actor that sends messages to itself and to another actor, or checks the order of its callers'
 * messages. */
struct walker {
    int steps, last[2];
};

static exo_runtime *walkers;
static exo_ref second_walker;
static atomic_int first_steps, steps_when_asked, steps_when_served;
static atomic_int in_order, running_broad, most_running_broad;

enum {
    ASK_AT = 1000,
    TURN = 64, /* messages that a lane may serve in one turn: runtime/actor/lane.c */
    NUMBERED = 1000
};

/* Sends itself another message until the gate opens. At step ASK_AT it also sends one to the second
 * walker. */
static exo_status
walk(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)args;
    (void)reply;
    struct walker *w = self;
    first_steps = ++w->steps;
    if (w->steps == ASK_AT) {
        steps_when_asked = w->steps;
        exo_status st = exo_send(walkers, second_walker, "answer", (exo_payload){0}, FAR, err);
        if (st != EXO_OK)
            return st;
    }
    return gate ? EXO_OK
                : exo_send(exo_call_runtime(call), exo_call_self(call), "walk", (exo_payload){0},
                           FAR, err);
}

static exo_status
answer(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    steps_when_served = first_steps;
    gate = true;
    return EXO_OK;
}

struct numbered {
    int caller, number;
};

static exo_status
keep_order(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    (void)call;
    (void)reply;
    (void)err;
    struct walker *w = self;
    const struct numbered *n = args->data;
    in_order += n->number == ++w->last[n->caller];
    return EXO_OK;
}

static exo_status
broad_wait(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    int now = ++running_broad, most = most_running_broad;
    while (now > most && !atomic_compare_exchange_weak(&most_running_broad, &most, now))
        ;
    exo_status st = log_wait(call, self, args, reply, err);
    running_broad--;
    return st;
}

static exo_status
start_with_a_call(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)self;
    const char *method = args->data;
    exo_status st = EXO_OK;
    for (int i = 0; method && st == EXO_OK && i < 2; i++)
        st = exo_send(exo_call_runtime(call), exo_call_self(call), method, (exo_payload){0}, FAR,
                      err);
    return st;
}

static const exo_lane_class walker_lanes[] = {{.name = "path", .capacity = 16},
                                              {.name = "broad", .max_concurrency = 2},
                                              {.name = "own", .blocking = true}};
static const exo_method walker_methods[] = {{.name = "walk", .lane = 0, .run = walk},
                                            {.name = "answer", .lane = 0, .run = answer},
                                            {.name = "keep_order", .lane = 0, .run = keep_order},
                                            {.name = "wait_broad", .lane = 1, .run = broad_wait},
                                            {.name = "wait_light", .lane = 0, .run = log_wait},
                                            {.name = "wait_own", .lane = 2, .run = log_wait}};
static const exo_actor_class walker_class = {.name = "walker",
                                             .state_size = sizeof(struct walker),
                                             .start = start_with_a_call,
                                             .lanes = walker_lanes,
                                             .num_lanes = 3,
                                             .methods = walker_methods,
                                             .num_methods = 6};

Test(actor_lanes, a_lane_that_always_has_work_lets_the_others_go_on)
{
    exo_clock_manual clock; /* it stands still, so a turn ends by its count of messages */
    exo_ref first;
    exo_clock_manual_init(&clock, 0);
    cr_assert_eq(
        exo_runtime_open(&walkers, &(exo_runtime_opts){.clock = &clock.base, .threads = 1}, NULL),
        EXO_OK);
    cr_assert_eq(exo_spawn(walkers, &walker_class, NULL, &second_walker, NULL), EXO_OK);
    cr_assert_eq(exo_spawn(walkers, &walker_class, NULL, &first, NULL), EXO_OK);
    cr_assert_eq(exo_send(walkers, first, "walk", (exo_payload){0}, FAR, NULL), EXO_OK);
    while (!gate)
        sched_yield();
    cr_expect_eq(steps_when_asked, ASK_AT);
    cr_expect_leq(steps_when_served - steps_when_asked, TURN);
    cr_expect_eq(exo_runtime_close(&walkers, INT64_MAX, NULL), EXO_OK);
}

static void *
send_numbers(void *argument)
{
    struct numbered n = *(struct numbered *)argument;
    for (n.number = 1; n.number <= NUMBERED; n.number++) {
        exo_payload args;
        cr_assert_eq(exo_payload_copy(&args, &n, sizeof n), EXO_OK);
        exo_status st;
        while ((st = exo_send(walkers, second_walker, "keep_order", args, INT64_MAX, NULL)) ==
               EXO_FULL) {
            sched_yield();
            cr_assert_eq(exo_payload_copy(&args, &n, sizeof n), EXO_OK);
        }
        cr_assert_eq(st, EXO_OK);
    }
    return NULL;
}

Test(actor_lanes, a_lane_keeps_the_order_of_each_caller)
{
    pthread_t threads[2];
    struct numbered callers[2] = {{.caller = 0}, {.caller = 1}};
    cr_assert_eq(exo_runtime_open(&walkers, &(exo_runtime_opts){.threads = 2}, NULL), EXO_OK);
    cr_assert_eq(exo_spawn(walkers, &walker_class, NULL, &second_walker, NULL), EXO_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, send_numbers, &callers[i]), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    exo_future *died = NULL;
    cr_assert_eq(exo_monitor(walkers, second_walker, &died, NULL), EXO_OK);
    cr_assert_eq(exo_stop(walkers, second_walker, true, NULL), EXO_OK);
    cr_expect_eq(exo_wait(died, INT64_MAX, NULL, NULL), EXO_OK);
    exo_future_drop(&died);
    cr_expect_eq(in_order, 2 * NUMBERED);
    cr_expect_eq(exo_runtime_close(&walkers, INT64_MAX, NULL), EXO_OK);
}

Test(actor_lanes, a_light_lane_may_run_several_messages_at_once)
{
    struct room r;
    exo_ref ref;
    exo_future *f[5];
    room_init(&r);
    cr_assert_eq(exo_spawn(r.runtime, &walker_class, NULL, &ref, NULL), EXO_OK);
    for (int i = 0; i < 5; i++)
        f[i] = call(&r, ref, "wait_broad", NULL);
    until_at_gate(2);
    for (int i = 0; i < 1000; i++) {
        cr_assert_leq(at_gate, 2);
        sched_yield();
    }
    gate = true;
    cr_expect_eq(exo_wait_all(f, 5, FAR, NULL), EXO_OK);
    cr_expect_eq(most_running_broad, 2);
    for (int i = 0; i < 5; i++)
        exo_future_drop(&f[i]);
    room_release(&r);
}

Test(actor_lanes, what_comes_while_an_actor_starts_is_served_when_it_has)
{
    static const char *const kinds[] = {"wait_light", "wait_broad", "wait_own"};
    static const int at_once[] = {1, 2, 1};
    for (int i = 0; i < 3; i++) {
        struct room r;
        exo_ref ref;
        gate = false;
        room_init(&r);
        const exo_spawn_opts opts = {.args = exo_payload_borrow(kinds[i], strlen(kinds[i]) + 1)};
        cr_assert_eq(exo_spawn(r.runtime, &walker_class, &opts, &ref, NULL), EXO_OK);
        until_at_gate(at_once[i]);
        gate = true;
        cr_expect_eq(exo_stop(r.runtime, ref, true, NULL), EXO_OK);
        until_at_gate(0);
        room_release(&r);
    }
}

static exo_status
start_and_stop(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    exo_status st = start_with_a_call(call, self, args, err);
    return st == EXO_OK ? exo_stop(exo_call_runtime(call), exo_call_self(call), true, err) : st;
}

Test(actor_lanes, a_stop_while_an_actor_starts_waits_for_what_has_come)
{
    static const char *const kinds[] = {"wait_light", "wait_broad", "wait_own", NULL};
    exo_actor_class hasty = walker_class;
    hasty.start = start_and_stop;
    for (int i = 0; i < 4; i++) {
        struct room r;
        exo_ref ref;
        char cause[64];
        gate = false;
        room_init(&r);
        const exo_spawn_opts opts = {.args = exo_payload_borrow(kinds[i], 0)};
        cr_assert_eq(exo_spawn(r.runtime, &hasty, &opts, &ref, NULL), EXO_OK);
        if (kinds[i])
            until_at_gate(i == 1 ? 2 : 1);
        cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause),
                     kinds[i] ? EXO_NOT_FOUND : EXO_OK);
        gate = true;
        while (exo_cause(r.runtime, ref, cause, sizeof cause) != EXO_OK)
            sched_yield();
        cr_expect_str_eq(cause, "stopped");
        room_release(&r);
    }
}

Test(actor_lanes, a_light_lane_is_drained_before_its_actor_stops)
{
    struct room r;
    exo_ref ref;
    exo_future *f[4], *died = NULL, *no = NULL;
    room_init(&r);
    cr_assert_eq(exo_spawn(r.runtime, &walker_class, NULL, &ref, NULL), EXO_OK);
    for (int i = 0; i < 4; i++)
        f[i] = call(&r, ref, "wait_light", NULL);
    until_at_gate(1);
    cr_assert_eq(exo_monitor(r.runtime, ref, &died, NULL), EXO_OK);
    cr_assert_eq(exo_stop(r.runtime, ref, true, NULL), EXO_OK);
    cr_expect_eq(exo_call(r.runtime, ref, "wait_light", (exo_payload){0}, FAR, &no, &r.err),
                 EXO_PEER_LOST);
    cr_expect(strstr(r.err.text, "stopping"), "%s", r.err.text);
    cr_expect_not(exo_future_ready(died));
    gate = true;
    cr_expect_eq(exo_wait_all(f, 4, FAR, NULL), EXO_OK);
    cr_expect_eq(exo_wait(died, FAR, NULL, NULL), EXO_OK);
    for (int i = 0; i < 4; i++)
        exo_future_drop(&f[i]);
    exo_future_drop(&died);
    room_release(&r);
}
