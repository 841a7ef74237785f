/* The device `cuda` of this machine: each kernel against the reference, attention, layers in each
 * type, heads, and equal bits from run to run. Skipped where there is no GPU. unit/cuda has the same kernels
 * on the host. Read next: nn/cuda/device.h, docs/gpu.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/tensor.h>

#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/attention_call.h"
#include "support/kernel_check.h"
#include "support/numbers.h"

static const size_t counts[] = {0, 1, 33, 1000, (1 << 15) + 1, 1000003};

/* EXO_GPU_ELEMENTS: the most of a case, where the GPU is an interpreter (cli/ptx). */
static size_t
most_elements(void)
{
    const char *text = getenv("EXO_GPU_ELEMENTS");
    return text ? strtoul(text, NULL, 10) : SIZE_MAX;
}

/* NULL: there is no GPU. */
static exo_device *
open_gpu(void)
{
    exo_device *gpu = NULL;
    exo_err err = {0};
    exo_status st = exo_device_open(&gpu, "cuda", &err);
    if (st == EXO_UNSUPPORTED)
        cr_skip("%s", err.text);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    return gpu;
}

Test(gpu, every_kernel_computes_what_the_reference_says, .timeout = 300)
{
    exo_device *gpu = open_gpu();
    for (size_t i = 0; kernel_case_at(i); i++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts && counts[n] <= most_elements(); n++)
            kernel_expect_same(kernel_case_at(i), exo_device_ref(), gpu, counts[n], false);
    exo_device_close(&gpu);
}

Test(gpu, bits_are_equal_from_run_to_run, .timeout = 300)
{
    exo_device *gpu = open_gpu();
    for (size_t i = 0; kernel_case_at(i); i++)
        for (int again = 0; again < 3; again++)
            kernel_expect_same(kernel_case_at(i), gpu, gpu,
                               most_elements() < 100003 ? most_elements() : 100003, true);
    exo_device_close(&gpu);
}

/* The reference's, and those of the GPU by exogym's own kernels and as EXOGYM_CUDNN asks. */
static void
expect_attention(const char *asked, const size_t sizes[6])
{
    static attention_outcome by_reference, by_gpu;
    const attention_call call = {false, false, false, 0};
    const exo_attention_shape shape = attention_shape_of(sizes);
    exo_attention_shape in_fp32 = shape;
    exo_err err = {0};
    in_fp32.dtype = EXO_F32;
    cr_assert_eq(attention_outcome_of(exo_device_ref(), &in_fp32, &call, &by_reference, &err),
                 EXO_OK, "%s", err.text);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(setenv("EXOGYM_CUDNN", i ? asked : "off", 1), 0);
        exo_device *gpu = open_gpu();
        const exo_status st = attention_outcome_of(gpu, &shape, &call, &by_gpu, &err);
        cr_assert_eq(st, EXO_OK, "%s", err.text);
        exo_device_close(&gpu);
        if (i == 0) /* which the reference does without */
            memcpy(by_reference.lse, by_gpu.lse, sizeof by_gpu.lse);
        attention_expect_same(&shape, &by_reference, &by_gpu);
    }
}

Test(gpu, attention_in_bf16_is_that_of_the_reference, .timeout = 300)
{
    /* in the third shape rooms of shared memory are used again */
    static const size_t shapes[][6] = {/* N, T, H, G, D, turned */
                                       {2, 128, 2, 2, 64, 0}, {1, 77, 4, 2, 64, 64},
                                       {1, 200, 2, 1, 64, 0}, {2, 100, 1, 1, 128, 0},
                                       {3, 5, 3, 1, 24, 16},  {1, 2, 2, 2, 8, 0}};
    char asked[8];
    snprintf(asked, sizeof asked, "%s", getenv("EXOGYM_CUDNN") ? getenv("EXOGYM_CUDNN") : "off");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_attention(asked, shapes[i]);
}

/* --- Products --------------------------------------------------------------------------------- */

enum {
    ROWS = 96,
    INNER = 64,
    WORDS = 1003 /* logits of a row do not begin at a vector's boundary */
};

static const struct {
    exo_autocast on_gpu, of_reference;
    double tolerance;
} types[] = {{EXO_AUTOCAST_NONE, EXO_AUTOCAST_NONE, 1e-5},
             {EXO_AUTOCAST_BF16, EXO_AUTOCAST_BF16, 2e-2},
             {EXO_AUTOCAST_FP8, EXO_AUTOCAST_BF16, 0.15}};

