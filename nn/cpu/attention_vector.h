/* Vectors for the kernels of attention: 16 lanes with AVX-512, 8 with AVX, else 4. All functions
 * are inlined. No state.
 *
 * Vectors in memory are aligned to their size, except for the functions that say otherwise. */
#ifndef EXO_CPU_ATTENTION_VECTOR_H
#define EXO_CPU_ATTENTION_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bf16.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

/* 1: the processor multiplies pairs of bf16. 0: bf16 is computed as fp32. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512BF16__)
#define PAIRS_RUN 1
#else
#define PAIRS_RUN 0
#endif

#define INLINE static inline __attribute__((always_inline))

/* Makes the compiler keep `v` in a register, instead of reading it from memory at each use. */
#if defined(__x86_64__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define IN_REGISTER(v) ((void)0)
#endif

typedef float vec __attribute__((vector_size(LANES * 4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * 4), may_alias));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4), may_alias));

INLINE vec
vec_load(const float *at)
{
    return *(const vec *)at;
}

INLINE void
vec_store(float *at, vec v)
{
    *(vec *)at = v;
}

/* Loads and stores memory that is aligned to a float only. */
INLINE vec
vec_load_any(const float *at)
{
    vec v;
    memcpy(&v, at, sizeof v);
    return v;
}

INLINE void
vec_store_any(float *at, vec v)
{
    memcpy(at, &v, sizeof v);
}

INLINE vec
vec_splat(float x)
{
#if LANES == 16
    return _mm512_set1_ps(x);
#elif LANES == 8
    return _mm256_set1_ps(x);
#else
    return (vec){x, x, x, x};
#endif
}

/* The vector 0, 1, 2, ... */
INLINE ivec
vec_lanes(void)
{
#if LANES == 16
    return (ivec){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif LANES == 8
    return (ivec){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (ivec){0, 1, 2, 3};
#endif
}

/* a * b + c, rounded once if the processor has fused multiply-add. */
INLINE vec
vec_multiply_add(vec a, vec b, vec c)
{
#if LANES == 16
    return _mm512_fmadd_ps(a, b, c);
#elif LANES == 8 && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* `yes` where the mask is all ones, `no` where it is 0. */
INLINE vec
vec_select(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

INLINE vec
vec_max(vec a, vec b)
{
#if LANES == 16
    return _mm512_max_ps(a, b);
#elif LANES == 8
    return _mm256_max_ps(a, b);
#else
    return vec_select(a > b, a, b);
#endif
}

/* 2^x for x up to 127, with a relative error below 2e-7; exact for whole x, and 0 for results
 * below about 2^-126. A NaN stays NaN. The polynomial is of degree 5, is 1 at 0, and has the least
 * possible maximum of the relative error on [-1/2, 1/2]. */
INLINE vec
vec_exp2(vec x)
{
#if LANES == 16
    vec whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    /* 1.5 * 2^23: a number added to it loses its fraction. */
    const vec magic = vec_splat(12582912.0f);
    vec shifted = x + magic, whole = shifted - magic;
#endif
    vec f = x - whole;
    vec y = vec_splat(1.326472731307149e-3f);
    y = vec_multiply_add(y, f, vec_splat(9.671512991189957e-3f));
    y = vec_multiply_add(y, f, vec_splat(5.550733581185341e-2f));
    y = vec_multiply_add(y, f, vec_splat(2.4022242426872253e-1f));
    y = vec_multiply_add(y, f, vec_splat(6.931470036506653e-1f));
    y = vec_multiply_add(y, f, vec_splat(1.0f));
#if LANES == 16
    return _mm512_scalef_ps(y, whole);
#else
    /* Wraps around for negative x. The result for an x that is too small is replaced by 0 below. */
    uvec exponent = (uvec)shifted - (uvec)magic;
    uvec scaled = (uvec)y + (exponent << 23);
    return (vec)((ivec)scaled & ~(ivec)(x < vec_splat(-126.0f)));
#endif
}

INLINE float
vec_sum(vec v)
{
#if LANES == 16
    return _mm512_reduce_add_ps(v);
#else
    float sum = 0.0f;
    for (size_t i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
#endif
}

INLINE vec
vec_load_bf16(const uint16_t *at)
{
#if LANES == 16
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
    return (vec)_mm512_slli_epi32(bits, 16);
#else
    vec v;
    for (size_t i = 0; i < LANES; i++)
        v[i] = exo_from_bf16(at[i]);
    return v;
#endif
}

/* Stores the lanes as bf16, half a vector. */
INLINE void
vec_store_bf16(uint16_t *at, vec v)
{
#if PAIRS_RUN
    _mm256_storeu_si256((__m256i *)(void *)at, (__m256i)_mm512_cvtneps_pbh(v));
#else
    for (size_t i = 0; i < LANES; i++)
        at[i] = exo_to_bf16(v[i]);
#endif
}

#if PAIRS_RUN
/* Pairs (a, b) in bf16, with a in the lower half. */
INLINE vec
vec_pair(vec a, vec b)
{
    static const uint16_t order[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    return (vec)_mm512_permutexvar_epi16(_mm512_load_si512(order), both);
}
#endif

#endif
