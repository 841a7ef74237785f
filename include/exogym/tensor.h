/* Tensors and the autograd tape.
 *
 * A forward pass calls operations on a tape; each operation records the values that its backward
 * needs. exo_tape_backward walks the tape from the loss and adds gradients to the parameters' flat
 * gradient buffer. exo_tape_begin discards the pass and keeps the memory: from the second step of
 * equal shapes on, no memory is allocated.
 *
 * Errors stick: an operation that fails returns NULL and records the reason in the tape; an
 * operation with a NULL operand returns NULL. So a model needs no check after each line: the caller
 * of the model asks exo_tape_error once.
 *
 * Threads: a tape and its tensors belong to one thread at a time. An operation spreads its work
 * over the compute threads of the process. The number of pieces does not depend on the number of
 * threads, so results are the same to the bit with any number.
 *
 * model.h describes models; sequence.h, loss.h and parallel.h have further operations.
 */
#ifndef EXOGYM_TENSOR_H
#define EXOGYM_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/device.h>
#include <exogym/dtype.h>
#include <exogym/meter.h>
#include <exogym/rng.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The most dimensions of a tensor. */
enum {
    EXO_MAX_DIMS = 4
};

/* A tensor of the current pass, valid until the next exo_tape_begin. Operations document its
 * logical shape, (N, C, H, W) for images; the layout in memory is internal. */
typedef struct exo_tensor exo_tensor;
/* A tape: the recorded operations of a pass, and their memory. One thread at a time. */
typedef struct exo_tape exo_tape;

/* The parameters of one copy of a model (model.h). */
typedef struct exo_params exo_params;
/* One parameter or buffer of a model, the same in every copy of the model. */
typedef struct exo_param {
    uint32_t index; /* index in the order of declaration */
} exo_param;

/* A receiver of gradients during backward, instead of a buffer for all of them. exo_optim_sink()
 * makes one that takes an optimizer's step. */
typedef struct exo_grad_sink {
    /* The gradient of the elements [first, first + count) of the flat parameters is final. The pass
     * no longer reads the values of these elements, so they may change here. Every element of
     * exo_params_values arrives once in a backward. Several threads may call at once, for ranges
     * that do not overlap. `grad` (count) lives as long as the call. Must not wait for another
     * call. */
    void (*take)(void *context, size_t first, size_t count, const float *grad);
    void *context;
} exo_grad_sink;

/* A receiver of notices that gradients in exo_params_grads are final. exo_strategy_gradient_ready()
 * notifies a strategy. */
typedef struct exo_grad_ready {
    /* The gradient of the elements [first, first + count) of the flat parameters, one whole
     * parameter, is final and may be read and changed. Called on the thread of backward, in its
     * order. Every element of exo_params_values occurs once in a backward; parameters that the pass
     * has not used come at the end. An error ends backward. */
    exo_status (*tell)(void *context, size_t first, size_t count, exo_err *err);
    void *context;
} exo_grad_ready;

/* A receiver of notices that a pass enters or leaves a unit of the parameters (exo_model_units).
 * exo_strategy_before_use() passes them on to a strategy, which then gathers absent values.
 *
 * A pass is in the units that its latest operation with parameters reads. When an operation, in
 * forward or in backward, reads a unit that the pass is not in, `before` is called for that unit,
 * and `after` for the units that the pass leaves. Backward begins in the units in which forward
 * ended, and ends by leaving its last ones. It does not enter a unit for a table whose values it
 * does not read. Both functions run on the thread of the pass. An error ends the pass; only
 * exo_tape_leave_units calls them afterwards. The order of the calls is the same on all nodes if
 * the order of the model's operations is. */
typedef struct exo_unit_hooks {
    /* The pass is about to read the unit's values. They are whole when this returns. */
    exo_status (*before)(void *context, size_t unit, exo_err *err);
    /* The pass has left the unit. Its memory may be given back until the next `before`. */
    exo_status (*after)(void *context, size_t unit, exo_err *err);
    void *context; /* the first argument of both */
} exo_unit_hooks;

/* The types of the operands of matrix products. Sums are fp32, and so are parameters. */
typedef enum exo_autocast {
    EXO_AUTOCAST_NONE, /* fp32 */
    /* Matrix products and convolutions take bf16 operands, as in PyTorch's autocast. */
    EXO_AUTOCAST_BF16,
    /* As BF16, and linear layers take fp8 operands where rows, inputs and outputs are multiples of
     * 16: E4M3 forward, and gradients as E5M2, each matrix with one scale, which comes from its
     * largest magnitude (docs/gpu.md). On GPUs of compute capability 8.9 or later. */
    EXO_AUTOCAST_FP8,
} exo_autocast;

