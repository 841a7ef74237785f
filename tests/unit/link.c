/* Emulated networks against closed forms: messages, TCP, jitter, and what must hold whatever is
 * sent. */
#include <stdio.h>
#include <string.h>

#include <exogym/rng.h>

#include "base/memory_fault.h"
#include "support/networks.h"

#define SEGMENT 1514.0 /* bytes on the wire that carry 1,448 */

/* --- One message, and several ----------------------------------------------------------------- */

Test(link, takes_latency_and_size_over_the_smallest_rate)
{
    static const double rates[][3] = {
        {10, 100, 1000}, {100, 10, 1000}, {1000, 100, 10}, {10, 10, 10}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        exo_link_spec link = wire;
        link.bandwidth = rates[i][1] * MBIT;
        link.latency = 20 * EXO_MS;
        exo_links *l = network(2, rates[i][0] * MBIT, rates[i][2] * MBIT, &link);
        exo_transit t = sends(l, 0, 1, 1000000, 5 * EXO_MS);
        cr_expect_eq(t.starts, 5 * EXO_MS);
        cr_expect_eq(t.arrives, 25 * EXO_MS + takes(1e6, 10 * MBIT));
        cr_expect_eq(
            t.sent, 5 * EXO_MS +
                        takes(1e6, (rates[i][0] < rates[i][1] ? rates[i][0] : rates[i][1]) * MBIT));
        exo_links_free(&l);
    }
}

Test(link, latencies_of_both_hosts_add_to_that_of_the_link)
{
    const exo_host_spec hosts[] = {{.up = INFINITY, .down = INFINITY, .latency = 3 * EXO_MS},
                                   {.up = INFINITY, .down = INFINITY, .latency = 4 * EXO_MS}};
    exo_link_spec link = wire;
    exo_links *l = NULL;
    link.latency = 10 * EXO_MS;
    cr_assert_eq(exo_links_new(&l, hosts, 2, &link, 0, NULL), EXO_OK);
    cr_expect_eq(exo_links_num_hosts(l), 2);
    cr_expect_eq(arrival(l, 0, 1, 1000, 0), 17 * EXO_MS);
    exo_links_free(&l);
}

Test(link, tcp_sends_headers_of_segments)
{
    exo_link_spec link = wire;
    link.transport = EXO_LINK_TCP;
    exo_links *l = network(2, 100 * MBIT, 100 * MBIT, &link);
    cr_expect_eq(arrival(l, 0, 1, 1448, 0), takes(SEGMENT, 100 * MBIT));
    cr_expect_eq(arrival(l, 0, 1, 1449, EXO_SECOND), EXO_SECOND + takes(1449 + 2 * 66, 100 * MBIT));
    cr_expect_eq(arrival(l, 0, 1, 0, 2 * EXO_SECOND), 2 * EXO_SECOND + takes(66, 100 * MBIT));
    exo_links_free(&l);
}

/* The mean of the window over a sawtooth of TCP, segment by segment, as docs/links.md describes it:
 * from 0.7 of the queue it grows by 0.53 segments a round trip; a full queue costs 200 ms. */
static double
sawtooth(double rate, double queue)
{
    double full = fmax(4, rate * queue / 8 / SEGMENT), window = 0.7 * full, sent = 0;
    while (window < full) {
        double step = 1e-3; /* of a round trip */
        sent += window * step;
        window += 0.9 / 1.7 * step;
    }
    double seconds = sent * SEGMENT * 8 / rate;
    return rate * seconds / (seconds + 0.2);
}

