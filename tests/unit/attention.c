/* Attention. Blocked attention is compared with plain attention over one table of shapes, in fp32
 * and bf16, and gradients with finite differences. Other tests: bits do not depend on threads or on
 * earlier passes; dropout; memory; wrong shapes.
 *
 * Each test owns its tape and arrays. Read next: nn/cpu/attention_kernels.h, nn/ref/attention.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/sequence.h>

#include "base/bf16.h"
#include "base/memory_fault.h"
#include "nn/cpu/attention_kernels.h"
#include "nn/ref/attention.h"
#include "support/numbers.h"
#include "support/sanitized.h"

/* Errors allowed in fp32, for another order of summation, and in bf16, for 8 bits of mantissa. */
static const double tolerance[2] = {4e-6, 1e-2};

static const float stretched[] = {1.0f, 0.5f, 0.25f, 0.125f, 1.0f, 2.0f};

struct shape {
    const char *name;
    size_t n, t, h, g, d;
    float scale; /* 0: 1 / sqrt(D) */
    bool alibi;
    size_t turned; /* 0: no rotary positions */
    const float *scaled;
    float dropout;
};

static const struct shape shapes[] = {
    {"GPT", 1, 256, 2, 2, 32, 0, false, 0, NULL, 0},
    {"one token", 3, 1, 2, 2, 8, 0, false, 0, NULL, 0},
    {"one head", 1, 70, 1, 1, 64, 0, false, 0, NULL, 0},
    {"two tokens, one element", 2, 2, 1, 1, 1, 0, false, 0, NULL, 0},
    {"a block and a token", 1, 65, 2, 2, 32, 0, false, 0, NULL, 0},
    {"a piece and a token", 1, 257, 1, 1, 16, 0, false, 0, NULL, 0},
    {"17 queries", 2, 17, 3, 3, 20, 0, false, 0, NULL, 0},
    {"wide heads", 1, 90, 1, 1, 128, 0, false, 0, NULL, 0},
    {"odd everything", 3, 37, 3, 3, 7, 0.3f, false, 0, NULL, 0},
    {"grouped queries", 2, 100, 6, 2, 24, 0, false, 0, NULL, 0},
    {"one key-value head", 1, 130, 4, 1, 48, 0, false, 0, NULL, 0},
    {"two ranges of keys", 1, 515, 1, 1, 16, 0, false, 0, NULL, 0},
    {"four ranges, grouped", 1, 1030, 2, 1, 8, 0, false, 0, NULL, 0},
    {"keys of more than a span", 1, 130, 2, 1, 600, 0, false, 0, NULL, 0},
    {"alibi, 4 heads", 1, 75, 4, 4, 16, 0, true, 0, NULL, 0},
    {"alibi, 3 heads", 2, 150, 3, 3, 10, 0, true, 0, NULL, 0},
    {"rotary", 1, 66, 2, 2, 32, 0, false, 32, NULL, 0},
    {"rotary of a part", 2, 40, 2, 1, 20, 0, false, 12, NULL, 0},
    {"scaled rotary", 1, 68, 4, 2, 12, 0, false, 12, stretched, 0},
    {"dropout", 2, 72, 2, 2, 16, 0, false, 0, NULL, 0.3f},
    {"everything", 2, 75, 6, 3, 20, 0.4f, true, 8, stretched, 0.1f},
};

enum {
    SEED = 3,
    NODE = 1,
    STEP = 2,
    NUM_SHAPES = sizeof shapes / sizeof shapes[0]
};

static size_t
columns(const struct shape *s)
{
    return (s->h + 2 * s->g) * s->d;
}

static exo_tape *
tape_new(void)
{
    exo_tape *tape = NULL;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    return tape;
}

