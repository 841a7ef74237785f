/* Where the head makes actors after workers were lost while actors started there, as over a link that
 * loses large messages: heartbeats pass, so such a worker comes back each time; and after workers refused
 * an actor, as they do without its plugin or its data. What becomes of a life that a worker lists as it
 * comes back, before it answers. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/head_world.h"

#define A_WHILE (61 * EXO_SECOND)

static head_world w;
static struct world_member member;

static void
setup(void)
{
    world_open(&w, NULL);
    world_describe(&member, "a", 0, EXO_ONE_FOR_ONE);
    member.rule.when = EXO_RESTART_NEVER;
}

static void
teardown(void)
{
    world_close(&w);
}

TestSuite(head_losses, .init = setup, .fini = teardown, .timeout = 60);

/* Whether the actor 'a' starts or lives on the worker of that name. */
static bool
is_at(const char *worker)
{
    Exo__Cluster__Listing *listing = world_list(&w);
    bool there = listing->n_actors == 1 && strcmp(listing->actors[0]->node_name, worker) == 0;
    EXO_RELEASE(listing);
    return there;
}

/* The worker w1 is lost while 'a' starts there, and comes back. */
static void
lose_the_start(void)
{
    exo_err err = {0};
    exo_future *made = world_begin_spawn(&w, &member, 1);
    cr_assert(is_at("w1"));
    world_lose_worker(&w, "no sign of life for 5 s");
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_PEER_LOST, "%s", err.text);
    exo_future_drop(&made);
    world_register_worker(&w);
}

Test(head_losses, another_worker_is_preferred_for_a_while)
{
    lose_the_start();
    world_register(&w, 2, "worker", "w2", "");
    for (int i = 0; i < 2; i++) {
        exo_future *made = world_begin_spawn(&w, &member, 1);
        cr_expect(is_at(i == 0 ? "w2" : "w1"));
        world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
        cr_expect_eq(exo_wait(made, INT64_MAX, NULL, NULL), EXO_OK);
        exo_future_drop(&made);
        world_lose(&w, i == 0 ? 2 : 1, "its cable was cut");
        world_register(&w, 2, "worker", "w2", "");
        world_register_worker(&w);
        world_tick(&w, A_WHILE);
    }
}

Test(head_losses, a_worker_that_is_lost_at_each_start_is_named)
{
    exo_err err = {0};
    for (int i = 0; i < EXO_LOST_STARTS; i++)
        lose_the_start();
    cr_expect_eq(world_ask(&w, "spawn", &member.spec.base, &err), EXO_FAILED, "%s", err.text);
    cr_expect(strstr(err.text, "'w1' was lost 3 times"), "%s", err.text);
    cr_expect(strstr(err.text, "no sign of life for 5 s"), "%s", err.text);
    cr_expect(strstr(err.text, "MTU"), "%s", err.text);
    world_tick(&w, A_WHILE);
    lose_the_start(); /* it was tried again, and has the error at once now */
    cr_expect_eq(world_ask(&w, "spawn", &member.spec.base, &err), EXO_FAILED, "%s", err.text);
}

/* A worker that is told to end is not to blame for what started there. */
Test(head_losses, a_worker_that_leaves_is_no_lost_one)
{
    for (int i = 0; i < EXO_LOST_STARTS; i++) {
        Exo__Cluster__NodeInfo left = EXO__CLUSTER__NODE_INFO__INIT;
        exo_future *made = world_begin_spawn(&w, &member, 1);
        left.node = WORLD_NODE;
        left.cause = exo_pb_text("SIGTERM");
        left.state = exo_pb_text("left");
        cr_assert_eq(world_ask(&w, "gone", &left.base, NULL), EXO_OK);
        cr_expect_neq(exo_wait(made, INT64_MAX, NULL, NULL), EXO_OK);
        exo_future_drop(&made);
        world_register_worker(&w);
    }
    world_spawn(&w, &member, 1);
}

Test(head_losses, a_start_that_succeeds_ends_the_row)
{
    for (int i = 0; i < EXO_LOST_STARTS - 1; i++)
        lose_the_start();
    world_spawn(&w, &member, 1);
    world_lose_worker(&w, "its cable was cut"); /* while nothing starts */
    world_register_worker(&w);
    for (int i = 0; i < EXO_LOST_STARTS - 1; i++)
        lose_the_start();
    world_spawn(&w, &member, 1);
}

