/* Which members leave an elastic run whose nodes cannot all connect to each other. */
#include <criterion/criterion.h>

#include "actors/fit_reach.h"

enum {
    MOST = 8
};

static exo_fit_reach ranks[MOST];
static bool leaves[MOST];
static uint32_t count;

/* A member in a process; to: the rank that it cannot reach, -1: none. */
static void
member(uint64_t process, int to)
{
    ranks[count++] = (exo_fit_reach){
        .is_member = true, .process = process, .fails = to >= 0, .to = (uint32_t)(to < 0 ? 0 : to)};
}

static void
expect(uint32_t home, uint32_t number, const bool expected[MOST])
{
    cr_expect_eq(exo_fit_find_unreached(ranks, count, home, leaves), number);
    for (uint32_t r = 0; r < count; r++)
        cr_expect_eq(leaves[r], expected[r], "rank %u", r);
}

Test(fit_reach, nobody_leaves_if_all_reach_each_other)
{
    member(10, -1);
    member(20, -1);
    expect(0, 0, (bool[MOST]){0});
}

Test(fit_reach, of_two_processes_the_one_without_the_home_leaves_as_a_whole)
{
    member(10, 1);
    member(20, 0);
    member(10, 1);
    member(20, 0);
    expect(0, 2, (bool[MOST]){[1] = true, [3] = true});
    expect(3, 2, (bool[MOST]){[0] = true, [2] = true});
}

/* A broken route in one direction: only one side notices it. */
Test(fit_reach, one_sided_complaints_count_for_both)
{
    member(10, -1);
    member(20, 0);
    member(30, -1);
    expect(0, 1, (bool[MOST]){[1] = true});
    expect(1, 1, (bool[MOST]){[0] = true});
}

/* The first process, with the home, is cut off from all others, and says so of one. */
Test(fit_reach, the_process_that_most_others_do_not_reach_leaves)
{
    member(10, 1);
    member(20, 0);
    member(30, 0);
    member(40, 0);
    expect(0, 1, (bool[MOST]){[0] = true});
}

Test(fit_reach, several_complaints_between_two_processes_count_once)
{
    member(10, 2); /* 10 and 20 are at odds, by four complaints */
    member(10, 3);
    member(20, 0);
    member(20, 1);
    member(30, 5); /* 30 is at odds with 40 and 50 */
    member(40, -1);
    member(50, 4);
    expect(0, 1, (bool[MOST]){[4] = true});
}

Test(fit_reach, complaints_about_absent_ranks_and_neighbours_count_for_nothing)
{
    member(10, 1);
    member(10, 2);
    member(20, 7);
    ranks[2].is_member = false;
    expect(0, 0, (bool[MOST]){0});
}
