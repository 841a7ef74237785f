/* The engine `nccl` on the GPUs of tests/cuda, with the NCCL of tests/nccl: every operation against the
 * engine `local`, and ways to fail. Members are threads. They share one communicator, or each has one
 * of its own, whose messages go by actors as between processes.
 *
 * Each test owns a world. Read next: runtime/nccl/group.h, tests/nccl/nccl_test.h. */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "comm/far.h"
#include "cuda/emulator.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "nccl/nccl_test.h"
#include "nccl/register.h"
#include "nn/cuda/open.h"
#include "support/far_members.h"

enum {
    SIZE = 4,
    EVEN = 1000,
    ODD = 1003,
    MOST = ODD
};

static const char library[] = EXO_TEST_BINARY_DIR "/tests/nccl/libnccl_test.so";

static const nccl_test *
load_nccl(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    exo_nccl_use(library);
    return dlsym(handle, NCCL_TEST_SYMBOL);
}

struct world {
    bool nccl, far;
    exo_runtime *runtime; /* of far */
    exo_ref refs[SIZE];
    exo_comm *comms[SIZE];
    exo_group *groups[SIZE];
    exo_device *devices[SIZE];
};

static const exo_engine_class *
find_engine(void)
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
open_far(struct world *w)
{
    exo_err err = {0};
    cr_assert_eq(exo_runtime_open(&w->runtime, NULL, &err), EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < SIZE; r++) {
        const exo_comm_far_opts opts = {.runtime = w->runtime,
                                        .size = SIZE,
                                        .rank = r,
                                        .channel = 3,
                                        .method = "collective",
                                        .goes_on = true};
        cr_assert_eq(exo_comm_far_on(&w->comms[r], find_engine(), "test", &opts, &err), EXO_OK,
                     "%s", err.text);
        const exo_spawn_opts spawn = {.args = exo_payload_borrow(&w->comms[r], sizeof(exo_comm *))};
        cr_assert_eq(exo_spawn(w->runtime, &far_hearer_class, &spawn, &w->refs[r], &err), EXO_OK,
                     "%s", err.text);
    }
    for (uint32_t r = 0; r < SIZE; r++)
        cr_assert_eq(exo_comm_far_connect(w->comms[r], w->refs, &err), EXO_OK, "%s", err.text);
}

