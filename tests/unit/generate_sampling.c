/* Sampling of tokens: the distribution is compared with the definitions of the library
 * transformers, by plain loops and a sort. Also draws and corner cases. The scratch arrays are
 * static; each test runs in its own process. Read next: nn/generate/sampling.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "nn/generate/sampling.h"

enum {
    MOST = 6000
};

static float weights[MOST], values[MOST];
static uint32_t places[MOST], order[MOST];
static const exo_logits_scratch scratch = {
    .weights = weights, .values = values, .places = places, .order = order};

static exo_choice
choose(const exo_sampling *s, const float *logits, size_t count, const uint64_t *seen, double draw)
{
    exo_choice c = {.token = -1};
    cr_assert(exo_sampling_choose(s, logits, count, seen, draw, &scratch, &c));
    return c;
}

/* --- The distribution by definition ----------------------------------------------------------- */

static const double *sorted_by;

static int
by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return sorted_by[x] > sorted_by[y] ? -1 : sorted_by[x] < sorted_by[y] ? 1 : x < y ? -1 : 1;
}

static void
softmax(const double *x, size_t count, double *p)
{
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, x[i]);
    for (size_t i = 0; i < count; i++)
        sum += p[i] = exp(x[i] - largest);
    for (size_t i = 0; i < count; i++)
        p[i] /= sum;
}

/* The distribution after the processors of transformers: penalty, temperature, top-k, top-p, then
 * softmax. */
static void
plain_distribution(const exo_sampling *s, const float *logits, size_t count, const uint64_t *seen,
                   double *p)
{
    double *x = malloc(count * sizeof *x);
    size_t *rank = malloc(count * sizeof *rank);
    for (size_t i = 0; i < count; i++) {
        float v = logits[i];
        if (s->repetition_penalty > 0 && (seen[i / 64] >> i % 64 & 1))
            v = v < 0 ? v * s->repetition_penalty : v / s->repetition_penalty;
        x[i] = (double)(v / s->temperature);
        rank[i] = i;
    }
    sorted_by = x;
    qsort(rank, count, sizeof *rank, by_size);
    if (s->top_k > 0 && s->top_k < count) {
        double floor = x[rank[s->top_k - 1]];
        for (size_t i = 0; i < count; i++)
            x[i] = x[i] < floor ? -INFINITY : x[i];
    }
    if (s->top_p > 0 && s->top_p < 1) {
        softmax(x, count, p);
        double above = 0;
        for (size_t r = 0; r < count; r++) {
            double mass = p[rank[r]];
            if (r > 0 && above >= (double)s->top_p)
                x[rank[r]] = -INFINITY;
            above += mass;
        }
    }
    softmax(x, count, p);
    free(x);
    free(rank);
}

static void
make_logits(size_t count, uint64_t seed, float size, float *logits, uint64_t *seen)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, count);
    memset(seen, 0, (count + 63) / 64 * sizeof *seen);
    for (size_t i = 0; i < count; i++) {
        logits[i] = size * exo_rng_normal(&rng);
        seen[i / 64] |= (uint64_t)(exo_rng_below(&rng, 4) == 0) << i % 64;
    }
}

Test(generate_sampling, draws_are_from_the_defined_distribution)
{
    static const size_t counts[] = {1, 5, 33, 257, 1000, MOST};
    static const exo_sampling settings[] = {
        {.temperature = 1},
        {.temperature = 0.7f},
        {.temperature = 1.5f, .repetition_penalty = 1.7f},
        {.temperature = 1, .top_k = 1},
        {.temperature = 1, .top_k = 7},
        {.temperature = 2, .top_k = 200},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 3, .top_p = 0.999f},
        {.temperature = 1, .top_p = 0.01f},
        {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repetition_penalty = 1.2f},
    };
    static float logits[MOST];
    static uint64_t seen[MOST / 64 + 1];
    static double p[MOST];
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
            size_t count = counts[c];
            make_logits(count, 10 * c + k, 3, logits, seen);
            plain_distribution(&settings[k], logits, count, seen, p);
            for (int d = 0; d < 50; d++) {
                double draw = d == 0   ? 0
                              : d == 1 ? 1 - 0x1p-53
                                       : exo_sampling_draw(k, c, (size_t)d),
                       below = 0;
                exo_choice got = choose(&settings[k], logits, count, seen, draw);
                for (int32_t i = 0; i < got.token; i++)
                    below += p[i];
                double share = p[got.token];
                cr_assert_gt(share, 0, "count %zu, setting %zu: token %d cannot be drawn", count, k,
                             got.token);
                cr_assert(draw >= below - 1e-5 && draw <= below + share + 1e-5,
                          "count %zu, setting %zu: %g is not in the share of token %d", count, k,
                          draw, got.token);
                cr_assert_float_eq((double)got.log_prob, log(share), 2e-5, "count %zu, setting %zu",
                                   count, k);
            }
        }
}

