/* Measured links: over emulated ones whose rates are known, the slow ones are found slow, rings avoid
 * them, and islands are where links are fast. All members have the same figures. Times are not
 * asserted: other programs may delay messages, so a test measures again until it sees the order that
 * it looks for.
 *
 * Each test owns its members; each member's thread owns its `struct member`. Read next:
 * runtime/comm/far_measure.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <exogym/exogym.h>

#include "comm/backend.h"
#include "comm/far.h"
#include "support/far_members.h"

enum {
    MOST = 7,
    ATTEMPTS = 20
};

static const uint32_t hosts[MOST] = {0, 1, 2, 3, 4, 5, 6};
/* 100 times the rate of the slow one */
static const exo_link_spec quick = {
    .bandwidth = 1e9, .latency = EXO_MS / 10, .transport = EXO_LINK_IDEAL};
static const exo_link_spec slow = {
    .bandwidth = 1e7, .latency = EXO_MS / 10, .transport = EXO_LINK_IDEAL};
static const exo_link_spec remote = {
    .bandwidth = 2e7, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL};

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

/* --- Members ---------------------------------------------------------------------------------- */

struct member {
    exo_comm *comm;
    uint32_t rank;
    exo_time deadline;
    exo_link_figure row[MOST];
    exo_status status;
    exo_err err;
    float sum[100];
};

static void *
member_main(void *argument)
{
    struct member *m = argument;
    m->status = exo_comm_far_measure(m->comm, m->deadline, m->row, &m->err);
    return NULL;
}

static void
run_all(struct member members[MOST], uint32_t size, void *(*body)(void *))
{
    pthread_t threads[MOST];
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, body, &members[r]), 0);
    for (uint32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(members[r].status, EXO_OK, "rank %u: %s", r, members[r].err.text);
}

/* Measures over the links; NULL: none. */
static void
measure(exo_links *links, uint32_t size, exo_link_figure figures[MOST * MOST])
{
    const exo_comm_edge edge = {
        .name = "edge", .links = links, .hosts = hosts, .origin = exo_now(exo_clock_real())};
    struct member members[MOST];
    far_members far;
    far_members_open(&far, size, links ? &edge : NULL);
    for (uint32_t r = 0; r < size; r++)
        members[r] = (struct member){.comm = far.comms[r],
                                     .deadline = exo_deadline(exo_clock_real(), 120 * EXO_SECOND)};
    run_all(members, size, member_main);
    for (uint32_t r = 0; r < size; r++)
        memcpy(figures + r * size, members[r].row, size * sizeof *figures);
    exo_comm_far_merge(size, figures, figures);
    far_members_close(&far);
}

static exo_comm_ways *
ways_of(exo_way way, uint32_t size, const exo_link_figure *figures)
{
    exo_comm_ways *ways = NULL;
    cr_assert_eq(exo_comm_ways_new(&ways, way, false, size, NULL, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_comm_ways_measured(ways, figures, NULL), EXO_OK);
    return ways;
}

static bool
are_neighbours(const exo_comm_ways *ways, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < ways->size; i++) {
        uint32_t here = ways->order[i], next = ways->order[(i + 1) % ways->size];
        if ((here == a && next == b) || (here == b && next == a))
            return true;
    }
    return false;
}

/* --- Measuring -------------------------------------------------------------------------------- */

/* Each member meets each other one: with even and odd numbers of members, all figures are there. */
Test(comm_measure, every_pair_is_measured, .timeout = 300)
{
    exo_link_figure figures[MOST * MOST];
    for (uint32_t size = 1; size <= MOST; size++) {
        memset(figures, 0, sizeof figures);
        measure(NULL, size, figures);
        for (uint32_t a = 0; a < size; a++)
            for (uint32_t b = 0; b < size; b++) {
                const exo_link_figure *f = &figures[a * size + b];
                cr_expect(a == b ? f->rate == 0 : f->rate > 0 && isfinite(f->rate));
                cr_expect(a == b ? f->latency == 0 : f->latency > 0);
                cr_expect_eq(f->latency, figures[b * size + a].latency);
            }
    }
}

