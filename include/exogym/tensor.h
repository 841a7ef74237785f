/* Tensors and the autograd tape.
 *
 * A forward pass calls operations on a tape; each records what its backward pass needs. exo_tape_backward walks the tape
 * from the loss and adds gradients into the parameters' flat gradient buffer. exo_tape_begin forgets the pass and keeps
 * the memory: from the second step of equal shapes on, no memory is allocated.
 *
 * Errors stick: an operation that fails gives NULL and records why in the tape; an operation given NULL gives NULL. So a
 * model is written without a check a line, and the one who runs it asks exo_tape_error once.
 *
 * Threads: a tape and its tensors belong to one thread at a time. Inside an operation the work is spread over the
 * process's compute threads in pieces whose number does not depend on how many threads there are: results are the same
 * to the bit with any number.
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

/* A tensor of the current pass: valid until the next exo_tape_begin. Its logical shape is what operations document, for
 * images (N, C, H, W); how it lies in memory is the engine's business. */
typedef struct exo_tensor exo_tensor;
typedef struct exo_tape exo_tape;

/* The parameters of one copy of a model; see model.h. */
typedef struct exo_params exo_params;
/* Names one parameter or buffer of a model: the same in every copy of it. */
typedef struct exo_param {
    uint32_t index; /* in the order of declaration */
} exo_param;

/* Who takes the gradients of a pass as they come, in place of a buffer for all of them: exo_optim_sink() makes an optimizer's step of it. */
typedef struct exo_grad_sink {
    /* Elements [first, first + count) of the flat parameters have this gradient: nothing more will be added, and nothing of the pass still
     * reads their values, which may change here. Every element of exo_params_values comes once a backward; several calls at a time from any
     * threads, for parts that do not overlap. `grad` (count) lives as long as the call. Must not wait for another call. */
    void (*take)(void *context, size_t first, size_t count, const float *grad);
    void *context;
} exo_grad_sink;

/* Who is told of gradients in exo_params_grads as soon as a pass adds no more to them: exo_strategy_gradient_ready() tells a strategy. */
typedef struct exo_grad_ready {
    /* Elements [first, first + count) of the flat parameters: a whole parameter. On backward's thread, in the order in which it comes to
     * them; every element of exo_params_values once a backward, those that the pass has not used at its end. The gradients may be read and
     * changed from here on. An error ends backward. */
    exo_status (*tell)(void *context, size_t first, size_t count, exo_err *err);
    void *context;
} exo_grad_ready;

/* Who is told when a pass comes to a unit of the parameters (exo_model_units), and when it has left it: exo_strategy_before_use() tells a
 * strategy, which gathers there what is absent. A pass is in the units that its last operation with parameters has read: `before` is called
 * when an operation, in forward or in backward, reads a unit that the pass is not in, and `after` for those that it thereby leaves. Backward
 * begins in the units in which forward ended, ends with `after`, and passes over tables whose values it does not read. On the pass's thread; an
 * error ends the pass. Equal on all nodes, if what the model does is. */
typedef struct exo_unit_hooks {
    /* Values of the unit are about to be read: they are to be there, whole, when this returns. */
    exo_status (*before)(void *context, size_t unit, exo_err *err);
    /* They are not read for now, and may go. */
    exo_status (*after)(void *context, size_t unit, exo_err *err);
    void *context; /* what both get */
} exo_unit_hooks;

/* How a pass runs. */
typedef struct exo_pass {
    bool train;    /* batch statistics and dropout; otherwise running statistics and none         */
    bool grad;     /* record for backward                                                         */
    bool autocast; /* matrix products and convolutions take bf16 operands, as PyTorch's autocast  */
    uint64_t seed; /* dropout draws from (seed, DROPOUT, node, step), a fresh part for each layer */
    uint32_t node;
    uint64_t step;               /* counts passes, not optimizer steps, when a step has several minibatches     */
    const exo_grad_sink *sink;   /* NULL: backward adds to exo_params_grads                             */
    const exo_grad_ready *ready; /* NULL: nobody is told. Without a sink only */
    const exo_unit_hooks *units; /* NULL: all units are there, and nobody is told */
} exo_pass;

/* An empty tape, which the caller frees; accepts NULL in *tape, and sets it to NULL. NOMEM. */
EXO_API exo_status exo_tape_new(exo_tape **out, exo_err *err);
EXO_API void exo_tape_free(exo_tape **tape);

/* Starts a pass over the model copy whose values, gradients and buffers are in `params` (may be NULL for passes without
 * parameters). Everything of the last pass is invalid from here on. `params` must live until the pass is over. */
EXO_API void exo_tape_begin(exo_tape *tape, exo_params *params, const exo_pass *pass);
EXO_API const exo_pass *exo_tape_pass(const exo_tape *tape);

/* Leaves the units that a pass without backward is in (exo_unit_hooks); without hooks nothing happens. Errors: those of `after`. */
EXO_API exo_status exo_tape_leave_units(exo_tape *tape, exo_err *err);

