/* The memory of communicators of the engine `nccl`, which members give back while they do not call
 * (exo_group_suspend). On the GPUs of tests/cuda, with the NCCL of tests/nccl, which checks each call. Members
 * are threads.
 *
 * Each test owns a world. Read next: runtime/nccl/engine.c, tests/nccl/world.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/device.h>

#include "cuda/recorder.h"
#include "nccl/group.h"
#include "nccl/world.h"

struct sleeper {
    exo_group *group;
    exo_status status;
    exo_err err;
};

static void *
sleeper_main(void *argument)
{
    struct sleeper *s = argument;
    s->status = exo_group_suspend(s->group, &s->err);
    return NULL;
}

/* All members but the last `absent` suspend. text: that the reason of a failure has. */
static void
suspend(const struct nccl_world *w, uint32_t absent, exo_status expected, const char *text)
{
    pthread_t threads[NCCL_WORLD_SIZE];
    struct sleeper sleepers[NCCL_WORLD_SIZE] = {0};
    for (uint32_t r = 0; r + absent < NCCL_WORLD_SIZE; r++) {
        sleepers[r].group = w->groups[r];
        cr_assert_eq(pthread_create(&threads[r], NULL, sleeper_main, &sleepers[r]), 0);
    }
    for (uint32_t r = 0; r + absent < NCCL_WORLD_SIZE; r++) {
        pthread_join(threads[r], NULL);
        cr_expect_eq(sleepers[r].status, expected, "rank %u: %s", r, sleepers[r].err.text);
        cr_expect(strstr(sleepers[r].err.text, text), "rank %u: %s", r, sleepers[r].err.text);
    }
}

static void
call_all(const struct nccl_world *w, exo_status expected)
{
    nccl_world_call(w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, expected);
}

#define FOR_EACH_WAY(far) for (int far = 0; far < 2; far++)

Test(nccl_memory, a_call_takes_back_what_was_suspended, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        const uint64_t before = nccl->suspended();
        nccl_world_open(&w, true, far);
        suspend(&w, 0, EXO_OK, "");
        cr_expect_eq(nccl->suspended(), before, "there is nothing to give back yet");
        for (uint64_t k = 1; k <= 3; k++) {
            call_all(&w, EXO_OK);
            cr_expect_eq(nccl->resumed(), nccl->suspended());
            suspend(&w, 0, EXO_OK, "");
            cr_expect_eq(nccl->suspended(), before + k * NCCL_WORLD_SIZE);
        }
        suspend(&w, 0, EXO_OK, "");
        cr_expect_eq(nccl->suspended(), before + 3 * NCCL_WORLD_SIZE, "it is suspended already");
        nccl_world_close(&w); /* NCCL frees no communicator that is suspended */
        cr_expect_eq(nccl->resumed(), nccl->suspended());
        cr_expect_eq(nccl->aborted(), 0);
        nccl_world_expect_empty(nccl, "a suspended communicator", (uint64_t)far);
    }
}

/* NCCL waits for the GPU while it suspends, which CUDA forbids while something is recorded there. */
Test(nccl_memory, nothing_is_recorded_meanwhile, .timeout = 60)
{
    nccl_world_load();
    struct nccl_world w;
    cuda_recorder r;
    nccl_world_open(&w, true, false);
    cuda_recorder_start(&r, 0);
    for (int i = 0; i < 20 || !cuda_recorder_has_enough(); i++) {
        call_all(&w, EXO_OK);
        suspend(&w, 0, EXO_OK, "");
    }
    cuda_recorder_stop(&r);
    nccl_world_close(&w);
}

Test(nccl_memory, a_death_ends_what_is_suspended, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    nccl_world_open(&w, true, true);
    call_all(&w, EXO_OK);
    suspend(&w, 0, EXO_OK, "");
    cr_assert_eq(exo_kill(w.runtime, w.refs[1], "it broke", NULL), EXO_OK);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, 1, EXO_PEER_LOST);
    exo_comm_fail(w.comms[1], 1, "it broke"); /* the dead hear of nothing: it would wait */
    nccl_world_close(&w);
    nccl_world_expect_empty(nccl, "a death", 0);
}

