/* Tables of positions: see decoder_positions.h. */
#include "nn/cpu/decoder_positions.h"

#include <math.h>

void
exo_rotary_table(double theta, size_t turned, const float *factors, size_t positions, float *turns)
{
    size_t half = turned / 2;
    for (size_t i = 0; i < half; i++) {
        float frequency = (float)pow(theta, -2.0 * (double)i / (double)turned);
        if (factors)
            frequency *= factors[i];
        for (size_t t = 0; t < positions; t++) {
            float angle = (float)t * frequency;
            turns[t * turned + i] = (float)cos((double)angle);
            turns[t * turned + half + i] = (float)sin((double)angle);
        }
    }
}

void
exo_alibi_slopes(size_t heads, float *slopes)
{
    size_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    for (size_t i = 0; i < heads; i++) {
        double exponent = i < power ? -8.0 * (double)(i + 1) / (double)power
                                    : -8.0 * (double)(2 * (i - power) + 1) / (double)(2 * power);
        slopes[i] = (float)exp2(exponent);
    }
}