/* The pair of ranks 1 and 2 is 100 times as slow as the others, in one direction after the other. No
 * message is faster than its link, so the slow figures are never too high. */
Test(comm_measure, a_slow_pair_is_found_and_a_ring_avoids_it, .timeout = 300)
{
    enum {
        SIZE = 5
    };
    exo_link_figure figures[MOST * MOST];
    bool found = false;
    for (int i = 0; i < ATTEMPTS && !found; i++) {
        exo_links *links = network(&quick);
        join(links, 1, 2, &slow);
        measure(links, SIZE, figures);
        exo_links_free(&links);
        const double there = figures[1 * SIZE + 2].rate, back = figures[2 * SIZE + 1].rate;
        double least = INFINITY;
        for (uint32_t a = 0; a < SIZE; a++)
            for (uint32_t b = 0; b < SIZE; b++)
                if (a != b && a + b != 3)
                    least = fmin(least, figures[a * SIZE + b].rate);
        exo_comm_ways *ways = ways_of(EXO_WAY_RING, SIZE, figures);
        /* 10 Mbit/s, within a factor of 2; the others have at least 10 times as much */
        found = there > 5e6 && there < 2e7 && back > 5e6 && back < 2e7 &&
                least > 10 * fmax(there, back) && !are_neighbours(ways, 1, 2);
        exo_comm_ways_free(&ways);
    }
    cr_expect(found, "10 Mbit/s: %g and %g", figures[1 * SIZE + 2].rate,
              figures[2 * SIZE + 1].rate);
}

/* A link that is slow in one direction only is found in that direction. */
Test(comm_measure, directions_are_measured_apart, .timeout = 300)
{
    exo_link_figure figures[MOST * MOST];
    bool found = false;
    for (int i = 0; i < ATTEMPTS && !found; i++) {
        exo_links *links = network(&quick);
        cr_assert_eq(exo_links_between(links, 1, 0, &slow, NULL), EXO_OK);
        measure(links, 2, figures);
        exo_links_free(&links);
        found = figures[1].rate > 10 * figures[2].rate && figures[2].rate < 2e7;
    }
    cr_expect(found, "%g and %g", figures[1].rate, figures[2].rate);
}

/* Members of even and of odd ranks are near each other: they are islands. Latencies are at least the
 * declared ones. */
Test(comm_measure, islands_are_found, .timeout = 300)
{
    enum {
        SIZE = 6
    };
    exo_link_figure figures[MOST * MOST];
    bool found = false;
    for (int i = 0; i < ATTEMPTS && !found; i++) {
        exo_links *links = network(&remote);
        for (uint32_t a = 0; a < SIZE; a++)
            for (uint32_t b = a + 2; b < SIZE; b += 2)
                join(links, a, b, &quick);
        measure(links, SIZE, figures);
        exo_links_free(&links);
        found = true;
        exo_comm_ways *ways = ways_of(EXO_WAY_HIERARCHICAL, SIZE, figures);
        for (uint32_t a = 0; a < SIZE; a++)
            for (uint32_t b = 0; b < SIZE; b++) {
                found = found && (ways->islands[a] == ways->islands[b]) == (a % 2 == b % 2);
                cr_expect(a % 2 == b % 2 || figures[a * SIZE + b].latency >= 10e-3);
            }
        exo_comm_ways_free(&ways);
    }
    cr_expect(found);
}

/* A rate up or down is that of the best link. Figures that differ by less than noise leave the ranks
 * in their order, and one island. */
Test(comm_measure, figures_decide_rates_order_and_islands)
{
    enum {
        SIZE = 4
    };
    exo_link_figure figures[SIZE * SIZE] = {0};
    for (uint32_t a = 0; a < SIZE; a++)
        for (uint32_t b = 0; b < SIZE; b++)
            if (a != b)
                figures[a * SIZE + b] =
                    (exo_link_figure){.rate = 1e9 + 1e8 * ((a * 5 + b * 3) % 4), .latency = 1e-4};
    exo_comm_ways *ways = ways_of(EXO_WAY_AUTO, SIZE, figures);
    for (uint32_t r = 0; r < SIZE; r++) {
        cr_expect_eq(ways->order[r], r);
        cr_expect_eq(ways->islands[r], ways->islands[0]);
    }
    const exo_link_speed s = ways->speeds[0 * SIZE + 1];
    cr_expect_eq(s.between, figures[1].rate);
    cr_expect_eq(s.latency, 1e-4);
    cr_expect_eq(s.up, fmax(fmax(figures[1].rate, figures[2].rate), figures[3].rate));
    cr_expect_eq(s.down, fmax(fmax(figures[1].rate, figures[9].rate), figures[13].rate));
    exo_comm_ways_free(&ways);
}

