/* A change of a running graph whose actors fail to make it, or are late: two actors of this process stand
 * for those of workers, and answer `change` as a test says. Processes: tests/cluster/graph_pending.sh. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>

#include "graph/changing.h"

/* Of each actor: how often it fails before it succeeds, and whether its answer waits. */
static atomic_int failures[2];
static atomic_bool waits[2];

static exo_runtime *runtime;
static exo_err err;
static exo_cast cast;

static exo_status
change(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *e)
{
    const uint32_t i = exo_call_self(call).id == cast.actors[1].id;
    (void)self;
    (void)args;
    (void)reply;
    while (atomic_load(&waits[i]))
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    return atomic_fetch_sub(&failures[i], 1) > 0 ? exo_fail(e, EXO_IO, "no room for a channel")
                                                 : EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "change", .blocking = true}};
static const exo_method methods[] = {{.name = "change", .run = change}};
static const exo_actor_class changing_class = {
    .name = "changing", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 1};

static void
name_of(const void *context, uint32_t i, char out[EXO_CAST_NAME])
{
    (void)context;
    snprintf(out, EXO_CAST_NAME, "actor_%u", i);
}

/* Begins a change of two actors in workers. */
static void
begin(exo_changing *c)
{
    static const exo_graph_spec next;
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    cast = (exo_cast){.count = 2, .runtime = runtime, .name = name_of};
    cr_assert_eq(exo_cast_open(&cast, &err), EXO_OK, "%s", err.text);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(exo_spawn(runtime, &changing_class, NULL, &cast.actors[i], &err), EXO_OK, "%s",
                     err.text);
    *c = (exo_changing){.cast = &cast};
    cr_assert_eq(exo_changing_begin(c, &next, "the next graph", &err), EXO_OK, "%s", err.text);
}

/* Ends the run, and the change with it. */
static void
end(exo_changing *c)
{
    exo_changing_close(c);
    exo_cast_drop(&cast);
    cr_assert_eq(exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), &err),
                 EXO_OK, "%s", err.text);
    exo_cast_close(&cast);
}

static bool
go_on(exo_changing *c, exo_status *status)
{
    uint32_t culprit = 0;
    return exo_changing_go_on(c, status, &culprit, &err);
}

Test(graph_changing, an_actor_that_failed_and_then_succeeded_is_no_culprit, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    failures[0] = 2;
    waits[1] = true;
    begin(&c);
    do
        cr_assert_not(go_on(&c, &st), "actor 1 has not answered: %s", err.text);
    while (failures[0] >= 0 || c.round.futures[0]);
    cr_expect_eq(c.failing, 0, "the other actor may be late for as long as it likes");
    cr_expect_eq(exo_changing_late(&c), 1);
    waits[1] = false;
    while (!go_on(&c, &st))
        continue;
    cr_expect_eq(st, EXO_OK, "%s", err.text);
    end(&c);
}

Test(graph_changing, an_actor_that_fails_and_is_asked_again_is_late, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    failures[0] = 1000000;
    begin(&c);
    do
        cr_assert_not(go_on(&c, &st));
    while (failures[1] == 0 || c.round.futures[1] || !c.again[0]);
    cr_expect_eq(exo_changing_late(&c), 0);
    cr_expect_eq(c.culprit, 0);
    end(&c);
}

Test(graph_changing, an_actor_that_fails_for_a_minute_ends_the_run, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    uint32_t culprit = 1;
    failures[0] = 1000000;
    begin(&c);
    do
        cr_assert_not(go_on(&c, &st));
    while (!c.again[0]);
    c.failing -= 61 * EXO_SECOND;
    while (!exo_changing_go_on(&c, &st, &culprit, &err))
        continue;
    cr_expect_eq(st, EXO_IO);
    cr_expect_eq(culprit, 0);
    cr_expect(strstr(err.text, "no room for a channel"), "%s", err.text);
    end(&c);
}

/* Its process may be stopped since it has failed. */
Test(graph_changing, an_actor_that_failed_and_does_not_answer_is_waited_for, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    failures[0] = 1000000;
    begin(&c);
    do
        cr_assert_not(go_on(&c, &st));
    while (!c.again[0]);
    waits[0] = true;
    failures[0] = 0;
    c.failing -= 61 * EXO_SECOND;
    do
        cr_assert_not(go_on(&c, &st), "%s", err.text);
    while (c.again[0]);
    cr_expect_not(go_on(&c, &st), "%s", err.text);
    waits[0] = false;
    while (!go_on(&c, &st))
        continue;
    cr_expect_eq(st, EXO_OK, "%s", err.text);
    end(&c);
}

/* The other one failed first, and is waited for now. */
Test(graph_changing, an_actor_that_fails_once_does_not_answer_for_another_one, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    failures[0] = 1000000;
    waits[1] = true;
    begin(&c);
    do
        cr_assert_not(go_on(&c, &st));
    while (!c.again[0]);
    waits[0] = true;
    failures[0] = 0;
    do
        cr_assert_not(go_on(&c, &st), "%s", err.text);
    while (c.again[0]);
    c.failing -= 61 * EXO_SECOND;
    failures[1] = 1;
    waits[1] = false;
    do
        cr_assert_not(go_on(&c, &st), "%s", err.text);
    while (failures[1] >= 0);
    waits[0] = false;
    while (!go_on(&c, &st))
        continue;
    cr_expect_eq(st, EXO_OK, "%s", err.text);
    end(&c);
}

Test(graph_changing, a_dead_actor_does_without, .timeout = 60)
{
    exo_changing c;
    exo_status st = EXO_OK;
    waits[0] = waits[1] = true;
    begin(&c);
    cr_assert_eq(exo_kill(runtime, cast.actors[1], "on purpose", &err), EXO_OK, "%s", err.text);
    cr_expect_not(go_on(&c, &st), "actor 0 has not answered: %s", err.text);
    waits[0] = waits[1] = false;
    while (!go_on(&c, &st))
        continue;
    cr_expect_eq(st, EXO_OK, "%s", err.text);
    end(&c);
}

Test(graph_changing, workers_take_no_more_changes_than_a_site_keeps, .timeout = 60)
{
    static const exo_graph_spec next;
    exo_changing c;
    exo_status st = EXO_OK;
    begin(&c);
    for (int i = 1; i <= EXO_MAX_CHANGES; i++) {
        while (!go_on(&c, &st))
            continue;
        cr_assert_eq(st, EXO_OK, "%s", err.text);
        cr_assert_eq(exo_changing_begin(&c, &next, "another graph", &err),
                     i < EXO_MAX_CHANGES ? EXO_OK : EXO_FULL, "change %d: %s", i, err.text);
    }
    cr_expect(strstr(err.text, "changes 1000 times at most"), "%s", err.text);
    cr_expect_not(exo_changing_pends(&c));
    end(&c);
}