Test(link, short_queues_cost_timeouts)
{
    static const struct {
        double mbit, ms;
    } cases[] = {{50, 22}, {200, 22}, {5000, 22}, {50, 100}, {1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rate = cases[i].mbit * MBIT;
        exo_time queue = (exo_time)(cases[i].ms * 1e6);
        double got = exo_link_sustained(rate, queue), expected = sawtooth(rate, cases[i].ms / 1e3);
        cr_expect_float_eq(got / expected, 1, 2e-3, "%g Mbit/s, %g ms: %g, not %g", cases[i].mbit,
                           cases[i].ms, got, expected);
        const exo_host_spec hosts[] = {{.up = rate, .down = INFINITY, .queue = queue},
                                       {.up = INFINITY, .down = INFINITY}};
        exo_links *l = NULL;
        cr_assert_eq(exo_links_new(&l, hosts, 2, &wire, 0, NULL), EXO_OK);
        NEAR(arrival(l, 0, 1, 1000000, 0), takes(1e6, got), 1);
        exo_links_free(&l);
    }
    cr_expect_eq(exo_link_sustained(MBIT, 0), MBIT, "0: no limit");
    cr_expect_eq(exo_link_sustained(INFINITY, EXO_MS), INFINITY);
}

Test(link, messages_to_itself_take_no_time)
{
    exo_links *l = network(2, MBIT, MBIT, &wire);
    exo_link_stats up, down;
    cr_expect_eq(arrival(l, 1, 1, 1000000000, 42), 42);
    exo_links_host_stats(l, 1, &up, &down);
    cr_expect_eq(up.messages, 0);
    exo_links_free(&l);
}

Test(link, messages_of_an_uplink_wait_for_each_other)
{
    exo_link_spec link = wire;
    link.latency = 5 * EXO_MS;
    exo_links *l = network(5, 10 * MBIT, 1000 * MBIT, &link);
    for (int k = 0; k < 12; k++) {
        exo_transit t = sends(l, 0, (uint32_t)(1 + k % 4), 125000, 0); /* 100 ms each */
        NEAR(t.starts, 100 * EXO_MS * k, k);
        NEAR(t.sent, 100 * EXO_MS * (k + 1), k + 1);
        NEAR(t.arrives, 100 * EXO_MS * (k + 1) + 5 * EXO_MS, k + 1);
    }
    exo_transit t = sends(l, 0, 1, 125000, 10 * EXO_SECOND); /* idle meanwhile */
    cr_expect_eq(t.starts, 10 * EXO_SECOND);
    exo_links_free(&l);
}

Test(link, each_direction_has_its_own_rate)
{
    exo_links *l = network(2, 10 * MBIT, 10 * MBIT, &wire);
    exo_time there = arrival(l, 0, 1, 125000, 0), back = arrival(l, 1, 0, 125000, 0);
    cr_expect_eq(there, 100 * EXO_MS);
    cr_expect_eq(back, 100 * EXO_MS);
    exo_links_free(&l);
}

Test(link, an_asymmetric_host_is_slower_one_way)
{
    exo_link_spec link = wire;
    link.latency = EXO_MS;
    exo_links *l = network(2, 20 * MBIT, 100 * MBIT, &link);
    const exo_host_spec server = {.name = "server", .up = 1000 * MBIT, .down = 1000 * MBIT};
    cr_assert_eq(exo_links_set_host(l, 1, &server, NULL), EXO_OK);
    cr_expect_eq(arrival(l, 0, 1, 1000000, 0), EXO_MS + takes(1e6, 20 * MBIT));
    cr_expect_eq(arrival(l, 1, 0, 1000000, 0), EXO_MS + takes(1e6, 100 * MBIT));
    exo_links_free(&l);
}

Test(link, many_into_one_share_its_downlink)
{
    exo_links *l = network(17, 100 * MBIT, 100 * MBIT, &wire);
    exo_time last = 0;
    for (uint32_t i = 1; i <= 16; i++) {
        exo_time t = arrival(l, i, 0, 125000, 0);
        last = t > last ? t : last;
    }
    NEAR(last, 160 * EXO_MS, 16);
    exo_links_free(&l);
}

Test(link, slow_uplinks_into_a_fast_downlink_do_not_wait_for_each_other)
{
    exo_links *l = network(17, 10 * MBIT, 160 * MBIT, &wire);
    for (uint32_t i = 1; i <= 16; i++)
        NEAR(arrival(l, i, 0, 125000, 0), 100 * EXO_MS, 16);
    exo_links_free(&l);
}

Test(link, what_waits_at_an_uplink_takes_nothing_from_the_downlink_yet)
{
    exo_links *l = network(3, 10 * MBIT, 10 * MBIT, &wire);
    for (int k = 0; k < 100; k++)
        sends(l, 0, 2, 125000, 0); /* they come until 10 s */
    NEAR(arrival(l, 1, 2, 1250, 50 * EXO_MS), 103 * EXO_MS,
         3 * EXO_MS); /* after the first, beside the next */
    NEAR(arrival(l, 0, 2, 125000, 60 * EXO_MS), 10101 * EXO_MS,
         200); /* and the one that overtook is paid for */
    exo_links_free(&l);
}

Test(link, a_link_of_a_pair_is_shared_by_its_messages_only)
{
    exo_link_spec link = wire;
    link.bandwidth = 10 * MBIT;
    exo_links *l = network(3, 1000 * MBIT, 1000 * MBIT, &link);
    exo_transit t;
    NEAR(arrival(l, 0, 1, 125000, 0), 100 * EXO_MS, 2);
    exo_links_send(l, 0, 1, 1, 125000, 0, &t); /* another connection, the same link */
    NEAR(t.arrives, 200 * EXO_MS, 4);
    NEAR(arrival(l, 0, 2, 125000, 0), 100 * EXO_MS, 4); /* side by side */
    NEAR(arrival(l, 1, 0, 125000, 0), 100 * EXO_MS, 2);
    exo_links_free(&l);
}

Test(link, slow_receivers_do_not_hold_up_an_uplink)
{
    exo_links *l = network(9, 800 * MBIT, 10 * MBIT, &wire);
    for (uint32_t to = 1; to < 9; to++)
        NEAR(arrival(l, 0, to, 125000, 0), 100 * EXO_MS, 10);
    exo_links_free(&l);
}

Test(link, a_short_message_shares_a_rate_with_what_it_overtakes)
{
    exo_link_spec near_by = wire, far_away = wire;
    far_away.latency = 100 * EXO_MS;
    exo_links *l = network(3, 100 * MBIT, 10 * MBIT, &far_away);
    cr_assert_eq(exo_links_between(l, 1, 2, &near_by, NULL), EXO_OK);
    NEAR(arrival(l, 0, 2, 125000, 0), 200 * EXO_MS, 4);
    NEAR(arrival(l, 1, 2, 125000, 50 * EXO_MS), 250 * EXO_MS,
         4); /* asked for later, there earlier: half, then all of it */
    NEAR(arrival(l, 1, 2, 12500, 300 * EXO_MS), 310 * EXO_MS, 4);
    exo_links_free(&l);
}

Test(link, a_pair_can_have_a_link_of_its_own)
{
    exo_link_spec slow = wire;
    slow.latency = EXO_SECOND;
    exo_links *l = network(3, INFINITY, INFINITY, &wire);
    cr_assert_eq(exo_links_between(l, 0, 2, &slow, NULL), EXO_OK);
    cr_expect_eq(arrival(l, 0, 1, 1000, 0), 0);
    cr_expect_eq(arrival(l, 0, 2, 1000, 0), EXO_SECOND);
    cr_expect_eq(arrival(l, 2, 0, 1000, 0), 0);
    slow.latency = EXO_MS;
    cr_assert_eq(exo_links_between(l, 0, 2, &slow, NULL),
                 EXO_OK); /* replaced: the order is kept all the same */
    cr_expect_eq(arrival(l, 0, 2, 1000, 0), EXO_SECOND);
    cr_expect_eq(arrival(l, 0, 2, 1000, 2 * EXO_SECOND), 2 * EXO_SECOND + EXO_MS);
    slow.latency = 7 * EXO_MS;
    cr_assert_eq(exo_links_set_fallback(l, &slow, NULL), EXO_OK);
    cr_expect_eq(arrival(l, 2, 1, 1000, 0), 7 * EXO_MS);
    exo_links_free(&l);
}

/* --- TCP -------------------------------------------------------------------------------------- */

static exo_links *
tcp_network(double rate, exo_time latency, double loss)
{
    const exo_link_spec link = {
        .bandwidth = INFINITY, .latency = latency, .loss = loss, .transport = EXO_LINK_TCP};
    return network(2, rate, rate, &link);
}

Test(link, slow_start_doubles_ten_segments_every_round_trip)
{
    const exo_time latency = 50 * EXO_MS;
    for (int rounds = 0; rounds < 6; rounds++) {
        uint64_t segments =
            10 * ((UINT64_C(1) << (rounds + 1)) - 1); /* 10, 30, 70, ... fit in so many windows */
        exo_links *l = tcp_network(INFINITY, latency, 0);
        cr_expect_eq(arrival(l, 0, 1, 1448 * segments, 0), 2 * latency * rounds + latency, "%d",
                     rounds);
        exo_links_free(&l);
        l = tcp_network(INFINITY, latency, 0);
        cr_expect_eq(arrival(l, 0, 1, 1448 * segments + 1, 0), 2 * latency * (rounds + 1) + latency,
                     "%d", rounds);
        exo_links_free(&l);
    }
}

Test(link, slow_start_ends_when_the_rate_is_reached)
{
    exo_links *l = tcp_network(100 * MBIT, 10 * EXO_MS,
                               0); /* 250 kB are under way: windows of 15, 30, 61, 121, 242 */
    exo_time first = arrival(l, 0, 1, 10000000, 0), bits = takes(10e6 * SEGMENT / 1448, 100 * MBIT);
    cr_expect_gt(first, bits + 10 * EXO_MS + 40 * EXO_MS);
    cr_expect_lt(first, bits + 10 * EXO_MS + 100 * EXO_MS);
    exo_time again = arrival(l, 0, 1, 10000000, first) - first; /* the window is open */
    NEAR(again, bits + 10 * EXO_MS, EXO_MS);
    exo_links_free(&l);
}

Test(link, without_latency_there_is_no_slow_start)
{
    exo_links *l = tcp_network(100 * MBIT, 0, 0);
    NEAR(arrival(l, 0, 1, 10000000, 0), takes(10e6 * SEGMENT / 1448, 100 * MBIT), EXO_MS);
    exo_links_free(&l);
}

Test(link, acknowledgements_take_their_share_of_the_way_back)
{
    exo_links *l = tcp_network(100 * MBIT, 0, 0);
    const exo_host_spec home = {.up = 10 * MBIT, .down = 100 * MBIT};
    cr_assert_eq(exo_links_set_host(l, 0, &home, NULL), EXO_OK);
    exo_time end = sends(l, 1, 0, 10000000, 0).sent; /* 100 Mbit/s need 2.18 for acknowledgements */
    NEAR(arrival(l, 0, 1, 250000, 0), takes(250000 * SEGMENT / 1448, (10 - 2.18) * MBIT),
         5 * EXO_MS);
    NEAR(arrival(l, 0, 1, 1448, end), end + takes(SEGMENT, 10 * MBIT),
         EXO_MS); /* they have passed, too */
    exo_links_free(&l);
}

Test(link, idle_connections_start_slowly_again)
{
    exo_links *l = tcp_network(INFINITY, 50 * EXO_MS, 0);
    const uint64_t bytes = 1448 * 1270; /* seven rounds */
    exo_time first = arrival(l, 0, 1, bytes, 0);
    cr_expect_eq(first, 650 * EXO_MS);
    exo_time soon = first + 100 * EXO_MS, late = soon + 10 * EXO_SECOND;
    cr_expect_lt(arrival(l, 0, 1, bytes, soon) - soon, 200 * EXO_MS);
    cr_expect_eq(arrival(l, 0, 1, bytes, late) - late, 650 * EXO_MS);
    exo_transit t;
    exo_links_send(l, 0, 1, 9, bytes, late, &t); /* another connection has a window of its own */
    cr_expect_eq(t.arrives - late, 650 * EXO_MS);
    exo_links_free(&l);
}

Test(link, a_window_halves_for_each_timeout_of_idleness)
{
    exo_links *l = tcp_network(INFINITY, 50 * EXO_MS, 0); /* a timeout is 300 ms */
    exo_time end = sends(l, 0, 1, 1448 * 150, 0).sent;    /* windows of 10, 20, 40, 80 */
    cr_expect_eq(end, 300 * EXO_MS);
    exo_time now = end + 2 * 300 * EXO_MS + EXO_MS; /* 80 -> 20 */
    cr_expect_eq(arrival(l, 0, 1, 1448 * 20, now) - now, 50 * EXO_MS);
    now += 10 * EXO_SECOND;
    cr_expect_eq(arrival(l, 0, 1, 1448 * 11, now) - now, 150 * EXO_MS); /* to 10, not below */
    exo_links_free(&l);
}

Test(link, connections_that_start_together_fill_what_the_others_leave)
{
    const exo_time latency = 50 * EXO_MS;
    const exo_link_spec link = {
        .bandwidth = INFINITY, .latency = latency, .transport = EXO_LINK_TCP};
    exo_links *l = network(9, 100 * MBIT, INFINITY, &link);
    exo_time alone = arrival(l, 0, 1, 1250000, 0), last = 0;
    for (uint32_t to = 1; to < 9; to++)
        last = arrival(l, 0, to, 1250000, 10 * EXO_SECOND) - 10 * EXO_SECOND;
    exo_time all = takes(8 * 1.25e6 * SEGMENT / 1448, 100 * MBIT);
    cr_expect_gt(alone, takes(1.25e6, 100 * MBIT) + 5 * latency);
    cr_expect_gt(last, all + latency);
    cr_expect_lt(last, all + 7 * latency); /* eight windows grow side by side */
    exo_links_free(&l);
}

Test(link, loss_costs_what_is_sent_again)
{
    exo_link_spec link = wire;
    link.loss = 0.2;
    exo_links *l = network(2, 10 * MBIT, 10 * MBIT, &link);
    cr_expect_eq(arrival(l, 0, 1, 1000000, 0), takes(1e6 / 0.8, 10 * MBIT));
    exo_links_free(&l);
}

Test(link, loss_limits_long_transfers_as_mathis_says)
{
    const double p = 0.001, rtt = 0.1;
    exo_links *l = tcp_network(INFINITY, 50 * EXO_MS, p);
    exo_time took = arrival(l, 0, 1, 100000000, 0);
    double rate = SEGMENT * 8 / rtt * sqrt(1.5 / p),
           expected = 100e6 * SEGMENT / 1448 / (1 - p) * 8 / rate;
    cr_expect_float_eq((double)took / 1e9, expected, 0.15 * expected, "%g s, expected %g s",
                       (double)took / 1e9, expected);
    exo_links_free(&l);
    l = tcp_network(MBIT, 50 * EXO_MS, p); /* a slow link is the limit itself */
    took = arrival(l, 0, 1, 1000000, 0);
    cr_expect_float_eq((double)took / 1e9, 1e6 * SEGMENT / 1448 / (1 - p) * 8 / MBIT, 0.3);
    exo_links_free(&l);
}

/* Connections continue under the new loss, without one and with more. */
Test(link, loss_may_change_while_connections_last)
{
    static const double losses[] = {0.02, 0, 0.2, 0.01, 0, 0};
    exo_links *l = tcp_network(30 * MBIT, 4 * EXO_MS, losses[0]);
    exo_time now = 0;
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        const exo_link_spec link = {.bandwidth = 30 * MBIT,
                                    .latency = 4 * EXO_MS,
                                    .loss = losses[i],
                                    .transport = EXO_LINK_TCP};
        cr_assert_eq(exo_links_set_fallback(l, &link, NULL), EXO_OK);
        for (int n = 0; n < 40; n++) {
            exo_time arrives = arrival(l, 0, 1, 12000, now);
            cr_expect_lt(arrives - now, EXO_SECOND, "loss %g, message %d", losses[i], n);
            now = arrives;
        }
    }
    exo_links *clean = tcp_network(30 * MBIT, 4 * EXO_MS, 0);
    for (int n = 0; n < 40; n++)
        arrival(clean, 0, 1, 12000, n * 10 * EXO_MS);
    NEAR(arrival(l, 0, 1, 12000, now) - now, arrival(clean, 0, 1, 12000, EXO_SECOND) - EXO_SECOND,
         EXO_MS);
    exo_links_free(&clean);
    exo_links_free(&l);
}

