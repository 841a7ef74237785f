/* Attention: the blocked one against the plain one over one table of shapes, in fp32 and bf16; gradients against finite differences; bits
 * that depend neither on threads nor on the pass; dropout; and shapes that are refused. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/sequence.h>

#include "attention.h"
#include "bf16.h"
#include "memory_fault.h"
#include "numbers.h"

/* What rounding to fp32 in another order of summation, and to 8 bits of mantissa, may cost. */
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
    static exo_rotary_opts rotary; /* must live as long as the tape */
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

/* One pass: y (R, H D) and dx for the loss sum(y * r). `dx` NULL: forward only. */
static void
run(exo_tape *tape, const struct shape *s, bool bf16, const float *x, const float *r, float *y, float *dx)
{
    const exo_pass pass = {
        .train = true, .grad = dx != NULL, .autocast = bf16, .seed = SEED, .node = NODE, .step = STEP};
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
    cr_assert_eq(exo_tape_backward(tape, loss, (float)numel, &err), EXO_OK, "%s: %s", s->name, err.text);
    exo_tensor_grad(v, dx);
}

/* The weights that dropout keeps, number by number, as the engine's header has it. The conversion to bf16 is operation 0. */
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

/* The largest difference, in parts of the largest number. */
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
    float *y = malloc(ny * 4), *want_y = malloc(ny * 4), *dx = malloc(nx * 4), *want_dx = malloc(nx * 4);
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
                                     .scale = s->scale > 0 ? (double)s->scale : 1 / sqrt((double)s->d),
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
    cr_expect_leq(worst(dx, want_dx, nx), tolerance[bf16], "%s %s: gradient off by %g", type, s->name,
                  worst(dx, want_dx, nx));
    exo_tape_free(&tape);
    void *all[] = {x, r, y, want_y, dx, want_dx, keep};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

Test(attention, is_the_plain_one)
{
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        check_shape(&shapes[i], false);
        check_shape(&shapes[i], true);
    }
}
