/* The engine `nccl` on the GPUs of tests/cuda, with the NCCL of tests/nccl: every operation against the
 * engine `local`, calls of NCCL that fail, and what is refused. Members are threads.
 *
 * Each test owns a world. Read next: runtime/nccl/group.h, tests/nccl/world.h, nccl_ends.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "nccl/world.h"

enum {
    EVEN = 1000,
    ODD = 1003,
    MOST = ODD
};

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
    SHIFT,
    STAY, /* a shift around all members */
    BARRIER,
    PAIR_SUM,
    OF_HOST,
    CALLS
};

struct member {
    const struct nccl_world *world;
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
    case SHIFT:
        return exo_comm_begin_shift(out, g, data, 3, &m->err);
    case STAY:
        return exo_comm_begin_shift(out, g, data, NCCL_WORLD_SIZE, &m->err);
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
members_run(const struct nccl_world *w, exo_dtype dtype, bool at_once)
{
    pthread_t threads[NCCL_WORLD_SIZE];
    struct member *members = calloc(NCCL_WORLD_SIZE, sizeof *members);
    cr_assert_not_null(members);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++) {
        members[r] = (struct member){.world = w, .rank = r, .dtype = dtype, .at_once = at_once};
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
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
            exo_shard(count_of(k), NCCL_WORLD_SIZE, got->rank, &first, &length);
        cr_expect_eq(memcmp(want->out[k] + first * size, got->out[k] + first * size, length * size),
                     0, "%s: call %d of rank %u differs", exo_dtype_name(want->dtype), k,
                     got->rank);
    }
}

static void
operations(bool far)
{
    static const exo_dtype types[] = {EXO_F32, EXO_BF16, EXO_F16, EXO_I32, EXO_I8, EXO_I64};
    const nccl_test *nccl = nccl_world_load();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct nccl_world w;
        cuda_emulator_seed(t);
        nccl->seed(t);
        nccl_world_open(&w, false, false);
        struct member *want = members_run(&w, types[t], false);
        nccl_world_close(&w);
        nccl_world_open(&w, true, far);
        for (int at_once = 0; at_once < 2; at_once++) {
            struct member *got = members_run(&w, types[t], at_once);
            for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
                expect_equal(&want[r], &got[r]);
            free(got);
        }
        nccl_world_close(&w);
        free(want);
        nccl_world_expect_empty(nccl, exo_dtype_name(types[t]), 0);
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
    struct nccl_world w;
    bool failed = false;
    cuda_emulator_seed(n);
    nccl->seed(n);
    nccl->revoke_fails(n % 3 == 0);
    nccl_world_open(&w, true, far);
    for (uint32_t r = 0; how == NCCL_HANGS && r < NCCL_WORLD_SIZE; r++)
        exo_group_set_timeout(w.groups[r], 100 * EXO_MS);
    nccl->fail_at(n, how);
    struct member *members = members_run(&w, EXO_F32, n % 2 == 0);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++) {
        const exo_status st = members[r].status;
        failed = failed || st != EXO_OK;
        cr_expect(st == EXO_OK || st == EXO_FAILED || st == EXO_PEER_LOST || st == EXO_TIMEOUT ||
                      st == EXO_CANCELLED,
                  "call %d: rank %u: %s", (int)n, r, members[r].err.text);
        cr_expect(st == EXO_OK || members[r].err.text[0]);
    }
    nccl->fail_at(0, how);
    nccl_world_close(&w);
    free(members);
    nccl_world_expect_empty(nccl, "failure of call", n);
    return failed;
}

/* Fails calls until a run has fewer than that. */
static void
schedules(nccl_failure how, uint64_t from, uint64_t step, int least)
{
    const nccl_test *nccl = nccl_world_load();
    int runs = 0;
    for (uint64_t n = from; run_with_failure(nccl, n, how, runs % 2 == 1); n += step)
        runs++;
    cr_expect_geq(runs, least, "only %d schedules", runs);
}

/* So one that the loader has found in another folder shows. */
Test(nccl, an_error_names_the_library_and_its_reason, .timeout = 20)
{
    const nccl_test *nccl = nccl_world_load();
    struct nccl_world w;
    uint32_t named = 0;
    nccl_world_open(&w, true, false);
    nccl->fail_at(1, NCCL_RETURNS);
    struct member *members = members_run(&w, EXO_F32, false);
    for (uint32_t r = 0; r < NCCL_WORLD_SIZE; r++)
        named += strstr(members[r].err.text, "/libnccl_test.so): unhandled system error") &&
                 strstr(members[r].err.text, "(no interface is up)");
    cr_expect_geq(named, 1, "%s", members[0].err.text);
    nccl_world_close(&w);
    free(members);
    nccl_world_expect_empty(nccl, "a first call that fails", 1);
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

/* --- What is refused -------------------------------------------------------------------------- */

Test(nccl, threads_that_disagree_are_told)
{
    nccl_world_load();
    struct nccl_world w;
    exo_array x[2] = {0};
    exo_request *requests[2] = {0};
    exo_err err = {0};
    nccl_world_open(&w, true, false);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(exo_array_init(&x[r], w.devices[r], EXO_F32, 8 + r, NULL), EXO_OK);
    cr_assert_eq(exo_comm_begin_all_reduce(&requests[0], w.groups[0], x[0], EXO_SUM, &err), EXO_OK);
    cr_expect_eq(exo_comm_begin_all_reduce(&requests[1], w.groups[1], x[1], EXO_SUM, &err),
                 EXO_INVAL);
    cr_expect(strstr(err.text, "members disagree: rank 1 calls all_reduce of 9"), "%s", err.text);
    cr_expect_eq(exo_request_wait(&requests[0], &err), EXO_INVAL);
    for (uint32_t r = 0; r < 2; r++)
        exo_array_release(&x[r]);
    nccl_world_close(&w);
}

Test(nccl, a_first_array_of_the_host_is_refused)
{
    nccl_world_load();
    struct nccl_world w;
    float x[8] = {0};
    exo_err err = {0};
    nccl_world_open(&w, true, false);
    cr_expect_eq(exo_all_reduce(w.groups[0], exo_host_array(EXO_F32, x, 8), EXO_SUM, &err),
                 EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "set device: cuda, or choose another engine"), "%s", err.text);
    nccl_world_close(&w);
}

