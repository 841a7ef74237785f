/* Engines: one table of tests for the library's engines, `local` between threads and `net` between
 * actors, for the example's engine `shm`, and for `mpi` where there is MPI. The latter two implement
 * only `advance`. Here all members of `mpi` are in one process; cluster/mpi has them in several. The
 * tests cover concurrent requests, each way in which requests end, and all types.
 *
 * Each test owns a world: an engine and its members. Read next: exogym/engine.h,
 * runtime/comm/edge.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "comm/edge.h"
#include "support/far_members.h"

exo_status exo_plugin_init(exo_err *err);     /* examples/22_shm_engine */
exo_status exo_mpi_plugin_init(exo_err *err); /* runtime/mpi */

enum {
    SIZE = 3,
    COUNT = 5000,
    REQUESTS = 4
};

static const char *const engines[] = {
    "local",
    "net",
    "shm",
#ifdef EXO_TEST_MPI
    "mpi",
#endif
};

/* The library's engines have codecs, and tell all members why a request ended. */
static bool
is_of_the_library(const char *engine)
{
    return strcmp(engine, "shm") != 0 && strcmp(engine, "mpi") != 0;
}

/* An engine's communicators and groups. `members` is used only by net. */
struct world {
    bool far;
    far_members members;
    exo_comm *comms[SIZE];
    exo_group *groups[SIZE];
};

static exo_status
load(const char *engine, exo_err *err)
{
#ifdef EXO_TEST_MPI
    if (strcmp(engine, "mpi") == 0)
        return exo_mpi_plugin_init(err);
#endif
    (void)engine;
    return exo_plugin_init(err);
}

