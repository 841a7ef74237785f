/* Collectives: results are compared with plain loops to the bit, and bytes with closed forms.
 * Further tests end a call in each possible way.
 *
 * Read next: exogym/comm.h, support/team.h, comm_far.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/comm.h>
#include <exogym/tensor.h>

#include "base/parallel.h"
#include "comm/edge.h"
#include "support/eventually.h"
#include "support/team.h"

static exo_status
act_sum(struct member *m)
{
    return exo_all_reduce(m->group, exo_host_array(EXO_F32, m->x, m->count), EXO_SUM, &m->err);
}

static exo_status
act_mean(struct member *m)
{
    return exo_all_reduce(m->group, exo_host_array(EXO_F32, m->x, m->count), EXO_MEAN, &m->err);
}

static exo_status
act_scatter(struct member *m)
{
    return exo_reduce_scatter(m->group, exo_host_array(EXO_F32, m->x, m->count), EXO_SUM, &m->err);
}

static exo_status
act_gather(struct member *m)
{
    return exo_all_gather(m->group, exo_host_array(EXO_F32, m->x, m->count), &m->err);
}

static exo_status
act_broadcast(struct member *m)
{
    return exo_broadcast(m->group, exo_host_array(EXO_F32, m->x, m->count), m->arg, &m->err);
}

static exo_status
act_barrier(struct member *m)
{
    return exo_barrier(m->group, &m->err);
}

/* ((x0 + x1) + x2) + ... */
static float
plain_sum(uint32_t size, size_t i)
{
    float sum = element(0, i);
    for (uint32_t r = 1; r < size; r++)
        sum += element(r, i);
    return sum;
}

static const uint32_t sizes[] = {1, 2, 3, 4, 7};
static const size_t counts[] = {0, 1, 2, 6, 7, 1000, 4096, 100003};

#define FOR_ALL(size, count)                                                                       \
    for (size_t si_ = 0; si_ < sizeof sizes / sizeof sizes[0]; si_++)                              \
        for (size_t ci_ = 0; ci_ < sizeof counts / sizeof counts[0]; ci_++)                        \
            for (uint32_t size = sizes[si_], once_ = 1; once_; once_ = 0)                          \
                for (size_t count = counts[ci_], twice_ = 1; twice_; twice_ = 0)

/* --- Results ---------------------------------------------------------------------------------- */

Test(comm, all_reduce_sums_in_rank_order_to_the_bit, .timeout = 60)
{
    FOR_ALL(size, count)
    {
        struct team t;
        team_init(&t, size, count);
        team_run(&t, act_sum);
        team_expect_ok(&t, count);
        for (size_t i = 0; i < count; i += count / 50 + 1)
            for (uint32_t r = 0; r < size; r++)
                cr_assert_eq(t.m[r].x[i], plain_sum(size, i), "%u members, element %zu of %zu",
                             size, i, count);
        team_release(&t);
    }
}

Test(comm, the_mean_is_the_sum_divided)
{
    struct team t;
    team_init(&t, 3, 500);
    team_run(&t, act_mean);
    team_expect_ok(&t, 500);
    for (size_t i = 0; i < 500; i++)
        cr_assert_eq(t.m[2].x[i], plain_sum(3, i) / 3.0f);
    team_release(&t);
}

Test(comm, reduce_scatter_and_all_gather_make_an_all_reduce, .timeout = 60)
{
    FOR_ALL(size, count)
    {
        struct team t;
        team_init(&t, size, count);
        team_run(&t, act_scatter);
        team_expect_ok(&t, count);
        for (uint32_t r = 0; r < size; r++) {
            size_t first, length;
            exo_shard(count, size, r, &first, &length);
            for (size_t i = first; i < first + length; i += length / 50 + 1)
                cr_assert_eq(t.m[r].x[i], plain_sum(size, i));
        }
        team_run(&t, act_gather);
        team_expect_ok(&t, count);
        for (size_t i = 0; i < count; i += count / 50 + 1)
            for (uint32_t r = 0; r < size; r++)
                cr_assert_eq(t.m[r].x[i], plain_sum(size, i), "%u members, element %zu of %zu",
                             size, i, count);
        team_release(&t);
    }
}

