/* The inside of a device: a class, its memory, and one table of kernels.
 *
 * A kernel is a whole operation. It is asked for once, however large its arrays are, and the device
 * divides the work as it likes (the CPU into pieces, see decision 2). The arguments of a kernel are
 * one struct of numbers and of addresses on the device. The struct points to nothing in the host's
 * memory, so a device may keep a copy of it and run the kernel later.
 *
 * EXO_KERNELS names every kernel once. The table, its tests and its timings are generated from that
 * list: a device that lacks a kernel does not compile, and a kernel without a test fails a test.
 *
 * nn/ref (plain loops) and nn/cpu fill the table. State: the plans and failures of devices; a
 * device belongs to one thread at a time, except the host's, which any threads share. Read next:
 * nn/device/vec.c, which asks for kernels; docs/decisions/0019-devices.md. */
#ifndef EXO_DEVICE_IMPL_H
#define EXO_DEVICE_IMPL_H

#include <exogym/device.h>

#include "nn/device/compress_args.h"
#include "nn/device/decoder_args.h"
#include "nn/device/layer_args.h"
#include "nn/device/op_args.h"

/* --- Arguments: `count` elements, fp32 unless said otherwise; formulas are device.h's --------- */

typedef struct exo_fill_args {
    size_t count;
    float *y, value;
} exo_fill_args;

typedef struct exo_scale_args { /* y = a x; x may be y */
    size_t count;
    float *y, a;
    const float *x;
} exo_scale_args;

typedef struct exo_divide_args {
    size_t count;
    float *y, a;
} exo_divide_args;

typedef struct exo_axpy_args {
    size_t count;
    float *y, a;
    const float *x;
} exo_axpy_args;

typedef struct exo_add_args {
    size_t count;
    exo_dtype dtype; /* F32, BF16, I32 */
    void *y;
    const void *a, *b;
} exo_add_args;

typedef struct exo_sub_args {
    size_t count;
    float *y;
    const float *a, *b;
} exo_sub_args;

typedef struct exo_mul_args {
    size_t count;
    float *y;
    const float *a, *b;
    bool add; /* y = y + a b */
} exo_mul_args;

typedef struct exo_lerp_args {
    size_t count;
    float *y, t;
    const float *x;
} exo_lerp_args;

typedef struct exo_sign_args {
    size_t count;
    float *y;
    const float *x;
} exo_sign_args;

typedef struct exo_standardize_args {
    size_t count;
    float *y;
    const float *x;
    double mean, factor;
} exo_standardize_args;

typedef struct exo_cast_args {
    size_t count;
    exo_dtype to, from; /* F32, BF16 */
    void *y;
    const void *x;
} exo_cast_args;

typedef struct exo_gather_args {
    size_t count;
    float *y;
    const float *x;
    const uint32_t *index; /* (count) */
} exo_gather_args;

typedef struct exo_scatter_args {
    size_t count;
    float *y;
    const uint32_t *index; /* (count) */
    const float *x;
} exo_scatter_args;

typedef struct exo_trimmed_mean_args {
    size_t count;
    size_t rows, pitch; /* pitch: elements from one row to the next, at least count */
    size_t trim;        /* below rows / 2 */
    float *y;
    const float *x; /* (rows, pitch) */
} exo_trimmed_mean_args;

/* Sums write one double to `out`. */
typedef struct exo_sum_args {
    size_t count;
    const float *x;
    double *out;
} exo_sum_args;

typedef struct exo_sum_squares_args {
    size_t count;
    const float *x;
    double center, *out;
    bool add; /* out = out + the sum */
} exo_sum_squares_args;

typedef struct exo_dot_args {
    size_t count;
    const float *a, *b;
    double *out;
} exo_dot_args;

/* sum = that of `squares`, added in their order; with `norm`, norm[0] = its square root and
 * y = factor y with factor = max_norm / (norm[0] + 1e-6), unless that is at least 1. */
typedef struct exo_clip_args {
    size_t count;
    float *y, max_norm;
    const double *squares; /* (parts) */
    size_t parts;
    double *sum; /* NULL: not written; not among the squares */
    float *norm; /* NULL: nothing is clipped */
} exo_clip_args;

/* --- Optimizers ------------------------------------------------------------------------------- */

/* Formulas and the order of their operations are those of torch.optim, so results agree to
 * rounding. What changes from step to step is in `now`. */

