/* Losses (exogym/loss.h): against other sums of the same formulas (tests/golden/losses.py), logits
 * that are a product against whole ones, masks, and what is refused. Gradients by differences:
 * gradcheck.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/loss.h>
#include <exogym/sequence.h>

#include "base/memory_fault.h"
#include "golden/losses_golden.h"
#include "support/numbers.h"
#include "support/passes.h"

enum {
    MAX_COLUMNS = 8,
    MAX_NUMBERS = 64
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* fp32 sums of a few terms of about 1, of which the golden ones are rounded once. */
static const double tolerance = 2e-6;

static void
expect_close(const float *got, const float *want, size_t count, const char *what, size_t i)
{
    for (size_t k = 0; k < count; k++)
        cr_expect_float_eq((double)got[k], (double)want[k], tolerance * (1 + fabs((double)want[k])),
                           "%s of case %zu, element %zu: %.9g, not %.9g", what, i, k,
                           (double)got[k], (double)want[k]);
}

static exo_tensor *
input(exo_tape *tape, size_t count, const float *values)
{
    return values ? exo_tape_input(tape, EXO_F32, 1, &count, values) : NULL;
}

static exo_tensor *
labels(exo_tape *tape, size_t count, const int32_t *values)
{
    return exo_tape_input(tape, EXO_I32, 1, &count, values);
}

/* --- Against the golden numbers --------------------------------------------------------------- */

/* x as whole logits, or as a product with the identity, which is exact. */
static exo_logits
logits_of(exo_tape *tape, exo_tensor *x, size_t columns, bool product)
{
    static float identity[MAX_COLUMNS * MAX_COLUMNS];
    memset(identity, 0, sizeof identity);
    for (size_t i = 0; i < columns; i++)
        identity[i * columns + i] = 1;
    return (exo_logits){
        .x = x,
        .weight = product ? exo_tape_input(tape, EXO_F32, 2, (size_t[]){columns, columns}, identity)
                          : NULL};
}

static void
expect_rows(const struct golden_rows *c, bool product, size_t i)
{
    const struct {
        const char *name;
        const float *y, *dx;
        size_t count;
    } wanted[] = {{"cross_entropy", &c->loss, c->dloss, 1},
                  {"log_probs", c->log_probs, c->dlog_probs, c->rows},
                  {"entropy", c->entropy, c->dentropy, c->rows}};
    static const float one[] = {1};
    for (size_t k = 0; k < COUNT(wanted); k++) {
        float y[MAX_NUMBERS], dx[MAX_NUMBERS];
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *x = exo_tape_variable(tape, 2, (size_t[]){c->rows, c->columns}, c->x),
                   *out = NULL;
        exo_logits logits = logits_of(tape, x, c->columns, product);
        exo_tensor *targets = labels(tape, c->rows, c->targets);
        if (k == 0)
            out = exo_cross_entropy(tape, logits, targets);
        else if (k == 1)
            out = exo_log_probs(tape, logits, targets, c->temperature);
        else
            out = exo_entropy(tape, logits, c->temperature);
        passes_backward(tape, out, k == 0 ? one : c->dy, y);
        exo_tensor_grad(x, dx);
        expect_close(y, wanted[k].y, wanted[k].count, wanted[k].name, i);
        expect_close(dx, wanted[k].dx, c->rows * c->columns, wanted[k].name, i);
        exo_tape_free(&tape);
    }
}

Test(losses, rows_of_logits_are_the_formulas)
{
    for (size_t i = 0; i < COUNT(golden_rows); i++)
        expect_rows(&golden_rows[i], false, i);
}

Test(losses, a_product_is_the_same)
{
    for (size_t i = 0; i < COUNT(golden_rows); i++)
        expect_rows(&golden_rows[i], true, i);
}

/* The loss and its gradient by x, which is `count` numbers. */
static void
expect_loss(exo_tape *tape, exo_tensor *x, exo_tensor *loss, size_t count, float want,
            const float *dx, const char *name, size_t i)
{
    float got[MAX_NUMBERS];
    exo_err err = {0};
    cr_assert_not_null(loss, "%s", (exo_tape_error(tape, &err), err.text));
    expect_close(&(float){exo_tensor_item(loss)}, &want, 1, name, i);
    cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(x, got);
    expect_close(got, dx, count, name, i);
}

Test(losses, policy_loss_is_the_formula)
{
    for (size_t i = 0; i < COUNT(golden_policy); i++) {
        const struct golden_policy *c = &golden_policy[i];
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *x = exo_tape_variable(tape, 1, &c->count, c->x);
        exo_tensor *loss =
            exo_policy_loss(tape, x, input(tape, c->count, c->old), input(tape, c->count, c->with),
                            input(tape, c->count, c->mask), c->clip);
        expect_loss(tape, x, loss, c->count, c->loss, c->dx, "policy_loss", i);
        exo_tape_free(&tape);
    }
}

