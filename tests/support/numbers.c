/* See numbers.h. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>

#include <exogym/rng.h>

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
