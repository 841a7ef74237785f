/* Layers of a few dozen units: see small_layer.h. No state. */
#include "nn/cpu/small_layer.h"

#include "base/vector_width.h"
#include "nn/cpu/vector_math.h"

enum {
    LANES = EXO_SMALL_STEP,
    WIDTH = EXO_VECTOR_BYTES / 4
};

typedef float vector
    __attribute__((vector_size(EXO_VECTOR_BYTES), aligned(sizeof(float)), may_alias));

typedef float four __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

#define LOAD(array, v)  (*(const vector *)(const void *)((array) + (v)*WIDTH))
#define LOAD4(array, v) (*(const four *)(const void *)((array) + (v)*4))
#define STORE(array, v) (*(vector *)(void *)((array) + (v)*WIDTH))

static void
squash(float *y, size_t units)
{
    for (size_t i = 0; i < units; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            y[i + k] = exo_vtanh(y[i + k]);
}

void
exo_small_forward(float *restrict y, const float *restrict bias, const float *restrict w,
                  const float *restrict x, size_t inputs, size_t units)
{
    size_t at = 0;
    for (; at + 4 * WIDTH <= units; at += 4 * WIDTH) { /* as many as stay in registers */
        vector a = LOAD(bias + at, 0), b = LOAD(bias + at, 1), c = LOAD(bias + at, 2),
               d = LOAD(bias + at, 3);
        for (size_t i = 0; i < inputs; i++) {
            const float *row = w + i * units + at;
            a += x[i] * LOAD(row, 0);
            b += x[i] * LOAD(row, 1);
            c += x[i] * LOAD(row, 2);
            d += x[i] * LOAD(row, 3);
        }
        STORE(y + at, 0) = a;
        STORE(y + at, 1) = b;
        STORE(y + at, 2) = c;
        STORE(y + at, 3) = d;
    }
    for (; at < units; at += WIDTH) {
        vector a = LOAD(bias + at, 0);
        for (size_t i = 0; i < inputs; i++)
            a += x[i] * LOAD(w + i * units + at, 0);
        STORE(y + at, 0) = a;
    }
    squash(y, units);
}

void
exo_small_add(float *restrict y, const float *restrict w, float x, size_t units)
{
    for (size_t i = 0; i < units; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            y[i + k] += x * w[i + k];
}

void
exo_small_backward(float *restrict d, float *restrict d_bias, float *restrict d_w,
                   const float *restrict y, const float *restrict x, size_t inputs, size_t units)
{
    for (size_t k = 0; k < units; k++) {
        d[k] *= 1 - y[k] * y[k];
        d_bias[k] += d[k];
    }
    for (size_t i = 0; i < inputs; i++)
        exo_small_add(d_w + i * units, d, x[i], units);
}

/* Adds 16 lanes in pairs, which are 8, 4, 2 and 1 apart. */
static inline float
add_lanes(const float *sums)
{
    four a = LOAD4(sums, 0) + LOAD4(sums, 2), b = LOAD4(sums, 1) + LOAD4(sums, 3);
    a += b;
    return (a[0] + a[2]) + (a[1] + a[3]);
}

static inline float
product(const float *restrict a, const float *restrict b, size_t units)
{
    float sums[LANES] = {0};
    for (size_t i = 0; i < units; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sums[k] += a[i + k] * b[i + k];
    return add_lanes(sums);
}

float
exo_small_product(const float *restrict a, const float *restrict b, size_t units)
{
    return product(a, b, units);
}

void
exo_small_backward_input(float *restrict d_x, const float *restrict w, const float *restrict d,
                         size_t inputs, size_t units)
{
    for (size_t i = 0; i < inputs; i++)
        d_x[i] = product(w + i * units, d, units);
}