Test(losses, value_loss_is_the_formula)
{
    for (size_t i = 0; i < COUNT(golden_value); i++) {
        const struct golden_value *c = &golden_value[i];
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *x = exo_tape_variable(tape, 2, (size_t[]){c->count, 1},
                                          c->x); /* as a head of one output gives it */
        exo_tensor *loss =
            exo_value_loss(tape, x, c->clip > 0 ? input(tape, c->count, c->old) : NULL,
                           input(tape, c->count, c->with), input(tape, c->count, c->mask), c->clip);
        expect_loss(tape, x, loss, c->count, c->loss, c->dx, "value_loss", i);
        exo_tape_free(&tape);
    }
}

Test(losses, ranking_loss_is_the_formula)
{
    for (size_t i = 0; i < COUNT(golden_ranking); i++) {
        const struct golden_ranking *c = &golden_ranking[i];
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *x = exo_tape_variable(tape, 1, &c->count, c->x);
        expect_loss(tape, x, exo_ranking_loss(tape, x), c->count, c->loss, c->dx, "ranking_loss",
                    i);
        exo_tape_free(&tape);
    }
}

/* --- Products over several blocks of a vocabulary --------------------------------------------- */

/* sum(dy y) of log-probabilities and entropies, and the gradients of x and the weights. */
static double
run_large(exo_tape *tape, size_t rows, size_t width, size_t vocabulary, bool whole, bool bf16,
          float *dx, float *dw)
{
    float *x = numbers_new(rows * width, 41), *w = numbers_new(vocabulary * width, 42),
          *dy = numbers_new(rows, 43);
    int32_t *targets = calloc(rows, sizeof *targets);
    float *value = calloc(rows, sizeof *value);
    for (size_t r = 0; r < rows; r++)
        targets[r] = r % 5 == 2 ? -1 : (int32_t)(r * 37 % vocabulary);
    passes_begin(tape, true, bf16);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){rows, width}, x);
    exo_tensor *tw = exo_tape_variable(tape, 2, (size_t[]){vocabulary, width}, w);
    exo_logits logits = {.x = tx, .weight = tw};
    if (whole)
        logits = (exo_logits){.x = exo_logits_tensor(tape, logits)};
    exo_tensor *t = labels(tape, rows, targets);
    exo_tensor *y =
        exo_add(tape, exo_log_probs(tape, logits, t, 0.8f), exo_entropy(tape, logits, 0.8f));
    passes_backward(tape, y, dy, value);
    exo_tensor_grad(tx, dx);
    exo_tensor_grad(tw, dw);
    double sum = 0;
    for (size_t r = 0; r < rows; r++)
        sum += (double)value[r] * (double)dy[r];
    free(x), free(w), free(dy), free(targets), free(value);
    return sum;
}

enum {
    LARGE_R = 1100, /* two chunks of rows */
    LARGE_W = 9,
    LARGE_V = 700 /* several blocks, the last one short */
};

/* The distance of both gradients from those of the fp32 product of blocks. */
static double
distance_of_large(bool whole, bool bf16, double *sum)
{
    float *dx[2], *dw[2];
    for (int i = 0; i < 2; i++) {
        exo_tape *tape = passes_tape();
        dx[i] = calloc(LARGE_R * LARGE_W, sizeof(float));
        dw[i] = calloc(LARGE_V * LARGE_W, sizeof(float));
        sum[i] = run_large(tape, LARGE_R, LARGE_W, LARGE_V, i == 1 && whole, i == 1 && bf16, dx[i],
                           dw[i]);
        exo_tape_free(&tape);
    }
    double off = fmax(numbers_distance(dx[1], dx[0], LARGE_R * LARGE_W),
                      numbers_distance(dw[1], dw[0], LARGE_V * LARGE_W));
    for (int i = 0; i < 2; i++)
        free(dx[i]), free(dw[i]);
    return off;
}

Test(losses, a_product_of_many_blocks_is_the_whole_one)
{
    double sum[2], off = distance_of_large(true, false, sum);
    cr_expect(off <= passes_tolerance[0], "off by %g", off);
    cr_expect_float_eq(sum[0], sum[1], passes_tolerance[0] * (1 + fabs(sum[1])));
}

/* The logits are as large as 10, and an error of theirs is a relative error of the softmax. The
 * operands are rounded in both forms; the whole product also rounds the logits, to 8 bits. */
