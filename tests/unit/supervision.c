/* The head's reactions to deaths: restarts, groups, and lives without a place or a name. Each test
 * has a head of its own in the world `w`, whose clock the test sets. Read next:
 * tests/support/head_world.h; docs/actors.md. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/head_world.h"

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

TestSuite(supervision, .init = setup, .fini = teardown, .timeout = 60);

/* --- Groups ----------------------------------------------------------------------------------- */

/* The deaths of members that the group's rule ended are reported when their next lives already
 * start. */
static void
restarts_once(exo_group_rule rule, size_t first)
{
    struct world_member members[3];
    static const char *const names[] = {"g0", "g1", "g2"};
    for (size_t i = 0; i < 3; i++)
        world_describe(&members[i], names[i], 0, rule);
    world_spawn(&w, members, 3);
    world_dies(&w, 1, "it was told to");
    world_tick(&w, 0);
    cr_assert_eq(w.num_spawns, 3 + 3 - first);
    cr_expect_eq(w.num_kills, 2 - first);
    for (size_t i = first; i < 3; i++)
        if (i != 1)
            world_dies(&w, i, "restarted with 'g1' of its group");
    for (size_t i = 3; i < w.num_spawns; i++)
        world_answer(&w, i, EXO_OK, NULL);
    for (int i = 0; i < 100; i++)
        world_tick(&w, EXO_SECOND);
    cr_expect_eq(w.num_spawns, 3 + 3 - first, "nobody lives again who has not died");
    for (size_t i = 0; i < 3; i++)
        cr_expect(world_is(&w, names[i], "alive", i < first ? 1 : 2), "%s",
                  world_why(&w, names[i]));
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
    struct world_member m;
    exo_err err = {0};
    world_describe(&m, "first", 0, EXO_REST_FOR_ONE);
    world_spawn(&w, &m, 1);
    world_describe(&m, "second", 0, EXO_ALL_FOR_ONE);
    cr_expect_eq(world_ask(&w, "spawn", &m.spec.base, &err), EXO_INVAL);
    cr_expect_str_eq(
        err.text,
        "the group 'group' is rest_for_one, as 'first' of it says: 'second' cannot be all_for_one");
    m.spec.group_rule = 3;
    cr_expect_eq(world_ask(&w, "spawn", &m.spec.base, &err), EXO_INVAL);
    world_describe(&m, "second", 0, EXO_ALL_FOR_ONE);
    m.spec.space = exo_pb_text("elsewhere"); /* a different group */
    world_spawn(&w, &m, 1);
    world_describe(&m, "third", 0, EXO_REST_FOR_ONE);
    world_spawn(&w, &m, 1);
}

Test(supervision, those_that_are_made_together_have_one_rule)
{
    struct world_member members[2];
    Exo__Cluster__Spawn *together[] = {&members[1].spec};
    exo_err err = {0};
    world_describe(&members[0], "first", 0, EXO_REST_FOR_ONE);
    world_describe(&members[1], "second", 0, EXO_ALL_FOR_ONE);
    members[0].spec.together = together;
    members[0].spec.n_together = 1;
    cr_expect_eq(world_ask(&w, "spawn", &members[0].spec.base, &err), EXO_INVAL);
    cr_expect_eq(w.num_spawns, 0);
    cr_expect_str_empty(world_why(&w, "first"));
}

/* --- Short lives ------------------------------------------------------------------------------ */

Test(supervision, who_cannot_start_is_made_less_and_less_often)
{
    world_spawn_one(&w, "one", 0);
    world_dies(&w, 0, "an accident");
    cr_expect_eq(world_until_asked(&w), 0, "the first time, at once");
    for (exo_time wait = 10 * EXO_MS; wait < 30 * EXO_SECOND; wait *= 2) {
        world_answer(&w, w.num_spawns - 1, EXO_FAILED, "it does not start");
        cr_expect_eq(world_until_asked(&w), wait);
    }
    for (int i = 0; i < 3; i++) {
        world_answer(&w, w.num_spawns - 1, EXO_FAILED, "it does not start");
        cr_expect_eq(world_until_asked(&w), 30 * EXO_SECOND);
    }
    world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
    exo_clock_manual_advance(&w.manual, 10 * EXO_SECOND - 1);
    world_dies(&w, w.num_spawns - 1, "too soon");
    cr_expect_eq(world_until_asked(&w), 30 * EXO_SECOND);
    world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
    exo_clock_manual_advance(&w.manual, 10 * EXO_SECOND);
    world_dies(&w, w.num_spawns - 1, "after a long life");
    cr_expect_eq(world_until_asked(&w), 0, "what was before is forgotten");
}

