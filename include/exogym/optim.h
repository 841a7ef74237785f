/* Optimizers over flat arrays, parameter groups, and gradient clipping. schedule.h has the
 * schedules of the learning rate.
 *
 * Formulas and defaults are those of PyTorch's torch.optim. An optimizer owns the state of `numel`
 * elements, which may be a whole model or a shard of it, and does not depend on the origin of the
 * gradients. Muon steps whole matrices, so it must know the parameters' shapes; where shards cut a
 * matrix, its members gather the update (exo_optim_new_sharded). The other rules step each element by
 * itself.
 */
#ifndef EXOGYM_OPTIM_H
#define EXOGYM_OPTIM_H

#include <exogym/config.h>
#include <exogym/device.h>
#include <exogym/model.h>
#include <exogym/schedule.h>
#include <exogym/state.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* The rule of an optimizer. Its constants are double, like PyTorch's scalars: with floats, 1 -
 * 0.999f would be off by 1.3e-5. */
typedef enum exo_optim_kind {
    EXO_ADAM,
    EXO_ADAMW,
    EXO_SGD,
    EXO_RMSPROP,
    EXO_ADAGRAD,
    EXO_MUON,
} exo_optim_kind;

/* How Muon's rate depends on the shape of a matrix (rows, cols). */
typedef enum exo_muon_rate {
    EXO_MUON_ORIGINAL,       /* lr sqrt(max(1, rows / cols)) */
    EXO_MUON_MATCH_RMS_ADAMW /* lr 0.2 sqrt(max(rows, cols)): updates as large as AdamW's */
} exo_muon_rate;

/* The matrices that Muon steps: of the parameters with two or more dimensions, as rows = dims[0],
 * cols = numel / rows. AdamW steps the other parameters. */
typedef enum exo_muon_matrices {
    EXO_MUON_HIDDEN, /* those that the model does not mark by exo_build_boundary */
    EXO_MUON_ALL,
    EXO_MUON_NONE
} exo_muon_matrices;

/* The constants of AdamW for the parameters that Muon leaves to it; see exo_optim_spec. */
typedef struct exo_muon_adamw {
    float lr;            /* 1e-3 */
    double beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 1e-2 */
    bool amsgrad;        /* divides by the largest second moment so far */
} exo_muon_adamw;

/* A parameter group; defined below. */
typedef struct exo_optim_group exo_optim_group;

/* A rule with its constants; the constants of other rules are ignored. */
typedef struct exo_optim_spec {
    exo_optim_kind kind; /* the rule */
    float lr;            /* rmsprop, adagrad 1e-2; the others 1e-3 */
    double beta1, beta2; /* adam, adamw: 0.9, 0.999 */
    double eps;          /* 1e-8; adagrad 1e-10; muon 1e-7, of the norm */
    /* adamw 1e-2 and muon 0.1 (decoupled), the others 0 (added to g) */
    double weight_decay;
    double momentum, dampening;           /* sgd; rmsprop: momentum; muon: momentum 0.95 */
    bool nesterov;                        /* sgd: requires momentum > 0, dampening 0; muon: true */
    bool centered;                        /* rmsprop */
    double alpha;                         /* rmsprop 0.99 */
    double lr_decay, initial_accumulator; /* adagrad */
    /* adam, adamw: divides by the largest second moment so far */
    bool amsgrad;
    double ns_coefficients[3];  /* muon: of the Newton-Schulz polynomial */
    uint64_t ns_steps;          /* muon: iterations, 5 */
    exo_muon_rate adjust_lr;    /* muon: original */
    exo_muon_matrices matrices; /* muon: hidden */
    exo_muon_adamw adamw;       /* muon: AdamW's defaults; a schedule multiplies its lr, too */
    /* (num_groups) parameter groups, owned by the spec (exo_optim_spec_release). NULL: none. */
    exo_optim_group *groups;
    size_t num_groups;
} exo_optim_spec;

