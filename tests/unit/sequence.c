/* Operations of language models: fast kernels against reference kernels over tables of shapes, bits
 * that do not depend on threads, checkpoints, and errors. Each test owns its tape; `arrays` is
 * freed after it. Read next: nn/ref/ref_sequence.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/bf16.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref.h"
#include "nn/ref/ref_sequence.h"
#include "support/numbers.h"
#include "support/passes.h"

enum {
    MOST = 4
};

/* Arrays of a test, which are freed together. */
static float *arrays[64];
static size_t num_arrays;

static float *
array(size_t count, uint64_t seed)
{
    float *a = numbers_new(count, seed);
    cr_assert_lt(num_arrays, sizeof arrays / sizeof arrays[0]);
    arrays[num_arrays++] = a;
    return a;
}

static void
free_arrays(void)
{
    while (num_arrays > 0)
        free(arrays[--num_arrays]);
}

TestSuite(sequence, .fini = free_arrays);

static size_t
types(void)
{
    return numbers_bf16_runs() ? 2 : 1;
}

/* --- Activations ------------------------------------------------------------------------------ */

static const exo_activation activations[] = {EXO_LINEAR, EXO_RELU, EXO_GELU, EXO_GELU_TANH,
                                             EXO_SILU};
static const char *const names[] = {"linear", "relu", "gelu", "gelu by tanh", "silu"};

/* With one input and a weight of 1 the result is the activation alone. */
Test(sequence, activations_are_the_plain_ones)
{
    enum {
        COUNT = 4001
    };
    float *x = array(COUNT, 1), *r = array(COUNT, 2), *got = array(COUNT, 3), *dx = array(COUNT, 4);
    const float one = 1.0f;
    for (size_t i = 0; i < COUNT; i++)
        x[i] = ((float)i - COUNT / 2) * 0.01f;
    for (size_t k = 0; k < sizeof activations / sizeof activations[0]; k++) {
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){COUNT, 1}, x);
        exo_tensor *w = exo_tape_variable(tape, 2, (size_t[]){1, 1}, &one);
        passes_backward(tape, exo_linear_activation(tape, in, w, NULL, activations[k]), r, got);
        exo_tensor_grad(in, dx);
        for (size_t i = 0; i < COUNT; i++) {
            double v = (double)x[i], want = exo_ref_activation(activations[k], v);
            double slope = exo_ref_activation_slope(activations[k], v) * (double)r[i];
            cr_assert_float_eq((double)got[i], want, 4e-7 * (1 + fabs(v)), "%s(%g) is %g, not %g",
                               names[k], v, (double)got[i], want);
            cr_assert_float_eq((double)dx[i], slope, 3e-6 * (1 + fabs((double)r[i])),
                               "slope of %s at %g", names[k], v);
        }
        exo_tape_free(&tape);
    }
}

static void
check_gated(size_t rows, size_t width, exo_activation activation, const char *name)
{
    size_t n = rows * width;
    float *x = array(2 * n, 5), *r = array(n, 6), *got = array(n, 7), *dx = array(2 * n, 8);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){rows, 2 * width}, x);
    passes_backward(tape, exo_gated(tape, in, activation), r, got);
    exo_tensor_grad(in, dx);
    for (size_t i = 0; i < n; i++) {
        size_t g = i / width * 2 * width + i % width, u = g + width;
        double v = exo_ref_activation(activation, (double)x[g]),
               slope = exo_ref_activation_slope(activation, (double)x[g]);
        cr_assert_float_eq((double)got[i], v * (double)x[u], 2e-6, "%s", name);
        cr_assert_float_eq((double)dx[g], (double)r[i] * (double)x[u] * slope, 1e-5, "%s", name);
        cr_assert_float_eq((double)dx[u], (double)r[i] * v, 1e-5, "%s", name);
    }
    exo_tape_free(&tape);
}

Test(sequence, gates_are_the_plain_ones)
{
    check_gated(1, 1, EXO_SILU, "one element");
    check_gated(7, 13, EXO_GELU, "odd");
    check_gated(3, 40000, EXO_SILU, "a row larger than a piece");
    check_gated(300, 200, EXO_RELU, "several pieces");
}

