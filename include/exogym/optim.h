/* Optimizers over flat buffers, parameter groups, and gradient clipping. Schedules of the rate:
 * schedule.h.
 *
 * Formulas and defaults are PyTorch's (torch.optim). An optimizer owns the state of `numel`
 * elements, which may be a whole model or a shard of it; it knows nothing of where the gradients
 * come from.
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

/* Which rule, with what constants. Constants are double, as PyTorch's scalars are: 1 - 0.999f is
 * off by 1.3e-5. */
typedef enum exo_optim_kind {
    EXO_ADAM,
    EXO_ADAMW,
    EXO_SGD,
    EXO_RMSPROP,
    EXO_ADAGRAD,
} exo_optim_kind;

/* Parameters with constants of their own; see below. */
typedef struct exo_optim_group exo_optim_group;

/* A rule with its constants: those of other rules are not looked at. */
typedef struct exo_optim_spec {
    exo_optim_kind kind;                  /* the rule */
    float lr;                             /* adam, adamw, sgd 1e-3; rmsprop, adagrad 1e-2 */
    double beta1, beta2;                  /* adam, adamw: 0.9, 0.999 */
    double eps;                           /* 1e-8; adagrad 1e-10 */
    double weight_decay;                  /* adamw 1e-2 (decoupled), the others 0 (added to g) */
    double momentum, dampening;           /* sgd; rmsprop: momentum */
    bool nesterov;                        /* sgd: needs momentum > 0 and dampening 0 */
    bool centered;                        /* rmsprop */
    double alpha;                         /* rmsprop 0.99 */
    double lr_decay, initial_accumulator; /* adagrad */
    bool amsgrad;                         /* adam, adamw: the largest second moment so far */
    /* Parameters with constants of their own; (num_groups), the spec's: see exo_optim_spec_release.
     * NULL: none. */
    exo_optim_group *groups;
    size_t num_groups;
} exo_optim_spec;

/* Limits of parameter groups. */
enum {
    EXO_OPTIM_MATCH = 128 /* bytes of a pattern, with its NUL */
};

/* A parameter group, as torch.optim's: the parameters whose name matches and whose shape has from
 * min_dims to max_dims dimensions. A parameter belongs to the first group that takes it, else to
 * none: the spec's own constants hold for it. */
struct exo_optim_group {
    char match[EXO_OPTIM_MATCH]; /* a shell pattern of names, glob(7): "h.*.weight"; "*": all */
    size_t min_dims, max_dims;   /* 0 to EXO_MAX_DIMS */
    exo_optim_spec spec;         /* the spec's rule with this group's constants; no groups */
};

/* PyTorch's defaults of `kind`. */
EXO_API exo_optim_spec exo_optim_spec_init(exo_optim_kind kind);
/* Reads "name" or {name: adamw, lr: 3e-4, betas: [0.9, 0.95], ...} under `key`; keys are PyTorch's
 * arguments. `fallback` if the key is missing; constants that are not given are PyTorch's defaults
 * of the named rule, or the fallback's if no rule is named. Strict: unknown keys, also those of
 * another rule, are errors with their place. */
EXO_API exo_status exo_optim_spec_read(exo_config *map, const char *key,
                                       const exo_optim_spec *fallback, exo_optim_spec *out,
                                       exo_err *err);
/* The same for an optimizer whose parameters have names: takes `groups` besides, a list of mappings
 * with match, min_dims, max_dims and the constants that differ. The caller releases *out. */
EXO_API exo_status exo_optim_spec_read_groups(exo_config *map, const char *key,
                                              const exo_optim_spec *fallback, exo_optim_spec *out,
                                              exo_err *err);
/* Frees the groups. A spec without any needs no release; a copy by assignment shares them. */
EXO_API void exo_optim_spec_release(exo_optim_spec *spec);
/* INVAL names the constant that is out of its range. */
EXO_API exo_status exo_optim_spec_check(const exo_optim_spec *spec, exo_err *err);
/* INVAL names a group that takes none of the parameters (num_infos): a pattern that is mistyped. */
EXO_API exo_status exo_optim_groups_check(const exo_optim_spec *spec, const exo_param_info *infos,
                                          size_t num_infos, exo_err *err);

/* An optimizer: the moments and the step count of its elements. One thread at a time. */
typedef struct exo_optim exo_optim;

/* State for `numel` parameters on `device`; numel may be 0: an empty shard. `spec` is copied and
 * has no groups. Errors: INVAL (spec), NOMEM. */
EXO_API exo_status exo_optim_new(exo_optim **out, const exo_optim_spec *spec, exo_device *device,
                                 size_t numel, exo_err *err);
/* The same with groups, over elements [first, first + numel) of the flat parameters that `infos`
 * (num_infos) describe, as exo_params_info does: a whole model or a shard of it. Keeps neither spec
 * nor infos. */
EXO_API exo_status exo_optim_new_grouped(exo_optim **out, const exo_optim_spec *spec,
                                         const exo_param_info *infos, size_t num_infos,
                                         exo_device *device, size_t first, size_t numel,
                                         exo_err *err);
/* Frees it and sets *optim to NULL; accepts NULL in it. */
EXO_API void exo_optim_free(exo_optim **optim);
/* One step: params (numel) are changed by the rule with gradients (numel) and learning rate `lr`;
 * both are fp32 arrays of the optimizer's device. A group whose spec has another lr takes lr *
 * group.lr / spec.lr, so that a schedule holds for all. Bitwise the same with any number of
 * threads. Gradients that are not finite spread into the parameters, as in PyTorch. Does not
 * block. */
EXO_API void exo_optim_step(exo_optim *optim, exo_array params, exo_array grads, float lr);
/* The same step taken within backward: begins it, and gives what a pass hands its gradients to
 * (exo_pass). Every element of params (numel) must come once before the next step. As long as that
 * takes the optimizer and `params` must live. The same bits as exo_optim_step. */
EXO_API exo_grad_sink exo_optim_sink(exo_optim *optim, exo_array params, float lr);
/* Adds moments and step count to a checkpoint, as "name.step", "name.exp_avg" and so on: a node may
 * have several. */
EXO_API void exo_optim_state(exo_optim *optim, const char *name, exo_state *state);

/* Scales grads by min(1, max_norm / (norm + 1e-6)), norm the global L2 norm, and gives the norm
 * before (PyTorch's clip_grad_norm_, also where the norm is not finite). The sum has a fixed order.
 * Waits for the device. Errors: the device's. */
EXO_API exo_status exo_clip_grad_norm(exo_array grads, float max_norm, float *norm, exo_err *err);

EXO_DECLS_END

#endif
