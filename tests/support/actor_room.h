/* A runtime on a manual clock for tests of actors, and a class whose methods record their calls and
 * wait at a gate. The program has the gate and the counters; methods and the test's thread share
 * them, so they are atomic. */
#ifndef EXO_TEST_ACTOR_ROOM_H
#define EXO_TEST_ACTOR_ROOM_H

#include <criterion/criterion.h>

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <exogym/exogym.h>

/* A deadline that the manual clock never reaches: a wait with it ends by its event. */
#define FAR (3600 * EXO_SECOND)

struct room {
    exo_clock_manual clock;
    exo_runtime *runtime;
    exo_err err;
};

static inline void
room_init(struct room *r)
{
    *r = (struct room){0};
    exo_clock_manual_init(&r->clock, 0);
    const exo_runtime_opts opts = {.clock = &r->clock.base, .threads = 3};
    cr_assert_eq(exo_runtime_open(&r->runtime, &opts, &r->err), EXO_OK);
}

static inline void
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

static inline exo_status
log_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    struct log *l = self;
    if (args->size && strcmp(args->data, "fail") == 0)
        return exo_fail(err, EXO_INVAL, "it does not like its arguments");
    strcpy(l->text, ">");
    return EXO_OK;
}

static inline void
log_stop(void *self)
{
    (void)self;
    stops++;
}

static inline exo_status
log_write(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    (void)call;
    (void)err;
    struct log *l = self;
    strncat(l->text, args->data, sizeof l->text - strlen(l->text) - 1);
    return exo_payload_copy(reply, l->text, strlen(l->text) + 1);
}

static inline exo_status
log_refuse(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    return exo_fail(err, EXO_FAILED, "on principle");
}

static inline exo_status
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

static inline exo_status
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

static inline exo_ref
spawn(struct room *r, const char *name)
{
    exo_ref ref = {0};
    const exo_spawn_opts opts = {.name = name};
    cr_assert_eq(exo_spawn(r->runtime, &log_class, &opts, &ref, &r->err), EXO_OK, "%s",
                 r->err.text);
    return ref;
}

static inline exo_future *
call(struct room *r, exo_ref ref, const char *method, const char *text)
{
    exo_future *f = NULL;
    exo_payload args = exo_payload_borrow(text, text ? strlen(text) + 1 : 0);
    cr_assert_eq(exo_call(r->runtime, ref, method, args, FAR, &f, &r->err), EXO_OK, "%s: %s",
                 method, r->err.text);
    return f;
}

static inline void
until_at_gate(int count)
{
    while (at_gate != count)
        sched_yield();
}

#endif
