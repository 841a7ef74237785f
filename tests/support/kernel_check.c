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

void
kernel_expect_same(const kernel_case *c, exo_device *a, exo_device *b, size_t count,
                   bool to_the_bit)
{
    double sum[2], tolerance = to_the_bit ? 0 : tolerance_of(c, a, b);
    char *one = kernel_outcome(c, a, count, &sum[0]), *other = kernel_outcome(c, b, count, &sum[1]);
    if (tolerance == 0)
        cr_expect(memcmp(one, other, KERNEL_CASE_ARRAYS * count * sizeof(float)) == 0,
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