static void
open_near(struct world *w)
{
    const exo_engine_opts opts = {.size = SIZE, .clock = exo_clock_real(), .key = "test"};
    exo_err err = {0};
    exo_status st = w->nccl ? exo_comm_open(&w->comms[0], find_engine(), &opts, &err)
                            : exo_comm_local(&w->comms[0], SIZE, exo_clock_real(), &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    for (uint32_t r = 1; r < SIZE; r++)
        w->comms[r] = exo_comm_hold(w->comms[0]);
}

static void
world_open(struct world *w, bool nccl, bool far)
{
    exo_err err = {0};
    *w = (struct world){.nccl = nccl, .far = far};
    cuda_emulator_set_gpus(SIZE);
    if (far)
        open_far(w);
    else
        open_near(w);
    for (uint32_t r = 0; r < SIZE; r++) {
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

static void *
close_main(void *group)
{
    exo_group_close(group);
    return NULL;
}

/* Members leave at once: NCCL ends a communicator that is whole when all of its members do. */
static void
world_close(struct world *w)
{
    pthread_t threads[SIZE];
    for (uint32_t r = 0; r < SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, close_main, &w->groups[r]), 0);
    for (uint32_t r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; w->far && r < SIZE; r++)
        exo_comm_far_disconnect(w->comms[r]);
    if (w->far)
        cr_assert_eq(
            exo_runtime_close(&w->runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL),
            EXO_OK);
    for (uint32_t r = 0; r < SIZE; r++)
        exo_comm_drop(&w->comms[r]);
    for (uint32_t r = 0; w->nccl && r < SIZE; r++)
        exo_cuda_close(w->devices[r]);
}

static void
begin_another_run(void)
{
    const exo_engine_opts opts = {.size = 1, .clock = exo_clock_real(), .key = "another"};
    exo_comm *comm = NULL;
    cr_assert_eq(exo_comm_open(&comm, find_engine(), &opts, NULL), EXO_OK);
    exo_comm_drop(&comm);
}

/* Ends what a run has left, as any later run does. */
static void
begin_a_later_run(void)
{
    exo_nccl_set_keeping(0);
    begin_another_run();
    exo_nccl_set_keeping(60 * EXO_SECOND);
}

/* Nothing of NCCL and of the GPUs may be left. */
static void
expect_nothing_left(const nccl_test *nccl, const char *what, uint64_t n)
{
    begin_a_later_run();
    cr_expect_eq(nccl->comms(), 0, "%s %d: %d communicators are left", what, (int)n,
                 (int)nccl->comms());
    cr_expect_eq(cuda_emulator_memory(), 0, "%s %d: memory is left", what, (int)n);
    cr_expect_eq(cuda_emulator_things(), 0, "%s %d: %d things are left", what, (int)n,
                 (int)cuda_emulator_things());
}

/* --- Members on threads ----------------------------------------------------------------------- */

/* What a member calls, in this order. */
enum {
    ALL_SUM,
    ALL_MEAN,
    SCATTER,
    SCATTER_ODD,
    GATHER,
    GATHER_ODD,
    FROM_ROOT,
    BLOCKS,
    SWAP,
    BARRIER,
    PAIR_SUM,
    OF_HOST,
    CALLS
};

struct member {
    const struct world *world;
    uint32_t rank;
    exo_dtype dtype;
    bool at_once; /* all requests are begun before any is waited for */
    _Alignas(8) char out[CALLS][MOST * 8];
    exo_status status;
    exo_err err;
};

static size_t
count_of(int call)
{
    return call == SCATTER_ODD || call == GATHER_ODD ? ODD : call == BARRIER ? 0 : EVEN;
}

/* Small integers, whose sums and means of 4 are exact in every type. */
static void
write_value(exo_dtype dtype, void *at, int value)
{
    const float f32 = (float)value;
    const int8_t i8 = (int8_t)value;
    const int32_t i32 = value;
    const int64_t i64 = value;
    uint32_t bits;
    uint16_t half = 0;
    memcpy(&bits, &f32, sizeof bits);
    if (dtype == EXO_BF16)
        half = (uint16_t)(bits >> 16);
    else if (value != 0) /* fp16 */
        half = (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xFF) - 112) << 10 |
                          (bits >> 13 & 0x3FF));
    const void *from = dtype == EXO_F32   ? (const void *)&f32
                       : dtype == EXO_I8  ? (const void *)&i8
                       : dtype == EXO_I32 ? (const void *)&i32
                       : dtype == EXO_I64 ? (const void *)&i64
                                          : (const void *)&half;
    memcpy(at, from, exo_dtype_size(dtype));
}

static void
fill(struct member *m, int call)
{
    const size_t size = exo_dtype_size(m->dtype);
    for (size_t i = 0; i < count_of(call); i++)
        write_value(m->dtype, m->out[call] + i * size,
                    4 * ((int)((i * 7 + m->rank * 5 + (size_t)call) % 13) - 6));
}

