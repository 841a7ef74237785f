/* The processor's widest vectors, for the kernels of decode.h. No state. */
#ifndef EXO_CPU_DECODE_VECTOR_H
#define EXO_CPU_DECODE_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* TILE: rows of a product that share one pass over the weights, as many as fit the registers.
 * TILE_F32: the same in fp32, of half the outputs if it is more than TILE. */
#if defined(__AVX512F__)
enum {
    LANES = 16,
    TILE = 12,
    TILE_F32 = 12
};
/* MAX(a, b): b where either is NaN. */
typedef float vec __attribute__((vector_size(64)));
typedef float vec_loose __attribute__((vector_size(64), aligned(4), may_alias)); /* unaligned */
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define SPREAD(x)    ((vec)_mm512_set1_ps(x))
#define MAX(a, b)    ((vec)_mm512_max_ps((__m512)(a), (__m512)(b)))
#elif defined(__AVX2__) && defined(__FMA__)
enum {
    LANES = 8,
    TILE = 3,
    TILE_F32 = 6
};
typedef float vec __attribute__((vector_size(32)));
typedef float vec_loose __attribute__((vector_size(32), aligned(4), may_alias));
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define SPREAD(x)    ((vec)_mm256_set1_ps(x))
#define MAX(a, b)    ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#else
enum {
    LANES = 4,
    TILE = 1,
    TILE_F32 = 1
};
typedef float vec __attribute__((vector_size(16)));
typedef float vec_loose __attribute__((vector_size(16), aligned(4), may_alias));
#define FMA(a, b, c) ((a) * (b) + (c))
#define SPREAD(x)    ((vec){(x), (x), (x), (x)})
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LOAD(p)       (*(const vec_loose *)(p))
#define STORE(p, v)   (*(vec_loose *)(p) = (vec_loose)(v))

#if !defined(MAX)
ALWAYS_INLINE vec
larger(vec a, vec b)
{
    vec out;
    for (size_t i = 0; i < LANES; i++)
        out[i] = a[i] > b[i] ? a[i] : b[i];
    return out;
}
#define MAX(a, b) larger(a, b)
#endif

/* For a loop whose output may be its input, element by element: tells the compiler to vectorize
 * it. */
#if defined(__clang__)
#define IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE _Pragma("GCC ivdep")
#endif

/* exp(x), with an error of a few units in the last place; 0 for x below -87. Without branches, so
 * that loops over it vectorize. The polynomial is that of Cephes. */
static inline float
decode_exp(float x)
{
    const float bounded = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float round = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    float n = bounded * 1.44269504088896341f + round;
    uint32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= round;
    float r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    bits = (bits << 23) + (UINT32_C(127) << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : y * scale;
}

#endif