static void
open_plugin(struct world *w, const char *name)
{
    static unsigned groups;
    const exo_engine_class *engine = NULL;
    char key[32];
    exo_err err = {0};
    if (exo_engine_find(&engine, name, NULL) != EXO_OK)
        cr_assert_eq(load(name, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_engine_find(&engine, name, &err), EXO_OK, "%s", err.text);
    snprintf(key, sizeof key, "test-%d-%u", getpid(), groups++);
    const exo_engine_opts opts = {.size = SIZE, .clock = exo_clock_real(), .key = key};
    for (uint32_t r = 0; r < SIZE; r++) /* one communicator each, as in separate processes */
        cr_assert_eq(exo_comm_open(&w->comms[r], engine, &opts, &err), EXO_OK, "%s", err.text);
}

static void
world_open(struct world *w, const char *engine, const char *codec)
{
    const exo_comm_edge edge = {.name = "edge", .codec = codec};
    *w = (struct world){.far = strcmp(engine, "net") == 0};
    if (w->far) {
        far_members_open(&w->members, SIZE, &edge);
        memcpy(w->comms, w->members.comms, sizeof w->comms);
    } else if (!is_of_the_library(engine)) {
        open_plugin(w, engine);
    } else {
        cr_assert_eq(exo_comm_local_on(&w->comms[0], SIZE, exo_clock_real(), &edge, NULL), EXO_OK);
        for (uint32_t r = 1; r < SIZE; r++)
            w->comms[r] = exo_comm_hold(w->comms[0]);
    }
    for (uint32_t r = 0; r < SIZE; r++) {
        char name[16];
        snprintf(name, sizeof name, "node_%u", r);
        cr_assert_eq(exo_group_open(&w->groups[r], w->comms[r], r, name, NULL), EXO_OK);
        exo_group_set_timeout(w->groups[r], 30 * EXO_SECOND);
    }
}

static void
world_close(struct world *w)
{
    for (uint32_t r = 0; r < SIZE; r++)
        exo_group_close(&w->groups[r]);
    if (w->far)
        far_members_close(&w->members);
    for (uint32_t r = 0; !w->far && r < SIZE; r++)
        exo_comm_drop(&w->comms[r]);
}

/* --- Members on threads ----------------------------------------------------------------------- */

struct member {
    exo_group *group;
    uint32_t rank;
    exo_dtype dtype;
    bool blocking;
    void *data; /* (REQUESTS, COUNT) */
    exo_status status;
    exo_err err;
    exo_status (*act)(struct member *m);
};

static void *
member_main(void *argument)
{
    struct member *m = argument;
    m->status = m->act(m);
    return NULL;
}

static void
members_run(struct member members[SIZE], const struct world *w, exo_status (*act)(struct member *m))
{
    pthread_t threads[SIZE];
    for (uint32_t r = 0; r < SIZE; r++) {
        members[r].act = act;
        members[r].rank = r;
        members[r].group = w->groups[r];
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
    for (uint32_t r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < SIZE; r++)
        cr_assert_eq(members[r].status, EXO_OK, "rank %u: %s", r, members[r].err.text);
}

static exo_array
part_of(const struct member *m, int k)
{
    return exo_host_array(m->dtype, (char *)m->data + (size_t)k * COUNT * exo_dtype_size(m->dtype),
                          COUNT);
}

/* Two reductions, an all_gather and a broadcast: all at once and waited for in reverse order, or,
 * if m->blocking, one after the other. */
static exo_status
act_many(struct member *m)
{
    exo_request *requests[REQUESTS] = {0};
    exo_status st = EXO_OK;
    if (m->blocking) {
        st = exo_all_reduce(m->group, part_of(m, 0), EXO_MEAN, &m->err);
        if (st == EXO_OK)
            st = exo_all_reduce(m->group, part_of(m, 1), EXO_SUM, &m->err);
        if (st == EXO_OK)
            st = exo_all_gather(m->group, part_of(m, 2), &m->err);
        return st == EXO_OK ? exo_broadcast(m->group, part_of(m, 3), 1, &m->err) : st;
    }
    st = exo_comm_begin_all_reduce(&requests[0], m->group, part_of(m, 0), EXO_MEAN, &m->err);
    if (st == EXO_OK)
        st = exo_comm_begin_all_reduce(&requests[1], m->group, part_of(m, 1), EXO_SUM, &m->err);
    if (st == EXO_OK)
        st = exo_comm_begin_all_gather(&requests[2], m->group, part_of(m, 2), &m->err);
    if (st == EXO_OK)
        st = exo_comm_begin_broadcast(&requests[3], m->group, part_of(m, 3), 1, &m->err);
    for (int k = REQUESTS; st == EXO_OK && k-- > 0;)
        st = exo_request_wait(&requests[k], &m->err);
    /* a blocking call after the requests matches the other members' calls */
    return st == EXO_OK ? exo_barrier(m->group, &m->err) : st;
}

static void
fill(struct member members[SIZE], bool blocking)
{
    for (uint32_t r = 0; r < SIZE; r++) {
        float *data = malloc(REQUESTS * COUNT * sizeof *data);
        for (size_t i = 0; i < REQUESTS * COUNT; i++)
            data[i] = (float)((int)((i * 7919 + r * 104729) % 20011) - 10005) / 997;
        members[r] = (struct member){.dtype = EXO_F32, .data = data, .blocking = blocking};
    }
}

static void
many_give_the_same(const char *engine, const char *codec)
{
    struct world w;
    struct member one[SIZE], many[SIZE];
    exo_traffic before[SIZE];
    fill(one, true);
    fill(many, false);
    world_open(&w, "local", codec);
    members_run(one, &w, act_many);
    for (uint32_t r = 0; r < SIZE; r++)
        before[r] = exo_group_traffic(w.groups[r]);
    world_close(&w);
    world_open(&w, engine, codec);
    members_run(many, &w, act_many);
    for (uint32_t r = 0; r < SIZE; r++) {
        const exo_traffic t = exo_group_traffic(w.groups[r]);
        cr_expect_eq(memcmp(one[r].data, many[r].data, REQUESTS * COUNT * sizeof(float)), 0,
                     "%s, rank %u", engine, r);
        cr_expect_eq(t.payload_bytes, before[r].payload_bytes, "%s, rank %u", engine, r);
        cr_expect_eq(t.items, before[r].items + 1);
        free(one[r].data);
        free(many[r].data);
    }
    world_close(&w);
}

#define FOR_EACH_ENGINE(engine)                                                                    \
    for (size_t e_ = 0; e_ < sizeof engines / sizeof *engines; e_++)                               \
        for (const char *engine = engines[e_]; engine; engine = NULL)

Test(engine, several_requests_at_once_give_the_bits_of_one_after_the_other, .timeout = 120)
{
    FOR_EACH_ENGINE(engine)
    {
        many_give_the_same(engine, NULL);
        if (is_of_the_library(engine))
            many_give_the_same(engine, "int8");
    }
}

/* --- Blocks ----------------------------------------------------------------------------------- */

enum {
    BLOCK = COUNT / SIZE,
    PADDED = SIZE * BLOCK
};

/* Element `i` of what member r has for the others. */
static int32_t
of_member(uint32_t r, size_t i)
{
    return (int32_t)(i * SIZE + r);
}

/* An all_to_all, and a swap of members 0 and 2 while member 1 takes no part. */
static exo_status
act_blocks(struct member *m)
{
    exo_request *requests[2] = {0};
    exo_array all = exo_host_array(EXO_I32, m->data, PADDED),
              own = exo_host_array(EXO_I32, (int32_t *)m->data + PADDED, COUNT);
    uint32_t partner = 2 - m->rank;
    exo_status st = EXO_OK;
    if (m->blocking) {
        st = exo_all_to_all(m->group, all, &m->err);
        return st == EXO_OK && m->rank != 1 ? exo_swap(m->group, own, partner, &m->err) : st;
    }
    st = exo_comm_begin_all_to_all(&requests[0], m->group, all, &m->err);
    if (st == EXO_OK && m->rank != 1)
        st = exo_comm_begin_swap(&requests[1], m->group, own, partner, &m->err);
    for (int k = 2; st == EXO_OK && k-- > 0;)
        st = exo_request_wait(&requests[k], &m->err);
    return st;
}

static void
exchange_blocks(const char *engine, bool blocking)
{
    static int32_t data[SIZE][PADDED + COUNT];
    struct world w;
    struct member members[SIZE];
    for (uint32_t r = 0; r < SIZE; r++) {
        members[r] = (struct member){.data = data[r], .blocking = blocking};
        for (size_t i = 0; i < PADDED + COUNT; i++)
            data[r][i] = of_member(r, i);
    }
    world_open(&w, engine, NULL);
    members_run(members, &w, act_blocks);
    for (uint32_t r = 0; r < SIZE; r++) {
        for (size_t i = 0; i < PADDED; i++)
            cr_assert_eq(data[r][i], of_member((uint32_t)(i / BLOCK), r * BLOCK + i % BLOCK),
                         "%s, rank %u, element %zu: %d", engine, r, i, data[r][i]);
        for (size_t i = PADDED; i < PADDED + COUNT; i++)
            cr_assert_eq(data[r][i], of_member(2 - r, i), "%s, rank %u", engine, r);
        cr_expect_eq(exo_group_stats(w.groups[r]).bytes_sent,
                     4 * ((SIZE - 1) * BLOCK + (r != 1) * COUNT));
    }
    world_close(&w);
}

Test(engine, blocks_go_where_they_belong, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        if (strcmp(engine, "shm") == 0)
            continue;
        exchange_blocks(engine, true);
        exchange_blocks(engine, false);
    }
}

Test(engine, what_has_no_blocks_is_refused)
{
    struct world w;
    float x[6] = {0};
    exo_array data = exo_host_array(EXO_F32, x, 6);
    exo_err err = {0};
    world_open(&w, "local", NULL);
    cr_expect_eq(exo_all_to_all(w.groups[0], exo_array_part(data, 0, 4), &err), EXO_INVAL);
    cr_expect(strstr(err.text, "4 elements are not 3 blocks"), "%s", err.text);
    cr_expect_eq(exo_swap(w.groups[0], data, 0, &err), EXO_INVAL);
    cr_expect_eq(exo_swap(w.groups[0], data, 3, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "rank 0 cannot swap with 3"), "%s", err.text);
    world_close(&w);
    world_open(&w, "shm", NULL);
    cr_expect_eq(exo_all_to_all(w.groups[0], data, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "engine shm has no all_to_all"), "%s", err.text);
    world_close(&w);
}

/* --- Shifts ----------------------------------------------------------------------------------- */

/* of the parts of a member's data */
static const uint32_t distances[REQUESTS] = {1, 2, 4, SIZE};

static exo_status
act_shift(struct member *m)
{
    exo_request *requests[REQUESTS] = {0};
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && k < REQUESTS; k++)
        st = m->blocking ? exo_shift(m->group, part_of(m, k), distances[k], &m->err)
                         : exo_comm_begin_shift(&requests[k], m->group, part_of(m, k), distances[k],
                                                &m->err);
    for (int k = REQUESTS; st == EXO_OK && k-- > 0;)
        st = exo_request_wait(&requests[k], &m->err);
    return st;
}

