/* What the head makes of deaths: a worker that only notes what it is asked for, whose answers the tests give, and a clock that they move. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "directory.h"
#include "head.h"
#include "messages.h"

enum {
    NODE = 1,
    MOST = 256
};

/* What the worker was asked for. */
struct asked {
    char name[64];
    uint64_t key, incarnation, id;
    exo_future *answer; /* NULL: given */
};

static exo_clock_manual manual;
static exo_runtime *runtime;
static exo_ref head, worker;
static _Atomic exo_time due = INT64_MAX;
static struct asked spawns[MOST];
static struct exo_head_kill kills[MOST];
static size_t num_spawns, num_kills;

/* --- The worker ------------------------------------------------------------------------------------------------------------- */

static exo_status
note_spawn(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    (void)reply;
    (void)err;
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    cr_assert(spec && num_spawns < MOST);
    struct asked *a = &spawns[num_spawns++];
    *a = (struct asked){.key = spec->key, .incarnation = spec->incarnation, .answer = exo_call_defer(call)};
    snprintf(a->name, sizeof a->name, "%s", spec->name);
    EXO_RELEASE(spec);
    return EXO_OK;
}

static exo_status
note_kill(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)reply;
    (void)err;
    cr_assert(args->size == sizeof kills[0] && num_kills < MOST);
    memcpy(&kills[num_kills++], args->data, sizeof kills[0]);
    return EXO_OK;
}

static exo_status
nothing(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

static const exo_method methods[] = {
    {.name = "spawn", .run = note_spawn}, {.name = "kill", .run = note_kill}, {.name = "nothing", .run = nothing}};
static const exo_actor_class worker_class = {.name = "a worker", .methods = methods, .num_methods = 3};

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    (void)context;
    (void)node;
    (void)err;
    *out = worker;
    return EXO_OK;
}

static void
wake(void *context)
{
    (void)context;
}

/* --- Asking the head --------------------------------------------------------------------------------------------------------- */

static exo_future *
begin(exo_ref actor, const char *method, const ProtobufCMessage *message, exo_time deadline)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    exo_err err = {0};
    if (message)
        cr_assert_eq(exo_message_pack(&args, message), EXO_OK);
    cr_assert_eq(exo_call(runtime, actor, method, args, deadline, &future, &err), EXO_OK, "%s", err.text);
    return future;
}

/* When it returns, the worker has got what the head asked of it before. */
static void
settle(void)
{
    exo_future *future = begin(worker, "nothing", NULL, INT64_MAX);
    cr_assert_eq(exo_wait(future, INT64_MAX, NULL, NULL), EXO_OK);
    exo_future_drop(&future);
}

static exo_status
ask(const char *method, const ProtobufCMessage *message, exo_err *err)
{
    exo_future *future = begin(head, method, message, INT64_MAX);
    exo_status st = exo_wait(future, INT64_MAX, NULL, err);
    exo_future_drop(&future);
    settle();
    return st;
}

static void
tick(exo_time after)
{
    exo_clock_manual_advance(&manual, after);
    cr_assert_eq(ask("tick", NULL, NULL), EXO_OK);
}

/* The node's worker, with room for two actors that want a place. */
static void
register_worker(void)
{
    Exo__Cluster__Resource places = EXO__CLUSTER__RESOURCE__INIT, *list[] = {&places};
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    exo_err err = {0};
    places.name = exo_pb_text("places");
    places.amount = 2;
    m.node = NODE;
    m.name = exo_pb_text("w1");
    m.kind = exo_pb_text("worker");
    m.resources = list;
    m.n_resources = 1;
    cr_assert_eq(ask("register", &m.base, &err), EXO_OK, "%s", err.text);
}

static void
lose_worker(const char *cause)
{
    Exo__Cluster__NodeInfo m = EXO__CLUSTER__NODE_INFO__INIT;
    m.node = NODE;
    m.cause = exo_pb_text(cause);
    cr_assert_eq(ask("gone", &m.base, NULL), EXO_OK);
}

static void
setup(void)
{
    exo_err err = {0};
    exo_clock_manual_init(&manual, EXO_SECOND);
    const exo_head_env env = {.worker_of = worker_of, .cluster = "test", .wake = wake, .due = &due};
    cr_assert_eq(exo_runtime_open(&runtime, &(exo_runtime_opts){.clock = &manual.base, .threads = 1}, &err), EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &worker_class, NULL, &worker, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_spawn(runtime, &exo_head_class, &(exo_spawn_opts){.args = exo_payload_borrow(&env, sizeof env)},
                           &head, &err),
                 EXO_OK, "%s", err.text);
    register_worker();
}

