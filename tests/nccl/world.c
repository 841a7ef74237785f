/* Groups of the engine `nccl` for tests: see world.h. */
#include "nccl/world.h"

#include <criterion/criterion.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "comm/far.h"
#include "cuda/emulator.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "nccl/register.h"
#include "nn/cuda/open.h"
#include "support/far_members.h"

static const char library[] = EXO_TEST_BINARY_DIR "/tests/nccl/libnccl_test.so";

const nccl_test *
nccl_world_load(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    exo_nccl_use(library);
    return dlsym(handle, NCCL_TEST_SYMBOL);
}

const exo_engine_class *
nccl_world_engine(void)
{
    const exo_engine_class *engine = NULL;
    exo_err err = {0};
    static bool registered;
    if (!registered)
        cr_assert_eq(exo_nccl_register(&err), EXO_OK, "%s", err.text);
    registered = true;
    cr_assert_eq(exo_engine_find(&engine, "nccl", &err), EXO_OK, "%s", err.text);
    return engine;
}

static void
open_far(struct nccl_world *w)
{
    exo_err err = {0};
    cr_assert_eq(exo_runtime_open(&w->runtime, NULL, &err), EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++) {
        const exo_comm_far_opts opts = {.runtime = w->runtime,
                                        .size = NCCL_WORLD_SIZE,
                                        .rank = r,
                                        .channel = 3,
                                        .method = "collective",
                                        .goes_on = true};
        cr_assert_eq(exo_comm_far_on(&w->comms[r], nccl_world_engine(), "test", &opts, &err),
                     EXO_OK, "%s", err.text);
        const exo_spawn_opts spawn = {.args = exo_payload_borrow(&w->comms[r], sizeof(exo_comm *))};
        cr_assert_eq(exo_spawn(w->runtime, &far_hearer_class, &spawn, &w->refs[r], &err), EXO_OK,
                     "%s", err.text);
    }
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        cr_assert_eq(exo_comm_far_connect(w->comms[r], w->refs, &err), EXO_OK, "%s", err.text);
}

static void
open_near(struct nccl_world *w)
{
    const exo_engine_opts opts = {
        .size = NCCL_WORLD_SIZE, .clock = exo_clock_real(), .key = "test"};
    exo_err err = {0};
    exo_status st = w->nccl ? exo_comm_open(&w->comms[0], nccl_world_engine(), &opts, &err)
                            : exo_comm_local(&w->comms[0], NCCL_WORLD_SIZE, exo_clock_real(), &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    for (uint32_t r = 1; r < NCCL_WORLD_SIZE; r++)
        w->comms[r] = exo_comm_hold(w->comms[0]);
}

void
nccl_world_open(struct nccl_world *w, bool nccl, bool far)
{
    exo_err err = {0};
    *w = (struct nccl_world){.nccl = nccl, .far = far};
    cuda_emulator_set_gpus(NCCL_WORLD_SIZE);
    if (far)
        open_far(w);
    else
        open_near(w);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++) {
        char name[16];
        snprintf(name, sizeof name, "node_%u", r);
        w->devices[r] = exo_device_cpu();
        if (nccl)
            cr_assert_eq(exo_cuda_open(&w->devices[r], (int)r, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_group_open(&w->groups[r], w->comms[r], r, name, &err), EXO_OK, "%s",
                     err.text);
        exo_group_set_timeout(w->groups[r], 60 * EXO_SECOND);
    }
}

void *
nccl_world_leave(void *group)
{
    exo_group_close(group);
    return NULL;
}

/* Members leave at once: NCCL ends a communicator that is whole when all of its members do. */
void
nccl_world_close(struct nccl_world *w)
{
    pthread_t threads[NCCL_WORLD_SIZE];
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, nccl_world_leave, &w->groups[r]), 0);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; w->far && r < NCCL_WORLD_SIZE; r++)
        exo_comm_far_disconnect(w->comms[r]);
    if (w->far)
        cr_assert_eq(
            exo_runtime_close(&w->runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL),
            EXO_OK);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        exo_comm_drop(&w->comms[r]);
    for (uint32_t r = 0; w->nccl && r < NCCL_WORLD_SIZE; r++)
        exo_cuda_close(w->devices[r]);
}

void
nccl_world_another_run(void)
{
    const exo_engine_opts opts = {.size = 1, .clock = exo_clock_real(), .key = "another"};
    exo_comm *comm = NULL;
    cr_assert_eq(exo_comm_open(&comm, nccl_world_engine(), &opts, NULL), EXO_OK);
    exo_comm_drop(&comm);
}

void
nccl_world_later_run(void)
{
    exo_nccl_set_keeping(0);
    nccl_world_another_run();
    exo_nccl_set_keeping(60 * EXO_SECOND);
}

void
nccl_world_expect_empty(const nccl_test *nccl, const char *what, uint64_t n)
{
    nccl_world_later_run();
    cr_expect_eq(nccl->comms(), 0, "%s %d: %d communicators are left", what, (int)n,
                 (int)nccl->comms());
    cr_expect_eq(cuda_emulator_memory(), 0, "%s %d: memory is left", what, (int)n);
    cr_expect_eq(cuda_emulator_things(), 0, "%s %d: %d things are left", what, (int)n,
                 (int)cuda_emulator_things());
}
