/* Ends of runs with the engine `nccl` on the GPUs of tests/cuda: deaths, deadlines, and members that leave.
 * Members are threads.
 *
 * Each test owns a world. Read next: runtime/nccl/group.h, tests/nccl/world.h, nccl_members.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

#include <exogym/ipc.h>

#include "cuda/emulator.h"
#include "nccl/group.h"
#include "nccl/world.h"
#include "nn/cuda/open.h"

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

/* --- Waits for a GPU -------------------------------------------------------------------------- */

/* Begins a call that reaches the GPUs, and waits there for the last member. */
static void
begin_on_gpus(struct nccl_world *w, exo_array arrays[NCCL_WORLD_SIZE],
              exo_request *requests[NCCL_WORLD_SIZE])
{
    nccl_world_call(w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    begin_without_the_last(w, arrays, requests);
}

static uint64_t
memory_in_use(const struct nccl_world *w)
{
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        exo_device_synchronize(w->devices[r], NULL);
    return cuda_emulator_memory();
}

/* The thread that ends the call of a dead member frees memory of the GPU meanwhile. CUDA would wait for the
 * call: so it is freed at the call's end. */
Test(nccl_ends, what_is_freed_waits_for_the_end_of_calls, .timeout = 20)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        exo_ipc_array *shared = NULL;
        exo_device *device = NULL;
        exo_err err = {0};
        nccl_world_open(&w, true, far);
        const uint64_t before = memory_in_use(&w), things = cuda_emulator_things();
        begin_on_gpus(&w, arrays, requests);
        cr_assert_eq(exo_ipc_array_new(&shared, w.devices[0], EXO_F32, 1000, &err), EXO_OK, "%s",
                     err.text);
        exo_ipc_array_drop(&shared);
        cr_expect_eq(exo_ipc_array_count(), 1, "kept until nothing waits on the GPU");
        cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
        exo_cuda_close(device);
        exo_comm_fail(w.comms[0], NCCL_WORLD_SIZE - 1, "killed by signal 9");
        expect_end(&w, arrays, requests, EXO_PEER_LOST, "(rank 3) died");
        cr_expect_eq(memory_in_use(&w), before, "the end of the call has freed it");
        cr_expect_leq(cuda_emulator_things(), things + 8 * NCCL_WORLD_SIZE,
                      "and the pinned memory of the device");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "frees", 0);
        cr_expect_eq(exo_ipc_array_count(), 0);
    }
}

/* NCCL waits for the GPU as it frees a communicator, so it would wait for the call of another group. */
Test(nccl_ends, the_end_of_a_group_waits_for_no_other, .timeout = 20)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w[2];
    exo_array arrays[2][NCCL_WORLD_SIZE] = {0};
    exo_request *requests[2][NCCL_WORLD_SIZE] = {0};
    for (int g = 0; g < 2; g++)
        nccl_world_open(&w[g], true, false);
    for (int g = 0; g < 2; g++)
        begin_on_gpus(&w[g], arrays[g], requests[g]);
    for (int g = 0; g < 2; g++)
        exo_comm_fail(w[g].comms[0], NCCL_WORLD_SIZE - 1, "killed by signal 9");
    for (int g = 0; g < 2; g++)
        expect_end(&w[g], arrays[g], requests[g], EXO_PEER_LOST, "(rank 3) died");
    for (int g = 0; g < 2; g++)
        nccl_world_close(&w[g]);
    nccl_world_expect_empty(nccl, "two groups", 0);
}

/* --- Members that leave ----------------------------------------------------------------------- */

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
        nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
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
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl->hold_destroys(1);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, nccl_world_leave, &w.groups[r]), 0);
    while (nccl->held() == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    for (int n = 0; n < 20; n++) /* NCCL says that more and more of them are quiet */
        nccl_world_another_run();
    cr_expect_eq(nccl->comms(), 2 * NCCL_WORLD_SIZE, /* of all, and of two */
                 "another run has waited for the end of this one");
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

/* The deadline of member 0 alone passes, and the others hear of it. */
Test(nccl_ends, a_deadline_ends_a_call_of_too_few, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        exo_array arrays[NCCL_WORLD_SIZE] = {0};
        exo_request *requests[NCCL_WORLD_SIZE] = {0};
        nccl_world_open(&w, true, far);
        exo_group_set_timeout(w.groups[0], 50 * EXO_MS);
        begin_without_the_last(&w, arrays, requests);
        expect_end(&w, arrays, requests, EXO_TIMEOUT,
                   far ? "node_3 (rank 3)" : "NCCL has not connected all of them");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "deadline", 0);
    }
}

/* Only the first of the members knows who has not come: another one says that it waits for the first. */
Test(nccl_ends, a_deadline_names_the_member_that_decides, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    exo_array arrays[NCCL_WORLD_SIZE] = {0};
    exo_request *requests[NCCL_WORLD_SIZE] = {0};
    nccl_world_open(&w, true, true);
    exo_group_set_timeout(w.groups[1], 20 * EXO_MS);
    begin_without_the_last(&w, arrays, requests);
    exo_err err = {0};
    cr_expect_eq(exo_request_wait(&requests[1], &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text,
                     "node_1 (rank 1) waited for node_0 (rank 0) to say how NCCL connects them"),
              "%s", err.text);
    cr_expect_eq(exo_request_wait(&requests[0], NULL), EXO_TIMEOUT, "member 0 hears of it");
    cr_expect_eq(exo_request_wait(&requests[2], NULL), EXO_TIMEOUT, "and so does member 2");
    for (uint32_t r = 0; r + 1 < NCCL_WORLD_SIZE; r++)
        exo_array_release(&arrays[r]);
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "deadline", 0);
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
