/* The device `cuda` of this machine: each kernel against the reference, and equal bits from run to
 * run. Skipped where there is no GPU. unit/cuda has the same kernels on the host. Read next:
 * nn/cuda/device.h, docs/gpu.md. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/ref/ref_device.h"
#include "support/attention_call.h"
#include "support/kernel_check.h"

static const size_t counts[] = {0, 1, 33, 1000, (1 << 15) + 1, 1000003};

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
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            kernel_expect_same(kernel_case_at(i), exo_device_ref(), gpu, counts[n], false);
    exo_device_close(&gpu);
}

Test(gpu, bits_are_equal_from_run_to_run, .timeout = 300)
{
    exo_device *gpu = open_gpu();
    for (size_t i = 0; kernel_case_at(i); i++)
        for (int again = 0; again < 3; again++)
            kernel_expect_same(kernel_case_at(i), gpu, gpu, 100003, true);
    exo_device_close(&gpu);
}

/* As EXOGYM_CUDNN asks, and by exogym's own kernels. */
static void
expect_own_attention(const char *asked, const size_t sizes[6])
{
    static attention_outcome by_asked, own;
    const attention_call call = {false, false, false, 0};
    const exo_attention_shape shape = attention_shape_of(sizes);
    exo_err err = {0};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(setenv("EXOGYM_CUDNN", i ? asked : "off", 1), 0);
        exo_device *gpu = open_gpu();
        const exo_status st = attention_outcome_of(gpu, &shape, &call, i ? &by_asked : &own, &err);
        cr_assert_eq(st, EXO_OK, "%s", err.text);
        exo_device_close(&gpu);
    }
    attention_expect_same(&shape, &own, &by_asked);
}

Test(gpu, attention_in_bf16_is_that_of_the_own_kernels, .timeout = 300)
{
    static const size_t shapes[][6] = {/* N, T, H, G, D, turned */
                                       {2, 128, 2, 2, 64, 0},
                                       {1, 77, 4, 2, 64, 64},
                                       {2, 100, 1, 1, 128, 0},
                                       {3, 5, 3, 1, 24, 16},
                                       {1, 2, 2, 2, 8, 0}};
    char asked[8];
    snprintf(asked, sizeof asked, "%s", getenv("EXOGYM_CUDNN") ? getenv("EXOGYM_CUDNN") : "off");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_own_attention(asked, shapes[i]);
}
