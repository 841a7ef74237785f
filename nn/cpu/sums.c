/* Sums of several arrays in a fixed order, written to several arrays: see kernels.h. A vector of
 * elements is summed in registers and then written to all outputs, so that each array is read once
 * and written once. No state. */
#include <string.h>

#include "base/vector_width.h"
#include "nn/cpu/kernels.h"

enum {
    GROUP = 4
};

#define LOAD(array, v)  (*(const vector *)(const void *)((array) + at + (v)*EXO_VECTOR_BYTES))
#define STORE(array, v) (*(vector *)(void *)((array) + at + (v)*EXO_VECTOR_BYTES))

/* NAME sums all whole groups of vectors; gives their bytes. NAME##_of is compiled for the usual
 * numbers of arrays, so that their addresses stay in registers. */
#define SUMS(NAME, TYPE)                                                                           \
    static inline __attribute__((always_inline))                                                   \
    size_t NAME##_of(const char *const *x, size_t num_x, char *const *y, size_t num_y,             \
                     TYPE divisor, size_t bytes)                                                   \
    {                                                                                              \
        typedef TYPE vector                                                                        \
            __attribute__((vector_size(EXO_VECTOR_BYTES), aligned(sizeof(TYPE)), may_alias));      \
        size_t at = 0;                                                                             \
        for (; bytes - at >= GROUP * EXO_VECTOR_BYTES; at += GROUP * EXO_VECTOR_BYTES) {           \
            vector a = LOAD(x[0], 0), b = LOAD(x[0], 1), c = LOAD(x[0], 2), d = LOAD(x[0], 3);     \
            for (size_t i = 1; i < num_x; i++) {                                                   \
                a += LOAD(x[i], 0);                                                                \
                b += LOAD(x[i], 1);                                                                \
                c += LOAD(x[i], 2);                                                                \
                d += LOAD(x[i], 3);                                                                \
            }                                                                                      \
            if (divisor != 0) {                                                                    \
                a /= divisor;                                                                      \
                b /= divisor;                                                                      \
                c /= divisor;                                                                      \
                d /= divisor;                                                                      \
            }                                                                                      \
            for (size_t i = 0; i < num_y; i++) {                                                   \
                STORE(y[i], 0) = a;                                                                \
                STORE(y[i], 1) = b;                                                                \
                STORE(y[i], 2) = c;                                                                \
                STORE(y[i], 3) = d;                                                                \
            }                                                                                      \
        }                                                                                          \
        return at;                                                                                 \
    }                                                                                              \
    static size_t NAME(const char *const *x, size_t num_x, char *const *y, size_t num_y,           \
                       TYPE divisor, size_t bytes)                                                 \
    {                                                                                              \
        const char *from[2] = {x[0], x[num_x > 1]};                                                \
        char *to[2] = {y[0], y[num_y > 1]};                                                        \
        if (num_x == 2 && num_y == 2)                                                              \
            return NAME##_of(from, 2, to, 2, divisor, bytes);                                      \
        if (num_x == 4 && num_y == 4)                                                              \
            return NAME##_of((const char *const[]){x[0], x[1], x[2], x[3]}, 4,                     \
                             (char *const[]){y[0], y[1], y[2], y[3]}, 4, divisor, bytes);          \
        return NAME##_of(x, num_x, y, num_y, divisor, bytes);                                      \
    }

SUMS(sum_floats, float)
SUMS(sum_words, uint32_t)
SUMS(sum_bytes, uint8_t)
SUMS(sum_longs, uint64_t)

void
exo_sum_fp32(const float *const *x, size_t num_x, float *const *y, size_t num_y, float divisor,
             size_t count)
{
    size_t at = sum_floats((const char *const *)x, num_x, (char *const *)y, num_y, divisor,
                           count * sizeof(float)) /
                sizeof(float);
    for (; at < count; at++) {
        float sum = x[0][at];
        for (size_t i = 1; i < num_x; i++)
            sum += x[i][at];
        if (divisor != 0)
            sum /= divisor;
        for (size_t i = 0; i < num_y; i++)
            y[i][at] = sum;
    }
}

void
exo_sum_integers(size_t size, const void *const *x, size_t num_x, void *const *y, size_t num_y,
                 size_t count)
{
    const char *const *from = (const char *const *)x;
    char *const *to = (char *const *)y;
    size_t bytes = count * size;
    size_t at = size == 1   ? sum_bytes(from, num_x, to, num_y, 0, bytes)
                : size == 4 ? sum_words(from, num_x, to, num_y, 0, bytes)
                            : sum_longs(from, num_x, to, num_y, 0, bytes);
    for (; at < bytes; at += size) {
        uint64_t sum = 0; /* modulo 2^64, and so modulo every smaller power */
        for (size_t i = 0; i < num_x; i++) {
            uint64_t next = 0;
            memcpy(&next, from[i] + at, size);
            sum += next;
        }
        for (size_t i = 0; i < num_y; i++)
            memcpy(to[i] + at, &sum, size);
    }
}