static void
teardown(void)
{
    exo_err err = {0};
    for (size_t i = 0; i < num_spawns; i++)
        if (spawns[i].answer)
            exo_reply(&spawns[i].answer, EXO_CANCELLED, "the test is over", NULL);
    cr_expect_eq(exo_runtime_close(&runtime, INT64_MAX, &err), EXO_OK, "%s", err.text);
}

TestSuite(supervision, .init = setup, .fini = teardown, .timeout = 60);

/* --- Actors -------------------------------------------------------------------------------------------------------------------- */

struct member {
    Exo__Cluster__Spawn spec;
    Exo__Cluster__RestartRule rule;
};

static void
describe(struct member *m, const char *name, uint32_t max, exo_group_rule group_rule)
{
    exo__cluster__spawn__init(&m->spec);
    exo__cluster__restart_rule__init(&m->rule);
    m->spec.name = exo_pb_text(name);
    m->spec.space = exo_pb_text("default");
    m->spec.class_name = exo_pb_text("class");
    m->spec.group = exo_pb_text(group_rule == EXO_ONE_FOR_ONE ? "" : "group");
    m->spec.group_rule = group_rule;
    m->spec.restart = &m->rule;
    m->rule.when = EXO_RESTART_ON_FAILURE;
    m->rule.max = max;
}

/* The worker's answer to what it was asked for. */
static void
answer(size_t i, exo_status status, const char *reason)
{
    static uint64_t ids = 100;
    exo_payload reply = {0};
    cr_assert(i < num_spawns && spawns[i].answer);
    spawns[i].id = ++ids;
    if (status == EXO_OK)
        cr_assert_eq(exo_payload_copy(&reply, &spawns[i].id, sizeof spawns[i].id), EXO_OK);
    exo_reply(&spawns[i].answer, status, reason, &reply);
    tick(0); /* what the head makes of it was put into its lane before this */
}

/* The worker tells of the end of a life that it was asked for. */
static void
dies(size_t i, const char *cause)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.key = spawns[i].key;
    m.incarnation = spawns[i].incarnation;
    m.node = NODE;
    m.id = spawns[i].id;
    m.cause = exo_pb_text(cause);
    m.failure = true;
    cr_assert_eq(ask("died", &m.base, NULL), EXO_OK);
}

/* Makes one, or several together. */
static void
spawn(struct member *members, size_t count)
{
    Exo__Cluster__Spawn *together[MOST];
    exo_err err = {0};
    for (size_t i = 1; i < count; i++)
        together[i - 1] = &members[i].spec;
    members[0].spec.together = together;
    members[0].spec.n_together = count - 1;
    size_t first = num_spawns;
    exo_future *made = begin(head, "spawn", &members[0].spec.base, INT64_MAX);
    tick(0);
    cr_assert_eq(num_spawns, first + count);
    for (size_t i = 0; i < count; i++)
        answer(first + i, EXO_OK, NULL);
    cr_assert_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&made);
}

static void
spawn_one(const char *name, uint32_t max)
{
    struct member m;
    describe(&m, name, max, EXO_ONE_FOR_ONE);
    spawn(&m, 1);
}

/* What `exogym why` prints of it. */
static const char *
why(const char *name)
{
    static char text[2048];
    const exo_payload *reply = NULL;
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    exo_future *future = begin(head, "why", &m.base, INT64_MAX);
    exo_status st = exo_wait(future, INT64_MAX, &reply, NULL);
    snprintf(text, sizeof text, "%s", st == EXO_OK ? (const char *)reply->data : "");
    exo_future_drop(&future);
    return text;
}

static bool
is(const char *name, const char *state, uint64_t life)
{
    char expected[64];
    const char *said = why(name);
    snprintf(expected, sizeof expected, "life %llu\n", (unsigned long long)life);
    return strstr(said, state) && strstr(said, expected);
}

/* Lets time pass until the worker is asked for a life; gives that time. */
static exo_time
until_asked(void)
{
    size_t before = num_spawns;
    exo_time began = exo_now(&manual.base);
    tick(0);
    for (int i = 0; num_spawns == before && i < 100; i++) {
        exo_time at = atomic_load(&due), now = exo_now(&manual.base);
        cr_assert_lt(at, INT64_MAX, "nothing is due");
        tick(at > now ? at - now : 0);
    }
    cr_assert_eq(num_spawns, before + 1);
    return exo_now(&manual.base) - began;
}

/* --- Groups ---------------------------------------------------------------------------------------------------------------------- */

