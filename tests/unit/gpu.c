/* The device `cuda` of this machine: each kernel against the reference, and equal bits from run to
 * run. Skipped where there is no GPU. unit/cuda has the same kernels on the host. Read next:
 * nn/cuda/device.h, docs/gpu.md. */
#include <criterion/criterion.h>

#include <string.h>

#include <exogym/memory.h>

#include "nn/ref/ref_device.h"
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