/* Adam (Kingma & Ba, 2015, arXiv:1412.6980), AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101)
 * and, with a maximum, AMSGrad (Reddi et al., 2018, arXiv:1904.09237):
 *
 *     g = grad + l2 param, m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g g
 *     max = max(max, v)
 *     param = shrink param - step_size m / (sqrt(v or max) / sqrt_correction2 + eps) */
typedef struct exo_adam_now {
    float shrink;           /* AdamW's weight decay, 1 - lr wd; Adam: 1 */
    float sqrt_correction2; /* sqrt(1 - beta2^t) */
    float step_size;        /* lr / (1 - beta1^t) */
} exo_adam_now;

typedef struct exo_adam_args {
    size_t count;
    float *param;
    const float *grad;
    float *exp_avg, *exp_avg_sq;
    float *max_exp_avg_sq; /* NULL: not AMSGrad */
    float l2;              /* Adam's weight decay; AdamW: 0 */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float eps;
    exo_adam_now now;
} exo_adam_args;

/* SGD with momentum:
 *
 *     g = grad + l2 param, b = momentum b + one_minus_dampening g
 *     param = param - lr (nesterov ? g + momentum b : b) */
typedef struct exo_sgd_now {
    float momentum;
    float one_minus_dampening; /* 1 at the first step: the buffer starts as g */
    float lr;
} exo_sgd_now;

typedef struct exo_sgd_args {
    size_t count;
    float *param;
    const float *grad;
    float *momentum_buffer; /* NULL: param = param - lr g */
    float l2;
    bool nesterov;
    exo_sgd_now now;
} exo_sgd_args;

/* RMSprop (Hinton, lecture 6e; centered: Graves, 2013, arXiv:1308.0850):
 *
 *     g = grad + l2 param, v = alpha v + (1 - alpha) g g, a = alpha a + (1 - alpha) g
 *     d = sqrt(max(v - a a, 0)) + eps
 *     b = momentum b + g / d, param = param - lr b */
typedef struct exo_rmsprop_now {
    float momentum;
    float lr;
} exo_rmsprop_now;

typedef struct exo_rmsprop_args {
    size_t count;
    float *param;
    const float *grad;
    float *square_avg;
    float *grad_avg;        /* NULL: not centered, sqrt(v) */
    float *momentum_buffer; /* NULL: param = param - (lr g) / d */
    float l2;
    float alpha, one_minus_alpha;
    float eps;
    exo_rmsprop_now now;
} exo_rmsprop_args;

/* Adagrad (Duchi et al., 2011):
 *
 *     g = grad + l2 param, v = v + g g, param = param - (lr g) / (sqrt(v) + eps) */
typedef struct exo_adagrad_now {
    float lr; /* lr / (1 + (t - 1) lr_decay) */
} exo_adagrad_now;

typedef struct exo_adagrad_args {
    size_t count;
    float *param;
    const float *grad;
    float *sum;
    float l2;
    float eps;
    exo_adagrad_now now;
} exo_adagrad_args;

/* Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) replaces a matrix by a
 * nearly orthogonal one: the singular vectors stay, and the singular values move close to 1.
 *
 *     X = X / max(|X|, eps)                         the Frobenius norm
 *     `steps` times:  A = X X^T,  X = a X + (b A + c A A) X
 *
 * If rows > cols, A is X^T X and multiplies from the right, which is the same for X^T. */
typedef struct exo_newton_schulz_shape {
    size_t rows, cols; /* from 1 */
} exo_newton_schulz_shape;

typedef struct exo_newton_schulz_args {
    exo_plan *plan;
    float *x; /* (rows, cols), changed in place */
    void *scratch;
    float a, b, c, eps;
    size_t steps;
} exo_newton_schulz_args;

/* --- The table -------------------------------------------------------------------------------- */

