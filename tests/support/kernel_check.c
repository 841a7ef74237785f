/* Runs cases of kernels, and compares devices: see kernel_check.h. */
#include "support/kernel_check.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "support/numbers.h"

char *
kernel_outcome(const kernel_case *c, exo_device *device, size_t count, double *sum)
{
    exo_err err = {0};
    exo_array x[KERNEL_CASE_ARRAYS];
    char *all = exo_calloc(KERNEL_CASE_ARRAYS * count + 1, sizeof(float));
    cr_assert_not_null(all);
    cr_assert_eq(kernel_case_arrays(x, device, count, &err), EXO_OK, "%s", err.text);
    *sum = 0;
    exo_status st = c->run(x, sum, &err);
    cr_assert_eq(st, EXO_OK, "%s: %s", c->name, err.text);
    for (size_t a = 0; a < KERNEL_CASE_ARRAYS; a++)
        cr_assert_eq(exo_array_read(x[a], all + a * count * sizeof(float), &err), EXO_OK, "%s",
                     err.text);
    kernel_case_release(x);
    return all;
}

/* The tolerance of a case on two devices. A GPU has its own exponential functions, so kernels whose
 * results are defined by them agree to rounding only. */
static double
tolerance_of(const kernel_case *c, const exo_device *a, const exo_device *b)
{
    static const char *const kernels[] = {"tanh", "policy_loss", "kl_terms", "ranking_loss"};
    if (!a->device_class->is_host || !b->device_class->is_host)
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
            if (strcmp(c->kernel, kernels[i]) == 0)
                return 3e-7;
    return c->tolerance;
}

bool
kernel_same_bits(const char *a, const char *b, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof(float)) {
        const size_t left = bytes - at, size = left < sizeof(float) ? left : sizeof(float);
        float x = 0, y = 0;
        memcpy(&x, a + at, size);
        memcpy(&y, b + at, size);
        if (memcmp(a + at, b + at, size) != 0 && !(isnan(x) && isnan(y)))
            return false;
    }
    return true;
}

void
kernel_expect_same(const kernel_case *c, exo_device *a, exo_device *b, size_t count,
                   bool to_the_bit)
{
    double sum[2], tolerance = to_the_bit ? 0 : tolerance_of(c, a, b);
    const size_t bytes = KERNEL_CASE_ARRAYS * count * sizeof(float);
    const bool alike = to_the_bit || a->device_class->is_host == b->device_class->is_host;
    char *one = kernel_outcome(c, a, count, &sum[0]), *other = kernel_outcome(c, b, count, &sum[1]);
    if (tolerance == 0)
        cr_expect(alike ? memcmp(one, other, bytes) == 0 : kernel_same_bits(one, other, bytes),
                  "%s of %zu on %s and %s", c->name, count, exo_device_name(a), exo_device_name(b));
    else /* the integers of the last array, read as floats, are tiny */
        cr_expect(numbers_distance((float *)(void *)one, (float *)(void *)other,
                                   KERNEL_CASE_ARRAYS * count) <= tolerance,
                  "%s of %zu: off by %g", c->name, count,
                  numbers_distance((float *)(void *)one, (float *)(void *)other,
                                   KERNEL_CASE_ARRAYS * count));
    cr_expect(fabs(sum[0] - sum[1]) <= tolerance * (double)count,
              "%s of %zu: %.17g on %s, %.17g on %s", c->name, count, sum[0], exo_device_name(a),
              sum[1], exo_device_name(b));
    exo_free(one);
    exo_free(other);
}