/* The deaths of those that the group's rule ended are told when their next lives start already. */
static void
restarts_once(exo_group_rule rule, size_t first)
{
    struct member members[3];
    static const char *const names[] = {"g0", "g1", "g2"};
    for (size_t i = 0; i < 3; i++)
        describe(&members[i], names[i], 0, rule);
    spawn(members, 3);
    dies(1, "it was told to");
    tick(0);
    cr_assert_eq(num_spawns, 3 + 3 - first);
    cr_expect_eq(num_kills, 2 - first);
    for (size_t i = first; i < 3; i++)
        if (i != 1)
            dies(i, "restarted with 'g1' of its group");
    for (size_t i = 3; i < num_spawns; i++)
        answer(i, EXO_OK, NULL);
    for (int i = 0; i < 100; i++)
        tick(EXO_SECOND);
    cr_expect_eq(num_spawns, 3 + 3 - first, "nobody lives again who has not died");
    for (size_t i = 0; i < 3; i++)
        cr_expect(is(names[i], "alive", i < first ? 1 : 2), "%s", why(names[i]));
}

Test(supervision, rest_for_one_restarts_each_member_once)
{
    restarts_once(EXO_REST_FOR_ONE, 1);
}

Test(supervision, all_for_one_restarts_each_member_once)
{
    restarts_once(EXO_ALL_FOR_ONE, 0);
}

Test(supervision, a_group_has_one_rule)
{
    struct member m;
    exo_err err = {0};
    describe(&m, "first", 0, EXO_REST_FOR_ONE);
    spawn(&m, 1);
    describe(&m, "second", 0, EXO_ALL_FOR_ONE);
    cr_expect_eq(ask("spawn", &m.spec.base, &err), EXO_INVAL);
    cr_expect_str_eq(err.text,
                     "the group 'group' is rest_for_one, as 'first' of it says: 'second' cannot be all_for_one");
    m.spec.group_rule = 3;
    cr_expect_eq(ask("spawn", &m.spec.base, &err), EXO_INVAL);
    describe(&m, "second", 0, EXO_ALL_FOR_ONE);
    m.spec.space = exo_pb_text("elsewhere"); /* another group */
    spawn(&m, 1);
    describe(&m, "third", 0, EXO_REST_FOR_ONE);
    spawn(&m, 1);
}

Test(supervision, those_that_are_made_together_have_one_rule)
{
    struct member members[2];
    Exo__Cluster__Spawn *together[] = {&members[1].spec};
    exo_err err = {0};
    describe(&members[0], "first", 0, EXO_REST_FOR_ONE);
    describe(&members[1], "second", 0, EXO_ALL_FOR_ONE);
    members[0].spec.together = together;
    members[0].spec.n_together = 1;
    cr_expect_eq(ask("spawn", &members[0].spec.base, &err), EXO_INVAL);
    cr_expect_eq(num_spawns, 0);
    cr_expect_str_empty(why("first"));
}

/* --- Lives that are short --------------------------------------------------------------------------------------------------------- */

Test(supervision, who_cannot_start_is_made_less_and_less_often)
{
    spawn_one("one", 0);
    dies(0, "an accident");
    cr_expect_eq(until_asked(), 0, "the first time, at once");
    for (exo_time wait = 10 * EXO_MS; wait < 30 * EXO_SECOND; wait *= 2) {
        answer(num_spawns - 1, EXO_FAILED, "it does not start");
        cr_expect_eq(until_asked(), wait);
    }
    for (int i = 0; i < 3; i++) {
        answer(num_spawns - 1, EXO_FAILED, "it does not start");
        cr_expect_eq(until_asked(), 30 * EXO_SECOND);
    }
    answer(num_spawns - 1, EXO_OK, NULL);
    exo_clock_manual_advance(&manual, 10 * EXO_SECOND - 1);
    dies(num_spawns - 1, "too soon");
    cr_expect_eq(until_asked(), 30 * EXO_SECOND);
    answer(num_spawns - 1, EXO_OK, NULL);
    exo_clock_manual_advance(&manual, 10 * EXO_SECOND);
    dies(num_spawns - 1, "after a long life");
    cr_expect_eq(until_asked(), 0, "what was before is forgotten");
}

