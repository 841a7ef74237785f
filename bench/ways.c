/* The time of an all_reduce of fp32 by each way of its messages on declared links, as the virtual
 * clock has it, on connections that nothing has passed. docs/collectives.md has the table.
 *
 *     bench_ways
 *
 * prints for each network and size the milliseconds of each way, and the way that `auto` takes with
 * and without equal bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <exogym/units.h>

#include "comm/timing.h"
#include "comm/ways.h"

enum {
    MEMBERS = 8
};

static uint32_t hosts[MEMBERS];

static void
check(exo_status st)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "bench_ways: %s\n", exo_status_text(st));
    exit(EXIT_FAILURE);
}

static exo_links *
new_links(double access, const exo_link_spec *fallback)
{
    exo_host_spec specs[MEMBERS];
    exo_links *links = NULL;
    for (uint32_t r = 0; r < MEMBERS; r++)
        specs[r] = (exo_host_spec){.up = access, .down = access};
    check(exo_links_new(&links, specs, MEMBERS, fallback, 1, NULL));
    return links;
}

static void
join(exo_links *links, uint32_t a, uint32_t b, const exo_link_spec *spec)
{
    check(exo_links_between(links, a, b, spec, NULL));
    check(exo_links_between(links, b, a, spec, NULL));
}

static exo_links *
local_network(void)
{
    const exo_link_spec link = {.bandwidth = INFINITY, .latency = EXO_MS / 10};
    return new_links(1e9, &link);
}

/* Two places of four members; each member has 1 Gbit/s, and each pair of members 20 Mbit/s between
 * the places. */
static exo_links *
two_places(void)
{
    const exo_link_spec wide = {.bandwidth = 20e6, .latency = 20 * EXO_MS},
                        near = {.bandwidth = INFINITY, .latency = EXO_MS / 10};
    exo_links *links = new_links(1e9, &wide);
    for (uint32_t a = 0; a < MEMBERS; a++)
        for (uint32_t b = a + 2; b < MEMBERS; b += 2)
            join(links, a, b, &near);
    return links;
}

/* The links between members 0 and 1, 2 and 3, and so on have a twentieth of the others' rate. */
static exo_links *
slow_pairs(void)
{
    const exo_link_spec good = {.bandwidth = 200e6, .latency = 5 * EXO_MS},
                        bad = {.bandwidth = 10e6, .latency = 5 * EXO_MS};
    exo_links *links = new_links(1e9, &good);
    for (uint32_t a = 0; a < MEMBERS; a += 2)
        join(links, a, a + 1, &bad);
    return links;
}

/* Two places of four members with 10 Mbit/s between each pair, but 1 Gbit/s between the first two
 * members. */
static exo_links *
one_line(void)
{
    const exo_link_spec poor = {.bandwidth = 10e6, .latency = 20 * EXO_MS},
                        near = {.bandwidth = INFINITY, .latency = EXO_MS / 10},
                        line = {.bandwidth = 1e9, .latency = 5 * EXO_MS};
    exo_links *links = new_links(1e9, &poor);
    for (uint32_t a = 0; a < MEMBERS; a++)
        for (uint32_t b = a + 2; b < MEMBERS; b += 2)
            join(links, a, b, &near);
    join(links, 0, 1, &line);
    return links;
}

static double
time_of(exo_links *(*make)(void), const exo_comm_ways *ways, exo_way way, size_t count)
{
    exo_time begins[MEMBERS] = {0}, ends[MEMBERS], scratch[2 * MEMBERS], last = 0;
    uint64_t bytes[MEMBERS];
    exo_links *links = make();
    const exo_comm_edge edge = {.links = links, .hosts = hosts};
    exo_collective_args args = {.operation = EXO_ALL_REDUCE,
                                .count = count,
                                .dtype = EXO_F32,
                                .size = MEMBERS,
                                .way = way,
                                .ways = ways};
    check(exo_comm_timing(&edge, MEMBERS, &args, begins, ends, scratch, bytes, NULL));
    for (uint32_t r = 0; r < MEMBERS; r++)
        last = ends[r] > last ? ends[r] : last;
    exo_links_free(&links);
    return (double)last / (double)EXO_MS;
}

static void
print_network(const char *name, exo_links *(*make)(void))
{
    static const size_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
    exo_links *links = make();
    printf("%s\n%10s", name, "bytes");
    for (int way = EXO_WAY_DIRECT; way < EXO_WAY_AUTO; way++)
        printf(" %12s", exo_way_name((exo_way)way));
    printf(" %12s %12s\n", "auto", "any bits");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t count = sizes[s] / sizeof(float);
        const exo_collective_args args = {
            .operation = EXO_ALL_REDUCE, .count = count, .dtype = EXO_F32, .size = MEMBERS};
        exo_way chosen[2];
        printf("%10zu", sizes[s]);
        for (int any = 0; any < 2; any++) {
            exo_comm_ways *ways = NULL;
            check(exo_comm_ways_new(&ways, EXO_WAY_AUTO, !any, MEMBERS, links, hosts, NULL));
            chosen[any] = exo_comm_ways_choose(ways, &args);
            for (int way = EXO_WAY_DIRECT; any && way < EXO_WAY_AUTO; way++)
                printf(" %12.2f", time_of(make, ways, (exo_way)way, count));
            exo_comm_ways_free(&ways);
        }
        printf(" %12s %12s\n", exo_way_name(chosen[0]), exo_way_name(chosen[1]));
    }
    exo_links_free(&links);
}

int
main(void)
{
    for (uint32_t r = 0; r < MEMBERS; r++)
        hosts[r] = r;
    print_network("8 members, 1 Gbit/s each, 0.1 ms", local_network);
    print_network("two places of 4, 20 Mbit/s and 20 ms between each pair", two_places);
    print_network(
        "two places of 4, 10 Mbit/s and 20 ms between pairs, but 1 Gbit/s between two members",
        one_line);
    print_network("pairs at 10 Mbit/s, all others at 200 Mbit/s, 5 ms", slow_pairs);
    return EXIT_SUCCESS;
}