Test(link, before_the_first_loss_nothing_is_limited)
{
    exo_links *lossy = tcp_network(100 * MBIT, 50 * EXO_MS, 0.001),
              *clean = tcp_network(100 * MBIT, 50 * EXO_MS, 0);
    NEAR(arrival(lossy, 0, 1, 500000, 0), arrival(clean, 0, 1, 500000, 0), EXO_MS);
    exo_links_free(&lossy);
    exo_links_free(&clean);
}

/* --- Jitter ----------------------------------------------------------------------------------- */

Test(link, jitter_is_uniform_and_seeded)
{
    enum {
        N = 2000
    };
    exo_link_spec link = wire;
    link.latency = 10 * EXO_MS;
    link.jitter = 4 * EXO_MS;
    exo_links *l = network(3, INFINITY, INFINITY, &link),
              *same = network(3, INFINITY, INFINITY, &link);
    exo_time least = NEVER, most = 0, other = 0;
    double sum = 0;
    for (int i = 0; i < N; i++) {
        exo_time now = i * EXO_SECOND, t = arrival(l, 0, 1, 100, now) - now;
        cr_assert_eq(arrival(same, 0, 1, 100, now) - now, t);
        other += arrival(same, 0, 2, 100, now) - now == t; /* a stream for each connection */
        least = t < least ? t : least;
        most = t > most ? t : most;
        sum += (double)t;
    }
    cr_expect_geq(least, 10 * EXO_MS);
    cr_expect_lt(least, 10 * EXO_MS + 40 * EXO_US);
    cr_expect_leq(most, 14 * EXO_MS);
    cr_expect_gt(most, 14 * EXO_MS - 40 * EXO_US);
    cr_expect_float_eq(sum / N, 12e6, 1e5);
    cr_expect_lt(other, 2);
    exo_links_free(&l);
    exo_links_free(&same);
}

