/* Runs cases of kernels, and compares devices. With Criterion. No state. */
#ifndef EXO_TEST_KERNEL_CHECK_H
#define EXO_TEST_KERNEL_CHECK_H

#include "support/kernel_cases.h"

/* Runs a case on a device. Returns all arrays, one after the other. The caller frees them with
 * exo_free. */
char *kernel_outcome(const kernel_case *c, exo_device *device, size_t count, double *sum);
/* Whether results of fp32 of two kinds of devices have the same bits, but those of NaNs: a GPU's
 * arithmetic gives 0x7FFFFFFF alone, that of x86 keeps the NaN of an operand. */
bool kernel_same_bits(const char *a, const char *b, size_t bytes);
/* Expects equal results: to the bit, or within the case's tolerance. */
void kernel_expect_same(const kernel_case *c, exo_device *a, exo_device *b, size_t count,
                        bool to_the_bit);

#endif
