/* Members of a communicator: see team.h. */
#include "support/team.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

#include <exogym/rng.h>

static void *
member_main(void *argument)
{
    struct member *m = argument;
    m->status = m->act(m);
    return NULL;
}

float
element(uint32_t rank, size_t i)
{
    exo_rng rng;
    exo_rng_init(&rng, 5, EXO_RNG_USER, rank, i);
    return exo_rng_normal(&rng);
}

void
team_init(struct team *t, uint32_t size, size_t count)
{
    *t = (struct team){.size = size};
    exo_clock_manual_init(&t->clock, 0);
    cr_assert_eq(exo_comm_local(&t->comm, size, &t->clock.base, NULL), EXO_OK);
    for (uint32_t r = 0; r < size; r++) {
        char name[16];
        snprintf(name, sizeof name, "node_%u", r);
        t->m[r] =
            (struct member){.rank = r, .count = count, .x = malloc((count + 1) * sizeof(float))};
        cr_assert_eq(exo_group_open(&t->m[r].group, t->comm, r, name, NULL), EXO_OK);
        for (size_t i = 0; i < count; i++)
            t->m[r].x[i] = element(r, i);
        t->m[r].x[count] = 77; /* beyond the end */
    }
}

void
team_release(struct team *t)
{
    for (uint32_t r = 0; r < t->size; r++) {
        exo_group_close(&t->m[r].group);
        free(t->m[r].x);
    }
    exo_comm_drop(&t->comm);
}

void
team_start(struct team *t, uint32_t r, exo_status (*act)(struct member *m))
{
    t->m[r].act = act;
    cr_assert_eq(pthread_create(&t->threads[r], NULL, member_main, &t->m[r]), 0);
}

void
team_run(struct team *t, exo_status (*act)(struct member *m))
{
    for (uint32_t r = 0; r < t->size; r++)
        team_start(t, r, act);
    for (uint32_t r = 0; r < t->size; r++)
        pthread_join(t->threads[r], NULL);
}

void
team_expect_ok(const struct team *t, size_t count)
{
    for (uint32_t r = 0; r < t->size; r++) {
        cr_assert_eq(t->m[r].status, EXO_OK, "%s", t->m[r].err.text);
        cr_assert_eq(t->m[r].x[count], 77, "written behind the end");
    }
}