Test(comm, broadcast_gives_the_roots_numbers)
{
    for (uint32_t root = 0; root < 4; root++) {
        struct team t;
        team_init(&t, 4, 5000);
        for (uint32_t r = 0; r < 4; r++)
            t.m[r].arg = root;
        team_run(&t, act_broadcast);
        team_expect_ok(&t, 5000);
        for (size_t i = 0; i < 5000; i++)
            for (uint32_t r = 0; r < 4; r++)
                cr_assert_eq(t.m[r].x[i], element(root, i));
        team_release(&t);
    }
}

static exo_status
act_without_memory(struct member *m)
{
    float *data = m->rank == 0 ? NULL : m->x;
    return exo_all_reduce(m->group, exo_host_array(EXO_F32, data, m->count), EXO_SUM, &m->err);
}

/* As with node->grads of a strategy that steps alone. */
Test(comm, data_without_memory_are_an_error_that_all_hear_of)
{
    struct team t;
    team_init(&t, 2, 5);
    team_run(&t, act_without_memory);
    cr_expect_eq(t.m[0].status, EXO_INVAL);
    cr_expect(strstr(t.m[0].err.text, "a collective of 5 elements without memory"), "%s",
              t.m[0].err.text);
    cr_expect_neq(t.m[1].status, EXO_OK);
    team_release(&t);
}

static exo_status
act_integers(struct member *m)
{
    int32_t x[5] = {INT32_MAX, -1, 0, 7, (int32_t)m->rank};
    uint8_t bytes[3] = {m->rank == 0 ? 10 : 0, m->rank == 1 ? 20 : 0, 0};
    exo_status st = exo_all_reduce(m->group, exo_host_array(EXO_I32, x, 5), EXO_SUM, &m->err);
    if (st == EXO_OK)
        st = exo_all_gather(m->group, exo_host_array(EXO_U8, bytes, 2), &m->err);
    cr_expect_eq(x[0], -2, "wraps around");
    cr_expect_eq(x[1], -2);
    cr_expect_eq(x[3], 14);
    cr_expect_eq(x[4], 1);
    cr_expect_eq(bytes[0], 10);
    cr_expect_eq(bytes[1], 20);
    cr_expect_eq(exo_all_reduce(m->group, exo_host_array(EXO_I32, x, 5), EXO_MEAN, &m->err),
                 EXO_UNSUPPORTED);
    cr_expect_eq(exo_all_reduce(m->group, exo_host_array(EXO_U8, x, 5), EXO_SUM, &m->err),
                 EXO_UNSUPPORTED);
    return st;
}

Test(comm, integers_are_summed_and_bytes_gathered)
{
    struct team t;
    team_init(&t, 2, 1);
    team_run(&t, act_integers);
    team_expect_ok(&t, 1);
    team_release(&t);
}

Test(comm, shards_cover_everything_once)
{
    FOR_ALL(size, count)
    {
        size_t at = 0;
        for (uint32_t r = 0; r < size; r++) {
            size_t first, length;
            exo_shard(count, size, r, &first, &length);
            cr_assert_eq(first, at);
            cr_assert(length == count / size || length == count / size + 1);
            at += length;
        }
        cr_assert_eq(at, count);
    }
}

Test(comm, counted_bytes_are_the_closed_forms)
{
    FOR_ALL(size, count)
    {
        static const struct {
            exo_status (*act)(struct member *m);
            uint64_t factor;
        } operations[] = {
            {act_sum, 2}, {act_scatter, 1}, {act_gather, 1}, {act_broadcast, 1}, {act_barrier, 0}};
        for (size_t k = 0; k < 5; k++) {
            struct team t;
            uint64_t sum = 0;
            team_init(&t, size, count);
            team_run(&t, operations[k].act);
            team_expect_ok(&t, count);
            for (uint32_t r = 0; r < size; r++) {
                sum += exo_group_stats(t.m[r].group).bytes_sent;
                cr_expect_eq(exo_group_stats(t.m[r].group).calls, 1);
            }
            cr_assert_eq(sum, operations[k].factor * (size - 1) * count * sizeof(float),
                         "operation %zu of %u x %zu", k, size, count);
            team_release(&t);
        }
    }
}

/* --- Groups of some members ------------------------------------------------------------------- */

/* Members 0, 2 and 5 form one group, and 1, 3, 4 and 6 another. Each group sums m->arg times;
 * act_islands_and_all then sums over all members. */
static const uint32_t three[] = {0, 2, 5}, four[] = {1, 3, 4, 6};

