/* Numbers for tests of kernels: reproducible inputs, and distances between arrays. */
#ifndef EXO_TEST_NUMBERS_H
#define EXO_TEST_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/device.h>

/* Draws `count` standard normal numbers. The caller frees them with free(). */
float *numbers_new(size_t count, uint64_t seed);
/* Numbers in the host's memory as an array. If they are const, only read the array. */
static inline exo_array
numbers_array(const float *numbers, size_t count)
{
    return exo_host_array(EXO_F32, (void *)(uintptr_t)numbers, count);
}

/* Waits for the device and reads an array of fp32 or bf16 as fp32. Errors: NOMEM, and those of
 * exo_array_read. */
exo_status numbers_read(exo_array x, float *out, exo_err *err);

/* The largest |a - b| / (1 + |b|); NaN counts as infinite. */
double numbers_distance(const float *a, const float *b, size_t count);
/* Does this processor multiply bf16 operands? If not, autocast must fail with UNSUPPORTED. The
 * function aborts on any other error, so that no test is skipped by mistake. */
bool numbers_bf16_runs(void);

#endif
