/* Models: a thing that takes a batch and gives outputs by name, of which losses are made.
 *
 * A model class says which parameters there are (build), which outputs a batch has (forward), and which loss of them a job trains it for (its
 * objective). The class's own state is read-only after build and shared by all copies of the model; what differs from copy to copy is the
 * exo_params, one flat buffer each of parameters, gradients and buffers, with named views.
 *
 *     struct mlp { exo_param w1, b1, w2, b2; };
 *
 *     static exo_status build(void *self, exo_builder *b, exo_config *config, exo_err *err) {
 *         struct mlp *m = self;
 *         m->w1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){128, 784}, exo_init_kaiming_uniform(784));
 *         ...
 *         return exo_build_status(b, err);
 *     }
 *     static void forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs) {
 *         exo_tensor *x = exo_flatten(t, exo_batch_tensor(t, batch, 0));
 *         x = exo_relu(t, exo_linear(t, x, exo_tape_param(t, m->w1), exo_tape_param(t, m->b1)));
 *         ...
 *         exo_outputs_give(outputs, "logits", x);
 *     }
 *     static const exo_model_class mlp = {..., .outputs = (const char *const[]){"logits", NULL}, .forward = forward,
 *                                         .objective = &exo_classification};
 *
 * Who trains a model for something else asks for outputs and makes the loss, on the same tape:
 *
 *     exo_outputs out = exo_outputs_init((const char *const[]){"logits", "values", NULL});
 *     if (!exo_model_forward(model, tape, batch, &out))
 *         return exo_tape_error(tape, err);
 *     exo_tensor *log_probs = exo_log_probs(tape, exo_outputs_logits(&out, "logits"), actions, 1);
 *     exo_tensor *loss = exo_policy_loss(tape, log_probs, old_log_probs, advantages, mask, 0.2f);
 *     loss = exo_add(tape, loss, exo_value_loss(tape, exo_outputs_get(&out, "values"), NULL, returns, mask, 0));
 */
#ifndef EXOGYM_MODEL_H
#define EXOGYM_MODEL_H

#include <exogym/config.h>
#include <exogym/data.h>
#include <exogym/loss.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* --- Building ------------------------------------------------------------------------------------------------------- */

/* A model that is being built; lives as long as the call of `build`. */
typedef struct exo_builder exo_builder;

/* Which initial values. */
typedef enum exo_init_kind {
    EXO_INIT_CONSTANT,
    EXO_INIT_UNIFORM, /* [-a, a) */
    EXO_INIT_NORMAL,  /* mean 0, deviation a */
} exo_init_kind;

/* How a parameter begins: made by the functions below. */
typedef struct exo_init {
    exo_init_kind kind; /* of values                          */
    float a;            /* the constant, bound or deviation */
} exo_init;

/* All `value`; uniform in [-bound, bound); normal around 0. */
EXO_API exo_init exo_init_constant(float value);
EXO_API exo_init exo_init_uniform(float bound);
EXO_API exo_init exo_init_normal(float deviation);

/* Uniform in +-1/sqrt(fan_in): PyTorch's default for the weights and biases of linear and convolution layers. */
EXO_API exo_init exo_init_kaiming_uniform(size_t fan_in);

/* exo_build_param declares a parameter (learned, has a gradient), exo_build_buffer a buffer (a statistic that is kept but not learned). Names are unique;
 * `name` is copied. Initial values are drawn from (seed, INIT, 0, index), so they do not depend on other parameters'
 * sizes. Errors stick in the builder. */
EXO_API exo_param exo_build_param(exo_builder *builder, const char *name, size_t num_dims,
                                  const size_t *dims, exo_init init);
EXO_API exo_param exo_build_buffer(exo_builder *builder, const char *name, size_t num_dims,
                                   const size_t *dims, exo_init init);

/* Parameters that are declared from here on belong to the unit `name`, until the next one begins. A
 * unit is what is sent, gathered and freed at once where no node has all parameters (units.h): a
 * block of layers that are used together. Names are unique; `name` is copied. Parameters before the
 * first unit belong to one called "model". Buffers and frozen parameters belong to none. */
EXO_API void exo_build_unit(exo_builder *builder, const char *name);

/* The first error of the builder, for the end of `build`. */
EXO_API exo_status exo_build_status(const exo_builder *builder, exo_err *err);