static const uint32_t *
island_of(uint32_t rank, uint32_t *size)
{
    bool in_three = rank == 0 || rank == 2 || rank == 5;
    *size = in_three ? 3 : 4;
    return in_three ? three : four;
}

static exo_status
act_islands(struct member *m)
{
    exo_group *some = NULL;
    uint32_t size = 0;
    const uint32_t *ranks = island_of(m->rank, &size);
    exo_status st = exo_group_among(&some, m->group, ranks, size, &m->err);
    for (uint32_t i = 0; st == EXO_OK && i < m->arg; i++)
        st = exo_all_reduce(some, exo_host_array(EXO_F32, m->x, m->count), EXO_SUM, &m->err);
    exo_group_close(&some);
    return st;
}

static exo_status
act_islands_and_all(struct member *m)
{
    exo_status st = act_islands(m);
    return st == EXO_OK ? act_sum(m) : st;
}

Test(comm, some_members_meet_while_others_meet_elsewhere, .timeout = 60)
{
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct team t;
        size_t count = counts[c];
        team_init(&t, 7, count);
        for (uint32_t r = 0; r < 7; r++)
            /* one group sums more often */
            t.m[r].arg = island_of(r, &(uint32_t){0}) == three ? 1 : 2;
        team_run(&t, act_islands_and_all);
        team_expect_ok(&t, count);
        for (size_t i = 0; i < count; i += 1 + count / 50) {
            float a = (element(0, i) + element(2, i)) + element(5, i);
            float b = ((element(1, i) + element(3, i)) + element(4, i)) + element(6, i);
            b = ((b + b) + b) + b;
            float all = ((((((a + b) + a) + b) + b) + a) + b);
            for (uint32_t r = 0; r < 7; r++)
                cr_assert_eq(t.m[r].x[i], all, "element %zu of rank %u", i, r);
        }
        team_release(&t);
    }
}

Test(comm, those_who_meet_do_not_wait_for_others, .timeout = 120)
{
    struct team t;
    team_init(&t, 7, 100);
    for (uint32_t i = 0; i < 3; i++) {
        t.m[three[i]].arg = 5;
        team_start(&t, three[i], act_islands);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(t.threads[three[i]], NULL);
        cr_expect_eq(t.m[three[i]].status, EXO_OK, "%s", t.m[three[i]].err.text);
    }
    exo_group_close(&t.m[5].group); /* closing it affects only calls of all members */
    for (uint32_t i = 0; i < 4; i++) {
        t.m[four[i]].arg = 1;
        team_start(&t, four[i], act_islands);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(t.threads[four[i]], NULL);
        cr_expect_eq(t.m[four[i]].status, EXO_OK, "%s", t.m[four[i]].err.text);
    }
    team_start(&t, 6, act_sum);
    pthread_join(t.threads[6], NULL);
    cr_expect_eq(t.m[6].status, EXO_PEER_LOST);
    cr_expect(strstr(t.m[6].err.text, "node_5"), "%s", t.m[6].err.text);
    team_release(&t);
}

Test(comm, some_count_what_so_many_would, .timeout = 60)
{
    struct team t, alone;
    team_init(&t, 7, 1000);
    team_init(&alone, 4, 1000);
    for (uint32_t r = 0; r < 7; r++)
        t.m[r].arg = 1;
    team_run(&t, act_islands);
    team_run(&alone, act_sum);
    for (uint32_t i = 0; i < 4; i++) {
        exo_traffic a = exo_group_traffic(t.m[four[i]].group),
                    b = exo_group_traffic(alone.m[i].group);
        cr_expect_eq(a.items, 1);
        cr_expect_eq(a.messages, b.messages);
        cr_expect_eq(a.payload_bytes, 2 * 1000 * sizeof(float) * 3 / 4);
        cr_expect_eq(a.payload_bytes, b.payload_bytes);
        cr_expect_eq(a.wire_bytes, b.wire_bytes);
    }
    team_release(&t);
    team_release(&alone);
}

/* A manual clock that counts the threads that wait by it: a waiting member reads it again and
 * again. */
static exo_clock_manual read_time;
static atomic_int readers;

static exo_time
count_readers(const exo_clock *clock)
{
    enum {
        WAITS = 20 /* more often than a member reads it before it waits */
    };
    static _Thread_local int reads;
    (void)clock;
    readers += ++reads == WAITS;
    return read_time.time;
}

