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
nccl_world_move_on(struct nccl_world *w)
{
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        exo_comm_far_move_on(w->comms[r]);
}

/* --- Calls ------------------------------------------------------------------------------------ */

enum {
    SUM,
    SCATTER,
    GATHER,
    FROM_LAST,
    BLOCKS,
    SHIFT, /* to the next one */
    SWAP,  /* of two neighbours */
    OPERATIONS
};

/* Elements for each member. */
enum {
    SHARD = 3
};

struct caller {
    exo_group *all;
    exo_device *device;
    const uint32_t *ranks;
    uint32_t size, place;
    exo_status status;
    exo_err err;
};

static float
given(int operation, const struct caller *c, uint32_t i)
{
    return operation == SUM      ? (float)(c->place + 1)
           : operation == BLOCKS ? (float)(100 * c->place + i / SHARD)
                                 : (float)(100 * c->place + i);
}

static float
wanted(int operation, const struct caller *c, uint32_t i)
{
    const uint32_t of_places = c->size * (c->size - 1) / 2;
    switch (operation) {
    case SUM:
        return (float)(of_places + c->size);
    case SCATTER: /* only the own shard has a value */
        return i / SHARD == c->place ? (float)(100 * of_places + c->size * i)
                                     : given(operation, c, i);
    case GATHER:
        return (float)(100 * (i / SHARD) + i);
    case FROM_LAST:
        return (float)(100 * (c->size - 1) + i);
    case BLOCKS:
        return (float)(100 * (i / SHARD) + c->place);
    case SHIFT:
        return (float)(100 * ((c->place + c->size - 1) % c->size) + i);
    default:
        return (float)(100 * (c->place ^ 1) + i);
    }
}

static exo_status
operate(int operation, exo_group *group, exo_array x, struct caller *c)
{
    switch (operation) {
    case SUM:
        return exo_all_reduce(group, x, EXO_SUM, &c->err);
    case SCATTER:
        return exo_reduce_scatter(group, x, EXO_SUM, &c->err);
    case GATHER:
        return exo_all_gather(group, x, &c->err);
    case FROM_LAST:
        return exo_broadcast(group, x, c->size - 1, &c->err);
    case BLOCKS:
        return exo_all_to_all(group, x, &c->err);
    case SHIFT:
        return exo_shift(group, x, 1, &c->err);
    default:
        return exo_swap(group, x, c->place ^ 1, &c->err);
    }
}

static exo_status
call_one(int operation, exo_group *group, struct caller *c)
{
    float x[SHARD * NCCL_WORLD_SIZE] = {0};
    exo_array array = {0};
    for (uint32_t i = 0; i < SHARD * c->size; i++)
        x[i] = given(operation, c, i);
    exo_status st = exo_array_init(&array, c->device, EXO_F32, SHARD * c->size, &c->err);
    if (st == EXO_OK)
        st = exo_array_write(array, x, &c->err);
    if (st == EXO_OK)
        st = operate(operation, group, array, c);
    if (st == EXO_OK)
        st = exo_array_read(array, x, &c->err);
    exo_array_release(&array);
    for (uint32_t i = 0; st == EXO_OK && i < SHARD * c->size; i++)
        if (x[i] != wanted(operation, c, i) && (operation != SCATTER || i / SHARD == c->place))
            st = exo_fail(&c->err, EXO_IO, "operation %d has %g at %u, not %g", operation,
                          (double)x[i], i, (double)wanted(operation, c, i));
    return st;
}

static void *
caller_main(void *argument)
{
    struct caller *c = argument;
    exo_group *group = NULL;
    c->status = exo_group_among(&group, c->all, c->ranks, c->size, &c->err);
    for (int k = 0; c->status == EXO_OK && k < OPERATIONS; k++)
        if (k != SWAP || c->size % 2 == 0)
            c->status = call_one(k, group, c);
    exo_group_close(&group);
    return NULL;
}

void
nccl_world_call(const struct nccl_world *w, const uint32_t *ranks, uint32_t size, uint32_t absent,
                exo_status expected)
{
    static const uint32_t all[NCCL_WORLD_SIZE] = {0, 1, 2, 3};
    pthread_t threads[NCCL_WORLD_SIZE];
    struct caller callers[NCCL_WORLD_SIZE] = {0};
    ranks = ranks ? ranks : all;
    for (uint32_t p = 0; p < size; p++) {
        callers[p] = (struct caller){.all = w->groups[ranks[p]],
                                     .device = w->devices[ranks[p]],
                                     .ranks = ranks,
                                     .size = size,
                                     .place = p};
        if (ranks[p] != absent)
            cr_assert_eq(pthread_create(&threads[p], NULL, caller_main, &callers[p]), 0);
    }
    for (uint32_t p = 0; p < size; p++) {
        if (ranks[p] == absent)
            continue;
        pthread_join(threads[p], NULL);
        cr_expect_eq(callers[p].status, expected, "rank %u: %s", ranks[p], callers[p].err.text);
    }
}

/* --- Runs ------------------------------------------------------------------------------------- */

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

/* Aborts that outlast the patience of the members end by themselves. */
static void
await_late_aborts(const nccl_test *nccl)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), 30 * EXO_SECOND);
    while ((nccl->comms() > 0 || cuda_emulator_memory() > 0 || cuda_emulator_things() > 0) &&
           exo_now(exo_clock_real()) < deadline)
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
}

void
nccl_world_expect_empty(const nccl_test *nccl, const char *what, uint64_t n)
{
    nccl_world_later_run();
    await_late_aborts(nccl);
    cr_expect_eq(nccl->comms(), 0, "%s %d: %d communicators are left", what, (int)n,
                 (int)nccl->comms());
    cr_expect_eq(cuda_emulator_memory(), 0, "%s %d: memory is left", what, (int)n);
    cr_expect_eq(cuda_emulator_things(), 0, "%s %d: %d things are left", what, (int)n,
                 (int)cuda_emulator_things());
}
