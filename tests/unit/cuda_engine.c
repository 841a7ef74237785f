/* The engine `gpu` on the CUDA runtime of the tests: each operation and type against the engine
 * `local` on the host, with requests in the background, among all members and some; members that
 * leave, are late, cancel or disagree; failures of the GPU on schedule; and edges of graphs that name
 * it, whose members die, leave or stall. Read next: nn/cuda/engine.cu, runtime/graph/engine.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "cuda/emulator.h"
#include "graph/run.h"
#include "nn/cuda/engine.h"
#include "nn/cuda/open.h"
#include "support/sanitized.h"

enum {
    SIZE = 4,
    COUNT = 1000,
    MAX_BYTES = COUNT * 8
};

static const exo_dtype types[] = {EXO_F32, EXO_BF16, EXO_I32, EXO_I8, EXO_I64};

typedef struct member {
    exo_comm *comm;
    exo_group *group;
    uint32_t rank;
    bool on_gpu;
    uint64_t seed;
    exo_dtype dtype;
    exo_collective operation;
    exo_reduce reduce;
    _Alignas(64) unsigned char data[MAX_BYTES]; /* before, and the result after */
    exo_status status;
    exo_err err;
} member;

typedef struct world {
    exo_comm *comm;
    exo_group *groups[SIZE];
    member members[SIZE];
} world;

static void
open_world(world *w, bool on_gpu)
{
    exo_err err = {0};
    const exo_engine_class *engine = NULL;
    memset(w, 0, sizeof *w);
    if (exo_engine_find(&engine, "local", NULL) != EXO_OK)
        cr_assert_fail("no engine local");
    if (on_gpu && (exo_cuda_engine_register(&err) == EXO_OK || err.code == EXO_EXISTS))
        cr_assert_eq(exo_engine_find(&engine, "gpu", &err), EXO_OK, "%s", err.text);
    const exo_engine_opts opts = {.size = SIZE, .clock = exo_clock_real(), .key = "test"};
    cr_assert_eq(exo_comm_open(&w->comm, engine, &opts, &err), EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < SIZE; r++) {
        cr_assert_eq(exo_group_open(&w->groups[r], w->comm, r, NULL, &err), EXO_OK, "%s", err.text);
        exo_group_set_timeout(w->groups[r], 30 * EXO_SECOND);
        w->members[r].comm = w->comm;
        w->members[r].group = w->groups[r];
        w->members[r].rank = r;
        w->members[r].on_gpu = on_gpu;
    }
}

static void
close_world(world *w)
{
    for (uint32_t r = 0; r < SIZE; r++)
        exo_group_close(&w->groups[r]);
    exo_comm_drop(&w->comm);
}

static void
run(world *w, void *(*act)(void *))
{
    pthread_t threads[SIZE];
    for (uint32_t r = 0; r < SIZE; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, act, &w->members[r]), 0);
    for (uint32_t r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
}

static exo_status
call(const member *m, exo_array x, exo_err *err)
{
    switch (m->operation) {
    case EXO_ALL_REDUCE:
        return exo_all_reduce(m->group, x, m->reduce, err);
    case EXO_REDUCE_SCATTER:
        return exo_reduce_scatter(m->group, x, m->reduce, err);
    case EXO_ALL_GATHER:
        return exo_all_gather(m->group, x, err);
    case EXO_BROADCAST:
        return exo_broadcast(m->group, x, 2, err);
    case EXO_ALL_TO_ALL:
        return exo_all_to_all(m->group, x, err);
    case EXO_SWAP:
        return exo_swap(m->group, x, SIZE - 1 - m->rank, err);
    case EXO_SHIFT:
        return exo_shift(m->group, x, 3, err);
    case EXO_BARRIER:
        break;
    }
    return exo_barrier(m->group, err);
}

