/* The ways of collectives: sums in the order of each way, computed here by plain loops; bytes by
 * closed forms; the order of rings, the islands and the choice on declared links; times on the
 * virtual clock's links. comm_far.c shows that members in processes have the same bits.
 *
 * Each test owns its communicator; each member's thread owns its `struct member`. Read next:
 * runtime/comm/ways.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/comm.h>

#include "comm/backend.h"
#include "comm/edge.h"
#include "comm/timing.h"

enum {
    MOST = 9,
    COUNT = 1003
};

static const uint32_t hosts[MOST] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
static const exo_link_spec slow = {
    .bandwidth = 1e8, .latency = 20 * EXO_MS, .transport = EXO_LINK_IDEAL};
static const exo_link_spec quick = {
    .bandwidth = 1e10, .latency = EXO_MS / 10, .transport = EXO_LINK_IDEAL};

static exo_links *
network(const exo_link_spec *fallback)
{
    static exo_host_spec specs[MOST];
    exo_links *links = NULL;
    for (uint32_t r = 0; r < MOST; r++)
        specs[r] = (exo_host_spec){.up = INFINITY, .down = INFINITY};
    cr_assert_eq(exo_links_new(&links, specs, MOST, fallback, 1, NULL), EXO_OK);
    return links;
}

static void
join(exo_links *links, uint32_t a, uint32_t b, const exo_link_spec *spec)
{
    cr_assert_eq(exo_links_between(links, a, b, spec, NULL), EXO_OK);
    cr_assert_eq(exo_links_between(links, b, a, spec, NULL), EXO_OK);
}

/* Members of even and of odd ranks are near each other. */
static exo_links *
two_places(void)
{
    exo_links *links = network(&slow);
    for (uint32_t a = 0; a < MOST; a++)
        for (uint32_t b = a + 2; b < MOST; b += 2)
            join(links, a, b, &quick);
    return links;
}

static exo_comm_ways *
ways_on(exo_way way, bool equal_bits, uint32_t size, exo_links *links)
{
    exo_comm_ways *ways = NULL;
    cr_assert_eq(exo_comm_ways_new(&ways, way, equal_bits, size, links, hosts, NULL), EXO_OK);
    return ways;
}

/* --- Sums ------------------------------------------------------------------------------------- */

static float
element(uint32_t rank, size_t i)
{
    return (float)((int)((i * 7919 + rank * 104729) % 20011) - 10005) / 997;
}

static size_t
shard_with(uint32_t size, size_t i)
{
    size_t first, length;
    uint32_t s = 0;
    for (exo_shard(COUNT, size, s, &first, &length); i >= first + length;)
        exo_shard(COUNT, size, ++s, &first, &length);
    return s;
}

static float
sum_of_ring(uint32_t size, const uint32_t *order, size_t i)
{
    uint32_t owner = (uint32_t)shard_with(size, i), at = 0;
    while (order[at] != owner)
        at++;
    float sum = element(order[(at + 1) % size], i);
    for (uint32_t k = 2; k <= size; k++)
        sum += element(order[(at + k) % size], i);
    return sum;
}

static float
sum_of_halving(uint32_t size, size_t i)
{
    float sum[MOST], next[MOST];
    uint32_t core = size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : 1, more = size - core;
    for (uint32_t c = 0; c < core; c++)
        sum[c] = c < more ? element(2 * c, i) + element(2 * c + 1, i) : element(c + more, i);
    for (uint32_t d = core / 2; d > 0; d /= 2) {
        for (uint32_t c = 0; c < core; c++)
            next[c] = sum[c] + sum[c ^ d];
        memcpy(sum, next, sizeof sum);
    }
    return sum[shard_with(core, i)];
}

/* Two islands, of the even and of the odd ranks: the sum of the second is added to that of the
 * first, or the other way round, which is the same. */
static float
sum_of_islands(uint32_t size, size_t i)
{
    float sum[2] = {element(0, i), element(1, i)};
    for (uint32_t r = 2; r < size; r++)
        sum[r % 2] += element(r, i);
    return sum[0] + sum[1];
}

static float
plain_sum(uint32_t size, size_t i)
{
    float sum = element(0, i);
    for (uint32_t r = 1; r < size; r++)
        sum += element(r, i);
    return sum;
}

