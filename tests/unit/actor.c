/* Actors in one process: calls, lanes, futures, deadlines, deaths, names, memory. The clock is
 * manual, so time passes only where a test advances it.
 *
 * Each test owns its runtime. The gate and the counters are shared with the methods, and therefore
 * atomic. Read next: runtime/actor/runtime_impl.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "actor/future.h"
#include "base/memory_fault.h"

/* A deadline that the manual clock never reaches: a wait with it ends by its event. */
#define FAR (3600 * EXO_SECOND)

struct room {
    exo_clock_manual clock;
    exo_runtime *runtime;
    exo_err err;
};

static void
room_init(struct room *r)
{
    *r = (struct room){0};
    exo_clock_manual_init(&r->clock, 0);
    const exo_runtime_opts opts = {.clock = &r->clock.base, .threads = 3};
    cr_assert_eq(exo_runtime_open(&r->runtime, &opts, &r->err), EXO_OK);
}

static void
room_release(struct room *r)
{
    cr_expect_eq(exo_runtime_close(&r->runtime, INT64_MAX, &r->err), EXO_OK, "%s", r->err.text);
}

/* --- A class that records its calls ----------------------------------------------------------- */

static atomic_int stops;

struct log {
    char text[256];
};

/* The gate: methods wait at it until the test opens it. at_gate counts them. */
static atomic_bool gate;
static atomic_int at_gate;

static exo_status
log_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    struct log *l = self;
    if (args->size && strcmp(args->data, "fail") == 0)
        return exo_fail(err, EXO_INVAL, "it does not like its arguments");
    strcpy(l->text, ">");
    return EXO_OK;
}

static void
log_stop(void *self)
{
    (void)self;
    stops++;
}

static exo_status
log_write(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    (void)call;
    (void)err;
    struct log *l = self;
    strncat(l->text, args->data, sizeof l->text - strlen(l->text) - 1);
    return exo_payload_copy(reply, l->text, strlen(l->text) + 1);
}

static exo_status
log_refuse(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    return exo_fail(err, EXO_FAILED, "on principle");
}

static exo_status
log_wait(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
         exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    at_gate++;
    while (!gate && !exo_call_cancelled(call))
        sched_yield();
    at_gate--;
    return exo_call_cancelled(call) ? exo_fail(err, EXO_CANCELLED, "it saw the flag") : EXO_OK;
}

static exo_status
log_die(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    exo_call_die(call, "it was tired");
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "paper", .capacity = 4},
                                       {.name = "desk", .blocking = true, .capacity = 4},
                                       {.name = "wide", .blocking = true, .max_concurrency = 3}};
static const exo_method methods[] = {
    {.name = "write", .lane = 0, .run = log_write},
    {.name = "refuse", .lane = 0, .run = log_refuse},
    {.name = "wait", .lane = 1, .run = log_wait},
    {.name = "write_at_desk", .lane = 1, .run = log_write},
    {.name = "die", .lane = 1, .run = log_die},
    {.name = "wait_wide", .lane = 2, .run = log_wait},
    {.name = "wait_light", .lane = 0, .run = log_wait},
};
static const exo_actor_class log_class = {
    .name = "log",
    .state_size = sizeof(struct log),
    .start = log_start,
    .stop = log_stop,
    .lanes = lanes,
    .num_lanes = 3,
    .methods = methods,
    .num_methods = sizeof methods / sizeof methods[0],
};

static exo_ref
spawn(struct room *r, const char *name)
{
    exo_ref ref = {0};
    const exo_spawn_opts opts = {.name = name};
    cr_assert_eq(exo_spawn(r->runtime, &log_class, &opts, &ref, &r->err), EXO_OK, "%s",
                 r->err.text);
    return ref;
}

static exo_future *
call(struct room *r, exo_ref ref, const char *method, const char *text)
{
    exo_future *f = NULL;
    exo_payload args = exo_payload_borrow(text, text ? strlen(text) + 1 : 0);
    cr_assert_eq(exo_call(r->runtime, ref, method, args, FAR, &f, &r->err), EXO_OK, "%s: %s",
                 method, r->err.text);
    return f;
}

static void
until_at_gate(int count)
{
    while (at_gate != count)
        sched_yield();
}

/* --- Calls ------------------------------------------------------------------------------------ */

