/* Arguments of the kernels of operations on the tape. `dtype` is EXO_F32 or EXO_BF16 and holds for
 * values and their gradients; whatever has no dtype beside it is fp32. `add`: add to the
 * destination rather than overwrite it. Images are channels-last: (samples, rows or height and
 * width, channels). The destination of an operation element by element may be one of its sources.
 * Included by device_impl.h alone. */
#ifndef EXO_OP_ARGS_H
#define EXO_OP_ARGS_H

#include <exogym/device.h>
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

/* y = max(x, 0); of NaN NaN. */
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

/* keep[i] = whether the i-th number of the pass's stream is at least `threshold`. Block b of four
 * numbers of the operation with ordinal k is block k * 2^22 + b of the stream (seed, DROPOUT, node,
 * step). What does not fit goes into the step's upper bits, 48 and up for b and 40 to 47 for k:
 * layers of 2^24 numbers and more and passes of 2^10 operations and more draw from further streams,
 * and steps may go to 2^40. */
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

/* Windows of size x size, 1 to 15, stride = size; what is left over is dropped. x (samples, height,
 * width, channels) -> y (samples, height / size, width / size, channels), and for each of y which
 * of the window's places won, row by row: the first among equals. */
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

/* A row of x (rows, 2 width) is a gate and what it lets through: y (rows, width) = activation(gate)
 * up. To rounding: devices have exponential functions of their own. */
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

/* y (rows) = log softmax(scale x)[target], x (rows, columns); where the target is not a column 0.
 * log_sum (rows) = log sum e^(scale x). */
typedef struct exo_log_probs_args {
    size_t rows, columns;
    float *y, *log_sum;
    const float *x;
    const int32_t *targets;
    float scale;
} exo_log_probs_args;

/* dx = dy scale ([column = target] - softmax(scale x)); where the target is not a column 0. */
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

/* y = exo_policy_loss_term(log_probs - old, advantages, clip) and its slope; both 0 where mask is
 * 0. mask may be NULL. */
typedef struct exo_policy_loss_args {
    size_t count;
    float *y, *slope;
    const float *log_probs, *old, *advantages, *mask;
    float clip;
} exo_policy_loss_args;

/* y = exo_value_loss_term(values, old, targets, clip) and its slope; both 0 where mask is 0. mask
 * may be NULL. */
typedef struct exo_value_loss_args {
    size_t count;
    float *y, *slope;
    const float *values, *old, *targets, *mask;
    float clip;
} exo_value_loss_args;

/* y[i] = exo_ranking_loss_term(x[2 i] - x[2 i + 1]) and its slope, `count` pairs. */
typedef struct exo_ranking_loss_args {
    size_t count;
    float *y, *slope;
    const float *x;
} exo_ranking_loss_args;

/* dx[2 i] = dy[i] slope[i], dx[2 i + 1] = -dx[2 i]. */
typedef struct exo_ranking_loss_backward_args {
    size_t count;
    float *dx;
    const float *slope, *dy;
    bool add;
} exo_ranking_loss_backward_args;

/* y = sum(mask x) / sum(mask) over mask != 0, in double in the order of the elements, and factor =
 * 1 / sum(mask); both 0 if there is none. */
typedef struct exo_masked_mean_args {
    size_t count;
    float *y, *factor; /* (1), (1) */
    const float *x, *mask;
} exo_masked_mean_args;

/* dx = dy factor mask. */
typedef struct exo_masked_mean_backward_args {
    size_t count;
    float *dx;
    const float *mask, *factor, *dy; /* (count), (1), (1) */
    bool add;
} exo_masked_mean_backward_args;

#endif