/* One call on the member's data, with work on its stream before and after. */
static void *
act(void *argument)
{
    member *m = argument;
    exo_device *gpu = NULL;
    exo_array x = {0};
    m->status = m->on_gpu ? exo_cuda_open(&gpu, 0, &m->err) : EXO_OK;
    if (m->status != EXO_OK)
        exo_comm_fail(m->comm, m->rank, "it has no GPU");
    if (m->status == EXO_OK && gpu)
        m->status = exo_array_import(&x, gpu, m->dtype, m->data, COUNT, &m->err);
    else if (m->status == EXO_OK)
        x = exo_host_array(m->dtype, m->data, COUNT);
    if (m->status == EXO_OK)
        m->status = call(m, x, &m->err);
    if (m->status == EXO_OK && m->on_gpu)
        m->status = exo_array_read(x, m->data, &m->err);
    exo_array_release(&x);
    if (gpu)
        exo_cuda_close(gpu);
    return NULL;
}

/* Numbers of both signs that sum without being equal in every order. */
static void
fill(member *m)
{
    uint64_t state = m->seed * 1000 + m->rank + 1;
    for (size_t i = 0; i < COUNT; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const float x = (float)((int)(state >> 40 & 0xFFFF) - 32768) / 997;
        if (m->dtype == EXO_F32)
            memcpy(m->data + i * 4, &x, 4);
        else if (m->dtype == EXO_BF16)
            memcpy(m->data + i * 2, (const unsigned char *)&x + 2, 2);
        else
            memcpy(m->data + i * exo_dtype_size(m->dtype), &state, exo_dtype_size(m->dtype));
    }
}

/* The bytes of a member's result that are defined. */
static void
defined(const member *m, size_t *first, size_t *bytes)
{
    const size_t size = exo_dtype_size(m->dtype);
    size_t length = COUNT;
    *first = 0;
    if (m->operation == EXO_REDUCE_SCATTER)
        exo_shard(COUNT, SIZE, m->rank, first, &length);
    *first *= size;
    *bytes = length * size;
}