Test(comm, who_is_missing_among_some_is_named, .timeout = 120)
{
    struct team t;
    exo_clock_manual_init(&read_time, 0);
    team_init(&t, 7, 10);
    t.clock.base.now = count_readers;
    t.m[0].arg = t.m[5].arg = 1;
    exo_group_set_timeout(t.m[0].group, 60 * EXO_SECOND);
    exo_group_set_timeout(t.m[5].group, 120 * EXO_SECOND);
    team_start(&t, 0, act_islands);
    team_start(&t, 5, act_islands);
    EVENTUALLY(readers == 2);
    for (uint32_t r = 0; r < 6; r += 5)
        while (pthread_tryjoin_np(t.threads[r], NULL) != 0) {
            exo_clock_manual_advance(&read_time, EXO_SECOND);
            usleep(1000);
        }
    for (uint32_t r = 0; r < 6; r += 5) {
        cr_expect_eq(t.m[r].status, EXO_TIMEOUT);
        cr_expect(strstr(t.m[r].err.text, "for node_2 (rank 2)") &&
                      !strstr(t.m[r].err.text, "node_1"),
                  "%s", t.m[r].err.text);
    }
    team_release(&t);
}

Test(comm, a_group_of_some_has_places_of_its_own)
{
    static const uint32_t down[] = {2, 0}, twice[] = {0, 0, 2}, far[] = {0, 9}, others[] = {1, 3},
                          some[] = {1, 2}, all[] = {0, 1, 2, 3, 4, 5, 6};
    struct team t;
    exo_group *g = NULL, *inner = NULL;
    exo_err err = {0};
    team_init(&t, 7, 10);
    cr_expect_eq(exo_group_among(&g, t.m[0].group, down, 2, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "ascend"), "%s", err.text);
    cr_expect_eq(exo_group_among(&g, t.m[0].group, twice, 3, &err), EXO_INVAL);
    cr_expect_eq(exo_group_among(&g, t.m[0].group, far, 2, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "rank 9 is not in a group of 7"), "%s", err.text);
    cr_expect_eq(exo_group_among(&g, t.m[0].group, others, 2, &err), EXO_INVAL);
    cr_expect_eq(exo_group_among(&g, t.m[0].group, others, 0, &err), EXO_INVAL);
    cr_assert_eq(exo_group_among(&g, t.m[5].group, three, 3, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_group_rank(g), 2);
    cr_expect_eq(exo_group_size(g), 3);
    cr_expect_eq(exo_broadcast(g, exo_host_array(EXO_F32, t.m[5].x, 10), 3, &err), EXO_INVAL,
                 "there is no member 3 among three");
    cr_assert_eq(exo_group_among(&inner, g, some, 2, &err), EXO_OK,
                 "of a group of some: ranks 2 and 5");
    cr_expect_eq(exo_group_rank(inner), 1);
    exo_group_close(&inner);
    exo_group_close(&g);
    cr_assert_eq(exo_group_among(&g, t.m[5].group, all, 7, &err), EXO_OK);
    cr_expect_eq(exo_group_rank(g), 5);
    exo_group_close(&g);
    team_release(&t);
}

/* --- Ends of calls ---------------------------------------------------------------------------- */

/* Rank 1 of two holds the only compute slot until rank 0's call has ended. */
struct holder {
    exo_group *group;
    atomic_bool holds, told;
    bool in_time; /* the call ended while the slot was held */
};

static void *
hold_slot(void *argument)
{
    struct holder *h = argument;
    exo_compute_enter();
    atomic_store(&h->holds, true);
    exo_time until = in_ms(20000);
    while (!atomic_load(&h->told) && exo_now(exo_clock_real()) < until)
        usleep(200);
    h->in_time = atomic_load(&h->told);
    exo_compute_leave();
    return NULL;
}

Test(comm, a_failed_call_does_not_wait_for_a_compute_slot)
{
    exo_comm *c = NULL;
    exo_group *g = NULL;
    exo_err err = {0};
    pthread_t thread;
    float x[4] = {0};
    struct holder h = {0};
    exo_set_num_threads(1);
    cr_assert_eq(exo_comm_local(&c, 2, exo_clock_real(), NULL), EXO_OK);
    cr_assert_eq(exo_group_open(&g, c, 0, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_group_open(&h.group, c, 1, "busy", NULL), EXO_OK);
    exo_group_set_timeout(g, EXO_SECOND / 10);
    exo_compute_enter();
    cr_assert_eq(pthread_create(&thread, NULL, hold_slot, &h), 0);
    exo_compute_pause(); /* the thread gets the slot, and has it when the call begins */
    EVENTUALLY(atomic_load(&h.holds));
    cr_expect_eq(exo_all_reduce(g, exo_host_array(EXO_F32, x, 4), EXO_SUM, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "busy"), "%s", err.text);
    atomic_store(&h.told, true);
    pthread_join(thread, NULL);
    cr_expect(h.in_time, "the call ended only after the slot was free");
    exo_compute_leave();
    exo_group_close(&g);
    exo_group_close(&h.group);
    exo_comm_drop(&c);
}

/* Sets `holds` as soon as there is a compute slot. */
static void *
take_slot(void *argument)
{
    struct holder *h = argument;
    atomic_store(&h->told, true);
    exo_compute_enter();
    atomic_store(&h->holds, true);
    exo_compute_leave();
    return NULL;
}

/* Whether another thread gets the only slot while a call is on links of that latency. */
static bool
another_computes(exo_time latency)
{
    exo_host_spec hosts[2] = {{.up = INFINITY, .down = INFINITY},
                              {.up = INFINITY, .down = INFINITY}};
    exo_link_spec link = {.bandwidth = 1e9, .latency = latency, .transport = EXO_LINK_IDEAL};
    uint32_t at[2] = {0, 1};
    exo_links *links = NULL;
    exo_comm *c = NULL;
    exo_group *g[2];
    exo_request *r[2];
    float x[2][4] = {{0}};
    exo_err err = {0};
    pthread_t thread;
    struct holder h = {0};
    exo_set_num_threads(1);
    cr_assert_eq(exo_links_new(&links, hosts, 2, &link, 1, &err), EXO_OK, "%s", err.text);
    exo_comm_edge edge = {.links = links, .hosts = at, .origin = exo_now(exo_clock_real())};
    cr_assert_eq(exo_comm_local_on(&c, 2, exo_clock_real(), &edge, &err), EXO_OK, "%s", err.text);
    exo_compute_enter();
    cr_assert_eq(pthread_create(&thread, NULL, take_slot, &h), 0);
    EVENTUALLY(atomic_load(&h.told));
    for (uint32_t m = 0; m < 2; m++) {
        cr_assert_eq(exo_group_open(&g[m], c, m, NULL, NULL), EXO_OK);
        cr_assert_eq(
            exo_comm_begin_all_reduce(&r[m], g[m], exo_host_array(EXO_F32, x[m], 4), EXO_SUM, &err),
            EXO_OK);
    }
    cr_expect_eq(exo_request_wait(&r[0], &err), EXO_OK, "%s", err.text);
    const bool computes = atomic_load(&h.holds);
    cr_expect_eq(exo_request_wait(&r[1], &err), EXO_OK, "%s", err.text);
    exo_compute_leave();
    pthread_join(thread, NULL);
    for (uint32_t m = 0; m < 2; m++)
        exo_group_close(&g[m]);
    exo_comm_drop(&c);
    exo_links_free(&links);
    return computes;
}

Test(comm, others_compute_while_a_call_is_on_its_links, .timeout = 120)
{
    bool computes = false;
    for (int64_t ms = 200; !computes && ms < 20000; ms *= 4) /* that thread may be late */
        computes = another_computes(ms * EXO_MS);
    cr_expect(computes, "the member kept its slot");
}

Test(comm, a_test_of_a_call_that_links_hold_up_ends_at_its_deadline)
{
    exo_link_change outage = {.factor = 0}; /* for ever */
    exo_host_spec hosts[2] = {{.up = INFINITY, .down = INFINITY},
                              {.up = INFINITY, .down = INFINITY}};
    exo_link_spec link = {
        .bandwidth = 1e9, .transport = EXO_LINK_IDEAL, .changes = &outage, .num_changes = 1};
    uint32_t at[2] = {0, 1};
    exo_links *links = NULL;
    exo_clock_manual clock;
    exo_comm *c = NULL;
    exo_group *g[2];
    exo_request *r[2];
    float x[2][4] = {{0}};
    exo_err err = {0};
    bool done = true;
    exo_clock_manual_init(&clock, 0);
    cr_assert_eq(exo_links_new(&links, hosts, 2, &link, 1, &err), EXO_OK, "%s", err.text);
    exo_comm_edge edge = {.links = links, .hosts = at};
    cr_assert_eq(exo_comm_local_on(&c, 2, &clock.base, &edge, &err), EXO_OK, "%s", err.text);
    for (uint32_t m = 0; m < 2; m++) {
        cr_assert_eq(exo_group_open(&g[m], c, m, NULL, NULL), EXO_OK);
        exo_group_set_timeout(g[m], EXO_SECOND);
        cr_assert_eq(
            exo_comm_begin_all_reduce(&r[m], g[m], exo_host_array(EXO_F32, x[m], 4), EXO_SUM, &err),
            EXO_OK);
    }
    cr_expect_eq(exo_request_test(&r[0], &done, &err), EXO_OK, "%s", err.text);
    cr_expect(!done);
    exo_clock_manual_advance(&clock, 2 * EXO_SECOND);
    cr_expect_eq(exo_request_test(&r[0], &done, &err), EXO_TIMEOUT, "a test that never ends");
    cr_expect(strstr(err.text, "the links do not let it through before the deadline"), "%s",
              err.text);
    cr_expect_eq(exo_request_wait(&r[1], NULL), EXO_TIMEOUT);
    for (uint32_t m = 0; m < 2; m++)
        exo_group_close(&g[m]);
    exo_comm_drop(&c);
    exo_links_free(&links);
}

/* From outside nothing shows that a member waits inside a call. This short pause makes it likely,
 * and the tests pass either way. */
static void
let_them_wait(void)
{
    for (int i = 0; i < 200; i++)
        sched_yield();
}

Test(comm, a_deadline_ends_the_call_and_names_who_is_missing, .timeout = 120)
{
    struct team t;
    team_init(&t, 3, 10);
    exo_group_set_timeout(t.m[0].group, 5 * EXO_SECOND);
    team_start(&t, 0, act_sum);
    team_start(&t, 2, act_sum);
    for (uint32_t r = 0; r < 3; r += 2) /* until both have timed out */
        while (pthread_tryjoin_np(t.threads[r], NULL) != 0) {
            exo_clock_manual_advance(&t.clock, EXO_SECOND);
            sched_yield();
        }
    for (uint32_t r = 0; r < 3; r += 2) {
        cr_expect_eq(t.m[r].status, EXO_TIMEOUT);
        cr_expect(strstr(t.m[r].err.text, "node_1") && strstr(t.m[r].err.text, "all_reduce"), "%s",
                  t.m[r].err.text);
        cr_expect_eq(t.m[r].x[3], element(r, 3), "nobody's numbers were touched");
    }
    team_start(&t, 1, act_sum);
    pthread_join(t.threads[1], NULL);
    cr_expect_eq(t.m[1].status, EXO_TIMEOUT, "the communicator is broken for who comes late");
    team_release(&t);
}

Test(comm, a_death_ends_the_call_and_names_the_dead, .timeout = 120)
{
    struct team t;
    team_init(&t, 3, 10);
    team_start(&t, 0, act_barrier);
    team_start(&t, 1, act_barrier);
    let_them_wait();
    exo_comm_fail(t.comm, 2, "it ran out of memory");
    for (uint32_t r = 0; r < 2; r++) {
        pthread_join(t.threads[r], NULL);
        cr_expect_eq(t.m[r].status, EXO_PEER_LOST);
        cr_expect(strstr(t.m[r].err.text, "node_2") && strstr(t.m[r].err.text, "out of memory"),
                  "%s", t.m[r].err.text);
    }
    team_release(&t);
}

Test(comm, who_leaves_is_missed, .timeout = 120)
{
    struct team t;
    team_init(&t, 3, 10);
    team_start(&t, 0, act_barrier);
    let_them_wait();
    exo_group_close(&t.m[1].group);
    team_start(&t, 2, act_barrier);
    for (uint32_t r = 0; r < 3; r += 2) {
        pthread_join(t.threads[r], NULL);
        cr_expect_eq(t.m[r].status, EXO_PEER_LOST);
        cr_expect(strstr(t.m[r].err.text, "node_1"), "%s", t.m[r].err.text);
    }
    team_release(&t);
}

Test(comm, members_that_disagree_are_told_so, .timeout = 120)
{
    static exo_status (*const second[])(struct member * m) = {act_mean, act_gather, act_sum};
    for (int k = 0; k < 3; k++) {
        struct team t;
        team_init(&t, 2, 10);
        if (k == 2)
            t.m[1].count = 9;
        team_start(&t, 0, act_sum);
        team_start(&t, 1, second[k]);
        for (uint32_t r = 0; r < 2; r++) {
            pthread_join(t.threads[r], NULL);
            cr_expect_eq(t.m[r].status, EXO_INVAL);
            cr_expect(strstr(t.m[r].err.text, "disagree") && strstr(t.m[r].err.text, "node_0"),
                      "%s", t.m[r].err.text);
        }
        team_release(&t);
    }
}

Test(comm, places_are_taken_once)
{
    exo_comm *comm = NULL;
    exo_group *a = NULL, *b = NULL;
    exo_err err;
    cr_expect_eq(exo_comm_local(&comm, 0, exo_clock_real(), &err), EXO_INVAL);
    cr_assert_eq(exo_comm_local(&comm, 2, exo_clock_real(), &err), EXO_OK);
    cr_assert_eq(exo_group_open(&a, comm, 0, NULL, &err), EXO_OK);
    cr_expect_eq(exo_group_open(&b, comm, 0, NULL, &err), EXO_EXISTS);
    cr_expect_eq(exo_group_open(&b, comm, 2, NULL, &err), EXO_INVAL);
    cr_expect_eq(exo_group_rank(a), 0);
    cr_expect_eq(exo_group_size(a), 2);
    exo_comm_drop(&comm); /* the group holds it */
    exo_group_close(&a);
}

/* --- Edges ------------------------------------------------------------------------------------ */

/* With a codec all members get the same numbers, close to those without a codec. The counted bytes
 * are the encoded ones. */
Test(comm, a_codec_makes_the_same_numbers_everywhere_and_fewer_bytes)
{
    static const struct {
        const char *text;
        double tolerance;
    } codecs[] = {{"bf16", 0.02}, {"fp16", 0.003}, {"int8", 0.05}, {"int4", 0.8}, {"e3m0", 1.5}};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (uint32_t size = 2; size <= 5; size++) {
            enum {
                COUNT = 1003
            };
            struct team t;
            struct team plain;
            team_init(&plain, size, COUNT);
            team_init(&t, size, COUNT);
            for (uint32_t r = 0; r < size; r++)
                exo_group_close(&t.m[r].group);
            exo_comm_drop(&t.comm);
            const exo_comm_edge on = {.name = "test", .codec = codecs[c].text};
            cr_assert_eq(exo_comm_local_on(&t.comm, size, &t.clock.base, &on, NULL), EXO_OK);
            for (uint32_t r = 0; r < size; r++)
                cr_assert_eq(exo_group_open(&t.m[r].group, t.comm, r, "x", NULL), EXO_OK);
            team_run(&plain, act_mean);
            team_run(&t, act_mean);
            exo_traffic raw = exo_group_traffic(plain.m[1].group),
                        encoded = exo_group_traffic(t.m[1].group);
            cr_expect_eq(raw.payload_bytes, encoded.payload_bytes);
            cr_expect_eq(raw.encoded_bytes, raw.payload_bytes);
            cr_expect_lt(encoded.encoded_bytes, raw.encoded_bytes * 6 / 10, "%s", codecs[c].text);
            for (uint32_t r = 0; r < size; r++)
                for (size_t i = 0; i < COUNT; i++) {
                    cr_assert_eq(t.m[r].x[i], t.m[0].x[i], "%s: the same on every member",
                                 codecs[c].text);
                    cr_assert_float_eq(t.m[r].x[i], plain.m[0].x[i], codecs[c].tolerance,
                                       "%s: %g, %g", codecs[c].text, (double)t.m[r].x[i],
                                       (double)plain.m[0].x[i]);
                }
            team_release(&plain);
            team_release(&t);
        }
}

Test(comm, a_codec_that_remembers_is_refused)
{
    exo_clock_manual clock;
    exo_comm *comm = NULL;
    exo_err err = {0};
    exo_clock_manual_init(&clock, 0);
    const exo_comm_edge on = {.name = "test", .codec = "{name: topk, ratio: 0.1}"};
    cr_assert_eq(exo_comm_local_on(&comm, 2, &clock.base, &on, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "a collective takes one without memory"), "%s", err.text);
    cr_expect_null(comm);
}