#define EXO_KERNELS(X)                                                                             \
    X(fill)                                                                                        \
    X(scale)                                                                                       \
    X(divide)                                                                                      \
    X(axpy)                                                                                        \
    X(add)                                                                                         \
    X(sub)                                                                                         \
    X(mul)                                                                                         \
    X(lerp)                                                                                        \
    X(sign)                                                                                        \
    X(standardize)                                                                                 \
    X(cast)                                                                                        \
    X(gather)                                                                                      \
    X(scatter)                                                                                     \
    X(trimmed_mean)                                                                                \
    X(sum)                                                                                         \
    X(sum_squares)                                                                                 \
    X(dot)                                                                                         \
    X(clip)                                                                                        \
    X(adam)                                                                                        \
    X(sgd)                                                                                         \
    X(rmsprop)                                                                                     \
    X(adagrad)                                                                                     \
    X(newton_schulz)                                                                               \
    X(orthonormalize)                                                                              \
    X(largest)                                                                                     \
    X(quantize)                                                                                    \
    X(dequantize)                                                                                  \
    X(dct)                                                                                         \
    X(top_k)                                                                                       \
    X(sent_mean)                                                                                   \
    X(sign_pack)                                                                                   \
    X(sign_mean)                                                                                   \
    X(mean)                                                                                        \
    X(mean_backward)                                                                               \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(tanh)                                                                                        \
    X(tanh_backward)                                                                               \
    X(dropout_draw)                                                                                \
    X(dropout)                                                                                     \
    X(select)                                                                                      \
    X(channel_scale)                                                                               \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(transpose)                                                                                   \
    X(copy_columns)                                                                                \
    X(gate)                                                                                        \
    X(gate_backward)                                                                               \
    X(log_probs)                                                                                   \
    X(log_probs_backward)                                                                          \
    X(entropy)                                                                                     \
    X(entropy_backward)                                                                            \
    X(policy_loss)                                                                                 \
    X(kl_terms)                                                                                    \
    X(value_loss)                                                                                  \
    X(ranking_loss)                                                                                \
    X(ranking_loss_backward)                                                                       \
    X(masked_mean)                                                                                 \
    X(masked_mean_backward)                                                                        \
    X(sequence_sum)                                                                                \
    X(sequence_sum_backward)                                                                       \
    X(embedding)                                                                                   \
    X(embedding_backward)                                                                          \
    X(positions)                                                                                   \
    X(positions_backward)                                                                          \
    X(row_norm)                                                                                    \
    X(row_norm_backward)                                                                           \
    X(batch_norm)                                                                                  \
    X(batch_norm_backward)                                                                         \
    X(to_fp8)                                                                                      \
    X(linear)                                                                                      \
    X(linear_grad_x)                                                                               \
    X(linear_grad_w)                                                                               \
    X(lora_merge)                                                                                  \
    X(column_sums)                                                                                 \
    X(activation_backward)                                                                         \
    X(conv)                                                                                        \
    X(conv_backward)                                                                               \
    X(attention)                                                                                   \
    X(attention_backward)                                                                          \
    X(cross_entropy)                                                                               \
    X(hits)                                                                                        \
    X(scale_by)                                                                                    \
    X(head)                                                                                        \
    X(head_backward)                                                                               \
    X(row_factors)                                                                                 \
    X(picked_log_probs)                                                                            \
    X(picked_loss)                                                                                 \
    X(decoder_pack)                                                                                \
    X(decoder_pass)                                                                                \
    X(decoder_logits)

/* The device's functions, one for each kernel. A function asks for the kernel; the caller may
 * change the arguments afterwards. Errors: a failure that is known at once. `synchronize` reports a
 * later one. */
typedef struct exo_kernels {
#define EXO_KERNEL_FIELD(name)                                                                     \
    exo_status (*name)(exo_device * device, const exo_##name##_args *args, exo_err *err);
    EXO_KERNELS(EXO_KERNEL_FIELD)
#undef EXO_KERNEL_FIELD
} exo_kernels;

/* --- Plans and scratch ------------------------------------------------------------------------ */

typedef enum exo_shape_kind { /* the shape is exo_NAME_shape */
    EXO_SHAPE_ROW_NORM,
    EXO_SHAPE_BATCH_NORM,
    EXO_SHAPE_LINEAR,
    EXO_SHAPE_CONV,
    EXO_SHAPE_ATTENTION,
    EXO_SHAPE_HEAD,
    EXO_SHAPE_DECODER,
    EXO_SHAPE_NEWTON_SCHULZ,
} exo_shape_kind;

typedef enum exo_scratch_use {
    EXO_SCRATCH_FORWARD,
    EXO_SCRATCH_BACKWARD,
    /* Of a backward kernel that hands over rows (exo_head_args.take_rows). A scratch of 0 bytes
     * says that this device cannot do so for the shape. */
    EXO_SCRATCH_ROWS,
    /* Of each of the EXO_HEAD_LANES buffers of exo_head_args.logits; 0: the device keeps none. */
    EXO_SCRATCH_LOGITS,
    EXO_SCRATCH_WEIGHTS, /* the weights of a decoder */
    EXO_SCRATCH_CACHE,   /* the cache of one of its sequences */
    EXO_SCRATCH_CHOICE,  /* of `choose` */
} exo_scratch_use;

/* A device's data for the kernels of one shape, such as primitives and tables. A device embeds this
 * struct at the beginning of its own. */
struct exo_plan {
    exo_device *device;
    exo_shape_kind kind;
};

/* Makes a plan of a linear layer, a convolution, an attention, a head, a decoder or a Newton-Schulz
 * iteration. It serves this device's kernels only, one at a time. Errors: UNSUPPORTED, NOMEM, or
 * INVAL: the sizes of a decoder cannot be counted. */
exo_status exo_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
                        exo_err *err);