static exo_tensor *
attend(exo_tape *tape, exo_tensor *x, const struct shape *s)
{
    static exo_rotary_opts rotary; /* static: the tape keeps a pointer to it */
    rotary = (exo_rotary_opts){.theta = 100.0f, .width = s->turned, .scaled = s->scaled};
    return exo_attention(tape, x,
                         &(exo_attention_opts){.sequence = s->t,
                                               .heads = s->h,
                                               .kv_heads = s->g,
                                               .scale = s->scale,
                                               .alibi = s->alibi,
                                               .rotary = s->turned ? &rotary : NULL,
                                               .dropout = s->dropout});
}

/* Runs one pass: y (R, H D), and dx for the loss sum(y * r). dx NULL: forward only. */
static void
run(exo_tape *tape, const struct shape *s, bool bf16, const float *x, const float *r, float *y,
    float *dx)
{
    const exo_pass pass = {.train = true,
                           .grad = dx != NULL,
                           .autocast = bf16,
                           .seed = SEED,
                           .node = NODE,
                           .step = STEP};
    const size_t rows = s->n * s->t, numel = rows * s->h * s->d;
    exo_err err = {0};
    exo_tape_begin(tape, NULL, &pass);
    exo_tensor *v = exo_tape_variable(tape, 2, (size_t[]){rows, columns(s)}, x);
    exo_tensor *out = attend(tape, v, s);
    cr_assert_not_null(out, "%s: %s", s->name, (exo_tape_error(tape, &err), err.text));
    cr_assert_eq(exo_tensor_numel(out), numel);
    cr_assert_eq(exo_tensor_dtype(out), bf16 ? EXO_BF16 : EXO_F32);
    exo_tensor_read(out, y);
    if (!dx)
        return;
    exo_tensor *weights = exo_tape_input(tape, EXO_F32, 2, (size_t[]){rows, s->h * s->d}, r);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, out, weights));
    cr_assert_not_null(loss);
    cr_assert_eq(exo_tape_backward(tape, loss, (float)numel, &err), EXO_OK, "%s: %s", s->name,
                 err.text);
    exo_tensor_grad(v, dx);
}

/* The mask of dropout, one number at a time, as the header documents the numbers' order. In bf16
 * the conversion of the input is operation 0, so attention is operation 1. */
static uint8_t *
kept_weights(const struct shape *s, uint32_t ordinal)
{
    uint8_t *keep = malloc(s->n * s->h * s->t * s->t);
    uint32_t dropped = (uint32_t)round((double)s->dropout * 65536.0), numbers[4];
    size_t blocks = (s->t + 7) / 8, row = 0;
    exo_rng rng;
    exo_rng_init(&rng, SEED, EXO_RNG_DROPOUT, NODE, STEP);
    for (; row < s->n * s->h * s->t; row++)
        for (size_t j = 0; j < s->t; j++) {
            exo_rng_block(&rng, ordinal << 22 | (uint32_t)(row * blocks + j / 8), numbers);
            keep[row * s->t + j] = (numbers[j % 8 / 2] >> (j % 2 * 16) & 0xFFFF) >= dropped;
        }
    return keep;
}

static void
round_to_bf16(float *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = exo_from_bf16(exo_to_bf16(numbers[i]));
}

/* The largest difference, relative to the largest number. */
static double
worst(const float *got, const float *want, size_t count)
{
    double largest = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        off = d <= off ? off : isnan(d) ? INFINITY : d;
        largest = fmax(largest, fabs((double)want[i]));
    }
    return largest > 0 ? off / largest : off;
}

