/* Linear layers of nn/cuda on the CUDA runtime of the tests, against the reference: in bf16, tf32 and
 * fp8, whose products cuBLASLt would compute, with its epilogues and without. Read next:
 * unit/cuda_layers.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "cuda/layer_call.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/numbers.h"
#include "support/sanitized.h"

/* --- Linear layers ---------------------------------------------------------------------------- */

struct linear_case {
    size_t in, out;
    exo_activation activation;
    bool bias, backward;
    /* the epilogues that cuBLASLt has, of forward, dx and dw; 0: it has none */
    cuda_epilogue forward, slope, sums;
};

/* All products of a layer. That of dx comes from a layer behind an activation. */
static void
linear_bf16(layer_call *c, const exo_linear_shape *s, const struct linear_case *k)
{
    float *bias = layer_call_drawn(c, s->out), *dw = layer_call_drawn(c, s->out * s->in),
          *db = layer_call_drawn(c, s->out);
    float *numbers = layer_call_drawn(c, s->rows * s->in + s->out * s->in);
    void *dy = layer_call_bf16(c, numbers + 9, s->rows * s->out);
    void *x = layer_call_bf16(c, numbers, s->rows * s->in),
         *weight = layer_call_bf16(c, numbers + s->rows * s->in, s->out * s->in),
         *y = layer_call_bf16(c, numbers, s->rows * s->out),
         *before = layer_call_bf16(c, numbers, s->rows * s->out),
         *inner = layer_call_bf16(c, numbers + 5, s->rows * s->in);
    layer_call_plan(c, EXO_SHAPE_LINEAR, s);
    LAYER_CALL(c, linear, .plan = c->plan, .activation = k->activation, .y = y,
               .before = k->backward ? before : NULL, .x = x, .weight = weight,
               .bias = k->bias ? bias : NULL);
    LAYER_CALL(c, linear_grad_w, .plan = c->plan, .dw = dw, .db = k->bias ? db : NULL, .dy = dy,
               .x = x);
    LAYER_CALL(c, linear_grad_x, .plan = c->plan, .activation = k->activation,
               .before = k->activation != EXO_LINEAR ? inner : NULL, .dx = x, .dy = dy,
               .weight = weight);
    layer_call_widen(c);
}

/* The products with an epilogue that cuBLASLt has had. */
static uint64_t
epilogues(cuda_epilogue epilogue)
{
    return epilogue ? cuda_emulator_epilogues(epilogue) : 0;
}

static uint64_t
all_epilogues(void)
{
    static const cuda_epilogue all[] = {CUDA_BIAS,     CUDA_GELU,          CUDA_GELU_BIAS,
                                        CUDA_GELU_AUX, CUDA_GELU_AUX_BIAS, CUDA_GELU_SLOPE,
                                        CUDA_SUM_B};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sum += epilogues(all[i]);
    return sum;
}

static void
expect_linear(const struct linear_case *k, bool has_epilogues)
{
    exo_linear_shape s;
    layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
    const cuda_epilogue wanted[] = {k->forward, k->slope, k->sums};
    uint64_t before[3], of_all = all_epilogues(), expected = 0;
    memset(&s, 0, sizeof s);
    s = (exo_linear_shape){.rows = 67,
                           .in = k->in,
                           .out = k->out,
                           .dtype = EXO_BF16,
                           .out_dtype = EXO_BF16,
                           .with_bias = k->bias,
                           .backward = 1,
                           .input_grad = 1};
    for (size_t i = 0; i < 3; i++)
        before[i] = epilogues(wanted[i]);
    linear_bf16(&gpu, &s, k);
    for (size_t i = 0; i < 3; i++) {
        const uint64_t had = epilogues(wanted[i]) - before[i];
        cr_expect_eq(had, has_epilogues && wanted[i] ? 1 : 0, "epilogue %d: %zu", wanted[i],
                     (size_t)had);
        expected += has_epilogues && wanted[i] ? 1 : 0;
    }
    cr_expect_eq(all_epilogues() - of_all, expected);
    linear_bf16(&ref, &s, k);
    layer_call_expect_equal(&gpu, &ref, 3e-2, "linear");
}

