/* The runner's part of lives: a worker may die at any moment of a rebirth. Actors of this process stand
 * for those of workers; they answer `connect`, `relink` and `run`, and one is killed before it is connected,
 * or before it runs. The run goes on with the next life. Deaths of processes: tests/cluster/graph_lives.sh. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>
#include <exogym/log.h>

#include "actor/future.h"
#include "graph/lives.h"

static exo_runtime *runtime;
static exo_err err;

/* When the next life of actor 0 is killed, once. */
enum {
    NEVER,
    BEFORE_CONNECT,
    BEFORE_RUN,
    UNREACHED, /* it is not killed: actor 1 cannot reach it */
};
static int moment;

static exo_cast cast;

static void
kill_first(void)
{
    moment = NEVER;
    cr_assert_eq(exo_kill(runtime, cast.actors[0], "on purpose", &err), EXO_OK, "%s", err.text);
}

/* --- The actors ------------------------------------------------------------------------------- */

static exo_status
answer(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *e)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)e;
    return EXO_OK;
}

/* Actor 1 is told of the next life of actor 0, which then dies. */
static exo_status
relink(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *e)
{
    if (moment == UNREACHED) {
        moment = NEVER;
        return exo_fail(e, EXO_TIMEOUT, "tcp://there does not answer");
    }
    if (moment == BEFORE_RUN)
        kill_first();
    return answer(call, self, args, reply, e);
}

static atomic_bool told; /* an actor, that its life ends */

static exo_status
end_life(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
         exo_err *e)
{
    told = true;
    return answer(call, self, args, reply, e);
}

/* A run goes on until the actor dies, or is told that its life ends. */
static exo_status
run(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *e)
{
    (void)self;
    (void)args;
    (void)reply;
    while (!exo_call_cancelled(call) && !told)
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    return told ? exo_fail(e, EXO_PEER_LOST, "its life ends") : EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "run", .blocking = true},
                                       {.name = "mail", .blocking = true}};
static const exo_method methods[] = {{.name = "run", .run = run},
                                     {.name = "connect", .lane = 1, .run = answer},
                                     {.name = "relink", .lane = 1, .run = relink},
                                     {.name = "end_life", .lane = 1, .run = end_life}};
static const exo_actor_class mortal = {
    .name = "mortal", .lanes = lanes, .num_lanes = 2, .methods = methods, .num_methods = 4};

/* --- The runner ------------------------------------------------------------------------------- */

static exo_actor_spec actors[] = {
    {.name = "first", .count = 1, .restart = {.when = EXO_RESTART_ON_FAILURE}},
    {.name = "second", .count = 1}};
static const exo_graph_spec spec = {.actors = actors, .num_actors = 2};

static void
name_of(const void *context, uint32_t i, char out[EXO_CAST_NAME])
{
    (void)context;
    snprintf(out, EXO_CAST_NAME, "%s_0", actors[i].name);
}

static int refusals; /* lives of actor `refused` that no worker takes */
static uint32_t refused;

/* context: the lives. */
static exo_status
make(void *context, uint32_t i, exo_err *e)
{
    const exo_spawn_opts opts = {0};
    if (i == refused && refusals > 0) {
        const exo_lives *l = context;
        char name[EXO_LIFE_NAME];
        exo_life_name(l->spec->num_actors == 1 ? "twin" : "first", i, l->lives[i], name);
        refusals--;
        return exo_fail(e, EXO_FULL, "none of 3 workers has room for '%s'", name);
    }
    exo_status st = exo_spawn(runtime, &mortal, &opts, &cast.actors[i], e);
    if (st == EXO_OK && i == 0 && moment == BEFORE_CONNECT)
        kill_first();
    return st;
}

/* Waits for the end of the run of actor `i`. */
static void
take_end_of(exo_lives *l, uint32_t i)
{
    exo_err reason = {0};
    exo_status st =
        exo_wait(cast.futures[i], exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL, &reason);
    cr_assert_eq(st, EXO_PEER_LOST, "%s", reason.text);
    exo_future_drop(&cast.futures[i]);
    cr_assert(exo_lives_take(l, i, st, &reason));
}

static void
take_end(exo_lives *l)
{
    take_end_of(l, 0);
}

/* Begins the lives that are due until all actors run. */
static void
tend(exo_lives *l, int at)
{
    uint32_t culprit = 0;
    for (int i = 0; i < 60000 && exo_lives_pend(l); i++) {
        cr_assert_eq(exo_lives_tend(l, &culprit, &err), EXO_OK, "moment %d: %s", at, err.text);
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    }
    cr_expect(!exo_lives_pend(l), "moment %d", at);
}

static void
open_cast(exo_lives *l)
{
    *l = (exo_lives){.spec = &spec, .cast = &cast, .make = make, .context = l};
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    cast = (exo_cast){.count = 2, .runtime = runtime, .name = name_of};
    cr_assert_eq(exo_cast_open(&cast, &err), EXO_OK);
    cr_assert_eq(exo_lives_open(l, &err), EXO_OK);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(make(l, i, &err), EXO_OK);
}