/* The first part once around the ring. */
static exo_status
act_around(struct member *m)
{
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && k < SIZE; k++)
        st = exo_shift(m->group, part_of(m, 0), 1, &m->err);
    return st;
}

static void
shift_parts(const char *engine, bool blocking)
{
    static int32_t data[SIZE][REQUESTS * COUNT];
    struct world w;
    struct member members[SIZE];
    for (uint32_t r = 0; r < SIZE; r++) {
        members[r] = (struct member){.data = data[r], .dtype = EXO_I32, .blocking = blocking};
        for (size_t i = 0; i < REQUESTS * COUNT; i++)
            data[r][i] = of_member(r, i);
    }
    world_open(&w, engine, NULL);
    members_run(members, &w, act_shift);
    for (uint32_t r = 0; r < SIZE; r++) {
        for (size_t i = 0; i < REQUESTS * COUNT; i++) {
            uint32_t source = (r + 2 * SIZE - distances[i / COUNT]) % SIZE;
            cr_assert_eq(data[r][i], of_member(source, i), "%s, rank %u, element %zu: %d", engine,
                         r, i, data[r][i]);
        }
        cr_expect_eq(exo_group_stats(w.groups[r]).bytes_sent, 3 * COUNT * sizeof(int32_t),
                     "the last distance moves nothing");
    }
    members_run(members, &w, act_around);
    for (uint32_t r = 0; r < SIZE; r++)
        for (size_t i = 0; i < COUNT; i++)
            cr_assert_eq(data[r][i], of_member((r + SIZE - 1) % SIZE, i), "%s, rank %u", engine, r);
    world_close(&w);
}