/* --- Linear ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t rows, in, out;
    bool bias;
} linears[] = {
    {"one element", 1, 1, 1, true}, {"odd sizes", 67, 13, 29, true},
    {"a piece", 64, 32, 48, false}, {"pieces and a rest", 193, 96, 130, true},
    {"wide", 5, 40, 700, true},
};

static void
check_linear(size_t i, exo_activation activation, bool with_residual, bool bf16)
{
    size_t rows = linears[i].rows, in = linears[i].in, out = linears[i].out, nx = rows * in,
           nw = in * out, ny = rows * out;
    float *x = array(nx, 1), *w = array(nw, 2), *b = array(out, 3), *r = array(ny, 4),
          *residual = array(ny, 5);
    float *want[MOST] = {array(ny, 6), array(nx, 6), array(nw, 6), array(out, 6)};
    float *got[MOST] = {array(ny, 7), array(nx, 7), array(nw, 7), array(out, 7)},
          *dr = array(ny, 8), *dpre = array(ny, 9);
    for (size_t k = 0; k < nw; k++)
        w[k] /= sqrtf((float)in);
    for (size_t k = 0; k < ny; k++)
        r[k] /= sqrtf((float)rows);
    exo_ref_linear_forward(rows, in, out, x, w, linears[i].bias ? b : NULL, want[0]);
    for (size_t k = 0; k < ny; k++) {
        double before = (double)want[0][k];
        dpre[k] = (float)((double)r[k] * exo_ref_activation_slope(activation, before));
        want[0][k] =
            (float)exo_ref_activation(activation, before) + (with_residual ? residual[k] : 0.0f);
    }
    exo_ref_linear_backward(rows, in, out, x, w, dpre, want[1], want[2], want[3]);

    exo_tape *tape = passes_tape();
    passes_begin(tape, true, bf16);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){rows, in}, x);
    exo_tensor *tw = exo_tape_variable(tape, 2, (size_t[]){out, in}, w);
    exo_tensor *tb = linears[i].bias ? exo_tape_variable(tape, 1, &out, b) : NULL;
    exo_tensor *tr = exo_tape_variable(tape, 2, (size_t[]){rows, out}, residual);
    exo_tensor *y = with_residual ? exo_linear_residual(tape, tx, tw, tb, tr)
                                  : exo_linear_activation(tape, tx, tw, tb, activation);
    passes_backward(tape, y, r, got[0]);
    exo_tensor_grad(tx, got[1]);
    exo_tensor_grad(tw, got[2]);
    exo_tensor_grad(tr, dr);
    PASSES_CLOSE(bf16, got[0], want[0], ny, linears[i].name);
    PASSES_CLOSE(bf16, got[1], want[1], nx, linears[i].name);
    PASSES_CLOSE(bf16, got[2], want[2], nw, linears[i].name);
    if (tb) {
        exo_tensor_grad(tb, got[3]);
        PASSES_CLOSE(bf16, got[3], want[3], out, linears[i].name);
    }
    if (with_residual)
        PASSES_CLOSE(false, dr, r, ny, linears[i].name);
    exo_tape_free(&tape);
    free_arrays();
}

Test(sequence, linear_with_what_follows_is_the_plain_one)
{
    for (size_t bf16 = 0; bf16 < types(); bf16++)
        for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
            check_linear(i, EXO_GELU_TANH, false, bf16);
            check_linear(i, EXO_RELU, false, false);
            check_linear(i, EXO_LINEAR, true, bf16);
        }
}

/* --- Norms ------------------------------------------------------------------------------------ */

static void
check_norm(size_t rows, size_t width, bool centered, bool bf16)
{
    size_t n = rows * width;
    float *x = array(n, 1), *w = array(width, 2), *b = array(width, 3), *r = array(n, 4);
    float *want[MOST] = {array(n, 6), array(n, 6), array(width, 6), array(width, 6)};
    float *got[MOST] = {array(n, 7), array(n, 7), array(width, 7), array(width, 7)};
    for (size_t k = 0; k < n; k++) {
        x[k] = 3.0f * x[k] + 5.0f;
        r[k] /= sqrtf((float)rows);
    }
    exo_ref_row_norm_forward(rows, width, centered, 1e-5f, x, w, centered ? b : NULL, want[0]);
    exo_ref_row_norm_backward(rows, width, centered, 1e-5f, x, w, r, want[1], want[2], want[3]);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, bf16);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){rows, width}, x);
    exo_tensor *tw = exo_tape_variable(tape, 1, &width, w),
               *tb = exo_tape_variable(tape, 1, &width, b);
    exo_tensor *y =
        centered ? exo_layer_norm(tape, tx, tw, tb, 1e-5f) : exo_rms_norm(tape, tx, tw, 1e-5f);
    passes_backward(tape, y, r, got[0]);
    exo_tensor_grad(tx, got[1]);
    exo_tensor_grad(tw, got[2]);
    exo_tensor_grad(tb, got[3]);
    PASSES_CLOSE(bf16, got[0], want[0], n, centered ? "layer_norm" : "rms_norm");
    PASSES_CLOSE(bf16, got[1], want[1], n, centered ? "layer_norm's dx" : "rms_norm's dx");
    PASSES_CLOSE(bf16, got[2], want[2], width, "dweight");
    if (centered)
        PASSES_CLOSE(bf16, got[3], want[3], width, "dbias");
    exo_tape_free(&tape);
    free_arrays();
}