static float
expected(exo_way way, uint32_t size, const uint32_t *order, size_t i)
{
    switch (way) {
    case EXO_WAY_RING:
        return sum_of_ring(size, order, i);
    case EXO_WAY_HALVING:
        return sum_of_halving(size, i);
    case EXO_WAY_HIERARCHICAL: /* with one member in each place it goes directly */
        return size > 2 ? sum_of_islands(size, i) : plain_sum(size, i);
    default:
        return plain_sum(size, i);
    }
}

/* --- Members ---------------------------------------------------------------------------------- */

struct member {
    exo_comm *comm;
    uint32_t rank;
    exo_collective operation;
    exo_reduce reduce;
    float data[COUNT];
    uint64_t bytes, messages;
    exo_status status;
};

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    exo_array data = exo_host_array(EXO_F32, m->data, COUNT);
    m->status = exo_group_open(&group, m->comm, m->rank, NULL, NULL);
    for (size_t i = 0; i < COUNT; i++)
        m->data[i] = element(m->rank, i);
    if (m->status == EXO_OK && m->operation == EXO_ALL_REDUCE)
        m->status = exo_all_reduce(group, data, m->reduce, NULL);
    else if (m->status == EXO_OK && m->operation == EXO_REDUCE_SCATTER)
        m->status = exo_reduce_scatter(group, data, m->reduce, NULL);
    else if (m->status == EXO_OK)
        m->status = exo_all_gather(group, data, NULL);
    m->bytes = exo_group_traffic(group).payload_bytes;
    m->messages = exo_group_traffic(group).messages;
    exo_group_close(&group);
    return NULL;
}

static struct member members[MOST];

