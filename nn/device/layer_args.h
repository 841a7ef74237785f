/* Arguments of the kernels of layers, and the shapes that layers are planned for.
 *
 * Types, `add` and images are as in op_args.h. A shape is plain numbers and is compared byte by
 * byte, so the caller zeroes it first. Only device_impl.h includes this file. No state. */
#ifndef EXO_LAYER_ARGS_H
#define EXO_LAYER_ARGS_H

#include <exogym/device.h>
#include <exogym/sequence.h>

typedef struct exo_plan exo_plan; /* device_impl.h */

/* --- Embeddings ------------------------------------------------------------------------------- */

/* y[r] = table[tokens[r]]: y (rows, width), tokens (rows). A row of a negative token is zero. */
typedef struct exo_embedding_args {
    size_t rows, width;
    float *y;
    const float *table;
    const int32_t *tokens;
} exo_embedding_args;

/* Adds row r of dy (rows, width) to the gradient of row tokens[r] of the table, unless the token is
 * negative, in the order of r. */
typedef struct exo_embedding_backward_args {
    size_t rows, width;
    float *gradient;
    const float *dy;
    const int32_t *tokens;
    /* (rows of the table): a row's place in `gradient`. NULL: its own number. */
    const int32_t *slot;
} exo_embedding_backward_args;

/* y[r] = x[r] + table[first + r % sequence], for rows of `width` elements. */
typedef struct exo_positions_args {
    size_t rows, width, sequence, first;
    float *y;
    const float *x, *table;
} exo_positions_args;

/* Adds row r of dy (rows, width) to row first + r % sequence of `gradient`, in the order of r. */
typedef struct exo_positions_backward_args {
    size_t rows, width, sequence, first;
    float *gradient;
    const float *dy;
} exo_positions_backward_args;

/* --- Norms ------------------------------------------------------------------------------------ */

typedef struct exo_row_norm_shape {
    size_t rows, width;
} exo_row_norm_shape;

/* exo_layer_norm (centered) or exo_rms_norm, from fp32 to `dtype`. mean (rows; only if centered)
 * and inverse (rows) are saved for backward. */
typedef struct exo_row_norm_args {
    exo_row_norm_shape shape;
    bool centered;
    float eps;
    exo_dtype dtype;
    void *y;
    float *mean, *inverse;
    const float *x, *weight, *bias; /* bias may be NULL */
} exo_row_norm_args;

/* dy is of `dtype`. The kernel adds to dweight and dbias (width), each of which may be NULL. What it
 * leaves in dx also goes to `rounded`, as bf16, unless that is NULL. */
typedef struct exo_row_norm_backward_args {
    exo_row_norm_shape shape;
    bool centered, add;
    float eps;
    exo_dtype dtype;
    float *dx, *dweight, *dbias;
    void *rounded;
    const float *x, *weight, *mean, *inverse;
    const void *dy;
    void *scratch;
} exo_row_norm_backward_args;

typedef struct exo_batch_norm_shape {
    size_t samples, channels;
} exo_batch_norm_shape;

/* exo_batch_norm of x (samples, rows, channels), followed by ReLU if `relu`. kept (4, channels) is
 * saved for backward. */
typedef struct exo_batch_norm_args {
    exo_batch_norm_shape shape;
    size_t rows;
    exo_dtype dtype;
    bool relu;
    bool train; /* normalize by the batch's statistics, else by the running ones */
    bool move;  /* move the running statistics towards the batch's */
    float eps, momentum;
    void *y;
    float *kept, *running_mean, *running_var;
    const void *x;
    const float *weight, *bias;
    void *scratch;
} exo_batch_norm_args;

/* dx may be dy, or NULL if it is not wanted. */
typedef struct exo_batch_norm_backward_args {
    exo_batch_norm_shape shape;
    size_t rows;
    exo_dtype dtype;
    bool relu, train, add, add_weight, add_bias;
    void *dx;
    float *dweight, *dbias; /* may be NULL */
    const float *kept;
    const void *x, *dy;
    void *scratch;
} exo_batch_norm_backward_args;

/* --- fp8 -------------------------------------------------------------------------------------- */

/* Micikevicius et al., 2022, arXiv:2209.05433. E4M3 has no infinities. */
typedef enum exo_fp8 {
    EXO_E4M3, /* up to 448 */
    EXO_E5M2, /* up to 57,344 */
} exo_fp8;

