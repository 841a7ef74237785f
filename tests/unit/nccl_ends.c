/* Ends of runs with the engine `nccl` on the GPUs of tests/cuda: deaths, deadlines, members that leave,
 * and the communicators of those that live on. Members are threads.
 *
 * Each test owns a world. Read next: runtime/nccl/group.h, tests/nccl/world.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

#include "nccl/group.h"
#include "nccl/world.h"

/* --- Other ends ------------------------------------------------------------------------------- */

/* Begins a call of members 0 to 2, and returns their requests. */
static void
begin_without_the_last(struct nccl_world *w, exo_array arrays[NCCL_WORLD_SIZE],
                       exo_request *requests[NCCL_WORLD_SIZE])
{
    exo_err err = {0};
    for (uint32_t r = 0; r + 1 < NCCL_WORLD_SIZE; r++) {
        cr_assert_eq(exo_array_init(&arrays[r], w->devices[r], EXO_F32, 8, &err), EXO_OK);
        cr_assert_eq(
            exo_comm_begin_all_reduce(&requests[r], w->groups[r], arrays[r], EXO_SUM, &err), EXO_OK,
            "%s", err.text);
    }
}

static void
expect_end(struct nccl_world *w, exo_array arrays[NCCL_WORLD_SIZE],
           exo_request *requests[NCCL_WORLD_SIZE], exo_status status, const char *text)
{
    exo_err err = {0};
    for (uint32_t r = 0; r + 1 < NCCL_WORLD_SIZE; r++) {
        cr_expect_eq(exo_request_wait(&requests[r], &err), status, "rank %u: %s", r, err.text);
        cr_expect(strstr(err.text, text), "rank %u: %s", r, err.text);
        cr_expect_eq(exo_barrier(w->groups[r], &err), status, "a broken group stays broken");
        exo_array_release(&arrays[r]);
    }
}

#define FOR_EACH_WAY(far) for (int far = 0; far < 2; far++)

Test(nccl_ends, a_death_ends_the_calls_of_the_living, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        nccl_world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_comm_fail(w.comms[0], NCCL_WORLD_SIZE - 1, "killed by signal 9");
        expect_end(&w, arrays, requests, EXO_PEER_LOST, "(rank 3) died: killed by signal 9");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "death", 0);
    }
}

Test(nccl_ends, an_actor_that_is_killed_is_a_death, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    exo_array arrays[NCCL_WORLD_SIZE] = {0};
    exo_request *requests[NCCL_WORLD_SIZE] = {0};
    nccl_world_open(&w, true, true);
    begin_without_the_last(&w, arrays, requests);
    cr_assert_eq(exo_kill(w.runtime, w.refs[NCCL_WORLD_SIZE - 1], "it broke", NULL), EXO_OK);
    expect_end(&w, arrays, requests, EXO_PEER_LOST,
               "node_3 (rank 3) died: the actor 'hearer' died: it broke");
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "kill", 0);
}

/* --- After a death ------------------------------------------------------------------------------ */

struct living {
    exo_group *group;
    exo_device *device;
    const uint32_t *ranks;
    uint32_t size;
    float sum;
    exo_status status;
    exo_err err;
};

/* A sum of ones among some of the members. */
static void *
living_main(void *argument)
{
    struct living *l = argument;
    const float one = 1;
    exo_array x = {0};
    exo_group *group = NULL;
    l->status = exo_group_among(&group, l->group, l->ranks, l->size, &l->err);
    if (l->status == EXO_OK)
        l->status = exo_array_init(&x, l->device, EXO_F32, 1, &l->err);
    if (l->status == EXO_OK)
        l->status = exo_array_write(x, &one, &l->err);
    if (l->status == EXO_OK)
        l->status = exo_all_reduce(group, x, EXO_SUM, &l->err);
    if (l->status == EXO_OK)
        l->status = exo_array_read(x, &l->sum, &l->err);
    exo_array_release(&x);
    exo_group_close(&group);
    return NULL;
}