/* --- Outputs ---------------------------------------------------------------------------------------------------------
 *
 * Names that mean the same in every model, R rows (samples, or tokens of all sequences):
 *   logits (R, V)    before the softmax over classes, actions or a vocabulary; a product where they are many (exo_logits)
 *   hidden (R, W)    what a head is applied to
 *   values (R)       of a critic, or the score of a reward model
 * A model may have others.
 */

/* The most outputs that are asked for at once. */
enum {
    EXO_MAX_OUTPUTS = 8
};

/* One of them: what was asked for, and what forward gave. */
typedef struct exo_output {
    const char *name; /* as it was asked for */
    exo_logits made;  /* x NULL: nothing yet */
} exo_output;

/* The outputs of one pass: made by exo_outputs_init, filled by exo_model_forward. The caller's plain data, with nothing to free. Names must
 * outlive the pass; tensors are valid until the next exo_tape_begin. One thread at a time, as the tape. */
typedef struct exo_outputs {
    exo_tape *tape; /* of the pass; NULL before forward */
    size_t count;   /* beyond EXO_MAX_OUTPUTS: too many names, which forward refuses */
    exo_output items[EXO_MAX_OUTPUTS]; /* (count) */
} exo_outputs;

/* Asks for the outputs of these names, a list that ends with NULL. A model makes what was asked for and no more. */
EXO_API exo_outputs exo_outputs_init(const char *const *names);

/* For `forward`: whether the output was asked for. What costs nothing beside what else was asked for may be given unasked. */
EXO_API bool exo_outputs_wants(const exo_outputs *outputs, const char *name);
/* For `forward`: gives an output. Nothing happens if it was not asked for, or if it is NULL. */
EXO_API void exo_outputs_give(exo_outputs *outputs, const char *name, exo_tensor *output);
/* The same of an output x weight^T that is not computed: losses compute a piece of it at a time. x (R, W), weight (V, W). */
EXO_API void exo_outputs_give_product(exo_outputs *outputs, const char *name, exo_tensor *x,
                                      exo_tensor *weight);

/* An output as one tensor; of a product, this computes it, once. NULL, with INVAL in the tape: it was not asked for. */
EXO_API exo_tensor *exo_outputs_get(exo_outputs *outputs, const char *name);
/* An output as losses take logits: a product stays one. x NULL, with INVAL in the tape: it was not asked for. */
EXO_API exo_logits exo_outputs_logits(const exo_outputs *outputs, const char *name);

/* What a model is trained for: a loss that is made of some outputs. */
typedef struct exo_objective {
    const char *name;           /* for messages                            */
    const char *const *outputs; /* names of those that it takes, then NULL */
    /* The mean loss over the batch, one element, and figures beside it (exo_tape_metric). `self` is the model's state, for an objective that belongs
     * to one class. Runs on any thread, on several at once. NULL: see exo_tape_error. */
    exo_tensor *(*loss)(const void *self, exo_tape *tape, exo_outputs *outputs,
                        const exo_batch *batch);
} exo_objective;

/* Cross-entropy of "logits" (N, K) with the batch's second field, int32 labels (N) in [0, K), or negative for none; and the accuracy. */
EXO_API extern const exo_objective exo_classification;
/* Cross-entropy of "logits" (N T, V) with the batch's field "targets", int32 (N, T), negative ones for none. Logits that are a product are never
 * whole. */
EXO_API extern const exo_objective exo_next_token;

/* --- Classes --------------------------------------------------------------------------------------------------------- */

/* A kind of model. Functions get the state, `self`, which is read-only after build. */
typedef struct exo_model_class {
    const char *name;  /* what a job names under `model`   */
    const char *help;  /* one line, for `exogym list models` */
    size_t state_size; /* bytes of the zeroed state that the functions below get as `self` */
    /* Reads its options (and only these: unknown keys are refused by the caller) and declares parameters. */
    exo_status (*build)(void *self, exo_builder *builder, exo_config *config, exo_err *err);
    const char *const *outputs; /* names of all outputs that it can give, then NULL */
    /* Computes the outputs that were asked for, all of which are among the class's. Runs on any thread, on several at once. Errors stick in the
     * tape. */
    void (*forward)(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs);
    /* What jobs train it for; its outputs are among the class's. NULL: jobs do not, and whoever trains it makes the loss. */
    const exo_objective *objective;
    /* Frees what build allocated inside the state. May be NULL. */
    void (*release)(void *self);
    /* Fills a new copy's values from elsewhere, after the initial ones are drawn: from files, say.
     * Parameters may be frozen: exo_params_at says where each is, and is NULL for those of a unit
     * that is absent: they are left out. A copy by units is filled unit by unit, with a call for
     * each, and one for what belongs to none. May be NULL. */
    exo_status (*fill)(const void *self, exo_params *params, exo_err *err);
    /* It has an option `vocabulary`, and a job that does not give it gives that of its data. */
    bool takes_vocabulary;
} exo_model_class;