/* aux has rows of multiples of 8; sums of dy go with every shape. */
static const struct linear_case linear_cases[] = {
    {70, 65, EXO_GELU, true, true, CUDA_BIAS, 0, CUDA_SUM_B},
    {72, 64, EXO_LINEAR, true, false, CUDA_BIAS, 0, CUDA_SUM_B},
    {72, 64, EXO_RELU, false, true, 0, 0, 0},
    {72, 64, EXO_GELU_TANH, true, true, CUDA_GELU_AUX_BIAS, CUDA_GELU_SLOPE, CUDA_SUM_B},
    {72, 64, EXO_GELU_TANH, true, false, CUDA_GELU_BIAS, CUDA_GELU_SLOPE, CUDA_SUM_B},
    {72, 64, EXO_GELU_TANH, false, true, CUDA_GELU_AUX, CUDA_GELU_SLOPE, 0},
    {72, 68, EXO_GELU_TANH, false, false, CUDA_GELU, CUDA_GELU_SLOPE, 0},
    {70, 64, EXO_GELU_TANH, true, true, CUDA_GELU_AUX_BIAS, 0, CUDA_SUM_B},
    {72, 65, EXO_GELU_TANH, true, true, 0, CUDA_GELU_SLOPE, CUDA_SUM_B},
};

Test(cuda_linear, linear_in_bf16)
{
    for (size_t i = 0; i < sizeof linear_cases / sizeof *linear_cases; i += one_of(3))
        expect_linear(&linear_cases[i], true);
}

enum {
    SIDE = 16 /* of all matrices of two layers */
};

/* Two layers with one bias, behind each other, or the second also beside another operation. */
struct two_layers {
    bool shared;
    exo_tensor *v[4]; /* x, two weights, the bias */
};

static exo_tensor *
two_layers(void *context, exo_tape *t, exo_tensor *x)
{
    const struct two_layers *k = context;
    exo_tensor *inner = exo_linear_activation(t, x, k->v[1], k->v[3], EXO_GELU_TANH);
    exo_tensor *y = exo_linear(t, inner, k->v[2], k->v[3]);
    return k->shared ? exo_add(t, y, exo_scale(t, inner, 0.5f)) : y;
}

/* The gradients of a pass in bf16, one after the other. */
static void
two_layers_backward(exo_device *device, bool shared, bool checkpoint, float out[4][SIDE * SIDE])
{
    const size_t dims[2] = {SIDE, SIDE};
    struct two_layers k = {.shared = shared};
    exo_tape *tape = NULL;
    exo_err err = {0};
    float *numbers = numbers_new(5 * SIDE * SIDE, 4);
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(tape, NULL, &(exo_pass){.grad = true, .autocast = EXO_AUTOCAST_BF16});
    for (size_t i = 0; i < 4; i++)
        k.v[i] = exo_tape_variable(tape, i < 3 ? 2 : 1, dims, numbers + i * SIDE * SIDE);
    exo_tensor *y =
        checkpoint ? exo_checkpoint(tape, k.v[0], two_layers, &k) : two_layers(&k, tape, k.v[0]);
    exo_tensor *weights = exo_tape_input(tape, EXO_F32, 2, dims, numbers + 4 * SIDE * SIDE);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, y, weights));
    cr_assert_eq(exo_tape_backward(tape, loss, SIDE * SIDE, &err), EXO_OK, "%s", err.text);
    memset(out, 0, 4 * sizeof out[0]);
    for (size_t i = 0; i < 4; i++)
        exo_tensor_grad(k.v[i], out[i]);
    exo_tape_free(&tape);
    free(numbers);
}

/* The gradient of w in y = x w^T + residual, of which a layer norm and half of it are used. Returns
 * how many kernels and copies the pass took. */