Test(sequence, norms_are_the_plain_ones)
{
    static const size_t rows[] = {1, 31, 32, 97}, widths[] = {1, 15, 16, 33, 128, 770};
    for (size_t bf16 = 0; bf16 < types(); bf16++)
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 6; k++) {
                check_norm(rows[i], widths[k], true, bf16);
                check_norm(rows[i], widths[k], false, bf16);
            }
}

/* --- Heads ------------------------------------------------------------------------------------ */

static int32_t *
new_targets(size_t rows, size_t vocabulary, size_t *counted)
{
    int32_t *t = malloc(rows * sizeof *t);
    *counted = 0;
    for (size_t r = 0; r < rows; r++) {
        t[r] = rows > 1 && r % 5 == 1 ? -1 : (int32_t)(r * 7919 % vocabulary);
        *counted += t[r] >= 0;
    }
    t[0] = (int32_t)vocabulary - 1;
    return t;
}

/* `by_rows` tests exo_linear_log_probs, otherwise exo_linear_cross_entropy. */
static void
check_head(size_t rows, size_t width, size_t vocabulary, bool by_rows, bool bf16)
{
    const float temperature = by_rows ? 0.8f : 1.0f;
    size_t nx = rows * width, nw = vocabulary * width, counted;
    int32_t *targets = new_targets(rows, vocabulary, &counted);
    float *x = array(nx, 1), *w = array(nw, 2), *r = array(rows, 3), *logp = array(rows, 4),
          *got = array(rows, 5);
    float *want_x = array(nx, 6), *want_w = array(nw, 7), *got_x = array(nx, 8),
          *got_w = array(nw, 9);
    for (size_t k = 0; k < nw; k++)
        w[k] /= sqrtf((float)width);
    for (size_t k = 0; !by_rows && k < rows; k++)
        r[k] = -1.0f / (float)counted;
    exo_ref_log_probs(rows, width, vocabulary, 1.0f / temperature, x, w, targets, logp, r, want_x,
                      want_w);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, bf16);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){rows, width}, x);
    exo_tensor *tw = exo_tape_variable(tape, 2, (size_t[]){vocabulary, width}, w);
    exo_tensor *tt = exo_tape_input(tape, EXO_I32, 1, &rows, targets);
    char text[96];
    snprintf(text, sizeof text, "%s %zu x %zu x %zu", by_rows ? "log-probabilities" : "loss", rows,
             width, vocabulary);
    if (by_rows) {
        passes_backward(tape, exo_linear_log_probs(tape, tx, tw, tt, temperature), r, got);
        PASSES_CLOSE(bf16, got, logp, rows, text);
    } else {
        exo_err err = {0};
        exo_tensor *loss = exo_linear_cross_entropy(tape, tx, tw, tt);
        cr_assert_not_null(loss, "%s", (exo_tape_error(tape, &err), err.text));
        double sum = 0;
        for (size_t k = 0; k < rows; k++)
            sum -= (double)logp[k];
        cr_expect_float_eq((double)exo_tensor_item(loss), sum / (double)counted, bf16 ? 3e-2 : 2e-5,
                           "%s", text);
        cr_assert_eq(exo_tape_backward(tape, loss, 0.5f, &err), EXO_OK, "%s", err.text);
        for (size_t k = 0; k < nx; k++)
            want_x[k] *= 0.5f;
        for (size_t k = 0; k < nw; k++)
            want_w[k] *= 0.5f;
    }
    exo_tensor_grad(tx, got_x);
    exo_tensor_grad(tw, got_w);
    PASSES_CLOSE(bf16, got_x, want_x, nx, text);
    PASSES_CLOSE(bf16, got_w, want_w, nw, text);
    exo_tape_free(&tape);
    free(targets);
    free_arrays();
}

