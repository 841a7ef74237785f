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
