/* Cases of kernels: see kernel_cases.h. op_cases.c has those of the tape's operations. */
#include "support/kernel_cases.h"

#include <math.h>
#include <string.h>

#include <exogym/compress.h>
#include <exogym/memory.h>
#include <exogym/optim.h>
#include <exogym/rng.h>

#include "nn/device/device_impl.h"

/* --- Arrays ----------------------------------------------------------------------------------- */

static exo_status
vec_fill(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_fill(x[0], 0.37f);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_scale(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_scale(x[0], 0.37f);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_divide(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_divide(x[0], 3.0f);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_axpy(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_axpy(x[0], 0.37f, x[1]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_add(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_add(x[0], x[1], x[2]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_add_in_place(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_add(x[0], x[0], x[1]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_add_i32(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_add(x[4], x[4], x[4]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_sub(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_sub(x[0], x[1], x[0]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_mul(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_mul(x[0], x[1], x[2]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
mul_add(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_device_run(x->device, mul, .count = x->count, .y = x[0].data, .a = x[1].data,
                   .b = x[2].data, .add = true);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_lerp(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_lerp(x[0], 0.1f, x[1]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_sign(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_sign(x[0], x[1]);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_standardize(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_standardize(x[0], x[1], 0.1, 0.3);
    return exo_device_synchronize(x->device, err);
}

/* The first half of x[0] as an array of bf16 with the same number of bytes. */
static exo_array
halves(exo_array x)
{
    exo_array half = exo_array_part(x, 0, x.count / 2);
    half.count *= 2;
    half.dtype = EXO_BF16;
    return half;
}

static exo_status
vec_cast_down(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    const exo_array half = halves(x[0]);
    exo_vec_cast(half, exo_array_part(x[1], 0, half.count));
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_cast_up(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    const exo_array half = halves(x[0]);
    exo_vec_cast(exo_array_part(x[1], 0, half.count), half);
    return exo_device_synchronize(x->device, err);
}

/* Adds the numbers of x[0] and x[1] as bf16. The sum is in the memory of x[3]. */
static exo_status
vec_add_bf16(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    const exo_array y = halves(x[3]), a = halves(x[2]), b = halves(x[4]);
    exo_vec_cast(a, exo_array_part(x[0], 0, a.count));
    exo_vec_cast(b, exo_array_part(x[1], 0, b.count));
    exo_vec_add(y, a, b);
    exo_vec_add(b, b, y);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_gather(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    size_t n = x->count / 2; /* fewer than the array has */
    exo_vec_gather(exo_array_part(x[0], 0, n), x[1], exo_array_part(x[4], 0, n));
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_scatter(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    size_t n = x->count / 2;
    exo_vec_scatter(x[0], exo_array_part(x[4], 0, n), exo_array_part(x[1], 0, n));
    return exo_device_synchronize(x->device, err);
}

/* Five rows of x[1], with both zeros, infinities, NaN and equal values in the first columns. */
static exo_status
trimmed_mean_of(const exo_array *x, size_t trim, exo_err *err)
{
    enum {
        ROWS = 5
    };
    const size_t n = x->count / ROWS;
    const exo_array rows = exo_array_part(x[1], 0, n * ROWS);
    static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, -INFINITY};
    for (size_t r = 0; r < ROWS && n > 8; r++) {
        exo_vec_fill(exo_array_part(rows, r * n, 1), odd[r]);
        exo_vec_fill(exo_array_part(rows, r * n + 1, 1), r < 3 ? -0.0f : 0.0f);
        exo_vec_fill(exo_array_part(rows, r * n + 2, 1), r < 2 ? NAN : (float)r);
        exo_vec_fill(exo_array_part(rows, r * n + 3, 1), 2.5f);
    }
    if (n > 0)
        exo_vec_trimmed_mean(exo_array_part(x[0], 0, n), rows, ROWS, trim);
    return exo_device_synchronize(x->device, err);
}

static exo_status
trimmed_mean(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return trimmed_mean_of(x, 1, err);
}

static exo_status
trimmed_mean_all(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return trimmed_mean_of(x, 0, err);
}

static exo_status
trimmed_mean_median(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return trimmed_mean_of(x, 2, err);
}

static exo_status
vec_sum(const exo_array *x, double *sum, exo_err *err)
{
    return exo_vec_sum(x[0], sum, err);
}

static exo_status
vec_sum_squares(const exo_array *x, double *sum, exo_err *err)
{
    return exo_vec_sum_squares(x[0], 0.25, sum, err);
}

static exo_status
vec_dot(const exo_array *x, double *sum, exo_err *err)
{
    return exo_vec_dot(x[0], x[1], sum, err);
}

/* Clips x[0] by the root of two sums of squares of signs, which each device computes exactly, or by
 * that of their sum. The sums are in the memory of x[4], the norm is x[2][0]. */
static exo_status
clip_to(const exo_array *x, float max_norm, bool add_up, exo_err *err)
{
    exo_array squares = x[4];
    if (x->count < 6)
        return EXO_OK;
    squares.owned = false;
    squares.dtype = EXO_U8;
    squares.count = 3 * sizeof(double);
    const exo_array first = exo_array_part(squares, 0, sizeof(double)),
                    second = exo_array_part(squares, sizeof(double), sizeof(double)),
                    sum = exo_array_part(squares, 2 * sizeof(double), sizeof(double)),
                    both = exo_array_part(squares, 0, 2 * sizeof(double));
    exo_vec_sign(x[1], x[1]);
    exo_vec_sign(x[2], x[2]);
    exo_clip_count(first, x[1], false);
    exo_clip_count(second, exo_array_part(x[2], 0, x->count / 2), false);
    exo_clip_count(second, exo_array_part(x[2], 1, x->count / 3), true);
    if (add_up)
        exo_clip_add_up(sum, both);
    exo_clip_scale(x[0], max_norm, add_up ? sum : both, exo_array_part(x[2], 0, 1));
    return exo_device_synchronize(x->device, err);
}

static exo_status
clip(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return clip_to(x, 0.3f, false, err);
}

static exo_status
clip_added_up(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return clip_to(x, 0.3f, true, err);
}

static exo_status
clip_nothing(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return clip_to(x, 1e9f, false, err);
}

/* --- Optimizers ------------------------------------------------------------------------------- */

static exo_status
adam_of(const exo_array *x, bool amsgrad, float l2, float shrink, exo_err *err)
{
    const exo_adam_args args = {
        .count = x->count,
        .param = x[0].data,
        .grad = x[1].data,
        .exp_avg = x[2].data,
        .exp_avg_sq = x[3].data,
        .max_exp_avg_sq = amsgrad ? x[4].data : NULL, /* an integer's bits are a tiny number */
        .l2 = l2,
        .beta1 = 0.9f,
        .one_minus_beta1 = 0.1f,
        .beta2 = 0.999f,
        .one_minus_beta2 = 0.001f,
        .eps = 1e-8f,
        .now = {.shrink = shrink, .sqrt_correction2 = 0.3f, .step_size = 1e-2f},
    };
    exo_status st = x->device->device_class->kernels->adam(x->device, &args, err);
    return st == EXO_OK ? exo_device_synchronize(x->device, err) : st;
}

static exo_status
adam(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return adam_of(x, false, 0.01f, 1.0f, err);
}

static exo_status
adamw_amsgrad(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return adam_of(x, true, 0.0f, 0.99f, err);
}

static exo_status
sgd_of(const exo_array *x, bool momentum, bool nesterov, exo_err *err)
{
    const exo_sgd_args args = {
        .count = x->count,
        .param = x[0].data,
        .grad = x[1].data,
        .momentum_buffer = momentum ? x[2].data : NULL,
        .l2 = 0.01f,
        .nesterov = nesterov,
        .now = {.momentum = 0.9f, .one_minus_dampening = 1.0f, .lr = 0.1f},
    };
    exo_status st = x->device->device_class->kernels->sgd(x->device, &args, err);
    return st == EXO_OK ? exo_device_synchronize(x->device, err) : st;
}

static exo_status
sgd(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return sgd_of(x, false, false, err);
}

static exo_status
sgd_momentum(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return sgd_of(x, true, false, err);
}

static exo_status
sgd_nesterov(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return sgd_of(x, true, true, err);
}

static exo_status
rmsprop_of(const exo_array *x, bool centered, exo_err *err)
{
    const exo_rmsprop_args args = {
        .count = x->count,
        .param = x[0].data,
        .grad = x[1].data,
        .square_avg = x[3].data,
        .grad_avg = centered ? x[2].data : NULL,
        .momentum_buffer = centered ? x[4].data : NULL,
        .l2 = 0.01f,
        .alpha = 0.99f,
        .one_minus_alpha = 0.01f,
        .eps = 1e-8f,
        .now = {.momentum = 0.9f, .lr = 0.01f},
    };
    exo_status st = x->device->device_class->kernels->rmsprop(x->device, &args, err);
    return st == EXO_OK ? exo_device_synchronize(x->device, err) : st;
}

static exo_status
rmsprop(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return rmsprop_of(x, false, err);
}

static exo_status
rmsprop_centered(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return rmsprop_of(x, true, err);
}

static exo_status
adagrad(const exo_array *x, double *sum, exo_err *err)
{
    const exo_adagrad_args args = {
        .count = x->count,
        .param = x[0].data,
        .grad = x[1].data,
        .sum = x[3].data,
        .l2 = 0.01f,
        .eps = 1e-10f,
        .now = {.lr = 0.01f},
    };
    (void)sum;
    exo_status st = x->device->device_class->kernels->adagrad(x->device, &args, err);
    return st == EXO_OK ? exo_device_synchronize(x->device, err) : st;
}

/* A matrix of x[0]'s numbers: as square as these allow, but with at most `most_rows` rows and
 * `most_cols` columns. */
static exo_status
newton_schulz_of(const exo_array *x, size_t most_rows, size_t most_cols, exo_err *err)
{
    exo_newton_schulz_shape shape;
    exo_plan *plan = NULL;
    exo_array scratch = {0};
    const exo_device_class *c = x->device->device_class;
    size_t side = 1;
    if (x->count == 0)
        return EXO_OK;
    while ((side + 1) * (side + 1) <= x->count)
        side++;
    memset(&shape, 0, sizeof shape);
    shape.rows = most_rows < most_cols ? (side < most_rows ? side : most_rows) : 0;
    shape.cols = most_rows < most_cols ? 0 : (side < most_cols ? side : most_cols);
    if (shape.rows)
        shape.cols = x->count / shape.rows < most_cols ? x->count / shape.rows : most_cols;
    else
        shape.rows = x->count / shape.cols < most_rows ? x->count / shape.cols : most_rows;
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_NEWTON_SCHULZ, &shape, err);
    if (st == EXO_OK)
        st = exo_array_init(
            &scratch, x->device, EXO_U8,
            c->scratch(x->device, EXO_SHAPE_NEWTON_SCHULZ, &shape, EXO_SCRATCH_FORWARD), err);
    if (st == EXO_OK)
        st = c->kernels->newton_schulz(x->device,
                                       &(exo_newton_schulz_args){.plan = plan,
                                                                 .x = x[0].data,
                                                                 .scratch = scratch.data,
                                                                 .a = 3.4445f,
                                                                 .b = -4.775f,
                                                                 .c = 2.0315f,
                                                                 .eps = 1e-7f,
                                                                 .steps = 5},
                                       err);
    if (st == EXO_OK)
        st = exo_device_synchronize(x->device, err);
    exo_array_release(&scratch);
    exo_plan_free(&plan);
    return st;
}

static exo_status
newton_schulz_wide(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return newton_schulz_of(x, 70, 200, err);
}

static exo_status
newton_schulz_tall(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return newton_schulz_of(x, 200, 70, err);
}

/* --- Compression ------------------------------------------------------------------------------ */

/* Orthonormalizes the columns of x[0], or its rows, as many as x[0]'s count allows, at most 9. */
static exo_status
orthonormalize_of(const exo_array *x, bool columns, exo_err *err)
{
    exo_array scratch = {0};
    size_t vectors = 0;
    while (vectors < 9 && (vectors + 1) * (vectors + 1) <= x->count)
        vectors++;
    const size_t length = vectors ? x->count / vectors : 0;
    exo_status st = exo_array_init(&scratch, x->device, EXO_U8,
                                   ((vectors + 1) * length + vectors) * sizeof(double), err);
    if (st == EXO_OK)
        exo_device_run(x->device, orthonormalize, .vectors = vectors, .length = length,
                       .vector_step = columns ? 1 : length, .element_step = columns ? vectors : 1,
                       .x = x[0].data, .scratch = scratch.data);
    if (st == EXO_OK)
        st = exo_device_synchronize(x->device, err);
    exo_array_release(&scratch);
    return st;
}

static exo_status
orthonormalize_columns(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return orthonormalize_of(x, true, err);
}

static exo_status
orthonormalize_rows(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return orthonormalize_of(x, false, err);
}

static const size_t chunk_size = 100;

/* The first `count` bytes of an array's memory, as int8. */
static exo_array
bytes_at(exo_array x, size_t count)
{
    x.owned = false;
    x.dtype = EXO_I8;
    x.count = count;
    return x;
}

static exo_status
vec_largest(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    exo_vec_largest(exo_array_part(x[0], 0, (x->count + chunk_size - 1) / chunk_size), x[1],
                    chunk_size);
    return exo_device_synchronize(x->device, err);
}

/* Two rows of scales: x[1]'s own are the larger ones of some chunks. */
static exo_array
scales_of(const exo_array *x, size_t count)
{
    const size_t chunks = (count + chunk_size - 1) / chunk_size;
    const exo_array scales = exo_array_part(x[0], 0, 2 * chunks);
    exo_vec_largest(exo_array_part(scales, 0, chunks), exo_array_part(x[1], 0, count), chunk_size);
    exo_vec_largest(exo_array_part(scales, chunks, chunks), exo_array_part(x[2], 0, count),
                    chunk_size);
    return scales;
}

static exo_status
vec_quantize(const exo_array *x, double *sum, exo_err *err)
{
    const size_t count = x->count > 1 ? x->count : 0;
    (void)sum;
    exo_vec_quantize(bytes_at(x[4], count), exo_array_part(x[1], 0, count), scales_of(x, count),
                     chunk_size);
    return exo_device_synchronize(x->device, err);
}

/* Three senders, whose numbers are bytes of a permutation. */
static exo_status
vec_dequantize(const exo_array *x, double *sum, exo_err *err)
{
    const size_t count = x->count > 1 ? x->count : 0;
    (void)sum;
    exo_vec_dequantize(exo_array_part(x[3], 0, count), bytes_at(x[4], 3 * count),
                       scales_of(x, count), chunk_size, 381);
    return exo_device_synchronize(x->device, err);
}

static exo_status
run_dct(const exo_array *x, exo_dct shape, bool inverse, exo_err *err)
{
    const size_t count = shape.rows * shape.cols;
    (inverse ? exo_vec_dct_inverse : exo_vec_dct)(exo_array_part(x[0], 0, count),
                                                  exo_array_part(x[1], 0, count), &shape);
    return exo_device_synchronize(x->device, err);
}

/* As many rows and columns as the count has, but no more than the reference can bear. */
static exo_dct
matrix_of(size_t count)
{
    size_t rows = 0;
    while (rows < 36 && (rows + 1) * (rows + 1) <= count)
        rows++;
    const size_t cols = rows ? count / rows : 0;
    return exo_dct_cut(rows, cols < 60 ? cols : 60, 18);
}

static exo_status
vec_dct(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return run_dct(x, matrix_of(x->count), false, err);
}

static exo_status
vec_dct_inverse(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return run_dct(x, matrix_of(x->count), true, err);
}

static exo_status
vec_dct_of_a_vector(const exo_array *x, double *sum, exo_err *err)
{
    (void)sum;
    return run_dct(x, exo_dct_cut(x->count > 0, x->count, 64), false, err);
}

/* Two messages in the memory of x[4], of x[1] and x[2] in chunks of 50. */
static exo_sent
send_chunks(const exo_array *x, size_t *count)
{
    const size_t size = 50, k = 7, chunks = x->count / size, bytes = (6 * chunks * k + 3) / 4 * 4;
    exo_sent sent = {
        .messages = x[4], .bytes = bytes, .places = 4 * chunks * k, .size = size, .k = k};
    *count = chunks * size;
    sent.messages.owned = false;
    sent.messages.dtype = EXO_U8;
    sent.messages.count = 2 * bytes;
    for (size_t s = 0; s < 2; s++) {
        exo_sent one = sent;
        one.messages = exo_array_part(sent.messages, s * bytes, bytes);
        exo_vec_top_k(&one, exo_array_part(x[1 + s], 0, *count));
    }
    return sent;
}

static exo_status
vec_top_k(const exo_array *x, double *sum, exo_err *err)
{
    size_t count;
    (void)sum;
    exo_vec_sign(x[2], x[2]); /* many equal magnitudes */
    send_chunks(x, &count);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_sent_mean(const exo_array *x, double *sum, exo_err *err)
{
    size_t count;
    (void)sum;
    const exo_sent sent = send_chunks(x, &count);
    exo_vec_sent_mean(exo_array_part(x[0], 0, count), &sent);
    return exo_device_synchronize(x->device, err);
}

/* The signs of x[1] in five messages, in the memory of x[4]. */
static exo_signs
pack_signs(const exo_array *x, size_t *count)
{
    const size_t chunk = x->count / 6 / 8 * 8, bytes = 4 + (chunk / 8 + 3) / 4 * 4;
    exo_signs signs = {.messages = x[4], .bytes = bytes, .signs = 4, .chunk = chunk};
    signs.messages.owned = false;
    signs.messages.dtype = EXO_U8;
    signs.messages.count = chunk ? 5 * bytes : 0;
    *count = chunk ? 5 * chunk - 3 : 0; /* the last message has room for more */
    exo_vec_sign_pack(&signs, exo_array_part(x[1], 0, *count));
    return signs;
}

static exo_status
vec_sign_pack(const exo_array *x, double *sum, exo_err *err)
{
    size_t count;
    (void)sum;
    exo_vec_sign(x[1], x[1]); /* whose scale is 1 to the bit */
    pack_signs(x, &count);
    return exo_device_synchronize(x->device, err);
}

static exo_status
vec_sign_mean(const exo_array *x, double *sum, exo_err *err)
{
    size_t count;
    (void)sum;
    exo_vec_sign(x[1], x[1]);
    const exo_signs signs = pack_signs(x, &count);
    exo_vec_sign_unpack(exo_array_part(x[0], 0, count), &signs);
    if (count > 0)
        exo_vec_sign_mean(exo_array_part(x[2], 0, signs.chunk - 1), &signs);
    return exo_device_synchronize(x->device, err);
}

/* --- The list --------------------------------------------------------------------------------- */

const kernel_case kernel_cases[] = {
    {"fill", "fill", 0, 1, vec_fill},
    {"scale", "scale", 0, 2, vec_scale},
    {"divide", "divide", 0, 2, vec_divide},
    {"axpy", "axpy", 0, 3, vec_axpy},
    {"add", "add fp32", 0, 3, vec_add},
    {"add", "add fp32, in place", 0, 3, vec_add_in_place},
    {"add", "add bf16", 0, 3, vec_add_bf16},
    {"add", "add int32", 0, 3, vec_add_i32},
    {"sub", "sub, in place", 0, 3, vec_sub},
    {"mul", "mul", 0, 3, vec_mul},
    {"mul", "mul, add", 0, 4, mul_add},
    {"lerp", "lerp", 0, 3, vec_lerp},
    {"sign", "sign", 0, 2, vec_sign},
    {"standardize", "standardize", 0, 2, vec_standardize},
    {"cast", "cast fp32 to bf16", 0, 2, vec_cast_down},
    {"cast", "cast bf16 to fp32", 0, 2, vec_cast_up},
    {"gather", "gather", 0, 2, vec_gather},
    {"scatter", "scatter", 0, 2, vec_scatter},
    {"trimmed_mean", "trimmed_mean", 0, 2, trimmed_mean},
    {"trimmed_mean", "trimmed_mean, all", 0, 2, trimmed_mean_all},
    {"trimmed_mean", "trimmed_mean, median", 0, 2, trimmed_mean_median},
    {"sum", "sum", 1e-12, 1, vec_sum},
    {"sum_squares", "sum_squares", 1e-12, 1, vec_sum_squares},
    {"dot", "dot", 1e-12, 2, vec_dot},
    {"clip", "clip", 0, 8, clip},
    {"clip", "clip, a sum of sums", 0, 8, clip_added_up},
    {"clip", "clip, a small norm", 0, 6, clip_nothing},
    {"adam", "adam", 0, 7, adam},
    {"adam", "adamw, amsgrad", 0, 9, adamw_amsgrad},
    {"sgd", "sgd", 0, 3, sgd},
    {"sgd", "sgd, momentum", 0, 5, sgd_momentum},
    {"sgd", "sgd, nesterov", 0, 5, sgd_nesterov},
    {"rmsprop", "rmsprop", 0, 5, rmsprop},
    {"rmsprop", "rmsprop, centered, momentum", 0, 9, rmsprop_centered},
    {"adagrad", "adagrad", 0, 5, adagrad},
    {"newton_schulz", "newton_schulz, wide", 2e-5, 2, newton_schulz_wide},
    {"newton_schulz", "newton_schulz, tall", 2e-5, 2, newton_schulz_tall},
    {"orthonormalize", "orthonormalize, columns", 1e-6, 2, orthonormalize_columns},
    {"orthonormalize", "orthonormalize, rows", 1e-6, 2, orthonormalize_rows},
    {"largest", "largest", 0, 1, vec_largest},
    {"quantize", "quantize", 0, 2, vec_quantize},
    {"dequantize", "dequantize", 0, 2, vec_dequantize},
    {"dct", "dct", 2e-6, 2, vec_dct},
    {"dct", "dct, inverse", 2e-6, 2, vec_dct_inverse},
    {"dct", "dct of a vector", 2e-6, 2, vec_dct_of_a_vector},
    {"top_k", "top_k", 0, 2, vec_top_k},
    {"sent_mean", "sent_mean", 0, 2, vec_sent_mean},
    {"sign_pack", "sign_pack", 0, 2, vec_sign_pack},
    {"sign_mean", "sign_mean", 0, 2, vec_sign_mean},
};

const size_t num_kernel_cases = sizeof kernel_cases / sizeof *kernel_cases;

const kernel_case *
kernel_case_at(size_t i)
{
    const kernel_case *const lists[] = {kernel_cases, op_cases, layer_cases, decoder_cases};
    const size_t counts[] = {num_kernel_cases, num_op_cases, num_layer_cases, num_decoder_cases};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; i -= counts[k++])
        if (i < counts[k])
            return &lists[k][i];
    return NULL;
}

exo_status
kernel_case_arrays(exo_array x[KERNEL_CASE_ARRAYS], exo_device *device, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    uint32_t *numbers = exo_calloc(count ? count : 1, sizeof *numbers);
    float *floats = (float *)(void *)numbers;
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for a case");
    for (size_t a = 0; a < KERNEL_CASE_ARRAYS; a++)
        x[a] = (exo_array){0};
    for (uint64_t a = 0; st == EXO_OK && a < KERNEL_CASE_ARRAYS; a++) {
        exo_rng rng;
        exo_rng_init(&rng, 7, EXO_RNG_USER, 0, a);
        if (a == 4)
            exo_rng_permutation(&rng, numbers, (uint32_t)count);
        for (size_t i = 0; a < 4 && i < count; i++)
            floats[i] = a == 3 ? exo_rng_uniform(&rng) : exo_rng_normal(&rng);
        st = exo_array_init(&x[a], device, a == 4 ? EXO_I32 : EXO_F32, count, err);
        if (st == EXO_OK)
            st = exo_array_write(x[a], numbers, err);
    }
    exo_free(numbers);
    if (st != EXO_OK)
        kernel_case_release(x);
    return st;
}

void
kernel_case_release(exo_array x[KERNEL_CASE_ARRAYS])
{
    for (size_t a = 0; a < KERNEL_CASE_ARRAYS; a++)
        exo_array_release(&x[a]);
}
