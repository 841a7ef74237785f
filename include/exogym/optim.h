/* Optimizers over flat buffers, the learning-rate schedule, and gradient clipping.
 *
 * Formulas and defaults are PyTorch's (torch.optim). An optimizer owns the state of `numel` elements, which may be a whole
 * model or a shard of it; it knows nothing of where the gradients come from.
 */
#ifndef EXOGYM_OPTIM_H
#define EXOGYM_OPTIM_H

#include <exogym/config.h>
#include <exogym/state.h>
#include <exogym/tensor.h>

/* Which rule, with what constants. Constants are double, as PyTorch's scalars are: 1 - 0.999f is off by 1.3e-5. */
typedef enum exo_optim_kind {
    EXO_ADAM,
    EXO_ADAMW,
    EXO_SGD,
    EXO_RMSPROP,
    EXO_ADAGRAD,
} exo_optim_kind;

typedef struct exo_optim_spec {
    exo_optim_kind kind;
    float lr;                             /* adam, adamw, sgd 1e-3; rmsprop, adagrad 1e-2        */
    double beta1, beta2;                  /* adam, adamw: 0.9, 0.999                             */
    double eps;                           /* 1e-8; adagrad 1e-10                                 */
    double weight_decay;                  /* adamw 1e-2 (decoupled), the others 0 (added to g)   */
    double momentum, dampening;           /* sgd; rmsprop: momentum                              */
    bool nesterov;                        /* sgd: needs momentum > 0 and dampening 0             */
    bool centered;                        /* rmsprop                                             */
    double alpha;                         /* rmsprop 0.99                                        */
    double lr_decay, initial_accumulator; /* adagrad                                             */
} exo_optim_spec;

/* PyTorch's defaults of `kind`. */
EXO_API exo_optim_spec exo_optim_spec_init(exo_optim_kind kind);
/* Reads "name" or {name: adamw, lr: 3e-4, betas: [0.9, 0.95], ...} under `key`; keys are PyTorch's arguments. `fallback` if
 * the key is missing; constants that are not given are PyTorch's defaults of the named rule, or the fallback's if no rule is
 * named. Strict: unknown keys, also those of another rule, are errors with their place. */
EXO_API exo_status exo_optim_spec_read(exo_config *map, const char *key, const exo_optim_spec *fallback,
                                       exo_optim_spec *out, exo_err *err);
/* INVAL names the constant that is out of its range. */
EXO_API exo_status exo_optim_spec_check(const exo_optim_spec *spec, exo_err *err);

typedef struct exo_optim exo_optim;

/* numel may be 0: an empty shard. Errors: INVAL (spec), NOMEM. */
EXO_API exo_status exo_optim_new(exo_optim **out, const exo_optim_spec *spec, size_t numel, exo_err *err);
EXO_API void exo_optim_free(exo_optim **optim);
/* One step: params (numel) are changed by the rule with gradients (numel) and learning rate `lr`. Bitwise the same with any
 * number of threads. Gradients that are not finite spread into the parameters, as in PyTorch. Does not block. */
EXO_API void exo_optim_step(exo_optim *optim, float *params, const float *grads, float lr);
/* The same step taken within backward: begins it, and gives what a pass hands its gradients to (exo_pass). Every element of params (numel) must
 * come once before the next step. As long as that takes the optimizer and `params` must live. The same bits as exo_optim_step. */
EXO_API exo_grad_sink exo_optim_sink(exo_optim *optim, float *params, float lr);
/* Adds moments and step count to a checkpoint, as "name.step", "name.exp_avg" and so on: a node may have several. */
EXO_API void exo_optim_state(exo_optim *optim, const char *name, exo_state *state);

/* Learning-rate schedules: constant, or EXO Gym's lambda_cosine: t / warmup while t < warmup, then 1, or with cosine_anneal
 * 0.9 * 0.5 * (1 + cos(pi (t - warmup) / (max_steps - warmup))) + 0.1. */
typedef struct exo_schedule {
    bool lambda_cosine;
    uint64_t warmup_steps;
    bool cosine_anneal;
} exo_schedule;

/* The factor on the learning rate at step t of max_steps. */
EXO_API float exo_schedule_factor(const exo_schedule *schedule, uint64_t t, uint64_t max_steps);

/* Scales grads (numel) by min(1, max_norm / (norm + 1e-6)), norm the global L2 norm, and gives the norm before (PyTorch's
 * clip_grad_norm_, also where the norm is not finite). The sum has a fixed order. */
EXO_API float exo_clip_grad_norm(float *grads, size_t numel, float max_norm);

#endif