/* --- Following -------------------------------------------------------------------------------- */

static void *
sum_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    m->status = exo_comm_far_measure(m->comm, m->deadline, m->row, &m->err);
    exo_link_figure figures[4 * 4];
    for (uint32_t i = 0; i < 16; i++) /* 0 and 1 are far from each other, as 2 and 3 */
        figures[i] = (exo_link_figure){i % 4 / 2 == i / 4 / 2 ? 1e6 : 1e9, 1e-4};
    if (m->status == EXO_OK)
        m->status = exo_comm_follow(m->comm, figures, &m->err);
    if (m->status == EXO_OK)
        m->status = exo_group_open(&group, m->comm, m->rank, "member", &m->err);
    for (size_t i = 0; i < 100; i++)
        m->sum[i] = (float)((i * 7919 + m->rank * 104729) % 20011) / 997;
    if (m->status == EXO_OK)
        m->status = exo_all_reduce(group, exo_host_array(EXO_F32, m->sum, 100), EXO_SUM, &m->err);
    exo_group_close(&group);
    return NULL;
}

/* A communicator that has measured makes its calls as before, and its ring goes by the figures: the
 * bits are those of the ring 0, 2, 1, 3, which threads add up that have the same figures. */
Test(comm_measure, calls_follow_the_figures, .timeout = 120)
{
    struct member members[MOST];
    far_members far;
    const exo_comm_edge edge = {.name = "edge", .way = "ring", .any_bits = true};
    far_members_open(&far, 4, &edge);
    for (uint32_t r = 0; r < 4; r++)
        members[r] = (struct member){.comm = far.comms[r],
                                     .rank = r,
                                     .deadline = exo_deadline(exo_clock_real(), 60 * EXO_SECOND)};
    run_all(members, 4, sum_main);
    const uint32_t expected[] = {0, 2, 1, 3};
    cr_expect_arr_eq(far.comms[3]->ways->order, expected, sizeof expected);
    far_members_close(&far);
    for (size_t i = 0; i < 100; i++) {
        float x[4], sum;
        uint32_t owner = (uint32_t)(i / 25), at = 0;
        for (uint32_t r = 0; r < 4; r++)
            x[r] = (float)((i * 7919 + r * 104729) % 20011) / 997;
        while (expected[at] != owner)
            at++;
        sum = x[expected[(at + 1) % 4]];
        for (uint32_t k = 2; k <= 4; k++)
            sum += x[expected[(at + k) % 4]];
        for (uint32_t r = 0; r < 4; r++)
            cr_expect(memcmp(&members[r].sum[i], &sum, sizeof sum) == 0);
    }
}

/* A member that does not come, and too many members. */
Test(comm_measure, errors_name_the_cause, .timeout = 120)
{
    exo_link_figure row[MOST];
    exo_err err = {0};
    far_members far;
    far_members_open(&far, 2, NULL);
    exo_time soon = exo_deadline(exo_clock_real(), 20 * EXO_MS);
    cr_expect_eq(exo_comm_far_measure(far.comms[0], soon, row, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "measuring the links") && strstr(err.text, "node_1"), "%s",
              err.text);
    far_members_close(&far);

    exo_comm_ways *ways = NULL;
    cr_assert_eq(exo_comm_ways_new(&ways, EXO_WAY_RING, false, 65, NULL, NULL, NULL), EXO_OK);
    cr_expect_eq(exo_comm_ways_measured(ways, row, &err), EXO_UNSUPPORTED);
    exo_comm_ways_free(&ways);
}