Test(sequence, heads_are_the_plain_ones)
{
    for (size_t bf16 = 0; bf16 < types(); bf16++)
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            check_head(1, 1, 2, by_rows, bf16);
            check_head(37, 24, 66, by_rows, bf16);
            check_head(150, 20, 1030, by_rows, bf16);
            check_head(70, 8, 20001, by_rows, bf16);
        }
    check_head(1100, 4, 70, false, false);   /* more rows than a chunk */
    check_head(3, 256, 65600, false, false); /* the weights' gradient is too large to be kept */
}

/* Memory of the device cpu for a head. */
static void *
head_memory(const exo_head_shape *shape, exo_scratch_use use)
{
    const exo_device *cpu = exo_device_cpu();
    const size_t bytes = cpu->device_class->scratch(cpu, EXO_SHAPE_HEAD, shape, use);
    cr_assert_gt(bytes, 0);
    void *memory = exo_alloc_aligned(bytes);
    cr_assert_not_null(memory);
    return memory;
}

/* The gradients dx, then dw, of a head whose backward finds some logits if `keeps`. */
static float *
head_gradients(const exo_head_shape *shape, const void *x, const float *w, bool keeps)
{
    enum {
        UNWRITTEN = 12345
    };
    exo_device *cpu = exo_device_cpu();
    const exo_kernels *kernels = cpu->device_class->kernels;
    const size_t rows = shape->rows, nx = rows * shape->width,
                 nw = shape->vocabulary * shape->width;
    size_t counted;
    int32_t *targets = new_targets(rows, shape->vocabulary, &counted);
    float *gradients = calloc(nx + nw, sizeof *gradients);
    void *logits[EXO_HEAD_LANES] = {0};
    exo_plan *plan = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_plan_new(&plan, cpu, EXO_SHAPE_HEAD, shape, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; keeps && i < EXO_HEAD_LANES; i++) {
        logits[i] = head_memory(shape, EXO_SCRATCH_LOGITS);
        *(float *)logits[i] = UNWRITTEN;
    }
    exo_head_args h = {.plan = plan,
                       .x = x,
                       .weight = w,
                       .targets = targets,
                       .scale = 1,
                       .log_sum = array(rows, 1),
                       .picked = array(rows, 1),
                       .logits = keeps ? logits : NULL,
                       .scratch = head_memory(shape, EXO_SCRATCH_FORWARD)};
    cr_assert_eq(kernels->head(cpu, &h, &err), EXO_OK, "%s", err.text);
    exo_free(h.scratch);
    h.scratch = head_memory(shape, EXO_SCRATCH_BACKWARD);
    h.factor = array(rows, 3);
    h.dx = gradients;
    h.dweight = gradients + nx;
    cr_assert_eq(kernels->head_backward(cpu, &h, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; keeps && i < EXO_HEAD_LANES; i++) {
        cr_expect_neq(*(float *)logits[i], UNWRITTEN);
        exo_free(logits[i]);
    }
    exo_free(h.scratch);
    exo_plan_free(&plan);
    free(targets);
    return gradients;
}

/* 600 x 66,000 logits take more memory than there is for those that are kept. */
Test(sequence, kept_logits_are_those_computed_again)
{
    for (size_t bf16 = 0; bf16 < types(); bf16++) {
        const exo_head_shape shape = {.rows = 600,
                                      .width = 4,
                                      .vocabulary = 66000,
                                      .dtype = bf16 ? EXO_BF16 : EXO_F32,
                                      .gradients = 1};
        const size_t nx = shape.rows * shape.width, nw = shape.vocabulary * shape.width;
        float *x = array(nx, 1), *w = array(nw, 2);
        uint16_t rounded[2400];
        cr_assert_eq(nx, sizeof rounded / sizeof rounded[0]);
        for (size_t i = 0; i < nx; i++)
            rounded[i] = exo_to_bf16(x[i]);
        const void *in = bf16 ? (const void *)rounded : x;
        float *again = head_gradients(&shape, in, w, false),
              *kept = head_gradients(&shape, in, w, true);
        cr_expect_arr_eq(kept, again, (nx + nw) * sizeof *again);
        free(again);
        free(kept);
        free_arrays();
    }
}

/* --- A whole model ---------------------------------------------------------------------------- */

enum {
    V = 300,
    W = 48,
    R = 200
};

/* A part of a small model, which a checkpoint may compute again. */
static exo_tensor *
part(void *context, exo_tape *t, exo_tensor *x)
{
    exo_tensor **v = context;
    exo_tensor *h = exo_layer_norm(t, x, v[2], v[3], 1e-5f);
    h = exo_gated(t, exo_linear_activation(t, h, v[4], NULL, EXO_GELU_TANH), EXO_SILU);
    return exo_linear_residual(t, exo_dropout(t, h, 0.1f), v[5], v[3], x);
}

static float
run_model(exo_tape *tape, bool checkpoint, bool bf16, float **values, float **grads)
{
    static int32_t tokens[R];
    static const size_t dims[][2] = {{V, W}, {40, W}, {W, 1}, {W, 1}, {2 * W, W}, {W, W}};
    const exo_pass pass = {.train = true, .grad = true, .autocast = bf16, .seed = 3, .step = 1};
    exo_tensor *v[6];
    exo_err err = {0};
    for (int r = 0; r < R; r++)
        tokens[r] = (r * 31) % V;
    exo_tape_begin(tape, NULL, &pass);
    for (size_t i = 0; i < 6; i++)
        v[i] = exo_tape_variable(tape, dims[i][1] == 1 ? 1 : 2, dims[i], values[i]);
    exo_tensor *in = exo_tape_input(tape, EXO_I32, 2, (size_t[]){R / 40, 40}, tokens);
    exo_tensor *x = exo_add_positions(tape, exo_embedding(tape, in, v[0]), v[1], 40, 0);
    for (int i = 0; i < 2; i++)
        x = checkpoint ? exo_checkpoint(tape, x, part, v) : part(v, tape, x);
    exo_tensor *loss = exo_linear_cross_entropy(tape, exo_rms_norm(tape, x, v[2], 1e-5f), v[0], in);
    cr_assert_not_null(loss, "%s", (exo_tape_error(tape, &err), err.text));
    cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < 6; i++)
        exo_tensor_grad(v[i], grads[i]);
    return exo_tensor_item(loss);
}