/* Frees a plan, once the kernels that were asked for with it have run. Sets *plan to NULL. */
void exo_plan_free(exo_plan **plan);

/* --- Devices ---------------------------------------------------------------------------------- */

typedef enum exo_copy_kind {
    EXO_COPY_TO_DEVICE,   /* `from` may change as soon as the call has returned */
    EXO_COPY_FROM_DEVICE, /* `to` is filled when the device has been synchronized */
    EXO_COPY_ON_DEVICE,
} exo_copy_kind;

/* Memory of a device that belongs to no exo_device, and that several processes of this host open. */
typedef struct exo_device_share {
    uint64_t bytes;
    uint8_t unit[16];   /* which device has it: the UUID of a GPU */
    uint8_t handle[64]; /* by which another process opens it */
    void *memory;       /* its address in this process */
    int ordinal;        /* of the GPU by which this process has it */
    uint32_t named;     /* 0: no other process can open it */
} exo_device_share;

typedef struct exo_device_class {
    const char *name; /* a literal */
    /* Its memory is the host's, at the same addresses, and each call is done when it returns. */
    bool is_host;
    /* A pass can ask for results that have the bits of generation (exo_pass.invariant): kernels
     * know the shapes that are `invariant`, and the rows of the other kernels of a decoder are
     * computed as those of decoder_pass are. */
    bool invariant;
    /* Says why the device has no products of fp8 (exo_linear_shape.fp8): UNSUPPORTED. NULL: it has
     * none. */
    exo_status (*check_fp8)(const exo_device *device, exo_err *err);
    /* decoder_logits can give the log-sums of its rows, in the order of the device's head. Else the
     * host's own are those of the head. */
    bool log_sums;
    /* decoder_pass and decoder_logits compute a part of a decoder with its peers
     * (exo_decoder_shape.members). */
    bool parts;
    /* Chooses tokens; for devices with `log_sums`. NULL: the host chooses, from the logits. It is asked
     * for as a kernel is. */
    exo_status (*choose)(exo_device *device, const exo_choose_args *args, exo_err *err);
    /* Gives zeroed memory, aligned to 64 bytes. bytes may be 0. Errors: NOMEM. */
    exo_status (*alloc)(exo_device *device, size_t bytes, void **out, exo_err *err);
    /* Frees memory from `alloc`, after the work that was asked for before. Accepts NULL. */
    void (*free)(exo_device *device, void *memory, size_t bytes);
    /* Memory that comes and goes at a fixed address, as of base/pages.h. `pages_reserve` gives
     * addresses without memory, and `pages_open` gives them memory, all zero. `pages_close` takes
     * the memory back, after the work that was asked for before. `pages_free` takes the addresses
     * back, those of open pages too, and accepts NULL. Errors: NOMEM. */
    exo_status (*pages_reserve)(exo_device *device, size_t bytes, void **out, exo_err *err);
    exo_status (*pages_open)(exo_device *device, void *pages, size_t bytes, exo_err *err);
    void (*pages_close)(exo_device *device, void *pages, size_t bytes);
    void (*pages_free)(exo_device *device, void *pages, size_t bytes);
    /* Copies in the order of the device's work, as a kernel does. */
    exo_status (*copy)(exo_device *device, void *to, const void *from, size_t bytes,
                       exo_copy_kind kind, exo_err *err);
    /* Waits for all work. Errors: the first failure of anything that was asked for. */
    exo_status (*synchronize)(exo_device *device, exo_err *err);
    /* Between the two calls a device may put off what it is asked for, so as to start it together:
     * up to the end, or to a call that needs its results (a copy to the host, `synchronize`, `free`
     * and the like). Then `section_end`, or that call, reports a failure of what was put off.
     * Sections may lie within each other: then the end of the outermost one starts the rest. An end
     * without a begin changes nothing. NULL, both: the device starts its work at once. */
    void (*section_begin)(exo_device *device);
    exo_status (*section_end)(exo_device *device, exo_err *err);
    const exo_kernels *kernels;
    exo_status (*plan_new)(exo_plan **out, exo_device *device, exo_shape_kind kind,
                           const void *shape, exo_err *err);
    void (*plan_free)(exo_plan *plan);
    /* The bytes of `scratch` that a kernel of this shape needs; 0: none. A decoder's shape has a
     * plan. */
    size_t (*scratch)(const exo_device *device, exo_shape_kind kind, const void *shape,
                      exo_scratch_use use);
    /* The bytes that can still be allocated; 0: unknown. */
    uint64_t (*free_memory)(const exo_device *device);
    /* Memory of several threads and processes (joint.h); NULL, all of them: the device has none.
     * Functions without a device are called by any thread. `share_new` makes memory, with any contents. `share_open` opens what another process made: bytes, unit and
     * handle are given, from an untrusted process; memory and ordinal are written, memory also with an error
     * if it is open. `share_free` frees the memory, or closes it if it is `foreign`. False: that might wait
     * for another process; the caller keeps it and tries again later. Errors: NOMEM; UNSUPPORTED: this
     * device or process cannot open it; INVAL: it is smaller than it says. */
    exo_status (*share_new)(exo_device *device, uint64_t bytes, exo_device_share *out,
                            exo_err *err);
    exo_status (*share_open)(exo_device *device, exo_device_share *share, exo_err *err);
    bool (*share_free)(const exo_device_share *share, bool foreign);
    /* Whether the device's kernels reach the memory. */
    bool (*share_is_on)(const exo_device *device, const exo_device_share *share);
    /* Marks in the order of devices' work. `share_mark` makes one if *mark is NULL, and puts it behind
     * what the device was asked. `share_follow`: what the device is asked from now on begins behind
     * it. `share_wait` waits for it, and `share_reached` says whether it has come, or never will. */
    exo_status (*share_mark)(exo_device *device, void **mark, exo_err *err);
    exo_status (*share_follow)(exo_device *device, void *mark, exo_err *err);
    exo_status (*share_wait)(void *mark, exo_err *err);
    bool (*share_reached)(void *mark);
    void (*share_unmark)(void *mark);
    /* Copies to the host, behind the mark if there is one, beside the work of devices. *reader has
     * what it needs for that, and is made if it is NULL. */
    exo_status (*share_read)(void **reader, const exo_device_share *share, void *mark, void *to,
                             uint64_t bytes, exo_err *err);
    void (*share_reader_free)(void *reader);
} exo_device_class;