/* Adds d(scale * loss)/d(parameter) to every parameter's gradient, or hands it to the pass's sink: in memory there are then the gradients
 * that are not yet whole. The bits are the same. `loss` has one element. Once per pass. After an error a sink may have been handed a part. */
EXO_API exo_status exo_tape_backward(exo_tape *tape, exo_tensor *loss, float scale, exo_err *err);

/* The first error since exo_tape_begin, or EXO_OK. */
EXO_API exo_status exo_tape_error(const exo_tape *tape, exo_err *err);
/* Records an error, for operations and models of your own; gives NULL. */
EXO_API exo_tensor *exo_tape_fail(exo_tape *tape, exo_status status, const char *format, ...) EXO_PRINTF(3, 4);

/* Bytes that the tape holds, and how many times it has asked the allocator: constant in a steady state. */
EXO_API size_t exo_tape_bytes(const exo_tape *tape);
EXO_API uint64_t exo_tape_allocations(const exo_tape *tape);

/* A parameter or buffer of the pass's model copy as a tensor. */
EXO_API exo_tensor *exo_tape_param(exo_tape *tape, exo_param param);
/* A tensor over the caller's memory, row-major, not copied, no gradient; must stay until the pass is over. */
EXO_API exo_tensor *exo_tape_input(exo_tape *tape, exo_dtype dtype, size_t num_dims, const size_t *dims,
                                   const void *data);
/* The same, with a gradient that exo_tensor_grad reads after backward: for tests and for models in pieces. fp32. */
EXO_API exo_tensor *exo_tape_variable(exo_tape *tape, size_t num_dims, const size_t *dims, const float *data);

/* How many figures a pass can report. */
enum {
    EXO_TAPE_METRICS = 8
};

/* Reports a figure of this pass beside the loss, as accuracy: the mean over `count` samples. `metric`, a gauge, is static. In training it is a
 * meter of the node's model (meter.h), the mean over a step; in evaluations one of the validation, the mean over all samples. At most
 * EXO_TAPE_METRICS a pass; more are not heard. A model whose loss is not the mean over the batch's samples reports it under the name "loss", with
 * the count of what it is the mean over, as tokens that count: evaluations weigh batches by that. */
EXO_API void exo_tape_metric(exo_tape *tape, const exo_meter_class *metric, double mean, size_t count);
EXO_API size_t exo_tape_num_metrics(const exo_tape *tape);
EXO_API const exo_meter_class *exo_tape_metric_at(const exo_tape *tape, size_t index, double *mean, size_t *count);

/* What a tensor is. `dims` has room for EXO_MAX_DIMS; gives the number of dimensions. */
EXO_API size_t exo_tensor_dims(const exo_tensor *tensor, size_t *dims);
/* The product of its dimensions. */
EXO_API size_t exo_tensor_numel(const exo_tensor *tensor);
/* Its type. */
EXO_API exo_dtype exo_tensor_dtype(const exo_tensor *tensor);
/* Copies the values as row-major fp32 to `out` (numel). Before backward: it reuses the memory of what it has passed, but for tensors of
 * one element, inputs, variables and parameters. */
EXO_API void exo_tensor_read(const exo_tensor *tensor, float *out);
/* The gradient, after backward, of a variable or parameter; zeros if nothing led to it. */
EXO_API void exo_tensor_grad(const exo_tensor *tensor, float *out);
/* The value of a tensor of one element. */
EXO_API float exo_tensor_item(const exo_tensor *tensor);

/* --- Operations. Shapes: N batch, C channels, H x W, K classes, D features. All differentiable in fp32 operands. --- */

/* How a convolution moves over its input. */
typedef struct exo_conv2d_opts {
    size_t stride;  /* 0 counts as 1 */
    size_t padding; /* zeros on every side */
} exo_conv2d_opts;

/* x (N, C, H, W), weight (O, C, R, S), bias (O) or NULL -> (N, O, H', W'), H' = (H + 2 padding - R) / stride + 1.
 * `opts` may be NULL: stride 1, no padding. */
EXO_API exo_tensor *exo_conv2d(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                               const exo_conv2d_opts *opts);

/* Constants of exo_batch_norm. */
typedef struct exo_batch_norm_opts {
    float eps;      /* 0 counts as 1e-5                                                                   */
    float momentum; /* 0 counts as 0.1: running <- (1 - m) running + m batch, the variance unbiased       */
    bool relu;      /* max(y, 0) in the same sweep                                                        */
} exo_batch_norm_opts;

/* Batch normalization (Ioffe & Szegedy, 2015). x (N, C, H, W) or (N, C); weight, bias (C): scale and shift;
 * running_mean, running_var (C): buffers, read in eval, updated in train. `opts` may be NULL. */
EXO_API exo_tensor *exo_batch_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                                   exo_tensor *running_mean, exo_tensor *running_var, const exo_batch_norm_opts *opts);

/* max(x, 0) of each element. */
EXO_API exo_tensor *exo_relu(exo_tape *tape, exo_tensor *x);