static void
check_shape(const struct shape *s, bool bf16)
{
    size_t nx = s->n * s->t * columns(s), ny = s->n * s->t * s->h * s->d;
    float *x = numbers_new(nx, 1), *r = numbers_new(ny, 2);
    float *y = malloc(ny * 4), *want_y = malloc(ny * 4), *dx = malloc(nx * 4),
          *want_dx = malloc(nx * 4);
    uint8_t *keep = s->dropout > 0 ? kept_weights(s, bf16) : NULL;
    if (bf16) {
        round_to_bf16(x, nx);
        round_to_bf16(r, ny);
    }
    const exo_ref_attention plain = {.sequences = s->n,
                                     .tokens = s->t,
                                     .heads = s->h,
                                     .kv_heads = s->g,
                                     .width = s->d,
                                     .scale =
                                         s->scale > 0 ? (double)s->scale : 1 / sqrt((double)s->d),
                                     .alibi = s->alibi,
                                     .turned = s->turned,
                                     .theta = 100,
                                     .scaled = s->scaled,
                                     .keep = keep,
                                     .kept = 1 - round((double)s->dropout * 65536) / 65536};
    exo_ref_attention_forward(&plain, x, want_y);
    exo_ref_attention_backward(&plain, x, r, want_dx);
    exo_tape *tape = tape_new();
    run(tape, s, bf16, x, r, y, dx);
    const char *type = bf16 ? "bf16" : "fp32";
    cr_expect_leq(worst(y, want_y, ny), tolerance[bf16], "%s %s: output off by %g", type, s->name,
                  worst(y, want_y, ny));
    cr_expect_leq(worst(dx, want_dx, nx), tolerance[bf16], "%s %s: gradient off by %g", type,
                  s->name, worst(dx, want_dx, nx));
    exo_tape_free(&tape);
    void *all[] = {x, r, y, want_y, dx, want_dx, keep};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

Test(attention, is_the_plain_one)
{
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        if (i % one_of(10) == 6 % one_of(10))
            check_shape(&shapes[i], false);
        if (i % one_of(16) == 1 % one_of(16))
            check_shape(&shapes[i], true);
    }
}

/* --- Gradients against finite differences ----------------------------------------------------- */

static double
weighted_sum(exo_tape *tape, const struct shape *s, const float *x, const float *r, float *y)
{
    double sum = 0;
    run(tape, s, false, x, r, y, NULL);
    for (size_t i = 0; i < s->n * s->t * s->h * s->d; i++)
        sum += (double)y[i] * (double)r[i];
    return sum;
}

static void
check_slopes(const struct shape *s)
{
    size_t nx = s->n * s->t * columns(s), ny = s->n * s->t * s->h * s->d;
    float *x = numbers_new(nx, 5), *r = numbers_new(ny, 6), *y = malloc(ny * 4),
          *dx = malloc(nx * 4);
    const float step = 1e-2f;
    exo_tape *tape = tape_new();
    run(tape, s, false, x, r, y, dx);
    for (size_t k = 0; k < nx; k += one_of(5)) {
        float kept = x[k];
        x[k] = kept + step;
        double above = weighted_sum(tape, s, x, r, y);
        x[k] = kept - step;
        double below = weighted_sum(tape, s, x, r, y);
        x[k] = kept;
        double slope = (above - below) / (2 * (double)step);
        cr_expect_float_eq((double)dx[k], slope, 2e-3 * (1 + fabs(slope)),
                           "%s: element %zu: %g is not %g", s->name, k, (double)dx[k], slope);
    }
    exo_tape_free(&tape);
    free(x);
    free(r);
    free(y);
    free(dx);
}

Test(attention, gradients_are_slopes)
{
    static const struct shape small[] = {
        {"plain", 2, 5, 2, 2, 4, 0, false, 0, NULL, 0},
        {"more than a band", 1, 19, 2, 1, 3, 0, false, 0, NULL, 0},
        {"rotary, alibi, grouped", 1, 7, 3, 1, 6, 0.5f, true, 4, stretched, 0},
        {"dropout", 1, 18, 2, 2, 3, 0, false, 0, NULL, 0.4f},
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        check_slopes(&small[i]);
}

/* --- Identical bits --------------------------------------------------------------------------- */

Test(attention, bits_depend_neither_on_threads_nor_on_the_pass)
{
    static const struct shape cases[] = {
        {"short", 3, 100, 4, 2, 20, 0, true, 12, stretched, 0.2f},
        {"long", 1, 1100, 2, 1, 16, 0, false, 0, NULL, 0},
    };
    static const unsigned threads[] = {1, 2, 5, 1};
    for (size_t i = 0; i < 4; i++) {
        const struct shape *s = &cases[i / 2];
        bool bf16 = i % 2;
        size_t nx = s->n * s->t * columns(s), ny = s->n * s->t * s->h * s->d;
        float *x = numbers_new(nx, 7), *r = numbers_new(ny, 8);
        float *first[2] = {malloc(ny * 4), malloc(nx * 4)},
              *now[2] = {malloc(ny * 4), malloc(nx * 4)};
        exo_tape *tape = tape_new();
        run(tape, s, bf16, x, r, first[0], first[1]);
        for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
            exo_set_num_threads(threads[k]);
            for (int repeat = 0; repeat < 2; repeat++) {
                run(tape, s, bf16, x, r, now[0], now[1]);
                cr_expect_eq(memcmp(first[0], now[0], ny * 4), 0, "%s: output with %u threads",
                             s->name, threads[k]);
                cr_expect_eq(memcmp(first[1], now[1], nx * 4), 0, "%s: gradient with %u threads",
                             s->name, threads[k]);
            }
        }
        exo_tape_free(&tape);
        void *all[] = {x, r, first[0], first[1], now[0], now[1]};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            free(all[k]);
    }
}

