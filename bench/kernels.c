/* Times every case of tests/support/kernel_cases.h on the CPU and on the reference device. The last
 * column compares the CPU's rate with that of a copy in the same run. Best of 5.
 *
 *     bench_kernels [COUNT]
 *
 * COUNT is the number of elements of an array; the default, 1,868,234, is that of the CNN's
 * parameters.
 */
#include <stdio.h>
#include <stdlib.h>

#include <exogym/exogym.h>

#include "nn/ref/ref_device.h"
#include "support/kernel_cases.h"

enum {
    REPEATS = 5
};

/* The best time of case `c` (NULL: a copy) in ms. `x` is set to `start` once, before the first
 * repeat. */
static double
best_of(const kernel_case *c, const exo_array *x, const exo_array *start)
{
    double best = 1e30, sum = 0;
    for (size_t a = 0; a < KERNEL_CASE_ARRAYS; a++)
        exo_vec_copy(x[a], start[a]);
    for (int i = 0; i < REPEATS; i++) {
        exo_time began = exo_now(exo_clock_real());
        if (c)
            c->run(x, &sum, NULL);
        else
            exo_vec_copy(x[0], x[1]);
        double took = (double)(exo_now(exo_clock_real()) - began) / (double)EXO_MS;
        best = took < best ? took : best;
    }
    return best;
}

int
main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1868234;
    exo_device *const devices[2] = {exo_device_cpu(), exo_device_ref()};
    exo_array x[2][KERNEL_CASE_ARRAYS], start[2][KERNEL_CASE_ARRAYS];
    double ms[2] = {0}, copy = 0;
    for (size_t d = 0; d < 2; d++)
        if (kernel_case_arrays(x[d], devices[d], count, NULL) != EXO_OK ||
            kernel_case_arrays(start[d], devices[d], count, NULL) != EXO_OK)
            return 1;
    printf("%u threads, %zu elements\n%-28s %10s %10s %12s\n", exo_num_threads(), count, "",
           "cpu, ms", "ref, ms", "of a copy");
    for (size_t i = 0; i == 0 || kernel_case_at(i - 1); i++) {
        const kernel_case *c = i > 0 ? kernel_case_at(i - 1) : NULL; /* NULL: the copy */
        for (size_t d = 0; d < 2; d++)
            ms[d] = best_of(c, x[d], start[d]);
        copy = c ? copy : ms[0];
        printf("%-28s %10.3f %10.3f %12.2f\n", c ? c->name : "copy", ms[0], ms[1],
               (double)(c ? c->streams : 2) / ms[0] / (2 / copy));
        fflush(stdout);
    }
    for (size_t d = 0; d < 2; d++) {
        kernel_case_release(x[d]);
        kernel_case_release(start[d]);
    }
    return 0;
}