Test(sequence, bits_do_not_depend_on_threads_passes_or_checkpoints)
{
    static const size_t numel[6] = {V * W, 40 * W, W, W, 2 * W * W, W * W};
    float *values[6], *first[6], *again[6];
    for (size_t i = 0; i < 6; i++) {
        values[i] = array(numel[i], 40 + i);
        first[i] = array(numel[i], 1);
        again[i] = array(numel[i], 2);
        for (size_t k = 0; k < numel[i]; k++)
            values[i][k] *= i == 2 ? 1.0f : 0.15f;
    }
    for (size_t bf16 = 0; bf16 < types(); bf16++) {
        float loss = 0;
        for (int run = 0; run < 5; run++) {
            exo_tape *tape = passes_tape();
            exo_set_num_threads(run == 1 ? 1 : run == 2 ? 5 : 2);
            float now = run_model(tape, run >= 3, bf16, values, run ? again : first);
            uint64_t allocations = 0;
            for (int pass = 0; pass < 3; pass++) {
                if (pass == 1)
                    allocations = exo_tape_allocations(tape);
                cr_expect_eq(run_model(tape, run >= 3, bf16, values, again), now, "run %d pass %d",
                             run, pass);
            }
            cr_expect_eq(exo_tape_allocations(tape), allocations, "run %d allocates in every pass",
                         run);
            loss = run == 0 ? now : loss;
            cr_expect_eq(now, loss, "run %d", run);
            for (size_t i = 0; i < 6; i++)
                cr_expect_eq(memcmp(first[i], again[i], numel[i] * sizeof(float)), 0,
                             "run %d: gradient %zu", run, i);
            exo_tape_free(&tape);
        }
    }
}

/* A checkpoint repeats computation only: running statistics move once, as without a checkpoint. */
static exo_tensor *
normalize(void *context, exo_tape *t, exo_tensor *x)
{
    exo_tensor **v = context;
    return exo_batch_norm(t, x, v[0], v[1], v[2], v[3], NULL);
}