/* Limits of parameter groups. */
enum {
    EXO_OPTIM_MATCH = 128 /* bytes of a pattern, its NUL included */
};

/* A parameter group, as in torch.optim: the parameters whose name matches `match`, and whose shape
 * has from min_dims to max_dims dimensions. A parameter belongs to the first group that fits;
 * otherwise the spec's own constants apply to it. */
struct exo_optim_group {
    char match[EXO_OPTIM_MATCH]; /* a shell pattern of names, glob(7): "h.*.weight"; "*": all */
    size_t min_dims, max_dims;   /* 0 to EXO_MAX_DIMS */
    exo_optim_spec spec;         /* the spec's rule with this group's constants; no groups */
};

/* The name of a rule in a config, such as "adamw"; static. */
EXO_API const char *exo_optim_kind_name(exo_optim_kind kind);
/* The spec with PyTorch's defaults of `kind`. */
EXO_API exo_optim_spec exo_optim_spec_init(exo_optim_kind kind);
/* Reads "name" or {name: adamw, lr: 3e-4, betas: [0.9, 0.95], ...} under `key`; the keys are
 * PyTorch's arguments. If `key` is missing, *out is `fallback`. Constants that are not given are
 * PyTorch's defaults of the named rule, or those of `fallback` if no rule is named. Unknown keys,
 * and keys of another rule, are INVAL with their place. */
EXO_API exo_status exo_optim_spec_read(exo_config *map, const char *key,
                                       const exo_optim_spec *fallback, exo_optim_spec *out,
                                       exo_err *err);
/* The same for an optimizer of named parameters: also takes muon, and reads `groups`, a list of
 * mappings with match, min_dims, max_dims and the constants that differ. The caller releases
 * *out. */
EXO_API exo_status exo_optim_spec_read_groups(exo_config *map, const char *key,
                                              const exo_optim_spec *fallback, exo_optim_spec *out,
                                              exo_err *err);
/* Frees the groups. A spec without groups needs no release. An assigned copy shares the groups. */
EXO_API void exo_optim_spec_release(exo_optim_spec *spec);
/* Checks the constants. INVAL names the one that is out of its range. */
EXO_API exo_status exo_optim_spec_check(const exo_optim_spec *spec, exo_err *err);
/* Checks the rule against parameters (num_infos). INVAL names a group that matches none, such as
 * one with a mistyped pattern, or says that muon finds no matrix. */
EXO_API exo_status exo_optim_groups_check(const exo_optim_spec *spec, const exo_param_info *infos,
                                          size_t num_infos, exo_err *err);

/* An optimizer: the moments and the step count of its elements. One thread at a time. */
typedef struct exo_optim exo_optim;

/* Makes the state of `numel` parameters on `device`; numel may be 0, for an empty shard. `spec` is
 * copied; it must have no groups and not be muon. The caller frees the optimizer. Errors: INVAL
 * (spec), NOMEM. */
EXO_API exo_status exo_optim_new(exo_optim **out, const exo_optim_spec *spec, exo_device *device,
                                 size_t numel, exo_err *err);
/* The same with groups or muon, for the elements [first, first + numel) of the flat parameters that
 * `infos` (num_infos) describe (exo_params_info): a whole model or a shard of it. Keeps no
 * reference to spec and infos. Errors: also INVAL if the range cuts a matrix that muon steps. */
EXO_API exo_status exo_optim_new_grouped(exo_optim **out, const exo_optim_spec *spec,
                                         const exo_param_info *infos, size_t num_infos,
                                         exo_device *device, size_t first, size_t numel,
                                         exo_err *err);
/* Parameters of which a node has slices (parallel.h), and the other nodes the rest. */
typedef struct exo_optim_slices {
    exo_model *const *models; /* (count) the parts of one model, in the order of members */
    uint32_t count, rank;     /* the members; this one */
    /* exo_all_gather of a buffer of `count` equal shards, among the members, in each step of a matrix. */
    exo_status (*gather)(void *context, exo_array shards, exo_err *err);
    void *context; /* of gather */
} exo_optim_slices;