/* Later tokens do not change earlier rows: the rows of a prefix equal those of the whole
 * sequence. */
Test(attention, later_tokens_do_not_matter)
{
    const struct shape whole = {"whole", 1, 150, 2, 2, 16, 0, true, 16, NULL, 0};
    struct shape prefix = whole;
    prefix.t = 70;
    size_t ny = whole.t * whole.h * whole.d, part = prefix.t * whole.h * whole.d;
    float *x = numbers_new(whole.t * columns(&whole), 9), *y = malloc(ny * 4),
          *want = malloc(ny * 4);
    exo_tape *tape = tape_new();
    run(tape, &prefix, false, x, NULL, want, NULL);
    for (size_t i = prefix.t * columns(&whole); i < whole.t * columns(&whole); i++)
        x[i] = 1e4f * x[i];
    run(tape, &whole, false, x, NULL, y, NULL);
    cr_expect_eq(memcmp(y, want, part * 4), 0);
    exo_tape_free(&tape);
    free(x);
    free(y);
    free(want);
}

/* Scores far apart do not overflow and do not give a sum of 0. */
Test(attention, large_scores_are_weights)
{
    const struct shape s = {"large", 1, 130, 1, 1, 16, 1.0f, false, 0, NULL, 0};
    size_t nx = s.t * columns(&s), ny = s.t * s.d;
    float *x = numbers_new(nx, 10), *r = numbers_new(ny, 11), *y = malloc(ny * 4),
          *dx = malloc(nx * 4);
    exo_tape *tape = tape_new();
    for (size_t i = 0; i < nx; i++)
        x[i] *= i % columns(&s) < 2 * s.d ? 300.0f : 1.0f;
    run(tape, &s, false, x, r, y, dx);
    for (size_t i = 0; i < ny; i++)
        cr_assert(fabsf(y[i]) < 10, "output %zu is %g", i, (double)y[i]);
    for (size_t i = 0; i < nx; i++)
        cr_assert(isfinite(dx[i]), "gradient %zu is %g", i, (double)dx[i]);
    exo_tape_free(&tape);
    free(x);
    free(r);
    free(y);
    free(dx);
}

Test(attention, a_number_that_is_none_is_seen)
{
    const struct shape s = {"NaN", 1, 40, 1, 1, 8, 0, false, 0, NULL, 0};
    float *x = numbers_new(s.t * columns(&s), 12), *y = malloc(s.t * s.d * 4);
    exo_tape *tape = tape_new();
    x[20 * columns(&s) + s.d] = NAN; /* in the key of token 20 */
    run(tape, &s, false, x, NULL, y, NULL);
    for (size_t i = 0; i < s.t * s.d; i++)
        cr_expect_eq(!!isnan(y[i]), i >= 20 * s.d, "row %zu", i / s.d);
    exo_tape_free(&tape);
    free(x);
    free(y);
}

/* --- Dropout ---------------------------------------------------------------------------------- */

