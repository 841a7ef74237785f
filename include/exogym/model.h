/* Models: a model computes the outputs of a batch, and losses are computed from the outputs.
 *
 * A model class declares the parameters (build), computes outputs (forward), and names the loss for
 * which jobs train it (its objective). The state of the class is read-only after build, and all
 * copies of the model share it. The numbers of a copy are an exo_params: a flat array each of
 * parameters, gradients and buffers, with names for its parts.
 *
 *     struct mlp { exo_param w1, b1, w2, b2; };
 *
 *     static exo_status build(void *self, exo_builder *b, exo_config *config, exo_err *err) {
 *         struct mlp *m = self;
 *         m->w1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){128, 784},
 *                                 exo_init_kaiming_uniform(784));
 *         ...
 *         return exo_build_status(b, err);
 *     }
 *     static void forward(const void *self, exo_tape *t, const exo_batch *batch,
 *                         exo_outputs *outputs) {
 *         const struct mlp *m = self;
 *         exo_tensor *x = exo_flatten(t, exo_batch_tensor(t, batch, 0));
 *         x = exo_relu(t, exo_linear(t, x, exo_tape_param(t, m->w1), exo_tape_param(t, m->b1)));
 *         ...
 *         exo_outputs_give(outputs, "logits", x);
 *     }
 *     static const exo_model_class mlp = {..., .outputs = (const char *const[]){"logits", NULL},
 *                                         .forward = forward, .objective = &exo_classification};
 *
 * To train a model for another loss, ask for outputs and compute the loss on the same tape:
 *
 *     exo_outputs out = exo_outputs_init((const char *const[]){"logits", "values", NULL});
 *     if (!exo_model_forward(model, tape, batch, &out))
 *         return exo_tape_error(tape, err);
 *     exo_tensor *log_probs = exo_log_probs(tape, exo_outputs_logits(&out, "logits"), actions, 1);
 *     exo_tensor *loss = exo_policy_loss(tape, log_probs, old_log_probs, advantages, mask, 0.2f);
 *     loss = exo_add(tape, loss, exo_value_loss(tape, exo_outputs_get(&out, "values"), NULL,
 *                                               returns, mask, 0));
 */
#ifndef EXOGYM_MODEL_H
#define EXOGYM_MODEL_H

#include <exogym/config.h>
#include <exogym/data.h>
#include <exogym/loss.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* --- Building --------------------------------------------------------------------------------- */

/* A model that is being built. It lives as long as the call of `build`. */
typedef struct exo_builder exo_builder;

/* The kinds of initial values. */
typedef enum exo_init_kind {
    EXO_INIT_CONSTANT,
    EXO_INIT_UNIFORM, /* [-a, a) */
    EXO_INIT_NORMAL,  /* mean 0, deviation a */
} exo_init_kind;

/* The initial values of a parameter. The functions below make it. */
typedef struct exo_init {
    exo_init_kind kind; /* the rule */
    float a;            /* the constant, the bound or the deviation */
} exo_init;

/* All equal to `value`; uniform in [-bound, bound); normal with mean 0. */
EXO_API exo_init exo_init_constant(float value);
EXO_API exo_init exo_init_uniform(float bound);
EXO_API exo_init exo_init_normal(float deviation);

/* Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for the weights and biases of
 * linear and convolution layers. */
EXO_API exo_init exo_init_kaiming_uniform(size_t fan_in);

/* exo_build_param declares a parameter, which is learned and has a gradient. exo_build_buffer
 * declares a buffer, a statistic that is kept but not learned. Names are unique in the model;
 * `name` is copied. Initial values are drawn from (seed, INIT, 0, index), so they do not depend on
 * the sizes of other parameters. Errors stick in the builder. */
EXO_API exo_param exo_build_param(exo_builder *builder, const char *name, size_t num_dims,
                                  const size_t *dims, exo_init init);
EXO_API exo_param exo_build_buffer(exo_builder *builder, const char *name, size_t num_dims,
                                   const size_t *dims, exo_init init);