/* exo_optim_new_grouped for all parameters of a part of a model. Of each matrix of which it has a slice,
 * muon gathers the update from all members in a step, and each of them computes the whole step. So
 * exo_optim_step is a collective of the members, and blocks. `slices` is copied, and its models outlive
 * the optimizer. Errors: as exo_optim_new_grouped. */
EXO_API exo_status exo_optim_new_sliced(exo_optim **out, const exo_optim_spec *spec,
                                        const exo_optim_slices *slices, exo_device *device,
                                        exo_err *err);
/* A unit (units.h) of which each member of a group has a shard. */
typedef struct exo_optim_unit {
    size_t first, count; /* the unit: elements of the flat parameters */
    /* exo_all_gather of the whole unit among the members, in each step of a unit that has a matrix. */
    exo_status (*gather)(void *context, exo_array unit, exo_err *err);
    void *context; /* of gather */
} exo_optim_unit;

/* exo_optim_new_grouped for a shard of a unit, which may cut matrices that muon steps: in a step the
 * members gather the updates of the unit, and each of them computes the matrices of which its shard has
 * some (Liu et al., 2025, arXiv:2502.16982). So exo_optim_step is a collective of the members, and
 * blocks; its memory for matrices is there within a step only. infos are those of slices->models, if
 * slices (NULL: whole parameters) is given: then a step gathers among both groups, and each member
 * computes all matrices of the unit. Errors: as exo_optim_new_grouped. */
EXO_API exo_status exo_optim_new_sharded(exo_optim **out, const exo_optim_spec *spec,
                                         const exo_param_info *infos, size_t num_infos,
                                         const exo_optim_slices *slices, const exo_optim_unit *unit,
                                         exo_device *device, size_t first, size_t numel,
                                         exo_err *err);
/* Frees *optim and sets it to NULL; accepts NULL in it. */
EXO_API void exo_optim_free(exo_optim **optim);
/* Takes one step: changes params (numel) with gradients (numel) and learning rate `lr`. Both are
 * fp32 arrays of the optimizer's device. If a group has another lr, its rate is lr * group.lr /
 * spec.lr, so a schedule applies to all groups. The result is the same to the bit with any number
 * of threads. Gradients that are not finite spread into the parameters, as in PyTorch. Does not
 * block. */
EXO_API void exo_optim_step(exo_optim *optim, exo_array params, exo_array grads, float lr);
/* The moments of an optimizer that is Adam or AdamW without amsgrad in all groups, as arrays of
 * numel elements that stay its own: for 1-bit Adam, whose nodes exchange them. False: another
 * rule. */
EXO_API bool exo_optim_moments(const exo_optim *optim, exo_array *exp_avg, exo_array *exp_avg_sq);
/* The moments of any rule, for conversions of state; the first EXO_OPTIM_MOMENTS indices are those of
 * the names in a checkpoint, whatever the rule. */
enum {
    EXO_OPTIM_MOMENTS = 4
};
/* What the moment `index` is, a constant such as "exp_avg", as in a checkpoint. NULL: no group of the
 * optimizer has it. */
EXO_API const char *exo_optim_moment_name(const exo_optim *optim, size_t index);
/* Copies that moment to `out` (numel), in host memory and in the order of the parameters. Elements of
 * groups without the moment are 0. Errors: the device's. */
EXO_API exo_status exo_optim_read_moment(const exo_optim *optim, size_t index, float *out,
                                         exo_err *err);
/* Copies that moment from `in` (numel), which has such values. Errors: the device's. */
EXO_API exo_status exo_optim_write_moment(exo_optim *optim, size_t index, const float *in,
                                          exo_err *err);