/* The gradients of x, two weights and a bias: two layers with that bias, and GELU between them. */
static void
gradients_of_layers(exo_device *device, exo_autocast autocast, const float *numbers,
                    float out[4][ROWS * INNER])
{
    const size_t rows[2] = {ROWS, INNER}, square[2] = {INNER, INNER};
    const float *const behind = numbers + ROWS * INNER;
    exo_tensor *v[4];
    exo_tape *tape = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(tape, NULL, &(exo_pass){.grad = true, .autocast = autocast});
    v[0] = exo_tape_variable(tape, 2, rows, numbers);
    for (size_t i = 0; i < 3; i++)
        v[i + 1] = exo_tape_variable(tape, i < 2 ? 2 : 1, square, behind + i * INNER * INNER);
    exo_tensor *weights = exo_tape_input(tape, EXO_F32, 2, rows, numbers + 7);
    exo_tensor *inner = exo_linear_activation(tape, v[0], v[1], v[3], EXO_GELU_TANH);
    exo_tensor *y = exo_linear(tape, inner, v[2], v[3]);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, y, weights));
    cr_assert_eq(exo_tape_backward(tape, loss, ROWS * INNER, &err), EXO_OK, "%s", err.text);
    memset(out, 0, 4 * sizeof out[0]);
    for (size_t i = 0; i < 4; i++)
        exo_tensor_grad(v[i], out[i]);
    exo_tape_free(&tape);
}

/* |a - b| / |b| */
static double
error_of(const float *a, const float *b, size_t count)
{
    double apart = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(apart / all);
}

/* What cuBLASLt computes, in every type and with its epilogues. fp8 has 2 or 3 bits of mantissa. */
Test(gpu, layers_in_every_type_are_those_of_the_reference, .timeout = 300)
{
    static float got[4][ROWS * INNER], want[4][ROWS * INNER];
    float *numbers = numbers_new(ROWS * INNER + 3 * INNER * INNER, 4);
    exo_device *gpu = open_gpu();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (types[t].on_gpu == EXO_AUTOCAST_FP8 &&
            gpu->device_class->check_fp8(gpu, NULL) != EXO_OK)
            continue;
        gradients_of_layers(gpu, types[t].on_gpu, numbers, got);
        gradients_of_layers(exo_device_ref(), types[t].of_reference, numbers, want);
        for (size_t i = 0; i < 4; i++)
            cr_expect(error_of(got[i], want[i], ROWS * INNER) <= types[t].tolerance,
                      "type %zu, gradient %zu: off by %g", t, i,
                      error_of(got[i], want[i], ROWS * INNER));
    }
    exo_device_close(&gpu);
    free(numbers);
}

/* The loss of a head, then the gradients of x (ROWS, INNER) and of the weights (WORDS, INNER). */
static double
gradients_of_head(exo_device *device, exo_autocast autocast, const float *numbers, float *dx,
                  float *dweight)
{
    int32_t targets[ROWS];
    exo_tape *tape = NULL;
    exo_err err = {0};
    for (int i = 0; i < ROWS; i++)
        targets[i] = i % 7 == 0 ? -1 : i * 41 % WORDS;
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(tape, NULL, &(exo_pass){.grad = true, .autocast = autocast});
    exo_tensor *x = exo_tape_variable(tape, 2, (size_t[]){ROWS, INNER}, numbers),
               *weight =
                   exo_tape_variable(tape, 2, (size_t[]){WORDS, INNER}, numbers + ROWS * INNER),
               *at = exo_tape_input(tape, EXO_I32, 1, (size_t[]){ROWS}, targets);
    exo_tensor *loss = exo_linear_cross_entropy(tape, x, weight, at);
    cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
    const double value = (double)exo_tensor_item(loss);
    exo_tensor_grad(x, dx);
    exo_tensor_grad(weight, dweight);
    exo_tape_free(&tape);
    return value;
}

/* The product of a head and its losses: logits are bf16 with autocast. */
Test(gpu, heads_in_fp32_and_bf16_are_those_of_the_reference, .timeout = 300)
{
    static float got[(ROWS + WORDS) * INNER], want[(ROWS + WORDS) * INNER];
    float *numbers = numbers_new((ROWS + WORDS) * INNER, 5);
    exo_device *gpu = open_gpu();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (types[t].on_gpu == EXO_AUTOCAST_FP8)
            continue; /* as bf16, in a head */
        const double loss =
                         gradients_of_head(gpu, types[t].on_gpu, numbers, got, got + ROWS * INNER),
                     expected = gradients_of_head(exo_device_ref(), types[t].of_reference, numbers,
                                                  want, want + ROWS * INNER);
        cr_expect(fabs(loss - expected) <= types[t].tolerance * expected,
                  "type %zu: loss %g, expected %g", t, loss, expected);
        cr_expect(error_of(got, want, ROWS * INNER) <= types[t].tolerance,
                  "type %zu: gradient of x off by %g", t, error_of(got, want, ROWS * INNER));
        cr_expect(error_of(got + ROWS * INNER, want + ROWS * INNER, WORDS * INNER) <=
                      types[t].tolerance,
                  "type %zu: gradient of the weights off by %g", t,
                  error_of(got + ROWS * INNER, want + ROWS * INNER, WORDS * INNER));
    }
    exo_device_close(&gpu);
    free(numbers);
}