/* A device. A class embeds this struct at the beginning of its own. */
struct exo_device {
    const exo_device_class *device_class;
    /* Room on the device for one sum. NULL on the host, where sums are written to their
     * destination. */
    double *scalar;
    /* The first failure that a call returned at once; code OK: none. A host's device remembers
     * none. */
    exo_err failed;
};

/* The methods `pages_...` of devices whose memory is the host's. */
exo_status exo_host_pages_reserve(exo_device *device, size_t bytes, void **out, exo_err *err);
exo_status exo_host_pages_open(exo_device *device, void *pages, size_t bytes, exo_err *err);
void exo_host_pages_close(exo_device *device, void *pages, size_t bytes);
void exo_host_pages_free(exo_device *device, void *pages, size_t bytes);

/* Records the status of a call on the device, unless an earlier call has failed. */
void exo_device_note(exo_device *device, exo_status status, const exo_err *err);

/* Asks for a kernel by its name in the table, with designated arguments:
 *
 *     exo_device_run(d, fill, .count = n, .y = y);
 *
 * The device remembers a failure. */
#define exo_device_run(on, kernel, ...)                                                            \
    do {                                                                                           \
        exo_err reason_;                                                                           \
        exo_device *on_ = (on);                                                                    \
        reason_.code = EXO_OK;                                                                     \
        exo_device_note(on_,                                                                       \
                        on_->device_class->kernels->kernel(                                        \
                            on_, &(const exo_##kernel##_args){__VA_ARGS__}, &reason_),             \
                        &reason_);                                                                 \
    } while (0)

#endif
