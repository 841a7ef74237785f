/* Arguments of the kernels of operations on the tape.
 *
 * `dtype` is EXO_F32 or EXO_BF16, and is the type of values and of their gradients; a member
 * without a dtype beside it is fp32. With `add` the kernel adds to the destination, else it
 * overwrites it. Images are channels-last: (samples, rows, channels) or (samples, height, width,
 * channels). The destination of an elementwise operation may be one of its sources.
 *
 * Only device_impl.h includes this file. No state. */
#ifndef EXO_OP_ARGS_H
#define EXO_OP_ARGS_H

#include <exogym/device.h>
#include <exogym/loss.h>
#include <exogym/sequence.h>

/* y = the mean of x, summed in double in the order of the elements. */
typedef struct exo_mean_args {
    size_t count;
    float *y; /* (1) */
    const float *x;
} exo_mean_args;

/* dx = dy / count, rounded once. */
typedef struct exo_mean_backward_args {
    size_t count;
    float *dx;
    const float *dy; /* (1) */
    bool add;
} exo_mean_backward_args;

/* y = max(x, 0), and NaN for NaN. */
typedef struct exo_relu_args {
    size_t count;
    exo_dtype dtype;
    void *y;
    const void *x;
} exo_relu_args;

/* dx = dy where y > 0, else 0. */
typedef struct exo_relu_backward_args {
    size_t count;
    exo_dtype dtype;
    void *dx;
    const void *y, *dy;
    bool add;
} exo_relu_backward_args;

typedef struct exo_tanh_args {
    size_t count;
    float *y;
    const float *x;
} exo_tanh_args;

/* dx = dy (1 - y y). */
typedef struct exo_tanh_backward_args {
    size_t count;
    float *dx;
    const float *y, *dy;
    bool add;
} exo_tanh_backward_args;

/* keep[i] = whether the i-th number of the operation is at least `threshold`.
 *
 * The numbers come in blocks of four. Block b of the operation with ordinal k is this block of the
 * stream (seed, DROPOUT, node, step):
 *
 *     (k mod 2^10) 2^22 + (b mod 2^22)
 *
 * The upper parts of b and k change the step: b / 2^22 is XORed into its bits from 48 on, and
 * k / 2^10 into its bits 40 to 47. So a layer of more than 2^24 numbers and a pass of more than
 * 2^10 operations draw from further streams, and steps may reach 2^40. */
typedef struct exo_dropout_draw_args {
    size_t count;
    uint8_t *keep;
    uint64_t seed, step;
    uint32_t node, ordinal, threshold;
} exo_dropout_draw_args;

/* y = keep ? x factor : 0. */
typedef struct exo_dropout_args {
    size_t count;
    exo_dtype dtype;
    void *y;
    const void *x;
    const uint8_t *keep;
    float factor;
    bool add;
} exo_dropout_args;

/* y[i] = keep[i] ? value : 0. */
typedef struct exo_select_args {
    size_t count;
    float *y;
    const uint8_t *keep;
    float value;
} exo_select_args;

/* y (samples, rows, channels) = x factor (samples, channels). */
typedef struct exo_channel_scale_args {
    size_t samples, rows, channels;
    exo_dtype dtype;
    void *y;
    const void *x;
    const float *factor;
    bool add;
} exo_channel_scale_args;

/* Windows of size x size, size 1 to 15, stride = size; rows and columns beyond the last whole
 * window are dropped.
 *
 *     x (samples, height, width, channels) -> y (samples, height / size, width / size, channels)
 *
 * winner: for each element of y, the place of the maximum in its window, counted row by row; the
 * first of equal maxima. */
typedef struct exo_max_pool_args {
    size_t samples, height, width, channels, size;
    exo_dtype dtype;
    void *y;
    uint8_t *winner;
    const void *x;
} exo_max_pool_args;

typedef struct exo_max_pool_backward_args {
    size_t samples, height, width, channels, size;
    exo_dtype dtype;
    void *dx;
    const uint8_t *winner;
    const void *dy;
    bool add;
} exo_max_pool_backward_args;

/* y (samples, columns, rows) = x (samples, rows, columns), transposed. */
typedef struct exo_transpose_args {
    size_t samples, rows, columns;
    exo_dtype dtype;
    void *y;
    const void *x;
    bool add;
} exo_transpose_args;

/* The first `count` elements of each row: y (+)= x, whose rows begin every y_pitch and x_pitch elements. */
typedef struct exo_copy_columns_args {
    size_t rows, count, y_pitch, x_pitch;
    float *y;
    const float *x;
    bool add;
} exo_copy_columns_args;

/* A row of x (rows, 2 width) is gate (width), then up (width). y (rows, width) =
 * activation(gate) up. Devices agree to rounding only, because their exponential functions
 * differ. */
