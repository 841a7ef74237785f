/* Rotary positions, quantized rows and sums over logits: see decode.h. The compiler vectorizes
 * the plain loops. Sums have partial sums, which are added in their order. No state. */
#include "nn/cpu/decode.h"

#include <math.h>

#include "nn/cpu/decode_vector.h"

enum {
    SUMS = 32 /* partial sums of a row */
};

/* The sum of x - shift, or of its squares. Element i is added to partial sum i % SUMS. */
static double
sum_of(const float *x, size_t count, float shift, bool squares)
{
    float part[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) {
            float d = x[i + k] - shift;
            part[k] += squares ? d * d : d;
        }
    for (size_t k = 0; i + k < count; k++) {
        float d = x[i + k] - shift;
        part[k] += squares ? d * d : d;
    }
    double sum = 0;
    for (size_t k = 0; k < SUMS; k++)
        sum += (double)part[k];
    return sum;
}

void
exo_decode_rotate(float *head, size_t width, const float *turns)
{
    float *restrict first = head, *restrict second = head + width / 2;
    const float *restrict cosine = turns, *restrict sine = turns + width / 2;
    for (size_t i = 0; i < width / 2; i++) {
        float a = first[i], b = second[i];
        first[i] = a * cosine[i] - b * sine[i];
        second[i] = b * cosine[i] + a * sine[i];
    }
}

/* --- Quantized rows --------------------------------------------------------------------------- */

static void
quantize_group(const float *restrict x, size_t count, int16_t *restrict q, float *scale, float *sum)
{
    float largest = 0, poison = 0;
    for (size_t i = 0; i < count; i++) {
        float size = fabsf(x[i]);
        largest = size > largest ? size : largest;
    }
    for (size_t i = 0; i < count; i++)
        poison += x[i] - x[i]; /* 0, or NaN */
    float inverse = largest > 0 ? 32767 / largest : 0;
    bool good = poison == 0 && inverse <= 3.402823466e38f;
    inverse = good ? inverse : 0;
    int32_t total = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t level = good ? (int32_t)rintf(x[i] * inverse) : 0;
        q[i] = (int16_t)level;
        total += level;
    }
    *scale = poison != 0 ? NAN : good ? largest / 32767 : 0;
    *sum = *scale * (float)total;
}

void
exo_decode_quantize_row(const exo_decode_rows *rows, size_t row, size_t inputs)
{
    const float *x = rows->x + row * rows->stride;
    int16_t *q = rows->q + row * rows->stride;
    float *scales = rows->scales + row * rows->groups, *sums = rows->sums + row * rows->groups;
    for (size_t first = 0, g = 0; first < inputs; first += EXO_DECODE_GROUP, g++) {
        size_t count = inputs - first < EXO_DECODE_GROUP ? inputs - first : EXO_DECODE_GROUP;
        quantize_group(x + first, count, q + first, &scales[g], &sums[g]);
    }
    if (inputs % 2) /* the second half of the last pair */
        q[inputs] = 0;
}

/* --- Logits ----------------------------------------------------------------------------------- */

float
exo_decode_max(const float *x, size_t count, size_t *place)
{
    float best[SUMS], poison[SUMS] = {0};
    for (size_t k = 0; k < SUMS; k++)
        best[k] = -INFINITY;
    size_t i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) {
            best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
            poison[k] = x[i + k] == x[i + k] ? poison[k] : NAN;
        }
    for (size_t k = 0; i + k < count; k++) {
        best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
        poison[k] = x[i + k] == x[i + k] ? poison[k] : NAN;
    }
    float largest = -INFINITY, bad = 0;
    for (size_t k = 0; k < SUMS; k++) {
        largest = best[k] > largest ? best[k] : largest;
        bad += poison[k];
    }
    if (place) {
        *place = 0;
        while (*place + 1 < count && x[*place] != largest)
            ++*place;
    }
    return bad != 0 ? NAN : largest;
}

double
exo_decode_block_sum(const float *p, size_t count)
{
    return sum_of(p, count, 0, false);
}

double
exo_decode_exp_sum(const float *x, size_t count, float shift, float *p)
{
    float block[EXO_DECODE_SUM_BLOCK];
    double sum = 0;
    for (size_t first = 0; first < count; first += EXO_DECODE_SUM_BLOCK) {
        size_t length = count - first < EXO_DECODE_SUM_BLOCK ? count - first : EXO_DECODE_SUM_BLOCK;
        float *out = p ? p + first : block;
        IN_PLACE
        for (size_t i = 0; i < length; i++)
            out[i] = decode_exp(x[first + i] - shift);
        sum += exo_decode_block_sum(out, length);
    }
    return sum;
}

size_t
exo_decode_at_least(const float *x, size_t count, float floor, uint32_t *places, size_t room)
{
    size_t found = 0;
    for (size_t first = 0; first < count; first += SUMS) {
        size_t length = count - first < SUMS ? count - first : SUMS;
        unsigned any = 0;
        for (size_t i = 0; i < length; i++)
            any |= x[first + i] >= floor;
        for (size_t i = 0; any && i < length; i++)
            if (x[first + i] >= floor) {
                if (found < room)
                    places[found] = (uint32_t)(first + i);
                found++;
            }
    }
    return found;
}
