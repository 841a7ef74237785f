/* Numbers for tests of kernels: see numbers.h. */
#include "support/numbers.h"

#include <math.h>
#include <stdlib.h>

#include <exogym/rng.h>
#include <exogym/tensor.h>

#include "base/bf16.h"
#include "support/check.h"

float *
numbers_new(size_t count, uint64_t seed)
{
    float *out = malloc((count ? count : 1) * sizeof *out);
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; out && i < count; i++)
        out[i] = exo_rng_normal(&rng);
    return out;
}

exo_status
numbers_read(exo_array x, float *out, exo_err *err)
{
    if (x.dtype == EXO_F32)
        return exo_array_read(x, out, err);
    uint16_t *halves = malloc((x.count ? x.count : 1) * sizeof *halves);
    if (!halves)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    const exo_status st = exo_array_read(x, halves, err);
    for (size_t i = 0; st == EXO_OK && i < x.count; i++)
        out[i] = exo_from_bf16(halves[i]);
    free(halves);
    return st;
}

double
numbers_distance(const float *a, const float *b, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]) / (1 + fabs((double)b[i]));
        if (!(d <= worst))
            worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

bool
numbers_bf16_runs(void)
{
    static const float x[4] = {1, 2, 3, 4};
    exo_tape *tape = NULL;
    CHECK(exo_tape_new(&tape, NULL) == EXO_OK);
    exo_tape_begin(tape, NULL, &(exo_pass){.autocast = true});
    exo_tensor *v = exo_tape_input(tape, EXO_F32, 2, (size_t[]){2, 2}, x);
    exo_tensor *y = exo_linear(tape, v, v, NULL);
    CHECK(y || exo_tape_error(tape, NULL) == EXO_UNSUPPORTED);
    exo_tape_free(&tape);
    return y != NULL;
}