/* Options of a pass. */
typedef struct exo_pass {
    bool train; /* true: batch statistics and dropout; false: running statistics */
    bool grad;  /* record for backward */
    /* Errors of fp8, in the tape: UNSUPPORTED (the device cannot do so), INVAL (at backward: no layer
     * of the pass has such sizes). */
    exo_autocast autocast;
    /* The forward of a decoder's operations (exo_linear and its kin, exo_attention, the norms,
     * gates, activations, embeddings, exo_add) and exo_log_probs has the bits of generation
     * (generate.h) with the same weights on the same processor: a row's result does not depend on
     * the other rows of the batch, on padding after it, or on the number of threads. Backward
     * computes as usual. Errors, in the tape: INVAL (with autocast, or with dropout in an
     * attention), UNSUPPORTED (the device cannot do so). */
    bool invariant;
    /* dropout draws from (seed, DROPOUT, node, step), each layer from a range of its own */
    uint64_t seed;
    uint32_t node;
    uint64_t step;               /* number of the pass: differs for the minibatches of a step */
    const exo_grad_sink *sink;   /* NULL: backward adds to exo_params_grads */
    const exo_grad_ready *ready; /* NULL: none. Only without a sink */
    const exo_unit_hooks *units; /* NULL: all units have memory, and no hook is called */
} exo_pass;

/* exo_tape_new makes an empty tape, which the caller frees; NOMEM. exo_tape_free sets *tape to NULL
 * and accepts NULL in it. */
EXO_API exo_status exo_tape_new(exo_tape **out, exo_err *err);
/* Makes a tape for rehearsals on the CPU. A pass over it asks for the buffers of a real pass, which
 * take addresses and hardly any memory; its results are meaningless. The caller frees it. NOMEM. */
EXO_API exo_status exo_tape_new_rehearsal(exo_tape **out, exo_err *err);
/* Makes a tape on a device, which must outlive it. The tape's buffers are on the device, and
 * `params` of its passes must be, too (exo_params_to). Inputs are copied to the device. A read of a
 * tensor's values waits for the device, and records a failure of the device in the tape. */
EXO_API exo_status exo_tape_new_on(exo_tape **out, exo_device *device, exo_err *err);
EXO_API void exo_tape_free(exo_tape **tape);

/* Starts a pass over the model copy in `params`, or NULL for a pass without parameters; all tensors
 * of the last pass become invalid. `params` must live until the pass is over. exo_tape_pass returns
 * the options of the current pass. */
EXO_API void exo_tape_begin(exo_tape *tape, exo_params *params, const exo_pass *pass);
EXO_API const exo_pass *exo_tape_pass(const exo_tape *tape);

/* Ends a pass without backward: calls `after` for the units that the pass is in. After an error of
 * the hooks these are the units that were entered and not left. Does nothing without hooks. Errors:
 * those of `after`. */
EXO_API exo_status exo_tape_leave_units(exo_tape *tape, exo_err *err);

/* Adds d(scale * loss)/d(parameter) to every parameter's gradient, or hands it to the pass's sink.
 * With a sink, memory holds only the gradients that are not final yet; the bits are the same.
 * `loss` has one element. Once per pass. After an error a sink may have received a part of the
 * gradients. */
EXO_API exo_status exo_tape_backward(exo_tape *tape, exo_tensor *loss, float scale, exo_err *err);

/* The same from a tensor of any size, for models that run in pieces: adds d(sum(grad x))/d(parameter).
 * x fp32, a result of the pass; grad (numel) in host memory, row-major, not read after the call. INVAL:
 * x has another type, or is a parameter or an image. */
EXO_API exo_status exo_tape_backward_from(exo_tape *tape, exo_tensor *x, const float *grad,
                                          exo_err *err);

/* The first error since exo_tape_begin, or EXO_OK. */
EXO_API exo_status exo_tape_error(const exo_tape *tape, exo_err *err);
/* Records an error in the tape, for operations and models of your own; returns NULL. */
EXO_API exo_tensor *exo_tape_fail(exo_tape *tape, exo_status status, const char *format, ...)
    EXO_PRINTF(3, 4);

/* The bytes that the tape holds; the number of its allocations. Both are constant in a steady
 * state. */
EXO_API size_t exo_tape_bytes(const exo_tape *tape);
EXO_API uint64_t exo_tape_allocations(const exo_tape *tape);

/* A parameter or buffer of the pass's model copy, as a tensor. */
EXO_API exo_tensor *exo_tape_param(exo_tape *tape, exo_param param);
/* A tensor of the caller's memory: row-major, not copied, without a gradient. `data` must stay
 * unchanged until the pass is over. */