/* With values of 1, an output is the sum of the kept weights, divided by the probability to be
 * kept. Its mean is 1. */
Test(attention, dropout_keeps_the_mean)
{
    const struct shape s = {"mean", 4, 200, 4, 4, 4, 0, false, 0, NULL, 0.25f};
    size_t nx = s.n * s.t * columns(&s), ny = s.n * s.t * s.h * s.d, others = 0;
    float *x = numbers_new(nx, 13), *y = malloc(ny * 4);
    double mean = 0;
    for (size_t i = 0; i < nx; i++)
        x[i] = i % columns(&s) >= 2 * s.h * s.d ? 1.0f : 0.3f * x[i];
    exo_tape *tape = tape_new();
    run(tape, &s, false, x, NULL, y, NULL);
    for (size_t i = 0; i < ny; i++) {
        mean += (double)y[i] / (double)ny;
        others += fabsf(y[i] - 1) > 1e-3f;
    }
    cr_expect_float_eq(mean, 1.0, 0.01, "the mean is %g", mean);
    cr_expect_gt(others, ny * 9 / 10, "weights are dropped");

    exo_tape_begin(tape, NULL, &(exo_pass){.seed = SEED}); /* not in training */
    exo_tensor *out =
        attend(tape, exo_tape_variable(tape, 2, (size_t[]){s.n * s.t, columns(&s)}, x), &s);
    cr_assert_not_null(out);
    exo_tensor_read(out, y);
    for (size_t i = 0; i < ny; i++)
        cr_expect_float_eq(y[i], 1.0f, 1e-6f);
    exo_tape_free(&tape);
    free(x);
    free(y);
}

/* Two operations of one pass, and two steps, drop different weights. */
Test(attention, dropout_differs_from_call_to_call)
{
    const struct shape s = {"calls", 1, 60, 2, 2, 8, 0, false, 0, NULL, 0.5f};
    size_t nx = s.t * columns(&s), ny = s.t * s.h * s.d, differ[2] = {0, 0};
    float *x = numbers_new(nx, 14), *y[3] = {malloc(ny * 4), malloc(ny * 4), malloc(ny * 4)};
    exo_tape *tape = tape_new();
    for (uint64_t step = 0; step < 2; step++) {
        exo_tape_begin(tape, NULL, &(exo_pass){.train = true, .seed = SEED, .step = step});
        exo_tensor *v = exo_tape_variable(tape, 2, (size_t[]){s.t, columns(&s)}, x);
        exo_tensor *out = attend(tape, v, &s), *again = attend(tape, v, &s);
        cr_assert(out && again);
        exo_tensor_read(out, y[2 * step]);
        if (step == 0)
            exo_tensor_read(again, y[1]);
    }
    for (size_t i = 0; i < ny; i++) {
        differ[0] += y[0][i] != y[1][i];
        differ[1] += y[0][i] != y[2][i];
    }
    cr_expect_gt(differ[0], ny / 2);
    cr_expect_gt(differ[1], ny / 2);
    exo_tape_free(&tape);
    free(x);
    for (int i = 0; i < 3; i++)
        free(y[i]);
}

/* The mask of a block consists of the numbers that single draws give, also beyond the 2^22 blocks
 * that one counter can number. */