Test(actor, calls_are_served_in_order_and_answered)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, "diary");
    exo_future *f[3] = {call(&r, ref, "write", "a"), call(&r, ref, "write", "b"),
                        call(&r, ref, "write", "c")};
    cr_assert_eq(exo_wait_all(f, 3, FAR, &r.err), EXO_OK);
    const char *want[] = {">a", ">ab", ">abc"};
    for (int i = 0; i < 3; i++) {
        const exo_payload *reply = NULL;
        cr_assert_eq(exo_wait(f[i], 0, &reply, NULL), EXO_OK);
        cr_expect_str_eq(reply->data, want[i]);
        exo_future_drop(&f[i]);
    }
    room_release(&r);
    cr_expect_eq(stops, 1);
}

Test(actor, a_methods_error_is_the_futures)
{
    struct room r;
    room_init(&r);
    exo_future *f = call(&r, spawn(&r, NULL), "refuse", NULL);
    cr_expect_eq(exo_wait(f, FAR, NULL, &r.err), EXO_FAILED);
    cr_expect_str_eq(r.err.text, "on principle");
    exo_future_drop(&f);
    room_release(&r);
}

Test(actor, what_cannot_be_called_is_an_error_at_once)
{
    struct room r;
    room_init(&r);
    exo_future *f = NULL;
    exo_ref ref = spawn(&r, NULL);
    cr_expect_eq(exo_call(r.runtime, ref, "sing", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "sing"));
    cr_expect_eq(
        exo_call(r.runtime, (exo_ref){.id = 12345}, "write", (exo_payload){0}, FAR, &f, &r.err),
        EXO_PEER_LOST);
    cr_expect_eq(exo_call(r.runtime, (exo_ref){0}, "write", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_PEER_LOST);
    room_release(&r);
}

Test(actor, a_full_mailbox_refuses)
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

Test(actor, lanes_do_not_wait_for_each_other)
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

Test(actor, max_concurrency_is_kept)
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

Test(actor, a_lane_that_always_has_work_lets_the_others_go_on)
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

Test(actor, a_lane_keeps_the_order_of_each_caller)
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

Test(actor, a_light_lane_may_run_several_messages_at_once)
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

Test(actor, what_comes_while_an_actor_starts_is_served_when_it_has)
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

Test(actor, a_stop_while_an_actor_starts_waits_for_what_has_come)
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

Test(actor, a_light_lane_is_drained_before_its_actor_stops)
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

/* --- Deadlines -------------------------------------------------------------------------------- */

Test(actor, a_wait_ends_at_its_deadline_and_the_future_stays)
{
    struct room r;
    room_init(&r);
    exo_future *f = call(&r, spawn(&r, NULL), "wait", NULL);
    size_t index = 7;
    until_at_gate(1);
    exo_clock_manual_advance(&r.clock, 10);
    cr_expect_eq(exo_wait(f, 10, NULL, &r.err), EXO_TIMEOUT);
    cr_expect_eq(exo_wait_any(&f, 1, 10, &index, &r.err), EXO_TIMEOUT);
    cr_expect_eq(exo_wait_all(&f, 1, 10, &r.err), EXO_TIMEOUT);
    gate = true;
    cr_expect_eq(exo_wait(f, FAR, NULL, NULL), EXO_OK);
    exo_future_drop(&f);
    room_release(&r);
}

Test(actor, a_call_that_has_not_begun_at_its_deadline_is_dropped)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *busy = call(&r, ref, "wait", NULL), *late = NULL, *after = NULL;
    until_at_gate(1);
    cr_assert_eq(
        exo_call(r.runtime, ref, "write_at_desk", exo_payload_borrow("late", 5), 100, &late, NULL),
        EXO_OK);
    after = call(&r, ref, "write_at_desk", "x");
    cr_expect_not(exo_future_ready(late));
    exo_clock_manual_advance(&r.clock, 100);
    cr_expect(exo_future_ready(late), "without waiting for the lane");
    cr_expect_eq(exo_wait(late, FAR, NULL, &r.err), EXO_TIMEOUT);
    gate = true;
    const exo_payload *reply = NULL;
    cr_assert_eq(exo_wait(after, FAR, &reply, NULL), EXO_OK);
    cr_expect_str_eq(reply->data, ">x", "the late call was not served");
    exo_future_drop(&busy);
    exo_future_drop(&late);
    exo_future_drop(&after);
    room_release(&r);
}

/* --- Cancelling, stopping, dying -------------------------------------------------------------- */