/* The steps taken so far, on which corrections of the moments depend. */
EXO_API uint64_t exo_optim_steps(const exo_optim *optim);
/* Sets them, for moments of another optimizer. */
EXO_API void exo_optim_set_steps(exo_optim *optim, uint64_t steps);
/* exo_optim_step of such an optimizer without the correction of the moments' bias. With `frozen`
 * the moments stay as they are, and grads, which must be finite, have no effect. */
EXO_API void exo_optim_step_uncorrected(exo_optim *optim, exo_array params, exo_array grads,
                                        float lr, bool frozen);
/* Multiplies the momentum of the next steps by `factor`: sgd and rmsprop; other rules have none. The
 * first factor is 1. A checkpoint does not have it. */
EXO_API void exo_optim_set_momentum_factor(exo_optim *optim, double factor);
/* Begins exo_optim_step, to be taken during backward: returns the sink that receives the gradients
 * of a pass (exo_pass). Every element of params (numel) must arrive exactly once before the next
 * step. The optimizer and `params` must live until then. The bits are those of exo_optim_step. Not
 * for an optimizer that steps whole matrices (muon): a pass hands over parts of them. */
EXO_API exo_grad_sink exo_optim_sink(exo_optim *optim, exo_array params, float lr);
/* The first failure of a step that ran on the host, such as memory that Muon's matrix products
 * lacked; the parameters are then of no use. Other devices remember their failures themselves. */
EXO_API exo_status exo_optim_result(const exo_optim *optim, exo_err *err);
/* The bytes of the moments of an optimizer for all parameters of `infos` (num_infos), and of the
 * largest temporary matrix of muon. Allocates nothing. */
EXO_API uint64_t exo_optim_bytes(const exo_optim_spec *spec, const exo_param_info *infos,
                                 size_t num_infos);
/* The same for all parameters of a model, which may be a part: with what muon gathers in a step. */
EXO_API uint64_t exo_optim_model_bytes(const exo_optim_spec *spec, const exo_model *model);
/* The bytes that a step of a sharded optimizer (exo_optim_new_sharded) takes beside the moments, for the
 * unit of the model that needs the most; 0: nothing, without muon. */
EXO_API uint64_t exo_optim_unit_bytes(const exo_optim_spec *spec, const exo_model *model);
/* The elements of the matrices that muon steps, of those that begin within elements [first, first + count)
 * of the flat parameters. */
EXO_API size_t exo_optim_matrices(const exo_optim_spec *spec, const exo_param_info *infos,
                                  size_t num_infos, size_t first, size_t count);
/* Adds the moments and the step count to a checkpoint as "name.step", "name.exp_avg" and so on.
 * `name` tells the optimizers of a node apart. */
EXO_API void exo_optim_state(exo_optim *optim, const char *name, exo_state *state);

/* Scales grads by min(1, max_norm / (norm + 1e-6)), where norm is the global L2 norm, and returns
 * the norm before scaling (PyTorch's clip_grad_norm_, also if the norm is not finite). The sum has
 * a fixed order. Waits for the device. Errors: the device's. */
EXO_API exo_status exo_clip_grad_norm(exo_array grads, float max_norm, float *norm, exo_err *err);
/* The scaling alone, for gradients that are some of those with this norm. */
EXO_API void exo_clip_to_norm(exo_array grads, float max_norm, float norm);
/* exo_clip_grad_norm in calls that do not wait, also for gradients in several arrays or on several
 * nodes. The first writes the sum of squares of one array, or adds it, to the double at `square`
 * (8 bytes, U8). exo_clip_add_up writes the sum of all `squares` (8 bytes each, U8, aligned as
 * doubles are), in their order, to `square`. exo_clip_scale adds them up likewise, writes the norm to
 * `norm` (1, fp32), and scales by it. The arrays of a call are on one device, which remembers a
 * failure. */
EXO_API void exo_clip_count(exo_array square, exo_array grads, bool add);
EXO_API void exo_clip_add_up(exo_array square, exo_array squares);
EXO_API void exo_clip_scale(exo_array grads, float max_norm, exo_array squares, exo_array norm);

EXO_DECLS_END

#endif