Test(link, jitter_keeps_the_order_of_a_connection)
{
    exo_link_spec link = wire;
    link.jitter = EXO_SECOND;
    exo_links *l = network(2, INFINITY, INFINITY, &link);
    exo_time last = 0;
    for (int i = 0; i < 100; i++) {
        exo_time t = arrival(l, 0, 1, 100, i * EXO_MS);
        cr_expect_geq(t, last);
        last = t;
    }
    exo_links_free(&l);
}

/* --- What must hold whatever is sent ---------------------------------------------------------- */

Test(link, no_rate_is_passed)
{
    enum {
        HOSTS = 6,
        N = 3000
    };
    for (uint64_t seed = 0; seed < 8; seed++) {
        const exo_link_spec link = {.bandwidth = seed & 1 ? 60 * MBIT : INFINITY,
                                    .latency = (exo_time)seed * 5 * EXO_MS,
                                    .transport = seed & 2 ? EXO_LINK_TCP : EXO_LINK_IDEAL};
        exo_links *l = network(HOSTS, 100 * MBIT, 90 * MBIT, &link);
        double up[HOSTS] = {0}, down[HOSTS] = {0};
        exo_time last_sent[HOSTS] = {0}, last[HOSTS] = {0}, now = 0;
        exo_rng rng;
        exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
        for (int i = 0; i < N; i++) {
            uint32_t from = exo_rng_below(&rng, HOSTS), to = exo_rng_below(&rng, HOSTS);
            uint64_t bytes = exo_rng_below(&rng, 200000);
            now += exo_rng_below(&rng, 2000000); /* what comes is about what can pass */
            exo_transit t = sends(l, from, to, bytes, now);
            cr_assert(t.starts >= now && t.sent >= t.starts && t.arrives >= t.sent);
            if (from == to)
                continue;
            cr_assert_geq(t.sent - t.starts, takes((double)bytes, 100 * MBIT) - 1);
            cr_assert_geq(t.arrives - now, link.latency + takes((double)bytes, 90 * MBIT) - 1);
            up[from] += (double)bytes;
            down[to] += (double)bytes;
            last_sent[from] = t.sent > last_sent[from] ? t.sent : last_sent[from];
            last[to] = t.arrives > last[to] ? t.arrives : last[to];
        }
        for (int h = 0; h < HOSTS; h++) {
            exo_link_stats s_up, s_down;
            exo_links_host_stats(l, (uint32_t)h, &s_up, &s_down);
            cr_expect_eq((double)s_up.bytes, up[h]);
            cr_expect_eq((double)s_down.bytes, down[h]);
            cr_expect_geq(s_up.busy, takes(up[h], 100 * MBIT));
            cr_expect_leq(s_up.busy, last_sent[h]);
            cr_expect_geq(last_sent[h], takes(up[h], 100 * MBIT));
            /* Less what messages that overtook others took from them: some at a time, not more and
             * more. */
            cr_expect_geq(last[h], takes(0.98 * down[h], 90 * MBIT));
        }
        exo_links_free(&l);
    }
}

