/* Exchanges over emulated networks, what collectives send: against their messages, and both ways to
 * take them against each other. */
#include <string.h>

#include "support/networks.h"

struct exchange {
    uint32_t hosts[1024];
    uint64_t bytes[1024];
    exo_time begins[1024], ends[1024], sent[1024];
};

static struct exchange x;

static void
exchange(exo_links *l, exo_exchange kind, uint32_t n, uint64_t bytes, exo_time begins)
{
    exo_err err = {0};
    for (uint32_t i = 0; i < n; i++) {
        x.hosts[i] = i;
        x.bytes[i] = bytes;
        x.begins[i] = begins;
    }
    cr_assert_eq(
        exo_links_exchange(l, kind, n, x.hosts, 0, x.bytes, x.begins, x.ends, x.sent, &err), EXO_OK,
        "%s", err.text);
}

/* The same with exo_links_send, in the order in which far.c sends: gives when the last one has
 * arrived. */
static exo_time
one_by_one(exo_links *l, uint32_t n, uint64_t bytes, exo_time now)
{
    exo_time last = 0;
    for (uint32_t k = 1; k < n; k++)
        for (uint32_t i = 0; i < n; i++) {
            exo_time t = arrival(l, i, (i + k) % n, bytes, now);
            last = t > last ? t : last;
        }
    return last;
}

Test(link_exchange, an_exchange_is_its_messages)
{
    static const uint32_t sizes[] = {2, 3, 8, MANY};
    static const exo_link_transport transports[] = {EXO_LINK_IDEAL, EXO_LINK_TCP};
    for (int t = 0; t < 2; t++)
        for (int s = 0; s < 4; s++)
            for (int kind = 0; kind < 2; kind++)
                for (int down = 0; down < 2; down++) {
                    uint32_t n = sizes[s];
                    exo_link_spec link = {
                        .bandwidth = INFINITY, .latency = 20 * EXO_MS, .transport = transports[t]};
                    double rate = down ? 50 * MBIT : 1000 * MBIT;
                    exo_links *a = network(n, 100 * MBIT, rate, &link),
                              *b = network(n, 100 * MBIT, rate, &link);
                    for (int round = 0; round < 3; round++) {
                        exo_time now = round * 100 * EXO_MS + (round == 2 ? 60 * EXO_SECOND : 0);
                        exchange(a, (exo_exchange)kind, n, 100000, now);
                        exo_time last = one_by_one(b, n, 100000, now);
                        exo_time took =
                            last - now; /* acknowledgements asked for one by one lie elsewhere */
                        for (uint32_t i = 0; i < n; i++)
                            NEAR(x.ends[i], last, transports[t] == EXO_LINK_TCP ? took / 40 : 100);
                    }
                    exo_links_free(&a);
                    exo_links_free(&b);
                }
}

/* A link of its own for a pair that does not take part makes the network a mixed one. */
static exo_links *
mixed(uint32_t n, double up, double down, const exo_link_spec *link)
{
    exo_links *l = network(n + 2, up, down, link);
    cr_assert_eq(exo_links_between(l, n, n + 1, link, NULL), EXO_OK);
    return l;
}