/* absent: one of the ranks, which is dead and does not call; UINT32_MAX: none. */
static void
sum_among(const struct nccl_world *w, const uint32_t *ranks, uint32_t size, uint32_t absent,
          exo_status expected)
{
    pthread_t threads[NCCL_WORLD_SIZE];
    struct living living[NCCL_WORLD_SIZE] = {0};
    for (uint32_t i = 0; i < size; i++) {
        living[i] = (struct living){.group = w->groups[ranks[i]],
                                    .device = w->devices[ranks[i]],
                                    .ranks = ranks,
                                    .size = size};
        if (ranks[i] != absent)
            cr_assert_eq(pthread_create(&threads[i], NULL, living_main, &living[i]), 0);
    }
    for (uint32_t i = 0; i < size; i++) {
        if (ranks[i] == absent)
            continue;
        pthread_join(threads[i], NULL);
        cr_expect_eq(living[i].status, expected, "rank %u: %s", ranks[i], living[i].err.text);
        cr_expect(expected != EXO_OK || living[i].sum == (float)size);
    }
}

static const uint32_t all_ranks[NCCL_WORLD_SIZE] = {0, 1, 2, 3};

/* A run of all members, of whom member 1 dies. */
static void
lose_one(struct nccl_world *w)
{
    nccl_world_open(w, true, true);
    sum_among(w, all_ranks, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    cr_assert_eq(exo_kill(w->runtime, w->refs[1], "it broke", NULL), EXO_OK);
    sum_among(w, all_ranks, NCCL_WORLD_SIZE, 1, EXO_PEER_LOST);
    nccl_world_close(w);
}

Test(nccl_ends, the_living_shrink_what_a_death_has_broken, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3}, fewer[] = {0, 3};
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_another_run(); /* another run ends nothing of this one */
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_open(&w, true, true); /* the next epoch */
    sum_among(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 3);
    cr_assert_eq(exo_kill(w.runtime, w.refs[2], "it broke", NULL), EXO_OK);
    sum_among(&w, others, 3, 2, EXO_PEER_LOST);
    nccl_world_close(&w);
    nccl_world_open(&w, true, true);
    sum_among(&w, fewer, 2, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 5);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "two deaths", 0);
}

Test(nccl_ends, newcomers_and_the_living_make_a_new_communicator, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_open(&w, true, true);
    sum_among(&w, all_ranks, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl_world_close(&w);
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_expect_empty(nccl, "a newcomer", 0);
}

Test(nccl_ends, a_shrink_that_fails_ends_all_members, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = nccl_world_load();
    for (nccl_failure how = NCCL_RETURNS; how <= NCCL_HANGS; how++) {
        struct nccl_world w;
        lose_one(&w);
        exo_nccl_set_patience(20 * EXO_MS);
        nccl_world_open(&w, true, true);
        for (uint32_t r = 0; how == NCCL_HANGS && r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 200 * EXO_MS);
        nccl->fail_at(2, how);
        sum_among(&w, others, 3, UINT32_MAX, how == NCCL_HANGS ? EXO_TIMEOUT : EXO_FAILED);
        nccl->fail_at(0, how);
        nccl_world_close(&w);
        exo_nccl_set_patience(5 * EXO_SECOND);
        nccl_world_expect_empty(nccl, "a shrink", (uint64_t)how);
    }
}

/* The living are the first three of four, and their group has no other member. */
Test(nccl_ends, a_smaller_group_excludes_those_beyond_it)
{
    uint32_t ranks[NCCL_WORLD_SIZE] = {0, 1, 2, 3};
    const exo_nccl_remains remains = {.size = NCCL_WORLD_SIZE, .ranks = ranks};
    const exo_nccl_set all = {.size = NCCL_WORLD_SIZE - 1};
    int places[NCCL_WORLD_SIZE] = {0};
    cr_expect_eq(exo_nccl_excluded(&remains, &all, places), 1);
    cr_expect_eq(places[0], NCCL_WORLD_SIZE - 1);
}

Test(nccl_ends, a_member_on_another_gpu_does_not_shrink, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    lose_one(&w);
    nccl_world_open(&w, true, true);
    exo_device *moved = w.devices[1];
    w.devices[1] = w.devices[2];
    w.devices[2] = moved;
    sum_among(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 0);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "another GPU", 0);
}