Test(link, the_same_questions_get_the_same_answers)
{
    const exo_link_change change = {
        .at = EXO_MS, .length = 3 * EXO_MS, .period = 10 * EXO_MS, .factor = 0.3};
    const exo_link_spec link = {.bandwidth = 70 * MBIT,
                                .latency = 3 * EXO_MS,
                                .jitter = EXO_MS,
                                .loss = 0.002,
                                .transport = EXO_LINK_TCP,
                                .changes = &change,
                                .num_changes = 1};
    uint64_t sum = 0;
    exo_links *l[2] = {network(4, 100 * MBIT, 100 * MBIT, &link),
                       network(4, 100 * MBIT, 100 * MBIT, &link)};
    exo_rng rng;
    exo_rng_init(&rng, 3, EXO_RNG_USER, 0, 0);
    for (int i = 0; i < 1000; i++) {
        uint32_t from = exo_rng_below(&rng, 4), to = exo_rng_below(&rng, 4),
                 bytes = exo_rng_below(&rng, 100000);
        exo_transit a = sends(l[0], from, to, bytes, i * EXO_MS),
                    b = sends(l[1], from, to, bytes, i * EXO_MS);
        cr_assert(a.starts == b.starts && a.sent == b.sent && a.arrives == b.arrives);
        sum = (sum ^ (uint64_t)a.arrives) * UINT64_C(0x100000001B3);
    }
    cr_expect_eq(sum, UINT64_C(0x74137383843fadb1),
                 "%llx: other compilers and machines have the same", (unsigned long long)sum);
    exo_links_free(&l[0]);
    exo_links_free(&l[1]);
}