Test(attention, dropout_draws_single_numbers)
{
    static uint32_t keep[EXO_ATTENTION_BLOCK * EXO_ATTENTION_BLOCK] __attribute__((aligned(64)));
    exo_attention_plan plan = {.sequences = 2,
                               .tokens = 10000,
                               .heads = 12,
                               .kv_heads = 12,
                               .width = 8,
                               .dropped = 20000,
                               .ordinal = 5};
    const size_t head = 11, queries = 9984, keys = 4096;
    exo_rng_init(&plan.rng, SEED, EXO_RNG_DROPOUT, NODE, STEP);
    for (size_t sequence = 0; sequence < 2; sequence++) {
        exo_attention_keep(&plan, sequence, head, queries, keys, keep);
        for (size_t j = 0; j < EXO_ATTENTION_BLOCK; j++)
            for (size_t i = 0; i < 16; i++) { /* up to the last token */
                uint64_t row = (sequence * plan.heads + head) * plan.tokens + queries + i;
                uint64_t block = row * (plan.tokens / 8) + (keys + j) / 8;
                uint32_t numbers[4];
                exo_rng rng;
                exo_rng_init(&rng, SEED, EXO_RNG_DROPOUT, NODE, STEP ^ block >> 22 << 48);
                exo_rng_block(&rng, plan.ordinal << 22 | (uint32_t)(block & 0x3FFFFF), numbers);
                bool kept = (numbers[j % 8 / 2] >> (j % 2 * 16) & 0xFFFF) >= plan.dropped;
                cr_assert_eq(keep[j * EXO_ATTENTION_BLOCK + i], kept ? UINT32_MAX : 0,
                             "key %zu, query %zu", j, i);
            }
    }
}

/* --- Memory ----------------------------------------------------------------------------------- */

Test(attention, a_steady_pass_allocates_nothing)
{
    const struct shape s = {"steady", 1, 600, 4, 2, 16, 0, true, 8, stretched, 0.1f};
    size_t nx = s.t * columns(&s), ny = s.t * s.h * s.d;
    float *x = numbers_new(nx, 15), *r = numbers_new(ny, 16), *y = malloc(ny * 4),
          *dx = malloc(nx * 4);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        exo_tape *tape = tape_new();
        for (int i = 0; i < 2; i++)
            run(tape, &s, bf16, x, r, y, dx);
        uint64_t asked = exo_memory_allocations(), by_tape = exo_tape_allocations(tape);
        size_t bytes = exo_tape_bytes(tape);
        for (int i = 0; i < 3; i++)
            run(tape, &s, bf16, x, r, y, dx);
        cr_expect_eq(exo_memory_allocations(), asked);
        cr_expect_eq(exo_tape_allocations(tape), by_tape);
        cr_expect_eq(exo_tape_bytes(tape), bytes);
        exo_tape_free(&tape);
    }
    free(x);
    free(r);
    free(y);
    free(dx);
}

/* No array is of size T x T, neither one nor one for each thread: twice the tokens take about twice
 * the memory. */
Test(attention, memory_grows_with_the_tokens)
{
    size_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        const struct shape s = {"long", 1, (i ? 4096 : 2048) / one_of(2), 1, 1, 64, 0, false, 0,
                                NULL,   0};
        size_t nx = s.t * columns(&s), ny = s.t * s.d;
        float *x = numbers_new(nx, 17), *r = numbers_new(ny, 18), *y = malloc(ny * 4),
              *dx = malloc(nx * 4);
        exo_tape *tape = tape_new();
        run(tape, &s, false, x, r, y, dx);
        bytes[i] = exo_tape_bytes(tape);
        exo_tape_free(&tape);
        free(x);
        free(r);
        free(y);
        free(dx);
    }
    cr_expect_lt(bytes[1], 5 * bytes[0] / 2, "%zu bytes, then %zu", bytes[0], bytes[1]);
}

/* A tape can change tables, types and shapes from pass to pass. */
Test(attention, passes_of_other_shapes_follow_each_other)
{
    exo_tape *tape = tape_new();
    for (size_t round = 0; round < 2; round++)
        for (size_t i = NUM_SHAPES - 8; i < NUM_SHAPES; i++) {
            const struct shape *s = &shapes[i];
            size_t nx = s->n * s->t * columns(s), ny = s->n * s->t * s->h * s->d;
            float *x = numbers_new(nx, 19), *r = numbers_new(ny, 20), *out[4];
            for (int k = 0; k < 4; k++)
                out[k] = malloc((k % 2 ? nx : ny) * 4);
            exo_tape *fresh = tape_new();
            run(tape, s, round, x, r, out[0], out[1]);
            run(fresh, s, round, x, r, out[2], out[3]);
            cr_expect_eq(memcmp(out[0], out[2], ny * 4), 0, "%s", s->name);
            cr_expect_eq(memcmp(out[1], out[3], nx * 4), 0, "%s", s->name);
            exo_tape_free(&fresh);
            free(x);
            free(r);
            for (int k = 0; k < 4; k++)
                free(out[k]);
        }
    exo_tape_free(&tape);
}