Test(supervision, a_backoff_doubles)
{
    struct world_member m;
    world_describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    m.rule.backoff = 2 * EXO_SECOND;
    world_spawn(&w, &m, 1);
    static const exo_time waits[] = {2, 4, 8, 16, 30, 30};
    for (size_t i = 0; i < 6; i++) {
        world_dies(&w, i, "an accident");
        cr_expect_eq(world_until_asked(&w), waits[i] * EXO_SECOND);
        world_answer(&w, i + 1, EXO_OK, NULL);
    }
    exo_clock_manual_advance(&w.manual, 10 * EXO_SECOND);
    world_dies(&w, 6, "after a long life");
    cr_expect_eq(world_until_asked(&w), 2 * EXO_SECOND);
}

/* --- The earlier life is still there ---------------------------------------------------------- */

Test(supervision, a_life_that_meets_the_one_before_it_is_tried_again)
{
    world_spawn_one(&w, "one", 1); /* a second death would be final */
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    for (size_t i = 1; i < 4; i++) {
        world_answer(&w, i, EXO_EXISTS, "there is an actor 'one' already");
        cr_expect(world_is(&w, "one", "restarting", 1), "%s", world_why(&w, "one"));
        cr_expect(strstr(world_why(&w, "one"), "cause: an accident"), "%s", world_why(&w, "one"));
        cr_expect_leq(world_until_asked(&w), 50 * EXO_MS);
    }
    world_answer(&w, 4, EXO_OK, NULL);
    cr_expect(world_is(&w, "one", "alive", 2), "%s", world_why(&w, "one"));
}

Test(supervision, a_life_that_meets_another_one_for_ever_has_failed)
{
    world_spawn_one(&w, "one", 1);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    exo_time began = exo_now(&w.manual.base);
    for (size_t i = 1; i < 100 && !world_is(&w, "one", "dead", 2); i++) {
        world_answer(&w, i, EXO_EXISTS, "there is an actor 'one' already");
        if (!world_is(&w, "one", "dead", 2))
            world_until_asked(&w);
    }
    cr_expect(world_is(&w, "one", "dead", 2), "%s", world_why(&w, "one"));
    cr_expect(strstr(world_why(&w, "one"), "cause: on w1: there is an actor 'one' already"), "%s",
              world_why(&w, "one"));
    exo_time passed = exo_now(&w.manual.base) - began;
    cr_expect(passed >= 5 * EXO_SECOND && passed < 20 * EXO_SECOND, "%g s",
              (double)passed / EXO_SECOND);
}

/* A restarted head is asked again for an actor that the head before it had made. */
Test(supervision, a_first_life_that_finds_its_name_taken_is_tried_again)
{
    struct world_member two[2];
    exo_err err = {0};
    world_describe(&two[0], "one", 0, EXO_ONE_FOR_ONE);
    world_describe(&two[1], "other", 0, EXO_ONE_FOR_ONE);
    Exo__Cluster__Spawn *together[] = {&two[1].spec};
    for (size_t count = 1; count <= 2; count++) {
        size_t first = w.num_spawns;
        two[0].spec.name = exo_pb_text(count == 1 ? "alone" : "one");
        two[0].spec.together = together;
        two[0].spec.n_together = count - 1;
        exo_future *made = world_begin(&w, w.head, "spawn", &two[0].spec.base, INT64_MAX);
        world_tick(&w, 0);
        cr_assert_eq(w.num_spawns, first + count);
        world_answer(&w, first, EXO_EXISTS, "there is such an actor already");
        for (size_t i = 1; i < count; i++)
            world_answer(&w, first + i, EXO_OK, NULL);
        cr_expect(!exo_future_ready(made));
        cr_expect_leq(world_until_asked(&w), 50 * EXO_MS);
        world_answer(&w, first + count, EXO_OK, NULL);
        cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%zu: %s", count, err.text);
        exo_future_drop(&made);
        cr_expect(world_is(&w, count == 1 ? "alone" : "one", "alive", 1), "%s",
                  world_why(&w, "one"));
    }
    cr_expect_eq(w.num_kills, 0);
}