static exo_status
begin(struct member *m, int call, exo_group *pair, exo_array data, exo_request **out)
{
    const uint32_t partner = m->rank ^ 1;
    const bool floats = m->dtype == EXO_F32 || m->dtype == EXO_BF16 || m->dtype == EXO_F16;
    exo_group *g = m->world->groups[m->rank];
    switch (call) {
    case ALL_MEAN:
        return exo_comm_begin_all_reduce(out, g, data, floats ? EXO_MEAN : EXO_SUM, &m->err);
    case SCATTER:
    case SCATTER_ODD:
        return exo_comm_begin_reduce_scatter(out, g, data, EXO_SUM, &m->err);
    case GATHER:
    case GATHER_ODD:
        return exo_comm_begin_all_gather(out, g, data, &m->err);
    case FROM_ROOT:
        return exo_comm_begin_broadcast(out, g, data, 2, &m->err);
    case BLOCKS:
        return exo_comm_begin_all_to_all(out, g, data, &m->err);
    case SWAP:
        return exo_comm_begin_swap(out, g, data, partner, &m->err);
    case BARRIER:
        return exo_comm_begin_barrier(out, g, &m->err);
    case PAIR_SUM:
        return exo_comm_begin_all_reduce(out, pair, data, EXO_SUM, &m->err);
    default:
        return exo_comm_begin_all_reduce(out, g, data, EXO_SUM, &m->err);
    }
}

/* Begins all calls, and waits for each at once or for all in the reverse order. */
static exo_status
call_all(struct member *m, exo_group *pair, exo_array arrays[CALLS])
{
    exo_request *requests[CALLS] = {0};
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && k < CALLS; k++) {
        st = begin(m, k, pair, arrays[k], &requests[k]);
        if (st == EXO_OK && !m->at_once)
            st = exo_request_wait(&requests[k], &m->err);
    }
    for (int k = CALLS; st == EXO_OK && k-- > 0;)
        st = exo_request_wait(&requests[k], &m->err);
    for (int k = 0; k < CALLS; k++)
        exo_request_cancel(&requests[k]);
    return st;
}

static exo_status
act(struct member *m)
{
    exo_device *device = m->world->devices[m->rank];
    exo_array arrays[CALLS] = {0};
    const uint32_t ranks[2] = {m->rank % 2, m->rank % 2 + 2};
    exo_group *pair = NULL;
    exo_status st = exo_group_among(&pair, m->world->groups[m->rank], ranks, 2, &m->err);
    for (int k = 0; st == EXO_OK && k < CALLS; k++) {
        fill(m, k);
        arrays[k] = exo_host_array(m->dtype, m->out[k], count_of(k));
        if (k != OF_HOST)
            st = exo_array_init(&arrays[k], device, m->dtype, count_of(k), &m->err);
        if (st == EXO_OK && k != OF_HOST)
            st = exo_array_write(arrays[k], m->out[k], &m->err);
    }
    if (st == EXO_OK)
        st = call_all(m, pair, arrays);
    for (int k = 0; st == EXO_OK && k < CALLS; k++)
        if (k != OF_HOST)
            st = exo_array_read(arrays[k], m->out[k], &m->err);
    for (int k = 0; k < CALLS; k++)
        exo_array_release(&arrays[k]);
    exo_group_close(&pair);
    return st;
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    m->status = act(m);
    if (m->status != EXO_OK) /* as a node does that cannot go on */
        exo_comm_fail(m->world->comms[m->rank], m->rank, m->err.text);
    return NULL;
}