/* Windows of size x size, stride = size, no padding; H and W need not be multiples: what is left over is dropped.
 * x (N, C, H, W) -> (N, C, H / size, W / size). Among equal maxima the first in row-major order gets the gradient. */
EXO_API exo_tensor *exo_max_pool2d(exo_tape *tape, exo_tensor *x, size_t size);

/* Zeroes elements (dropout) or whole channels of a sample (dropout2d) with probability p in [0, 1), scales the others by
 * 1 / (1 - p); the identity outside training. */
EXO_API exo_tensor *exo_dropout(exo_tape *tape, exo_tensor *x, float p);
EXO_API exo_tensor *exo_dropout2d(exo_tape *tape, exo_tensor *x, float p);

/* (N, ...) -> (N, product of the rest), elements in (C, H, W) order. */
EXO_API exo_tensor *exo_flatten(exo_tape *tape, exo_tensor *x);

/* y = x weight^T + bias. x (N, D), weight (O, D), bias (O) or NULL -> (N, O). */
EXO_API exo_tensor *exo_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias);

/* tanh(x) of each element. */
EXO_API exo_tensor *exo_tanh(exo_tape *tape, exo_tensor *x);
/* a + b element by element; equal shapes. */
EXO_API exo_tensor *exo_add(exo_tape *tape, exo_tensor *a, exo_tensor *b);
/* a b element by element; equal shapes. */
EXO_API exo_tensor *exo_mul(exo_tape *tape, exo_tensor *a, exo_tensor *b);
/* factor x of each element. */
EXO_API exo_tensor *exo_scale(exo_tape *tape, exo_tensor *x, float factor);
/* Mean of all elements -> one element. */
EXO_API exo_tensor *exo_mean(exo_tape *tape, exo_tensor *x);

/* Mean of -log softmax(logits)[label] over the rows whose label is not negative. logits (N, K), labels (N) int32 below K -> one element, fp32
 * also under autocast; 0 if there is no label at all. A label from K on is an error of the tape. loss.h has further losses. */
EXO_API exo_tensor *exo_softmax_cross_entropy(exo_tape *tape, exo_tensor *logits, exo_tensor *labels);

/* The share of rows whose largest logit (the first among equals) is at the label, of those whose label is not negative; NaN of none. Not
 * differentiable, not on the tape. */
EXO_API double exo_accuracy(const exo_tensor *logits, const exo_tensor *labels);

/* --- Operations of your own -------------------------------------------------------------------------------------------- */

/* The most inputs of an operation of your own. */
enum {
    EXO_CUSTOM_INPUTS = 4
};

/* One call of it. The arrays lie where the pass computes, hold fp32 in row-major order (images as (N, C, H, W)), and are valid during the call.
 * Work with exo_vec_*, which runs on every device, or ask exo_array_host for memory to loop over. */
typedef struct exo_custom_call {
    const void *args;                         /* the caller's, copied                                           */
    size_t num_inputs;                        /* as exo_tape_custom was given                                   */
    exo_array inputs[EXO_CUSTOM_INPUTS];      /* values: to be read                                             */
    exo_array output;                         /* forward fills it; backward reads it                            */
    exo_array saved;                          /* forward fills it, for backward                                 */
    exo_array output_grad;                    /* backward: d loss / d output, to be read                        */
    exo_array input_grads[EXO_CUSTOM_INPUTS]; /* backward adds d loss / d input; no elements: nobody asks for it */
} exo_custom_call;

/* A kind of operation; must live as long as the tapes that it is on. Both functions run on the pass's thread, must give equal bits for equal
 * arguments, and hold no state: forward may run twice in a pass, for a checkpoint. What they return other than EXO_OK ends the pass. */
typedef struct exo_custom_op {
    const char *name; /* for messages */
    size_t args_size; /* bytes        */
    exo_status (*forward)(const exo_custom_call *call, exo_err *err);
    exo_status (*backward)(const exo_custom_call *call, exo_err *err); /* NULL: gradients end here */
} exo_custom_op;

/* An operation of your own with an output of the given shape. `args` (args_size bytes, plain ones) may be NULL if that is 0; `saved`: how many
 * numbers forward leaves for backward. Inputs of another type are cast to fp32. Errors, in the tape: INVAL (too many inputs or dimensions,
 * no function), NOMEM, and forward's. examples/23_own_operation has one. */
EXO_API exo_tensor *exo_tape_custom(exo_tape *tape, const exo_custom_op *op, exo_tensor *const *inputs,
                                    size_t num_inputs, size_t num_dims, const size_t *dims, size_t saved,
                                    const void *args);

/* --- Compute threads ------------------------------------------------------------------------------------------------ */

/* How many threads compute at once in this process: the number of usable cores unless EXOGYM_THREADS or this says
 * otherwise. Takes effect for work that starts later. 1 to 1024. */
EXO_API void exo_set_num_threads(unsigned threads);
EXO_API unsigned exo_num_threads(void);

EXO_DECLS_END

#endif
