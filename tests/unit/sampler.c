/* Samplers of data sets that are too long for a table of their samples, for example with a window
 * for every token. Each test owns its samplers. Read next: include/exogym/data.h. */
#include <criterion/criterion.h>

#include <stdlib.h>

#include <exogym/data.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"

static int
by_number(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

Test(sampler, long_data_sets_are_shuffled_without_a_table)
{
    enum {
        DRAWS = 20000
    };
    static const size_t lengths[] = {((size_t)1 << 24) + 3, ((size_t)1 << 33) + 12345};
    static size_t seen[2 * DRAWS];
    for (int c = 0; c < 2; c++) {
        exo_sampler nodes[2], again;
        uint64_t asked = exo_memory_allocations();
        for (uint32_t r = 0; r < 2; r++)
            cr_assert_eq(exo_sampler_init(&nodes[r], lengths[c], 2, r, true, 9, NULL), EXO_OK);
        cr_assert_eq(exo_sampler_init(&again, lengths[c], 2, 1, true, 9, NULL), EXO_OK);
        cr_expect_eq(exo_memory_allocations(), asked);
        double sum = 0;
        size_t moved = 0, share = exo_sampler_share(&nodes[0]);
        for (size_t i = 0; i < DRAWS; i++)
            for (uint32_t r = 0; r < 2; r++) {
                size_t at = exo_sampler_at(&nodes[r], share + i);
                cr_assert_lt(at, lengths[c]);
                seen[2 * i + r] = at;
                sum += (double)at / (double)lengths[c];
            }
        for (size_t i = DRAWS; i-- > 0;) {
            cr_assert_eq(exo_sampler_at(&again, share + i), seen[2 * i + 1],
                         "a pure function of the position");
            moved += exo_sampler_at(&nodes[1], i) != seen[2 * i + 1];
        }
        cr_expect_gt(moved, DRAWS - 10, "another order in another epoch");
        cr_expect_float_eq(sum / (2 * DRAWS), 0.5, 0.01);
        qsort(seen, 2 * DRAWS, sizeof *seen, by_number);
        for (size_t i = 1; i < 2 * DRAWS; i++)
            cr_assert_neq(seen[i], seen[i - 1], "sample %zu twice", seen[i]);
        cr_expect_gt(seen[2 * DRAWS - 1], lengths[c] / 100 * 99);
        for (uint32_t r = 0; r < 2; r++)
            exo_sampler_release(&nodes[r]);
        exo_sampler_release(&again);
    }
}

/* The bijection over a domain that is small enough to visit in full: it gives every sample once. */
Test(sampler, a_shuffle_without_a_table_has_every_sample_once)
{
    const size_t length = ((size_t)1 << 24) + 1;
    bool seen[5000] = {false};
    exo_sampler s;
    cr_assert_eq(exo_sampler_init(&s, length, 1, 0, true, 3, NULL), EXO_OK);
    /* the same walk over a smaller domain; its rounds are keyed at the first sample of the epoch */
    s.length = sizeof seen;
    for (size_t i = 0; i < sizeof seen; i++) {
        size_t at = exo_sampler_at(&s, i);
        cr_assert_lt(at, sizeof seen);
        cr_assert_not(seen[at], "sample %zu twice", at);
        seen[at] = true;
    }
    exo_sampler_release(&s);
}

Test(sampler, evaluations_look_at_the_first_of_one_order)
{
    static const size_t lengths[] = {50, ((size_t)1 << 24) + 1, ((size_t)1 << 40) + 7};
    for (int c = 0; c < 3; c++) {
        size_t *few = NULL, *more = NULL, *other = NULL, differ = 0;
        cr_assert_eq(exo_eval_order(lengths[c], 20, 1, &few, NULL), EXO_OK);
        cr_assert_eq(exo_eval_order(lengths[c], 50, 1, &more, NULL), EXO_OK);
        cr_assert_eq(exo_eval_order(lengths[c], 50, 2, &other, NULL), EXO_OK);
        cr_expect_arr_eq(few, more, 20 * sizeof *few);
        for (size_t i = 0; i < 50; i++) {
            cr_expect_lt(more[i], lengths[c]);
            differ += more[i] != other[i];
            for (size_t k = 0; k < i; k++)
                cr_expect_neq(more[i], more[k]);
        }
        cr_expect_gt(differ, 30);
        exo_free(few);
        exo_free(more);
        exo_free(other);
    }
    size_t *none = NULL;
    cr_expect_eq(exo_eval_order(5, 6, 1, &none, NULL), EXO_INVAL);
}