static struct member *
members_run(const struct world *w, exo_dtype dtype, bool at_once)
{
    pthread_t threads[SIZE];
    struct member *members = calloc(SIZE, sizeof *members);
    cr_assert_not_null(members);
    for (uint32_t r = 0; r < SIZE; r++) {
        members[r] = (struct member){.world = w, .rank = r, .dtype = dtype, .at_once = at_once};
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
    for (uint32_t r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    return members;
}

/* --- Operations ------------------------------------------------------------------------------- */

static void
expect_equal(const struct member *want, const struct member *got)
{
    const size_t size = exo_dtype_size(want->dtype);
    cr_assert_eq(got->status, EXO_OK, "rank %u: %s", got->rank, got->err.text);
    for (int k = 0; k < CALLS; k++) {
        size_t first = 0, length = count_of(k);
        if (k == SCATTER || k == SCATTER_ODD)
            exo_shard(count_of(k), SIZE, got->rank, &first, &length);
        cr_expect_eq(memcmp(want->out[k] + first * size, got->out[k] + first * size, length * size),
                     0, "%s: call %d of rank %u differs", exo_dtype_name(want->dtype), k,
                     got->rank);
    }
}

static void
operations(bool far)
{
    static const exo_dtype types[] = {EXO_F32, EXO_BF16, EXO_F16, EXO_I32, EXO_I8, EXO_I64};
    const nccl_test *nccl = load_nccl();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct world w;
        cuda_emulator_seed(t);
        nccl->seed(t);
        world_open(&w, false, false);
        struct member *want = members_run(&w, types[t], false);
        world_close(&w);
        world_open(&w, true, far);
        for (int at_once = 0; at_once < 2; at_once++) {
            struct member *got = members_run(&w, types[t], at_once);
            for (uint32_t r = 0; r < SIZE; r++)
                expect_equal(&want[r], &got[r]);
            free(got);
        }
        world_close(&w);
        free(want);
        expect_nothing_left(nccl, exo_dtype_name(types[t]), 0);
    }
    cr_expect_eq(nccl->aborted(), 0);
    cr_expect_eq(nccl->revoked(), 0);
    cr_expect_gt(nccl->finalized(), 0);
}

Test(nccl, threads_have_the_results_of_the_engine_local, .timeout = 120)
{
    operations(false);
}

Test(nccl, actors_have_the_results_of_the_engine_local, .timeout = 120)
{
    operations(true);
}

/* --- Failures on schedule --------------------------------------------------------------------- */

/* One run in which the n-th call of NCCL fails. Returns whether any call failed. */
static bool
run_with_failure(const nccl_test *nccl, uint64_t n, nccl_failure how, bool far)
{
    struct world w;
    bool failed = false;
    cuda_emulator_seed(n);
    nccl->seed(n);
    nccl->revoke_fails(n % 3 == 0);
    world_open(&w, true, far);
    for (uint32_t r = 0; how == NCCL_HANGS && r < SIZE; r++)
        exo_group_set_timeout(w.groups[r], 100 * EXO_MS);
    nccl->fail_at(n, how);
    struct member *members = members_run(&w, EXO_F32, n % 2 == 0);
    for (uint32_t r = 0; r < SIZE; r++) {
        const exo_status st = members[r].status;
        failed = failed || st != EXO_OK;
        cr_expect(st == EXO_OK || st == EXO_FAILED || st == EXO_PEER_LOST || st == EXO_TIMEOUT ||
                      st == EXO_CANCELLED,
                  "call %d: rank %u: %s", (int)n, r, members[r].err.text);
        cr_expect(st == EXO_OK || members[r].err.text[0]);
    }
    nccl->fail_at(0, how);
    world_close(&w);
    free(members);
    expect_nothing_left(nccl, "failure of call", n);
    return failed;
}

/* Fails calls until a run has fewer than that. */
static void
schedules(nccl_failure how, uint64_t from, uint64_t step, int least)
{
    const nccl_test *nccl = load_nccl();
    int runs = 0;
    for (uint64_t n = from; run_with_failure(nccl, n, how, runs % 2 == 1); n += step)
        runs++;
    cr_expect_geq(runs, least, "only %d schedules", runs);
}

Test(nccl, a_call_that_returns_an_error_ends_all_members, .timeout = 200)
{
    schedules(NCCL_RETURNS, 1, 1, 40);
}

Test(nccl, a_call_that_fails_later_ends_all_members, .timeout = 200)
{
    schedules(NCCL_LATER, 1, 1, 40);
}

Test(nccl, a_call_that_hangs_ends_at_its_deadline, .timeout = 200)
{
    schedules(NCCL_HANGS, 1, 2, 20);
}

/* --- Other ends ------------------------------------------------------------------------------- */

/* Begins a call of members 0 to 2, and returns their requests. */
static void
begin_without_the_last(struct world *w, exo_array arrays[SIZE], exo_request *requests[SIZE])
{
    exo_err err = {0};
    for (uint32_t r = 0; r + 1 < SIZE; r++) {
        cr_assert_eq(exo_array_init(&arrays[r], w->devices[r], EXO_F32, 8, &err), EXO_OK);
        cr_assert_eq(
            exo_comm_begin_all_reduce(&requests[r], w->groups[r], arrays[r], EXO_SUM, &err), EXO_OK,
            "%s", err.text);
    }
}

static void
expect_end(struct world *w, exo_array arrays[SIZE], exo_request *requests[SIZE], exo_status status,
           const char *text)
{
    exo_err err = {0};
    for (uint32_t r = 0; r + 1 < SIZE; r++) {
        cr_expect_eq(exo_request_wait(&requests[r], &err), status, "rank %u: %s", r, err.text);
        cr_expect(strstr(err.text, text), "rank %u: %s", r, err.text);
        cr_expect_eq(exo_barrier(w->groups[r], &err), status, "a broken group stays broken");
        exo_array_release(&arrays[r]);
    }
}

#define FOR_EACH_WAY(far) for (int far = 0; far < 2; far++)

Test(nccl, a_death_ends_the_calls_of_the_living, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        exo_array arrays[SIZE] = {0};
        exo_request *requests[SIZE] = {0};
        world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_comm_fail(w.comms[0], SIZE - 1, "killed by signal 9");
        expect_end(&w, arrays, requests, EXO_PEER_LOST, "(rank 3) died: killed by signal 9");
        world_close(&w);
        expect_nothing_left(nccl, "death", 0);
    }
}