Test(generate_sampling, log_probs_of_all_draws_add_up_to_one)
{
    float logits[12];
    uint64_t seen[1];
    make_logits(12, 3, 2, logits, seen);
    const exo_sampling s = {
        .temperature = 0.9f, .top_k = 9, .top_p = 0.97f, .repetition_penalty = 1.1f};
    double sum = 0, plain = 0;
    bool met[12] = {false};
    for (int d = 0; d < 4000; d++) {
        exo_choice c = choose(&s, logits, 12, seen, d / 4000.0);
        if (!met[c.token]) {
            sum += exp((double)c.log_prob);
            plain += exp((double)c.plain_log_prob);
        }
        met[c.token] = true;
    }
    cr_expect_float_eq(sum, 1, 1e-5);
    cr_expect_lt(plain, 1, "what was cut off has some of the plain one");
}

/* Pearson's statistic over 20000 draws of 16 tokens. 37.7 is the 0.1 % point for 15 degrees of
 * freedom. */
Test(generate_sampling, frequencies_are_the_probabilities)
{
    enum {
        COUNT = 16,
        DRAWS = 20000
    };
    float logits[COUNT];
    uint64_t seen[1];
    double p[COUNT], statistic = 0;
    size_t met[COUNT] = {0};
    make_logits(COUNT, 4, 1, logits, seen);
    const exo_sampling s = {.temperature = 1.2f};
    plain_distribution(&s, logits, COUNT, seen, p);
    for (size_t d = 0; d < DRAWS; d++)
        met[choose(&s, logits, COUNT, seen, exo_sampling_draw(7, 1, d)).token]++;
    for (size_t i = 0; i < COUNT; i++)
        statistic += pow((double)met[i] - DRAWS * p[i], 2) / (DRAWS * p[i]);
    cr_expect(statistic > 2 && statistic < 37.7, "%g", statistic);
}

Test(generate_sampling, a_draw_depends_on_seed_sequence_and_position)
{
    double first = exo_sampling_draw(1, 2, 3);
    cr_expect_eq(exo_sampling_draw(1, 2, 3), first);
    cr_expect_neq(exo_sampling_draw(2, 2, 3), first);
    cr_expect_neq(exo_sampling_draw(1, 3, 3), first);
    cr_expect_neq(exo_sampling_draw(1, 2, 4), first);
    cr_expect_neq(exo_sampling_draw(1, 2 + (UINT64_C(1) << 24), 3), first,
                  "the upper bits of an id count");
    cr_expect_neq(exo_sampling_draw(1, 2 + (UINT64_C(1) << 55), 3), first);
    double mean = 0;
    for (size_t i = 0; i < 10000; i++) {
        double d = exo_sampling_draw(5, 6, i);
        cr_assert(d >= 0 && d < 1);
        mean += d / 10000;
    }
    cr_expect_float_eq(mean, 0.5, 0.01);
}

/* --- Corner cases ----------------------------------------------------------------------------- */

Test(generate_sampling, temperature_0_takes_the_first_of_the_largest)
{
    const float logits[] = {1, 5, 5, 2};
    uint64_t seen = 0;
    exo_sampling s = {.top_k = 3, .top_p = 0.5f};
    exo_choice c = choose(&s, logits, 4, &seen, 0.999);
    cr_expect_eq(c.token, 1);
    cr_expect_eq(c.log_prob, 0);
    cr_expect_float_eq((double)c.plain_log_prob, -log(2 + exp(-4) + exp(-3)), 1e-6);
    s.repetition_penalty = 1.5f;
    seen = 2;
    cr_expect_eq(choose(&s, logits, 4, &seen, 0.5).token, 2, "the penalty counts here too");
}

Test(generate_sampling, equals_of_the_kth_are_all_kept)
{
    const float logits[] = {0, 3, 3, 3, -1};
    const uint64_t seen = 0;
    const exo_sampling s = {.temperature = 1, .top_k = 2};
    for (int d = 0; d < 3; d++) {
        exo_choice c = choose(&s, logits, 5, &seen, (d + 0.5) / 3);
        cr_expect_eq(c.token, 1 + d);
        cr_expect_float_eq((double)c.log_prob, -log(3), 1e-6);
    }
}

