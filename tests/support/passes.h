/* Passes over a tape for tests of operations. */
#ifndef EXO_TEST_PASSES_H
#define EXO_TEST_PASSES_H

#include <criterion/criterion.h>

#include <exogym/sequence.h>

#include "support/numbers.h"

/* The tolerated errors of fp32 (another order of summation) and of bf16 (8 bits of mantissa). */
static const double passes_tolerance[2] = {2e-4, 4e-2};

static inline exo_tape *
passes_tape(void)
{
    exo_tape *tape = NULL;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    return tape;
}

static inline void
passes_begin(exo_tape *tape, bool train, bool bf16)
{
    const exo_pass pass = {
        .train = train, .grad = true, .autocast = bf16, .seed = 3, .node = 1, .step = 2};
    exo_tape_begin(tape, NULL, &pass);
}

/* Reads y into `value`, then runs backward from sum(y * r). */
static inline void
passes_backward(exo_tape *tape, exo_tensor *y, const float *r, float *value)
{
    exo_err err = {0};
    size_t dims[EXO_MAX_DIMS];
    cr_assert_not_null(y, "%s", (exo_tape_error(tape, &err), err.text));
    size_t n = exo_tensor_dims(y, dims), numel = exo_tensor_numel(y);
    exo_tensor_read(y, value);
    exo_tensor *weights = exo_tape_input(tape, EXO_F32, n, dims, r);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, y, weights));
    cr_assert_not_null(loss);
    cr_assert_eq(exo_tape_backward(tape, loss, (float)numel, &err), EXO_OK, "%s", err.text);
}

#define PASSES_CLOSE(bf16, a, b, count, ...)                                                       \
    do {                                                                                           \
        double off = numbers_distance(a, b, count);                                                \
        cr_expect(off <= passes_tolerance[bf16], "%s %s: off by %g", (bf16) ? "bf16" : "fp32",     \
                  __VA_ARGS__, off);                                                               \
    } while (0)

#endif