/* Marks a parameter as one that maps the model's inputs or gives its outputs: a table of
 * embeddings, or the output head. Optimizers for hidden matrices, such as muon, leave it to another
 * rule. */
EXO_API void exo_build_boundary(exo_builder *builder, exo_param param);

/* Marks a parameter as frozen, as the option `frozen` does (exo_model_new). Any number of times. */
EXO_API void exo_build_frozen(exo_builder *builder, exo_param param);

/* Begins a unit: the parameters that are declared after it belong to the unit `name`, until the
 * next unit begins. A unit is a block of layers that are used together. Where no node has all
 * parameters, a whole unit is gathered and freed at a time (units.h). Names are unique in the
 * model; `name` is copied. Parameters before the first unit belong to a unit called "model".
 * Buffers and frozen parameters belong to no unit. */
EXO_API void exo_build_unit(exo_builder *builder, const char *name);

/* The first error of the builder. `build` ends with it. */
EXO_API exo_status exo_build_status(const exo_builder *builder, exo_err *err);

/* --- Outputs -------------------------------------------------------------------------------------
 *
 * These names mean the same in every model. R is the number of rows: samples, or tokens of all
 * sequences.
 *   logits (R, V)    before the softmax over classes, actions or a vocabulary; with a large
 *                    vocabulary an uncomputed product (exo_logits)
 *   hidden (R, W)    the input of the heads
 *   values (R)       the values of a critic, or the scores of a reward model
 * A model may have other outputs.
 */

/* The most outputs that a pass can be asked for. */
enum {
    EXO_MAX_OUTPUTS = 8
};

/* One output: the name that was asked for, and the tensor that forward gave. */
typedef struct exo_output {
    const char *name; /* the caller's */
    exo_logits made;  /* `x` is NULL until forward gives the output */
} exo_output;

/* The outputs of one pass. exo_outputs_init makes them, exo_model_forward fills them. They are
 * plain data of the caller, with nothing to free. Names must outlive the pass; tensors are valid
 * until the next exo_tape_begin. One thread at a time, as the tape. */
typedef struct exo_outputs {
    exo_tape *tape; /* the tape of the pass; NULL before forward */
    size_t count;   /* above EXO_MAX_OUTPUTS: too many names, which forward refuses */
    exo_output items[EXO_MAX_OUTPUTS]; /* (count) */
} exo_outputs;

/* Asks for the outputs of these names, a list that ends with NULL. A model computes only these
 * outputs. */
EXO_API exo_outputs exo_outputs_init(const char *const *names);

/* For `forward`: whether the output was asked for. An output that takes no extra computation may be
 * given without this question. */
EXO_API bool exo_outputs_wants(const exo_outputs *outputs, const char *name);
/* For `forward`: gives an output. Does nothing if the output was not asked for or is NULL. */
EXO_API void exo_outputs_give(exo_outputs *outputs, const char *name, exo_tensor *output);
/* For `forward`: gives the output x weight^T, which is not computed; losses compute it piece by
 * piece. x (R, W), weight (V, W). */
EXO_API void exo_outputs_give_product(exo_outputs *outputs, const char *name, exo_tensor *x,
                                      exo_tensor *weight);

/* Returns an output as one tensor. A product is computed by the first such call. NULL, with INVAL
 * in the tape, if the output was not asked for. */
EXO_API exo_tensor *exo_outputs_get(exo_outputs *outputs, const char *name);
/* Returns an output in the form in which losses take logits: a product stays a product. `x` is
 * NULL, with INVAL in the tape, if the output was not asked for. */
EXO_API exo_logits exo_outputs_logits(const exo_outputs *outputs, const char *name);