Test(generate_sampling, of_equals_the_nucleus_has_the_first)
{
    const float logits[] = {0, 0, 0, 0, 0, 0, 0, 0};
    const uint64_t seen = 0;
    const exo_sampling s = {.temperature = 1, .top_p = 0.3f};
    for (int d = 0; d < 3; d++) { /* 1/8 and 2/8 are less than 0.3, 3/8 is not */
        exo_choice c = choose(&s, logits, 8, &seen, (d + 0.5) / 3);
        cr_expect_eq(c.token, d);
        cr_expect_float_eq((double)c.log_prob, -log(3), 1e-6);
    }
}

Test(generate_sampling, tokens_of_the_padding_are_not_chosen)
{
    const float logits[] = {1, 2, 0, 9, 8};
    const uint64_t seen = 8;
    exo_sampling s = {.vocabulary = 3, .repetition_penalty = 1.1f};
    exo_choice c = choose(&s, logits, 5, &seen, 0);
    cr_expect_eq(c.token, 1);
    cr_expect_float_eq((double)c.plain_log_prob, 2 - log(exp(1) + exp(2) + 1 + exp(9) + exp(8)),
                       1e-5);
    s.temperature = 1;
    for (int d = 0; d < 100; d++)
        cr_assert_lt(choose(&s, logits, 5, &seen, d / 100.0).token, 3);
}

Test(generate_sampling, large_logits_do_not_overflow)
{
    const float logits[] = {1e30f, -1e30f, 3e4f};
    const uint64_t seen = 0;
    exo_choice c = choose(&(exo_sampling){.temperature = 1}, logits, 3, &seen, 0.9);
    cr_expect_eq(c.token, 0);
    cr_expect_eq(c.log_prob, 0);
    cr_expect_eq(c.plain_log_prob, 0);
}

Test(generate_sampling, what_is_no_number_is_refused)
{
    const float broken[][3] = {{0, NAN, 1}, {0, INFINITY, 1}, {-INFINITY, -INFINITY, -INFINITY}};
    const uint64_t seen = 0;
    exo_choice c;
    for (size_t i = 0; i < 3; i++) {
        cr_expect_not(
            exo_sampling_choose(&(exo_sampling){0}, broken[i], 3, &seen, 0, &scratch, &c));
        cr_expect_not(exo_sampling_choose(&(exo_sampling){.temperature = 1}, broken[i], 3, &seen, 0,
                                          &scratch, &c));
        cr_expect(isnan(exo_sampling_nll(broken[i], 3, 0)));
    }
}

Test(generate_sampling, a_logit_of_minus_infinity_is_never_drawn)
{
    const float logits[] = {-INFINITY, 1, -INFINITY, 1, -INFINITY};
    const uint64_t seen = 1; /* the penalty leaves it as it is */
    const exo_sampling settings[] = {{.temperature = 1},
                                     {.temperature = 0.5f, .repetition_penalty = 2},
                                     {.temperature = 1, .top_k = 4},
                                     {.temperature = 1, .top_p = 0.999f}};
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++)
        for (int d = 0; d < 3; d++) {
            const double draw = d == 0 ? 0 : d == 1 ? 0.5 : 1 - 0x1p-53;
            exo_choice c = choose(&settings[k], logits, 5, &seen, draw);
            cr_expect_eq(c.token, d == 0 ? 1 : 3, "setting %zu, draw %g: %d", k, draw, c.token);
            cr_expect_float_eq((double)c.log_prob, -log(2), 1e-6);
            cr_expect_float_eq((double)c.plain_log_prob, -log(2), 1e-6);
        }
    cr_expect_eq(choose(&(exo_sampling){0}, logits, 5, &seen, 0).token, 1);
}

Test(generate_sampling, the_likelihood_is_that_of_log_softmax)
{
    static float logits[MOST];
    static uint64_t seen[MOST / 64 + 1];
    make_logits(MOST, 5, 4, logits, seen);
    double sum = 0;
    for (size_t i = 0; i < MOST; i++)
        sum += exp((double)logits[i]);
    for (size_t i = 0; i < MOST; i += 700)
        cr_expect_float_eq(exo_sampling_nll(logits, MOST, i), log(sum) - (double)logits[i], 1e-5);
}