Test(actor, cancel_drops_what_is_queued_and_flags_what_runs)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *runs = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q");
    until_at_gate(1);
    exo_cancel(queued);
    exo_cancel(runs);
    cr_expect_eq(exo_wait(queued, 0, NULL, NULL), EXO_CANCELLED);
    cr_expect_eq(exo_wait(runs, 0, NULL, NULL), EXO_CANCELLED);
    exo_future *after = call(&r, ref, "write_at_desk", "x");
    const exo_payload *reply = NULL;
    cr_assert_eq(exo_wait(after, FAR, &reply, NULL), EXO_OK);
    cr_expect_str_eq(reply->data, ">x");
    exo_cancel(after);
    cr_expect_eq(exo_wait(after, 0, NULL, NULL), EXO_OK, "what is complete stays so");
    exo_future_drop(&runs);
    exo_future_drop(&queued);
    exo_future_drop(&after);
    room_release(&r);
}

Test(actor, stop_with_drain_serves_what_is_queued)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, "drained");
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q"),
               *died = NULL, *no;
    until_at_gate(1);
    cr_assert_eq(exo_monitor(r.runtime, ref, &died, NULL), EXO_OK);
    cr_assert_eq(exo_stop(r.runtime, ref, true, NULL), EXO_OK);
    cr_expect_eq(exo_call(r.runtime, ref, "write", (exo_payload){0}, FAR, &no, &r.err),
                 EXO_PEER_LOST);
    cr_expect_not(exo_future_ready(died));
    gate = true;
    cr_expect_eq(exo_wait(queued, FAR, NULL, NULL), EXO_OK);
    cr_expect_eq(exo_wait(died, FAR, NULL, NULL), EXO_OK, "a clean stop");
    exo_future_drop(&busy);
    exo_future_drop(&queued);
    exo_future_drop(&died);
    room_release(&r);
    cr_expect_eq(stops, 1);
}

Test(actor, stop_without_drain_cancels_what_is_queued)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q");
    until_at_gate(1);
    cr_assert_eq(exo_stop(r.runtime, ref, false, NULL), EXO_OK);
    cr_expect_eq(exo_wait(queued, FAR, NULL, NULL), EXO_CANCELLED);
    cr_expect_eq(exo_wait(busy, FAR, NULL, NULL), EXO_CANCELLED, "it saw the flag");
    exo_future_drop(&busy);
    exo_future_drop(&queued);
    room_release(&r);
}

Test(actor, a_death_is_told_to_everyone_with_its_cause)
{
    struct room r;
    char cause[128];
    room_init(&r);
    exo_ref ref = spawn(&r, "victim");
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q"),
               *died = NULL;
    until_at_gate(1);
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_NOT_FOUND);
    cr_assert_eq(exo_monitor(r.runtime, ref, &died, NULL), EXO_OK);
    cr_assert_eq(exo_kill(r.runtime, ref, "poison", NULL), EXO_OK);
    exo_future *all[] = {busy, queued, died};
    for (int i = 0; i < 3; i++) {
        r.err = (exo_err){0};
        cr_expect_eq(exo_wait(all[i], FAR, NULL, &r.err), EXO_PEER_LOST);
        cr_expect(strstr(r.err.text, "victim") && strstr(r.err.text, "poison"), "%s", r.err.text);
        exo_future_drop(&all[i]);
    }
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_OK);
    cr_expect_str_eq(cause, "poison");
    exo_ref gone;
    cr_expect_eq(exo_get_actor(r.runtime, NULL, "victim", &gone, &r.err), EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "poison"), "%s", r.err.text);
    room_release(&r);
    cr_expect_eq(stops, 1);
}

struct obituary {
    exo_runtime *runtime;
    exo_ref ref;
    atomic_int found; /* the status that exo_cause returned, plus 1; 0: not called yet */
};

static void
look_for_cause(void *context, uint64_t tag, exo_future *future)
{
    struct obituary *o = context;
    char cause[128];
    (void)tag;
    (void)future;
    o->found = 1 + (int)exo_cause(o->runtime, o->ref, cause, sizeof cause);
}

Test(actor, a_method_can_end_its_actor)
{
    static const exo_future_hook hook = {.done = look_for_cause};
    struct room r;
    char cause[128];
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    struct obituary obituary = {.runtime = r.runtime, .ref = ref};
    exo_future *f = call(&r, ref, "die", NULL), *died = NULL;
    exo_future_set_hook(f, &hook, &obituary, 0);
    if (exo_monitor(r.runtime, ref, &died, NULL) == EXO_OK)
        cr_expect_eq(exo_wait(died, FAR, NULL, NULL), EXO_PEER_LOST);
    cr_expect_eq(exo_wait(f, FAR, NULL, &r.err), EXO_PEER_LOST);
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_OK,
                 "dead when its caller hears of it");
    cr_expect_str_eq(cause, "it was tired");
    while (!obituary.found)
        sched_yield();
    cr_expect_eq(obituary.found, 1 + EXO_OK, "and not a moment later");
    exo_future_drop(&f);
    exo_future_drop(&died);
    room_release(&r);
}