static void
close_cast(exo_lives *l)
{
    exo_cast_drop(&cast);
    cr_assert_eq(exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), &err),
                 EXO_OK);
    exo_lives_close(l);
    exo_cast_close(&cast);
}

Test(lives_asked, an_actor_that_dies_before_it_runs_has_another_life, .timeout = 120)
{
    exo_lives l;
    uint32_t culprit = 0;
    open_cast(&l);
    kill_first();
    cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
    tend(&l, NEVER);
    cr_expect_eq(l.lives[0], 1);
    cr_expect_eq(l.lives[1], 0);
    close_cast(&l);
    open_cast(&l); /* the other one has no restart rule */
    cr_assert_eq(exo_kill(runtime, cast.actors[1], "on purpose", &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_lives_begin(&l, &culprit, &err), EXO_PEER_LOST);
    cr_expect_eq(culprit, 1);
    close_cast(&l);
}

Test(lives_asked, an_actor_that_dies_within_its_rebirth_has_another_one, .timeout = 120)
{
    for (int at = BEFORE_CONNECT; at <= UNREACHED; at++) {
        exo_lives l;
        uint32_t culprit = 0;
        open_cast(&l);
        cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
        kill_first();
        take_end(&l);
        moment = at;
        tend(&l, at);
        cr_expect_eq(moment, NEVER, "moment %d: nobody was killed", at);
        cr_expect_eq(l.lives[0], 2, "moment %d: life %u", at, l.lives[0]);
        close_cast(&l);
    }
}

static void
count_put_off(void *context, exo_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "event=put_off"))
        atomic_fetch_add((atomic_int *)context, 1);
}

/* Actor `i` dies, and three lives of it find no room. */
static void
expect_one_line(exo_lives *l, uint32_t i)
{
    uint32_t culprit = 0;
    atomic_int lines = 0;
    cr_assert_eq(exo_lives_begin(l, &culprit, &err), EXO_OK, "%s", err.text);
    exo_log_set_sink(count_put_off, &lines);
    cr_assert_eq(exo_kill(runtime, cast.actors[i], "on purpose", &err), EXO_OK, "%s", err.text);
    take_end_of(l, i);
    refused = i;
    refusals = 3;
    tend(l, NEVER);
    exo_log_set_sink(NULL, NULL);
    cr_expect_eq(refusals, 0);
    cr_expect_eq(l->lives[i], 4);
    cr_expect_eq(lines, 1, "actor %u: %d lines", i, lines);
}

/* --- The end of the earlier life -------------------------------------------------------------- */

static int asked;            /* requests to end a life */
static exo_future *promised; /* held: the answer to the latest one */
static bool was_lost;

static exo_status
end(void *context, uint32_t i, bool is_lost, exo_future **out, exo_err *e)
{
    const exo_lives *l = context;
    cr_assert_eq(i, 0);
    cr_expect_eq(l->lives[0], 0, "the earlier life is to end, not life %u", l->lives[0]);
    asked++;
    was_lost = is_lost;
    if (asked == 1) /* the head is away */
        return exo_fail(e, EXO_TIMEOUT, "the head is away");
    cr_assert_eq(exo_future_new(&promised, exo_clock_real(), INT64_MAX, e), EXO_OK);
    *out = exo_future_hold(promised);
    return EXO_OK;
}

