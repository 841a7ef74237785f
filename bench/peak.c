/* The fp32 peak of the processor (limits.h). This file is compiled for the machine at hand, with
 * its fused multiply-add. */
#include <exogym/clock.h>

#include "base/parallel.h"
#include "limits.h"

enum {
    LANES = 16,
    CHAINS = 12,
    ROUNDS = 1 << 17,
    PIECES = 96 /* a multiple of most numbers of threads */
};

struct sums {
    float of[PIECES][LANES];
};

/* The chains are independent, so that they hide the latency of the units. Each chain is a
 * register. */
static void
multiply(void *context, size_t piece)
{
    struct sums *out = context;
    float s[CHAINS][LANES], a[LANES], b[LANES];
    for (int l = 0; l < LANES; l++) {
        a[l] = 1.0f - 1e-7f * (float)(l + 1);
        b[l] = 1e-7f * (float)(piece + 1);
        for (int k = 0; k < CHAINS; k++)
            s[k][l] = (float)k;
    }
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < CHAINS; k++)
            for (int l = 0; l < LANES; l++)
                s[k][l] = s[k][l] * a[l] + b[l];
    for (int l = 0; l < LANES; l++) {
        out->of[piece][l] = 0;
        for (int k = 0; k < CHAINS; k++)
            out->of[piece][l] += s[k][l];
    }
}

double
bench_peak_fp32(void)
{
    static struct sums sums;
    double best = 0;
    for (int i = 0; i < 3; i++) {
        exo_time before = exo_now(exo_clock_real());
        exo_parallel_for(PIECES, multiply, &sums);
        double rate =
            2.0 * PIECES * CHAINS * LANES * ROUNDS / (double)(exo_now(exo_clock_real()) - before);
        best = rate > best ? rate : best;
    }
    return best;
}
