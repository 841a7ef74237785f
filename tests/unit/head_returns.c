/* What nodes tell a head that was restarted, or cut off from all of them, of their actors: which of them
 * live on. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "support/head_world.h"

#define PAST_GRACE (11 * EXO_SECOND)

static head_world w;

static void
setup(void)
{
    world_open(&w, NULL);
}

static void
teardown(void)
{
    world_close(&w);
}

TestSuite(head_returns, .init = setup, .fini = teardown, .timeout = 60);

/* An actor that an earlier head made, of a run of a job by `driver`. */
struct returned {
    Exo__Cluster__Actor info;
    Exo__Cluster__Spawn spec;
};

static void
describe(struct returned *r, const char *name, const char *job, uint64_t driver)
{
    exo__cluster__actor__init(&r->info);
    exo__cluster__spawn__init(&r->spec);
    r->spec.name = exo_pb_text(name);
    r->spec.space = exo_pb_text("default");
    r->spec.class_name = exo_pb_text("class");
    r->spec.job = exo_pb_text(job);
    r->spec.driver = driver;
    r->info.key = 5;
    r->info.id = 77;
    r->info.incarnation = 1;
    r->info.job = r->spec.job;
    r->info.spec = &r->spec;
}

/* Node 2 registers with it; true: the head has it end there. */
static bool
is_ended(struct returned *r)
{
    const exo_payload *reply = NULL;
    Exo__Cluster__Actor *list[] = {&r->info};
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    exo_err err = {0};
    m.node = 2;
    m.name = exo_pb_text("w2");
    m.kind = exo_pb_text("worker");
    m.actors = list;
    m.n_actors = 1;
    exo_future *future = world_begin(&w, w.head, "register", &m.base, INT64_MAX);
    cr_assert_eq(exo_wait(future, INT64_MAX, &reply, &err), EXO_OK, "%s", err.text);
    Exo__Cluster__RegisterReply *answer =
        EXO_UNPACK(Exo__Cluster__RegisterReply, exo__cluster__register_reply, reply);
    cr_assert(answer && answer->n_ended <= 1);
    bool ended = answer->n_ended == 1 && answer->ended[0] == r->info.id;
    EXO_RELEASE(answer);
    exo_future_drop(&future);
    return ended;
}

static void
driver_comes(uint64_t node, const char *job)
{
    world_register(&w, node, "driver", "d", job);
}

Test(head_returns, an_actor_lives_on_when_its_driver_comes_back)
{
    struct returned r;
    describe(&r, "a", "job", 7);
    cr_expect(!is_ended(&r), "its driver may come yet");
    driver_comes(7, "job");
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
}

Test(head_returns, an_actor_ends_when_its_driver_does_not_come_back)
{
    struct returned r;
    describe(&r, "a", "job", 7);
    cr_expect(!is_ended(&r));
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
}

Test(head_returns, an_actor_of_a_job_that_is_forgotten_does_not_live_on)
{
    struct returned r;
    world_tick(&w, PAST_GRACE);
    describe(&r, "a", "job", 7);
    cr_expect(is_ended(&r));
    cr_expect_str_empty(world_why(&w, "a"));
    r.spec.detached = true;
    cr_expect(!is_ended(&r), "it outlives its job");
}

/* What counts is what it was made from, not what is said beside it. */
Test(head_returns, an_actor_is_of_the_job_that_it_was_made_for)
{
    struct returned r;
    world_tick(&w, PAST_GRACE);
    describe(&r, "a", "job", 7);
    r.info.job = exo_pb_text("");
    r.info.detached = true;
    cr_expect(is_ended(&r));
}

Test(head_returns, an_actor_of_an_earlier_job_of_the_same_name_does_not_live_on)
{
    struct returned r;
    driver_comes(7, "job");
    describe(&r, "a", "job", 6);
    cr_expect(is_ended(&r));
    describe(&r, "a", "job", 7);
    cr_expect(!is_ended(&r));
}

