/* The kernels of exogym/compress.h as their definitions read. No state. */
#include "nn/ref/ref_kernels.h"

#include <math.h>

#include <stdint.h>

#define KERNEL(NAME)                                                                               \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)

/* Gram-Schmidt, with each projection twice: the second one removes the rounding of the first. */
KERNEL(orthonormalize)
{
    double *work = k->scratch;
    (void)device;
    (void)err;
    for (size_t v = 0; v < k->vectors; v++) {
        double *x = work + v * k->length, squares = 0;
        for (size_t i = 0; i < k->length; i++)
            x[i] = (double)k->x[v * k->vector_step + i * k->element_step];
        for (size_t j = 0; j < 2 * v; j++) {
            const double *other = work + j / 2 * k->length;
            double product = 0;
            for (size_t i = 0; i < k->length; i++)
                product += x[i] * other[i];
            for (size_t i = 0; i < k->length; i++)
                x[i] -= product * other[i];
        }
        for (size_t i = 0; i < k->length; i++)
            squares += x[i] * x[i];
        for (size_t i = 0; i < k->length; i++) {
            x[i] /= sqrt(squares);
            k->x[v * k->vector_step + i * k->element_step] = (float)x[i];
        }
    }
    return EXO_OK;
}

/* --- int8 ------------------------------------------------------------------------------------- */

KERNEL(largest)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float magnitude = isnan(k->x[i]) ? INFINITY : fabsf(k->x[i]);
        float *y = &k->y[i / k->chunk];
        *y = i % k->chunk == 0 || magnitude > *y ? magnitude : *y;
    }
    return EXO_OK;
}

static float
scale_of(const float *scales, size_t rows, size_t chunks, size_t chunk)
{
    float scale = 0;
    for (size_t r = 0; r < rows; r++)
        scale = fmaxf(scale, scales[r * chunks + chunk]);
    return scale;
}

KERNEL(quantize)
{
    const size_t chunks = (k->count + k->chunk - 1) / k->chunk;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float scale = scale_of(k->scales, k->rows, chunks, i / k->chunk);
        k->y[i] = (int8_t)(scale > 0 && isfinite(scale) ? rintf(k->x[i] / scale * 127.0f) : 0.0f);
    }
    return EXO_OK;
}

KERNEL(dequantize)
{
    const size_t chunks = (k->count + k->chunk - 1) / k->chunk;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        int32_t sum = 0;
        for (size_t s = 0; s < k->senders; s++)
            sum += k->x[s * k->count + i];
        k->y[i] = (float)sum * scale_of(k->scales, k->rows, chunks, i / k->chunk) / k->divisor;
    }
    return EXO_OK;
}

/* --- DCT -------------------------------------------------------------------------------------- */

/* Element n of coefficient f's vector, of `length`. */
static double
cosine(size_t f, size_t n, size_t length)
{
    const double pi = 3.14159265358979323846, double_length = (double)length;
    return cos(pi * (double)(2 * n + 1) * (double)f / (2 * double_length)) *
           sqrt((f ? 2 : 1) / double_length);
}

/* The place in the matrix of element (i, j) of chunk (row, col); and among the coefficients. */
static size_t
place(const exo_dct_args *k, size_t row, size_t col, size_t i, size_t j)
{
    return (row * k->chunk_rows + i) * k->cols + col * k->chunk_cols + j;
}

static size_t
place_of_coefficient(const exo_dct_args *k, size_t row, size_t col, size_t i, size_t j)
{
    return ((row * (k->cols / k->chunk_cols) + col) * k->chunk_rows + i) * k->chunk_cols + j;
}

KERNEL(dct)
{
    const size_t h = k->chunk_rows, w = k->chunk_cols, n = h * w, chunks_a_row = k->cols / w;
    (void)device;
    (void)err;
    for (size_t out = 0; out < k->rows * k->cols; out++) {
        const size_t chunk = out / n, i = out % n / w, j = out % w, row = chunk / chunks_a_row,
                     col = chunk % chunks_a_row;
        double sum = 0;
        for (size_t in = 0; in < n; in++) {
            const size_t a = in / w, b = in % w;
            sum += k->inverse
                       ? (double)k->x[place_of_coefficient(k, row, col, a, b)] * cosine(a, i, h) *
                             cosine(b, j, w)
                       : (double)k->x[place(k, row, col, a, b)] * cosine(i, a, h) * cosine(j, b, w);
        }
        k->y[k->inverse ? place(k, row, col, i, j) : place_of_coefficient(k, row, col, i, j)] =
            (float)sum;
    }
    return EXO_OK;
}

/* Whether a is taken before b, which comes later. */
static bool
first_taken(float a, float b)
{
    return isnan(a) || (!isnan(b) && fabsf(a) >= fabsf(b));
}

KERNEL(top_k)
{
    (void)device;
    (void)err;
    for (size_t c = 0; c < k->chunks; c++) {
        const float *x = k->x + c * k->size;
        size_t taken = 0;
        for (size_t i = 0; i < k->size; i++) {
            size_t before = 0; /* how many are taken before i */
            for (size_t j = 0; j < k->size; j++)
                before += j < i ? first_taken(x[j], x[i]) : j > i && !first_taken(x[i], x[j]);
            if (before >= k->k)
                continue;
            k->values[c * k->k + taken] = x[i];
            k->index[c * k->k + taken++] = (uint16_t)i;
        }
    }
    return EXO_OK;
}

KERNEL(sent_mean)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->chunks * k->size; i++) {
        const size_t chunk = i / k->size;
        size_t senders = 0;
        float sum = 0;
        for (size_t s = 0; s < k->senders; s++) {
            const float *values = k->values + s * k->step / sizeof *values + chunk * k->k;
            const uint16_t *index = k->index + s * k->step / sizeof *index + chunk * k->k;
            for (size_t j = 0; j < k->k; j++)
                if (index[j] == i % k->size) {
                    sum += values[j];
                    senders++;
                }
        }
        k->y[i] = senders ? sum / (float)senders : 0;
    }
    return EXO_OK;
}

/* --- Signs ------------------------------------------------------------------------------------ */

KERNEL(sign_pack)
{
    double squares = 0;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++)
        squares += (double)k->x[i] * (double)k->x[i];
    for (size_t i = 0; i < k->chunks * k->chunk; i++) {
        uint8_t *byte = k->bits + i / k->chunk * k->step + i % k->chunk / 8;
        const int plus = i < k->count && !(k->x[i] < 0);
        *byte = (uint8_t)((i % 8 ? *byte : 0) | plus << i % 8);
    }
    for (size_t c = 0; c < k->chunks; c++)
        k->scale[c * k->step / sizeof *k->scale] =
            k->count ? (float)sqrt(squares / (double)k->count) : 0;
    return EXO_OK;
}

KERNEL(sign_mean)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float sum = 0;
        for (size_t s = 0; s < k->senders; s++) {
            const size_t at = s * k->sender_step + i / k->chunk * k->chunk_step;
            const float scale = k->scale[at / sizeof scale];
            sum += k->bits[at + i % k->chunk / 8] >> i % 8 & 1 ? scale : -scale;
        }
        k->y[i] = sum / (float)k->senders;
    }
    return EXO_OK;
}
