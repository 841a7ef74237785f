/* Two actors that live and have lost each other are found in the records of two gatherings; an actor that
 * has died, a channel that is over, and a loss that is new are not. Across hosts:
 * tests/cluster/graph_split.sh. */
#include <criterion/criterion.h>

#include "graph/split.h"

enum {
    ACTORS = 4,
    ENDS = 3
};

struct record {
    exo_wait_record header;
    exo_wait_end ends[ENDS];
};

struct gathering {
    struct record records[ACTORS];
    exo_payload payloads[ACTORS];
};

/* Actor `i` waits, and has lost `peer`. */
static void
lose(struct gathering *g, uint32_t i, uint32_t peer)
{
    struct record *r = &g->records[i];
    r->header.kind = EXO_WAIT_RECEIVE;
    r->ends[r->header.num_ends++] = (exo_wait_end){.peer = peer, .lost = true};
    g->payloads[i] = exo_payload_borrow(r, sizeof r->header + r->header.num_ends * sizeof *r->ends);
}

static exo_split
find(const struct gathering *before, const struct gathering *after, const bool *answered)
{
    uint32_t scratch[ACTORS];
    return exo_split_find(before->payloads, after->payloads, answered, ACTORS, scratch);
}

static const bool all[ACTORS] = {true, true, true, true};

Test(graph_split, an_actor_that_answers_after_it_was_lost_is_alive)
{
    const bool but_2[ACTORS] = {true, true, false, true};
    struct gathering before = {0}, after = {0};
    cr_expect(!exo_split_may_be(before.payloads, ACTORS));
    cr_expect(!find(&before, &after, all).found);
    lose(&before, 1, 2);
    cr_expect(exo_split_may_be(before.payloads, ACTORS));
    cr_expect(!find(&before, &after, all).found, "its next life is reached");
    lose(&after, 1, 2);
    cr_expect(!find(&before, &after, but_2).found, "it may have died");
    exo_split split = find(&before, &after, all);
    cr_expect(split.found);
    cr_expect_eq(split.actor, 1);
    cr_expect_eq(split.peer, 2);
    cr_expect(!find(&(struct gathering){0}, &after, all).found,
              "it may have died since it answered");
}

Test(graph_split, a_channel_that_is_over_misses_nothing)
{
    struct gathering g = {0};
    lose(&g, 1, 2);
    g.records[1].ends[0].over = true;
    cr_expect(!exo_split_may_be(g.payloads, ACTORS));
    cr_expect(!find(&g, &g, all).found);
    g.records[1].ends[0] = (exo_wait_end){.peer = 2, .lost = true, .gone = true};
    cr_expect(!find(&g, &g, all).found);
    g.records[1].ends[0] = (exo_wait_end){.peer = 2};
    cr_expect(!find(&g, &g, all).found, "it is not lost");
}

Test(graph_split, the_actor_that_has_lost_the_most_is_named_first)
{
    struct gathering g = {0};
    lose(&g, 0, 1); /* a cable of its own */
    lose(&g, 2, 3);
    lose(&g, 2, 3);
    lose(&g, 0, 3);
    exo_split split = find(&g, &g, all);
    cr_expect_eq(split.actor, 3);
    cr_expect(split.peer == 0 || split.peer == 2);
    lose(&g, 0, 2);
    g.records[2].header.num_ends = 0;
    split = find(&g, &g, all);
    cr_expect_eq(split.actor, 0);
}

Test(graph_split, the_actor_that_has_a_restart_rule_begins_again)
{
    for (int rules = 0; rules < 4; rules++) {
        const exo_split found = {.found = true, .actor = 1, .peer = 2},
                        split = exo_split_for_rules(found, rules & 1, rules & 2);
        cr_expect(split.found);
        cr_expect_eq(split.actor, rules == 2 ? 2 : 1, "rules %d", rules);
        cr_expect_eq(split.peer, rules == 2 ? 1 : 2, "rules %d", rules);
    }
}