Test(engine, a_shift_moves_data_around_the_ring, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        shift_parts(engine, true);
        shift_parts(engine, false);
    }
}

/* The last member has another distance. It and the others have failed after one more call; member 1,
 * which has got all that it asked for, may learn it by that one. */
static void *
disagree_main(void *argument)
{
    struct member *m = argument;
    float x[8] = {0};
    exo_array data = exo_host_array(EXO_F32, x, 8);
    m->status = exo_shift(m->group, data, m->rank == SIZE - 1 ? 2 : 1, &m->err);
    if (m->status == EXO_OK)
        m->status = exo_all_reduce(m->group, data, EXO_SUM, &m->err);
    return NULL;
}

/* Returns how many members hear that they disagree. The others reach the deadline, as do all if one
 * of them begins after it. */
static uint32_t
count_told(const char *engine, const char *codec, exo_time timeout)
{
    struct world w;
    struct member members[SIZE] = {0};
    pthread_t threads[SIZE];
    uint32_t told = 0;
    world_open(&w, engine, codec);
    for (uint32_t r = 0; r < SIZE; r++) {
        members[r].rank = r;
        members[r].group = w.groups[r];
        exo_group_set_timeout(w.groups[r], timeout);
        cr_assert_eq(pthread_create(&threads[r], NULL, disagree_main, &members[r]), 0);
    }
    for (uint32_t r = 0; r < SIZE; r++) {
        pthread_join(threads[r], NULL);
        cr_expect(members[r].status == EXO_INVAL || members[r].status == EXO_TIMEOUT,
                  "%s, rank %u: %s", engine, r, members[r].err.text);
        told += members[r].status == EXO_INVAL && strstr(members[r].err.text, "disagree");
    }
    world_close(&w);
    return told;
}