/* --- Parameters: one copy of a model's numbers ----------------------------------------------------------------------- */

/* What a parameter or buffer is, the same in every copy of its model. */
typedef struct exo_param_info {
    const char *name;          /* unique in the model; lives as long as it */
    size_t num_dims;           /* at most EXO_MAX_DIMS                     */
    size_t dims[EXO_MAX_DIMS]; /* (num_dims), row-major                    */
    size_t numel;              /* the product of dims                      */
    size_t offset;  /* in elements, in the flat values (and gradients), or in the flat buffers */
    bool is_buffer; /* a statistic, which is not learned */
    /* a parameter that is not learned: it lies among the buffers, after the statistics */
    bool frozen;
    uint32_t unit; /* the index of its unit; EXO_NO_UNIT: of a buffer, or frozen */
} exo_param_info;

/* In place of a unit's index. */
#define EXO_NO_UNIT UINT32_MAX

/* A unit of a model: a range of the flat parameters, which holds whole ones. Units lie one after
 * the other, without gaps, and have all of them. */
typedef struct exo_unit_info {
    const char *name;    /* unique in the model; lives as long as it     */
    size_t first, count; /* elements of the flat parameters; count from 1 */
} exo_unit_info;

EXO_API size_t exo_params_count(const exo_params *params); /* parameters and buffers */
/* The index-th of them, in the order of declaration; lives as long as the model. */
EXO_API const exo_param_info *exo_params_info(const exo_params *params, size_t index);

/* Elements of the flat parameter buffer, Psi, of the flat buffer of statistics and frozen parameters, and how many elements at its end are
 * frozen: the same on every copy, for ever. Views lie one after the other in the
 * order of declaration without gaps, so that a count of elements is a count of parameters. */
EXO_API size_t exo_params_numel(const exo_params *params);
EXO_API size_t exo_params_buffer_numel(const exo_params *params);
EXO_API size_t exo_params_frozen_numel(const exo_params *params);

/* Where the values of the index-th parameter or buffer are: (infos[index].numel). NULL: its unit is
 * absent (units.h). */
EXO_API float *exo_params_at(exo_params *params, size_t index);
EXO_API float *exo_params_values(exo_params *params); /* (numel); NULL: a copy by units */
/* (numel); NULL: a copy without room for them, or by units. */
EXO_API float *exo_params_grads(exo_params *params);
EXO_API float *exo_params_buffers(exo_params *params); /* (buffer_numel) */
/* The same as arrays of the copy's device. The gradients of a copy without room for them are no
 * elements, and neither are values and gradients of a copy by units. */
EXO_API exo_array exo_params_values_array(const exo_params *params);  /* (numel) */
EXO_API exo_array exo_params_grads_array(const exo_params *params);   /* (numel) */
EXO_API exo_array exo_params_buffers_array(const exo_params *params); /* (buffer_numel) */
/* Where the numbers are: the CPU, unless exo_params_to made the copy. Elsewhere the host may not follow the pointers above. */
EXO_API exo_device *exo_params_device(const exo_params *params);
/* A new copy on a device, of a flat copy on the host: of its values and statistics, with gradients
 * where it has room for them. The caller frees it, before the device. Errors: NOMEM, UNSUPPORTED (a
 * copy by units), or the device's. Blocks: for the device. */
EXO_API exo_status exo_params_to(exo_params **out, const exo_params *params, exo_device *device,
                                 exo_err *err);
EXO_API void exo_params_zero_grads(exo_params *params); /* of a copy that has them */
/* SHA-256 in hexadecimal of the flat values and then the buffers, of a copy that is not by units.
 * Errors: NOMEM, FAILED (libcrypto). */
EXO_API exo_status exo_params_sha256(exo_params *params, char out[65], exo_err *err);
/* Frees it and sets *params to NULL; accepts NULL in it. */
EXO_API void exo_params_free(exo_params **params);