Test(supervision, a_first_life_whose_name_stays_taken_is_an_error)
{
    struct world_member m;
    exo_err err = {0};
    world_describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    exo_future *made = world_begin(&w, w.head, "spawn", &m.spec.base, INT64_MAX);
    exo_time began = exo_now(&w.manual.base);
    world_tick(&w, 0);
    for (size_t i = 0; i < 100 && !exo_future_ready(made); i++) {
        world_answer(&w, i, EXO_EXISTS, "there is an actor 'one' already");
        if (!exo_future_ready(made))
            world_until_asked(&w);
    }
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_EXISTS);
    exo_time passed = exo_now(&w.manual.base) - began;
    cr_expect(passed >= 5 * EXO_SECOND && passed < 20 * EXO_SECOND, "%g s",
              (double)passed / EXO_SECOND);
    exo_future_drop(&made);
}

/* The death of a life is reported, and the answer that the life has started never arrives. */
Test(supervision, a_death_is_of_one_life)
{
    world_spawn_one(&w, "one", 0);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    world_dies(&w, 1, "at once");
    world_answer(&w, 1, EXO_PEER_LOST, "the connection broke");
    world_until_asked(&w);
    world_answer(&w, 2, EXO_OK, NULL);
    cr_expect(world_is(&w, "one", "alive", 3), "%s", world_why(&w, "one"));
}

/* --- No place --------------------------------------------------------------------------------- */

static exo_status
look_for(const char *method, const char *name, bool at_once, exo_err *err)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    m.at_once = at_once;
    m.cause = exo_pb_text("nobody wants it");
    return world_ask(&w, method, &m.base, err);
}

Test(supervision, who_waits_for_room_died_of_what_it_died_of)
{
    exo_err err = {0};
    world_spawn_one(&w, "one", 0);
    world_lose_worker(&w, "exited with status 3");
    world_tick(&w, 0);
    world_tick(&w, 5 * EXO_SECOND);
    cr_expect(world_is(&w, "one", "restarting", 1));
    cr_expect(strstr(world_why(&w, "one"), "cause: its node 'w1' is lost: exited with status 3\n"),
              "%s", world_why(&w, "one"));
    cr_expect(strstr(world_why(&w, "one"), "\nit waits: the cluster has no worker"), "%s",
              world_why(&w, "one"));
    cr_expect_eq(look_for("find", "one", true, &err), EXO_TIMEOUT);
    cr_expect(
        strstr(err.text,
               "'one' is restarting: its node 'w1' is lost: exited with status 3; it waits: "),
        "%s", err.text);
    world_register_worker(&w);
    world_until_asked(&w);
    world_answer(&w, 1, EXO_OK, NULL);
    cr_expect_null(strstr(world_why(&w, "one"), "it waits"), "%s", world_why(&w, "one"));
    cr_expect(strstr(world_why(&w, "one"),
                     "its last life ended: its node 'w1' is lost: exited with status 3\n"));
}