Test(supervision, a_backoff_doubles)
{
    struct member m;
    describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    m.rule.backoff = 2 * EXO_SECOND;
    spawn(&m, 1);
    static const exo_time waits[] = {2, 4, 8, 16, 30, 30};
    for (size_t i = 0; i < 6; i++) {
        dies(i, "an accident");
        cr_expect_eq(until_asked(), waits[i] * EXO_SECOND);
        answer(i + 1, EXO_OK, NULL);
    }
    exo_clock_manual_advance(&manual, 10 * EXO_SECOND);
    dies(6, "after a long life");
    cr_expect_eq(until_asked(), 2 * EXO_SECOND);
}

/* --- The earlier life is still there ------------------------------------------------------------------------------------------------ */

Test(supervision, a_life_that_meets_the_one_before_it_is_tried_again)
{
    spawn_one("one", 1); /* a second death would be the last */
    dies(0, "an accident");
    until_asked();
    for (size_t i = 1; i < 4; i++) {
        answer(i, EXO_EXISTS, "there is an actor 'one' already");
        cr_expect(is("one", "restarting", 1), "%s", why("one"));
        cr_expect(strstr(why("one"), "cause: an accident"), "%s", why("one"));
        cr_expect_leq(until_asked(), 50 * EXO_MS);
    }
    answer(4, EXO_OK, NULL);
    cr_expect(is("one", "alive", 2), "%s", why("one"));
}

Test(supervision, a_life_that_meets_another_one_for_ever_has_failed)
{
    spawn_one("one", 1);
    dies(0, "an accident");
    until_asked();
    exo_time began = exo_now(&manual.base);
    for (size_t i = 1; i < 100 && !is("one", "dead", 2); i++) {
        answer(i, EXO_EXISTS, "there is an actor 'one' already");
        if (!is("one", "dead", 2))
            until_asked();
    }
    cr_expect(is("one", "dead", 2), "%s", why("one"));
    cr_expect(strstr(why("one"), "cause: there is an actor 'one' already"), "%s", why("one"));
    exo_time passed = exo_now(&manual.base) - began;
    cr_expect(passed >= 5 * EXO_SECOND && passed < 20 * EXO_SECOND, "%g s", (double)passed / EXO_SECOND);
}

/* A head that was restarted is asked again for what the one before it had made. */
Test(supervision, a_first_life_that_finds_its_name_taken_is_tried_again)
{
    struct member two[2];
    exo_err err = {0};
    describe(&two[0], "one", 0, EXO_ONE_FOR_ONE);
    describe(&two[1], "other", 0, EXO_ONE_FOR_ONE);
    Exo__Cluster__Spawn *together[] = {&two[1].spec};
    for (size_t count = 1; count <= 2; count++) {
        size_t first = num_spawns;
        two[0].spec.name = exo_pb_text(count == 1 ? "alone" : "one");
        two[0].spec.together = together;
        two[0].spec.n_together = count - 1;
        exo_future *made = begin(head, "spawn", &two[0].spec.base, INT64_MAX);
        tick(0);
        cr_assert_eq(num_spawns, first + count);
        answer(first, EXO_EXISTS, "there is such an actor already");
        for (size_t i = 1; i < count; i++)
            answer(first + i, EXO_OK, NULL);
        cr_expect(!exo_future_ready(made));
        cr_expect_leq(until_asked(), 50 * EXO_MS);
        answer(first + count, EXO_OK, NULL);
        cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%zu: %s", count, err.text);
        exo_future_drop(&made);
        cr_expect(is(count == 1 ? "alone" : "one", "alive", 1), "%s", why("one"));
    }
    cr_expect_eq(num_kills, 0);
}

Test(supervision, a_first_life_whose_name_stays_taken_is_an_error)
{
    struct member m;
    exo_err err = {0};
    describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    exo_future *made = begin(head, "spawn", &m.spec.base, INT64_MAX);
    exo_time began = exo_now(&manual.base);
    tick(0);
    for (size_t i = 0; i < 100 && !exo_future_ready(made); i++) {
        answer(i, EXO_EXISTS, "there is an actor 'one' already");
        if (!exo_future_ready(made))
            until_asked();
    }
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_EXISTS);
    exo_time passed = exo_now(&manual.base) - began;
    cr_expect(passed >= 5 * EXO_SECOND && passed < 20 * EXO_SECOND, "%g s", (double)passed / EXO_SECOND);
    exo_future_drop(&made);
}

/* Its death is told, and then the answer that it started does not come. */
Test(supervision, a_death_is_of_one_life)
{
    spawn_one("one", 0);
    dies(0, "an accident");
    until_asked();
    dies(1, "at once");
    answer(1, EXO_PEER_LOST, "the connection broke");
    until_asked();
    answer(2, EXO_OK, NULL);
    cr_expect(is("one", "alive", 3), "%s", why("one"));
}