/* The objective of training: a loss computed from some outputs. */
typedef struct exo_objective {
    const char *name;           /* for messages */
    const char *const *outputs; /* the names of the outputs that it takes, then NULL */
    /* Returns the mean loss over the batch, one element, and may record metrics (exo_tape_metric).
     * `self` is the state of the model, for an objective of one class. Runs on any thread, and on
     * several at once. NULL: exo_tape_error has the cause. */
    exo_tensor *(*loss)(const void *self, exo_tape *tape, exo_outputs *outputs,
                        const exo_batch *batch);
} exo_objective;

/* Cross-entropy of "logits" (N, K) with the second field of the batch: int32 labels (N) in [0, K),
 * negative for samples without a label. Also records the accuracy. */
EXO_API extern const exo_objective exo_classification;
/* Cross-entropy of "logits" (N T, V) with the batch's field "targets": int32 (N, T), negative for
 * positions without a target. Logits that are a product are never computed as a whole. */
EXO_API extern const exo_objective exo_next_token;

/* --- Classes ---------------------------------------------------------------------------------- */

/* A class of models. Its functions get the state `self`, which is read-only after build. */
typedef struct exo_model_class {
    const char *name;  /* the name in a job, under `model` */
    const char *help;  /* one line, for `exogym list models` */
    size_t state_size; /* bytes of `self`, which begins zeroed */
    /* Reads the options, and declares the parameters. The caller refuses keys that were not
     * read. */
    exo_status (*build)(void *self, exo_builder *builder, exo_config *config, exo_err *err);
    const char *const *outputs; /* the names of all outputs that it can give, then NULL */
    /* Computes the outputs that were asked for; all of them are among the class's. Runs on any
     * thread, and on several at once. Errors stick in the tape. */
    void (*forward)(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs);
    /* The objective for which jobs train the model; its outputs are among the class's. NULL: jobs
     * cannot train it. */
    const exo_objective *objective;
    /* Frees the memory that build allocated in the state. May be NULL. */
    void (*release)(void *self);
    /* Replaces the initial values of a new copy, for instance with those of a file. exo_params_at
     * gives the place of each parameter, frozen ones included. It gives NULL for the parameters of
     * an absent unit, which this call leaves out: for a copy by units there is a call for each
     * unit, and one for the parameters of no unit. May be NULL. */
    exo_status (*fill)(const void *self, exo_params *params, exo_err *err);
    /* The model has an option `vocabulary`, whose default in a job is the vocabulary of the
     * data. */
    bool takes_vocabulary;
} exo_model_class;

/* --- Parameters: the numbers of one copy of a model ------------------------------------------- */

/* A parameter or buffer of a model, the same in every copy. */
typedef struct exo_param_info {
    const char *name;          /* unique in the model; lives as long as the model */
    size_t num_dims;           /* at most EXO_MAX_DIMS */
    size_t dims[EXO_MAX_DIMS]; /* (num_dims), row-major */
    size_t numel;              /* the product of dims */
    size_t offset;  /* elements, in the flat values and gradients, or in the flat buffers */
    bool is_buffer; /* true: in the flat buffers */
    /* a parameter that is not learned; it lies in the flat buffers, after the statistics */
    bool frozen;
    uint32_t unit; /* the index of its unit; EXO_NO_UNIT for buffers and frozen parameters */
    /* an embedding table or the output head (exo_build_boundary) */
    bool at_boundary;
} exo_param_info;

/* The unit of buffers and frozen parameters: none. */
#define EXO_NO_UNIT UINT32_MAX

/* A unit of a model: a range of the flat parameters with one or more whole parameters. The units
 * follow each other without gaps, and cover all parameters. */
typedef struct exo_unit_info {
    const char *name;    /* unique in the model; lives as long as the model */
    size_t first, count; /* elements of the flat parameters; count is at least 1 */
} exo_unit_info;

/* The number of parameters and buffers. */
EXO_API size_t exo_params_count(const exo_params *params);
/* The index-th of them, in the order of declaration. It lives as long as the model. */
EXO_API const exo_param_info *exo_params_info(const exo_params *params, size_t index);

