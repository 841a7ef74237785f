/* A runtime against a raw socket: calls of a peer that keeps no rule, and replies to calls that
 * were never made. Each test owns the runtime and the stranger. Read next:
 * runtime/cluster/remote_impl.h, quota.h; remote_pair.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cluster/quota.h"
#include "cluster/remote.h"
#include "support/temp.h"

static char folder[64], ipc[128];
static exo_runtime *runtime;
static exo_remote *remote;
static exo_ref actor;
static void *context, *stranger;
static uint32_t number;

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)err;
    return exo_payload_copy(reply, args->data, args->size);
}

/* Defers its reply and never sends it. */
static exo_status
last(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_future *future = exo_call_defer(call);
    (void)self;
    (void)args;
    (void)reply;
    if (!future)
        return exo_fail(err, EXO_NOMEM, "no memory");
    exo_future_drop(&future);
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 1 << 20}};
static const exo_method methods[] = {{.name = "echo", .run = echo}, {.name = "last", .run = last}};
static const exo_actor_class echo_class = {
    .name = "echo", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 2};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static void
quiet(void *unused, exo_log_level level, const char *line)
{
    (void)unused;
    (void)level;
    (void)line;
}

static void
say(const exo_envelope *envelopes, size_t count)
{
    exo_wire_writer w = {0};
    exo_err err = {0};
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_wire_add(&w, &envelopes[i], &err), EXO_OK, "%s", err.text);
    exo_wire_finish(&w, number++);
    cr_assert_geq(zmq_send(stranger, w.data, w.size, 0), 0);
    exo_wire_release(&w);
}

/* Reads replies until that of `id`. Gives its status, and the number of FULL replies up to it. */
static exo_status
reply_to(uint64_t id, size_t *full)
{
    static uint8_t data[EXO_WIRE_FRAME0];
    exo_wire_reader r;
    exo_envelope e = {0};
    exo_status st = EXO_OK;
    bool found = false;
    size_t refused = 0;
    cr_assert_eq(exo_wire_reader_init(&r, NULL), EXO_OK);
    while (!found) {
        int size = zmq_recv(stranger, data, sizeof data, 0);
        cr_assert_geq(size, 0, "no reply to %llu", (unsigned long long)id);
        cr_assert_eq(exo_wire_open(&r, data, (size_t)size, NULL), EXO_OK);
        while (exo_wire_next(&r, &e, NULL) == EXO_OK) {
            refused += e.kind == EXO_WIRE_REPLY && e.status == EXO_FULL;
            if (e.kind == EXO_WIRE_REPLY && e.id == id) {
                st = e.status;
                found = true;
            }
        }
    }
    exo_wire_reader_release(&r);
    if (full)
        *full = refused;
    return st;
}

