/* Numbers for tests of kernels: reproducible inputs, and comparisons that say where two arrays
 * part. */
#ifndef EXO_TEST_NUMBERS_H
#define EXO_TEST_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/device.h>

/* `count` standard normal numbers from a seed; the caller frees them with free(). */
float *numbers_new(size_t count, uint64_t seed);
/* Numbers of the host as an array; who gets it only reads them, or they may be written. */
static inline exo_array
numbers_array(const float *numbers, size_t count)
{
    return exo_host_array(EXO_F32, (void *)(uintptr_t)numbers, count);
}

/* The largest |a - b| / (1 + |b|); NaN counts as infinite. */
double numbers_distance(const float *a, const float *b, size_t count);
/* Whether this processor runs products of bf16 operands. Where it does not, autocast must fail with
 * UNSUPPORTED: the probe aborts on anything else, so that no test is left out by mistake. */
bool numbers_bf16_runs(void);

#endif