/* The numbers of elements of the flat parameters (Psi), of the flat buffers (statistics and then
 * frozen parameters), and of the frozen parameters at the end of the flat buffers. They are
 * constant and the same for every copy. Parameters follow each other in the order of declaration,
 * without gaps. */
EXO_API size_t exo_params_numel(const exo_params *params);
EXO_API size_t exo_params_buffer_numel(const exo_params *params);
EXO_API size_t exo_params_frozen_numel(const exo_params *params);

/* The values of the index-th parameter or buffer: (infos[index].numel). NULL: its unit is absent
 * (units.h). */
EXO_API float *exo_params_at(exo_params *params, size_t index);
/* The flat values, (numel). NULL: a copy by units. */
EXO_API float *exo_params_values(exo_params *params);
/* The flat gradients, (numel). NULL: a copy without gradients, or by units. */
EXO_API float *exo_params_grads(exo_params *params);
/* The flat buffers, (buffer_numel). */
EXO_API float *exo_params_buffers(exo_params *params);
/* The same as arrays on the copy's device. An array that the copy does not have as a flat one has
 * no elements: the gradients of a copy without gradients, and values and gradients of a copy by
 * units. */
EXO_API exo_array exo_params_values_array(const exo_params *params);  /* (numel) */
EXO_API exo_array exo_params_grads_array(const exo_params *params);   /* (numel) */
EXO_API exo_array exo_params_buffers_array(const exo_params *params); /* (buffer_numel) */
/* The device that has the numbers: the CPU, unless exo_params_to made the copy. The host may use
 * the pointers above only if it reaches that device's memory (exo_device_is_host). */
EXO_API exo_device *exo_params_device(const exo_params *params);
/* Copies values and buffers of a copy on the host to a new copy on `device`. The new copy is flat, with
 * gradients if `params` has them, or by units, of which those are open that are open in `params`. The
 * caller frees it before it closes the device. Errors: NOMEM, or the device's. Blocks for the
 * device. */
EXO_API exo_status exo_params_to(exo_params **out, const exo_params *params, exo_device *device,
                                 exo_err *err);
/* Moves *params from the host to `device`: frees it, and *params is the copy there. It stays if the host
 * reaches the device's memory, and on an error. Errors: those of exo_params_to. Blocks for the device. */
EXO_API exo_status exo_params_move(exo_params **params, exo_device *device, exo_err *err);
/* Sets the gradients to zero. A copy by units gives the memory of its gradients back. */
EXO_API void exo_params_zero_grads(exo_params *params);
/* Writes the SHA-256 of the flat values and then the buffers, in hexadecimal. Errors: NOMEM,
 * UNSUPPORTED (a copy by units), FAILED (libcrypto), or the device's. Blocks for the device. */
EXO_API exo_status exo_params_sha256(exo_params *params, char out[65], exo_err *err);
/* Frees the copy and sets *params to NULL; accepts NULL in it. */
EXO_API void exo_params_free(exo_params **params);

/* --- Models ----------------------------------------------------------------------------------- */

/* A built model: its class, the shared state, and the rules of the initial values. References are
 * counted. Any thread. */
typedef struct exo_model exo_model;

/* Builds a model of `model_class` with the options in `config` (NULL: all defaults). The caller
 * drops it. Every model takes the option `frozen`, a shell pattern of parameter names (glob(7)) or
 * a list of patterns. Frozen parameters keep their initial values: backward computes no gradients
 * of them, optimizers keep no state for them, and strategies neither see nor send them. Errors:
 * INVAL (the class lacks build, forward or outputs; its objective takes an output that the class
 * lacks; a pattern matches no parameter; all parameters are frozen), those of build. */
EXO_API exo_status exo_model_new(exo_model **out, const exo_model_class *model_class,
                                 exo_config *config, exo_err *err);
/* The same for a registered class: one of the library ("mnist_cnn", "mlp", ...) or of a plugin.
 * NOT_FOUND names the nearest class, or all. */
EXO_API exo_status exo_model_new_named(exo_model **out, const char *name, exo_config *config,
                                       exo_err *err);