Test(nccl, an_actor_that_is_killed_is_a_death, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    struct world w;
    exo_array arrays[SIZE] = {0};
    exo_request *requests[SIZE] = {0};
    world_open(&w, true, true);
    begin_without_the_last(&w, arrays, requests);
    cr_assert_eq(exo_kill(w.runtime, w.refs[SIZE - 1], "it broke", NULL), EXO_OK);
    expect_end(&w, arrays, requests, EXO_PEER_LOST,
               "node_3 (rank 3) died: the actor 'hearer' died: it broke");
    world_close(&w);
    expect_nothing_left(nccl, "kill", 0);
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
sum_among(const struct world *w, const uint32_t *ranks, uint32_t size, uint32_t absent,
          exo_status expected)
{
    pthread_t threads[SIZE];
    struct living living[SIZE] = {0};
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

static const uint32_t all_ranks[SIZE] = {0, 1, 2, 3};

/* A run of all members, of whom member 1 dies. */
static void
lose_one(struct world *w)
{
    world_open(w, true, true);
    sum_among(w, all_ranks, SIZE, UINT32_MAX, EXO_OK);
    cr_assert_eq(exo_kill(w->runtime, w->refs[1], "it broke", NULL), EXO_OK);
    sum_among(w, all_ranks, SIZE, 1, EXO_PEER_LOST);
    world_close(w);
}

Test(nccl, the_living_shrink_what_a_death_has_broken, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3}, fewer[] = {0, 3};
    const nccl_test *nccl = load_nccl();
    struct world w;
    lose_one(&w);
    begin_another_run(); /* another run ends nothing of this one */
    cr_expect_eq(nccl->shrunk(), 0);
    world_open(&w, true, true); /* the next epoch */
    sum_among(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 3);
    cr_assert_eq(exo_kill(w.runtime, w.refs[2], "it broke", NULL), EXO_OK);
    sum_among(&w, others, 3, 2, EXO_PEER_LOST);
    world_close(&w);
    world_open(&w, true, true);
    sum_among(&w, fewer, 2, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 5);
    world_close(&w);
    expect_nothing_left(nccl, "two deaths", 0);
}

Test(nccl, newcomers_and_the_living_make_a_new_communicator, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    struct world w;
    lose_one(&w);
    world_open(&w, true, true);
    sum_among(&w, all_ranks, SIZE, UINT32_MAX, EXO_OK);
    world_close(&w);
    cr_expect_eq(nccl->shrunk(), 0);
    expect_nothing_left(nccl, "a newcomer", 0);
}

Test(nccl, a_shrink_that_fails_ends_all_members, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = load_nccl();
    for (nccl_failure how = NCCL_RETURNS; how <= NCCL_HANGS; how++) {
        struct world w;
        lose_one(&w);
        exo_nccl_set_patience(20 * EXO_MS);
        world_open(&w, true, true);
        for (uint32_t r = 0; how == NCCL_HANGS && r < SIZE; r++)
            exo_group_set_timeout(w.groups[r], 200 * EXO_MS);
        nccl->fail_at(2, how);
        sum_among(&w, others, 3, UINT32_MAX, how == NCCL_HANGS ? EXO_TIMEOUT : EXO_FAILED);
        nccl->fail_at(0, how);
        world_close(&w);
        exo_nccl_set_patience(5 * EXO_SECOND);
        expect_nothing_left(nccl, "a shrink", (uint64_t)how);
    }
}

/* The living are the first three of four, and their group has no other member. */
Test(nccl, a_smaller_group_excludes_those_beyond_it)
{
    uint32_t ranks[SIZE] = {0, 1, 2, 3};
    const exo_nccl_remains remains = {.size = SIZE, .ranks = ranks};
    const exo_nccl_set all = {.size = SIZE - 1};
    int places[SIZE] = {0};
    cr_expect_eq(exo_nccl_excluded(&remains, &all, places), 1);
    cr_expect_eq(places[0], SIZE - 1);
}

Test(nccl, a_member_on_another_gpu_does_not_shrink, .timeout = 60)
{
    static const uint32_t others[] = {0, 2, 3};
    const nccl_test *nccl = load_nccl();
    struct world w;
    lose_one(&w);
    world_open(&w, true, true);
    exo_device *moved = w.devices[1];
    w.devices[1] = w.devices[2];
    w.devices[2] = moved;
    sum_among(&w, others, 3, UINT32_MAX, EXO_OK);
    cr_expect_eq(nccl->shrunk(), 0);
    world_close(&w);
    expect_nothing_left(nccl, "another GPU", 0);
}

/* Member 0 leaves long before the others, as NCCL's patience with what is broken goes. */
Test(nccl, a_member_that_leaves_early_aborts_nothing, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        pthread_t thread, others[SIZE];
        const uint64_t finalized = nccl->finalized();
        world_open(&w, true, far);
        sum_among(&w, all_ranks, SIZE, UINT32_MAX, EXO_OK);
        exo_nccl_set_patience(0);
        exo_group *early = w.groups[0];
        w.groups[0] = NULL;
        cr_assert_eq(pthread_create(&thread, NULL, close_main, &early), 0);
        while (nccl->finalized() == finalized)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        cr_expect_eq(nccl->aborted(), 0);
        exo_nccl_set_patience(5 * EXO_SECOND);
        for (uint32_t r = 1; r < SIZE; r++)
            cr_assert_eq(pthread_create(&others[r], NULL, close_main, &w.groups[r]), 0);
        for (uint32_t r = 1; r < SIZE; r++)
            pthread_join(others[r], NULL);
        pthread_join(thread, NULL);
        world_close(&w);
        expect_nothing_left(nccl, "an early end", 0);
    }
    cr_expect_eq(nccl->aborted(), 0);
}

