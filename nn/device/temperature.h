/* Temperatures, as the tape and generation take them. No state. */
#ifndef EXO_DEVICE_TEMPERATURE_H
#define EXO_DEVICE_TEMPERATURE_H

#include <math.h>
#include <stdbool.h>

#define EXO_TEMPERATURE_EXPECTED "0 or a number from 3e-39 to 3e38"

/* *scale = 1 / temperature, which multiplies logits; 1 for temperature 0. False: it is not finite, as for 1e-45,
 * or the temperature is none. */
static inline bool
exo_temperature_scale(float temperature, float *scale)
{
    *scale = temperature > 0.0f ? 1.0f / temperature : 1.0f;
    return temperature >= 0.0f && !isinf(temperature) && !isinf(*scale);
}

#endif