Test(losses, a_product_of_many_blocks_with_autocast)
{
    if (!numbers_bf16_runs())
        cr_skip("this processor has no bf16");
    double sum[2], blocks = distance_of_large(false, true, sum);
    cr_expect_float_eq(sum[0], sum[1], 0.01 * (1 + fabs(sum[0])));
    double whole = distance_of_large(true, true, sum);
    cr_expect(blocks <= 0.15, "off by %g", blocks);
    cr_expect(whole <= 0.3, "off by %g", whole);
    cr_expect(blocks <= whole, "the whole product is off by %g, the blocks by %g", whole, blocks);
}

/* Logits of a size that exp does not know: what is certain has no entropy, and nothing becomes
 * NaN. */
Test(losses, large_logits_overflow_nothing)
{
    static const float x[] = {1e4f, 0, -1e4f, 500, 500, 500};
    static const int32_t target[] = {0, 1};
    for (int product = 0; product < 2; product++) {
        float entropy[2], log_probs[2], dx[6];
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *t = exo_tape_variable(tape, 2, (size_t[]){2, 3}, x);
        exo_logits logits = logits_of(tape, t, 3, product);
        exo_tensor *p = exo_log_probs(tape, logits, labels(tape, 2, target), 1),
                   *e = exo_entropy(tape, logits, 1);
        exo_tensor_read(p, log_probs);
        exo_tensor_read(e, entropy);
        cr_assert_eq(exo_tape_backward(tape, exo_mean(tape, exo_add(tape, p, e)), 1, NULL), EXO_OK);
        exo_tensor_grad(t, dx);
        cr_expect_float_eq(log_probs[0], 0, 1e-6f);
        cr_expect_float_eq(log_probs[1], -logf(3), 1e-4f); /* of sums of 500 in fp32 */
        cr_expect_float_eq(entropy[0], 0, 1e-6f);
        cr_expect_float_eq(entropy[1], logf(3), 1e-4f);
        for (int i = 0; i < 6; i++)
            cr_expect(isfinite(dx[i]), "%d: %g", i, (double)dx[i]);
        exo_tape_free(&tape);
    }
}

/* An entropy does not depend on what all logits have in common, and the sums of the blocks of a
 * product do not either. Logits and differences are exact in fp32. */
Test(losses, a_common_part_of_all_logits_changes_no_entropy)
{
    static const float low[] = {0, 0.5f, -1.25f, 2, -0.75f, 1, 0.25f, -2},
                       common[] = {0, 100, -100, 1000};
    const float temperature = 0.7f;
    double sum = 0, margin = 0, scale = (double)(1 / temperature);
    for (int v = 0; v < 8; v++) {
        double below = scale * (2 - (double)low[v]);
        sum += exp(-below);
        margin += below * exp(-below);
    }
    for (size_t i = 0; i < 2 * COUNT(common); i++) {
        float x[8], got, alone;
        for (int v = 0; v < 8; v++)
            x[v] = low[v] + common[i / 2];
        exo_tape *tape = passes_tape();
        passes_begin(tape, false, false);
        exo_tensor *t = exo_tape_input(tape, EXO_F32, 2, (size_t[]){1, 8}, x),
                   *one = exo_tape_input(tape, EXO_F32, 2, (size_t[]){1, 1}, x);
        exo_tensor_read(exo_entropy(tape, logits_of(tape, t, 8, i % 2), temperature), &got);
        cr_expect_float_eq((double)got, log(sum) + margin / sum, 4e-7, "%zu: %.9g, not %.9g", i,
                           (double)got, log(sum) + margin / sum);
        exo_tensor_read(exo_entropy(tape, logits_of(tape, one, 1, i % 2), temperature), &alone);
        cr_expect_eq(alone, 0, "%zu: one class has the entropy %g", i, (double)alone);
        exo_tape_free(&tape);
    }
}

Test(losses, a_logit_that_is_not_a_number_is_seen_and_one_of_minus_infinity_counts_as_none)
{
    static const float x[] = {1, NAN, 0, 1, -INFINITY, 0};
    float y[2];
    exo_tape *tape = passes_tape();
    passes_begin(tape, false, false);
    exo_tensor *t = exo_tape_input(tape, EXO_F32, 2, (size_t[]){2, 3}, x);
    exo_tensor_read(exo_entropy(tape, (exo_logits){.x = t}, 1), y);
    cr_expect(isnan(y[0]), "%g", (double)y[0]);
    cr_expect_float_eq((double)y[1], 0.58220311, 1e-6);
    exo_tape_free(&tape);
}

/* --- What counts ------------------------------------------------------------------------------ */

