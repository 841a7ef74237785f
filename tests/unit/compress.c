/* The parts of compressed exchanges: exogym/compress.h. Each test owns its arrays. unit/device
 * compares the kernels with the reference; equiv/gradients tests the strategies. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/compress.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"

/* --- Low rank --------------------------------------------------------------------------------- */

static double
product_of_columns(const float *x, size_t rows, size_t cols, size_t a, size_t b)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        sum += (double)x[i * cols + a] * (double)x[i * cols + b];
    return sum;
}

/* Columns that depend on each other, such as those of a product of zero gradients, become
 * orthonormal, too; the span of the others stays. */
Test(compress, dependent_columns_become_orthonormal)
{
    enum {
        ROWS = 7,
        RANK = 4
    };
    for (int kind = 0; kind < 4; kind++) {
        float p[ROWS * RANK], before[ROWS * RANK];
        exo_low_rank *low_rank = NULL;
        for (size_t i = 0; i < ROWS; i++)
            for (size_t k = 0; k < RANK; k++)
                p[i * RANK + k] = kind == 0   ? 0
                                  : kind == 1 ? (float)i - 2.5f
                                  : kind == 2 ? (float)(k % 2 * i) + (float)(k / 2)
                                              : (i == k && k != 1 ? -3.0f : 0.0f);
        memcpy(before, p, sizeof p);
        cr_assert_eq(exo_low_rank_new(&low_rank, exo_device_cpu(), ROWS, RANK, RANK, NULL), EXO_OK);
        exo_low_rank_orthonormalize_p(low_rank, exo_host_array(EXO_F32, p, ROWS * RANK));
        for (size_t a = 0; a < RANK; a++)
            for (size_t b = 0; b < RANK; b++)
                cr_expect_float_eq(product_of_columns(p, ROWS, RANK, a, b), a == b ? 1 : 0, 1e-6,
                                   "%d: %zu and %zu", kind, a, b);
        for (size_t i = 0; i < ROWS; i++) { /* the projection on all columns */
            double kept = 0;
            for (size_t k = 0; k < RANK; k++) {
                double along = 0;
                for (size_t j = 0; j < ROWS; j++)
                    along += (double)p[j * RANK + k] * (double)before[j * RANK];
                kept += along * (double)p[i * RANK + k];
            }
            cr_expect_float_eq(kept, (double)before[i * RANK], 1e-5, "%d: row %zu", kind, i);
        }
        exo_low_rank_free(&low_rank);
    }
}

Test(compress, a_nan_is_not_lost)
{
    float q[8] = {1, 2, 3, 4, NAN, 6, 7, 8};
    exo_low_rank *low_rank = NULL;
    cr_assert_eq(exo_low_rank_new(&low_rank, exo_device_cpu(), 3, 4, 2, NULL), EXO_OK);
    exo_low_rank_orthonormalize_q(low_rank, exo_host_array(EXO_F32, q, 8));
    for (size_t i = 0; i < 8; i++)
        cr_expect(i < 4 ? isfinite(q[i]) : isnan(q[i]), "%zu", i);
    exo_low_rank_free(&low_rank);
}

Test(compress, each_failed_allocation_is_an_error_and_leaks_nothing)
{
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_err err = {0};
        exo_low_rank *low_rank = NULL;
        exo_memory_fail_at(n);
        st = exo_low_rank_new(&low_rank, exo_device_cpu(), 5, 4, 2, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0] && !low_rank));
        exo_low_rank_free(&low_rank);
    }
}

/* --- int8 ------------------------------------------------------------------------------------- */

/* A NaN or an infinity reaches the mean, and only in its chunk. */
Test(compress, int8_does_not_hide_what_is_not_finite)
{
    for (int kind = 0; kind < 3; kind++) {
        float x[6] = {1, kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY, -2, 3, -4, 0},
              largest[2], y[6];
        int8_t q[6];
        const exo_array scales = exo_host_array(EXO_F32, largest, 2),
                        all = exo_host_array(EXO_F32, x, 6);
        exo_vec_largest(scales, all, 3);
        exo_vec_quantize(exo_host_array(EXO_I8, q, 6), all, scales, 3);
        exo_vec_dequantize(exo_host_array(EXO_F32, y, 6), exo_host_array(EXO_I8, q, 6), scales, 3,
                           127);
        cr_expect(isinf(largest[0]) && largest[1] == 4.0f);
        for (size_t i = 0; i < 3; i++)
            cr_expect(!isfinite(y[i]));
        cr_expect(q[3] == 95 && q[4] == -127 && q[5] == 0);
        cr_expect(y[4] == -4.0f && y[5] == 0.0f);
    }
}

Test(compress, a_chunk_of_zeros_stays_zero)
{
    float x[3] = {0}, largest[1] = {7}, y[3];
    int8_t q[3] = {1, 2, 3};
    const exo_array scales = exo_host_array(EXO_F32, largest, 1);
    exo_vec_largest(scales, exo_host_array(EXO_F32, x, 3), 3);
    exo_vec_quantize(exo_host_array(EXO_I8, q, 3), exo_host_array(EXO_F32, x, 3), scales, 3);
    exo_vec_dequantize(exo_host_array(EXO_F32, y, 3), exo_host_array(EXO_I8, q, 3), scales, 3, 127);
    for (size_t i = 0; i < 3; i++)
        cr_expect(q[i] == 0 && y[i] == 0.0f);
}

/* --- DCT and the largest coefficients --------------------------------------------------------- */

