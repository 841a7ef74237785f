/* Communicators of the engine `nccl` in elastic runs, whose members change from one group to the next: the
 * living shrink what a death has broken, and newcomers grow what is whole. On the GPUs of tests/cuda, with
 * the NCCL of tests/nccl, which checks each call. Members are threads.
 *
 * Each test owns a world. Read next: runtime/nccl/make.c, tests/nccl/world.h. */
#include <criterion/criterion.h>

#include <string.h>

#include "nccl/group.h"
#include "nccl/world.h"

/* --- After a death ---------------------------------------------------------------------------- */

/* A run of all members, of whom member 1 dies. */
static void
lose_one(struct nccl_world *w)
{
    nccl_world_open(w, true, true);
    nccl_world_call(w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    cr_assert_eq(exo_kill(w->runtime, w->refs[1], "it broke", NULL), EXO_OK);
    nccl_world_call(w, NULL, NCCL_WORLD_SIZE, 1, EXO_PEER_LOST);
    nccl_world_close(w);
}

Test(nccl_members, the_living_shrink_what_a_death_has_broken, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3}, fewer[] = {0, 3};
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_another_run(); /* another run ends nothing of this one */
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_open(&w, true, true); /* the next epoch */
    nccl_world_call(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 3);
    cr_assert_eq(exo_kill(w.runtime, w.refs[2], "it broke", NULL), EXO_OK);
    nccl_world_call(&w, others, 3, 2, EXO_PEER_LOST);
    nccl_world_close(&w);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, fewer, 2, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 5);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "two deaths", 0);
}

Test(nccl_members, newcomers_and_the_living_make_a_new_communicator, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl_world_close(&w);
    cr_expect_eq(nccl->shrunk(), 2, "the last two have one of their own");
    cr_expect_eq(nccl->grown(), 0);
    nccl_world_expect_empty(nccl, "a newcomer", 0);
}

Test(nccl_members, a_shrink_that_fails_ends_all_members, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = nccl_world_load();
    for (uint64_t n = 0; n < 6; n++) {
        const nccl_failure how = (nccl_failure)(n % 3);
        struct nccl_world w;
        lose_one(&w);
        exo_nccl_set_patience(n < 3 ? 20 * EXO_MS : 0); /* 0: each abort is late */
        nccl_world_open(&w, true, true);
        for (uint32_t r = 0; how == NCCL_HANGS && r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 200 * EXO_MS);
        nccl->fail_at(2, how);
        nccl_world_call(&w, others, 3, UINT32_MAX, how == NCCL_HANGS ? EXO_TIMEOUT : EXO_FAILED);
        nccl->fail_at(0, how);
        nccl_world_close(&w);
        exo_nccl_set_patience(5 * EXO_SECOND);
        nccl_world_expect_empty(nccl, "a shrink", n);
    }
}

/* The living are the first three of four, and their group has no other member. */
Test(nccl_members, a_smaller_group_excludes_those_beyond_it)
{
    uint32_t ranks[NCCL_WORLD_SIZE] = {0, 1, 2, 3};
    const exo_nccl_remains remains = {.size = NCCL_WORLD_SIZE, .ranks = ranks};
    const exo_nccl_set all = {.size = NCCL_WORLD_SIZE - 1};
    int places[NCCL_WORLD_SIZE] = {0};
    cr_expect_eq(exo_nccl_excluded(&remains, &all, places), 1);
    cr_expect_eq(places[0], NCCL_WORLD_SIZE - 1);
}

Test(nccl_members, a_member_on_another_gpu_does_not_shrink, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_open(&w, true, true);
    exo_device *moved = w.devices[1];
    w.devices[1] = w.devices[2];
    w.devices[2] = moved;
    nccl_world_call(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "another GPU", 0);
}

/* --- Newcomers -------------------------------------------------------------------------------- */

/* Calls among some members, who then leave for another group. */
static void
begin_among(struct nccl_world *w, const uint32_t *ranks, uint32_t size)
{
    nccl_world_open(w, true, true);
    nccl_world_call(w, ranks, size, UINT32_MAX, EXO_OK);
    nccl_world_move_on(w);
    nccl_world_close(w);
}

static const uint32_t last_three[] = {1, 2, 3}, first_three[] = {0, 1, 2}, outer[] = {0, 2, 3};