static void
expect_the_bits_of_local(exo_collective operation, exo_dtype dtype, exo_reduce reduce,
                         uint64_t seed)
{
    static world here, there;
    open_world(&here, false);
    open_world(&there, true);
    cuda_emulator_seed(seed);
    for (uint32_t r = 0; r < SIZE; r++)
        for (int w = 0; w < 2; w++) {
            member *m = w ? &there.members[r] : &here.members[r];
            m->operation = operation;
            m->dtype = dtype;
            m->reduce = reduce;
            m->seed = seed;
            fill(m);
        }
    run(&here, act);
    run(&there, act);
    for (uint32_t r = 0; r < SIZE; r++) {
        size_t first, bytes;
        const member *m = &there.members[r];
        defined(m, &first, &bytes);
        cr_expect_eq(m->status, EXO_OK, "%s", m->err.text);
        cr_expect(memcmp(m->data + first, here.members[r].data + first, bytes) == 0,
                  "%s of %s, rank %u, seed %zu", exo_collective_name(operation),
                  exo_dtype_name(dtype), r, (size_t)seed);
    }
    close_world(&here);
    close_world(&there);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

Test(cuda_engine, every_operation_has_the_bits_of_local, .timeout = 120)
{
    for (uint64_t seed = 1; seed < 6; seed += one_of(3))
        for (int o = EXO_ALL_REDUCE; o <= EXO_SHIFT; o++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                const bool mean = seed % 2 == 0 && t < 2;
                expect_the_bits_of_local((exo_collective)o, types[t], mean ? EXO_MEAN : EXO_SUM,
                                         seed);
            }
}

/* --- Requests in the background --------------------------------------------------------------- */

/* Two reductions at once, one of them of the members 0, 1 and 3 alone, waited for in reverse
 * order. */
static void *
act_some(void *argument)
{
    static const uint32_t some[] = {0, 1, 3};
    member *m = argument;
    exo_device *gpu = NULL;
    exo_array x = {0}, y = {0};
    exo_group *among = NULL;
    exo_request *all = NULL, *few = NULL;
    float back[2 * COUNT];
    exo_status st = exo_cuda_open(&gpu, 0, &m->err);
    if (st == EXO_OK)
        st = exo_array_init(&x, gpu, EXO_F32, COUNT, &m->err);
    if (st == EXO_OK)
        st = exo_array_init(&y, gpu, EXO_F32, COUNT, &m->err);
    if (st == EXO_OK && m->rank != 2)
        st = exo_group_among(&among, m->group, some, 3, &m->err);
    exo_vec_fill(x, (float)(m->rank + 1));
    exo_vec_fill(y, (float)(m->rank + 10));
    if (st == EXO_OK)
        st = exo_comm_begin_all_reduce(&all, m->group, x, EXO_SUM, &m->err);
    if (st == EXO_OK && among)
        st = exo_comm_begin_all_reduce(&few, among, y, EXO_SUM, &m->err);
    if (st == EXO_OK)
        st = exo_request_wait(&few, &m->err);
    if (st == EXO_OK)
        st = exo_request_wait(&all, &m->err);
    exo_vec_scale(x, 2); /* behind the reduction */
    if (st == EXO_OK)
        st = exo_array_read(x, back, &m->err);
    if (st == EXO_OK)
        st = exo_array_read(y, back + COUNT, &m->err);
    if (st == EXO_OK && (back[COUNT - 1] != 20 || back[COUNT] != (among ? 34.0f : 12.0f)))
        st = exo_fail(&m->err, EXO_FAILED, "%g and %g", (double)back[COUNT - 1],
                      (double)back[COUNT]);
    m->status = st;
    exo_group_close(&among);
    exo_array_release(&x);
    exo_array_release(&y);
    exo_cuda_close(gpu);
    return NULL;
}

Test(cuda_engine, requests_go_on_in_the_background_and_among_some, .timeout = 60)
{
    static world w;
    for (uint64_t seed = 1; seed < 20; seed++) {
        cuda_emulator_seed(seed);
        open_world(&w, true);
        run(&w, act_some);
        for (uint32_t r = 0; r < SIZE; r++)
            cr_expect_eq(w.members[r].status, EXO_OK, "rank %u: %s", r, w.members[r].err.text);
        close_world(&w);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    }
}

/* --- Ends ------------------------------------------------------------------------------------- */

/* Member 1 does what `seed` says instead of the call; the others call. */
static void *
act_apart(void *argument)
{
    member *m = argument;
    exo_device *gpu = NULL;
    exo_array x = {0};
    exo_request *request = NULL;
    cr_assert_eq(exo_cuda_open(&gpu, 0, &m->err), EXO_OK);
    cr_assert_eq(exo_array_init(&x, gpu, EXO_F32, COUNT, &m->err), EXO_OK);
    if (m->seed == 1 && m->rank == 3) {
        m->status = EXO_CANCELLED; /* it never comes, so that the call is not complete */
        exo_fail(&m->err, EXO_CANCELLED, "cancelled");
    } else if (m->rank != 1) {
        m->status = exo_all_reduce(m->group, x, EXO_SUM, &m->err);
    } else if (m->seed == 0) { /* it disagrees */
        m->status = exo_all_reduce(m->group, exo_array_part(x, 0, 7), EXO_SUM, &m->err);
    } else if (m->seed == 1) { /* it cancels */
        m->status = EXO_OK;
        cr_assert_eq(exo_comm_begin_all_reduce(&request, m->group, x, EXO_SUM, &m->err), EXO_OK);
        exo_request_cancel(&request);
    } else if (m->seed == 2) { /* it dies */
        exo_comm_fail(m->comm, 1, "the process was killed");
        m->status = EXO_OK;
    } /* else it never comes */
    exo_array_release(&x);
    exo_cuda_close(gpu);
    return NULL;
}

Test(cuda_engine, no_member_waits_for_one_that_will_not_come, .timeout = 60)
{
    static const exo_status want[] = {EXO_INVAL, EXO_CANCELLED, EXO_PEER_LOST, EXO_TIMEOUT};
    static const char *const says[] = {"disagree", "cancelled", "was killed", "missing"};
    static world w;
    for (uint64_t how = 0; how < 4; how++) {
        open_world(&w, true);
        for (uint32_t r = 0; r < SIZE; r++) {
            w.members[r].seed = how;
            if (how == 3)
                exo_group_set_timeout(w.groups[r], 100 * EXO_MS);
        }
        run(&w, act_apart);
        for (uint32_t r = 0; r < SIZE; r++) {
            const member *m = &w.members[r];
            if (r == 1 && how > 0)
                continue;
            cr_expect_eq(m->status, want[how], "%zu, rank %u: %s", (size_t)how, r, m->err.text);
            const char *said = strstr(m->err.text, says[how]);
            cr_expect(said && (how < 3 || strchr(said, '1')), "%s",
                      m->err.text); /* beside late ones */
        }
        close_world(&w);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    }
}

/* --- Failures --------------------------------------------------------------------------------- */

Test(cuda_engine, failures_on_schedule_end_cleanly, .timeout = 120)
{
    static world w;
    uint64_t failed = 0;
    for (uint64_t n = 1; n <= 100; n++) {
        cuda_emulator_seed(n);
        open_world(&w, true);
        for (uint32_t r = 0; r < SIZE; r++) {
            w.members[r].operation = (exo_collective)(n % 6);
            w.members[r].dtype = EXO_F32;
            exo_group_set_timeout(w.groups[r], 200 * EXO_MS);
        }
        if (n % 2)
            cuda_emulator_fail_call(n);
        else
            cuda_emulator_fail_at(n / 4 + 1);
        run(&w, act);
        cuda_emulator_fail_call(0);
        cuda_emulator_fail_at(0);
        for (uint32_t r = 0; r < SIZE; r++) {
            failed += w.members[r].status != EXO_OK;
            cr_expect(w.members[r].status == EXO_OK || w.members[r].err.text[0]);
        }
        close_world(&w);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "schedule %zu: %zu bytes",
                     (size_t)n, (size_t)cuda_emulator_memory());
    }
    cr_expect_gt(failed, 100);
}