/* While NCCL frees the communicators of one run, another one begins and ends. */
Test(nccl, an_end_that_takes_long_stops_no_other_run, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    struct world w;
    pthread_t threads[SIZE];
    world_open(&w, true, false);
    sum_among(&w, all_ranks, SIZE, UINT32_MAX, EXO_OK);
    nccl->hold_destroys(1);
    for (uint32_t r = 0; r < SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, close_main, &w.groups[r]), 0);
    while (nccl->held() == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    for (int n = 0; n < 20; n++) /* NCCL says that more and more of them are quiet */
        begin_another_run();
    cr_expect_eq(nccl->comms(), SIZE, "another run has waited for the end of this one");
    nccl->hold_destroys(0);
    for (uint32_t r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    memset(w.groups, 0, sizeof w.groups);
    world_close(&w);
    expect_nothing_left(nccl, "a long end", 0);
}

Test(nccl, a_member_that_leaves_is_missed, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        exo_array arrays[SIZE] = {0};
        exo_request *requests[SIZE] = {0};
        world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_group_close(&w.groups[SIZE - 1]);
        expect_end(&w, arrays, requests, EXO_PEER_LOST, "(rank 3) has left");
        world_close(&w);
        expect_nothing_left(nccl, "leaving", 0);
    }
}