/* net goes through shared memory without a codec, by messages with one. */
Test(engine, members_that_shift_by_other_distances_are_told, .timeout = 120)
{
    static const char *const ways[][2] = {{"local", NULL}, {"net", NULL}, {"net", "bf16"}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        const uint32_t enough = ways[k][1] ? 2 : SIZE;
        uint32_t told = 0;
        for (int64_t ms = 500; told < enough && ms < 60000; ms *= 4) /* a machine may be slow */
            told = count_told(ways[k][0], ways[k][1], ms * EXO_MS);
        cr_expect_geq(told, enough, "%s: %u", ways[k][0], told);
    }
}

Test(engine, a_death_ends_a_shift, .timeout = 60)
{
    static const char *const codecs[] = {NULL, "bf16"};
    FOR_EACH_ENGINE(engine)
    {
        for (int k = 0; k < (is_of_the_library(engine) ? 2 : 1); k++) {
            struct world w;
            float x[8] = {1};
            exo_request *request = NULL;
            exo_err err = {0};
            world_open(&w, engine, codecs[k]);
            cr_assert_eq(
                exo_comm_begin_shift(&request, w.groups[0], exo_host_array(EXO_F32, x, 8), 1, &err),
                EXO_OK);
            exo_comm_fail(w.comms[0], 2, "killed by signal 9");
            cr_expect_eq(exo_request_wait(&request, &err), EXO_PEER_LOST, "%s: %s", engine,
                         err.text);
            cr_expect_eq(x[0], 1.0f, "%s", engine);
            world_close(&w);
        }
    }
}

/* A member whose source is stopped waits for its deadline, and no longer. */
Test(engine, a_deadline_ends_a_shift, .timeout = 60)
{
    static const char *const codecs[] = {NULL, "bf16"};
    FOR_EACH_ENGINE(engine)
    {
        for (int k = 0; k < (is_of_the_library(engine) ? 2 : 1); k++) {
            struct world w;
            float x[8] = {1};
            exo_err err = {0};
            world_open(&w, engine, codecs[k]);
            exo_group_set_timeout(w.groups[0], 20 * EXO_MS);
            const exo_time begin = exo_now(exo_clock_real());
            cr_expect_eq(exo_shift(w.groups[0], exo_host_array(EXO_F32, x, 8), 1, &err),
                         EXO_TIMEOUT, "%s: %s", engine, err.text);
            cr_expect_lt(exo_now(exo_clock_real()) - begin, 10 * EXO_SECOND, "%s", engine);
            cr_expect(!is_of_the_library(engine) || strstr(err.text, "node_"), "%s", err.text);
            world_close(&w);
        }
    }
}

/* As a plugin that was built before there were shifts. */
Test(engine, an_engine_without_shifts_is_named)
{
    struct world w;
    const exo_engine_class *shm = NULL;
    static exo_engine_class old;
    char key[32];
    exo_comm *comm = NULL;
    exo_group *group = NULL;
    float x[6] = {0};
    exo_err err = {0};
    world_open(&w, "shm", NULL);
    cr_assert_eq(exo_engine_find(&shm, "shm", NULL), EXO_OK);
    old = *shm;
    old.promises &= ~(unsigned)EXO_ENGINE_SHIFT;
    old.name = "old";
    snprintf(key, sizeof key, "old-%d", getpid());
    const exo_engine_opts opts = {.size = SIZE, .clock = exo_clock_real(), .key = key};
    cr_assert_eq(exo_comm_open(&comm, &old, &opts, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_group_open(&group, comm, 0, NULL, &err), EXO_OK);
    cr_expect_eq(exo_shift(group, exo_host_array(EXO_F32, x, 6), 1, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "engine old has no shift"), "%s", err.text);
    exo_group_close(&group);
    exo_comm_drop(&comm);
    world_close(&w);
}

/* --- Ends ------------------------------------------------------------------------------------- */

static exo_status
act_reduce(struct member *m)
{
    float x[8] = {1};
    return exo_all_reduce(m->group, exo_host_array(EXO_F32, x, 8), EXO_SUM, &m->err);
}

Test(engine, a_test_does_not_wait, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        float x[SIZE][8] = {{1}, {2}, {3}};
        exo_request *requests[SIZE];
        bool done = true;
        world_open(&w, engine, NULL);
        for (uint32_t r = 0; r + 1 < SIZE; r++)
            cr_assert_eq(exo_comm_begin_all_reduce(&requests[r], w.groups[r],
                                                   exo_host_array(EXO_F32, x[r], 8), EXO_SUM, NULL),
                         EXO_OK);
        cr_expect_eq(exo_request_test(&requests[0], &done, NULL), EXO_OK);
        cr_expect(!done && requests[0], "%s: it cannot be over without the last member", engine);
        cr_assert_eq(exo_comm_begin_all_reduce(&requests[SIZE - 1], w.groups[SIZE - 1],
                                               exo_host_array(EXO_F32, x[SIZE - 1], 8), EXO_SUM,
                                               NULL),
                     EXO_OK);
        /* in turn, because without PROGRESS a request may need the calls of other members; bounded
         * by the deadline of the requests */
        for (; requests[0] || requests[1] || requests[2]; sched_yield())
            for (uint32_t r = 0; r < SIZE; r++)
                if (requests[r])
                    cr_assert_eq(exo_request_test(&requests[r], &done, NULL), EXO_OK);
        for (uint32_t r = 0; r < SIZE; r++)
            cr_expect_eq(x[r][0], 6.0f);
        world_close(&w);
    }
}