/* Answers the latest request, which is then repeated, or not. */
static void
answer_end(exo_lives *l, exo_status st)
{
    uint32_t culprit = 0;
    for (int i = 0; i < 3; i++) { /* no other life meanwhile */
        cr_assert_eq(exo_lives_tend(l, &culprit, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(l->lives[0], 0, "it begins its next life beside the earlier one");
    }
    cr_assert_not_null(promised);
    exo_future_complete(promised, st, "an answer", NULL);
    exo_future_drop(&promised);
}

/* A lost worker's actors may be alive: the driver was cut off from it, or it was frozen. */
Test(lives_asked, the_next_life_begins_when_the_earlier_one_has_ended, .timeout = 120)
{
    static const exo_status ends[] = {EXO_NOT_FOUND, EXO_OK, EXO_DENIED, EXO_INVAL};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        exo_lives l;
        uint32_t culprit = 0;
        open_cast(&l);
        l.end = end;
        asked = 0;
        cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
        kill_first();
        take_end(&l);
        answer_end(&l, EXO_TIMEOUT);
        answer_end(&l, EXO_PEER_LOST);
        answer_end(&l, EXO_FULL);
        answer_end(&l, ends[i]);
        tend(&l, NEVER);
        cr_expect_eq(asked, 5);
        cr_expect(was_lost);
        cr_expect_eq(l.lives[0], 1);
        close_cast(&l);
    }
}

Test(lives_asked, a_life_that_has_failed_by_itself_is_not_lost, .timeout = 120)
{
    exo_lives l;
    uint32_t culprit = 0;
    exo_err lost = {0};
    exo_fail(&lost, EXO_PEER_LOST, "on purpose");
    open_cast(&l);
    l.end = end;
    asked = 1;
    cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
    cr_assert(exo_lives_end(&l, 0, &lost));
    take_end(&l);
    told = false;
    answer_end(&l, EXO_NOT_FOUND);
    cr_expect(!was_lost);
    tend(&l, NEVER);
    close_cast(&l);
}

/* Nobody can say so at a worker that is stopped: its driver does not wait for ever. */
Test(lives_asked, an_end_that_nobody_confirms_is_not_awaited_for_ever, .timeout = 120)
{
    exo_lives l;
    uint32_t culprit = 0;
    open_cast(&l);
    l.end = end;
    asked = 1;
    cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
    kill_first();
    take_end(&l);
    cr_assert_eq(exo_lives_tend(&l, &culprit, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(l.lives[0], 0);
    l.units[0].parts -= EXO_LIFE_PARTING;
    tend(&l, NEVER);
    cr_expect_eq(l.lives[0], 1);
    exo_future_drop(&promised);
    close_cast(&l);
}

Test(lives_asked, a_reason_that_stays_is_logged_once, .timeout = 120)
{
    exo_lives l;
    open_cast(&l);
    expect_one_line(&l, 0);
    close_cast(&l);
}

Test(lives_asked, a_reason_that_stays_is_logged_once_for_another_actor_of_the_name, .timeout = 120)
{
    exo_actor_spec twins[] = {
        {.name = "twin", .count = 2, .restart = {.when = EXO_RESTART_ON_FAILURE}}};
    const exo_graph_spec two = {.actors = twins, .num_actors = 1};
    exo_lives l;
    open_cast(&l);
    exo_lives_close(&l);
    l.spec = &two;
    cr_assert_eq(exo_lives_open(&l, &err), EXO_OK);
    expect_one_line(&l, 1);
    close_cast(&l);
}

Test(lives_asked, the_life_of_an_actor_that_runs_is_ended_if_it_gets_another, .timeout = 120)
{
    exo_lives l;
    uint32_t culprit = 0;
    exo_err lost = {0};
    exo_fail(&lost, EXO_PEER_LOST, "on purpose");
    open_cast(&l);
    cr_assert_eq(exo_lives_begin(&l, &culprit, &err), EXO_OK, "%s", err.text);
    cr_expect(!exo_lives_end(&l, 1, &lost), "it has no restart rule");
    cr_expect(!exo_lives_pend(&l) && !told);
    cr_assert(exo_lives_end(&l, 0, &lost));
    cr_expect(exo_lives_is_due(&l, 0));
    take_end(&l);
    told = false;
    tend(&l, NEVER);
    cr_expect_eq(l.lives[0], 1);
    cr_expect_eq(l.lives[1], 0);
    close_cast(&l);
}

/* Both members name their own file, in turn. */
Test(lives_asked, members_that_fail_in_turn_for_one_reason_end_the_run)
{
    exo_actor_spec members[] = {
        {.name = "member", .count = 2, .restart = {.when = EXO_RESTART_ON_FAILURE}}};
    exo_edge_spec sums[] = {{.route = EXO_ROUTE_ALL_REDUCE}};
    const exo_graph_spec pair = {.actors = members, .num_actors = 1, .edges = sums, .num_edges = 1};
    exo_lives l;
    open_cast(&l);
    exo_lives_close(&l);
    l.spec = &pair;
    cr_assert_eq(exo_lives_open(&l, &err), EXO_OK);
    for (uint32_t i = 1; i <= EXO_SAME_FAILURES; i++) {
        exo_err full = {0};
        exo_fail(&full, EXO_IO, "checkpoint_member_%u: no space", i % 2);
        cr_expect_eq(exo_lives_take(&l, i % 2, EXO_IO, &full), i < EXO_SAME_FAILURES, "failure %u",
                     i);
        cr_expect_eq(strstr(full.text, "allow more by 'restart.max'") != NULL,
                     i == EXO_SAME_FAILURES, "%s", full.text);
        l.units[0].state = EXO_UNIT_RUNS;
    }
    close_cast(&l);
}

static void
name_of_life(const void *context, uint32_t i, char out[EXO_CAST_NAME])
{
    (void)i;
    snprintf(out, EXO_CAST_NAME, "%s", (const char *)context);
}

Test(lives_asked, a_cause_has_the_name_of_its_actor_once)
{
    static const struct {
        const char *name, *reason, *blame;
    } rows[] = {{"maker_1", "no space", "maker_1: no space"},
                {"maker_1", "maker_1: no space", "maker_1: no space"},
                {"maker_1", "maker_1 waits", "maker_1 waits"},
                {"maker_1", "maker_10: no space", "maker_1: maker_10: no space"},
                {"maker_1.12", "maker_1: no space", "maker_1.12: no space"},
                {"maker_1.12", "maker_1.12: no space", "maker_1.12: no space"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const exo_cast of = {.name = name_of_life, .context = rows[i].name, .names_itself = true};
        exo_err blame = {0};
        cr_expect_eq(exo_cast_blame(&of, 0, EXO_IO, rows[i].reason, &blame), EXO_IO);
        cr_expect_str_eq(blame.text, rows[i].blame);
    }
}
