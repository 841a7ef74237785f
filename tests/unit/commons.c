/* Memory that the members of a process have in common: a result is computed once, is the same for all, and
 * is as without sharing. Read next: exogym/comm.h, runtime/comm/commons.c. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <string.h>

#include <exogym/comm.h>
#include <exogym/tensor.h>

#include "support/team.h"

enum {
    ROUNDS = 50,
    SHARED = 12 /* elements of a member's part */
};

static const uint32_t sizes[] = {1, 2, 3, 4, 7};
static atomic_uint computed;

/* The sum of all members' parts, element by element. */
static exo_status
sum_parts(void *context, exo_array out, exo_err *err)
{
    const exo_array parts = exo_commons_parts(context);
    (void)err;
    atomic_fetch_add(&computed, 1);
    exo_vec_fill(out, 0);
    for (size_t at = 0; at < parts.count; at += SHARED)
        exo_vec_add(out, out, exo_array_part(parts, at, SHARED));
    return EXO_OK;
}

static exo_status
fail_to_sum(void *context, exo_array out, exo_err *err)
{
    (void)context, (void)out;
    atomic_fetch_add(&computed, 1);
    return exo_fail(err, EXO_FAILED, "no sum today");
}

/* One round after the other, each with other numbers. x[0]: rounds with a wrong sum. */
static exo_status
act_share(struct member *m)
{
    const size_t size = exo_group_size(m->group), rank = exo_group_rank(m->group);
    exo_commons *c = NULL;
    exo_status st =
        exo_commons_new(&c, m->group, exo_device_cpu(), EXO_F32, size * SHARED, SHARED, &m->err);
    m->x[0] = 0;
    for (uint32_t round = 0; st == EXO_OK && round < ROUNDS; round++) {
        float sum[SHARED], expected = 0;
        st = exo_commons_take(c, m->group, &m->err);
        if (st != EXO_OK)
            break;
        exo_vec_fill(exo_array_part(exo_commons_parts(c), rank * SHARED, SHARED),
                     element((uint32_t)rank, round));
        st = exo_all_gather(m->group, exo_commons_parts(c), &m->err);
        if (st == EXO_OK)
            st =
                exo_commons_compute(c, exo_host_array(EXO_F32, sum, SHARED), sum_parts, c, &m->err);
        exo_commons_leave(c);
        for (uint32_t r = 0; r < size; r++)
            expected += element(r, round);
        for (size_t i = 0; st == EXO_OK && i < SHARED; i++)
            m->x[0] += sum[i] < expected || sum[i] > expected;
    }
    exo_commons_free(&c);
    return st;
}

/* The same among all members but the last. */
static exo_status
act_share_among_some(struct member *m)
{
    static const uint32_t some[] = {0, 1, 2};
    struct member part = *m;
    if (m->rank > 2)
        return EXO_OK;
    exo_status st = exo_group_among(&part.group, m->group, some, 3, &m->err);
    if (st != EXO_OK)
        return st;
    st = act_share(&part);
    exo_group_close(&part.group);
    return st;
}

Test(commons, what_members_share_is_computed_once, .timeout = 60)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct team t;
        team_init(&t, sizes[s], 1);
        atomic_store(&computed, 0);
        team_run(&t, act_share);
        team_expect_ok(&t, 1);
        for (uint32_t r = 0; r < t.size; r++)
            cr_expect_eq(t.m[r].x[0], 0, "rank %u of %u: %g wrong numbers", r, t.size,
                         (double)t.m[r].x[0]);
        cr_expect_eq(atomic_load(&computed), ROUNDS);
        team_release(&t);
    }
}

Test(commons, some_members_share_beside_others, .timeout = 60)
{
    struct team t;
    team_init(&t, 4, 1);
    atomic_store(&computed, 0);
    team_run(&t, act_share_among_some);
    team_expect_ok(&t, 1);
    for (uint32_t r = 0; r < 3; r++)
        cr_expect_eq(t.m[r].x[0], 0);
    cr_expect_eq(atomic_load(&computed), ROUNDS);
    team_release(&t);
}

Test(commons, members_share_a_failure_and_must_agree)
{
    struct team t;
    exo_commons *c[2], *other = NULL;
    float sum[SHARED];
    exo_err err = {0};
    team_init(&t, 2, 1);
    atomic_store(&computed, 0);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(exo_commons_new(&c[r], t.m[r].group, exo_device_cpu(), EXO_F32, 2 * SHARED,
                                     SHARED, NULL),
                     EXO_OK);
        cr_assert_eq(exo_commons_take(c[r], t.m[r].group, NULL), EXO_OK);
    }
    cr_expect_eq(exo_commons_parts(c[0]).data, exo_commons_parts(c[1]).data);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(exo_commons_compute(c[r], exo_host_array(EXO_F32, sum, SHARED), fail_to_sum,
                                         NULL, &err),
                     EXO_FAILED);
        cr_expect_str_eq(err.text, "no sum today");
    }
    cr_expect_eq(atomic_load(&computed), 1);
    exo_commons_leave(c[0]);
    cr_assert_eq(exo_commons_take(c[0], t.m[0].group, NULL), EXO_OK);
    cr_expect_neq(exo_commons_parts(c[0]).data, exo_commons_parts(c[1]).data,
                  "a member is still in the round before");
    cr_assert_eq(exo_commons_new(&other, t.m[1].group, exo_device_cpu(), EXO_I8, 3, 0, NULL),
                 EXO_OK);
    cr_expect_eq(exo_commons_take(other, t.m[1].group, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "rank 1 shares 3 elements of int8, others 24 of fp32"),
                       "%s", err.text);
    exo_commons_free(&other);
    /* the others' memory is used again */
    void *const first = exo_commons_parts(c[1]).data, *const second = exo_commons_parts(c[0]).data;
    for (int round = 0; round < 10; round++) {
        cr_assert_eq(exo_commons_take(c[1], t.m[1].group, NULL), EXO_OK);
        cr_assert_eq(exo_commons_take(c[0], t.m[0].group, NULL), EXO_OK);
        const void *now = exo_commons_parts(c[0]).data;
        cr_expect(now == first || now == second);
    }
    for (uint32_t r = 0; r < 2; r++)
        exo_commons_free(&c[r]);
    team_release(&t);
}
