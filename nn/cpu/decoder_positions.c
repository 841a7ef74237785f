/* Tables of positions: see decoder_positions.h. Frequencies are rounded to fp32, as in
 * transformers; angles, cosines and sines are computed in fp64. */
#include "nn/cpu/decoder_positions.h"

#include <math.h>

/* The scaling of LLaMA 3. A frequency with few turns in the original context is divided by the
 * factor, one with many turns is kept, and one between the two limits is interpolated. With
 * `linear`, all frequencies are divided. */
static double
stretched(double frequency, const exo_rope_scaling *s)
{
    if (!(s->factor > 0))
        return frequency;
    double factor = (double)s->factor;
    if (s->linear)
        return frequency / factor;
    double low = (double)s->low_freq_factor, high = (double)s->high_freq_factor;
    double original = (double)s->original_context, turns = original * frequency / 6.283185307179586;
    if (turns < low)
        return frequency / factor;
    if (turns > high)
        return frequency;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

void
exo_rotary_tables(const exo_decoder_spec *spec, size_t context, float *cosine, float *sine)
{
    size_t half = spec->head_width / 2;
    for (size_t i = 0; i < half; i++) {
        double exponent = -2.0 * (double)i / (double)spec->head_width;
        float frequency =
            (float)stretched(pow((double)spec->rope_theta, exponent), &spec->rope_scaling);
        for (size_t t = 0; t < context; t++) {
            double angle = (double)t * (double)frequency;
            cosine[t * half + i] = (float)cos(angle);
            sine[t * half + i] = (float)sin(angle);
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
