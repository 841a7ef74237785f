/* Vectorized activations: see activations.h. Each loop is written once, and inlined for each
 * activation and type. No state. Read next: vector_math.h. */
#include "nn/cpu/activations.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/typed.h"
#include "nn/cpu/vector_math.h"

#define ROOT_2_PI 0.79788456080286536f /* sqrt(2 / pi) */
#define CUBIC     0.044715f

static inline float
linear(float x)
{
    return x;
}

static inline float
linear_slope(float x)
{
    (void)x;
    return 1.0f;
}

static inline float
relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}

static inline float
relu_slope(float x)
{
    return x > 0.0f ? 1.0f : 0.0f;
}

static inline float
gelu(float x)
{
    return x * exo_vnormal(x);
}

static inline float
gelu_slope(float x)
{
    return exo_vnormal(x) + x * 0.39894228040143268f * exo_vexp(-0.5f * x * x);
}

/* 0.5 (1 + tanh(u)) = 1 / (1 + e^(-2 u)) */
static inline float
gelu_tanh(float x)
{
    return x * exo_vsigmoid(2.0f * ROOT_2_PI * (x + CUBIC * x * x * x));
}

static inline float
gelu_tanh_slope(float x)
{
    float s = exo_vsigmoid(2.0f * ROOT_2_PI * (x + CUBIC * x * x * x));
    return s + x * s * (1.0f - s) * 2.0f * ROOT_2_PI * (1.0f + 3.0f * CUBIC * x * x);
}

static inline float
silu(float x)
{
    return x * exo_vsigmoid(x);
}

static inline float
silu_slope(float x)
{
    float s = exo_vsigmoid(x);
    return s + x * s * (1.0f - s);
}

/* --- Loops: inlined with a constant function and type, which makes them vector loops ---------- */

EXO_INLINED const void *
skip(exo_dtype type, const void *x, size_t count)
{
    return (const char *)x + count * (type == EXO_BF16 ? 2 : 4);
}

EXO_INLINED void
forward(float (*value)(float), exo_dtype type, const void *x, void *y, size_t count)
{
    EXO_IN_PLACE
    for (size_t i = 0; i < count; i++)
        exo_store(type, y, i, value(exo_load(type, x, i)));
}

EXO_INLINED void
backward(float (*slope)(float), exo_dtype type, const void *x, const void *dy, void *dx,
         size_t count)
{
    EXO_IN_PLACE
    for (size_t i = 0; i < count; i++)
        exo_store(type, dx, i, exo_load(type, dy, i) * slope(exo_load(type, x, i)));
}

EXO_INLINED void
gate_forward(float (*value)(float), exo_dtype type, const void *x, void *y, size_t rows,
             size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        const void *gate = skip(type, x, 2 * r * width), *up = skip(type, gate, width);
        void *out = (void *)(uintptr_t)skip(type, y, r * width);
        EXO_IN_PLACE
        for (size_t i = 0; i < width; i++)
            exo_store(type, out, i, value(exo_load(type, gate, i)) * exo_load(type, up, i));
    }
}

EXO_INLINED void
gate_slopes(float (*value)(float), float (*slope)(float), exo_dtype type, const void *x,
            const void *dy, void *dx, size_t rows, size_t width, bool add)
{
    for (size_t r = 0; r < rows; r++) {
        const void *gate = skip(type, x, 2 * r * width), *up = skip(type, gate, width),
                   *d = skip(type, dy, r * width);
        void *dgate = (void *)(uintptr_t)skip(type, dx, 2 * r * width),
             *dup = (void *)(uintptr_t)skip(type, dgate, width);
        if (!add) /* the old values may be NaN */
            memset(dgate, 0, 2 * width * exo_dtype_size(type));
        EXO_IN_PLACE
        for (size_t i = 0; i < width; i++) {
            float g = exo_load(type, gate, i), grad = exo_load(type, d, i);
            exo_store(type, dgate, i,
                      exo_load(type, dgate, i) + grad * exo_load(type, up, i) * slope(g));
            exo_store(type, dup, i, exo_load(type, dup, i) + grad * value(g));
        }
    }
}

/* Calls loop(value, slope) for the activation. `loop` is a macro, one of the four below. */
#define CHOOSE(loop)                                                                               \
    do {                                                                                           \
        switch (activation) {                                                                      \
        case EXO_LINEAR:                                                                           \
            loop(linear, linear_slope);                                                            \
            break;                                                                                 \
        case EXO_RELU:                                                                             \
            loop(relu, relu_slope);                                                                \
            break;                                                                                 \
        case EXO_GELU:                                                                             \
            loop(gelu, gelu_slope);                                                                \
            break;                                                                                 \
        case EXO_GELU_TANH:                                                                        \
            loop(gelu_tanh, gelu_tanh_slope);                                                      \
            break;                                                                                 \
        case EXO_SILU:                                                                             \
            loop(silu, silu_slope);                                                                \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

void
exo_activate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t count)
{
#define LOOP(value, slope)                                                                         \
    (void)slope;                                                                                   \
    if (type == EXO_BF16)                                                                          \
        forward(value, EXO_BF16, x, y, count);                                                     \
    else                                                                                           \
        forward(value, EXO_F32, x, y, count)
    CHOOSE(LOOP);
#undef LOOP
}

void
exo_activate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                      void *dx, size_t count)
{
#define LOOP(value, slope)                                                                         \
    (void)value;                                                                                   \
    if (type == EXO_BF16)                                                                          \
        backward(slope, EXO_BF16, x, dy, dx, count);                                               \
    else                                                                                           \
        backward(slope, EXO_F32, x, dy, dx, count)
    CHOOSE(LOOP);
#undef LOOP
}

void
exo_gate(exo_activation activation, exo_dtype type, const void *x, void *y, size_t rows,
         size_t width)
{
#define LOOP(value, slope)                                                                         \
    (void)slope;                                                                                   \
    if (type == EXO_BF16)                                                                          \
        gate_forward(value, EXO_BF16, x, y, rows, width);                                          \
    else                                                                                           \
        gate_forward(value, EXO_F32, x, y, rows, width)
    CHOOSE(LOOP);
#undef LOOP
}

void
exo_gate_backward(exo_activation activation, exo_dtype type, const void *x, const void *dy,
                  void *dx, size_t rows, size_t width, bool add)
{
#define LOOP(value, slope)                                                                         \
    if (type == EXO_BF16)                                                                          \
        gate_slopes(value, slope, EXO_BF16, x, dy, dx, rows, width, add);                          \
    else                                                                                           \
        gate_slopes(value, slope, EXO_F32, x, dy, dx, rows, width, add)
    CHOOSE(LOOP);
#undef LOOP
}
