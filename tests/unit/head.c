/* A head that is told what no honest process says: it refuses, and goes on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "cluster/head.h"

static exo_runtime *runtime;
static exo_ref head;
static _Atomic exo_time due;

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    (void)context;
    (void)node;
    (void)out;
    return exo_fail(err, EXO_PEER_LOST, "there is no worker");
}

static void
wake(void *context)
{
    (void)context;
}

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static void
setup(void)
{
    const exo_head_env env = {.worker_of = worker_of, .cluster = "test", .wake = wake, .due = &due};
    exo_err err = {0};
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &exo_head_class,
                           &(exo_spawn_opts){.args = exo_payload_borrow(&env, sizeof env)}, &head,
                           &err),
                 EXO_OK, "%s", err.text);
}

static void
teardown(void)
{
    exo_err err = {0};
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK, "%s", err.text);
}

TestSuite(head, .init = setup, .fini = teardown);

static exo_status
ask(const char *method, const void *data, size_t size)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    exo_err err = {0};
    cr_assert_eq(exo_payload_copy(&args, data, size), EXO_OK);
    cr_assert_eq(exo_call(runtime, head, method, args, soon(), &future, &err), EXO_OK, "%s",
                 err.text);
    exo_status st = exo_wait(future, soon(), NULL, &err);
    cr_expect(st == EXO_OK || err.text[0], "%s says nothing", method);
    exo_future_drop(&future);
    return st;
}

/* A Register of the worker `node` with `amount` of one resource. */
static size_t
registration(uint8_t out[64], uint8_t node, double amount)
{
    const uint8_t fixed[] = {0x08, node, 0x2a, 0x0c, 0x0a, 0x01, 'r', 0x11};
    memcpy(out, fixed, sizeof fixed);
    memcpy(out + sizeof fixed, &amount, sizeof amount);
    out[3] = 3 + 1 + sizeof amount;
    static const uint8_t kind[] = {0x3a, 0x06, 'w', 'o', 'r', 'k', 'e', 'r'};
    memcpy(out + sizeof fixed + sizeof amount, kind, sizeof kind);
    return sizeof fixed + sizeof amount + sizeof kind;
}

Test(head, names_a_node_that_has_no_name)
{
    uint8_t m[64];
    for (uint8_t node = 1; node <= 3; node++)
        cr_expect_eq(ask("register", m, registration(m, node, 1)), EXO_OK);
    cr_expect_eq(ask("why", "\x12\x06worker", 8), EXO_OK);
    cr_expect_eq(ask("why", "\x12\x08worker-3", 10), EXO_OK);
}

Test(head, counts_no_resource_that_cannot_be)
{
    uint8_t m[64];
    const double bad[] = {NAN, INFINITY, -INFINITY, -1};
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(ask("register", m, registration(m, 1, bad[i])), EXO_INVAL, "%g", bad[i]);
    cr_expect_eq(ask("register", m, registration(m, 1, 0)), EXO_OK);
}

/* Each level costs stack where it is unpacked, and few bytes where it is sent. */
Test(head, is_not_nested_to_death)
{
    const size_t levels = 200000;
    uint8_t *at, *data = exo_calloc(levels, 8);
    size_t size = 0;
    at = data + levels * 8;
    for (size_t i = 0; i < levels; i++) { /* from the inside: together = {...} */
        uint8_t head_bytes[8] = {0x8a, 0x01};
        size_t n = 2, left = size;
        do {
            head_bytes[n++] = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
            left >>= 7;
        } while (left);
        at -= n;
        memcpy(at, head_bytes, n);
        size += n;
    }
    cr_expect_eq(ask("spawn", at, size), EXO_INVAL);
    exo_free(data);
    cr_expect_eq(ask("list", "", 0), EXO_OK);
}

Test(head, survives_bytes_that_are_no_arguments)
{
    static const char *const methods[] = {"register", "gone", "spawn",   "started", "find",
                                          "claim",    "died", "epitaph", "list",    "why",
                                          "log",      "logs", "tick",    "give_up", "report"};
    uint8_t bytes[700];
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        for (size_t size = 0; size < sizeof bytes; size = size * 2 + 1) {
            memset(bytes, 0xff, sizeof bytes);
            if (strcmp(methods[i], "logs") != 0) /* which may wait */
                ask(methods[i], bytes, size);
        }
        memset(bytes, 0, sizeof bytes);
        if (strcmp(methods[i], "logs") != 0)
            ask(methods[i], bytes, sizeof bytes);
    }
    cr_expect_eq(ask("started", "short", 5), EXO_INVAL);
    cr_expect_eq(ask("list", "", 0), EXO_OK);
}

/* A Register of the driver `node` of the job "job". */
static const uint8_t driver[] = {0x08, 9,   0x3a, 6, 'd', 'r', 'i', 'v',
                                 'e',  'r', 0x52, 3, 'j', 'o', 'b'};

/* A Report of `size` characters by `node`; the caller frees it. */
static uint8_t *
report_of(uint8_t node, size_t size, size_t *total)
{
    uint8_t *m = exo_calloc(1, size + 11);
    const uint8_t fixed[] = {0x0a, 3, 'j', 'o', 'b', 0x10, node, 0x1a};
    size_t n = sizeof fixed;
    memcpy(m, fixed, n);
    for (size_t left = size; left || n == sizeof fixed; left >>= 7)
        m[n++] = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
    memset(m + n, 'r', size);
    *total = n + size;
    return m;
}

static exo_status
report(uint8_t node, size_t size)
{
    size_t total = 0;
    uint8_t *m = report_of(node, size, &total);
    exo_status st = ask("report", m, total);
    exo_free(m);
    return st;
}

Test(head, keeps_reports_of_drivers_that_live)
{
    cr_expect_eq(report(9, 10), EXO_NOT_FOUND, "there is no such job");
    cr_expect_eq(ask("register", driver, sizeof driver), EXO_OK);
    cr_expect_eq(report(9, 10), EXO_OK);
    cr_expect_eq(report(9, 64 << 10), EXO_OK);
    cr_expect_eq(report(9, (64 << 10) + 1), EXO_INVAL, "that is too long");
    cr_expect_eq(report(8, 10), EXO_NOT_FOUND, "the job is another driver's");
    cr_expect_eq(ask("gone", "\x08\x09\x32\x04left", 8), EXO_OK);
    cr_expect_eq(report(9, 10), EXO_NOT_FOUND, "the job has ended");
}

Test(head, takes_no_name_that_is_too_long)
{
    char m[600] = {0x1a, 0x01, 's', 0x12, (char)0x80, 0x02}; /* a namespace; 256 characters */
    memset(m + 6, 'n', 256);
    cr_expect_eq(ask("spawn", m, 262), EXO_INVAL);
    m[4] = (char)0xff;
    m[5] = 0x01;
    cr_expect_eq(ask("spawn", m, 261), EXO_FULL, "there is no worker, but the name is fine");
    cr_expect_eq(ask("spawn", m + 3, 258), EXO_INVAL, "it has no namespace");
}
