/* The head ends a living actor for good on its driver's request (give_up with `alive`): a driver that has
 * lost a worker which the head still hears cannot end its actors there by itself. The answer comes once
 * the actor is dead, since its next life must not meet it. Each test has a head of its own in the world
 * `w`. Read next: tests/support/head_world.h, runtime/cluster/head_lives.c; what drivers may end:
 * access.c. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/head_world.h"

static head_world w;
static exo_err err;

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

TestSuite(head_ends, .init = setup, .fini = teardown, .timeout = 60);

/* is_lost: the caller cannot reach the actor's node. */
static exo_future *
begin_end(const char *name, bool is_lost, exo_time deadline)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    m.cause = exo_pb_text("its driver has lost it");
    m.alive = true;
    m.failure = is_lost;
    exo_future *end = world_begin(&w, w.head, "give_up", &m.base, deadline);
    world_tick(&w, 0);
    return end;
}

static void
expect_end(exo_future *end, exo_status status, const char *reason)
{
    cr_assert(exo_future_ready(end));
    cr_expect_eq(exo_wait(end, INT64_MAX, NULL, &err), status, "%s", err.text);
    cr_expect(strstr(err.text, reason), "%s", err.text);
    exo_future_drop(&end);
}

Test(head_ends, its_worker_ends_it_and_no_rule_gives_it_another_life)
{
    world_spawn_one(&w, "one", 0);
    exo_future *end = begin_end("one", false, INT64_MAX);
    cr_assert_eq(w.num_kills, 1);
    cr_expect_eq(w.kills[0].id, w.spawns[0].id);
    cr_expect_str_eq(w.kills[0].cause, "its driver has lost it");
    cr_expect(!exo_future_ready(end), "its worker has not ended it yet");
    cr_expect(world_is(&w, "one", "alive", 1), "%s", w.text);
    world_dies(&w, 0, "it was ended");
    expect_end(end, EXO_NOT_FOUND, "it was ended");
    world_tick(&w, 60 * EXO_SECOND);
    cr_expect(world_is(&w, "one", "dead", 1), "%s", w.text);
    cr_expect_eq(w.num_spawns, 1, "it lives again");
    expect_end(begin_end("one", false, INT64_MAX), EXO_NOT_FOUND, "it was ended");
    cr_expect_eq(w.num_kills, 1);
}

/* Its place is taken until it is dead. */
Test(head_ends, its_place_is_free_once_it_is_dead)
{
    struct world_member both[2];
    Exo__Cluster__Resource place = EXO__CLUSTER__RESOURCE__INIT, *list[] = {&place};
    place.name = exo_pb_text("places");
    place.amount = 2;
    for (int i = 0; i < 2; i++) {
        world_describe(&both[i], i == 0 ? "one" : "one.1", 0, EXO_ONE_FOR_ONE);
        both[i].spec.resources = list;
        both[i].spec.n_resources = 1;
    }
    world_spawn(&w, &both[0], 1);
    exo_future *end = begin_end("one", true, INT64_MAX);
    cr_expect_eq(world_ask(&w, "spawn", &both[1].spec.base, &err), EXO_FULL, "%s", err.text);
    world_dies(&w, 0, "it was ended");
    expect_end(end, EXO_NOT_FOUND, "");
    world_spawn(&w, &both[1], 1);
}

Test(head_ends, it_ends_with_its_node)
{
    world_spawn_one(&w, "one", 0);
    exo_future *end = begin_end("one", true, INT64_MAX);
    world_lose_worker(&w, "a test");
    expect_end(end, EXO_NOT_FOUND, "its node 'w1' is lost: a test");
    cr_expect(world_is(&w, "one", "dead", 1), "%s", w.text);
}

/* A head that hears no node keeps actors for their nodes' return, but not this one. */
Test(head_ends, it_is_dead_for_a_head_that_is_cut_off)
{
    world_spawn_one(&w, "one", 0);
    world_spawn_one(&w, "other", 0);
    exo_future *end = begin_end("one", true, INT64_MAX);
    w.unheard = 1 << WORLD_NODE;
    world_lose_worker(&w, "a test");
    expect_end(end, EXO_NOT_FOUND, "it was given up, and its node is not heard");
    cr_expect(world_is(&w, "one", "dead", 1), "%s", w.text);
    cr_expect(world_is(&w, "other", "unknown", 1), "%s", w.text);
}