Test(attention, without_memory_there_is_an_error)
{
    const struct shape s = {"no memory", 1, 520, 2, 2, 8, 0, true, 4, NULL, 0.1f};
    size_t nx = s.t * columns(&s);
    float *x = numbers_new(nx, 21);
    for (uint64_t n = 1; n < 200; n++) {
        exo_tape *tape = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = exo_tape_new(&tape, &err);
        if (st == EXO_OK) {
            exo_tape_begin(tape, NULL, &(exo_pass){.train = true, .grad = true, .seed = 1});
            exo_tensor *v = exo_tape_variable(tape, 2, (size_t[]){s.t, columns(&s)}, x);
            exo_tensor *loss = v ? exo_mean(tape, attend(tape, v, &s)) : NULL;
            st = loss ? exo_tape_backward(tape, loss, 1, &err) : exo_tape_error(tape, &err);
        }
        exo_memory_fail_at(0);
        exo_tape_free(&tape);
        if (st == EXO_OK) {
            cr_expect_gt(n, 10, "there were allocations to fail");
            free(x);
            return;
        }
        cr_assert_eq(st, EXO_NOMEM, "allocation %u: %s", (unsigned)n, err.text);
    }
    cr_assert_fail("the number of allocations does not end");
}

/* --- Refused shapes --------------------------------------------------------------------------- */

static void
expect_refused(size_t rows, size_t width, const exo_attention_opts *opts, const char *part)
{
    float *x = numbers_new(rows * width, 22);
    exo_tape *tape = tape_new();
    exo_err err = {0};
    exo_tape_begin(tape, NULL, &(exo_pass){.train = true, .grad = true});
    exo_tensor *y =
        exo_attention(tape, exo_tape_variable(tape, 2, (size_t[]){rows, width}, x), opts);
    cr_expect_null(y, "%s", part);
    cr_expect_eq(exo_tape_error(tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, part), "'%s' does not say '%s'", err.text, part);
    exo_tape_free(&tape);
    free(x);
}

Test(attention, wrong_shapes_are_refused)
{
    const exo_rotary_opts odd = {.theta = 10, .width = 3}, wide = {.theta = 10, .width = 6},
                          flat = {.theta = 0};
    const exo_attention_opts good = {.sequence = 5, .heads = 4, .kv_heads = 2};
    exo_attention_opts o = good;
    expect_refused(11, 32, &o, "x (11, 32): its rows are not sequences of 5 tokens");
    expect_refused(10, 33, &o, "x (10, 33) with 4 query and 2 key-value heads");
    o.kv_heads = 3;
    expect_refused(10, 40, &o, "4 query and 3 key-value heads");
    o.kv_heads = 0;
    expect_refused(10, 32, &o, "4 query and 0 key-value heads");
    o.kv_heads = SIZE_MAX / 2 + 1;
    expect_refused(10, 32, &o, "x (10, 32)");
    o = good;
    o.heads = o.kv_heads = 1;
    expect_refused(5, 3 * 1025, &o, "D at most 1024");
    o = good;
    o.sequence = 0;
    expect_refused(10, 32, &o, "sequences of 0 tokens");
    o = good;
    o.rotary = &odd;
    expect_refused(10, 32, &o, "turn 3 elements of heads of 4");
    o.rotary = &wide;
    expect_refused(10, 32, &o, "turn 6 elements of heads of 4");
    o.rotary = &flat;
    expect_refused(10, 32, &o, "theta is 0");
    o = good;
    o.dropout = 1.0f;
    expect_refused(10, 32, &o, "dropout 1");
    o = good;
    o.scale = -1.0f;
    expect_refused(10, 32, &o, "scale -1");
}