Test(head_returns, an_actor_of_an_earlier_job_ends_when_another_driver_takes_the_name)
{
    struct returned r;
    describe(&r, "a", "job", 6);
    cr_expect(!is_ended(&r));
    driver_comes(7, "job");
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
    world_tick(&w, 0);
    cr_expect_eq(w.num_kills, 1);
    cr_expect_eq(w.kills[0].id, 77);
}

/* The key of an actor that the head makes now. */
static uint64_t
next_key(const char *name)
{
    struct world_member member;
    world_describe(&member, name, 0, EXO_ONE_FOR_ONE);
    world_spawn(&w, &member, 1);
    return w.spawns[w.num_spawns - 1].key;
}

/* Keys begin with the time of day. */
Test(head_returns, an_actor_of_a_head_whose_clock_was_ahead_lives_on)
{
    struct returned r;
    describe(&r, "a", "job", 7);
    r.info.key = next_key("first") + 3;
    cr_expect(!is_ended(&r));
    driver_comes(7, "job");
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
    for (uint64_t i = 0, before = 0; i < 8; i++) { /* each has a key of its own */
        const uint64_t key = next_key((char[2]){(char)('e' + i)});
        cr_expect(key != r.info.key && key > before);
        before = key;
    }
    cr_expect(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
}

Test(head_returns, an_actor_that_this_head_made_and_forgot_does_not_live_on)
{
    struct returned r;
    describe(&r, "a", "", 0);
    driver_comes(7, "job");
    r.info.key = next_key("b") - 1; /* the job took it */
    cr_expect(is_ended(&r));
}

/* The actor 'a' of the job of driver 7 lives at node 2. */
static void
live(struct returned *r)
{
    describe(r, "a", "job", 7);
    cr_assert(!is_ended(r));
    driver_comes(7, "job");
    world_tick(&w, PAST_GRACE);
    cr_assert(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
}

/* Nothing is heard of all nodes, and one after the other is lost. */
static void
cut_off(void)
{
    static const uint64_t nodes[] = {2, 7, WORLD_NODE};
    w.unheard = UINT64_MAX;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        world_lose(&w, nodes[i], "nothing was heard from it for 5 s");
    world_tick(&w, PAST_GRACE); /* however long it takes */
    cr_expect(world_is(&w, "a", "unknown", 1), "%s", world_why(&w, "a"));
    w.unheard = 0;
}

Test(head_returns, actors_and_jobs_go_on_after_a_cut_that_isolates_the_head)
{
    struct returned r;
    live(&r);
    cut_off();
    driver_comes(7, "job");
    cr_expect(!is_ended(&r));
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
    cr_expect_eq(w.num_kills, 0);
}

Test(head_returns, a_node_that_stays_away_after_such_a_cut_is_lost_with_its_actors)
{
    struct returned r;
    live(&r);
    cut_off();
    driver_comes(7, "job");
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
    cr_expect(is_ended(&r));
}

Test(head_returns, a_job_whose_driver_stays_away_after_such_a_cut_ends)
{
    struct returned r;
    live(&r);
    cut_off();
    cr_expect(!is_ended(&r));
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
}

Test(head_returns, a_silent_node_is_lost_with_its_actors_while_another_one_is_heard)
{
    struct returned r;
    live(&r);
    w.unheard = 1 << 2;
    world_lose(&w, 2, "nothing was heard from it for 5 s");
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
    w.unheard = 0;
    cr_expect(is_ended(&r));
}

Test(head_returns, an_actor_ends_with_its_driver_which_is_lost_and_is_told_so)
{
    static const char cause[] = "its job ended: its driver is lost: no power";
    struct returned r;
    live(&r);
    world_lose(&w, 7, "no power");
    world_tick(&w, 0);
    cr_expect(strstr(world_why(&w, "a"), cause), "%s", world_why(&w, "a"));
    cr_assert_eq(w.num_kills, 1);
    cr_expect_str_eq(w.kills[0].cause, cause);
}

Test(head_returns, a_node_that_is_heard_again_without_a_word_ends_the_wait)
{
    struct returned r;
    live(&r);
    w.unheard = UINT64_MAX;
    world_lose(&w, 2, "nothing was heard from it for 5 s");
    w.unheard = 0;
    world_tick(&w, EXO_SECOND);
    world_tick(&w, PAST_GRACE);
    cr_expect(world_is(&w, "a", "dead", 1), "%s", world_why(&w, "a"));
}

Test(head_returns, a_spawn_after_such_a_cut_waits_for_workers_that_come_back)
{
    struct returned r;
    struct world_member member;
    exo_err err = {0};
    live(&r);
    cut_off();
    driver_comes(7, "job");
    world_describe(&member, "b", 0, EXO_ONE_FOR_ONE);
    exo_future *made = world_begin(&w, w.head, "spawn", &member.spec.base, INT64_MAX);
    world_tick(&w, 0);
    cr_assert(!exo_future_ready(made), "there may be room soon");
    world_register_worker(&w);
    for (int i = 0; i < 10 && w.num_spawns == 0; i++)
        world_tick(&w, 0);
    cr_assert_eq(w.num_spawns, 1);
    world_answer(&w, 0, EXO_OK, NULL);
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&made);
}

/* Its caller would otherwise hear nothing but that its time is over. */
Test(head_returns, a_spawn_that_cannot_wait_until_workers_come_back_is_told_why)
{
    struct returned r;
    struct world_member member;
    exo_err err = {0};
    live(&r);
    cut_off();
    driver_comes(7, "job");
    world_describe(&member, "b", 0, EXO_ONE_FOR_ONE);
    exo_future *made = world_begin(&w, w.head, "spawn", &member.spec.base,
                                   exo_now(&w.manual.base) + 5 * EXO_SECOND);
    const exo_time began = exo_now(&w.manual.base);
    world_tick(&w, 0); /* the head has it */
    cr_expect_leq(atomic_load(&w.due), began + 4 * EXO_SECOND, "the head asks for the time");
    world_tick(&w, 3 * EXO_SECOND);
    cr_expect_leq(atomic_load(&w.due), began + 4 * EXO_SECOND, "and goes on to");
    cr_assert(!exo_future_ready(made), "there may be room soon");
    world_tick(&w, EXO_SECOND);
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_FULL);
    cr_expect_str_eq(err.text, "the cluster has no worker: start one with `exogym-worker`; workers "
                               "may still come back to the head");
    exo_future_drop(&made);
    world_register_worker(&w);
    world_tick(&w, PAST_GRACE);
    cr_expect_eq(w.num_spawns, 0, "nobody waits for it");
    world_spawn_one(&w, "b", 0); /* the name is free */
    cr_expect(world_is(&w, "b", "alive", 1), "%s", world_why(&w, "b"));
}