enum {
    EXO_FP8_SIDE = 16,           /* rows and columns of matrices are multiples of it */
    EXO_FP8_LEAST_EXPONENT = -60 /* of scales, so that the product of two is a normal number */
};

/* x (rows, columns), which are multiples of EXO_FP8_SIDE, as codes of x / scale, rounded to nearest, ties to even. scale is the least power
 * of two from 2^EXO_FP8_LEAST_EXPONENT on with which no code overflows, or 1 if x is zero or not
 * finite. NaN stays NaN, as 0x7F with its sign; an infinity stays one, or is NaN in E4M3. What is too
 * large for a scale of 1 is the largest number. */
typedef struct exo_to_fp8_args {
    size_t rows, columns;
    exo_dtype dtype; /* of x: F32, BF16 */
    exo_fp8 format;
    bool scaled; /* `scale` is given, as a call has written it for the same x; else it is written */
    const void *x;
    /* Aligned to 16 bytes: (rows, columns), or NULL; (columns, rows), or NULL. */
    uint8_t *codes, *transposed;
    float *scale;
} exo_to_fp8_args;

/* --- Linear layers ---------------------------------------------------------------------------- */

typedef struct exo_linear_shape {
    size_t rows, in, out;
    size_t dtype;     /* of x, of weight, and of the gradients that products read */
    size_t out_dtype; /* of y; EXO_F32 with a residual */
    size_t residual, with_bias, backward, input_grad; /* 0 or 1 each */
    size_t invariant; /* 0 or 1: `linear` computes as in generation, in fp32 (exo_pass) */
    /* 0 or 1: operands of products are codes of to_fp8, E5M2 of dy and E4M3 of x and weight, each with
     * its scale. What says so below is transposed, so that sums run along rows. */
    size_t fp8;
} exo_linear_shape;

/* y (rows, out) = activation(x weight^T + bias), or x weight^T + bias + residual. */
typedef struct exo_linear_args {
    exo_plan *plan;
    exo_activation activation;
    /* before (rows, out): the pre-activation, for backward; NULL if it is not wanted. */
    void *y, *before;
    const void *x, *weight;              /* (rows, in), (out, in) */
    const float *bias;                   /* (out), or NULL */
    const float *residual;               /* (rows, out) fp32, or NULL */
    const float *x_scale, *weight_scale; /* of fp8 */
    void *scratch;
} exo_linear_args;

/* dx (rows, in) = dy weight, overwritten; with `before` (rows, in), times activation'(before). */
typedef struct exo_linear_grad_x_args {
    exo_plan *plan;
    exo_activation activation; /* of x, which is activation(before) */
    const void *before;        /* in the type of dx, or NULL */
    void *dx;
    const void *dy, *weight;              /* fp8: weight is transposed, (in, out) */
    const float *dy_scale, *weight_scale; /* of fp8 */
} exo_linear_grad_x_args;

/* dw (out, in) fp32 += dy^T x, and db (out) += the sum of dy's rows. */
typedef struct exo_linear_grad_w_args {
    exo_plan *plan;
    float *dw, *db;                  /* db: NULL if it is not wanted, and with fp8 */
    const void *dy, *x;              /* fp8: both are transposed, (out, rows) and (in, rows) */
    const float *dy_scale, *x_scale; /* of fp8 */
} exo_linear_grad_w_args;

/* y (rows, columns) = x + scale (b a), fp32; a (rank, columns), b (rows, rank). y may be x. For each
 * element, b a is summed in the order of the ranks, with each product and sum rounded, then
 * multiplied by scale, then added to x: the same bits on every device. */
typedef struct exo_lora_merge_args {
    size_t rows, columns, rank;
    float scale, *y;
    const float *x, *a, *b;
} exo_lora_merge_args;

/* y (columns) = the sum of x's rows, in double in the order of the rows. */
typedef struct exo_column_sums_args {
    size_t rows, columns;
    exo_dtype dtype; /* of x */
    float *y;
    const void *x;
    bool add;
} exo_column_sums_args;

/* dx = dy activation'(x); dx may be dy. */
typedef struct exo_activation_backward_args {
    size_t count;
    exo_activation activation;
    exo_dtype dtype;
    void *dx;
    const void *x, *dy;
} exo_activation_backward_args;

/* --- Convolutions ----------------------------------------------------------------------------- */

typedef struct exo_conv_shape {
    size_t batch, in_channels, height, width;
    size_t out_channels, kernel_height, kernel_width;
    size_t stride, padding;
    size_t out_height, out_width;
    size_t dtype;      /* of images: EXO_F32 or EXO_BF16 */
    size_t with_bias;  /* 0 or 1 */
    size_t backward;   /* 0 or 1: plan backward too */
    size_t input_grad; /* 0 or 1: backward computes dx too */
} exo_conv_shape;