/* Begins two requests of rank 0 that no other member joins. */
static void
begin_two(const struct world *w, float x[2][8], exo_request *requests[2])
{
    for (int k = 0; k < 2; k++)
        cr_assert_eq(exo_comm_begin_all_reduce(&requests[k], w->groups[0],
                                               exo_host_array(EXO_F32, x[k], 8), EXO_SUM, NULL),
                     EXO_OK);
}

/* Opens a world and begins two requests, of which no deadline has passed before both have begun. */
static void
begin_two_in_time(struct world *w, const char *engine, float x[2][8], exo_request *requests[2])
{
    for (int64_t ms = 20;; ms *= 4) {
        exo_status st = EXO_OK;
        world_open(w, engine, NULL);
        exo_group_set_timeout(w->groups[0], ms * EXO_MS);
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(st, EXO_OK);
            st = exo_comm_begin_all_reduce(&requests[k], w->groups[0],
                                           exo_host_array(EXO_F32, x[k], 8), EXO_SUM, NULL);
        }
        if (st == EXO_OK)
            return;
        cr_assert_eq(st, EXO_TIMEOUT);
        cr_assert_eq(exo_request_wait(&requests[0], NULL), EXO_TIMEOUT);
        world_close(w);
    }
}

Test(engine, a_death_ends_all_requests_with_its_cause, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        float x[2][8] = {{1}};
        exo_request *requests[2];
        exo_err err = {0};
        world_open(&w, engine, NULL);
        begin_two(&w, x, requests);
        exo_comm_fail(w.comms[0], 2, "killed by signal 9");
        for (int k = 0; k < 2; k++) {
            cr_expect_eq(exo_request_wait(&requests[k], &err), EXO_PEER_LOST, "%s", engine);
            cr_expect_str_eq(err.text, is_of_the_library(engine)
                                           ? "node_2 (rank 2) died: killed by signal 9"
                                       : strcmp(engine, "mpi") == 0 ? "rank 2: killed by signal 9"
                                                                    : "rank 2 failed or left");
            cr_expect_null(requests[k]);
        }
        cr_expect_eq(exo_comm_begin_barrier(&requests[0], w.groups[0], &err), EXO_PEER_LOST);
        cr_expect_null(requests[0]);
        world_close(&w);
    }
}

Test(engine, a_cancelled_request_ends_the_others_and_everybodys_next_call, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        float x[2][8] = {{1}};
        exo_request *requests[2];
        exo_err err = {0};
        world_open(&w, engine, NULL);
        begin_two(&w, x, requests);
        exo_request_cancel(&requests[0]);
        cr_expect_null(requests[0]);
        cr_expect_eq(exo_request_wait(&requests[1], &err), EXO_CANCELLED, "%s: %s", engine,
                     err.text);
        struct member other = {.group = w.groups[1], .rank = 1};
        bool tells = is_of_the_library(engine);
        cr_expect_eq(act_reduce(&other), tells ? EXO_CANCELLED : EXO_PEER_LOST, "%s: %s", engine,
                     other.err.text);
        cr_expect_str_eq(other.err.text, tells ? "node_0 (rank 0) cancelled its all_reduce"
                                         : strcmp(engine, "mpi") == 0
                                             ? "rank 0: all_reduce: it was cancelled"
                                             : "rank 0 failed or left");
        world_close(&w);
    }
}