/* --- Mistakes, and no memory ------------------------------------------------------------------ */

Test(link, wrong_specs_are_refused_with_a_reason)
{
    static const struct {
        exo_link_spec spec;
        const char *says;
    } links[] = {
        {{.bandwidth = 0}, "the bandwidth of the fallback link is 0 bit/s"},
        {{.bandwidth = -1}, "must be positive"},
        {{.bandwidth = NAN}, "must be positive"},
        {{.bandwidth = 1, .latency = -1}, "negative latency"},
        {{.bandwidth = 1, .jitter = -1}, "negative jitter"},
        {{.bandwidth = 1, .loss = 1}, "loses 1 of its packets"},
        {{.bandwidth = 1, .loss = -0.1}, "in [0, 1)"},
        {{.bandwidth = 1, .loss = NAN}, "in [0, 1)"},
        {{.bandwidth = 1, .transport = (exo_link_transport)7}, "no transport 7"},
    };
    static const struct {
        exo_link_change change;
        const char *says;
    } changes[] = {
        {{.factor = -1}, "change 0 of the bandwidth of the fallback link has the factor -1"},
        {{.factor = NAN}, "factor"},
        {{.factor = INFINITY}, "finite"},
        {{.at = -1}, "negative time"},
        {{.length = -1}, "negative time"},
        {{.period = 5, .length = 6}, "lasts"},
        {{.period = 5, .length = 0}, "of a period of 5e-09 s"},
    };
    const exo_host_spec good = {.up = 1, .down = 1};
    exo_links *l = NULL;
    exo_err err;
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        cr_expect_eq(exo_links_new(&l, &good, 1, &links[i].spec, 0, &err), EXO_INVAL);
        cr_expect(strstr(err.text, links[i].says), "%s", err.text);
        cr_expect_null(l);
    }
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        exo_link_spec spec = wire;
        spec.changes = &changes[i].change;
        spec.num_changes = 1;
        cr_expect_eq(exo_links_new(&l, &good, 1, &spec, 0, &err), EXO_INVAL);
        cr_expect(strstr(err.text, changes[i].says), "%s", err.text);
    }
    static const struct {
        exo_host_spec spec;
        const char *says;
    } hosts[] = {{{.name = "home", .up = 0, .down = 1}, "the rate up of host 'home' is 0 bit/s"},
                 {{.up = 1, .down = -2}, "the rate down of host 0 is -2 bit/s"},
                 {{.up = 1, .down = 1, .latency = -5}, "host 0 has a negative latency"},
                 {{.up = 1, .down = 1, .queue = -5}, "host 0 has a negative queue"}};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        cr_expect_eq(exo_links_new(&l, &hosts[i].spec, 1, &wire, 0, &err), EXO_INVAL);
        cr_expect(strstr(err.text, hosts[i].says), "%s", err.text);
    }
    cr_expect_eq(exo_links_new(&l, &good, 0, &wire, 0, &err), EXO_INVAL);
    l = network(2, MBIT, MBIT, &wire);
    const bool side[] = {true, false};
    cr_expect_eq(exo_links_between(l, 0, 2, &wire, &err), EXO_INVAL);
    cr_expect_eq(exo_links_between(l, 1, 1, &wire, &err), EXO_INVAL);
    cr_expect_eq(exo_links_between(l, 0, 1, &links[0].spec, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "the link from host 0 to host 1"), "%s", err.text);
    cr_expect_eq(exo_links_set_host(l, 2, &good, &err), EXO_INVAL);
    cr_expect_eq(exo_links_set_host(l, 1, &hosts[1].spec, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "host 1"), "%s", err.text);
    cr_expect_eq(exo_links_set_fallback(l, &links[0].spec, &err), EXO_INVAL);
    cr_expect_eq(exo_links_partition(l, side, 5, 5, &err), EXO_INVAL);
    cr_expect_eq(arrival(l, 0, 1, 125000, 0), EXO_SECOND, "nothing has changed");
    exo_links_free(&l);
}

