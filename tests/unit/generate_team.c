/* Teams of threads: each item of each loop runs once, whichever members arrive, and the loops'
 * results keep their order. Each test owns its team. Read next: nn/cpu/team.h. */
#include <stdatomic.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/tensor.h>

#include "base/parallel.h"
#include "nn/cpu/team.h"

enum {
    LOOPS = 50,
    ITEMS = 37
};

/* An item of a loop reads the value that its neighbour wrote in the loop before, and writes to the
 * other half. An item that runs twice or too early gives a wrong value. */
struct work {
    exo_team *team;
    long value[2][ITEMS];
    atomic_uint members, items;
};

struct at {
    struct work *w;
    long loop;
};

static void
item(void *context, size_t i)
{
    const struct at *at = context;
    struct work *w = at->w;
    w->value[(at->loop + 1) % 2][i] = w->value[at->loop % 2][(i + 1) % ITEMS] + 1;
    atomic_fetch_add(&w->items, 1);
}

static void
body(void *context, exo_member *member)
{
    struct work *w = context;
    atomic_fetch_add(&w->members, 1);
    exo_team_run(member, 0, item, NULL);
    for (long loop = 0; loop < LOOPS; loop++)
        exo_team_run(member, ITEMS, item, &(struct at){w, loop});
}

static void
expect_done(struct work *w)
{
    cr_assert_eq(w->items, LOOPS * ITEMS);
    for (size_t i = 0; i < ITEMS; i++)
        cr_assert_eq(w->value[LOOPS % 2][i], LOOPS, "item %zu: %ld", i, w->value[LOOPS % 2][i]);
    memset(w->value, 0, sizeof w->value);
    w->members = w->items = 0;
}

static void
go(void *context, size_t index)
{
    (void)index;
    struct work *w = context;
    exo_team_go(w->team, body, w);
}

static void
go_once(void *context, size_t index)
{
    if (index == 0)
        go(context, 0);
}

Test(generate_team, every_item_runs_once_with_any_number_of_threads)
{
    static const unsigned threads[] = {1, 2, 3, 8};
    struct work w = {0};
    cr_assert_eq(exo_team_new(&w.team, LOOPS + 1, NULL), EXO_OK);
    for (size_t k = 0; k < 4; k++)
        for (int round = 0; round < 200; round++) {
            exo_set_num_threads(threads[k]);
            go(&w, 0);
            cr_assert_eq(w.members, threads[k]);
            expect_done(&w);
        }
    exo_team_free(&w.team);
    cr_expect_null(w.team);
}

/* Inside a piece of another loop, one thread runs all members of a team in turn: the first member
 * does all the work. */
Test(generate_team, one_thread_can_be_all_members)
{
    struct work w = {0};
    exo_set_num_threads(4);
    cr_assert_eq(exo_team_new(&w.team, LOOPS + 1, NULL), EXO_OK);
    exo_parallel_for(2, go_once, &w);
    cr_expect_eq(w.members, 4);
    expect_done(&w);
    exo_team_free(&w.team);
}