Test(nccl, a_deadline_ends_a_call_of_too_few, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        exo_array arrays[SIZE] = {0};
        exo_request *requests[SIZE] = {0};
        world_open(&w, true, far);
        for (uint32_t r = 0; r < SIZE; r++)
            exo_group_set_timeout(w.groups[r], 50 * EXO_MS);
        begin_without_the_last(&w, arrays, requests);
        expect_end(&w, arrays, requests, EXO_TIMEOUT, "NCCL has not connected all of them");
        world_close(&w);
        expect_nothing_left(nccl, "deadline", 0);
    }
}

Test(nccl, a_barrier_names_who_is_missing, .timeout = 60)
{
    load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        exo_err err = {0};
        world_open(&w, true, far);
        exo_group_set_timeout(w.groups[0], 20 * EXO_MS);
        cr_expect_eq(exo_barrier(w.groups[0], &err), EXO_TIMEOUT);
        cr_expect(strstr(err.text, "node_1 (rank 1), node_2 (rank 2), node_3 (rank 3)"), "%s",
                  err.text);
        world_close(&w);
    }
}

Test(nccl, a_cancelled_request_ends_the_others, .timeout = 60)
{
    const nccl_test *nccl = load_nccl();
    FOR_EACH_WAY(far)
    {
        struct world w;
        exo_array arrays[SIZE] = {0};
        exo_request *requests[SIZE] = {0};
        exo_err err = {0};
        world_open(&w, true, far);
        begin_without_the_last(&w, arrays, requests);
        exo_request_cancel(&requests[0]);
        for (uint32_t r = 1; r + 1 < SIZE; r++) {
            cr_expect_eq(exo_request_wait(&requests[r], &err), EXO_CANCELLED, "%s", err.text);
            cr_expect(strstr(err.text, "node_0 (rank 0) cancelled its all_reduce"), "%s", err.text);
        }
        for (uint32_t r = 0; r + 1 < SIZE; r++)
            exo_array_release(&arrays[r]);
        world_close(&w);
        expect_nothing_left(nccl, "cancel", 0);
    }
}

/* --- What is refused -------------------------------------------------------------------------- */

Test(nccl, threads_that_disagree_are_told)
{
    load_nccl();
    struct world w;
    exo_array x[2] = {0};
    exo_request *requests[2] = {0};
    exo_err err = {0};
    world_open(&w, true, false);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(exo_array_init(&x[r], w.devices[r], EXO_F32, 8 + r, NULL), EXO_OK);
    cr_assert_eq(exo_comm_begin_all_reduce(&requests[0], w.groups[0], x[0], EXO_SUM, &err), EXO_OK);
    cr_expect_eq(exo_comm_begin_all_reduce(&requests[1], w.groups[1], x[1], EXO_SUM, &err),
                 EXO_INVAL);
    cr_expect(strstr(err.text, "members disagree: rank 1 calls all_reduce of 9"), "%s", err.text);
    cr_expect_eq(exo_request_wait(&requests[0], &err), EXO_INVAL);
    for (uint32_t r = 0; r < 2; r++)
        exo_array_release(&x[r]);
    world_close(&w);
}

