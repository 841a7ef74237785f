/* Clipping by the global norm: PyTorch's factor, PyTorch's results for infinities and NaN, and the
 * same bits with any number of threads. The tests have no shared state. Read next:
 * exogym/optim.h. */
#include <criterion/criterion.h>

#include <math.h>

#include <exogym/memory.h>
#include <exogym/optim.h>
#include <exogym/tensor.h>

/* Clips in one call. In two calls, with the squares of two parts, it is the same. */
static float
clip(float *grads, size_t count, float max_norm)
{
    float norm = -1, again = -1;
    double squares[2] = {-1, -1};
    float *copy = exo_alloc_aligned((count + 1) * sizeof *copy);
    cr_assert_not_null(copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = grads[i];
    const exo_array array = exo_host_array(EXO_F32, copy, count);
    cr_expect_eq(exo_clip_grad_norm(exo_host_array(EXO_F32, grads, count), max_norm, &norm, NULL),
                 EXO_OK);
    exo_clip_count(exo_host_array(EXO_U8, &squares[0], sizeof *squares), array, false);
    exo_clip_count(exo_host_array(EXO_U8, &squares[1], sizeof *squares),
                   exo_array_part(array, 0, 0), false);
    exo_clip_scale(array, max_norm, exo_host_array(EXO_U8, squares, sizeof squares),
                   exo_host_array(EXO_F32, &again, 1));
    cr_expect_arr_eq(&again, &norm, sizeof norm);
    if (count > 0)
        cr_expect_arr_eq(copy, grads, count * sizeof *copy);
    exo_free(copy);
    return norm;
}

Test(clip, sums_of_arrays_are_added)
{
    float a[2] = {3, 0}, b[2] = {0, 4}, norm = 0;
    double square = 100;
    const exo_array at = exo_host_array(EXO_U8, &square, sizeof square),
                    second = exo_host_array(EXO_F32, b, 2);
    exo_clip_count(at, exo_host_array(EXO_F32, a, 2), false);
    exo_clip_count(at, second, true);
    exo_clip_scale(second, 1, at, exo_host_array(EXO_F32, &norm, 1));
    cr_expect_eq(square, 25.0);
    cr_expect_eq(norm, 5.0f);
    cr_expect_float_eq(b[1], 0.8f, 1e-6f);
}

Test(clip, sums_are_added_in_their_order)
{
    double squares[3] = {1, 0x1p53, 1}, sum = -1, last_first[3] = {1, 1, 0x1p53};
    const exo_array at = exo_host_array(EXO_U8, &sum, sizeof sum);
    exo_clip_add_up(at, exo_host_array(EXO_U8, squares, sizeof squares));
    cr_expect_eq(sum, 0x1p53);
    exo_clip_add_up(at, exo_host_array(EXO_U8, last_first, sizeof last_first));
    cr_expect_eq(sum, 0x1p53 + 2);
}

Test(clip, scales_down_to_the_norm)
{
    float grads[3] = {3, 0, 4};
    cr_expect_eq(clip(grads, 3, 1.0f), 5.0f);
    cr_expect_float_eq(grads[0], 0.6f, 1e-6f);
    cr_expect_float_eq(grads[2], 0.8f, 1e-6f);
}

Test(clip, leaves_a_small_gradient_alone)
{
    float grads[2] = {3, 4};
    cr_expect_eq(clip(grads, 2, 5.1f), 5.0f);
    cr_expect_eq(grads[0], 3.0f);
    cr_expect_eq(grads[1], 4.0f);
}

Test(clip, what_is_not_finite_spreads_as_in_pytorch)
{
    float grads[2] = {NAN, 4};
    cr_expect(isnan(clip(grads, 2, 1.0f)));
    cr_expect(isnan(grads[0]) && isnan(grads[1]));

    float infinite[2] = {INFINITY, 4};
    cr_expect(isinf(clip(infinite, 2, 1.0f)));
    cr_expect(isnan(infinite[0]));
    cr_expect_eq(infinite[1], 0.0f);
}

Test(clip, nothing_has_norm_zero)
{
    cr_expect_eq(clip(NULL, 0, 1.0f), 0.0f);
}

Test(clip, large_buffers_have_their_norm_and_their_bits_with_any_threads)
{
    enum {
        N = 2000003 /* more than the least length of a piece times the number of pieces */
    };
    float *a = exo_alloc_aligned(N * sizeof *a), *b = exo_alloc_aligned(N * sizeof *b);
    double squares = 0;
    for (size_t i = 0; i < N; i++) {
        a[i] = b[i] = (float)((i * 2654435761u) % 1000) / 1000.0f - 0.5f;
        squares += (double)a[i] * (double)a[i];
    }
    exo_set_num_threads(1);
    float one = clip(a, N, 0.25f);
    exo_set_num_threads(3);
    float three = clip(b, N, 0.25f);
    cr_expect_eq(one, three);
    cr_expect_arr_eq(a, b, N * sizeof *a);
    cr_expect_float_eq((double)one, sqrt(squares), 1e-6 * sqrt(squares));
    cr_expect_float_eq(clip(a, N, 1.0f), 0.25f, 1e-6f);
    exo_free(a);
    exo_free(b);
}
