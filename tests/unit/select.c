/* Selectors are pure functions of (seed, round), select with the right probabilities, and select
 * every coordinate in turn. Each test owns its selectors. Read next: include/exogym/select.h;
 * docs/codecs.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/select.h>

#include "base/memory_fault.h"

static const exo_select_kind kinds[] = {EXO_SELECT_RANDOM, EXO_SELECT_SHUFFLED_SEQUENTIAL,
                                        EXO_SELECT_PARTITIONED};

static exo_selector *
selector_of(exo_select_kind kind, double p, size_t numel, uint64_t seed)
{
    exo_selector *s = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_selector_new(&s, kind, p, numel, seed, &err), EXO_OK, "%s", err.text);
    return s;
}

Test(select, is_a_function_of_seed_and_round_alone)
{
    for (size_t k = 0; k < 3; k++) {
        exo_selector *forward = selector_of(kinds[k], 0.1, 1000, 7),
                     *jump = selector_of(kinds[k], 0.1, 1000, 7);
        for (uint64_t round = 0; round < 25; round++) {
            const uint32_t *a = NULL, *b = NULL;
            exo_selector_round(jump, 24 - round, &b); /* earlier calls have no effect */
            size_t n = exo_selector_round(forward, round, &a),
                   m = exo_selector_round(jump, round, &b);
            cr_assert_eq(n, m);
            cr_expect_arr_eq(a, b, n * sizeof *a);
        }
        exo_selector_free(&forward);
        exo_selector_free(&jump);
    }
}

Test(select, rounds_and_seeds_differ)
{
    for (size_t k = 0; k < 3; k++) {
        exo_selector *a = selector_of(kinds[k], 0.1, 1000, 7),
                     *b = selector_of(kinds[k], 0.1, 1000, 8);
        const uint32_t *x = NULL, *y = NULL;
        size_t n = exo_selector_round(a, 0, &x), m = exo_selector_round(b, 0, &y);
        cr_expect(n != m || memcmp(x, y, n * sizeof *x) != 0);
        uint32_t first[1000];
        memcpy(first, x, n * sizeof *x);
        m = exo_selector_round(a, 1, &y);
        cr_expect(n != m || memcmp(first, y, n * sizeof *y) != 0);
        exo_selector_free(&a);
        exo_selector_free(&b);
    }
}

Test(select, coordinates_are_in_range_and_ascend)
{
    static const double ps[] = {1e-300, 0.005, 0.3, 0.999, 1.0};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
            exo_selector *s = selector_of(kinds[k], ps[i], 777, 1);
            for (uint64_t round = 0; round < 20; round++) {
                const uint32_t *c = NULL;
                size_t n = exo_selector_round(s, round, &c);
                cr_assert_leq(n, 777);
                for (size_t j = 0; j < n; j++)
                    cr_assert(c[j] < 777 && (j == 0 || c[j - 1] < c[j]));
            }
            exo_selector_free(&s);
        }
    }
}

Test(select, p_1_selects_everything)
{
    for (size_t k = 0; k < 3; k++) {
        exo_selector *s = selector_of(kinds[k], 1.0, 500, 1);
        const uint32_t *c = NULL;
        cr_assert_eq(exo_selector_round(s, 3, &c), 500);
        for (uint32_t j = 0; j < 500; j++)
            cr_expect_eq(c[j], j);
        exo_selector_free(&s);
    }
}

/* The tolerances are five standard deviations of the binomial distribution. The draws are fixed, so
 * the outcome is always the same. */
Test(select, random_is_bernoulli)
{
    enum {
        NUMEL = 2000,
        ROUNDS = 2000
    };
    static const double ps[] = {0.005, 0.2, 0.5, 0.9};
    static uint32_t hits[NUMEL];
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        const double p = ps[i], n = (double)NUMEL * ROUNDS;
        double total = 0, squares = 0, neighbours = 0, chi = 0;
        exo_selector *s = selector_of(EXO_SELECT_RANDOM, p, NUMEL, 42);
        memset(hits, 0, sizeof hits);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint32_t *c = NULL;
            size_t count = exo_selector_round(s, round, &c);
            total += (double)count;
            squares += ((double)count - p * NUMEL) * ((double)count - p * NUMEL);
            for (size_t j = 0; j < count; j++) {
                hits[c[j]]++;
                neighbours += j > 0 && c[j] == c[j - 1] + 1;
            }
        }
        for (size_t c = 0; c < NUMEL; c++)
            chi += (hits[c] - p * ROUNDS) * (hits[c] - p * ROUNDS) / (p * (1 - p) * ROUNDS);

        cr_expect_float_eq(total, p * n, 5 * sqrt(p * (1 - p) * n), "p %g: mean", p);
        cr_expect_float_eq(squares / ROUNDS, p * (1 - p) * NUMEL,
                           5 * p * (1 - p) * NUMEL * sqrt(2.0 / ROUNDS),
                           "p %g: variance of a round's count", p);
        cr_expect_float_eq(neighbours, p * p * n,
                           5 * sqrt(p * p * (1 - p * p) * n) + 2 * p * p * ROUNDS + 50 * p,
                           "p %g: neighbours are independent", p);
        cr_expect_float_eq(chi, NUMEL, 5 * sqrt(2.0 * NUMEL),
                           "p %g: every coordinate as often as any other", p);
        exo_selector_free(&s);
    }
}