/* The head has an actor made at the worker of that name, which refuses it. */
static void
refuse(struct world_member *m, const char *worker)
{
    exo_err err = {0};
    exo_future *made = world_begin_spawn(&w, m, 1);
    world_answer(&w, w.num_spawns - 1, EXO_IO, "counter.so: there is no such file");
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_IO, "%s", err.text);
    cr_expect(strstr(err.text, worker), "%s", err.text);
    exo_future_drop(&made);
}

static void
refuse_the_start(const char *worker)
{
    refuse(&member, worker);
}

Test(head_losses, a_worker_that_refused_an_actor_gets_it_only_if_no_other_has_room)
{
    refuse_the_start("w1");
    refuse_the_start("w1"); /* there is no other one */
    world_register(&w, 2, "worker", "w2", "");
    refuse_the_start("w2");
    refuse_the_start("w1"); /* both have refused it */
    world_tick(&w, A_WHILE);
    refuse_the_start("w1");
    refuse_the_start("w2");
}

Test(head_losses, a_refused_actor_leaves_its_worker_to_others)
{
    struct world_member other;
    world_describe(&other, "b", 0, EXO_ONE_FOR_ONE);
    other.rule.when = EXO_RESTART_NEVER;
    world_register(&w, 2, "worker", "w2", "");
    refuse_the_start("w1");
    exo_future *made = world_begin_spawn(&w, &other, 1);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_str_eq(listing->actors[0]->node_name, "w1");
    EXO_RELEASE(listing);
    world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
    exo_future_drop(&made);
}

/* What it lacks may have come meanwhile. */
Test(head_losses, a_worker_that_refused_an_actor_is_preferred_to_one_that_is_lost_at_each_start)
{
    refuse_the_start("w1");
    for (int i = 0; i < EXO_LOST_STARTS; i++)
        lose_the_start();
    world_register(&w, 2, "worker", "w2", "");
    refuse_the_start("w2");
    refuse_the_start("w2"); /* and not an error about w1 */
}

Test(head_losses, a_worker_has_refused_each_of_several_actors)
{
    struct world_member others[2];
    world_describe(&others[0], "b", 0, EXO_ONE_FOR_ONE);
    world_describe(&others[1], "c", 0, EXO_ONE_FOR_ONE);
    refuse_the_start("w1");
    for (size_t i = 0; i < 2; i++) {
        others[i].rule.when = EXO_RESTART_NEVER;
        refuse(&others[i], "w1");
    }
    world_register(&w, 2, "worker", "w2", "");
    refuse_the_start("w2");
    for (size_t i = 0; i < 2; i++)
        refuse(&others[i], "w2");
}

/* A name may have a slash, and so may a namespace. */
Test(head_losses, an_actor_of_another_namespace_was_not_refused)
{
    struct world_member other;
    world_describe(&other, "b/a", 0, EXO_ONE_FOR_ONE);
    other.rule.when = EXO_RESTART_NEVER;
    other.spec.space = exo_pb_text("c");
    member.spec.space = exo_pb_text("c/b");
    refuse_the_start("w1");
    world_register(&w, 2, "worker", "w2", "");
    refuse(&other, "w1");
}