Test(engine, a_deadline_ends_requests_and_names_who_is_missing, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        float x[2][8] = {{1}};
        exo_request *requests[2];
        exo_err err = {0};
        begin_two_in_time(&w, engine, x, requests);
        cr_expect_eq(exo_request_wait(&requests[1], &err), EXO_TIMEOUT, "%s: %s", engine, err.text);
        cr_expect(
            strstr(err.text, is_of_the_library(engine) ? "node_1" : "all_reduce: deadline passed"),
            "%s", err.text);
        bool done = false;
        exo_status st = EXO_OK;
        while (st == EXO_OK && !done)
            st = exo_request_test(&requests[0], &done, &err);
        cr_expect_eq(st, EXO_TIMEOUT);
        cr_expect_null(requests[0]);
        world_close(&w);
    }
}

Test(engine, a_group_that_closes_cancels_what_it_began, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        float x[2][8] = {{1}};
        exo_request *requests[2];
        world_open(&w, engine, NULL);
        begin_two(&w, x, requests);
        exo_group_close(&w.groups[0]);
        memset(x, 0, sizeof x); /* the engine no longer uses the arrays */
        struct member other = {.group = w.groups[1], .rank = 1};
        cr_expect_eq(act_reduce(&other), is_of_the_library(engine) ? EXO_CANCELLED : EXO_PEER_LOST,
                     "%s: %s", engine, other.err.text);
        world_close(&w);
    }
}

/* --- Codecs ----------------------------------------------------------------------------------- */

Test(engine, no_call_makes_a_codec, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        struct world w;
        struct member members[SIZE];
        if (!is_of_the_library(engine))
            continue;
        /* with net each member has its own communicator */
        uint64_t made = 0, each = strcmp(engine, "net") == 0 ? 1 : SIZE;
        fill(members, true);
        world_open(&w, engine, "bf16");
        for (int round = 0; round < 3; round++) {
            members_run(members, &w, act_many);
            made = exo_comm_codecs_made(w.comms[0]);
            cr_expect_eq(made, each, "%s: %llu codecs after round %d", engine,
                         (unsigned long long)made, round);
        }
        for (uint32_t r = 0; r < SIZE; r++)
            free(members[r].data);
        world_close(&w);
    }
}

/* --- Types ------------------------------------------------------------------------------------ */

static exo_status
act_sum(struct member *m)
{
    return exo_all_reduce(m->group, part_of(m, 0), EXO_SUM, &m->err);
}

static exo_status
act_mean(struct member *m)
{
    return exo_all_reduce(m->group, part_of(m, 0), EXO_MEAN, &m->err);
}

static void
reduce(const char *engine, exo_dtype dtype, struct member members[SIZE],
       exo_status (*act)(struct member *m))
{
    struct world w;
    for (uint32_t r = 0; r < SIZE; r++)
        members[r].dtype = dtype;
    world_open(&w, engine, NULL);
    members_run(members, &w, act);
    world_close(&w);
}

Test(engine, bytes_and_longs_wrap, .timeout = 60)
{
    FOR_EACH_ENGINE(engine)
    {
        static int8_t bytes[SIZE][COUNT];
        static int64_t longs[SIZE][COUNT];
        struct member a[SIZE] = {0}, b[SIZE] = {0};
        for (uint32_t r = 0; r < SIZE; r++) {
            a[r].data = bytes[r];
            b[r].data = longs[r];
            for (size_t i = 0; i < COUNT; i++) {
                bytes[r][i] = (int8_t)((i * 37 + r * 11) % 256 - 128);
                longs[r][i] = INT64_MAX - (int64_t)(i + r);
            }
        }
        reduce(engine, EXO_I8, a, act_sum);
        reduce(engine, EXO_I64, b, act_sum);
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t eight = 0, all = 0;
            for (uint32_t r = 0; r < SIZE; r++) {
                eight += (i * 37 + r * 11) % 256 - 128;
                all += (uint64_t)(INT64_MAX - (int64_t)(i + r));
            }
            cr_assert_eq((uint8_t)bytes[1][i], (uint8_t)eight, "%s, element %zu", engine, i);
            cr_assert_eq((uint64_t)longs[2][i], all, "%s, element %zu", engine, i);
        }
    }
}

