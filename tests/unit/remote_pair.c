/* Two runtimes that are connected: what the one keeps of the other's actors. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "eventually.h"
#include "remote_impl.h"
#include "temp.h"

enum {
    HERE, /* calls          */
    THERE /* has the actors */
};

static char folder[64], endpoints[2][128];
static exo_runtime *runtimes[2];
static exo_remote *remotes[2];
static exo_peer *peer; /* of THERE, at HERE */
static exo_err err;

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *why)
{
    (void)call;
    (void)self;
    (void)why;
    return exo_payload_copy(reply, args->data, args->size);
}

static const exo_method methods[] = {{.name = "echo", .run = echo}};
static const exo_actor_class echo_class = {.name = "echo", .methods = methods, .num_methods = 1};

static void
quiet(void *unused, exo_log_level level, const char *line)
{
    (void)unused;
    (void)level;
    (void)line;
}

static void
setup(void)
{
    exo_log_set_sink(quiet, NULL);
    temp_folder(folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        snprintf(endpoints[i], sizeof endpoints[i], "ipc://%s/%d", folder, i);
        const char *list[] = {endpoints[i]};
        const exo_net_opts opts = {.name = i ? "there" : "here", .endpoints = list, .num_endpoints = 1};
        cr_assert_eq(exo_runtime_open(&runtimes[i], NULL, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_remote_open(&remotes[i], runtimes[i], &opts, NULL, NULL, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_remote_start(remotes[i], &err), EXO_OK, "%s", err.text);
    }
    cr_assert_eq(exo_net_connect(exo_remote_net(remotes[HERE]), endpoints[THERE], NULL, in_ms(20000), &peer, &err),
                 EXO_OK, "%s", err.text);
}

static void
teardown(void)
{
    exo_peer_drop(&peer);
    for (int i = 0; i < 2; i++)
        exo_remote_close(remotes[i]);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(exo_runtime_close(&runtimes[i], in_ms(20000), &err), EXO_OK, "%s", err.text);
        exo_remote_free(&remotes[i]);
    }
    temp_remove(folder);
}

TestSuite(remote_pair, .init = setup, .fini = teardown, .timeout = 120);

/* A new actor there, as it is called there, and here. */
static exo_ref
make(exo_ref *here)
{
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtimes[THERE], &echo_class, NULL, &ref, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_remote_actor(remotes[HERE], peer, ref.id, here, &err), EXO_OK, "%s", err.text);
    return ref;
}

static exo_future *
call(exo_ref actor, exo_payload *args)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_future_new(&future, exo_clock_real(), in_ms(20000), &err), EXO_OK);
    cr_assert_eq(exo_remote_call(remotes[HERE], actor, "echo", args, future, &err), EXO_OK, "%s", err.text);
    return future;
}

static exo_status
call_and_wait(exo_ref actor)
{
    exo_payload none = {0};
    exo_future *future = call(actor, &none);
    exo_status st = exo_wait(future, in_ms(20000), NULL, &err);
    exo_future_drop(&future);
    return st;
}

static exo_future *
monitor(exo_ref actor)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_future_new(&future, exo_clock_real(), INT64_MAX, &err), EXO_OK);
    cr_assert_eq(exo_remote_monitor(remotes[HERE], actor, future, &err), EXO_OK, "%s", err.text);
    return future;
}

Test(remote_pair, monitors_that_are_dropped_keep_no_call_from_its_place)
{
    exo_ref here = {0}, there = make(&here);
    exo_future *kept = monitor(here);
    for (size_t i = 0; i < WINDOW + 1; i++) {
        exo_future *dropped = monitor(here);
        exo_future_drop(&dropped);
    }
    cr_expect_eq(call_and_wait(here), EXO_OK, "%s", err.text);
    exo_kill(runtimes[THERE], there, "it is enough", NULL);
    cr_expect_eq(exo_wait(kept, in_ms(20000), NULL, &err), EXO_PEER_LOST);
    exo_future_drop(&kept);
}

/* So many references that the other process is asked which of its actors are dead: it says why, too. */
Test(remote_pair, a_reference_keeps_the_cause_of_its_death)
{
    char text[EXO_ERR_TEXT];
    exo_ref here[2], there[2], other;
    for (int i = 0; i < 2; i++)
        there[i] = make(&here[i]);
    exo_future *death = monitor(here[0]);
    exo_kill(runtimes[THERE], there[0], "it was watched", NULL);
    cr_expect_eq(exo_wait(death, in_ms(20000), NULL, NULL), EXO_PEER_LOST);
    exo_future_drop(&death);
    exo_kill(runtimes[THERE], there[1], "nobody saw it", NULL);
    cr_expect_eq(exo_remote_cause(remotes[HERE], here[0], text, sizeof text), EXO_OK);
    for (int i = 0; i < 1100; i++) /* the reference number 1,024 has them asked for */
        make(&other);
    EVENTUALLY(exo_remote_cause(remotes[HERE], here[1], text, sizeof text) == EXO_OK);
    for (int i = 0; i < 100; i++) /* and later ones do not take their places */
        make(&other);
    EVENTUALLY(exo_remote_cause(remotes[HERE], here[1], text, sizeof text) == EXO_OK);
    cr_expect(strstr(text, "nobody saw it"), "%s", text);
    cr_expect_eq(exo_remote_cause(remotes[HERE], here[0], text, sizeof text), EXO_OK);
    cr_expect(strstr(text, "it was watched"), "%s", text);
}