/* --- Nowhere to live -------------------------------------------------------------------------------------------------------------- */

static exo_status
look_for(const char *method, const char *name, bool at_once, exo_err *err)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    m.at_once = at_once;
    m.cause = exo_pb_text("nobody wants it");
    return ask(method, &m.base, err);
}

Test(supervision, who_waits_for_room_died_of_what_it_died_of)
{
    exo_err err = {0};
    spawn_one("one", 0);
    lose_worker("exited with status 3");
    tick(0);
    tick(5 * EXO_SECOND);
    cr_expect(is("one", "restarting", 1));
    cr_expect(strstr(why("one"), "cause: its node 'w1' is lost: exited with status 3\n"), "%s", why("one"));
    cr_expect(strstr(why("one"), "\nit waits: the cluster has no worker"), "%s", why("one"));
    cr_expect_eq(look_for("find", "one", true, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "'one' is restarting: its node 'w1' is lost: exited with status 3; it waits: "), "%s",
              err.text);
    register_worker();
    until_asked();
    answer(1, EXO_OK, NULL);
    cr_expect_null(strstr(why("one"), "it waits"), "%s", why("one"));
    cr_expect(strstr(why("one"), "its last life ended: its node 'w1' is lost: exited with status 3\n"));
}

Test(supervision, who_looks_is_told_in_time_what_an_actor_waits_for)
{
    exo_err err = {0};
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("one");
    spawn_one("one", 0);
    lose_worker("a test");
    tick(0);
    exo_future *found = begin(head, "find", &m.base, exo_now(&manual.base) + 30 * EXO_SECOND);
    exo_future *soon = begin(head, "find", &m.base, exo_now(&manual.base) + EXO_SECOND);
    for (int i = 0; i < 16; i++)
        tick(50 * EXO_MS);
    cr_expect(exo_future_ready(soon));
    cr_expect_eq(exo_wait(soon, 0, NULL, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "the actor 'one' is restarting: its node 'w1' is lost: a test"), "%s", err.text);
    exo_future_drop(&soon);
    for (int i = 0; i < 28; i++)
        tick(EXO_SECOND);
    cr_expect(!exo_future_ready(found));
    cr_assert_leq(atomic_load(&due), exo_now(&manual.base) + EXO_SECOND, "the head asks to be woken");
    tick(EXO_SECOND / 2);
    cr_expect_eq(exo_wait(found, 0, NULL, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "the actor 'one' is restarting: its node 'w1' is lost: a test"), "%s", err.text);
    exo_future_drop(&found);
}

Test(supervision, who_waits_for_room_can_be_given_up)
{
    exo_err err = {0};
    spawn_one("one", 0);
    spawn_one("other", 0);
    lose_worker("a test");
    tick(0);
    cr_expect_eq(look_for("give_up", "one", false, &err), EXO_OK, "%s", err.text);
    cr_expect(is("one", "dead", 1), "%s", why("one"));
    cr_expect(strstr(why("one"), "cause: nobody wants it; before, the actor 'one' is restarting: its node"), "%s",
              why("one"));
    cr_expect_eq(look_for("give_up", "one", false, &err), EXO_NOT_FOUND);
    register_worker();
    until_asked();
    cr_expect_str_eq(spawns[num_spawns - 1].name, "other");
    answer(num_spawns - 1, EXO_OK, NULL);
    cr_expect_eq(look_for("give_up", "other", false, &err), EXO_OK, "it lives: that is for who knows it");
    cr_expect(is("other", "alive", 2));
}

Test(supervision, who_starts_and_is_given_up_is_ended_when_it_lives)
{
    spawn_one("one", 0);
    dies(0, "an accident");
    until_asked();
    cr_expect_eq(look_for("give_up", "one", false, NULL), EXO_OK);
    answer(1, EXO_OK, NULL);
    cr_assert_eq(num_kills, 1);
    cr_expect_eq(kills[0].id, spawns[1].id);
    cr_expect(is("one", "dead", 2), "%s", why("one"));
}

/* --- What cannot be meant ---------------------------------------------------------------------------------------------------------- */

Test(supervision, a_resource_has_a_name)
{
    struct member m;
    Exo__Cluster__Resource nameless = EXO__CLUSTER__RESOURCE__INIT, *list[] = {&nameless};
    exo_err err = {0};
    describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    nameless.amount = 1;
    m.spec.resources = list;
    m.spec.n_resources = 1;
    cr_expect_eq(ask("spawn", &m.spec.base, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a resource has no name: 1 of what?");
}