/* bf16 by hand: 256 and 1 are exact, 257 is not, so a sum in bf16 would give 256 + 1 + 1 = 256. In
 * fp32 the sum is 258, which bf16 has. 256 + 1 + 2 = 259 lies between 258 and 260 and is rounded to
 * the even one, 260. The mean of 256, 1 and 1 is 258 / 3 = 86. fp16: the same with 2048. */
Test(engine, halves_are_summed_in_fp32_and_rounded_once, .timeout = 60)
{
    static const struct {
        exo_dtype dtype;
        uint16_t in[SIZE][2];
        uint16_t sum[2], mean;
    } cases[] = {
        {EXO_BF16,
         {{0x4380, 0x4380}, {0x3F80, 0x3F80}, {0x3F80, 0x4000}},
         {0x4381, 0x4382},
         0x42AC},
        {EXO_F16, {{0x6800, 0x6800}, {0x3C00, 0x3C00}, {0x3C00, 0x4000}}, {0x6801, 0x6802}, 0x6157},
    };
    FOR_EACH_ENGINE(engine)
    {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            static uint16_t halves[SIZE][COUNT];
            struct member members[SIZE] = {0};
            for (int mean = 0; mean < 2; mean++) {
                for (uint32_t r = 0; r < SIZE; r++) {
                    members[r].data = halves[r];
                    for (size_t i = 0; i < COUNT; i++)
                        halves[r][i] = cases[c].in[r][i % 2];
                }
                reduce(engine, cases[c].dtype, members, mean ? act_mean : act_sum);
                for (size_t i = 0; i < COUNT; i++)
                    if (!mean || i % 2 == 0)
                        cr_assert_eq(halves[1][i], mean ? cases[c].mean : cases[c].sum[i % 2],
                                     "%s, %s, element %zu: %04x", engine,
                                     exo_dtype_name(cases[c].dtype), i, halves[1][i]);
            }
        }
    }
}

Test(engine, what_cannot_be_reduced_is_refused)
{
    struct world w;
    exo_err err = {0};
    int8_t x[4] = {0};
    world_open(&w, "local", NULL);
    cr_expect_eq(exo_all_reduce(w.groups[0], exo_host_array(EXO_I8, x, 4), EXO_MEAN, &err),
                 EXO_UNSUPPORTED);
    cr_expect_eq(exo_all_reduce(w.groups[0], exo_host_array(EXO_U8, x, 4), EXO_SUM, &err),
                 EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "not uint8"), "%s", err.text);
    world_close(&w);
}

/* --- By name ---------------------------------------------------------------------------------- */

Test(engine, engines_are_found_by_name)
{
    const exo_engine_class *engine = NULL;
    exo_comm *comm = NULL;
    exo_err err = {0};
    const exo_engine_opts opts = {.size = 2, .clock = exo_clock_real(), .key = "k"};
    cr_assert_eq(exo_engine_find(&engine, "local", &err), EXO_OK);
    cr_expect(engine->promises & EXO_ENGINE_ORDERED);
    cr_expect_eq(exo_comm_open(&comm, engine, &opts, &err), EXO_OK, "%s", err.text);
    exo_comm_drop(&comm);
    cr_assert_eq(exo_engine_find(&engine, "net", &err), EXO_OK);
    cr_expect_eq(exo_comm_open(&comm, engine, &opts, &err), EXO_UNSUPPORTED);
    cr_expect_eq(exo_engine_find(&engine, "locla", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "local"), "%s", err.text);
    const exo_engine_class half = {.name = "half"};
    cr_expect_eq(exo_engine_register(&half, &err), EXO_INVAL);
}