/* --- In graphs -------------------------------------------------------------------------------- */

enum {
    ROUNDS = 6,
    MEMBERS = 3,
    WIDTH = 100
};

/* An actor that adds up an array on the GPU, and numbers of the host, with the others of its name. */
struct adder {
    uint64_t deaths, at; /* member 1 fails before round `at`, in its first `deaths` lives */
    uint64_t leaves;     /* member 2 ends before that round */
    bool circle;         /* member 1 waits for an item that member 0 sends at the end */
};

static float sums[MEMBERS][WIDTH]; /* at the end of each member's last life */
static uint32_t births[MEMBERS];

static exo_status
adder_init(void *self, exo_config *config, exo_err *err)
{
    struct adder *a = self;
    exo_status st = exo_config_u64(config, "deaths", 0, 0, 9, &a->deaths, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "at", 0, 0, ROUNDS, &a->at, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "leaves", ROUNDS, 0, ROUNDS, &a->leaves, err);
    return st == EXO_OK ? exo_config_bool(config, "circle", false, &a->circle, err) : st;
}

static exo_status
add_up(const struct adder *a, exo_graph_actor *actor, exo_array x, exo_err *err)
{
    const uint32_t index = exo_graph_index(actor);
    exo_group *group = exo_graph_group(actor, "sums");
    exo_status st = EXO_OK;
    for (uint64_t i = 0; st == EXO_OK && i < ROUNDS; i++) {
        float one = 1;
        if (index == 2 && i == a->leaves)
            return EXO_OK;
        if (index == 1 && i == a->at && exo_graph_life(actor) < a->deaths)
            return exo_fail(err, EXO_FAILED, "it dies");
        st = exo_all_reduce(group, exo_host_array(EXO_F32, &one, 1), EXO_SUM, err);
        if (st == EXO_OK)
            st = exo_all_reduce(group, x, EXO_MEAN, err);
        if (st == EXO_OK)
            cr_expect_eq(one, MEMBERS);
        exo_vec_scale(x, 1.0f + (float)index / 7);
    }
    return st == EXO_OK ? exo_array_read(x, sums[index], err) : st;
}

static exo_status
adder_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct adder *a = self;
    const uint32_t index = exo_graph_index(actor);
    float numbers[WIDTH];
    exo_device *gpu = NULL;
    exo_array x = {0};
    exo_item *item = NULL;
    births[index] = exo_graph_life(actor) + 1;
    for (size_t i = 0; i < WIDTH; i++)
        numbers[i] = (float)(i * 37 % 101) / (float)(3 + index);
    exo_status st = exo_cuda_open(&gpu, 0, err);
    if (st == EXO_OK)
        st = exo_array_import(&x, gpu, EXO_F32, numbers, WIDTH, err);
    if (st == EXO_OK && a->circle && index == 1)
        st = exo_port_receive(exo_graph_input(actor, "token"), EXO_PORT_TIMEOUT, &item, err);
    if (st == EXO_OK)
        st = add_up(a, actor, x, err);
    exo_item_drop(&item);
    exo_array_release(&x);
    if (gpu)
        exo_cuda_close(gpu);
    return st;
}