/* The order to the worker may have been lost with a connection. */
Test(head_ends, a_caller_that_asks_again_has_it_ended_again)
{
    world_spawn_one(&w, "one", 0);
    exo_future *end = begin_end("one", true, exo_now(&w.manual.base) + 2 * EXO_SECOND);
    world_tick(&w, EXO_SECOND);
    cr_expect(!exo_future_ready(end));
    world_tick(&w, EXO_SECOND / 2);
    expect_end(end, EXO_TIMEOUT, "'one' is alive, for all that the head has heard");
    end = begin_end("one", true, INT64_MAX);
    cr_expect_eq(w.num_kills, 2);
    cr_expect_eq(w.kills[1].id, w.spawns[0].id);
    world_dies(&w, 0, "it was ended");
    expect_end(end, EXO_NOT_FOUND, "");
}

Test(head_ends, its_group_does_not_give_it_another_life)
{
    struct world_member members[2];
    world_describe(&members[0], "g0", 0, EXO_ALL_FOR_ONE);
    world_describe(&members[1], "g1", 0, EXO_ALL_FOR_ONE);
    world_spawn(&w, members, 2);
    exo_future *end = begin_end("g0", true, INT64_MAX);
    world_dies(&w, 1, "an accident");
    world_until_asked(&w);
    world_answer(&w, 2, EXO_OK, NULL);
    world_dies(&w, 0, "it was ended");
    expect_end(end, EXO_NOT_FOUND, "it was ended");
    world_tick(&w, 60 * EXO_SECOND);
    cr_expect(world_is(&w, "g0", "dead", 1), "%s", w.text);
    cr_expect(world_is(&w, "g1", "alive", 2), "%s", w.text);
}

/* The next life of an actor of a graph, "one.1" after "one", goes where its driver may reach it. */
Test(head_ends, the_next_life_of_a_lost_one_goes_elsewhere)
{
    for (int lost = 0; lost < 2; lost++) {
        char name[2][16];
        snprintf(name[0], sizeof name[0], "one_%d", lost);
        snprintf(name[1], sizeof name[1], "one_%d.1", lost);
        world_spawn_one(&w, name[0], 0); /* w1 has both */
        exo_future *end = begin_end(name[0], lost == 1, INT64_MAX);
        world_dies(&w, w.num_spawns - 1, "it was ended");
        expect_end(end, EXO_NOT_FOUND, "");
        if (lost == 1)
            world_register(&w, 2, "worker", "w2", "");
        world_spawn_one(&w, name[1], 0);
        Exo__Cluster__Listing *listing = world_list(&w);
        for (size_t i = 0; i < listing->n_actors; i++)
            if (strcmp(listing->actors[i]->name, name[1]) == 0)
                cr_expect_str_eq(listing->actors[i]->node_name, lost == 1 ? "w2" : "w1");
        EXO_RELEASE(listing);
    }
}

Test(head_ends, a_driver_ends_the_actors_of_its_process_by_itself)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    world_register(&w, 7, "driver", "d", "job");
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("one");
    m.node = 7;
    m.id = 70;
    cr_assert_eq(world_ask(&w, "claim", &m.base, &err), EXO_OK, "%s", err.text);
    expect_end(begin_end("one", false, INT64_MAX), EXO_INVAL,
               "'one' lives in the process of a driver");
    cr_expect_eq(w.num_kills, 0);
    cr_expect(world_is(&w, "one", "alive", 1), "%s", w.text);
}

/* Earlier drivers do not know `alive`, and earlier heads ignore it. */
Test(head_ends, a_request_without_alive_lets_it_live)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("one");
    m.cause = exo_pb_text("nobody wants it");
    world_spawn_one(&w, "one", 0);
    cr_expect_eq(world_ask(&w, "give_up", &m.base, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(w.num_kills, 0);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    world_answer(&w, 1, EXO_OK, NULL);
    cr_expect(world_is(&w, "one", "alive", 2), "%s", w.text);
}