Test(actor, links_carry_failures_but_not_clean_stops)
{
    struct room r;
    char cause[160];
    room_init(&r);
    exo_ref a = spawn(&r, "a"), b = spawn(&r, "b"), c = spawn(&r, "c");
    cr_assert_eq(exo_link(r.runtime, a, b, NULL), EXO_OK);
    cr_assert_eq(exo_link(r.runtime, b, c, NULL), EXO_OK);
    cr_assert_eq(exo_stop(r.runtime, c, true, NULL), EXO_OK);
    cr_expect_eq(exo_cause(r.runtime, b, cause, sizeof cause), EXO_NOT_FOUND, "b lives");
    cr_assert_eq(exo_kill(r.runtime, a, "a fall", NULL), EXO_OK);
    cr_assert_eq(exo_cause(r.runtime, b, cause, sizeof cause), EXO_OK);
    cr_expect(strstr(cause, "'a'") && strstr(cause, "a fall"), "%s", cause);
    cr_expect_eq(exo_link(r.runtime, a, b, &r.err), EXO_PEER_LOST);
    room_release(&r);
}

/* --- Names ------------------------------------------------------------------------------------ */

Test(actor, names_are_unique_among_the_living_of_a_namespace)
{
    struct room r;
    room_init(&r);
    exo_ref first = spawn(&r, "n"), other = {0}, found = {0};
    cr_expect_eq(exo_spawn(r.runtime, &log_class, &(exo_spawn_opts){.name = "n"}, &other, &r.err),
                 EXO_EXISTS);
    cr_expect_eq(exo_spawn(r.runtime, &log_class,
                           &(exo_spawn_opts){.name = "n", .namespace_name = "m"}, &other, NULL),
                 EXO_OK);
    cr_expect_eq(exo_get_actor(r.runtime, "m", "n", &found, NULL), EXO_OK);
    cr_expect_eq(found.id, other.id);
    cr_expect_eq(exo_spawn(r.runtime, &log_class,
                           &(exo_spawn_opts){.name = "n", .get_if_exists = true}, &found, NULL),
                 EXO_OK);
    cr_expect_eq(found.id, first.id);
    cr_assert_eq(exo_stop(r.runtime, first, true, NULL), EXO_OK);
    exo_ref second = spawn(&r, "n");
    cr_expect_neq(second.id, first.id, "another life");
    exo_future *f;
    cr_expect_eq(exo_call(r.runtime, first, "write", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_PEER_LOST);
    room_release(&r);
}

Test(actor, a_death_is_told_of_its_own_name)
{
    struct room r;
    exo_ref ref, found;
    room_init(&r);
    const exo_spawn_opts opts = {.name = "b/c", .namespace_name = "a"};
    cr_assert_eq(exo_spawn(r.runtime, &log_class, &opts, &ref, &r.err), EXO_OK, "%s", r.err.text);
    cr_assert_eq(exo_kill(r.runtime, ref, "an accident", NULL), EXO_OK);
    cr_expect_eq(exo_get_actor(r.runtime, "a", "b/c", &found, &r.err), EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "the last one died: an accident"), "%s", r.err.text);
    cr_expect_eq(exo_get_actor(r.runtime, "a/b", "c", &found, &r.err), EXO_NOT_FOUND);
    cr_expect(!strstr(r.err.text, "died"), "%s", r.err.text);
    room_release(&r);
}

Test(actor, a_start_that_fails_leaves_nothing)
{
    struct room r;
    exo_ref ref = {.id = 9};
    room_init(&r);
    const exo_spawn_opts opts = {.name = "stillborn", .args = exo_payload_borrow("fail", 5)};
    cr_expect_eq(exo_spawn(r.runtime, &log_class, &opts, &ref, &r.err), EXO_INVAL);
    cr_expect_str_eq(r.err.text, "it does not like its arguments");
    cr_expect_eq(ref.id, 0);
    cr_expect_eq(exo_get_actor(r.runtime, NULL, "stillborn", &ref, &r.err), EXO_NOT_FOUND);
    spawn(&r, "stillborn");
    room_release(&r);
}

/* --- The control lane ------------------------------------------------------------------------- */