Test(compress, chunks_are_the_largest_divisors)
{
    static const size_t lengths[] = {1, 7, 64, 65, 96, 97, 128, 768, 50257},
                        sides[] = {1, 7, 64, 13, 48, 1, 64, 64, 29};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        exo_dct dct = exo_dct_cut(lengths[i], 10, 64);
        cr_expect(dct.chunk_rows == sides[i] && dct.chunk_cols == 10, "%zu: %zu", lengths[i],
                  dct.chunk_rows);
    }
}

Test(compress, the_inverse_dct_restores_the_matrix)
{
    static float x[128 * 192], y[128 * 192], z[128 * 192];
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < 128 * 192; i++)
        x[i] = exo_rng_normal(&rng);
    const exo_dct dct = exo_dct_cut(128, 192, 64);
    exo_vec_dct(exo_host_array(EXO_F32, y, 128 * 192), exo_host_array(EXO_F32, x, 128 * 192), &dct);
    exo_vec_dct_inverse(exo_host_array(EXO_F32, z, 128 * 192),
                        exo_host_array(EXO_F32, y, 128 * 192), &dct);
    double squares = 0, before = 0;
    for (size_t i = 0; i < 128 * 192; i++) {
        cr_expect_float_eq(z[i], x[i], 1e-5f);
        squares += (double)y[i] * (double)y[i];
        before += (double)x[i] * (double)x[i];
    }
    cr_expect_float_eq(squares / before, 1, 1e-6, "it is orthonormal");
    double mean = 0; /* the first coefficient is the mean times the side */
    for (size_t i = 0; i < 64 * 64; i++)
        mean += (double)x[i / 64 * 192 + i % 64] / 4096;
    cr_expect_float_eq((double)y[0], mean * 64, 1e-5);
}

Test(compress, a_message_has_the_largest_coefficients)
{
    static const float x[8] = {1, -5, NAN, 2, 0, -2, 2, 0};
    _Alignas(8) char message[24];
    float y[8], values[3];
    uint16_t places[3];
    const exo_sent sent = {.messages = exo_host_array(EXO_U8, message, 20),
                           .bytes = 20,
                           .places = 12,
                           .size = 8,
                           .k = 3};
    exo_vec_top_k(&sent, exo_host_array(EXO_F32, (void *)(uintptr_t)x, 8));
    memcpy(values, message, sizeof values);
    memcpy(places, message + 12, sizeof places);
    cr_expect(places[0] == 1 && places[1] == 2 && places[2] == 3, "of equal ones the first");
    cr_expect(values[0] == -5.0f && isnan(values[1]) && values[2] == 2.0f);
    exo_vec_sent_mean(exo_host_array(EXO_F32, y, 8), &sent);
    for (size_t i = 0; i < 8; i++)
        cr_expect(i == 2 ? isnan(y[i]) : y[i] == (i == 1 || i == 3 ? x[i] : 0), "%zu", i);
}

/* A peer may send anything. */
Test(compress, places_outside_of_a_chunk_are_left_out)
{
    _Alignas(8) char messages[24] = {0};
    const float values[] = {3, 5};
    const uint16_t places[] = {1, 65535};
    float y[4];
    for (size_t s = 0; s < 2; s++) {
        memcpy(messages + 12 * s, values, sizeof values);
        memcpy(messages + 12 * s + 8, places, sizeof places);
    }
    const exo_sent sent = {.messages = exo_host_array(EXO_U8, messages, 24),
                           .bytes = 12,
                           .places = 8,
                           .size = 4,
                           .k = 2};
    exo_vec_sent_mean(exo_host_array(EXO_F32, y, 4), &sent);
    cr_expect(y[0] == 0.0f && y[1] == 3.0f && y[2] == 0.0f && y[3] == 0.0f);
}

/* --- Signs ------------------------------------------------------------------------------------ */

Test(compress, signs_have_the_root_mean_square_as_their_scale)
{
    float x[19], y[19], mean[6];
    _Alignas(8) char messages[24] = {0};
    double squares = 0;
    for (int i = 0; i < 19; i++) {
        x[i] = (i % 3 ? 1.0f : -1.0f) * (float)i;
        squares += (double)x[i] * (double)x[i];
    }
    const exo_signs signs = {
        .messages = exo_host_array(EXO_U8, messages, 24), .bytes = 8, .scale = 4, .chunk = 8};
    exo_vec_sign_pack(&signs, exo_host_array(EXO_F32, x, 19));
    exo_vec_sign_unpack(exo_host_array(EXO_F32, y, 19), &signs);
    exo_vec_sign_mean(exo_host_array(EXO_F32, mean, 6), &signs);
    for (int i = 0; i < 19; i++)
        cr_expect_float_eq((double)y[i], (x[i] < 0 ? -1 : 1) * sqrt(squares / 19), 1e-6, "%d", i);
    for (int i = 0; i < 6; i++) { /* the third message has 3 elements; more are minus */
        double third = i < 3 ? (double)y[16 + i] : -sqrt(squares / 19);
        cr_expect_float_eq((double)mean[i], ((double)y[i] + (double)y[8 + i] + third) / 3, 1e-6,
                           "%d", i);
    }
}

Test(compress, no_elements_have_the_scale_0)
{
    _Alignas(8) char messages[16];
    float y[8];
    memset(messages, 0x55, sizeof messages);
    const exo_signs signs = {
        .messages = exo_host_array(EXO_U8, messages, 16), .bytes = 8, .scale = 4, .chunk = 8};
    exo_vec_sign_pack(&signs, exo_host_array(EXO_F32, NULL, 0));
    exo_vec_sign_mean(exo_host_array(EXO_F32, y, 8), &signs);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(y[i], 0.0f);
}