/* --- Models ----------------------------------------------------------------------------------------------------------- */

/* A built model: class, shared state, and the initial values. Counted references; any thread. */
typedef struct exo_model exo_model;

/* Builds a model of `model_class` with options in `config` (NULL: all defaults). INVAL: the class lacks build, forward or outputs, or its objective
 * takes others. Every model takes the option `frozen`, a shell pattern of
 * parameter names, glob(7), or a list of such: these are kept as they begin. Backward computes no gradients of them, optimizers keep no state,
 * and strategies neither see nor send them. INVAL: a pattern that matches none, or all are frozen. */
EXO_API exo_status exo_model_new(exo_model **out, const exo_model_class *model_class,
                                 exo_config *config, exo_err *err);
/* The same by name ("mnist_cnn", "mlp", ... or what a plugin registered). NOT_FOUND names the nearest one,
 * or all. */
EXO_API exo_status exo_model_new_named(exo_model **out, const char *name, exo_config *config,
                                       exo_err *err);
/* Counts one more reference and returns `model`. */
EXO_API exo_model *exo_model_hold(exo_model *model);
/* Gives a reference back and sets *model to NULL; accepts NULL in it. */
EXO_API void exo_model_drop(exo_model **model);

/* The name of its class; elements of its flat parameters; elements of its flat buffers, as
 * exo_params_numel and exo_params_buffer_numel have them. */
EXO_API const char *exo_model_name(const exo_model *model);
EXO_API size_t exo_model_numel(const exo_model *model);
EXO_API size_t exo_model_buffer_numel(const exo_model *model);

/* What exo_params_info gives of every copy: (num_infos), the model's. */
EXO_API const exo_param_info *exo_model_infos(const exo_model *model);
EXO_API size_t exo_model_num_infos(const exo_model *model);

/* (num_units), in the order of the flat parameters; live as long as the model. */
EXO_API const exo_unit_info *exo_model_units(const exo_model *model);
EXO_API size_t exo_model_num_units(const exo_model *model);

/* A new copy of the numbers, initialized from `seed`. The caller frees it, before the model is dropped for the last time. */
EXO_API exo_status exo_model_params(exo_model *model, uint64_t seed, exo_params **out,
                                    exo_err *err);
/* The same without room for gradients: to be evaluated, or for passes that hand them to a sink. */
EXO_API exo_status exo_model_values(exo_model *model, uint64_t seed, exo_params **out,
                                    exo_err *err);
/* A new copy without gradients, all zero: for values from elsewhere, to be evaluated. Freed likewise. */
EXO_API exo_status exo_model_copy(exo_model *model, exo_params **out, exo_err *err);
/* What a pass takes, in bytes. */
typedef struct exo_pass_memory {
    size_t tape;  /* activations, gradients of them, and what operations keep for backward */
    size_t plans; /* of operations, kept with the tape                                     */
} exo_pass_memory;
/* What the tape of a pass over `size` samples of such fields (data.h) takes, and what plans and
 * primitives take beside it. Computes nothing and takes next to no memory: so a model can be
 * asked that would not fit. Errors: the model's own, NOMEM. */
EXO_API exo_status exo_model_pass_memory(const exo_model *model, const exo_pass *pass,
                                         const exo_dataset *data, size_t size, exo_pass_memory *out,
                                         exo_err *err);
/* The outputs of the batch that were asked for, on the tape. False: exo_tape_error says why; NOT_FOUND: the model has no output of such a
 * name. */
EXO_API bool exo_model_forward(const exo_model *model, exo_tape *tape, const exo_batch *batch,
                               exo_outputs *outputs);
/* What jobs train it for; NULL: they do not. */
EXO_API const exo_objective *exo_model_objective(const exo_model *model);
/* The objective's loss of the batch: forward with the outputs that it takes. NULL: exo_tape_error says why; UNSUPPORTED: there is no
 * objective. */
EXO_API exo_tensor *exo_model_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch);

/* Registers a class under its name, which must be new; the class must live as long as the process. Any thread. Errors: EXISTS, INVAL (no name), FULL (1024 of them). */
EXO_API exo_status exo_model_register(const exo_model_class *model_class, exo_err *err);
/* The i-th class in the order of names, or NULL after the last. Any thread. */
EXO_API const exo_model_class *exo_model_class_at(size_t index);

EXO_DECLS_END

#endif
