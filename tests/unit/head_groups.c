/* Actors that are made together: one answer, when all of them live at the same time, or none of
 * them is to live. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/head_world.h"

static head_world w;
static struct world_member members[3];
static const char *const names[] = {"g0", "g1", "g2"};

static void
setup(void)
{
    world_open(&w, NULL);
    for (size_t i = 0; i < 3; i++)
        world_describe(&members[i], names[i], 0, EXO_ONE_FOR_ONE);
}

static void
teardown(void)
{
    world_close(&w);
}

TestSuite(head_groups, .init = setup, .fini = teardown, .timeout = 60);

/* The answer has every member's present life. */
static void
expect_all_alive(exo_future *made, const uint64_t *ids, size_t count)
{
    const exo_payload *reply = NULL;
    exo_err err = {0};
    cr_assert(exo_future_ready(made), "the group is not answered");
    cr_assert_eq(exo_wait(made, 0, &reply, &err), EXO_OK, "%s", err.text);
    Exo__Cluster__SpawnReply *m =
        EXO_UNPACK(Exo__Cluster__SpawnReply, exo__cluster__spawn_reply, reply);
    cr_assert(m && m->n_actors == count);
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(m->actors[i]->id, ids[i], "%s: a reference to actor %llu", names[i],
                     (unsigned long long)m->actors[i]->id);
        cr_expect_str_eq(m->actors[i]->state, "alive");
    }
    EXO_RELEASE(m);
}

static void
expect_failed(exo_future *made, exo_status status, const char *reason)
{
    exo_err err = {0};
    cr_assert(exo_future_ready(made), "the group is not answered");
    cr_expect_eq(exo_wait(made, 0, NULL, &err), status);
    cr_expect(strstr(err.text, reason), "%s", err.text);
}

/* Another one asks for a member by its name, and takes the one that there is. */
static exo_future *
ask_for(const char *name)
{
    struct world_member m;
    world_describe(&m, name, 0, EXO_ONE_FOR_ONE);
    m.spec.get_if_exists = true;
    return world_begin(&w, w.head, "spawn", &m.spec.base, INT64_MAX);
}

/* Whether the worker was told to end life `i`. */
static bool
was_ended(size_t i)
{
    for (size_t k = 0; k < w.num_kills; k++)
        if (w.kills[k].id == w.spawns[i].id)
            return true;
    return false;
}

Test(head_groups, are_answered_when_all_live_at_once)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_OK, NULL);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    world_answer(&w, 2, EXO_OK, NULL); /* its second life, and the other has not had its first */
    cr_expect(!exo_future_ready(made), "the other one does not live yet");
    world_answer(&w, 1, EXO_OK, NULL);
    expect_all_alive(made, (uint64_t[]){w.spawns[2].id, w.spawns[1].id}, 2);
    exo_future_drop(&made);
    cr_expect_eq(w.num_kills, 0);
}

Test(head_groups, wait_for_a_member_that_lives_again)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_OK, NULL);
    world_dies(&w, 0, "an accident");
    world_answer(&w, 1, EXO_OK,
                 NULL); /* while the first one waits for its next life, or starts it */
    cr_expect(!exo_future_ready(made), "the first one does not live");
    world_tick(&w, EXO_SECOND);
    cr_assert_eq(w.num_spawns, 3);
    world_answer(&w, 2, EXO_OK, NULL);
    expect_all_alive(made, (uint64_t[]){w.spawns[2].id, w.spawns[1].id}, 2);
    exo_future_drop(&made);
}

/* Its death is told before the answer that it started: it lives and dies in one moment. */
Test(head_groups, wait_for_a_member_that_died_at_once)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 1, EXO_OK, NULL);
    world_dies(&w, 0, "at once");
    world_answer(&w, 0, EXO_OK, NULL);
    cr_expect(!exo_future_ready(made), "the first one does not live");
    world_tick(&w, EXO_SECOND);
    cr_assert_eq(w.num_spawns, 3);
    world_answer(&w, 2, EXO_OK, NULL);
    expect_all_alive(made, (uint64_t[]){w.spawns[2].id, w.spawns[1].id}, 2);
    exo_future_drop(&made);
}