EXO_API exo_tensor *exo_tape_input(exo_tape *tape, exo_dtype dtype, size_t num_dims,
                                   const size_t *dims, const void *data);
/* The same with a gradient, which exo_tensor_grad reads after backward: for tests, and for models
 * that run in pieces. fp32. */
EXO_API exo_tensor *exo_tape_variable(exo_tape *tape, size_t num_dims, const size_t *dims,
                                      const float *data);

/* The most metrics of a pass. */
enum {
    EXO_TAPE_METRICS = 8
};

/* Reports a metric of this pass besides the loss, such as accuracy: its mean over `count` samples.
 * `metric` is a gauge and static. In training it is a meter of the node's model (meter.h), the mean
 * over a step; in evaluations it is one of the validation, the mean over all samples. A pass has at
 * most EXO_TAPE_METRICS; further ones are ignored.
 *
 * A model whose loss is not the mean over the samples of a batch reports its loss as the metric
 * "loss", with the true count, such as the number of tokens with a target. Evaluations then weigh
 * batches by this count.
 *
 * exo_tape_num_metrics and exo_tape_metric_at read the metrics of the pass. */
EXO_API void exo_tape_metric(exo_tape *tape, const exo_meter_class *metric, double mean,
                             size_t count);
EXO_API size_t exo_tape_num_metrics(const exo_tape *tape);
EXO_API const exo_meter_class *exo_tape_metric_at(const exo_tape *tape, size_t index, double *mean,
                                                  size_t *count);

/* Writes the shape to `dims`, which has room for EXO_MAX_DIMS, and returns the number of
 * dimensions. */
EXO_API size_t exo_tensor_dims(const exo_tensor *tensor, size_t *dims);
/* The number of elements. */
EXO_API size_t exo_tensor_numel(const exo_tensor *tensor);
/* The type of the elements. */
EXO_API exo_dtype exo_tensor_dtype(const exo_tensor *tensor);
/* Copies the values as row-major fp32 to `out` (numel). To be called before backward, which reuses
 * the memory of values, except those of inputs, variables, parameters and tensors of one
 * element. */
EXO_API void exo_tensor_read(const exo_tensor *tensor, float *out);
/* Copies the gradient of a variable or parameter to `out` (numel), after backward; zeros if the
 * loss does not depend on it. */
EXO_API void exo_tensor_grad(const exo_tensor *tensor, float *out);
/* The value of a tensor of one element. */
EXO_API float exo_tensor_item(const exo_tensor *tensor);

/* --- Operations -------------------------------------------------------------------------------
 *
 * Shapes: N batch, C channels, H x W, K classes, D features. All are differentiable in their fp32
 * operands. */

/* Options of a convolution. */
typedef struct exo_conv2d_opts {
    size_t stride;  /* 0 counts as 1 */
    size_t padding; /* rows and columns of zeros on every side */
} exo_conv2d_opts;

/* Convolution: x (N, C, H, W), weight (O, C, R, S), bias (O) or NULL -> (N, O, H', W'), where H' =
 * (H + 2 padding - R) / stride + 1. `opts` may be NULL: stride 1, no padding. */
EXO_API exo_tensor *exo_conv2d(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                               const exo_conv2d_opts *opts);

/* Options of exo_batch_norm. */
typedef struct exo_batch_norm_opts {
    float eps; /* 0 counts as 1e-5 */
    /* 0 counts as 0.1: running <- (1 - m) running + m batch, the variance unbiased */
    float momentum;
    bool relu; /* applies max(y, 0) in the same sweep */
} exo_batch_norm_opts;

/* Batch normalization (Ioffe & Szegedy, 2015, arXiv:1502.03167). x (N, C, H, W) or (N, C); weight
 * and bias (C) are scale and shift; running_mean and running_var (C) are buffers, read in
 * evaluation and updated in training. `opts` may be NULL. */
EXO_API exo_tensor *exo_batch_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                   exo_tensor *bias, exo_tensor *running_mean,
                                   exo_tensor *running_var, const exo_batch_norm_opts *opts);

/* max(x, 0) of each element. */
EXO_API exo_tensor *exo_relu(exo_tape *tape, exo_tensor *x);

/* Maxima of windows of size x size with stride `size`, without padding: x (N, C, H, W) -> (N, C, H
 * / size, W / size). Rows and columns that fill no window are dropped. The first maximum of a
 * window, in row-major order, gets the gradient. */
EXO_API exo_tensor *exo_max_pool2d(exo_tape *tape, exo_tensor *x, size_t size);

/* Zeroes elements (dropout) or whole channels of a sample (dropout2d) with probability p in [0, 1),
 * and scales the others by 1 / (1 - p). The identity outside training. */
