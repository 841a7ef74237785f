/* Elementary functions in plain C, without tables and branches, which compilers turn into vector
 * code. Their relative errors are below 2e-7, and the results have the same bits on every machine.
 * No state. */
#ifndef EXO_CPU_VECTOR_MATH_H
#define EXO_CPU_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

/* e^x = 2^n e^r, with n = round(x / ln 2), and e^r by its series. 0 for x below -87.3. An x above
 * 88 counts as 88: the result is about 1.65e38, not infinity. */
static inline float
exo_vexp(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    float in = x > 88.0f ? 88.0f : x;
    float shifted = in * 1.44269504088896341f + round;
    float n = shifted - round;
    float r = in - n * 0.693145751953125f; /* ln 2 in two parts; the first ends with 9 zero bits */
    r = r - n * 1.42860682030941723e-6f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    float y = p * scale;
    return x < -87.3f ? 0.0f : y;
}

/* 1 / (1 + e^-x) */
static inline float
exo_vsigmoid(float x)
{
    return 1.0f / (1.0f + exo_vexp(-x));
}

/* Below 0.625 a polynomial of x^2, fitted to a relative error of 5e-9. */
static inline float
exo_vtanh(float x)
{
    float a = x < 0.0f ? -x : x, z = x * x;
    float p = -0.00570499618f;
    p = p * z + 0.0206390955f;
    p = p * z - 0.0537397191f;
    p = p * z + 0.133314416f;
    p = p * z - 0.333332807f;
    float near = x * (1.0f + z * p);
    float far = 1.0f - 2.0f / (1.0f + exo_vexp(2.0f * a));
    far = x < 0.0f ? -far : far;
    return a < 0.625f ? near : far;
}

/* Phi(x), the distribution function of the normal distribution. For x < 0 it is e^(-x^2/2) times a
 * polynomial of 1 / (1 + 0.23 |x|), fitted to a relative error of 4e-8. */
static inline float
exo_vnormal(float x)
{
    float a = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.23f * a);
    float p = -0.07673317f;
    p = p * t + 0.28144965f;
    p = p * t - 0.25826755f;
    p = p * t + 0.27687549f;
    p = p * t - 0.01431299f;
    p = p * t + 0.11072058f;
    p = p * t + 0.08829574f;
    p = p * t + 0.09197223f;
    float below = exo_vexp(-0.5f * a * a) * p * t;
    return x < 0.0f ? below : 1.0f - below;
}

#endif