Test(select, shuffled_sequential_repeats_one_partition)
{
    enum {
        NUMEL = 1003,
        PARTS = 20
    };
    exo_selector *s = selector_of(EXO_SELECT_SHUFFLED_SEQUENTIAL, 0.05, NUMEL, 3);
    uint32_t turn[NUMEL];
    memset(turn, 0xff, sizeof turn);
    size_t total = 0;
    for (uint64_t round = 0; round < PARTS; round++) {
        const uint32_t *c = NULL;
        size_t n = exo_selector_round(s, round, &c);
        cr_expect(n == NUMEL / PARTS || n == NUMEL / PARTS + 1);
        for (size_t j = 0; j < n; j++)
            turn[c[j]] = (uint32_t)round;
        total += n;
    }
    cr_expect_eq(total, NUMEL);
    for (uint64_t round = PARTS; round < 3 * PARTS; round++) {
        const uint32_t *c = NULL;
        size_t n = exo_selector_round(s, round, &c);
        for (size_t j = 0; j < n; j++)
            cr_assert_eq(turn[c[j]], round % PARTS);
    }
    exo_selector_free(&s);
}

Test(select, partitioned_covers_everything_in_a_cycle_and_draws_anew)
{
    enum {
        NUMEL = 1003,
        PARTS = 20
    };
    exo_selector *s = selector_of(EXO_SELECT_PARTITIONED, 0.05, NUMEL, 3);
    uint32_t first[NUMEL / PARTS + 1];
    for (uint64_t cycle = 0; cycle < 3; cycle++) {
        uint32_t seen[NUMEL] = {0};
        for (uint64_t part = 0; part < PARTS; part++) {
            const uint32_t *c = NULL;
            size_t n = exo_selector_round(s, cycle * PARTS + part, &c);
            for (size_t j = 0; j < n; j++)
                seen[c[j]]++;
            if (part == 0 && cycle > 0)
                cr_expect(memcmp(first, c, (NUMEL / PARTS) * sizeof *c) != 0);
            if (part == 0)
                memcpy(first, c, (NUMEL / PARTS) * sizeof *c);
        }
        for (size_t c = 0; c < NUMEL; c++)
            cr_assert_eq(seen[c], 1);
    }
    exo_selector_free(&s);
}

Test(select, has_one_over_p_parts_but_none_that_is_empty)
{
    static const struct {
        double p;
        size_t numel, longest;
    } cases[] = {
        {1.0 / 49, 4900, 100}, /* 1 / (1.0 / 49) is more than 49 */
        {0.3, 1000, 250},      /* 4 parts */
        {0.001, 10, 1},        /* more parts than coordinates */
    };
    for (size_t i = 0; i < 3; i++) {
        const uint32_t *c = NULL;
        exo_selector *s = selector_of(EXO_SELECT_PARTITIONED, cases[i].p, cases[i].numel, 1);
        cr_expect_eq(exo_selector_round(s, 0, &c), cases[i].longest);
        exo_selector_free(&s);
    }
}

/* Different compilers may build the nodes of one run for different machines, and all nodes must
 * agree on every coordinate. The expected values come from the same rule in Python, with its own
 * logarithm. */
Test(select, known_answer)
{
    static const uint32_t want[] = {70, 101, 153, 596};
    exo_selector *s = selector_of(EXO_SELECT_RANDOM, 0.005, 1868234, 42);
    const uint32_t *c = NULL;
    size_t n = exo_selector_round(s, 0, &c);
    uint64_t hash = 0;
    for (size_t j = 0; j < n; j++)
        hash = hash * 1099511628211u + c[j];
    cr_assert_eq(n, 9410);
    cr_expect_arr_eq(c, want, sizeof want);
    cr_expect_eq(hash, 10846786026081743984u);
    exo_selector_free(&s);
}

Test(select, nothing_to_select_from)
{
    for (size_t k = 0; k < 3; k++) {
        const uint32_t *c = NULL;
        exo_selector *s = selector_of(kinds[k], 0.5, 0, 1);
        cr_expect_eq(exo_selector_round(s, 5, &c), 0);
        exo_selector_free(&s);
    }
}

Test(select, refuses_what_is_no_probability)
{
    static const double wrong[] = {0.0, -0.1, 1.1, (double)NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        exo_selector *s = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_selector_new(&s, EXO_SELECT_RANDOM, wrong[i], 10, 1, &err), EXO_INVAL);
        cr_expect_null(s);
    }
}

Test(select, every_failed_allocation_is_an_error_and_leaks_nothing)
{
    exo_status st = EXO_NOMEM;
    uint64_t failed = 0;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_selector *s = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_selector_new(&s, EXO_SELECT_PARTITIONED, 0.1, 100, 1, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && !s && err.text[0]));
        failed += st != EXO_OK;
        exo_selector_free(&s);
    }
    cr_expect_eq(failed, 4);
}