EXO_API exo_tensor *exo_dropout(exo_tape *tape, exo_tensor *x, float p);
EXO_API exo_tensor *exo_dropout2d(exo_tape *tape, exo_tensor *x, float p);

/* (N, ...) -> (N, product of the other dimensions), the elements in the order (C, H, W). */
EXO_API exo_tensor *exo_flatten(exo_tape *tape, exo_tensor *x);

/* y = x weight^T + bias. x (N, D), weight (O, D), bias (O) or NULL -> (N, O). */
EXO_API exo_tensor *exo_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias);

/* tanh(x) of each element. */
EXO_API exo_tensor *exo_tanh(exo_tape *tape, exo_tensor *x);
/* a + b for each element; equal shapes. */
EXO_API exo_tensor *exo_add(exo_tape *tape, exo_tensor *a, exo_tensor *b);
/* a b for each element; equal shapes. */
EXO_API exo_tensor *exo_mul(exo_tape *tape, exo_tensor *a, exo_tensor *b);
/* factor x of each element. */
EXO_API exo_tensor *exo_scale(exo_tape *tape, exo_tensor *x, float factor);
/* The mean of all elements -> one element. */
EXO_API exo_tensor *exo_mean(exo_tape *tape, exo_tensor *x);

/* The mean of -log softmax(logits)[label] over the rows whose label is not negative -> one element,
 * fp32 also under autocast; 0 if there is no such row. logits (N, K), labels (N) int32. A label of
 * K or more is an error of the tape. loss.h has further losses. */
EXO_API exo_tensor *exo_softmax_cross_entropy(exo_tape *tape, exo_tensor *logits,
                                              exo_tensor *labels);

/* The fraction of rows whose largest logit (the first of equal ones) is at the label, among the
 * rows whose label is not negative; NaN if there is no such row. Not an operation of the tape: no
 * gradient. */
EXO_API double exo_accuracy(const exo_tensor *logits, const exo_tensor *labels);

/* --- Operations of your own ------------------------------------------------------------------- */

/* The most inputs of such an operation. */
enum {
    EXO_CUSTOM_INPUTS = 4
};

/* One call of the operation. The arrays lie on the device of the pass, hold fp32 in row-major order
 * (images as (N, C, H, W)), and are valid during the call. Use exo_vec_*, which runs on every
 * device, or ask exo_array_host for memory to loop over. */
typedef struct exo_custom_call {
    const void *args;                    /* a copy of the caller's arguments */
    size_t num_inputs;                   /* as given to exo_tape_custom */
    exo_array inputs[EXO_CUSTOM_INPUTS]; /* the values, to read */
    exo_array output;                    /* forward writes it; backward reads it */
    exo_array saved;                     /* forward writes it, for backward */
    exo_array output_grad;               /* backward: d loss / d output, to read */
    /* backward adds d loss / d input; no elements: this gradient is not needed */
    exo_array input_grads[EXO_CUSTOM_INPUTS];
} exo_custom_call;

/* An operation; must live as long as the tapes that record it. Both functions run on the thread of
 * the pass, return equal bits for equal arguments, and hold no state: a checkpoint may run forward
 * twice in a pass. A status other than EXO_OK ends the pass. */
typedef struct exo_custom_op {
    const char *name; /* for messages */
    size_t args_size; /* bytes of `args` */
    exo_status (*forward)(const exo_custom_call *call, exo_err *err);
    /* NULL: no gradient goes to the inputs */
    exo_status (*backward)(const exo_custom_call *call, exo_err *err);
} exo_custom_op;

/* Records a call of `op` with an output of the given shape. `args` (args_size bytes of plain data)
 * is copied, and may be NULL if args_size is 0. `saved`: the number of fp32 elements that forward
 * leaves for backward. Inputs of another type are cast to fp32. Errors, in the tape: INVAL (too
 * many inputs or dimensions, no function), NOMEM, those of forward. examples/23_own_operation has
 * an example. */
EXO_API exo_tensor *exo_tape_custom(exo_tape *tape, const exo_custom_op *op,
                                    exo_tensor *const *inputs, size_t num_inputs, size_t num_dims,
                                    const size_t *dims, size_t saved, const void *args);

/* --- Compute threads -------------------------------------------------------------------------- */

/* The number of threads that compute at once in this process, 1 to 1024. The default is
 * EXOGYM_THREADS, or else the number of usable cores. Call it while no thread computes, as before a
 * fit: what computes has memory for the number at its begin. */
EXO_API void exo_set_num_threads(unsigned threads);
EXO_API unsigned exo_num_threads(void);

EXO_DECLS_END

#endif