static void
setup(void)
{
    static const char *endpoints[] = {ipc};
    const exo_net_opts opts = {.name = "callee",
                               .endpoints = endpoints,
                               .num_endpoints = 1,
                               .peer_timeout = 600 * EXO_SECOND}; /* the stranger sends no beats */
    const exo_envelope hello = {.kind = EXO_WIRE_HELLO,
                                .who = {.node = 99, .name = "stranger", .boot = "another kernel"}};
    const int none = 0, wait = 60000;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(ipc, sizeof ipc, "ipc://%s/s", folder);
    exo_log_set_sink(quiet, NULL);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &echo_class, NULL, &actor, &err), EXO_OK);
    cr_assert_eq(exo_remote_open(&remote, runtime, &opts, NULL, NULL, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_remote_start(remote, &err), EXO_OK, "%s", err.text);
    context = zmq_ctx_new();
    stranger = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(stranger, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(stranger, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(stranger, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(stranger, ZMQ_RCVTIMEO, &wait, sizeof wait);
    cr_assert_eq(zmq_connect(stranger, ipc), 0);
    say(&hello, 1);
}

static void
teardown(void)
{
    exo_err err = {0};
    exo_remote_close(remote, NULL);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK, "%s", err.text);
    exo_remote_free(&remote);
    zmq_close(stranger);
    zmq_ctx_term(context);
    temp_remove(folder);
}

TestSuite(remote, .init = setup, .fini = teardown);

static exo_envelope
call_of(uint64_t id, uint64_t to, const char *method)
{
    return (exo_envelope){
        .kind = EXO_WIRE_CALL, .id = id, .actor = to, .method = method, .timeout = INT64_MAX};
}

Test(remote, answers_calls_that_cannot_be)
{
    const exo_envelope calls[] = {
        call_of(1, actor.id, "none"),
        call_of(2, actor.id ^ 1, "echo"),
        call_of(3, UINT64_MAX, "echo"),
        call_of(4, actor.id, ""),
        call_of(5, 0, "echo"),
        call_of(6, actor.id, "$none"),
        call_of(7, 0, "$monitor"),
        call_of(8, UINT64_MAX, "$kill"),
        call_of(9, EXO_REMOTE | 1, "$drain"),
        call_of(10, UINT64_MAX, "$monitor"),
        call_of(11, actor.id + 1, "$stop"),
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        say(&calls[i], 1);
        cr_expect_neq(reply_to(calls[i].id, NULL), EXO_OK, "call %zu", i + 1);
    }
    exo_envelope late = call_of(20, actor.id, "echo");
    late.timeout = INT64_MIN;
    say(&late, 1);
    cr_expect_eq(reply_to(20, NULL), EXO_TIMEOUT);
    say(&(exo_envelope){.kind = EXO_WIRE_CALL,
                        .id = 21,
                        .actor = actor.id,
                        .method = "echo",
                        .timeout = 120 * EXO_SECOND},
        1);
    cr_expect_eq(reply_to(21, NULL), EXO_OK);
}

/* Repeated ids, replies to no call, and cancels of no call do no harm. */
Test(remote, is_not_confused_by_numbers)
{
    const exo_envelope odd[] = {
        call_of(1, actor.id, "$monitor"),
        call_of(1, actor.id, "$monitor"),
        {.kind = EXO_WIRE_CANCEL, .id = 1},
        {.kind = EXO_WIRE_CANCEL, .id = 1},
        {.kind = EXO_WIRE_CANCEL, .id = 1},
        {.kind = EXO_WIRE_CANCEL, .id = UINT64_MAX},
        {.kind = EXO_WIRE_REPLY, .id = 0},
        {.kind = EXO_WIRE_REPLY, .id = UINT64_C(1) << 32 | 1},
        {.kind = EXO_WIRE_REPLY,
         .id = UINT64_MAX,
         .payload = {.place = EXO_WIRE_BYTES, .data = "x", .size = 1}},
        call_of(0, actor.id, "echo"),
        call_of(2, actor.id, "echo"),
    };
    for (int i = 0; i < 100; i++)
        say(odd, sizeof odd / sizeof odd[0]);
    say(&(exo_envelope){.kind = EXO_WIRE_CALL,
                        .id = 3,
                        .actor = actor.id,
                        .method = "echo",
                        .timeout = INT64_MAX},
        1);
    cr_expect_eq(reply_to(3, NULL), EXO_OK);
}

/* Calls `method` so many times. Gives the status of a call of `echo` behind them, and the number of
 * FULL replies. */
static exo_status
call_many(const char *method, uint64_t number_of, size_t *full)
{
    exo_envelope calls[500];
    exo_envelope first = call_of(UINT64_MAX, actor.id, "echo"),
                 behind = call_of(number_of + 1, actor.id, "echo");
    say(&first, 1);
    /* the peer must be admitted first: a stranger may send far less */
    cr_assert_eq(reply_to(first.id, NULL), EXO_OK);
    for (uint64_t id = 1; id <= number_of;) {
        size_t count = 0;
        while (count < 500 && id <= number_of)
            calls[count++] = call_of(id++, actor.id, method);
        say(calls, count);
    }
    say(&behind, 1);
    return reply_to(behind.id, full);
}

/* More lasting calls than any honest caller has: calls beyond the limit get FULL, and all calls end
 * when the caller leaves. */
Test(remote, serves_no_more_than_it_can_remember)
{
    enum {
        SERVED = 2 * 65536,
        MORE = 1000
    };
    size_t full = 0;
    cr_expect_eq(call_many("last", SERVED + MORE, &full), EXO_FULL);
    cr_expect_eq(full, MORE + 1);
    say(&(exo_envelope){.kind = EXO_WIRE_CANCEL, .id = 7}, 1); /* room for one call */
    const exo_envelope again = call_of(SERVED + MORE + 2, actor.id, "echo");
    say(&again, 1);
    cr_expect_eq(reply_to(again.id, NULL), EXO_OK);
}

Test(remote, bounds_monitors)
{
    enum {
        MORE = 100
    };
    const uint64_t most = exo_quotas_default.most[EXO_QUOTA_MONITORS];
    exo_remote_held held;
    size_t full = 0;
    cr_expect_eq(call_many("$monitor", most + MORE, &full), EXO_OK, "other calls are served");
    cr_expect_eq(full, MORE);
    exo_remote_held_for(remote, 99, &held);
    cr_expect_eq(held.monitors, most);
    say(&(exo_envelope){.kind = EXO_WIRE_CANCEL, .id = 7}, 1); /* room for one monitor */
    const exo_envelope calls[] = {call_of(most + MORE + 2, actor.id, "$monitor"),
                                  call_of(most + MORE + 3, actor.id, "$monitor")};
    say(calls, 2);
    cr_expect_eq(reply_to(calls[1].id, NULL), EXO_FULL);
    cr_assert_eq(exo_kill(runtime, actor, "a test", NULL), EXO_OK);
    cr_expect_eq(reply_to(calls[0].id, NULL), EXO_PEER_LOST);
    exo_remote_held_for(remote, 99, &held);
    cr_expect_eq(held.monitors, 0);
}

Test(remote, bounds_references)
{
    const uint64_t most = exo_quotas_default.most[EXO_QUOTA_REFERENCES];
    exo_err err = {0};
    exo_ref ref = {0};
    exo_remote_held held;
    const exo_envelope first = call_of(1, actor.id, "echo");
    say(&first, 1);
    cr_assert_eq(reply_to(first.id, NULL), EXO_OK);
    exo_peer *peer = exo_remote_peer(remote, 99);
    cr_assert(peer);
    for (uint64_t id = 1; id <= most; id++)
        cr_assert_eq(exo_remote_actor(remote, peer, id, &ref, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_remote_actor(remote, peer, most + 1, &ref, &err), EXO_FULL);
    cr_expect(strstr(err.text, "'references'"), "%s", err.text);
    cr_expect_eq(exo_remote_actor(remote, peer, 1, &ref, &err), EXO_OK, "one that there is");
    exo_remote_held_for(remote, 99, &held);
    cr_expect_eq(held.references, most);
    exo_peer_drop(&peer);
}

Test(remote, tells_of_a_bounded_number_of_deaths)
{
    enum {
        MOST = 2048
    };
    static uint64_t ids[MOST + 1];
    for (size_t i = 0; i <= MOST; i++)
        ids[i] = i + 1000;
    for (size_t count = MOST; count <= MOST + 1; count++) {
        exo_envelope e = call_of(count, 0, "$deaths");
        e.payload =
            (exo_wire_payload){.place = EXO_WIRE_BYTES, .data = ids, .size = count * sizeof ids[0]};
        say(&e, 1);
        cr_expect_eq(reply_to(count, NULL), count == MOST ? EXO_OK : EXO_INVAL);
    }
}