/* More actors are spawned together than the head begins at once; w2 is lost before its turn. */
Test(head_losses, a_worker_that_was_not_asked_yet_has_lost_no_start)
{
    enum {
        AT_ONCE = 64
    };
    static struct world_member members[AT_ONCE + 1];
    static char names[AT_ONCE + 1][8];
    Exo__Cluster__Spawn *together[AT_ONCE];
    Exo__Cluster__NodeInfo loss = EXO__CLUSTER__NODE_INFO__INIT;
    exo_err err = {0};
    loss.node = 2;
    for (size_t i = 0; i <= AT_ONCE; i++) {
        snprintf(names[i], sizeof names[i], "m%zu", i);
        world_describe(&members[i], names[i], 0, EXO_ONE_FOR_ONE);
        members[i].rule.when = EXO_RESTART_NEVER;
        members[i].spec.node = exo_pb_text(i < AT_ONCE ? "w1" : "w2");
        if (i > 0)
            together[i - 1] = &members[i].spec;
    }
    members[0].spec.together = together;
    members[0].spec.n_together = AT_ONCE;
    for (int i = 0; i < EXO_LOST_STARTS; i++) {
        world_register(&w, 2, "worker", "w2", "");
        world_hold(&w);
        exo_future *made = world_begin(&w, w.head, "spawn", &members[0].spec.base, INT64_MAX);
        exo_future *gone = world_begin(&w, w.head, "gone", &loss.base, INT64_MAX);
        world_release(&w);
        cr_expect_eq(exo_wait(gone, INT64_MAX, NULL, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_PEER_LOST, "%s", err.text);
        exo_future_drop(&gone);
        exo_future_drop(&made);
    }
    world_register(&w, 2, "worker", "w2", "");
    world_spawn(&w, &members[AT_ONCE], 1);
}

/* The lives of a graph's actor have names of their own. */
Test(head_losses, a_worker_that_refused_a_life_refuses_the_next_one)
{
    struct world_member lives[EXO_REFUSALS + 2], another;
    static char names[EXO_REFUSALS + 2][16];
    world_describe(&another, "another", 0, EXO_ONE_FOR_ONE);
    another.rule.when = EXO_RESTART_NEVER;
    refuse(&another, "w1");
    for (size_t i = 0; i < EXO_REFUSALS + 2; i++) {
        snprintf(names[i], sizeof names[i], "maker_0.%zu", i + 1);
        world_describe(&lives[i], names[i], 0, EXO_ONE_FOR_ONE);
        lives[i].rule.when = EXO_RESTART_NEVER;
        if (i <= EXO_REFUSALS)
            refuse(&lives[i], "w1");
    }
    world_register(&w, 2, "worker", "w2", "");
    refuse(&lives[EXO_REFUSALS + 1], "w2");
    refuse(&another, "w2"); /* the many lives count as one actor */
}

Test(head_losses, a_worker_that_refuses_an_actor_again_remembers_it_for_longer)
{
    struct world_member others[EXO_REFUSALS];
    static char names[EXO_REFUSALS][16];
    refuse_the_start("w1");
    for (size_t i = 0; i < EXO_REFUSALS; i++) {
        snprintf(names[i], sizeof names[i], "other_%zu", i);
        world_describe(&others[i], names[i], 0, EXO_ONE_FOR_ONE);
        others[i].rule.when = EXO_RESTART_NEVER;
        if (i == EXO_REFUSALS - 1)
            refuse_the_start("w1"); /* it was the oldest refusal, and is the latest one now */
        refuse(&others[i], "w1");
    }
    world_register(&w, 2, "worker", "w2", "");
    refuse_the_start("w2");
    for (size_t i = 1; i < EXO_REFUSALS; i++)
        refuse(&others[i], "w2");
    refuse(&others[0], "w1"); /* this one is forgotten */
}

/* Asks for 'a', whose worker registers again and lists the life that it begins under the reference `id`,
 * before it answers. */
static void
list_the_start(uint64_t id)
{
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT, *list[] = {&info};
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    exo_err err = {0};
    exo_future *made = world_begin_spawn(&w, &member, 1);
    info.key = w.spawns[w.num_spawns - 1].key;
    info.incarnation = w.spawns[w.num_spawns - 1].incarnation;
    info.id = id;
    m.node = WORLD_NODE;
    m.name = exo_pb_text("w1");
    m.kind = exo_pb_text("worker");
    m.actors = list;
    m.n_actors = 1;
    cr_assert_eq(world_ask(&w, "register", &m.base, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&made);
}

/* The answer to the start comes after the worker has listed the life. */
Test(head_losses, a_life_that_its_worker_has_listed_outlives_the_answer)
{
    static const exo_status answers[] = {EXO_OK, EXO_TIMEOUT, EXO_FAILED};
    char names[3][8];
    for (size_t i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "a%zu", i);
        member.spec.name = names[i];
        list_the_start(100 + w.last_id + 1); /* the reference that the answer has */
        world_answer(&w, w.num_spawns - 1, answers[i], "no answer");
        cr_expect_eq(w.num_kills, 0, "ended after the answer %d", answers[i]);
        cr_expect(world_is(&w, names[i], "alive", 1), "%s", world_why(&w, names[i]));
    }
}

Test(head_losses, a_second_actor_of_a_life_that_its_worker_has_listed_is_ended)
{
    list_the_start(77);
    world_answer(&w, 0, EXO_OK, NULL);
    cr_assert_eq(w.num_kills, 1);
    cr_expect_eq(w.kills[0].id, w.spawns[0].id);
    cr_expect(world_is(&w, "a", "alive", 1), "%s", world_why(&w, "a"));
}