/* Member 0 leaves long before the others, as NCCL's patience with what is broken goes. */
Test(nccl_ends, a_member_that_leaves_early_aborts_nothing, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        pthread_t thread, others[NCCL_WORLD_SIZE];
        const uint64_t finalized = nccl->finalized();
        nccl_world_open(&w, true, far);
        sum_among(&w, all_ranks, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
        exo_nccl_set_patience(0);
        exo_group *early = w.groups[0];
        w.groups[0] = NULL;
        cr_assert_eq(pthread_create(&thread, NULL, nccl_world_leave, &early), 0);
        while (nccl->finalized() == finalized)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        cr_expect_eq(nccl->aborted(), 0);
        exo_nccl_set_patience(5 * EXO_SECOND);
        for (uint32_t r = 1; r < NCCL_WORLD_SIZE; r++)
            cr_assert_eq(pthread_create(&others[r], NULL, nccl_world_leave, &w.groups[r]), 0);
        for (uint32_t r = 1; r < NCCL_WORLD_SIZE; r++)
            pthread_join(others[r], NULL);
        pthread_join(thread, NULL);
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "an early end", 0);
    }
    cr_expect_eq(nccl->aborted(), 0);
}

/* While NCCL frees the communicators of one run, another one begins and ends. */
Test(nccl_ends, an_end_that_takes_long_stops_no_other_run, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    pthread_t threads[NCCL_WORLD_SIZE];
    nccl_world_open(&w, true, false);
    sum_among(&w, all_ranks, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl->hold_destroys(1);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, nccl_world_leave, &w.groups[r]), 0);
    while (nccl->held() == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    for (int n = 0; n < 20; n++) /* NCCL says that more and more of them are quiet */
        nccl_world_another_run();
    cr_expect_eq(nccl->comms(), NCCL_WORLD_SIZE, "another run has waited for the end of this one");
    nccl->hold_destroys(0);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        pthread_join(threads[r], NULL);
    memset(w.groups, 0, sizeof w.groups);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "a long end", 0);
}

Test(nccl_ends, a_member_that_leaves_is_missed, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        nccl_world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_group_close(&w.groups[NCCL_WORLD_SIZE - 1]);
        expect_end(&w, arrays, requests, EXO_PEER_LOST, "(rank 3) has left");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "leaving", 0);
    }
}

Test(nccl_ends, a_deadline_ends_a_call_of_too_few, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        nccl_world_open(&w, true, far);
        for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 50 * EXO_MS);
        begin_without_the_last(&w, arrays, requests);
        expect_end(&w, arrays, requests, EXO_TIMEOUT, "NCCL has not connected all of them");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "deadline", 0);
    }
}

Test(nccl_ends, a_barrier_names_who_is_missing, .timeout = 60)
{
    nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_err err = {0};
        nccl_world_open(&w, true, far);
        exo_group_set_timeout(w.groups[0], 20 * EXO_MS);
        cr_expect_eq(exo_barrier(w.groups[0], &err), EXO_TIMEOUT);
        cr_expect(strstr(err.text, "node_1 (rank 1), node_2 (rank 2), node_3 (rank 3)"), "%s",
                  err.text);
        nccl_world_close(&w);
    }
}

Test(nccl_ends, a_cancelled_request_ends_the_others, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        exo_err err = {0};
        nccl_world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_request_cancel(&requests[0]);
        for (uint32_t r = 1; r + 1 < NCCL_WORLD_SIZE; r++) {
            cr_expect_eq(exo_request_wait(&requests[r], &err), EXO_CANCELLED, "%s", err.text);
            cr_expect(strstr(err.text, "node_0 (rank 0) cancelled its all_reduce"), "%s", err.text);
        }
        for (uint32_t r = 0; r + 1 < NCCL_WORLD_SIZE; r++)
            exo_array_release(&arrays[r]);
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "cancel", 0);
    }
}