/* A reply needs no more than a quarter of a short time. Who waits for ever is kept until the end of the grace. */
Test(head_returns, a_spawn_waits_for_workers_as_long_as_its_caller_can)
{
    struct returned r;
    struct world_member brief, patient;
    live(&r);
    cut_off();
    driver_comes(7, "job");
    world_describe(&brief, "b", 0, EXO_ONE_FOR_ONE);
    world_describe(&patient, "c", 0, EXO_ONE_FOR_ONE);
    exo_future *soon = world_begin(&w, w.head, "spawn", &brief.spec.base,
                                   exo_now(&w.manual.base) + 2 * EXO_SECOND);
    exo_future *late = world_begin(&w, w.head, "spawn", &patient.spec.base, INT64_MAX);
    world_tick(&w, 0);
    world_tick(&w, 3 * EXO_SECOND / 2 - 1);
    cr_assert(!exo_future_ready(soon), "there is time");
    world_tick(&w, 1);
    cr_expect_eq(exo_wait(soon, INT64_MAX, NULL, NULL), EXO_FULL);
    cr_expect(!exo_future_ready(late));
    exo_future_drop(&soon);
    world_register_worker(&w);
    world_tick(&w, 0);
    cr_expect_eq(w.num_spawns, 1, "a worker has come");
    exo_future_drop(&late);
}