static exo_status
use_all(exo_err *err)
{
    const exo_link_change change = {.at = EXO_SECOND, .factor = 0.5};
    const exo_host_spec host = {
        .up = 100 * MBIT, .down = 100 * MBIT, .changes = &change, .num_changes = 1};
    exo_host_spec hosts[] = {host, host, host};
    exo_link_spec link = {
        .bandwidth = 50 * MBIT, .transport = EXO_LINK_TCP, .changes = &change, .num_changes = 1};
    const bool side[] = {true, false, false};
    exo_links *l = NULL;
    exo_status st = exo_links_new(&l, hosts, 3, &link, 1, err);
    if (st == EXO_OK)
        st = exo_links_between(l, 0, 1, &link, err);
    if (st == EXO_OK)
        st = exo_links_set_host(l, 1, &host, err);
    if (st == EXO_OK)
        st = exo_links_set_fallback(l, &link, err);
    if (st == EXO_OK)
        st = exo_links_partition(l, side, 5, 6, err);
    if (st == EXO_OK) { /* needs no memory to tell a time */
        NEAR(arrival(l, 0, 1, 1448 * 10, 10), takes(SEGMENT * 10, 50 * MBIT), 20);
        NEAR(arrival(l, 2, 1, 1448 * 10, 10), takes(SEGMENT * 10, 50 * MBIT), 20);
        const uint32_t on[] = {0, 1, 2};
        const uint64_t bytes[] = {1, 2, 3};
        const exo_time begins[] = {100, 100, 100};
        exo_time ends[3];
        st = exo_links_exchange(l, EXO_EXCHANGE_GATHER, 3, on, 0, bytes, begins, ends, NULL, err);
    }
    exo_links_free(&l);
    cr_expect_null(l);
    exo_links_free(&l);
    return st;
}

Test(link, without_memory_it_says_so_or_goes_on)
{
    exo_err err = {0};
    uint64_t before = exo_memory_allocations();
    cr_assert_eq(use_all(&err), EXO_OK, "%s", err.text);
    uint64_t count = exo_memory_allocations() - before;
    for (uint64_t n = 1; n <= count; n++) {
        exo_memory_fail_at(n);
        exo_status st = use_all(&err);
        exo_memory_fail_at(0);
        cr_expect(st == EXO_NOMEM || st == EXO_OK, "allocation %d: %s", (int)n, err.text);
        cr_expect(st != EXO_NOMEM || strstr(err.text, "no memory"), "%s", err.text);
    }
}