/* Padding may hold anything. */
Test(losses, masked_rows_are_not_looked_at)
{
    static const float mask[] = {1, 0, 2, 0}, x[] = {-1, NAN, -2, 900},
                       old[] = {-1.1f, 3, -2.2f, -900};
    static const float with[] = {1, INFINITY, -1, 2};
    float dx[2][4];
    for (int i = 0; i < 2; i++) {
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *v = exo_tape_variable(tape, 1, (size_t[]){4}, x);
        exo_tensor *o = input(tape, 4, old), *w = input(tape, 4, with), *m = input(tape, 4, mask);
        exo_tensor *loss =
            i ? exo_value_loss(tape, v, o, w, m, 0.2f) : exo_policy_loss(tape, v, o, w, m, 0.2f);
        cr_assert_not_null(loss);
        cr_expect(isfinite(exo_tensor_item(loss)));
        cr_assert_eq(exo_tape_backward(tape, loss, 1, NULL), EXO_OK);
        exo_tensor_grad(v, dx[i]);
        cr_expect_eq(dx[i][1], 0);
        cr_expect_eq(dx[i][3], 0);
        cr_expect(isfinite(dx[i][0]) && dx[i][0] != 0);
        exo_tape_free(&tape);
    }
}

Test(losses, nothing_that_counts_is_a_loss_of_zero)
{
    static const float x[] = {1, 2, 3, 4}, none[] = {0, 0};
    static const int32_t target[] = {-1, -1};
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *logits = exo_tape_variable(tape, 2, (size_t[]){2, 2}, x),
               *t = labels(tape, 2, target);
    exo_tensor *mean = exo_masked_mean(tape, exo_log_probs(tape, (exo_logits){.x = logits}, t, 1),
                                       input(tape, 2, none));
    exo_tensor *loss = exo_add(tape, exo_cross_entropy(tape, (exo_logits){.x = logits}, t), mean);
    float dx[4];
    cr_assert_not_null(loss);
    cr_expect_eq(exo_tensor_item(loss), 0);
    cr_assert_eq(exo_tape_backward(tape, loss, 1, NULL), EXO_OK);
    exo_tensor_grad(logits, dx);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(dx[i], 0);
    cr_expect(isnan(exo_accuracy(logits, t)));
    exo_tape_free(&tape);
}