Test(nccl, without_the_library_a_group_says_what_to_install)
{
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "test"};
    exo_comm *comm = NULL;
    exo_err err = {0};
    exo_nccl_use("/nowhere/libnccl.so.2");
    cr_expect_eq(exo_comm_open(&comm, nccl_world_engine(), &opts, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "/nowhere/libnccl.so.2"), "%s", err.text);
    cr_expect(strstr(err.text, "libnccl2"), "%s", err.text);
    cr_expect_null(comm);
}

Test(nccl, a_version_that_is_too_old_is_named)
{
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "test"};
    exo_comm *comm = NULL;
    exo_err err = {0};
    nccl_world_load()->version(2804);
    cr_expect_eq(exo_comm_open(&comm, nccl_world_engine(), &opts, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "this is NCCL 2.8.4:"), "%s", err.text);
}

/* An older NCCL lets GPUs of one process read and write each other's arrays, which the pool does not. */
Test(nccl, an_older_version_keeps_to_the_arrays_of_its_gpu, .timeout = 60)
{
    struct nccl_world w;
    unsetenv("NCCL_P2P_DIRECT_DISABLE");
    nccl_world_load()->version(22205);
    nccl_world_open(&w, true, false);
    nccl_world_call(&w, NULL, NCCL_WORLD_SIZE, UINT32_MAX, EXO_OK);
    nccl_world_close(&w);
}

Test(nccl, an_environment_that_blocks_is_refused)
{
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "test"};
    exo_comm *comm = NULL;
    exo_err err = {0};
    nccl_world_load();
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    cr_expect_eq(exo_comm_open(&comm, nccl_world_engine(), &opts, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "NCCL_COMM_BLOCKING=1"), "%s", err.text);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    cr_expect_eq(exo_comm_open(&comm, nccl_world_engine(), &opts, &err), EXO_OK, "%s", err.text);
    exo_comm_drop(&comm);
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
    struct heard h = {
        .group = exo_calloc(1, sizeof *h.group + NCCL_WORLD_SIZE * sizeof h.group->members[0])};
    cr_assert_not_null(h.group);
    h.group->size = NCCL_WORLD_SIZE;
    pthread_mutex_init(&h.group->lock, NULL);
    return h;
}

Test(nccl, what_members_say_is_bounded_and_checked)
{
    const exo_collective_args args = {.size = NCCL_WORLD_SIZE, .place = 2};
    struct heard h = heard_open();
    exo_nccl_group *g = h.group;
    exo_nccl_set *s = NULL;
    g->post = &h.post;
    h.post.rank = 2;
    cr_assert_eq(exo_nccl_set_of(&s, g, &g->members[2], &args, NULL), EXO_OK);
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_PLAN, s->key, 0), EXO_INVAL, "a plan of the second");
    cr_expect_eq(say(g, 1, EXO_NCCL_TELLS_OFFER, s->key, 0), EXO_INVAL, "to the third");
    cr_expect_eq(say(g, 0, EXO_NCCL_TELLS_PLAN, s->key, EXO_NCCL_KEPT + 1), EXO_INVAL);
    cr_expect_eq(say(g, 0, EXO_NCCL_TELLS_PLAN, s->key, EXO_NCCL_ANEW), EXO_OK);
    cr_expect_eq(say(g, 0, EXO_NCCL_TELLS_PLAN, s->key, EXO_NCCL_ANEW), EXO_INVAL, "another plan");
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
    nccl_world_engine()->close(g);
}

Test(nccl, the_algorithm_is_pinned_unless_the_user_has_chosen)
{
    nccl_world_load();
    setenv("NCCL_PROTO", "LL128", 1);
    unsetenv("NCCL_ALGO");
    nccl_world_engine();
    cr_expect_null(getenv("NCCL_ALGO"), "a process that does not use NCCL is not changed");
    nccl_world_another_run();
    cr_expect_str_eq(getenv("NCCL_ALGO"), "Ring");
    cr_expect_str_eq(getenv("NCCL_PROTO"), "LL128");
}