Test(link_exchange, both_ways_to_take_an_exchange_agree)
{
    static const exo_link_transport transports[] = {EXO_LINK_IDEAL, EXO_LINK_TCP};
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < 2; kind++)
            for (int shape = 0; shape < 3; shape++) { /* even, a slow uplink, late beginnings */
                const exo_link_spec link = {.bandwidth = 40 * MBIT,
                                            .latency = 3 * EXO_MS,
                                            .transport = transports[t],
                                            .loss = 0.01};
                exo_links *a = network(MANY, 100 * MBIT, 80 * MBIT, &link);
                exo_links *b = mixed(MANY, 100 * MBIT, 80 * MBIT, &link);
                static struct exchange y;
                const exo_host_spec slow = {.up = 20 * MBIT, .down = 30 * MBIT, .latency = EXO_MS};
                if (shape == 1) {
                    cr_assert_eq(exo_links_set_host(a, 5, &slow, NULL), EXO_OK);
                    cr_assert_eq(exo_links_set_host(b, 5, &slow, NULL), EXO_OK);
                }
                for (uint32_t i = 0; i < MANY; i++) {
                    x.hosts[i] = i;
                    x.bytes[i] = 40000;
                    x.begins[i] = shape == 2 ? (exo_time)((i * 17) % MANY) * EXO_MS : 0;
                }
                y = x;
                cr_assert_eq(exo_links_exchange(a, (exo_exchange)kind, MANY, x.hosts, 0, x.bytes,
                                                x.begins, x.ends, x.sent, NULL),
                             EXO_OK);
                cr_assert_eq(exo_links_exchange(b, (exo_exchange)kind, MANY, y.hosts, 0, y.bytes,
                                                y.begins, y.ends, y.sent, NULL),
                             EXO_OK);
                for (uint32_t i = 0; i < MANY; i++) {
                    exo_time by = shape == 0 ? 100 : x.ends[i] / 50;
                    NEAR(x.ends[i], y.ends[i], by);
                    NEAR(x.sent[i], y.sent[i], by);
                }
                exo_links_free(&a);
                exo_links_free(&b);
            }
}

static exo_time
exchange_takes(exo_links *l, uint32_t n, uint64_t bytes, exo_time begins)
{
    exchange(l, EXO_EXCHANGE_SCATTER, n, bytes, begins);
    return x.ends[0] - begins;
}

/* What others send over the same connections leaves them as warm as what goes over these links. */
Test(link_exchange, connections_that_others_use_are_warm)
{
    static const uint32_t sizes[] = {3, 8, MANY};
    for (int s = 0; s < 3; s++)
        for (int lossy = 0; lossy < 2; lossy++)
            for (uint64_t others = 10000; others <= 1000000; others *= 10) {
                uint32_t n = sizes[s];
                exo_link_spec link = {.bandwidth = INFINITY,
                                      .latency = 20 * EXO_MS,
                                      .transport = EXO_LINK_TCP,
                                      .loss = lossy ? 1e-4 : 0};
                exo_links *used = network(n, 100 * MBIT, 100 * MBIT, &link),
                          *warm = network(n, 100 * MBIT, 100 * MBIT, &link),
                          *cold = network(n, 100 * MBIT, 100 * MBIT, &link);
                exo_time soon = exchange_takes(used, n, others, 0) + 100 * EXO_MS,
                         later = soon + 5 * EXO_SECOND;
                for (uint32_t i = 0; i < n; i++)
                    exo_links_warm(warm, n, x.hosts, 0, i, others, soon - 100 * EXO_MS);
                exo_link_stats up, down;
                exo_links_host_stats(warm, 0, &up, &down);
                cr_expect(up.bytes == 0 && up.busy == 0 && down.messages == 0);
                exo_time a = exchange_takes(used, n, 200000, soon),
                         b = exchange_takes(warm, n, 200000, soon),
                         c = exchange_takes(cold, n, 200000, soon);
                if (!lossy ||
                    others <
                        1000000) { /* where the one has lost something, and the other has not */
                    NEAR(b, a, a / 100);
                }
                cr_expect(n == MANY ? b <= c + 1 : b < c, "%u: %lld, cold %lld", n, (long long)b,
                          (long long)c);
                NEAR(exchange_takes(warm, n, 200000, later), exchange_takes(cold, n, 200000, later),
                     EXO_MS);
                exo_links_free(&used);
                exo_links_free(&warm);
                exo_links_free(&cold);
            }
}