Test(sequence, a_checkpoint_moves_statistics_once)
{
    enum {
        ROWS = 9,
        C = 5
    };
    float *x = array(ROWS * C, 1), *ones = array(C, 2), *kept[2][2];
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        float *mean = kept[checkpoint][0] = array(C, 3), *var = kept[checkpoint][1] = array(C, 4);
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *v[4] = {exo_tape_variable(tape, 1, (size_t[]){C}, ones),
                            exo_tape_variable(tape, 1, (size_t[]){C}, ones),
                            exo_tape_input(tape, EXO_F32, 1, (size_t[]){C}, mean),
                            exo_tape_input(tape, EXO_F32, 1, (size_t[]){C}, var)};
        exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){ROWS, C}, x);
        exo_tensor *y =
            checkpoint ? exo_checkpoint(tape, in, normalize, v) : normalize(v, tape, in);
        exo_tensor *loss = exo_mean(tape, exo_mul(tape, y, y));
        cr_assert_not_null(loss);
        cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, NULL), EXO_OK);
        exo_tape_free(&tape);
    }
    cr_expect_eq(memcmp(kept[0][0], kept[1][0], C * sizeof(float)), 0);
    cr_expect_eq(memcmp(kept[0][1], kept[1][1], C * sizeof(float)), 0);
}

static int calls;

static exo_tensor *
more_each_time(void *context, exo_tape *t, exo_tensor *x)
{
    (void)context;
    calls++;
    for (int i = 0; i < calls * 20; i++)
        x = exo_scale(t, x, 1.5f);
    return x;
}

Test(sequence, a_checkpoint_that_does_something_else_is_an_error)
{
    exo_err err = {0};
    float *x = array(6, 1);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *y =
        exo_checkpoint(tape, exo_tape_variable(tape, 2, (size_t[]){2, 3}, x), more_each_time, NULL);
    cr_expect_eq(exo_tape_backward(tape, exo_mean(tape, y), 1.0f, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "checkpoint: the body does more the second time: scale");
    exo_tape_free(&tape);
}

/* The gradient of a nearly certain target is small, and must survive bf16. */
Test(sequence, gradients_of_certain_targets_are_not_lost)
{
    static const int32_t target = 0;
    const float weight[4] = {8, 0, 0, 0}, x = 1.0f;
    float want = 0, got = 0;
    if (!numbers_bf16_runs())
        cr_skip_test("this processor does not multiply bf16");
    for (int bf16 = 0; bf16 < 2; bf16++) {
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, bf16);
        float grad[4];
        exo_tensor *w = exo_tape_variable(tape, 2, (size_t[]){4, 1}, weight);
        exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){1, 1}, &x);
        exo_tensor *loss = exo_linear_cross_entropy(
            tape, in, w, exo_tape_input(tape, EXO_I32, 1, (size_t[]){1}, &target));
        cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, NULL), EXO_OK);
        exo_tensor_grad(w, grad);
        *(bf16 ? &got : &want) = grad[0];
        exo_tape_free(&tape);
    }
    cr_expect_lt(want, -5e-4f);
    cr_expect_float_eq((double)got, (double)want, 0.01 * fabs((double)want), "%g, not %g",
                       (double)got, (double)want);
}

/* --- Errors ----------------------------------------------------------------------------------- */

#define REFUSED(call, expected)                                                                    \
    do {                                                                                           \
        exo_err err = {0};                                                                         \
        passes_begin(tape, true, false);                                                           \
        exo_tensor *x = exo_tape_variable(tape, 2, (size_t[]){6, 4}, numbers);                     \
        exo_tensor *w = exo_tape_variable(tape, 2, (size_t[]){3, 4}, numbers);                     \
        exo_tensor *row = exo_tape_variable(tape, 1, (size_t[]){4}, numbers);                      \
        exo_tensor *i = exo_tape_input(tape, EXO_I32, 1, (size_t[]){6}, wrong);                    \
        (void)x, (void)w, (void)row, (void)i;                                                      \
        cr_expect_null(call);                                                                      \
        exo_tape_error(tape, &err);                                                                \
        cr_expect_str_eq(err.text, expected);                                                      \
    } while (0)

