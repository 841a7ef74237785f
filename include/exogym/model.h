/* Models: a thing that takes a batch and gives a scalar loss.
 *
 * A model class says which parameters there are (build) and how a batch becomes a loss (loss). The class's own state is
 * read-only after build and shared by all copies of the model; what differs from copy to copy is the exo_params, one
 * flat buffer each of parameters, gradients and buffers, with named views.
 *
 *     struct mlp { exo_param w1, b1, w2, b2; };
 *
 *     static exo_status build(void *self, exo_builder *b, exo_config *config, exo_err *err) {
 *         struct mlp *m = self;
 *         m->w1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){128, 784}, exo_init_kaiming_uniform(784));
 *         ...
 *         return exo_build_status(b, err);
 *     }
 *     static exo_tensor *loss(const void *self, exo_tape *t, const exo_batch *batch) {
 *         exo_tensor *x = exo_flatten(t, exo_batch_tensor(t, batch, 0));
 *         x = exo_relu(t, exo_linear(t, x, exo_tape_param(t, m->w1), exo_tape_param(t, m->b1)));
 *         ...
 *         return exo_softmax_cross_entropy(t, x, exo_batch_tensor(t, batch, 1));
 *     }
 */
#ifndef EXOGYM_MODEL_H
#define EXOGYM_MODEL_H

#include <exogym/config.h>
#include <exogym/data.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* --- Building ------------------------------------------------------------------------------------------------------- */

typedef struct exo_builder exo_builder; /* a model that is being built; lives as long as the call of `build` */

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
EXO_API exo_param exo_build_param(exo_builder *builder, const char *name, size_t num_dims, const size_t *dims,
                                  exo_init init);
EXO_API exo_param exo_build_buffer(exo_builder *builder, const char *name, size_t num_dims, const size_t *dims,
                                   exo_init init);

/* The first error of the builder, for the end of `build`. */
EXO_API exo_status exo_build_status(const exo_builder *builder, exo_err *err);

/* A kind of model. Functions get the state, `self`, which is read-only after build. */
typedef struct exo_model_class {
    const char *name;  /* what a job names under `model`   */
    const char *help;  /* one line, for `exogym list models` */
    size_t state_size; /* bytes of the zeroed state that the functions below get as `self` */
    /* Reads its options (and only these: unknown keys are refused by the caller) and declares parameters. */
    exo_status (*build)(void *self, exo_builder *builder, exo_config *config, exo_err *err);
    /* The mean loss over the batch, one element. Runs on any thread, on several at once. NULL: see exo_tape_error. */
    exo_tensor *(*loss)(const void *self, exo_tape *tape, const exo_batch *batch);
    /* Frees what build allocated inside the state. May be NULL. */
    void (*release)(void *self);
    /* Fills a new copy's values from elsewhere, after the initial ones are drawn: from files, say. Parameters may be frozen: exo_params_at says
     * where each is. May be NULL. */
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
    size_t offset;             /* in elements, in the flat values (and gradients), or in the flat buffers */
    bool is_buffer;            /* a statistic, which is not learned */
    bool frozen;               /* a parameter that is not learned: it lies among the buffers, after the statistics */
} exo_param_info;

EXO_API size_t exo_params_count(const exo_params *params); /* parameters and buffers */
/* The index-th of them, in the order of declaration; lives as long as the model. */
EXO_API const exo_param_info *exo_params_info(const exo_params *params, size_t index);

/* Elements of the flat parameter buffer, Psi, of the flat buffer of statistics and frozen parameters, and how many elements at its end are
 * frozen: the same on every copy, for ever. Views lie one after the other in the
 * order of declaration without gaps, so that a count of elements is a count of parameters. */
EXO_API size_t exo_params_numel(const exo_params *params);
EXO_API size_t exo_params_buffer_numel(const exo_params *params);
EXO_API size_t exo_params_frozen_numel(const exo_params *params);

/* Where the values of the index-th parameter or buffer are: (infos[index].numel). */
EXO_API float *exo_params_at(exo_params *params, size_t index);
EXO_API float *exo_params_values(exo_params *params);   /* (numel) */
EXO_API float *exo_params_grads(exo_params *params);    /* (numel); NULL: a copy without room for them */
EXO_API float *exo_params_buffers(exo_params *params);  /* (buffer_numel) */
EXO_API void exo_params_zero_grads(exo_params *params); /* of a copy that has them */
/* Frees it and sets *params to NULL; accepts NULL in it. */
EXO_API void exo_params_free(exo_params **params);

/* --- Models ----------------------------------------------------------------------------------------------------------- */

/* A built model: class, shared state, and the initial values. Counted references; any thread. */
typedef struct exo_model exo_model;

/* Builds a model of `model_class` with options in `config` (NULL: all defaults). Every model takes the option `frozen`, a shell pattern of
 * parameter names, glob(7), or a list of such: these are kept as they begin. Backward computes no gradients of them, optimizers keep no state,
 * and strategies neither see nor send them. INVAL: a pattern that matches none, or all are frozen. */
EXO_API exo_status exo_model_new(exo_model **out, const exo_model_class *model_class, exo_config *config, exo_err *err);
/* The same by name ("mnist_cnn", "mlp", ... or what a plugin registered). NOT_FOUND names the nearest one,
 * or all. */
EXO_API exo_status exo_model_new_named(exo_model **out, const char *name, exo_config *config, exo_err *err);
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

/* A new copy of the numbers, initialized from `seed`. The caller frees it, before the model is dropped for the last time. */
EXO_API exo_status exo_model_params(exo_model *model, uint64_t seed, exo_params **out, exo_err *err);
/* The same without room for gradients: to be evaluated, or for passes that hand them to a sink. */
EXO_API exo_status exo_model_values(exo_model *model, uint64_t seed, exo_params **out, exo_err *err);
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
EXO_API exo_status exo_model_pass_memory(const exo_model *model, const exo_pass *pass, const exo_dataset *data,
                                         size_t size, exo_pass_memory *out, exo_err *err);
/* The class's `loss` of the batch on the tape, one element. NULL: exo_tape_error says why. */
EXO_API exo_tensor *exo_model_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch);

/* Registers a class under its name, which must be new; the class must live as long as the process. Any thread. Errors: EXISTS, INVAL (no name), FULL (1024 of them). */
EXO_API exo_status exo_model_register(const exo_model_class *model_class, exo_err *err);
/* The i-th class in the order of names, or NULL after the last. Any thread. */
EXO_API const exo_model_class *exo_model_class_at(size_t index);

EXO_DECLS_END

#endif