static const exo_graph_port adder_ports[] = {
    {.name = "sums", .type = "sums", .direction = EXO_PORT_COLLECTIVE},
    {.name = "token", .type = "token", .direction = EXO_PORT_INPUT},
    {.name = "token", .type = "token", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_class adder_class = {.name = "adder",
                                            .ports = adder_ports,
                                            .num_ports = 3,
                                            .state_size = sizeof(struct adder),
                                            .init = adder_init,
                                            .run = adder_run};

/* Runs a graph of adders; *sent: what they have sent on the edge, all together. */
static exo_status
run_graph(const char *engine, const char *config, const char *more, uint64_t *sent, exo_err *err)
{
    char text[1024];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_graph_class_register(&adder_class, NULL);
    exo_cuda_engine_register(NULL);
    memset(sums, 0, sizeof sums);
    snprintf(text, sizeof text,
             "exogym: 1\nactors: {a: {class: adder, count: %d, %s}}\nedges:\n  - {from: a, to: a, "
             "carries: sums, engine: %s, deadline: 60 s}\n%s",
             MEMBERS, config, engine, more);
    exo_status st =
        exo_graph_parse(&spec, "adders.yaml", text, &(exo_graph_opts){.name = "adders"}, err);
    cr_assert_eq(st, EXO_OK, "%s", err->text);
    st = exo_graph_run(spec, &(exo_graph_run_opts){.space = "adders"}, &result, err);
    *sent = 0;
    for (size_t i = 0; i < result.ledger.length; i++)
        *sent += result.ledger.rows[i].traffic.wire_bytes;
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "%s: %s", engine, config);
    return st;
}

#define DYING "restart: {when: on_failure}, config: {deaths: 2, at: 3}"

Test(cuda_engine, members_of_a_graph_have_the_bits_of_local_and_die_together, .timeout = 120)
{
    float plain[MEMBERS][WIDTH];
    uint64_t bytes = 0, sent = 0;
    exo_err err = {0};
    cr_assert_eq(run_graph("local", "config: {}", "", &bytes, &err), EXO_OK, "%s", err.text);
    memcpy(plain, sums, sizeof plain);
    cr_assert_eq(run_graph("gpu", "config: {}", "", &sent, &err), EXO_OK, "%s", err.text);
    cr_expect_arr_eq(sums, plain, sizeof plain, "without deaths");
    cr_expect_eq(sent, bytes);
    cr_assert_eq(run_graph("gpu", DYING, "", &sent, &err), EXO_OK, "%s", err.text);
    cr_expect_arr_eq(sums, plain, sizeof plain, "with two deaths");
    for (size_t i = 0; i < MEMBERS; i++)
        cr_expect_eq(births[i], 3, "member %zu had %u lives", i, births[i]);
}

Test(cuda_engine, members_of_a_graph_do_not_wait_in_vain, .timeout = 120)
{
    exo_err err = {0};
    uint64_t sent = 0;
    exo_status st = run_graph("gpu", "config: {deaths: 1, at: 2}", "", &sent, &err);
    cr_expect_eq(st, EXO_FAILED, "%s", err.text);
    cr_expect(strstr(err.text, "a_1: it dies"), "%s", err.text);
    st = run_graph("gpu", "config: {leaves: 4}", "", &sent, &err);
    cr_expect_eq(st, EXO_PEER_LOST, "%s", err.text);
    cr_expect(strstr(err.text, "rank 2 has left the group"), "%s", err.text);
    st = run_graph("gpu", "config: {circle: true}",
                   "  - {from: a, to: a, carries: token, "
                   "route: broadcast}\n",
                   &sent, &err);
    cr_expect_eq(st, EXO_FAILED, "%s", err.text);
    cr_expect(strstr(err.text, "the graph stalls") &&
                  strstr(err.text, "waits in 'a>a:sums' for a_1"),
              "%s", err.text);
}
