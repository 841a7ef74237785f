/* Layers of nn/cuda on the CUDA runtime of the tests, in sizes that are several tiles, against the
 * reference; and in bf16, whose products cuBLASLt would compute. Read next: unit/cuda.c, which has
 * every kernel in small sizes. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/numbers.h"
#include "support/sanitized.h"

enum {
    MOST = 10 /* arrays of a call */
};

/* A call on one device: its arrays, whose first numbers are drawn. */
typedef struct call {
    exo_device *device;
    exo_plan *plan;
    exo_array x[MOST], scratch[2];
    size_t used;
} call;

static exo_device *
open_gpu(void)
{
    exo_device *device;
    exo_err err = {0};
    cuda_emulator_seed(1);
    (void)cuda_emulator_watch_races(true);
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

/* The next array, of numbers in (-1, 1). */
static float *
drawn(call *c, size_t count)
{
    exo_rng rng;
    float *host = exo_calloc(count + 1, sizeof *host);
    exo_array *x = &c->x[c->used];
    cr_assert_not_null(host);
    exo_rng_init(&rng, 7, EXO_RNG_USER, (uint32_t)c->used, 0);
    for (size_t i = 0; i < count; i++)
        host[i] = 2 * exo_rng_uniform(&rng) - 1;
    cr_assert_eq(exo_array_init(x, c->device, EXO_F32, count, NULL), EXO_OK);
    exo_array_send(*x, host);
    exo_free(host);
    c->used++;
    return x->data;
}

static void
plan(call *c, exo_shape_kind kind, const void *shape)
{
    exo_err err = {0};
    const exo_device_class *of = c->device->device_class;
    cr_assert_eq(exo_plan_new(&c->plan, c->device, kind, shape, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < 2; i++) {
        size_t bytes =
            of->scratch(c->device, kind, shape, i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD);
        cr_assert_eq(exo_array_init(&c->scratch[i], c->device, EXO_U8, bytes, &err), EXO_OK, "%s",
                     err.text);
    }
}

static void
end(call *c)
{
    exo_err err = {0};
    cr_expect_eq(exo_device_synchronize(c->device, &err), EXO_OK, "%s", err.text);
    exo_plan_free(&c->plan);
    for (size_t i = 0; i < c->used; i++)
        exo_array_release(&c->x[i]);
    exo_array_release(&c->scratch[0]);
    exo_array_release(&c->scratch[1]);
}

/* Compares all arrays of two calls, then ends both. */
static void
expect_equal(call *gpu, call *ref, double tolerance, const char *what)
{
    exo_err err = {0};
    for (size_t i = 0; i < ref->used; i++) {
        size_t count = ref->x[i].count;
        float *got = exo_calloc(count + 1, sizeof *got),
              *want = exo_calloc(count + 1, sizeof *want);
        cr_assert(got && want);
        cr_assert_eq(exo_array_read(gpu->x[i], got, &err), EXO_OK, "%s: %s", what, err.text);
        cr_assert_eq(exo_array_read(ref->x[i], want, &err), EXO_OK, "%s: %s", what, err.text);
        cr_expect(numbers_distance(got, want, count) <= tolerance, "%s, array %zu: off by %g", what,
                  i, numbers_distance(got, want, count));
        exo_free(got);
        exo_free(want);
    }
    exo_device *device = gpu->device;
    end(gpu);
    end(ref);
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "%s", what);
}

#define ASK(call, kernel, ...)                                                                     \
    do {                                                                                           \
        exo_err err_ = {0};                                                                        \
        cr_assert_eq((call)->device->device_class->kernels->kernel(                                \
                         (call)->device, &(const exo_##kernel##_args){__VA_ARGS__}, &err_),        \
                     EXO_OK, "%s", err_.text);                                                     \
    } while (0)

/* --- bf16 ------------------------------------------------------------------------------------- */

/* The first numbers of an array as bf16, in an array of their own. */
static void *
as_bf16(call *c, const float *numbers, size_t count)
{
    exo_array from = {
        .device = c->device, .data = (void *)(uintptr_t)numbers, .count = count, .dtype = EXO_F32};
    exo_array *x = &c->x[c->used++];
    cr_assert_eq(exo_array_init(x, c->device, EXO_BF16, count, NULL), EXO_OK);
    exo_vec_cast(*x, from);
    return x->data;
}

/* bf16 results become fp32, for the comparison. */
static void
widen(call *c)
{
    for (size_t i = 0; i < c->used; i++)
        if (c->x[i].dtype == EXO_BF16) {
            exo_array wide;
            cr_assert_eq(exo_array_init(&wide, c->device, EXO_F32, c->x[i].count, NULL), EXO_OK);
            exo_vec_cast(wide, c->x[i]);
            exo_array_release(&c->x[i]);
            c->x[i] = wide;
        }
}

/* --- Attention -------------------------------------------------------------------------------- */

/* Drawn numbers as the call's attention has them: in bf16, or, on the reference, in fp32 rounded to
 * bf16. */
static void *
drawn_as(call *c, size_t count, size_t dtype)
{
    float *numbers = drawn(c, count);
    if (dtype == EXO_F32)
        return numbers;
    void *half = as_bf16(c, numbers, count);
    if (c->device != exo_device_ref())
        return half;
    exo_vec_cast(c->x[c->used - 2], c->x[c->used - 1]);
    return numbers;
}

static void
attend(call *c, const exo_attention_shape *shape, uint32_t dropped)
{
    const exo_attention_drop drop = {
        .dropped = dropped, .ordinal = 3, .node = 1, .seed = 7, .step = 5};
    exo_attention_shape s = *shape;
    size_t rows = s.sequences * s.tokens, all = (s.heads + 2 * s.kv_heads) * s.width;
    void *x = drawn_as(c, rows * all, s.dtype),
         *dy = drawn_as(c, rows * s.heads * s.width, s.dtype),
         *dx = drawn_as(c, rows * all, s.dtype),
         *y = drawn_as(c, rows * s.heads * s.width, s.dtype);
    exo_array lse;
    if (c->device == exo_device_ref())
        s.dtype = EXO_F32;
    plan(c, EXO_SHAPE_ATTENTION, &s);
    cr_assert_eq(exo_array_init(&lse, c->device, EXO_F32, rows * s.heads, NULL), EXO_OK);
    ASK(c, attention, .plan = c->plan, .drop = drop, .y = y, .lse = lse.data, .x = x,
        .scratch = c->scratch[0].data);
    ASK(c, attention_backward, .plan = c->plan, .drop = drop, .dx = dx, .x = x, .y = y, .dy = dy,
        .lse = lse.data, .scratch = c->scratch[1].data, .add = s.alibi != 0);
    exo_array_release(&lse);
    if (shape->dtype == EXO_BF16) { /* the fp32 copies have done their work; results remain */
        for (size_t i = 0; i < c->used; i += 2)
            if (c->device == exo_device_ref())
                exo_vec_cast(c->x[i + 1], c->x[i]);
            else
                exo_vec_cast(c->x[i], c->x[i + 1]);
        widen(c);
    }
}

struct attention_case {
    size_t tokens, heads, kv_heads, width, turned, alibi;
    uint32_t dropped;
};

static exo_attention_shape
attention_shape(const struct attention_case *k, exo_dtype dtype)
{
    exo_attention_shape s;
    memset(&s, 0, sizeof s);
    s.sequences = k->tokens > 100 ? 1 : 2;
    s.tokens = k->tokens;
    s.heads = k->heads;
    s.kv_heads = k->kv_heads;
    s.width = k->width;
    s.turned = k->turned;
    s.alibi = k->alibi;
    s.dropout = k->dropped > 0;
    s.dtype = (size_t)dtype;
    s.theta = 10000;
    s.scale = 0.2;
    return s;
}

static void
expect_attention(const struct attention_case *k, exo_dtype dtype, double tolerance)
{
    char what[64];
    const exo_attention_shape s = attention_shape(k, dtype);
    call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
    snprintf(what, sizeof what, "%s, heads of %zu", exo_dtype_name(dtype), s.width);
    attend(&gpu, &s, k->dropped);
    attend(&ref, &s, k->dropped);
    expect_equal(&gpu, &ref, tolerance, what);
}

Test(cuda_layers, attention_of_several_tiles)
{
    static const struct attention_case cases[] = {{70, 2, 1, 20, 8, 0, 0},
                                                  {67, 3, 3, 40, 0, 1, 9000},
                                                  {65, 2, 2, 72, 8, 0, 0},
                                                  {34, 4, 1, 130, 6, 1, 20000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_attention(&cases[i], EXO_F32, 2e-5);
}

/* The bits of a call do not depend on the order in which threads, blocks and copies come. */
Test(cuda_layers, attention_in_bf16_has_the_same_bits_every_time)
{
    static const struct attention_case k = {35, 2, 1, 24, 8, 0, 9000};
    const exo_attention_shape s = attention_shape(&k, EXO_BF16);
    exo_device *device = open_gpu();
    call first = {.device = device}, second = {.device = device};
    attend(&first, &s, k.dropped);
    cuda_emulator_seed(2);
    attend(&second, &s, k.dropped);
    for (size_t i = 0; i < first.used; i++) {
        const size_t count = first.x[i].count;
        float *a = exo_calloc(count, sizeof *a), *b = exo_calloc(count, sizeof *b);
        cr_assert(a && b);
        cr_assert_eq(exo_array_read(first.x[i], a, NULL), EXO_OK);
        cr_assert_eq(exo_array_read(second.x[i], b, NULL), EXO_OK);
        cr_expect_arr_eq(a, b, count * sizeof *a, "array %zu", i);
        exo_free(a);
        exo_free(b);
    }
    end(&first);
    end(&second);
    exo_cuda_close(device);
}

/* On the tensor cores: heads that eight elements do and do not divide, in their place and turned,
 * with gradients that are written at once and that are added up from parts. */
Test(cuda_layers, attention_in_bf16)
{
    static const struct attention_case cases[] = {
        {5, 2, 1, 20, 8, 0, 9000}, {150, 2, 2, 32, 0, 0, 0},    {140, 1, 1, 64, 0, 1, 9000},
        {67, 2, 1, 40, 8, 0, 0},   {70, 1, 1, 65, 0, 0, 0},     {97, 1, 1, 128, 128, 0, 20000},
        {5, 1, 1, 136, 0, 0, 0},   {35, 2, 1, 256, 6, 1, 20000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += one_of(6))
        expect_attention(&cases[i], EXO_BF16, 1e-2);
}

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
linear_bf16(call *c, const exo_linear_shape *s, const struct linear_case *k)
{
    float *bias = drawn(c, s->out), *dw = drawn(c, s->out * s->in), *db = drawn(c, s->out);
    float *numbers = drawn(c, s->rows * s->in + s->out * s->in);
    void *dy = as_bf16(c, numbers + 9, s->rows * s->out);
    void *x = as_bf16(c, numbers, s->rows * s->in),
         *weight = as_bf16(c, numbers + s->rows * s->in, s->out * s->in),
         *y = as_bf16(c, numbers, s->rows * s->out),
         *before = as_bf16(c, numbers, s->rows * s->out),
         *inner = as_bf16(c, numbers + 5, s->rows * s->in);
    plan(c, EXO_SHAPE_LINEAR, s);
    ASK(c, linear, .plan = c->plan, .activation = k->activation, .y = y,
        .before = k->backward ? before : NULL, .x = x, .weight = weight,
        .bias = k->bias ? bias : NULL);
    ASK(c, linear_grad_w, .plan = c->plan, .dw = dw, .db = k->bias ? db : NULL, .dy = dy, .x = x);
    ASK(c, linear_grad_x, .plan = c->plan, .activation = k->activation,
        .before = k->activation != EXO_LINEAR ? inner : NULL, .dx = x, .dy = dy, .weight = weight);
    widen(c);
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
    call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
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
    expect_equal(&gpu, &ref, 3e-2, "linear");
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

Test(cuda_layers, linear_in_bf16)
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

/* A layer that alone uses GELU of another one takes its slope into the product; sums of dy come with a
 * product where they are added. */
Test(cuda_layers, two_layers_in_bf16)
{
    static float got[4][SIDE * SIDE], again[4][SIDE * SIDE], want[4][SIDE * SIDE];
    exo_device *device = open_gpu();
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
    call c = {.device = open_gpu()};
    exo_device *device = c.device;
    const uint64_t before = all_epilogues();
    float *a[6];
    for (size_t i = 0; i < 6; i++)
        a[i] = drawn(&c, SIDE * SIDE);
    plan(&c, EXO_SHAPE_LINEAR, &s);
    ASK(&c, linear, .plan = c.plan, .activation = EXO_GELU_TANH, .y = a[0], .before = a[1],
        .x = a[2], .weight = a[3], .bias = a[4]);
    ASK(&c, linear_grad_w, .plan = c.plan, .dw = a[5], .db = a[4], .dy = a[0], .x = a[2]);
    ASK(&c, linear_grad_x, .plan = c.plan, .activation = EXO_GELU_TANH, .before = a[1], .dx = a[2],
        .dy = a[0], .weight = a[3]);
    cr_expect_eq(all_epilogues() - before, 0);
    end(&c);
    exo_cuda_close(device);
}

/* The sweeps do what cuBLASLt has no algorithm for, or is not asked for. */
Test(cuda_layers, linear_without_epilogues)
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

/* --- Heads ------------------------------------------------------------------------------------ */

/* Targets -1, and in each block of the vocabulary. A wide head has its gradients at once. */
static void
run_head(call *c, const exo_head_shape *s)
{
    const int32_t last = (int32_t)s->vocabulary - 1;
    const int32_t targets[5] = {-1, 0, s->wide ? 1 : 8191, s->wide ? 2 : 8192, last};
    float *out = drawn(c, 2 * s->rows), *numbers = drawn(c, s->rows * s->width);
    float *weight = drawn(c, s->vocabulary * s->width), *factor = drawn(c, s->rows);
    float *dx = drawn(c, s->rows * s->width), *dweight = drawn(c, s->vocabulary * s->width);
    exo_array places;
    void *x = s->dtype == EXO_BF16 ? as_bf16(c, numbers, s->rows * s->width) : numbers;
    exo_vec_scale(c->x[2], 6); /* a block's largest logit differs from the last one's */
    plan(c, EXO_SHAPE_HEAD, s);
    cr_assert_eq(exo_array_init(&places, c->device, EXO_I32, 5, NULL), EXO_OK);
    exo_array_send(places, targets);
    exo_head_args k = {.plan = c->plan,
                       .x = x,
                       .weight = weight,
                       .targets = s->entropy ? NULL : places.data,
                       .scale = 0.75f,
                       .log_sum = out,
                       .picked = s->entropy ? NULL : out + s->rows,
                       .entropy = s->entropy ? out + s->rows : NULL,
                       .scratch = c->scratch[0].data};
    exo_err err = {0};
    if (s->wide) {
        k.cast = as_bf16(c, weight, s->vocabulary * s->width);
        k.factor = factor;
        k.dx = dx;
        k.dweight = dweight;
    }
    cr_assert_eq(c->device->device_class->kernels->head(c->device, &k, &err), EXO_OK, "%s",
                 err.text);
    k.factor = factor;
    k.dx = dx;
    k.dweight = dweight;
    k.scratch = c->scratch[1].data;
    if (!s->wide)
        cr_assert_eq(c->device->device_class->kernels->head_backward(c->device, &k, &err), EXO_OK,
                     "%s", err.text);
    widen(c);
    exo_array_release(&places);
}

Test(cuda_layers, heads_of_several_blocks)
{
    for (size_t i = 0; i < 4; i++) {
        exo_head_shape s;
        call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
        memset(&s, 0, sizeof s);
        s = (exo_head_shape){.rows = 5,
                             .width = 3,
                             .vocabulary = 8230,
                             .dtype = i == 2 ? EXO_BF16 : EXO_F32,
                             .gradients = 1,
                             .entropy = i == 1,
                             .invariant = i == 3};
        run_head(&gpu, &s);
        run_head(&ref, &s);
        expect_equal(&gpu, &ref, i == 2 ? 2e-2 : 1e-4, "head");
    }
}

/* Rows of its logits do not follow each other, since their number is odd. */
Test(cuda_layers, a_wide_head)
{
    const exo_head_shape s = {
        .rows = 5, .width = 3, .vocabulary = 203, .dtype = EXO_BF16, .gradients = 1, .wide = 1};
    call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
    run_head(&gpu, &s);
    run_head(&ref, &s);
    expect_equal(&gpu, &ref, 2e-2, "head");
}

/* --- Convolutions ----------------------------------------------------------------------------- */

static void
convolve(call *c, const exo_conv_shape *s)
{
    size_t image = s->batch * s->height * s->width * s->in_channels,
           out = s->batch * s->out_height * s->out_width * s->out_channels,
           weights = s->out_channels * s->in_channels * s->kernel_height * s->kernel_width;
    float *y = drawn(c, out), *x = drawn(c, image), *weight = drawn(c, weights),
          *bias = drawn(c, s->out_channels), *dx = drawn(c, image), *dweight = drawn(c, weights),
          *dbias = drawn(c, s->out_channels), *dy = drawn(c, out);
    plan(c, EXO_SHAPE_CONV, s);
    exo_vec_scale(c->x[7], 0.01f); /* sums of many pixels stay small */
    ASK(c, conv, .plan = c->plan, .y = y, .x = x, .weight = weight, .bias = bias);
    ASK(c, conv_backward, .plan = c->plan, .dx = dx, .dweight = dweight, .dbias = dbias, .x = x,
        .dy = dy);
}

/* One without windows, and one whose windows are more than a chunk. */
Test(cuda_layers, convolutions_of_pixels_and_of_several_chunks)
{
    for (size_t i = 0; i < 2; i += one_of(2)) {
        exo_conv_shape s;
        size_t side = i ? 64 : 9, kernel = i ? 5 : 1;
        call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
        memset(&s, 0, sizeof s);
        s = (exo_conv_shape){.batch = i ? 11 : 3,
                             .in_channels = i ? 8 : 5,
                             .height = side,
                             .width = side,
                             .out_channels = i ? 1 : 6,
                             .kernel_height = kernel,
                             .kernel_width = kernel,
                             .stride = 1,
                             .padding = i ? 2 : 0,
                             .out_height = side,
                             .out_width = side,
                             .dtype = EXO_F32,
                             .with_bias = 1,
                             .backward = 1,
                             .input_grad = 1};
        convolve(&gpu, &s);
        convolve(&ref, &s);
        expect_equal(&gpu, &ref, 1e-4, i ? "several chunks" : "pixels");
    }
}

/* --- Generation ------------------------------------------------------------------------------- */

enum {
    TOKENS = 270, /* more than the keys of a chunk */
    WORDS = 40,
    PITCH = 64
};

static exo_decoder_shape
decoder_shape(exo_weight_format format)
{
    return (exo_decoder_shape){.spec = {.family = "llama",
                                        .vocabulary = WORDS,
                                        .context = TOKENS,
                                        .layers = 1,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .width = 16,
                                        .head_width = 6,
                                        .inner = 24,
                                        .position = EXO_POSITION_ROTARY,
                                        .norm = EXO_NORM_RMS,
                                        .norm_eps = 1e-5f,
                                        .activation = EXO_SILU,
                                        .gated = true,
                                        .rope_theta = 10000},
                               .format = format,
                               .context = TOKENS,
                               .rows = TOKENS};
}

/* Rows [first, first + count) of sequence 1, behind `before` rows of sequence 0; the logits of the
 * last one. */
static void
run_pass(call *c, const exo_array *numbers, void *caches, void *weights, size_t first, size_t count,
         size_t before, float *logits)
{
    int32_t rows[3][TOKENS];
    const int32_t last = (int32_t)(before + count - 1);
    for (size_t r = 0; r < before + count; r++) {
        size_t position = r < before ? r : first + r - before;
        rows[0][r] = (int32_t)(position * 7 % WORDS);
        rows[1][r] = (int32_t)position;
        rows[2][r] = r >= before;
    }
    for (size_t i = 0; i < 3; i++)
        exo_array_send(exo_array_part(numbers[i], 0, before + count), rows[i]);
    exo_array_send(exo_array_part(numbers[3], 0, 1), &last);
    ASK(c, decoder_pass, .plan = c->plan, .rows = before + count, .tokens = numbers[0].data,
        .positions = numbers[1].data, .sequences = numbers[2].data, .weights = weights,
        .caches = caches, .scratch = c->scratch[0].data);
    ASK(c, decoder_logits, .plan = c->plan, .rows = 1, .which = numbers[3].data, .logits = logits,
        .weights = weights, .scratch = c->scratch[0].data);
}

/* The logits behind all tokens of a sequence: in one pass, or in several and in company. */
static void
generate(call *c, exo_weight_format format, bool at_once)
{
    const exo_decoder_shape shape = decoder_shape(format);
    const exo_device_class *of = c->device->device_class;
    const exo_scratch_use uses[2] = {EXO_SCRATCH_WEIGHTS, EXO_SCRATCH_CACHE};
    exo_array memory[2], numbers[4];
    exo_decoder_entry p;
    float *logits = drawn(c, PITCH), *values = drawn(c, 4096);
    plan(c, EXO_SHAPE_DECODER, &shape);
    for (size_t i = 0; i < 2; i++) {
        size_t bytes = of->scratch(c->device, EXO_SHAPE_DECODER, &shape, uses[i]);
        cr_assert_eq(exo_array_init(&memory[i], c->device, EXO_U8, bytes * (i + 1), NULL), EXO_OK);
    }
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(exo_array_init(&numbers[i], c->device, EXO_I32, TOKENS, NULL), EXO_OK);
    for (size_t i = 0; exo_decoder_entry_at(&shape.spec, i, &p); i++)
        ASK(c, decoder_pack, .plan = c->plan, .parameter = i, .values = values + i,
            .weights = memory[0].data);
    exo_vec_fill(c->x[0], 0); /* behind the vocabulary, a row has no meaning */
    for (size_t first = 0, count; first < TOKENS; first += count) {
        count = at_once ? TOKENS : first < 200 ? 100 : first == 200 ? 60 : first == 260 ? 2 : 1;
        run_pass(c, numbers, memory[1].data, memory[0].data, first, count,
                 at_once      ? 0
                 : first == 0 ? 9
                              : 0,
                 logits);
    }
    exo_vec_fill(exo_array_part(c->x[0], WORDS, PITCH - WORDS), 0);
    for (size_t i = 0; i < 4; i++)
        exo_array_release(&numbers[i]);
    exo_array_release(&memory[0]);
    exo_array_release(&memory[1]);
}

Test(cuda_layers, a_sequence_has_the_same_bits_in_any_company)
{
    static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT4};
    for (size_t i = 0; i < 2; i += one_of(2)) {
        float together[PITCH], apart[PITCH];
        exo_device *device = open_gpu();
        call once = {.device = device}, often = {.device = device},
             ref = {.device = exo_device_ref()};
        const uint64_t before = cuda_emulator_graphs();
        generate(&often, formats[i], false);
        cr_expect_eq(cuda_emulator_graphs() - before, 7, "of 8 equal steps, all but the first");
        cr_assert_eq(exo_array_read(often.x[0], apart, NULL), EXO_OK);
        end(&often);
        generate(&once, formats[i], true);
        cr_assert_eq(exo_array_read(once.x[0], together, NULL), EXO_OK);
        cr_expect_arr_eq(together, apart, sizeof apart, "format %zu", i);
        if (i > 0) { /* unit/cuda compares them with the reference */
            end(&once);
            exo_cuda_close(device);
            continue;
        }
        generate(&ref, formats[i], true);
        expect_equal(&once, &ref, 1e-5, "logits");
    }
}

/* Steps of one row, of which the second is recorded and those from then on are launched as a graph,
 * and then more kinds of passes than a plan has graphs. Rows are the tokens of one sequence. */
static exo_status
take_steps(exo_device *device, exo_err *err)
{
    static const size_t rows[] = {1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1};
    const exo_decoder_shape shape = decoder_shape(EXO_WEIGHTS_F32);
    const exo_device_class *of = device->device_class;
    const exo_scratch_use uses[] = {EXO_SCRATCH_WEIGHTS, EXO_SCRATCH_CACHE, EXO_SCRATCH_FORWARD};
    exo_array memory[3] = {0}, numbers = {0};
    exo_plan *decoder = NULL;
    int32_t places[TOKENS];
    exo_status st = exo_plan_new(&decoder, device, EXO_SHAPE_DECODER, &shape, err);
    for (int32_t i = 0; i < TOKENS; i++)
        places[i] = i % WORDS;
    for (size_t i = 0; st == EXO_OK && i < 3; i++)
        st = exo_array_init(&memory[i], device, EXO_U8,
                            of->scratch(device, EXO_SHAPE_DECODER, &shape, uses[i]), err);
    if (st == EXO_OK)
        st = exo_array_init(&numbers, device, EXO_I32, 2 * TOKENS, err); /* at first 0 */
    if (st == EXO_OK)
        exo_array_send(exo_array_part(numbers, TOKENS, TOKENS), places);
    for (size_t i = 0; st == EXO_OK && i < sizeof rows / sizeof *rows; i++) {
        exo_decoder_pass_args k = {.plan = decoder,
                                   .rows = rows[i],
                                   .tokens = numbers.data,
                                   .positions = (int32_t *)numbers.data + TOKENS,
                                   .sequences = numbers.data,
                                   .weights = memory[0].data,
                                   .caches = memory[1].data,
                                   .scratch = memory[2].data};
        st = of->kernels->decoder_pass(device, &k, err);
        if (st == EXO_OK)
            st = exo_device_synchronize(device, err);
    }
    exo_plan_free(&decoder);
    for (size_t i = 0; i < 3; i++)
        exo_array_release(&memory[i]);
    exo_array_release(&numbers);
    return st;
}

Test(cuda_layers, failures_around_graphs_end_cleanly)
{
    exo_err err = {0};
    exo_device *device = open_gpu();
    const uint64_t first = cuda_emulator_calls();
    cr_expect_eq(take_steps(device, &err), EXO_OK, "%s", err.text);
    const uint64_t calls = cuda_emulator_calls() - first;
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    for (uint64_t n = 1; n < calls; n += 11 * one_of(4)) {
        device = open_gpu();
        cuda_emulator_fail_call(n);
        const exo_status st = take_steps(device, &err);
        cuda_emulator_fail_call(0);
        cr_expect(st == EXO_OK || err.text[0]);
        exo_cuda_close(device);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "call %zu", (size_t)n);
    }
    for (uint64_t n = 20; n < 60; n += 13) {
        device = open_gpu();
        cuda_emulator_fail_at(n);
        cr_expect_eq(take_steps(device, &err), EXO_FAILED, "operation %zu", (size_t)n);
        cuda_emulator_fail_at(0);
        exo_cuda_close(device);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    }
}

Test(cuda_layers, heads_that_are_too_wide_are_refused)
{
    exo_decoder_shape shape = decoder_shape(EXO_WEIGHTS_F32);
    exo_device *device = open_gpu();
    exo_plan *none = NULL;
    exo_err err = {0};
    shape.spec.head_width = 300;
    cr_expect_eq(exo_plan_new(&none, device, EXO_SHAPE_DECODER, &shape, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "300 wide"), "%s", err.text);
    exo_cuda_close(device);
}

/* --- tf32 ------------------------------------------------------------------------------------- */

/* A linear layer's output; invariant: with the order of generation. */
static void
multiply(const char *tf32, size_t invariant, float y[64 * 40])
{
    const exo_linear_shape shape = {.rows = 64, .in = 50, .out = 40, .invariant = invariant};
    cr_assert_eq(setenv("EXOGYM_CUDA_TF32", tf32, 1), 0);
    call c = {.device = open_gpu()};
    exo_device *device = c.device;
    float *const out = drawn(&c, 64 * 40), *const x = drawn(&c, 64 * 50),
                 *const weight = drawn(&c, 40 * 50);
    plan(&c, EXO_SHAPE_LINEAR, &shape);
    ASK(&c, linear, .plan = c.plan, .y = out, .x = x, .weight = weight,
        .scratch = c.scratch[0].data);
    cr_assert_eq(exo_array_read(c.x[0], y, NULL), EXO_OK);
    end(&c);
    exo_cuda_close(device);
}

Test(cuda_layers, tf32_rounds_operands_where_it_is_asked_for)
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
as_fp8(call *c, exo_fp8 format, size_t rows, size_t columns, bool transposed, float **scale)
{
    const float *x = drawn(c, rows * columns);
    exo_array *codes = &c->x[c->used++];
    cr_assert_eq(exo_array_init(codes, c->device, EXO_U8, rows * columns + 64, NULL), EXO_OK);
    exo_vec_fill((exo_array){.device = c->device, .data = codes->data, .count = 1}, 0);
    *scale = codes->data;
    uint8_t *first = (uint8_t *)codes->data + 64;
    ASK(c, to_fp8, .rows = rows, .columns = columns, .dtype = EXO_F32, .format = format, .x = x,
        .codes = transposed ? NULL : first, .transposed = transposed ? first : NULL,
        .scale = *scale);
    return first;
}

/* One of the products of a layer, whose result is the call's first array. */
static void
linear_fp8(call *c, const exo_linear_shape *s, int product, size_t skip)
{
    float *a_scale, *b_scale;
    float *const y = drawn(c, s->rows * s->out + s->in * s->out + s->rows * s->in),
                 *const bias = drawn(c, s->out), *const residual = drawn(c, s->rows * s->out);
    plan(c, EXO_SHAPE_LINEAR, s);
    void *a = as_fp8(c, product == 0 ? EXO_E4M3 : EXO_E5M2, s->rows, product == 0 ? s->in : s->out,
                     product == 2, &a_scale);
    void *b = as_fp8(c, EXO_E4M3, product == 2 ? s->rows : s->out, s->in, product > 0, &b_scale);
    if (product == 0)
        ASK(c, linear, .plan = c->plan, .activation = EXO_LINEAR, .y = y + skip, .x = a,
            .weight = b, .bias = bias, .residual = s->residual ? residual : NULL,
            .x_scale = a_scale, .weight_scale = b_scale, .scratch = c->scratch[0].data);
    else if (product == 1)
        ASK(c, linear_grad_x, .plan = c->plan, .dx = y + skip, .dy = a, .weight = b,
            .dy_scale = a_scale, .weight_scale = b_scale);
    else
        ASK(c, linear_grad_w, .plan = c->plan, .dw = y + skip, .dy = a, .x = b, .dy_scale = a_scale,
            .x_scale = b_scale);
    for (size_t i = 1; i < c->used; i++) /* the result alone is compared */
        exo_array_release(&c->x[i]);
    c->used = 1;
}

/* The result, in bf16 or fp32, as fp32. */
static void
widen_result(call *c, size_t dtype, size_t skip, size_t count)
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
    call gpu = {.device = open_gpu()}, ref = {.device = exo_device_ref()};
    const uint64_t before = cuda_emulator_fp8_products(), biased = epilogues(CUDA_BIAS);
    linear_fp8(&gpu, &s, product, skip);
    cr_expect_eq(cuda_emulator_fp8_products() - before, skip % 4 == 0);
    cr_expect_eq(epilogues(CUDA_BIAS) - biased, product == 0);
    linear_fp8(&ref, &s, product, skip);
    widen_result(&gpu, dtype, skip, count);
    widen_result(&ref, dtype, skip, count);
    snprintf(what, sizeof what, "product %d of fp8, %zu", product, skip);
    /* with a residual the bias alone is rounded to bf16 */
    expect_equal(&gpu, &ref, dtype != EXO_F32 ? 8e-3 : residual ? 3e-3 : 1e-5, what);
}

Test(cuda_layers, linear_of_fp8)
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

Test(cuda_layers, fp8_is_refused_where_it_cannot_be_computed)
{
    begin_fp8(exo_device_cpu(), "autocast to fp8 needs a GPU (device: cuda)");
    cuda_emulator_set_capability(86);
    exo_device *device = open_gpu();
    begin_fp8(device,
              "capability 8.9 or later (Ada, Hopper, Blackwell), and GPU 0 has 8.6: use bf16");
    exo_cuda_close(device);
}