Test(actor, control_is_served_while_every_lane_is_busy)
{
    struct room r;
    char *text = NULL;
    room_init(&r);
    exo_ref ref = spawn(&r, "busy");
    exo_future *f[3] = {call(&r, ref, "wait", NULL), call(&r, ref, "write_at_desk", "x"),
                        call(&r, ref, "ping", NULL)};
    until_at_gate(1);
    cr_expect_eq(exo_wait(f[2], 0, NULL, NULL), EXO_OK);
    exo_clock_manual_advance(&r.clock, 5 * EXO_MS);
    cr_assert_eq(exo_dump(r.runtime, ref, &text, NULL), EXO_OK);
    cr_expect(strstr(text, "actor=busy class=log state=alive"), "%s", text);
    cr_expect(strstr(text, "lane=desk queued=1 running=1 method=wait for_ms=5"), "%s", text);
    exo_free(text);
    gate = true;
    cr_expect_eq(exo_wait_all(f, 3, FAR, NULL), EXO_OK);
    for (int i = 0; i < 3; i++)
        exo_future_drop(&f[i]);
    room_release(&r);
}

Test(actor, close_ends_running_work_and_is_bounded)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *f = call(&r, ref, "wait", NULL);
    until_at_gate(1);
    room_release(&r);
    cr_expect_eq(exo_wait(f, 0, NULL, NULL), EXO_CANCELLED);
    exo_future_drop(&f);
    cr_expect_eq(stops, 1);
}

/* --- Without memory --------------------------------------------------------------------------- */

Test(actor, without_memory_spawn_and_call_fail_and_nothing_leaks)
{
    struct room r;
    room_init(&r);
    for (uint64_t n = 1;; n++) {
        exo_ref ref = {0};
        exo_future *f = NULL;
        exo_payload args;
        cr_assert_eq(exo_payload_copy(&args, "x", 2), EXO_OK);
        exo_memory_fail_at(n);
        exo_status st =
            exo_spawn(r.runtime, &log_class, &(exo_spawn_opts){.name = "poor"}, &ref, &r.err);
        if (st == EXO_OK)
            st = exo_call(r.runtime, ref, "write", args, FAR, &f, &r.err);
        else
            exo_payload_release(&args);
        exo_memory_fail_at(0);
        if (st == EXO_OK && exo_wait(f, FAR, NULL, NULL) == EXO_OK) {
            exo_future_drop(&f);
            break; /* the calling thread made fewer than n allocations */
        }
        exo_future_drop(&f);
        cr_assert(st == EXO_OK || st == EXO_NOMEM, "allocation %u: %s", (unsigned)n, r.err.text);
        if (ref.id)
            exo_stop(r.runtime, ref, false, NULL);
        cr_assert_lt(n, 100);
    }
    room_release(&r);
}

static void *
make_future(void *out)
{
    return exo_future_new(out, exo_clock_real(), INT64_MAX, NULL) == EXO_OK ? out : NULL;
}

/* A thread that only makes futures has taken more of those that are kept than it needs. */
Test(actor, a_thread_that_ends_leaves_kept_futures_to_others)
{
    enum {
        MANY = 512,
        THREADS = 100
    };
    exo_future *many[MANY], *one;
    uint64_t before = 0;
    for (int i = 0; i < MANY; i++)
        cr_assert(make_future(&many[i]));
    for (int i = 0; i < MANY; i++)
        exo_future_drop(&many[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *made = NULL;
        cr_assert_eq(pthread_create(&thread, NULL, make_future, &one), 0);
        cr_assert(pthread_join(thread, &made) == 0 && made);
        exo_future_drop(&one);
        before = i == 0 ? exo_memory_allocations() : before;
    }
#if !defined(__SANITIZE_ADDRESS__) /* no futures are kept */
    cr_expect_eq(exo_memory_allocations(), before);
#endif
}

Test(actor, a_name_without_memory_leaves_the_other_names_whole)
{
    enum {
        NAMES = 1000 /* the table of names grows several times meanwhile */
    };
    struct room r;
    exo_ref refs[NAMES], found;
    char name[16];
    room_init(&r);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        exo_status st = EXO_NOMEM;
        for (uint64_t n = 1; st == EXO_NOMEM; n++) {
            exo_memory_fail_at(n);
            st = exo_spawn(r.runtime, &walker_class, &(exo_spawn_opts){.name = name}, &refs[i],
                           &r.err);
            exo_memory_fail_at(0);
        }
        cr_assert_eq(st, EXO_OK, "%s", r.err.text);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        cr_assert_eq(exo_get_actor(r.runtime, NULL, name, &found, &r.err), EXO_OK, "%s",
                     r.err.text);
        cr_assert_eq(found.id, refs[i].id);
    }
    room_release(&r);
}