Test(link_exchange, an_exchange_waits_for_the_last_one)
{
    exo_links *l = network(3, 100 * MBIT, 100 * MBIT, &wire);
    const uint32_t hosts[] = {0, 1, 2};
    const uint64_t bytes[] = {125000, 125000, 125000}; /* 10 ms each */
    const exo_time begins[] = {0, 0, EXO_SECOND};
    exo_time ends[3], sent[3];
    cr_assert_eq(
        exo_links_exchange(l, EXO_EXCHANGE_GATHER, 3, hosts, 0, bytes, begins, ends, sent, NULL),
        EXO_OK);
    NEAR(ends[0], EXO_SECOND + 20 * EXO_MS, 10);
    NEAR(ends[1], EXO_SECOND + 20 * EXO_MS, 10);
    cr_expect_eq(ends[2], EXO_SECOND); /* it has got all long ago */
    NEAR(sent[0], 20 * EXO_MS, 10);
    NEAR(sent[2], EXO_SECOND + 20 * EXO_MS, 10);
    exo_links_free(&l);
}

Test(link_exchange, small_messages_of_an_exchange_are_through_earlier)
{
    exo_links *l = network(3, 8 * MBIT, 800 * MBIT, &wire); /* 1 kB a ms */
    const uint32_t hosts[] = {0, 1, 2};
    const uint64_t bytes[] = {100000, 100000, 1000};
    const exo_time begins[] = {0, 0, 0};
    exo_time ends[3];
    cr_assert_eq(
        exo_links_exchange(l, EXO_EXCHANGE_SCATTER, 3, hosts, 0, bytes, begins, ends, NULL, NULL),
        EXO_OK);
    NEAR(ends[2], 2 * EXO_MS, 1000);   /* beside 1 kB of the other message */
    NEAR(ends[0], 200 * EXO_MS, 1000); /* from 2, which sends both of them */
    exo_links_free(&l);
}

Test(link_exchange, members_on_one_host_share_its_uplink)
{
    exo_links *l = network(2, 10 * MBIT, 1000 * MBIT, &wire);
    const uint32_t hosts[] = {0, 0, 1};
    const uint64_t bytes[] = {12500, 12500, 12500}; /* 10 ms each */
    const exo_time begins[] = {0, 0, 0};
    exo_time ends[3];
    cr_assert_eq(
        exo_links_exchange(l, EXO_EXCHANGE_GATHER, 3, hosts, 0, bytes, begins, ends, NULL, NULL),
        EXO_OK);
    NEAR(ends[2], 20 * EXO_MS, 10);
    NEAR(ends[0], 20 * EXO_MS, 10);
    exo_links_free(&l);
}

Test(link_exchange, exchanges_of_one_or_none_are_over_at_once)
{
    exo_links *l = network(2, MBIT, MBIT, &wire);
    exchange(l, EXO_EXCHANGE_SCATTER, 1, 1000000, 5);
    cr_expect_eq(x.ends[0], 5);
    cr_expect_eq(x.sent[0], 5);
    exchange(l, EXO_EXCHANGE_SCATTER, 0, 1000000, 5);
    exo_links_free(&l);
}

Test(link_exchange, exchanges_through_outages_end_after_them_or_never)
{
    const exo_link_change outage = {.at = 0, .length = EXO_SECOND}, for_ever = {.at = 0};
    exo_host_spec host = {
        .up = 100 * MBIT, .down = 100 * MBIT, .changes = &outage, .num_changes = 1};
    exo_links *l = network(MANY, 100 * MBIT, 100 * MBIT, &wire);
    cr_assert_eq(exo_links_set_host(l, 3, &host, NULL), EXO_OK);
    exchange(l, EXO_EXCHANGE_GATHER, MANY, 10000, 0);
    cr_expect_gt(x.ends[0], EXO_SECOND);
    cr_expect_lt(x.ends[0], EXO_SECOND + 100 * EXO_MS);
    host.changes = &for_ever;
    cr_assert_eq(exo_links_set_host(l, 3, &host, NULL), EXO_OK);
    exchange(l, EXO_EXCHANGE_GATHER, MANY, 10000, 10 * EXO_SECOND);
    cr_expect_eq(x.ends[0], NEVER);
    cr_expect_eq(x.ends[3], NEVER);
    exo_links_free(&l);
}