/* Counts one more reference and returns `model`. */
EXO_API exo_model *exo_model_hold(exo_model *model);
/* Gives a reference back and sets *model to NULL; accepts NULL in it. */
EXO_API void exo_model_drop(exo_model **model);

/* The name of the class, and the elements of the flat parameters and of the flat buffers, as in
 * exo_params_numel and exo_params_buffer_numel. */
EXO_API const char *exo_model_name(const exo_model *model);
EXO_API size_t exo_model_numel(const exo_model *model);
EXO_API size_t exo_model_buffer_numel(const exo_model *model);

/* The parameters and buffers, (num_infos), as exo_params_info gives them for every copy. They live
 * as long as the model. */
EXO_API const exo_param_info *exo_model_infos(const exo_model *model);
EXO_API size_t exo_model_num_infos(const exo_model *model);

/* The units, (num_units), in the order of the flat parameters. They live as long as the model. */
EXO_API const exo_unit_info *exo_model_units(const exo_model *model);
EXO_API size_t exo_model_num_units(const exo_model *model);

/* Makes a copy of the numbers with gradients, initialized from `seed`. The caller frees it before
 * the model is dropped for the last time. NOMEM, or the errors of the class's `fill`. */
EXO_API exo_status exo_model_params(exo_model *model, uint64_t seed, exo_params **out,
                                    exo_err *err);
/* The same without gradients: for evaluation, or for passes that hand gradients to a sink. */
EXO_API exo_status exo_model_values(exo_model *model, uint64_t seed, exo_params **out,
                                    exo_err *err);
/* Makes a copy without gradients, all zero, to be filled by the caller. The caller frees it, as
 * above. NOMEM. */
EXO_API exo_status exo_model_copy(exo_model *model, exo_params **out, exo_err *err);
/* Makes a copy with gradients for rehearsals. It takes addresses and hardly any memory, and what is
 * written at one address appears at others, too. The caller frees it, as above. NOMEM. */
EXO_API exo_status exo_model_params_phantom(const exo_model *model, exo_params **out, exo_err *err);
/* The memory of a pass, in bytes. */
typedef struct exo_pass_memory {
    size_t tape;  /* activations, their gradients, and what operations keep for backward */
    size_t plans; /* plans and primitives of operations, which the tape keeps */
    /* Of `tape`: the rounding of large buffers to huge pages. A member of a cluster shares such buffers
     * with others and does not round them. */
    size_t padding;
} exo_pass_memory;
/* Computes the memory of a pass over `size` samples with the fields of `data` (data.h). It runs no
 * computation and needs little memory itself, so it works for a model that would not fit. Errors:
 * the model's own, NOMEM. */
EXO_API exo_status exo_model_pass_memory(const exo_model *model, const exo_pass *pass,
                                         const exo_dataset *data, size_t size, exo_pass_memory *out,
                                         exo_err *err);
/* Computes the outputs of the batch that were asked for, on the tape. False: exo_tape_error has the
 * cause; NOT_FOUND: the model has no output of that name. */
EXO_API bool exo_model_forward(const exo_model *model, exo_tape *tape, const exo_batch *batch,
                               exo_outputs *outputs);
/* The objective of the model's class; NULL: none. */
EXO_API const exo_objective *exo_model_objective(const exo_model *model);
/* Computes the objective's loss of the batch: forward with the outputs that the objective takes,
 * then the loss. NULL: exo_tape_error has the cause; UNSUPPORTED: the model has no objective. */
EXO_API exo_tensor *exo_model_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch);

/* Registers a class under its name, which must be new. The class must live as long as the process.
 * Any thread. Errors: EXISTS, INVAL (no name), FULL (1024 classes). */
EXO_API exo_status exo_model_register(const exo_model_class *model_class, exo_err *err);
/* The index-th class in the order of names; NULL after the last. Any thread. */
EXO_API const exo_model_class *exo_model_class_at(size_t index);

EXO_DECLS_END

#endif
