/* Runs cases of kernels, and compares devices. With Criterion. No state. */
#ifndef EXO_TEST_KERNEL_CHECK_H
#define EXO_TEST_KERNEL_CHECK_H

#include "support/kernel_cases.h"

/* Runs a case on a device. Returns all arrays, one after the other. The caller frees them with
 * exo_free. */
char *kernel_outcome(const kernel_case *c, exo_device *device, size_t count, double *sum);
/* Expects equal results: to the bit, or within the case's tolerance. */
void kernel_expect_same(const kernel_case *c, exo_device *a, exo_device *b, size_t count,
                        bool to_the_bit);

#endif