Test(sequence, wrong_shapes_and_tokens_are_refused_with_a_reason)
{
    static const int32_t wrong[6] = {0, 1, 2, 1, 3, 0};
    float *numbers = array(64, 1);
    exo_tape *tape = passes_tape();
    REFUSED(exo_embedding(tape, i, w), "embedding: token 3 at 4 is not in [0, 3)");
    REFUSED(exo_embedding(tape, x, w),
            "embedding: tokens (6, 4) fp32 and weight (3, 4): expected int32 and (V, W) fp32");
    REFUSED(exo_add_positions(tape, x, w, 3, 1),
            "add_positions: x (6, 4), weight (3, 4), 3 positions from 1 on: expected (N T, W) and "
            "(P, W)");
    REFUSED(exo_layer_norm(tape, x, w, NULL, 1e-5f),
            "layer_norm: x (6, 4) and weight (3, 4): expected (R, W) and (W), bias (W)");
    REFUSED(exo_gated(tape, row, EXO_SILU), "gated: x (4) fp32: expected (R, 2 I), fp32 or bf16");
    REFUSED(exo_linear_residual(tape, x, w, NULL, x),
            "linear: residual (6, 4) of x (6, 4) and weight (3, 4): expected (N, O)");
    REFUSED(exo_linear_cross_entropy(tape, x, w, i),
            "linear_cross_entropy: target 3 of row 4 is not in [0, 3)");
    REFUSED(exo_linear_log_probs(tape, x, w, i, -1.0f),
            "linear_log_probs: the temperature is -1; expected 0 or a number from 3e-39 to 3e38");
    REFUSED(exo_linear_log_probs(tape, x, w, i, 1e-45f),
            "linear_log_probs: the temperature is 1.4013e-45; expected 0 or a number from 3e-39 to "
            "3e38");
    exo_tape_free(&tape);
}

Test(sequence, a_batch_without_targets_has_no_loss)
{
    static const int32_t none[6] = {-1, -1, -1, -1, -1, -1};
    float *numbers = array(64, 1), *grad = array(12, 2);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *x = exo_tape_variable(tape, 2, (size_t[]){6, 4}, numbers);
    exo_tensor *w = exo_tape_variable(tape, 2, (size_t[]){3, 4}, numbers);
    exo_tensor *loss =
        exo_linear_cross_entropy(tape, x, w, exo_tape_input(tape, EXO_I32, 1, (size_t[]){6}, none));
    cr_assert_not_null(loss);
    cr_expect_eq(exo_tensor_item(loss), 0.0f);
    cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, NULL), EXO_OK);
    exo_tensor_grad(w, grad);
    for (int i = 0; i < 12; i++)
        cr_expect_eq(grad[i], 0.0f);
    exo_tape_free(&tape);
}

/* A pass that does not record keeps the buffers of one body at a time, not of all bodies. */
Test(sequence, without_gradients_a_checkpoint_keeps_its_result_only)
{
    static const size_t dims[][2] = {{V, W}, {40, W}, {W, 1}, {W, 1}, {2 * W, W}, {W, W}};
    const exo_pass pass = {.seed = 3};
    float *values[6], *x = array(R * W, 9), out[2];
    size_t bytes[2][2];
    for (size_t i = 0; i < 6; i++)
        values[i] = array(dims[i][0] * dims[i][1], 40 + i);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++)
        for (int deep = 0; deep < 2; deep++) {
            exo_tape *tape = passes_tape();
            exo_tensor *v[6];
            exo_tape_begin(tape, NULL, &pass);
            for (size_t i = 0; i < 6; i++)
                v[i] = exo_tape_variable(tape, dims[i][1] == 1 ? 1 : 2, dims[i], values[i]);
            exo_tensor *y = exo_tape_input(tape, EXO_F32, 2, (size_t[]){R, W}, x);
            for (int i = 0; i < (deep ? 8 : 2); i++)
                y = checkpoint ? exo_checkpoint(tape, y, part, v) : part(v, tape, y);
            exo_tensor *mean = exo_mean(tape, exo_mul(tape, y, y));
            cr_assert_not_null(mean);
            if (deep)
                out[checkpoint] = exo_tensor_item(mean);
            bytes[checkpoint][deep] = exo_tape_bytes(tape);
            exo_tape_free(&tape);
        }
    cr_expect_eq(out[0], out[1], "%g, %g", (double)out[0], (double)out[1]);
    /* Six more blocks need memory for their results, and without checkpoints for all intermediate
     * values. */
    size_t result = R * W * sizeof(float);
    cr_expect_leq(bytes[1][1] - bytes[1][0], 6 * result, "%zu", bytes[1][1] - bytes[1][0]);
    cr_expect_gt(bytes[0][1] - bytes[0][0], 12 * result, "%zu", bytes[0][1] - bytes[0][0]);
}
