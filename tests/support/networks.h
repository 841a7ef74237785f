/* Emulated networks for tests of the link model. Rates are in Mbit/s = bits per microsecond, times
 * in ns. Rounding up may cost a nanosecond per queue. For tests with Criterion. */
#ifndef EXO_TEST_NETWORKS_H
#define EXO_TEST_NETWORKS_H

#include <math.h>

#include <criterion/criterion.h>

#include "link/link.h"

#define MBIT  1e6
#define NEVER INT64_MAX

enum {
    MANY = 40 /* members: more than exo_links_exchange computes message by message */
};

/* A link without transfer time or latency. */
static const exo_link_spec wire = {.bandwidth = INFINITY, .transport = EXO_LINK_IDEAL};

/* Makes `n` hosts with these rates. The caller frees the network. */
static inline exo_links *
network(size_t n, double up, double down, const exo_link_spec *link)
{
    exo_host_spec hosts[1024];
    exo_links *l = NULL;
    exo_err err = {0};
    cr_assert_leq(n, 1024);
    for (size_t i = 0; i < n; i++)
        hosts[i] = (exo_host_spec){.up = up, .down = down};
    cr_assert_eq(exo_links_new(&l, hosts, n, link, 7, &err), EXO_OK, "%s", err.text);
    return l;
}

static inline exo_transit
sends(exo_links *l, uint32_t from, uint32_t to, uint64_t bytes, exo_time now)
{
    exo_transit t;
    exo_links_send(l, from, to, 0, bytes, now, &t);
    return t;
}

static inline exo_time
arrival(exo_links *l, uint32_t from, uint32_t to, uint64_t bytes, exo_time now)
{
    return sends(l, from, to, bytes, now).arrives;
}

/* The time that bytes take at a rate. */
static inline exo_time
takes(double bytes, double rate)
{
    return (exo_time)ceil(bytes * 8 / rate * 1e9);
}

static inline void
expect_near(exo_time got, exo_time expected, exo_time by, int line)
{
    cr_expect(got >= expected - by && got <= expected + by,
              "line %d: %lld ns, expected %lld +- %lld", line, (long long)got, (long long)expected,
              (long long)by);
}
#define NEAR(got, expected, by) expect_near(got, expected, by, __LINE__)

#endif