/* x (batch, H, W, I), weight (O, I, R, S) fp32, bias (O) or NULL -> y (batch, H', W', O). */
typedef struct exo_conv_args {
    exo_plan *plan;
    void *y;
    const void *x;
    const float *weight, *bias;
} exo_conv_args;

/* Runs after `conv` with the same plan, and uses the weights that the plan keeps from there. dx is
 * overwritten; dweight and dbias are added to. Each of the three may be NULL. */
typedef struct exo_conv_backward_args {
    exo_plan *plan;
    void *dx;
    float *dweight, *dbias;
    const void *x, *dy;
} exo_conv_backward_args;

/* --- Attention (exo_attention) ---------------------------------------------------------------- */

typedef struct exo_attention_shape {
    size_t sequences, tokens, heads, kv_heads, width; /* N, T, H, G, D */
    size_t dtype;
    size_t turned;  /* elements of a head that rotary positions turn */
    size_t alibi;   /* 0 or 1 */
    size_t dropout; /* 0 or 1: some weights are dropped */
    size_t scaled;  /* 0 or 1: `factors` scale the rotary frequencies */
    /* 0 or 1: `attention` computes as in generation, in fp32 without dropout (exo_pass) */
    size_t invariant;
    /* With C = members > 0, sequences of C T tokens are spread over C members, and this is the work of
     * member `rank` with the keys and values of member `from`; fp32, without ALiBi, dropout and
     * invariance, and T is even. Of 2 C equal chunks of a sequence, member r has r and 2 C - 1 - r, so
     * that all have equal work. Positions are those in the sequence. With from == rank, attention is
     * causal among the member's own tokens. Otherwise `others` has the keys and values; the queries that
     * see any see all of them: with from < rank all queries see the first half of the keys, else the
     * second half of the queries sees all keys. */
    size_t members, rank, from;
    /* 0 or 1: with members, a device may round what it multiplies to bf16, as attention in bf16 does;
     * x, y and gradients stay fp32 */
    size_t bf16_products;
    double theta, scale;
    float factors[512]; /* (turned / 2) */
} exo_attention_shape;

/* Of the work with another member's keys: the first query that sees any, and the number of keys. */
static inline void
exo_attention_seen(const exo_attention_shape *shape, size_t *first_query, size_t *keys)
{
    *first_query = shape->from < shape->rank ? 0 : shape->tokens / 2;
    *keys = shape->from < shape->rank ? shape->tokens / 2 : shape->tokens;
}

/* The position in the sequence of a member's token. */
static inline size_t
exo_attention_position(const exo_attention_shape *shape, size_t member, size_t token)
{
    size_t half = shape->tokens / 2,
           chunk = token < half ? member : 2 * shape->members - 1 - member;
    return shape->members == 0 ? token : chunk * half + token % half;
}

/* Dropout drops `dropped` of 65536 weights. The operation's part of the pass's stream decides which
 * ones. */
typedef struct exo_attention_drop {
    uint32_t dropped, ordinal, node;
    uint64_t seed, step; /* step has the upper bits of the operation's ordinal in it */
} exo_attention_drop;

/* x (N T, (H + 2 G) D) -> y (N T, H D). lse (N, H, T), the binary logarithm of each row's sum of
 * exponentials of scores, is saved for backward; it may be NULL. others (N T, 2 G D): keys and values of
 * another member; y and lse are then those of the keys before, and become those of all. */
typedef struct exo_attention_args {
    exo_plan *plan;
    exo_attention_drop drop;
    void *y;
    float *lse;
    const void *x;
    void *scratch;
    const void *others;
} exo_attention_args;

/* y and lse are those of all keys. With `others`, dothers (N T, 2 G D) and the gradient of the queries in
 * dx are added to, and of dx nothing else changes. */
typedef struct exo_attention_backward_args {
    exo_plan *plan;
    exo_attention_drop drop;
    void *dx;
    const void *x, *y, *dy;
    const float *lse;
    void *scratch;
    bool add;
    const void *others;
    void *dothers;
} exo_attention_backward_args;

/* --- Cross-entropy ---------------------------------------------------------------------------- */

/* y = the mean of -log softmax(x)[target] over the `counted` rows whose target is not negative; 0
 * if there are none. dx (rows, columns) is its gradient. */