static void
one_dies_for_good(const char *name)
{
    members[0].spec.name = exo_pb_text(name);
    members[0].rule.when = EXO_RESTART_NEVER;
    exo_future *made = world_begin_spawn(&w, members, 3);
    world_answer(&w, 0, EXO_OK, NULL);
    world_answer(&w, 1, EXO_OK, NULL);
    world_dies(&w, 0, "an accident");
    expect_failed(made, EXO_PEER_LOST, "died while others of its group started: an accident");
    exo_future_drop(&made);
    world_answer(&w, 2, EXO_OK, NULL);
    cr_expect(was_ended(1), "the second one lives on");
    cr_expect(was_ended(2), "the third one lives on");
    cr_expect(world_is(&w, "g1", "dead", 1), "%s", world_why(&w, "g1"));
    cr_expect(world_is(&w, "g2", "dead", 1), "%s", world_why(&w, "g2"));
    world_tick(&w, 60 * EXO_SECOND);
    cr_expect_eq(w.num_spawns, 3, "nobody of it lives again");
}

Test(head_groups, leave_nobody_alive_when_one_died_for_good)
{
    one_dies_for_good("g0");
}

Test(head_groups, leave_nobody_alive_when_an_anonymous_one_died)
{
    one_dies_for_good("");
}

Test(head_groups, leave_nobody_alive_when_the_last_one_lived_for_a_moment)
{
    members[1].rule.when = EXO_RESTART_NEVER;
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_OK, NULL);
    world_dies(&w, 1, "at once");
    world_answer(&w, 1, EXO_OK, NULL);
    expect_failed(made, EXO_PEER_LOST, "at once");
    exo_future_drop(&made);
    cr_expect(was_ended(0), "the first one lives on");
}

Test(head_groups, fail_when_a_member_is_given_up_between_its_lives)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("g0");
    m.cause = exo_pb_text("nobody wants it");
    members[0].rule.backoff = 10 * EXO_SECOND;
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_OK, NULL);
    world_dies(&w, 0, "an accident");
    cr_assert_eq(world_ask(&w, "give_up", &m.base, NULL), EXO_OK);
    expect_failed(made, EXO_PEER_LOST, "nobody wants it");
    exo_future_drop(&made);
    world_answer(&w, 1, EXO_OK, NULL);
    cr_expect(was_ended(1));
}

/* A life that cannot start is made again, as the rule says, if it is not the first. */
Test(head_groups, wait_for_a_member_whose_next_life_does_not_start_at_once)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_OK, NULL);
    world_dies(&w, 0, "an accident");
    world_until_asked(&w);
    world_answer(&w, 2, EXO_FAILED, "not now");
    world_answer(&w, 1, EXO_OK, NULL);
    world_until_asked(&w);
    world_answer(&w, 3, EXO_OK, NULL);
    expect_all_alive(made, (uint64_t[]){w.spawns[3].id, w.spawns[1].id}, 2);
    exo_future_drop(&made);
}

/* Whether the worker was told to end life `i`, whose id nobody knows. */
static bool
was_ended_unseen(size_t i)
{
    for (size_t k = 0; k < w.num_kills; k++)
        if (!w.kills[k].id && w.kills[k].key == w.spawns[i].key &&
            w.kills[k].incarnation == w.spawns[i].incarnation)
            return true;
    return false;
}

/* It may still start when its worker did not answer in time. */
Test(head_groups, leave_nobody_alive_who_starts_too_late)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    world_answer(&w, 0, EXO_FAILED, "it does not start");
    expect_failed(made, EXO_FAILED, "it does not start");
    cr_expect_eq(w.num_kills, 0);
    world_answer(&w, 1, EXO_TIMEOUT, "no answer");
    cr_expect(was_ended_unseen(1));
    exo_future_drop(&made);
    made = world_begin_spawn(&w, &members[2], 1);
    world_answer(&w, 2, EXO_TIMEOUT, "no answer");
    expect_failed(made, EXO_TIMEOUT, "no answer");
    cr_expect(was_ended_unseen(2));
    exo_future_drop(&made);
}

Test(head_groups, answer_whoever_asked_for_a_member)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    exo_future *asked = ask_for("g1");
    world_tick(&w, 0);
    cr_expect(!exo_future_ready(asked));
    world_answer(&w, 0, EXO_FAILED, "it does not start");
    expect_failed(made, EXO_FAILED, "it does not start");
    expect_failed(asked, EXO_FAILED, "it does not start");
    exo_future_drop(&made);
    exo_future_drop(&asked);
}

Test(head_groups, answer_whoever_asked_for_a_member_when_the_node_is_lost)
{
    exo_future *made = world_begin_spawn(&w, members, 2);
    exo_future *asked = ask_for("g1");
    world_tick(&w, 0);
    world_lose_worker(&w, "a test");
    expect_failed(made, EXO_PEER_LOST, "its node 'w1' is lost: a test");
    expect_failed(asked, EXO_PEER_LOST, "its node 'w1' is lost: a test");
    exo_future_drop(&made);
    exo_future_drop(&asked);
}