Test(nccl, a_first_array_of_the_host_is_refused)
{
    load_nccl();
    struct world w;
    float x[8] = {0};
    exo_err err = {0};
    world_open(&w, true, false);
    cr_expect_eq(exo_all_reduce(w.groups[0], exo_host_array(EXO_F32, x, 8), EXO_SUM, &err),
                 EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "set device: cuda, or choose another engine"), "%s", err.text);
    world_close(&w);
}

Test(nccl, without_the_library_a_group_says_what_to_install)
{
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "test"};
    exo_comm *comm = NULL;
    exo_err err = {0};
    exo_nccl_use("/nowhere/libnccl.so.2");
    cr_expect_eq(exo_comm_open(&comm, find_engine(), &opts, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "/nowhere/libnccl.so.2"), "%s", err.text);
    cr_expect(strstr(err.text, "libnccl2"), "%s", err.text);
    cr_expect_null(comm);
}

Test(nccl, a_version_that_is_too_old_is_named)
{
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "test"};
    exo_comm *comm = NULL;
    exo_err err = {0};
    load_nccl()->version(2804);
    cr_expect_eq(exo_comm_open(&comm, find_engine(), &opts, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "this is NCCL 2.8.4:"), "%s", err.text);
}

/* --- What members say --------------------------------------------------------------------------- */

static exo_status
say(exo_nccl_group *g, uint32_t from, exo_nccl_kind kind, uint64_t set, uint64_t value)
{
    exo_nccl_message message = {.kind = (uint32_t)kind, .set = set, .value = value};
    return exo_nccl_hear(g, from, &message, sizeof message, NULL);
}

struct heard {
    exo_nccl_group *group;
    exo_engine_post post;
};

static struct heard
heard_open(void)
{
    struct heard h = {.group = exo_calloc(1, sizeof *h.group + SIZE * sizeof h.group->members[0])};
    cr_assert_not_null(h.group);
    h.group->size = SIZE;
    pthread_mutex_init(&h.group->lock, NULL);
    return h;
}

Test(nccl, what_members_say_is_bounded_and_checked)
{
    const exo_collective_args args = {.size = SIZE, .place = 2};
    struct heard h = heard_open();
    exo_nccl_group *g = h.group;
    exo_nccl_set *s = NULL;
    g->post = &h.post;
    h.post.rank = 2;
    cr_assert_eq(exo_nccl_set_of(&s, g, &g->members[2], &args, NULL), EXO_OK);
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_ID, s->key, 0), EXO_INVAL, "an id of the second");
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_OFFER, s->key, 0), EXO_INVAL, "to the third");
    cr_expect_eq(say(g, 0, EXO_NCCL_TELLS_ID, s->key, 0), EXO_OK);
    cr_expect_eq(say(g, 3, EXO_NCCL_TELLS_BARRIER, s->key, 1), EXO_OK);
    for (uint64_t k = 0; k < EXO_NCCL_SETS; k++)
        cr_assert_eq(say(g, 1, EXO_NCCL_TELLS_BARRIER, k + 1, 1), EXO_OK);
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_BARRIER, 0, 1), EXO_INVAL);
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_BARRIER, 1, 2), EXO_OK, "a set that is known");
    cr_expect_eq(exo_nccl_broken(g, NULL), EXO_OK);
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_BROKEN, 0, 12345), EXO_OK);
    cr_expect_eq(exo_nccl_broken(g, NULL), EXO_FAILED);
    exo_free(s);
    find_engine()->close(g);
}

Test(nccl, the_algorithm_is_pinned_unless_the_user_has_chosen)
{
    load_nccl();
    setenv("NCCL_PROTO", "LL128", 1);
    unsetenv("NCCL_ALGO");
    find_engine();
    cr_expect_null(getenv("NCCL_ALGO"), "a process that does not use NCCL is not changed");
    begin_another_run();
    cr_expect_str_eq(getenv("NCCL_ALGO"), "Ring");
    cr_expect_str_eq(getenv("NCCL_PROTO"), "LL128");
}
