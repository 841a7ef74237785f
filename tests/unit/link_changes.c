/* Emulated networks that change: schedules, outages, partitions. */
#include "support/networks.h"

static exo_links *
with_change(exo_link_change change, double rate)
{
    exo_link_spec spec = wire;
    spec.bandwidth = rate;
    spec.changes = &change;
    spec.num_changes = 1;
    return network(2, INFINITY, INFINITY, &spec);
}

Test(link_changes, a_slower_time_is_integrated)
{
    /* 10 Mbit/s, a tenth of it from 100 ms to 300 ms: 100 ms + 20 ms + the rest. */
    exo_links *l = with_change(
        (exo_link_change){.at = 100 * EXO_MS, .length = 200 * EXO_MS, .factor = 0.1}, 10 * MBIT);
    NEAR(arrival(l, 0, 1, 250000, 0), 380 * EXO_MS, 3);
    exo_links_free(&l);
}

Test(link_changes, a_faster_time_is_integrated)
{
    exo_links *l = with_change(
        (exo_link_change){.at = 100 * EXO_MS, .length = 10 * EXO_MS, .factor = 5}, 10 * MBIT);
    NEAR(arrival(l, 0, 1, 250000, 0), 160 * EXO_MS, 3);
    exo_links_free(&l);
}

Test(link_changes, a_change_without_length_stays)
{
    exo_links *l = with_change((exo_link_change){.at = 100 * EXO_MS, .factor = 0.5}, 10 * MBIT);
    NEAR(arrival(l, 0, 1, 250000, 0), 300 * EXO_MS, 3);
    exo_links_free(&l);
}

Test(link_changes, periodic_changes_come_again)
{
    /* Every 100 ms it stands still for 75: 25 ms of it are used. */
    exo_links *l = with_change(
        (exo_link_change){
            .at = 25 * EXO_MS, .length = 75 * EXO_MS, .period = 100 * EXO_MS, .factor = 0},
        10 * MBIT);
    NEAR(arrival(l, 0, 1, 312500, 0), 925 * EXO_MS,
         11); /* 250 ms: ten periods, the last one's pause left out */
    exo_links_free(&l);
}

Test(link_changes, changes_at_once_multiply)
{
    const exo_link_change changes[] = {{.at = 0, .factor = 0.5},
                                       {.at = 100 * EXO_MS, .factor = 0.5}};
    const exo_host_spec hosts[] = {
        {.up = 10 * MBIT, .down = INFINITY, .changes = changes, .num_changes = 2},
        {.up = INFINITY, .down = INFINITY}};
    exo_links *l = NULL;
    cr_assert_eq(exo_links_new(&l, hosts, 2, &wire, 0, NULL), EXO_OK);
    NEAR(arrival(l, 0, 1, 125000, 0), 300 * EXO_MS, 3); /* 100 ms at 5, 200 ms at 2.5 */
    exo_links_free(&l);
}

Test(link_changes, nothing_passes_in_an_outage)
{
    const exo_link_change outage = {.at = 50 * EXO_MS, .length = EXO_SECOND};
    exo_links *l = with_change(outage, 10 * MBIT);
    NEAR(arrival(l, 0, 1, 125000, 0), 1100 * EXO_MS, 3);
    NEAR(arrival(l, 1, 0, 1250, 60 * EXO_MS), 1051 * EXO_MS, 3);
    exo_links_free(&l);
    l = with_change(outage, INFINITY); /* no limit, but an outage */
    cr_expect_eq(arrival(l, 0, 1, 125000, 0), 0);
    cr_expect_eq(arrival(l, 0, 1, 125000, 60 * EXO_MS), 1050 * EXO_MS);
    exo_links_free(&l);
}

Test(link_changes, an_outage_of_the_fast_side_holds_up_the_slow_one)
{
    const exo_link_change outage = {.at = 50 * EXO_MS, .length = EXO_SECOND};
    const exo_host_spec hosts[] = {
        {.up = 10 * MBIT, .down = INFINITY},
        {.up = INFINITY, .down = 1000 * MBIT, .changes = &outage, .num_changes = 1}};
    exo_link_spec link = wire;
    exo_links *l = NULL;
    link.latency = 10 * EXO_MS;
    cr_assert_eq(exo_links_new(&l, hosts, 2, &link, 0, NULL), EXO_OK);
    NEAR(arrival(l, 0, 1, 125000, 0), 1110 * EXO_MS, 3);
    exo_links_free(&l);
}

Test(link_changes, an_outage_without_end_is_never_until_the_host_is_changed)
{
    const exo_link_change outage = {.at = EXO_SECOND};
    const exo_host_spec broken = {.up = MBIT, .down = MBIT, .changes = &outage, .num_changes = 1};
    const exo_host_spec mended = {.up = MBIT, .down = MBIT};
    exo_links *l = network(2, MBIT, MBIT, &wire);
    cr_assert_eq(exo_links_set_host(l, 0, &broken, NULL), EXO_OK);
    NEAR(arrival(l, 0, 1, 12500, 0), 100 * EXO_MS, 1);
    cr_expect_eq(arrival(l, 0, 1, 12500, 2 * EXO_SECOND), NEVER);
    cr_expect_eq(arrival(l, 1, 0, 12500, 2 * EXO_SECOND), NEVER);
    cr_assert_eq(exo_links_set_host(l, 0, &mended, NULL), EXO_OK);
    NEAR(arrival(l, 0, 1, 12500, 3 * EXO_SECOND), 3100 * EXO_MS, 1);
    exo_links_free(&l);
    const exo_link_change always = {.at = 0, .length = EXO_MS, .period = EXO_MS};
    l = with_change(always, MBIT); /* its pauses leave no time */
    cr_expect_eq(arrival(l, 0, 1, 1, 0), NEVER);
    exo_links_free(&l);
    const exo_link_change halves[] = {{.at = 0, .length = EXO_MS, .period = 2 * EXO_MS},
                                      {.at = EXO_MS, .length = EXO_MS, .period = 2 * EXO_MS}};
    const exo_link_spec taking_turns = {
        .bandwidth = MBIT, .transport = EXO_LINK_IDEAL, .changes = halves, .num_changes = 2};
    l = network(2, MBIT, MBIT, &taking_turns);
    cr_expect_eq(arrival(l, 0, 1, 1, 0), NEVER);
    exo_links_free(&l);
}

Test(link_changes, a_partition_stops_what_crosses_it)
{
    exo_links *l = network(4, 10 * MBIT, 10 * MBIT, &wire);
    const bool side[] = {true, true, false, false};
    cr_assert_eq(exo_links_partition(l, side, 50 * EXO_MS, 500 * EXO_MS, NULL), EXO_OK);
    NEAR(arrival(l, 0, 2, 125000, 0), 550 * EXO_MS, 4); /* half of it before */
    NEAR(arrival(l, 1, 0, 125000, 100 * EXO_MS), 200 * EXO_MS, 4);
    NEAR(arrival(l, 3, 1, 1250, 100 * EXO_MS), 501 * EXO_MS, 4);
    NEAR(arrival(l, 2, 0, 1250, EXO_SECOND), EXO_SECOND + EXO_MS, 4);
    for (int i = 0; i < 100; i++) /* those that are over are forgotten */
        cr_assert_eq(exo_links_partition(l, side, (i + 2) * EXO_SECOND, (i + 3) * EXO_SECOND, NULL),
                     EXO_OK);
    cr_expect_eq(arrival(l, 0, 2, 0, 50 * EXO_SECOND), 102 * EXO_SECOND);
    exo_links_free(&l);
}