typedef struct exo_gate_args {
    size_t rows, width;
    exo_activation activation;
    exo_dtype dtype;
    void *y;
    const void *x;
} exo_gate_args;

/* dx (rows, 2 width) from dy (rows, width). */
typedef struct exo_gate_backward_args {
    size_t rows, width;
    exo_activation activation;
    exo_dtype dtype;
    void *dx;
    const void *x, *dy;
    bool add;
} exo_gate_backward_args;

/* --- Losses (exogym/loss.h), each row in double ----------------------------------------------- */

/* y (rows) = log softmax(scale x)[target], x (rows, columns); 0 where the target is not a column.
 * log_sum (rows) = log sum e^(scale x). */
typedef struct exo_log_probs_args {
    size_t rows, columns;
    float *y, *log_sum;
    const float *x;
    const int32_t *targets;
    float scale;
} exo_log_probs_args;

/* dx = dy scale ([column = target] - softmax(scale x)); 0 where the target is not a column. */
typedef struct exo_log_probs_backward_args {
    size_t rows, columns;
    float *dx;
    const float *x, *log_sum, *dy;
    const int32_t *targets;
    float scale;
    bool add;
} exo_log_probs_backward_args;

/* y (rows) = the entropy of softmax(scale x); log_sum as above. */
typedef struct exo_entropy_args {
    size_t rows, columns;
    float *y, *log_sum;
    const float *x;
    float scale;
} exo_entropy_args;

/* dx = -dy scale p (log p + y), log p = scale x - log_sum. */
typedef struct exo_entropy_backward_args {
    size_t rows, columns;
    float *dx;
    const float *x, *log_sum, *y, *dy;
    float scale;
    bool add;
} exo_entropy_backward_args;

/* y = exo_policy_term(log_probs - old, advantages, clip), and its slope. Both are 0 where mask is
 * 0. mask may be NULL. */
typedef struct exo_policy_loss_args {
    size_t count;
    float *y, *slope;
    const float *log_probs, *old, *advantages, *mask;
    exo_policy_clip clip;
} exo_policy_loss_args;

/* y = exo_kl_term(kind, log_probs - old), and its slope. Both are 0 where mask is 0. mask may be
 * NULL. */
typedef struct exo_kl_terms_args {
    size_t count;
    float *y, *slope;
    const float *log_probs, *old, *mask;
    exo_kl_kind kind;
} exo_kl_terms_args;

/* y = exo_value_loss_term(values, old, targets, clip), and its slope. Both are 0 where mask is 0.
 * mask may be NULL. */
typedef struct exo_value_loss_args {
    size_t count;
    float *y, *slope;
    const float *values, *old, *targets, *mask;
    float clip;
} exo_value_loss_args;

/* y[i] = exo_ranking_loss_term(d) + smoothing d, where d = x[2 i] - x[2 i + 1], and its slope, for
 * `count` pairs. */
typedef struct exo_ranking_loss_args {
    size_t count;
    float *y, *slope;
    const float *x;
    float smoothing;
} exo_ranking_loss_args;

/* dx[2 i] = dy[i] slope[i], dx[2 i + 1] = -dx[2 i]. */
typedef struct exo_ranking_loss_backward_args {
    size_t count;
    float *dx;
    const float *slope, *dy;
    bool add;
} exo_ranking_loss_backward_args;

/* y = sum(mask x) / sum(mask) over mask != 0, in double in the order of the elements.
 * factor = 1 / sum(mask). Both are 0 if the mask is 0 everywhere. With `sum` nothing is divided by:
 * factor = 1. */
typedef struct exo_masked_mean_args {
    size_t count;
    float *y, *factor; /* (1), (1) */
    const float *x, *mask;
    bool sum;
} exo_masked_mean_args;

/* dx = dy factor mask. */
typedef struct exo_masked_mean_backward_args {
    size_t count;
    float *dx;
    const float *mask, *factor, *dy; /* (count), (1), (1) */
    bool add;
} exo_masked_mean_backward_args;

/* y[n] = sum(mask x) over the rows [offsets[n], offsets[n + 1]) with mask != 0, in double in the
 * order of the rows. mask may be NULL. */
typedef struct exo_sequence_sum_args {
    size_t count; /* sequences N */
    float *y;
    const float *x, *mask;  /* rows */
    const int32_t *offsets; /* (N + 1) */
} exo_sequence_sum_args;

/* dx = mask dy[n] in the rows of sequence n; 0 in rows of no sequence. mask may be NULL. */
typedef struct exo_sequence_sum_backward_args {
    size_t count, rows; /* sequences N; elements of dx */
    float *dx;
    const float *mask, *dy; /* (rows), (N) */
    const int32_t *offsets; /* (N + 1) */
    bool add;
} exo_sequence_sum_backward_args;

#endif