/* NCCL's ranks are the members' places, then 0 2 3 1, then 2 3 1, then 2 3 1 0. */
Test(nccl_members, newcomers_grow_what_is_whole, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    begin_among(&w, outer, 3);
    begin_among(&w, NULL, NCCL_WORLD_SIZE); /* member 1 is new */
    cr_expect_eq(nccl->grown(), NCCL_WORLD_SIZE);
    const uint64_t calls = nccl->calls();
    begin_among(&w, NULL, NCCL_WORLD_SIZE); /* nobody is */
    const uint64_t of_one_epoch = nccl->calls() - calls;
    cr_expect_eq(nccl->grown(), NCCL_WORLD_SIZE);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->calls(), calls + 2 * of_one_epoch, "it was made again");
    cr_assert_eq(exo_kill(w.runtime, w.refs[0], "it broke", NULL), EXO_OK);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, 0, EXO_PEER_LOST);
    nccl_world_close(&w);
    begin_among(&w, last_three, 3);
    cr_expect_eq(nccl->shrunk(), 3);
    nccl_world_open(&w, true, true); /* the first of all is new, and has nothing to offer */
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->grown(), 2 * NCCL_WORLD_SIZE);
    nccl_world_close(&w);
    cr_expect_eq(nccl->aborted(), 0);
    nccl_world_expect_empty(nccl, "newcomers", 0);
}

Test(nccl_members, a_newcomer_behind_the_others_leaves_their_ranks, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    begin_among(&w, first_three, 3);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->grown(), NCCL_WORLD_SIZE);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "a newcomer", 0);
}

/* The member that is missing left without a word, as one that is too late. */
Test(nccl_members, those_that_stay_shrink_what_is_whole, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    begin_among(&w, NULL, NCCL_WORLD_SIZE);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, outer, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 3);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "fewer members", 0);
}

/* One of them left before it heard of the death, the others behind it. */
Test(nccl_members, what_only_some_have_revoked_is_not_shrunk, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl_world_move_on(&w);
    exo_group_close(&w.groups[2]);
    exo_comm_fail(w.comms[0], 3, "it broke");
    exo_comm_fail(w.comms[1], 3, "it broke");
    nccl_world_close(&w);
    cr_expect_geq(nccl->revoked(), 2);
    nccl_world_open(&w, true, true);
    nccl_world_call(&w, first_three, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "a death of which not all have heard", 0);
}

Test(nccl_members, what_no_group_takes_is_ended, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    begin_among(&w, NULL, NCCL_WORLD_SIZE);
    nccl_world_another_run(); /* another run ends nothing of this one */
    cr_expect_geq(nccl->comms(), NCCL_WORLD_SIZE);
    nccl_world_expect_empty(nccl, "an end", 0);
}

/* NCCL cannot grow it, or not on that GPU: a new communicator does as well. */
Test(nccl_members, without_growing_newcomers_get_a_new_communicator, .timeout = 60)
{
    static const char *const why[] = {"CommGrow", "CommGetUniqueId", "NCCL_COMM_ID", "GPU"};
    const nccl_test *nccl = nccl_world_load();
    for (size_t i = sizeof why / sizeof *why; i-- > 0;) {
        struct nccl_world w;
        const bool lacks = i < 2, refuses = i == 2;
        if (lacks)
            exo_nccl_lack(why[i]);
        nccl->invite_fails(refuses);
        begin_among(&w, first_three, 3);
        nccl_world_open(&w, true, true);
        if (i == 3) {
            exo_device *moved = w.devices[1];
            w.devices[1] = w.devices[2];
            w.devices[2] = moved;
        }
        nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
        cr_expect_eq(nccl->grown(), 0, "%s", why[i]);
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, why[i], i);
    }
}

Test(nccl_members, growing_that_fails_ends_all_members, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    for (uint64_t n = 0; n < 3 * NCCL_WORLD_SIZE; n++) {
        const nccl_failure how = (nccl_failure)(n % 3);
        struct nccl_world w;
        begin_among(&w, outer, 3);
        nccl_world_open(&w, true, true);
        exo_nccl_set_patience(n % 2 == 0 ? 20 * EXO_MS : 0);
        for (uint32_t r = 0; how == NCCL_HANGS && r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 200 * EXO_MS);
        nccl->seed(n);
        nccl->fail_at(1 + n / 3, how);
        nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX,
                        how == NCCL_HANGS ? EXO_TIMEOUT : EXO_FAILED);
        nccl->fail_at(0, how);
        nccl_world_close(&w);
        exo_nccl_set_patience(5 * EXO_SECOND);
        nccl_world_expect_empty(nccl, "growing", n);
    }
}