Test(supervision, who_looks_is_told_in_time_what_an_actor_waits_for)
{
    exo_err err = {0};
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("one");
    world_spawn_one(&w, "one", 0);
    world_lose_worker(&w, "a test");
    world_tick(&w, 0);
    exo_future *found =
        world_begin(&w, w.head, "find", &m.base, exo_now(&w.manual.base) + 30 * EXO_SECOND);
    exo_future *soon =
        world_begin(&w, w.head, "find", &m.base, exo_now(&w.manual.base) + EXO_SECOND);
    for (int i = 0; i < 16; i++)
        world_tick(&w, 50 * EXO_MS);
    cr_expect(exo_future_ready(soon));
    cr_expect_eq(exo_wait(soon, 0, NULL, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "the actor 'one' is restarting: its node 'w1' is lost: a test"),
              "%s", err.text);
    exo_future_drop(&soon);
    for (int i = 0; i < 28; i++)
        world_tick(&w, EXO_SECOND);
    cr_expect(!exo_future_ready(found));
    cr_assert_leq(atomic_load(&w.due), exo_now(&w.manual.base) + EXO_SECOND,
                  "the head asks to be woken");
    world_tick(&w, EXO_SECOND / 2);
    cr_expect_eq(exo_wait(found, 0, NULL, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "the actor 'one' is restarting: its node 'w1' is lost: a test"),
              "%s", err.text);
    exo_future_drop(&found);
}

Test(supervision, who_waits_for_room_can_be_given_up)
{
    exo_err err = {0};
    world_spawn_one(&w, "one", 0);
    world_spawn_one(&w, "other", 0);
    world_lose_worker(&w, "a test");
    world_tick(&w, 0);
    cr_expect_eq(look_for("give_up", "one", false, &err), EXO_OK, "%s", err.text);
    cr_expect(world_is(&w, "one", "dead", 1), "%s", world_why(&w, "one"));
    cr_expect(strstr(world_why(&w, "one"),
                     "cause: nobody wants it; before, the actor 'one' is restarting: its node"),
              "%s", world_why(&w, "one"));
    cr_expect_eq(look_for("give_up", "one", false, &err), EXO_NOT_FOUND);
    world_register_worker(&w);
    world_until_asked(&w);
    cr_expect_str_eq(w.spawns[w.num_spawns - 1].name, "other");
    world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
    cr_expect_eq(look_for("give_up", "other", false, &err), EXO_OK,
                 "it lives: that is for who knows it");
    cr_expect(world_is(&w, "other", "alive", 2));
}

Test(supervision, who_starts_and_is_given_up_is_ended_when_it_lives)
{
    world_spawn_one(&w, "one", 0);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    cr_expect_eq(look_for("give_up", "one", false, NULL), EXO_OK);
    world_answer(&w, 1, EXO_OK, NULL);
    cr_assert_eq(w.num_kills, 1);
    cr_expect_eq(w.kills[0].id, w.spawns[1].id);
    cr_expect(world_is(&w, "one", "dead", 2), "%s", world_why(&w, "one"));
}

/* --- Invalid requests ------------------------------------------------------------------------- */

Test(supervision, a_resource_has_a_name)
{
    struct world_member m;
    Exo__Cluster__Resource nameless = EXO__CLUSTER__RESOURCE__INIT, *list[] = {&nameless};
    exo_err err = {0};
    world_describe(&m, "one", 0, EXO_ONE_FOR_ONE);
    nameless.amount = 1;
    m.spec.resources = list;
    m.spec.n_resources = 1;
    cr_expect_eq(world_ask(&w, "spawn", &m.spec.base, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a resource has no name: 1 of what?");
}

Test(supervision, the_last_death_names_the_limit_of_the_rule)
{
    struct world_member member;
    world_describe(&member, "a", 1, EXO_ONE_FOR_ONE);
    member.rule.within = 90 * EXO_SECOND;
    world_spawn(&w, &member, 1);
    world_dies(&w, 0, "an accident");
    cr_expect(!strstr(world_why(&w, "a"), "no restart is left"), "%s", w.text);
    world_until_asked(&w);
    world_answer(&w, 1, EXO_OK, NULL);
    world_dies(&w, 1, "an accident");
    cr_expect(world_is(&w, "a", "dead", 2), "%s", w.text);
    cr_expect(strstr(w.text,
                     "an accident; no restart is left (its rule allows 1, within 90 s): mend the "
                     "cause, or raise the limit"),
              "%s", w.text);
}