Test(nccl_memory, who_does_not_come_is_named, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    FOR_EACH_WAY(far)
    {
        struct nccl_world w;
        nccl_world_open(&w, true, far);
        call_all(&w, EXO_OK);
        for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 50 * EXO_MS);
        suspend(&w, 1, EXO_TIMEOUT, "node_3 (rank 3)");
        nccl_world_close(&w);
        nccl_world_expect_empty(nccl, "a member that does not come", (uint64_t)far);
    }
}

Test(nccl_memory, a_group_goes_on_if_nccl_cannot, .timeout = 60)
{
    static const char *const texts[] = {"", "install 2.30.3 or later", "invalid usage"};
    const nccl_test *nccl = nccl_world_load();
    for (int i = 2; i > 0; i--) {
        struct nccl_world w;
        nccl->suspend_fails(i == 2);
        if (i == 1)
            exo_nccl_lack("CommSuspend");
        nccl_world_open(&w, true, true);
        call_all(&w, EXO_OK);
        suspend(&w, 0, EXO_UNSUPPORTED, texts[i]);
        call_all(&w, EXO_OK);
        nccl_world_close(&w);
        cr_expect_eq(nccl->suspended(), 0);
        nccl_world_expect_empty(nccl, texts[i], (uint64_t)i);
    }
}

/* Before 2.30.3 NCCL waits for the others in the thread that asks, so runs that rely on it do not begin. */
Test(nccl_memory, a_version_that_blocks_is_refused, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    exo_err err = {0};
    nccl->version(22907);
    nccl_world_open(&w, true, false);
    call_all(&w, EXO_OK);
    suspend(&w, 0, EXO_UNSUPPORTED, "NCCL 2.29.7 does not suspend");
    cr_expect_eq(nccl_world_engine()->can_suspend(&err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "install 2.30.3 or later"), "%s", err.text);
    nccl_world_close(&w);
    cr_expect_eq(nccl->suspended(), 0);
}

Test(nccl_memory, an_engine_without_memory_does_nothing)
{
    struct nccl_world w;
    nccl_world_open(&w, false, false);
    suspend(&w, 1, EXO_OK, "");
    nccl_world_close(&w);
}

Test(nccl_memory, requests_are_waited_for_before, .timeout = 60)
{
    nccl_world_load();
    struct nccl_world w;
    exo_array x = {0};
    exo_request *request = NULL;
    exo_err err = {0};
    nccl_world_open(&w, true, true);
    cr_assert_eq(exo_array_init(&x, w.devices[0], EXO_F32, 8, NULL), EXO_OK);
    cr_assert_eq(exo_comm_begin_all_reduce(&request, w.groups[0], x, EXO_SUM, &err), EXO_OK);
    cr_expect_eq(exo_group_suspend(w.groups[0], &err), EXO_INVAL);
    cr_expect(strstr(err.text, "wait for it before"), "%s", err.text);
    exo_request_cancel(&request);
    exo_array_release(&x);
    nccl_world_close(&w);
}

/* The first and the last call of NCCL of a suspension fail, and those of the return. */
Test(nccl_memory, a_failure_ends_all_members, .timeout = 60)
{
    const nccl_test *nccl = nccl_world_load();
    static const uint64_t calls[] = {1, NCCL_WORLD_SIZE, NCCL_WORLD_SIZE + 1, 2 * NCCL_WORLD_SIZE};
    for (uint64_t n = 0; n < 3 * sizeof calls / sizeof *calls; n++) {
        const nccl_failure how = (nccl_failure)(n % 3);
        const uint64_t at = calls[n / 3];
        const exo_status status = how == NCCL_HANGS ? EXO_TIMEOUT : EXO_FAILED;
        struct nccl_world w;
        nccl_world_open(&w, true, true);
        call_all(&w, EXO_OK);
        exo_nccl_set_patience(20 * EXO_MS);
        nccl->seed(n);
        nccl->fail_at(at, how);
        if (at > NCCL_WORLD_SIZE) /* by the return */
            suspend(&w, 0, EXO_OK, "");
        for (uint32_t r = 0; how == NCCL_HANGS && r < NCCL_WORLD_SIZE; r++)
            exo_group_set_timeout(w.groups[r], 100 * EXO_MS);
        if (at <= NCCL_WORLD_SIZE)
            suspend(&w, 0, status, "");
        call_all(&w, status);
        nccl->fail_at(0, how);
        nccl_world_close(&w);
        exo_nccl_set_patience(5 * EXO_SECOND);
        nccl_world_expect_empty(nccl, "memory", n);
    }
}