static uint64_t
residual_backward(exo_device *device, bool norm_first, float out[SIDE * SIDE])
{
    const size_t dims[2] = {SIDE, SIDE};
    const uint64_t before = cuda_emulator_done();
    exo_tensor *v[5];
    exo_tape *tape = NULL;
    exo_err err = {0};
    float *numbers = numbers_new(5 * SIDE * SIDE, 4);
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(tape, NULL, &(exo_pass){.grad = true, .autocast = EXO_AUTOCAST_BF16});
    for (size_t i = 0; i < 5; i++)
        v[i] = exo_tape_variable(tape, i < 3 ? 2 : 1, dims, numbers + i * SIDE * SIDE);
    exo_tensor *y = exo_linear_residual(tape, v[0], v[1], NULL, v[2]),
               *half = norm_first ? NULL : exo_scale(tape, y, 0.5f),
               *norm = exo_layer_norm(tape, y, v[3], v[4], 1e-5f);
    half = half ? half : exo_scale(tape, y, 0.5f);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, norm, half));
    cr_assert_eq(exo_tape_backward(tape, loss, SIDE * SIDE, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(v[1], out);
    exo_tape_free(&tape);
    free(numbers);
    return cuda_emulator_done() - before;
}

/* A norm that adds to the gradient of a layer's result last also rounds it for the layer's products.
 * Where another operation does, what the norm has rounded is not the gradient. */
Test(cuda_linear, a_norm_rounds_the_gradient_that_a_layer_reads)
{
    static float got[SIDE * SIDE], want[SIDE * SIDE];
    exo_device *device = layer_call_gpu();
    const uint64_t rounded = residual_backward(device, true, got),
                   cast = residual_backward(device, false, want);
    cr_expect_eq(memcmp(got, want, sizeof got), 0);
    cr_expect_eq(cast, rounded + 1, "%llu and %llu", (unsigned long long)cast,
                 (unsigned long long)rounded);
    exo_cuda_close(device);
}

/* A layer that alone uses GELU of another one takes its slope into the product; sums of dy come with a
 * product where they are added. */
Test(cuda_linear, two_layers_in_bf16)
{
    static float got[4][SIDE * SIDE], again[4][SIDE * SIDE], want[4][SIDE * SIDE];
    exo_device *device = layer_call_gpu();
    for (int shared = 0; shared < 2; shared++) {
        const uint64_t slopes = epilogues(CUDA_GELU_SLOPE), sums = epilogues(CUDA_SUM_B);
        two_layers_backward(device, shared, false, got);
        cr_expect_eq(epilogues(CUDA_GELU_SLOPE) - slopes, !shared);
        cr_expect_eq(epilogues(CUDA_SUM_B) - sums, 1);
        cuda_emulator_seed(2);
        two_layers_backward(device, shared, true, again);
        two_layers_backward(exo_device_ref(), shared, false, want);
        cr_expect_eq(memcmp(got, again, sizeof got), 0, "in a checkpoint, %d", shared);
        for (size_t i = 0; i < 4; i++)
            cr_expect_leq(numbers_distance(got[i], want[i], SIDE * SIDE), 3e-2, "%d: gradient %zu",
                          shared, i);
    }
    exo_cuda_close(device);
}

/* In fp32 nothing but the bias comes with the product. */
static void
expect_plain_fp32(void)
{
    const exo_linear_shape s = {
        .rows = SIDE, .in = SIDE, .out = SIDE, .with_bias = 1, .backward = 1};
    layer_call c = {.device = layer_call_gpu()};
    exo_device *device = c.device;
    const uint64_t before = all_epilogues();
    float *a[6];
    for (size_t i = 0; i < 6; i++)
        a[i] = layer_call_drawn(&c, SIDE * SIDE);
    layer_call_plan(&c, EXO_SHAPE_LINEAR, &s);
    LAYER_CALL(&c, linear, .plan = c.plan, .activation = EXO_GELU_TANH, .y = a[0], .before = a[1],
               .x = a[2], .weight = a[3], .bias = a[4]);
    LAYER_CALL(&c, linear_grad_w, .plan = c.plan, .dw = a[5], .db = a[4], .dy = a[0], .x = a[2]);
    LAYER_CALL(&c, linear_grad_x, .plan = c.plan, .activation = EXO_GELU_TANH, .before = a[1],
               .dx = a[2], .dy = a[0], .weight = a[3]);
    cr_expect_eq(all_epilogues() - before, 0);
    layer_call_end(&c);
    exo_cuda_close(device);
}

static void
count_line(void *context, exo_log_level level, const char *line)
{
    (void)level;
    *(unsigned *)context += strstr(line, "event=no_epilogue") != NULL;
}

/* An epilogue that cuBLASLt calls invalid is left to the sweeps, and each device says so once. */
Test(cuda_linear, linear_with_invalid_epilogues)
{
    unsigned said = 0;
    exo_log_set_sink(count_line, &said);
    cuda_emulator_invalid_epilogues(true);
    for (size_t i = 0; i < 2; i++)
        expect_linear(&linear_cases[i], false);
    cuda_emulator_invalid_epilogues(false);
    exo_log_set_sink(NULL, NULL);
    cr_expect_eq(said, 2, "%u", said);
}

/* A product that would leave multiprocessors idle for its sums leaves them to a sweep. */
Test(cuda_linear, linear_with_poor_sums)
{
    cuda_emulator_poor_sums(true);
    for (size_t i = 0; i < sizeof linear_cases / sizeof *linear_cases; i += one_of(3)) {
        struct linear_case k = linear_cases[i];
        k.sums = (cuda_epilogue)0;
        expect_linear(&k, true);
    }
    cuda_emulator_poor_sums(false);
}

/* The sweeps do what cuBLASLt has no algorithm for, or is not asked for. */
Test(cuda_linear, linear_without_epilogues)
{
    exo_device *device = NULL;
    exo_err err = {0};
    cuda_emulator_refuse_epilogues(true);
    for (size_t i = 0; i < sizeof linear_cases / sizeof *linear_cases; i += one_of(3))
        expect_linear(&linear_cases[i], false);
    cuda_emulator_refuse_epilogues(false);
    expect_plain_fp32();
    cr_assert_eq(setenv("EXOGYM_CUDA_EPILOGUES", "off", 1), 0);
    expect_linear(&linear_cases[3], false);
    cr_assert_eq(setenv("EXOGYM_CUDA_EPILOGUES", "yes", 1), 0);
    cr_expect_eq(exo_cuda_open(&device, 0, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "EXOGYM_CUDA_EPILOGUES: expected off or on, got 'yes'");
}

/* --- tf32 ------------------------------------------------------------------------------------- */

/* A linear layer's output; invariant: with the order of generation. */
static void
multiply(const char *tf32, size_t invariant, float y[64 * 40])
{
    const exo_linear_shape shape = {.rows = 64, .in = 50, .out = 40, .invariant = invariant};
    cr_assert_eq(setenv("EXOGYM_CUDA_TF32", tf32, 1), 0);
    layer_call c = {.device = layer_call_gpu()};
    exo_device *device = c.device;
    float *const out = layer_call_drawn(&c, 64 * 40), *const x = layer_call_drawn(&c, 64 * 50),
                 *const weight = layer_call_drawn(&c, 40 * 50);
    layer_call_plan(&c, EXO_SHAPE_LINEAR, &shape);
    LAYER_CALL(&c, linear, .plan = c.plan, .y = out, .x = x, .weight = weight,
               .scratch = c.scratch[0].data);
    cr_assert_eq(exo_array_read(c.x[0], y, NULL), EXO_OK);
    layer_call_end(&c);
    exo_cuda_close(device);
}

Test(cuda_linear, tf32_rounds_operands_where_it_is_asked_for)
{
    float off[64 * 40], on[64 * 40], again[64 * 40];
    double most = 0;
    exo_device *device = NULL;
    exo_err err = {0};
    multiply("off", 0, off);
    multiply("on", 0, on);
    multiply("on", 0, again);
    cr_expect_eq(memcmp(on, again, sizeof on), 0);
    for (size_t i = 0; i < 64 * 40; i++)
        most = fmax(most, fabs((double)on[i] - (double)off[i]));
    cr_expect(most > 1e-5 && most < 1e-2, "the results are up to %g apart", most);
    multiply("off", 1, off);
    multiply("on", 1, on);
    cr_expect_eq(memcmp(on, off, sizeof on), 0, "the bits of generation stay");
    cr_assert_eq(setenv("EXOGYM_CUDA_TF32", "yes", 1), 0);
    cr_expect_eq(exo_cuda_open(&device, 0, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "EXOGYM_CUDA_TF32: expected off or on, got 'yes'");
}

/* --- fp8 -------------------------------------------------------------------------------------- */

/* Drawn numbers as codes: (rows, columns), or of the transpose; in *scale theirs. */
static void *
as_fp8(layer_call *c, exo_fp8 format, size_t rows, size_t columns, bool transposed, float **scale)
{
    const float *x = layer_call_drawn(c, rows * columns);
    exo_array *codes = &c->x[c->used++];
    cr_assert_eq(exo_array_init(codes, c->device, EXO_U8, rows * columns + 64, NULL), EXO_OK);
    exo_vec_fill((exo_array){.device = c->device, .data = codes->data, .count = 1}, 0);
    *scale = codes->data;
    uint8_t *first = (uint8_t *)codes->data + 64;
    LAYER_CALL(c, to_fp8, .rows = rows, .columns = columns, .dtype = EXO_F32, .format = format,
               .x = x, .codes = transposed ? NULL : first, .transposed = transposed ? first : NULL,
               .scale = *scale);
    return first;
}

/* One of the products of a layer, whose result is the call's first array. */
static void
linear_fp8(layer_call *c, const exo_linear_shape *s, int product, size_t skip)
{
    float *a_scale, *b_scale;
    float *const y = layer_call_drawn(c, s->rows * s->out + s->in * s->out + s->rows * s->in),
                 *const bias = layer_call_drawn(c, s->out),
                 *const residual = layer_call_drawn(c, s->rows * s->out);
    layer_call_plan(c, EXO_SHAPE_LINEAR, s);
    void *a = as_fp8(c, product == 0 ? EXO_E4M3 : EXO_E5M2, s->rows, product == 0 ? s->in : s->out,
                     product == 2, &a_scale);
    void *b = as_fp8(c, EXO_E4M3, product == 2 ? s->rows : s->out, s->in, product > 0, &b_scale);
    if (product == 0)
        LAYER_CALL(c, linear, .plan = c->plan, .activation = EXO_LINEAR, .y = y + skip, .x = a,
                   .weight = b, .bias = bias, .residual = s->residual ? residual : NULL,
                   .x_scale = a_scale, .weight_scale = b_scale, .scratch = c->scratch[0].data);
    else if (product == 1)
        LAYER_CALL(c, linear_grad_x, .plan = c->plan, .dx = y + skip, .dy = a, .weight = b,
                   .dy_scale = a_scale, .weight_scale = b_scale);
    else
        LAYER_CALL(c, linear_grad_w, .plan = c->plan, .dw = y + skip, .dy = a, .x = b,
                   .dy_scale = a_scale, .x_scale = b_scale);
    for (size_t i = 1; i < c->used; i++) /* the result alone is compared */
        exo_array_release(&c->x[i]);
    c->used = 1;
}

/* The result, in bf16 or fp32, as fp32. */
static void
widen_result(layer_call *c, size_t dtype, size_t skip, size_t count)
{
    exo_array wide, own = exo_array_part(c->x[0], skip, count);
    if (dtype == EXO_F32)
        return;
    own.dtype = EXO_BF16;
    cr_assert_eq(exo_array_init(&wide, c->device, EXO_F32, count, NULL), EXO_OK);
    exo_vec_cast(wide, own);
    exo_array_release(&c->x[0]);
    c->x[0] = wide;
}

/* cuBLASLt takes a product of fp8 unless its result lies at an odd address. */
static void
expect_fp8(int product, size_t residual, size_t skip)
{
    exo_linear_shape s;
    char what[64];
    memset(&s, 0, sizeof s);
    s = (exo_linear_shape){.rows = 80,
                           .in = 96,
                           .out = 48,
                           .dtype = EXO_BF16,
                           .out_dtype = residual ? EXO_F32 : EXO_BF16,
                           .residual = residual,
                           .with_bias = 1,
                           .backward = 1,
                           .input_grad = 1,
                           .fp8 = 1};
    const size_t dtype = product == 2 ? EXO_F32 : product == 1 ? EXO_BF16 : s.out_dtype;
    const size_t count = product == 0   ? s.rows * s.out
                         : product == 1 ? s.rows * s.in
                                        : s.in * s.out;
    layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
    const uint64_t before = cuda_emulator_fp8_products(), biased = epilogues(CUDA_BIAS);
    linear_fp8(&gpu, &s, product, skip);
    cr_expect_eq(cuda_emulator_fp8_products() - before, skip % 4 == 0);
    cr_expect_eq(epilogues(CUDA_BIAS) - biased, product == 0);
    linear_fp8(&ref, &s, product, skip);
    widen_result(&gpu, dtype, skip, count);
    widen_result(&ref, dtype, skip, count);
    snprintf(what, sizeof what, "product %d of fp8, %zu", product, skip);
    /* with a residual the bias alone is rounded to bf16 */
    layer_call_expect_equal(&gpu, &ref, dtype != EXO_F32 ? 8e-3 : residual ? 3e-3 : 1e-5, what);
}

Test(cuda_linear, linear_of_fp8)
{
    for (int product = 0; product < 3; product++)
        expect_fp8(product, 0, 0);
    expect_fp8(0, 1, 4);
    expect_fp8(2, 0, 1);
}

static void
begin_fp8(exo_device *device, const char *expected)
{
    exo_tape *tape = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK);
    exo_tape_begin(tape, NULL, &(exo_pass){.autocast = EXO_AUTOCAST_FP8});
    cr_expect_eq(exo_tape_error(tape, &err), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(err.text, expected), "%s", err.text);
    exo_tape_free(&tape);
}

Test(cuda_linear, fp8_is_refused_where_it_cannot_be_computed)
{
    begin_fp8(exo_device_cpu(), "autocast to fp8 needs a GPU (device: cuda)");
    cuda_emulator_set_capability(86);
    exo_device *device = layer_call_gpu();
    begin_fp8(device,
              "capability 8.9 or later (Ada, Hopper, Blackwell), and GPU 0 has 8.6: use bf16");
    exo_cuda_close(device);
}