/* Runs one call among `size` members on threads. */
static void
run(const char *way, uint32_t size, exo_links *links, exo_collective operation, exo_reduce reduce)
{
    pthread_t threads[MOST];
    exo_comm *comm = NULL;
    const exo_comm_edge edge = {.name = "edge",
                                .links = links,
                                .hosts = hosts,
                                .origin = exo_now(exo_clock_real()),
                                .way = way,
                                .any_bits = true};
    cr_assert_eq(exo_comm_local_on(&comm, size, exo_clock_real(), &edge, NULL), EXO_OK);
    for (uint32_t r = 0; r < size; r++) {
        members[r] =
            (struct member){.comm = comm, .rank = r, .operation = operation, .reduce = reduce};
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
    for (uint32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    exo_comm_drop(&comm);
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(members[r].status, EXO_OK);
}

static void
expect_sums(exo_way way, uint32_t size, exo_reduce reduce)
{
    exo_links *links = two_places();
    exo_comm_ways *ways = ways_on(way, false, size, links);
    const uint32_t *order = ways->order;
    for (int scatter = 0; scatter < 2; scatter++) {
        run(exo_way_name(way), size, links, scatter ? EXO_REDUCE_SCATTER : EXO_ALL_REDUCE, reduce);
        bool direct = scatter && (way == EXO_WAY_HALVING || way == EXO_WAY_HIERARCHICAL);
        for (uint32_t r = 0; r < size; r++)
            for (size_t i = 0; i < COUNT; i++) {
                float sum = direct ? plain_sum(size, i) : expected(way, size, order, i);
                if (!scatter || shard_with(size, i) == r)
                    cr_assert_eq(members[r].data[i], reduce == EXO_MEAN ? sum / (float)size : sum,
                                 "%s of %u members, scatter %d, rank %u, element %zu",
                                 exo_way_name(way), size, scatter, r, i);
            }
    }
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
}

Test(comm_ways, each_sums_in_its_order, .timeout = 120)
{
    for (exo_way way = EXO_WAY_DIRECT; way < EXO_WAY_AUTO; way++)
        for (uint32_t size = 1; size <= MOST; size++) {
            expect_sums(way, size, EXO_SUM);
            expect_sums(way, size, EXO_MEAN);
        }
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static uint64_t
bytes_of_shard(uint32_t size, uint32_t rank)
{
    size_t first, length;
    exo_shard(COUNT, size, rank, &first, &length);
    return length * sizeof(float);
}

Test(comm_ways, a_ring_sends_each_shard_but_one_to_the_next_member)
{
    const uint64_t n = COUNT * sizeof(float);
    for (uint32_t size = 2; size <= MOST; size++) {
        run("ring", size, NULL, EXO_ALL_REDUCE, EXO_SUM); /* in the order of ranks */
        for (uint32_t r = 0; r < size; r++) {
            cr_expect_eq(members[r].bytes,
                         2 * n - bytes_of_shard(size, r) - bytes_of_shard(size, (r + 1) % size));
            cr_expect_eq(members[r].messages, 2 * (size - 1));
        }
    }
}

Test(comm_ways, a_tree_sends_all_that_others_lack_in_few_messages)
{
    const uint64_t n = COUNT * sizeof(float);
    for (uint32_t size = 2; size <= MOST; size++) {
        uint64_t sum = 0, steps = 0;
        while (1u << steps < size)
            steps++;
        run("tree", size, NULL, EXO_ALL_REDUCE, EXO_SUM);
        for (uint32_t r = 0; r < size; r++) {
            cr_expect_eq(members[r].bytes, (size - 1) * n);
            cr_expect(members[r].messages >= steps && members[r].messages <= 2 * steps);
        }
        run("tree", size, NULL, EXO_ALL_GATHER, EXO_SUM);
        for (uint32_t r = 0; r < size; r++)
            sum += members[r].bytes;
        cr_expect_eq(sum, (size - 1) * n);
    }
}

Test(comm_ways, halving_sends_what_a_ring_does_and_once_more_for_those_beyond_a_power_of_two)
{
    const uint64_t n = COUNT * sizeof(float);
    for (uint32_t size = 2; size <= MOST; size++) {
        uint32_t core = size >= 8 ? 8 : size >= 4 ? 4 : 2;
        uint64_t sum = 0;
        run("halving", size, NULL, EXO_ALL_REDUCE, EXO_SUM);
        for (uint32_t r = 0; r < size; r++)
            sum += members[r].bytes;
        cr_expect_eq(sum, 2 * (core - 1) * n + 2 * (size - core) * n);
    }
}

Test(comm_ways, islands_talk_to_each_other_once)
{
    const uint64_t n = COUNT * sizeof(float);
    for (uint32_t size = 3; size <= MOST; size++) {
        exo_links *links = two_places();
        run("hierarchical", size, links, EXO_ALL_REDUCE, EXO_SUM);
        for (uint32_t r = 0; r < size; r++) {
            uint32_t others = (size - r - 1) / 2; /* members of the island of r < 2, besides it */
            cr_expect_eq(members[r].bytes, r < 2 ? n + others * n : n, "%u of %u", r, size);
        }
        exo_links_free(&links);
    }
}

/* --- Links ------------------------------------------------------------------------------------ */

Test(comm_ways, a_ring_avoids_slow_links)
{
    exo_links *links = network(&quick);
    join(links, 0, 1, &slow);
    join(links, 2, 3, &slow);
    join(links, 4, 5, &slow);
    exo_comm_ways *ways = ways_on(EXO_WAY_RING, true, 6, links);
    const uint32_t *order = ways->order;
    bool seen[6] = {false};
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t a = order[i], b = order[(i + 1) % 6];
        cr_expect(a / 2 != b / 2, "%u and %u are neighbours", a, b);
        seen[a] = true;
    }
    for (uint32_t r = 0; r < 6; r++)
        cr_expect(seen[r]);
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
    /* between two places it crosses twice, which it must */
    links = two_places();
    ways = ways_on(EXO_WAY_RING, true, 8, links);
    order = ways->order;
    uint32_t crossings = 0;
    for (uint32_t i = 0; i < 8; i++)
        crossings += order[i] % 2 != order[(i + 1) % 8] % 2;
    cr_expect_eq(crossings, 2);
    exo_comm_ways_free(&ways);
    /* without anything declared the order is that of ranks */
    ways = ways_on(EXO_WAY_RING, true, 8, NULL);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(ways->order[i], i);
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
}

Test(comm_ways, islands_are_members_with_fast_links)
{
    static const exo_link_spec line = {
        .bandwidth = 5e9, .latency = EXO_MS / 5, .transport = EXO_LINK_IDEAL};
    exo_links *links = two_places();
    join(links, 0, 1, &line); /* one line between them does not make them one island */
    exo_comm_ways *ways = ways_on(EXO_WAY_HIERARCHICAL, false, MOST, links);
    const uint32_t *islands = ways->islands;
    for (uint32_t a = 0; a < MOST; a++)
        for (uint32_t b = 0; b < MOST; b++)
            cr_expect_eq(islands[a] == islands[b], a % 2 == b % 2);
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
    links = network(&slow);
    ways = ways_on(EXO_WAY_HIERARCHICAL, false, MOST, links);
    for (uint32_t a = 1; a < MOST; a++)
        cr_expect_eq(ways->islands[a], ways->islands[0]);
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
}

/* The end of a call on links that nothing has passed, which it frees. */
static exo_time
time_of(exo_links *links, const exo_comm_ways *ways, exo_way way, uint32_t size, size_t count)
{
    exo_time begins[MOST] = {0}, ends[MOST], scratch[2 * MOST], last = 0;
    uint64_t bytes[MOST];
    const exo_comm_edge edge = {.links = links, .hosts = hosts};
    const exo_collective_args args = {.operation = EXO_ALL_REDUCE,
                                      .count = count,
                                      .dtype = EXO_F32,
                                      .size = size,
                                      .way = way,
                                      .ways = ways};
    cr_assert_eq(exo_comm_timing(&edge, size, &args, begins, ends, scratch, bytes, NULL), EXO_OK);
    for (uint32_t r = 0; r < size; r++)
        last = ends[r] > last ? ends[r] : last;
    exo_links_free(&links);
    return last;
}

Test(comm_ways, times_on_equal_links_are_the_closed_forms)
{
    static const exo_link_spec equal = {
        .bandwidth = INFINITY, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL};
    for (uint32_t size = 2; size <= MOST; size++) {
        exo_comm_ways *ways = ways_on(EXO_WAY_AUTO, false, size, NULL);
        uint32_t steps = 0, core = 1, halvings = 0;
        while (1u << steps < size)
            steps++;
        for (; 2 * core <= size; core *= 2)
            halvings++;
        uint32_t folds = size > core;
        cr_expect_eq(time_of(network(&equal), ways, EXO_WAY_TREE, size, 10), steps * equal.latency);
        cr_expect_eq(time_of(network(&equal), ways, EXO_WAY_RING, size, 10),
                     2 * (size - 1) * equal.latency);
        cr_expect_eq(time_of(network(&equal), ways, EXO_WAY_HALVING, size, 10),
                     2 * (halvings + folds) * equal.latency);
        exo_comm_ways_free(&ways);
    }
}

static exo_way
choice(const exo_comm_ways *ways, uint32_t size, size_t count)
{
    const exo_collective_args args = {
        .operation = EXO_ALL_REDUCE, .count = count, .dtype = EXO_F32, .size = size};
    return exo_comm_ways_choose(ways, &args);
}

Test(comm_ways, the_choice_is_by_size_and_links)
{
    exo_comm_ways *ways = ways_on(EXO_WAY_AUTO, true, MOST, NULL);
    cr_expect_eq(choice(ways, MOST, 16), EXO_WAY_TREE);
    cr_expect_eq(choice(ways, MOST, 1 << 24), EXO_WAY_DIRECT, "equal bits");
    exo_comm_ways_free(&ways);
    exo_links *links = two_places();
    ways = ways_on(EXO_WAY_AUTO, false, 8, links);
    exo_way best = choice(ways, 8, 1 << 20);
    exo_time least = time_of(two_places(), ways, best, 8, 1 << 20);
    for (exo_way way = EXO_WAY_DIRECT; way < EXO_WAY_AUTO; way++) {
        exo_time time = time_of(two_places(), ways, way, 8, 1 << 20);
        cr_expect_geq(time, (exo_time)(0.9 * (double)least), "%s is faster than %s",
                      exo_way_name(way), exo_way_name(best));
    }
    exo_comm_ways_free(&ways);
    exo_links_free(&links);
}

Test(comm_ways, a_wrong_name_is_refused)
{
    exo_comm *comm = NULL;
    exo_err err = {0};
    const exo_comm_edge edge = {.name = "edge", .way = "star"};
    cr_expect_eq(exo_comm_local_on(&comm, 2, exo_clock_real(), &edge, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "not 'star'"), "%s", err.text);
    cr_expect_null(comm);
}