Test(losses, accuracy_is_of_rows_with_a_label)
{
    static const float x[] = {1, 0, 1, 0, 1, 0, 0, 1};
    static const int32_t target[] = {0, -1, 1, 1};
    exo_tape *tape = passes_tape();
    passes_begin(tape, false, false);
    cr_expect_float_eq(exo_accuracy(exo_tape_input(tape, EXO_F32, 2, (size_t[]){4, 2}, x),
                                    labels(tape, 4, target)),
                       2.0 / 3, 1e-12);
    exo_tape_free(&tape);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* A pass with every loss: `product`, logits are one. */
static exo_status
run_all(exo_tape *tape, bool product, exo_err *err)
{
    static const float x[] = {0.1f, 2, -1, 0.5f, 1, 0.3f, -0.2f, 0.4f},
                       w[] = {1, 0.5f, -0.5f, 2, 1, -1}, numbers[4] = {1};
    static const int32_t target[] = {0, 1, -1, 2};
    passes_begin(tape, true, false);
    exo_tensor *hidden = exo_tape_variable(tape, 2, (size_t[]){4, 2}, x);
    exo_logits logits = {.x = hidden, .weight = exo_tape_variable(tape, 2, (size_t[]){3, 2}, w)};
    if (!product)
        logits = (exo_logits){.x = exo_logits_tensor(tape, logits)};
    exo_tensor *t = labels(tape, 4, target), *row = input(tape, 4, numbers);
    exo_tensor *log_probs = exo_log_probs(tape, logits, t, 1);
    exo_tensor *loss =
        exo_add(tape, exo_cross_entropy(tape, logits, t), exo_ranking_loss(tape, hidden));
    loss = exo_add(tape, loss, exo_policy_loss(tape, log_probs, row, row, row, 0.2f));
    loss = exo_add(tape, loss, exo_value_loss(tape, log_probs, row, row, row, 0.2f));
    loss = exo_add(tape, loss, exo_masked_mean(tape, exo_entropy(tape, logits, 1), row));
    return loss ? exo_tape_backward(tape, loss, 1, err) : exo_tape_error(tape, err);
}

Test(losses, without_memory_a_pass_ends)
{
    exo_set_num_threads(1); /* allocations are counted */
    for (int product = 0; product < 2; product++) {
        exo_status st = EXO_NOMEM;
        uint64_t failed = 0;
        for (uint64_t n = 1; st != EXO_OK && n < 1000; n++) {
            exo_tape *tape = passes_tape();
            exo_err err = {0};
            exo_memory_fail_at(n);
            st = run_all(tape, product, &err);
            exo_memory_fail_at(0);
            failed += st == EXO_NOMEM;
            cr_expect(st == EXO_OK || st == EXO_NOMEM, "allocation %llu: %s", (unsigned long long)n,
                      err.text);
            exo_tape_free(&tape);
        }
        cr_expect_eq(st, EXO_OK);
        cr_expect_gt(failed, 20);
    }
}

/* --- What is refused -------------------------------------------------------------------------- */

#define REFUSED(expression, word)                                                                  \
    do {                                                                                           \
        exo_err err_ = {0};                                                                        \
        passes_begin(tape, true, false);                                                           \
        cr_expect_null(expression);                                                                \
        cr_expect_eq(exo_tape_error(tape, &err_), EXO_INVAL, "%s", #expression);                   \
        cr_expect(strstr(err_.text, word), "%s: '%s' does not say %s", #expression, err_.text,     \
                  word);                                                                           \
    } while (0)

Test(losses, wrong_shapes_and_numbers_are_refused)
{
    static const float x[64] = {0};
    static const int32_t target[] = {0, 3, 1};
    exo_tape *tape = passes_tape();
#define IN(...)                                                                                    \
    exo_tape_input(tape, EXO_F32, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),                \
                   (size_t[]){__VA_ARGS__}, x)
#define ROWS(...)        ((exo_logits){.x = IN(__VA_ARGS__)})
#define PRODUCT(r, w, v) ((exo_logits){.x = IN(r, w), .weight = IN(v, w)})
    REFUSED(exo_cross_entropy(tape, ROWS(3, 2), labels(tape, 3, target)),
            "target 3 of row 1 is not in [0, 2)");
    REFUSED(exo_cross_entropy(tape, PRODUCT(3, 4, 3), labels(tape, 3, target)),
            "target 3 of row 1 is not in [0, 3)");
    REFUSED(exo_log_probs(tape, ROWS(3, 2), labels(tape, 3, target), 1), "target 3 of row 1");
    REFUSED(exo_log_probs(tape, ROWS(2, 4), labels(tape, 3, target), 1), "(2, 4)");
    REFUSED(exo_log_probs(tape, ROWS(3, 4), labels(tape, 3, target), -1), "temperature is -1");
    REFUSED(exo_log_probs(tape, ROWS(3, 4), IN(3), 1), "int32");
    REFUSED(exo_entropy(tape, ROWS(3), 1), "(3)");
    REFUSED(exo_entropy(tape, ROWS(3, 4), NAN), "temperature");
    REFUSED(exo_entropy(tape, ((exo_logits){.x = IN(3, 4), .weight = IN(5, 3)}), 1), "(5, 3)");
    REFUSED(exo_masked_mean(tape, IN(4), IN(3)), "the mask (3)");
    REFUSED(exo_policy_loss(tape, IN(4), IN(3), IN(4), NULL, 0.2f), "old_log_probs (3)");
    REFUSED(exo_policy_loss(tape, IN(4), IN(4), labels(tape, 3, target), NULL, 0.2f),
            "advantages (3) int32");
    REFUSED(exo_policy_loss(tape, IN(4), IN(4), IN(4), IN(5), 0.2f), "the mask (5)");
    REFUSED(exo_policy_loss(tape, IN(4), IN(4), IN(4), NULL, -0.2f), "clip is -0.2");
    REFUSED(exo_value_loss(tape, IN(4), NULL, IN(4), NULL, 0.2f), "needs old_values");
    REFUSED(exo_value_loss(tape, IN(4), NULL, IN(2), NULL, 0), "returns (2)");
    REFUSED(exo_value_loss(tape, IN(4), IN(4), IN(4), NULL, NAN), "clip");
    REFUSED(exo_ranking_loss(tape, IN(3)), "expected pairs");
    passes_begin(tape, true, false);
    cr_expect_null(exo_policy_loss(tape, NULL, IN(4), IN(4), NULL, 0.2f));
    cr_expect_null(exo_value_loss(tape, NULL, NULL, IN(4), NULL, 0));
    cr_expect_null(exo_ranking_loss(tape, NULL));
    cr_expect_null(exo_entropy(tape, (exo_logits){0}, 1));
    cr_expect_null(exo_masked_mean(tape, NULL, IN(4)));
    cr_expect_eq(exo_tape_error(tape, NULL), EXO_OK, "NULL in, NULL out");
    exo_tape_free(&tape);
}