typedef struct exo_cross_entropy_args {
    size_t rows, columns, counted;
    float *y, *dx; /* (1), (rows, columns) */
    const float *x;
    const int32_t *targets;
} exo_cross_entropy_args;

/* out = the number of rows whose largest element (the first of equal ones) is at the target. */
typedef struct exo_hits_args {
    size_t rows, columns;
    exo_dtype dtype;
    double *out;
    const void *x;
    const int32_t *targets;
} exo_hits_args;

/* y (+)= factor[0] x; y may be x. */
typedef struct exo_scale_by_args {
    size_t count;
    float *y;
    const float *x, *factor;
    bool add;
} exo_scale_by_args;

/* --- The head of a large vocabulary ----------------------------------------------------------- */

/*     log_sum[r] = log sum_v e^(scale logit[r, v]), logits = x weight^T
 *     d logit[r, v] = factor[r] (softmax[r, v] - [v = target[r]])
 *
 * With `entropy`, the entropy of each row's softmax takes the place of targets:
 *
 *     log_p[r, v] = scale logit[r, v] - log_sum[r]
 *     entropy[r] = -sum_v e^log_p[r, v] log_p[r, v]
 *     d logit[r, v] = factor[r] e^log_p[r, v] (log_p[r, v] + entropy[r]) */
typedef struct exo_head_shape {
    size_t rows, width, vocabulary;
    size_t dtype;     /* of x and of products */
    size_t gradients; /* 0 or 1: backward is planned too */
    /* 0 or 1: logits of the whole vocabulary are kept, and `head` computes gradients if it gets
     * factors. */
    size_t wide;
    size_t entropy; /* 0 or 1: entropies in place of targets */
    /* 0 or 1: `head` computes as in generation, in fp32 (exo_pass), for a head with targets that is
     * not wide. Then it writes log-probabilities to `picked`, 0 where the target is negative. */
    size_t invariant;
} exo_head_shape;

enum {
    EXO_HEAD_LANES = 8 /* parts of the vocabulary */
};

/* Arguments of `head` and `head_backward`. head_backward runs after `head`, and computes the
 * gradients of a head that is not wide. */
typedef struct exo_head_args {
    exo_plan *plan;
    const void *x;       /* (rows, width) of the shape's dtype */
    const float *weight; /* (vocabulary, width) */
    /* The weights as the shape's dtype, for a wide head whose dtype is not fp32; else NULL. */
    const void *cast;
    const int32_t *targets; /* (rows); NULL with `entropy` */
    float scale;
    /* (rows) each. picked[r] = scale logit[r, target[r]]; not written where the target is
     * negative. */
    float *log_sum, *picked;
    /* (rows). `head` writes it; head_backward reads it. */
    float *entropy;
    /* (rows), with `scale` in it; 0 where the target is negative. NULL: no gradients. */
    const float *factor;
    /* Added to. Each may be NULL. */
    float *dx, *dweight;
    void *scratch;
    /* (EXO_HEAD_LANES) buffers of EXO_SCRATCH_LOGITS bytes, in which `head` leaves some of the logits
     * for head_backward, which computes only the others again. NULL: none. */
    void *const *logits;
    /* Only on a device that is the host, with EXO_SCRATCH_ROWS. Takes rows [first, first + count)
     * of the weights' gradient, which then is not added to dweight. Each row is handed over once,
     * on any thread. NULL: none. */
    void (*take_rows)(void *context, size_t first, size_t count, const float *gradient);
    void *context;
} exo_head_args;
typedef exo_head_args exo_head_backward_args;

/* y (rows) = a dy[r stride] / divisor where the target is not negative, else 0. dy NULL counts
 * as 1. */
typedef struct exo_row_factors_args {
    size_t rows, stride; /* stride 0: one dy for all rows; 1: one each */
    float *y, a, divisor;
    const float *dy;
    const int32_t *targets;
} exo_row_factors_args;

/* y (rows) = y - log_sum where the target is not negative, else 0. */
typedef struct exo_picked_log_probs_args {
    size_t rows;
    float *y;
    const float *log_sum;
    const int32_t *targets;
} exo_picked_log_probs_args;

/* y = the mean of log_sum - picked over the `counted` rows whose target is not negative, in double
 * in the order of the rows; 0 if there are none. */
typedef struct exo_picked_loss_args {
    size_t rows, counted;
    float *y; /* (1) */
    const float *log_sum, *picked;
    const int32_t *targets;
} exo_picked_loss_args;

#endif
