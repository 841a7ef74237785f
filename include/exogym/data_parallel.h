/* Data parallelism in a program's own loop: a model wrapped for one member of a group.
 *
 *     exo_parallel_config config = exo_parallel_config_init();
 *     config.use_fsdp = true;
 *     config.sharding_strategy = EXO_FULL_SHARD;
 *     st = exo_parallel_wrap(&wrapped, model, &config, "{optimizer: {name: adamw, lr: 3e-4}}", group,
 *                            42, err);
 *     while (st == EXO_OK && more)
 *         st = exo_parallel_step(wrapped, &batch, 1, &loss, err);
 *     st = exo_parallel_gather(wrapped, &whole, err);
 *     exo_parallel_free(&wrapped);
 *
 * Alone, the model is trained as it is. With other members it is wrapped by ddp, or by fsdp, which
 * keeps a shard of parameters, gradients and optimizer state on each (docs/strategies.md). Jobs and
 * exo_trainer have the same settings in YAML (docs/jobs.md).
 *
 * All members of the group call wrap, step, evaluate and gather in the same order. They block for the
 * other members, up to the group's timeout at exo_parallel_wrap, and report the errors of the
 * collectives. Their bytes count in exo_group_stats of the group. A wrapped model
 * belongs to the thread of its group.
 */
#ifndef EXOGYM_DATA_PARALLEL_H
#define EXOGYM_DATA_PARALLEL_H

#include <exogym/strategy.h>

EXO_DECLS_BEGIN

/* What a member keeps under fsdp: the names in YAML are hybrid_shard, full_shard, shard_grad_op,
 * no_shard and hybrid_shard_zero2. */
typedef enum exo_sharding_strategy {
    EXO_HYBRID_SHARD,      /* as full_shard within groups of group_size members */
    EXO_FULL_SHARD,        /* shards; a unit is gathered for forward and again for backward */
    EXO_SHARD_GRAD_OP,     /* shards; a unit is gathered once in a step */
    EXO_NO_SHARD,          /* all of it */
    EXO_HYBRID_SHARD_ZERO2 /* as shard_grad_op within groups of group_size members */
} exo_sharding_strategy;

/* How a model is wrapped. A comment begins with the default (exo_parallel_config_init). */
typedef struct exo_parallel_config {
    bool use_fsdp; /* false: ddp */
    /* false. True: shards and the optimizer are in the memory of the host. On the CPU they are there
     * anyway, so it changes nothing. */
    bool cpu_offload;
    exo_sharding_strategy sharding_strategy; /* EXO_HYBRID_SHARD; of fsdp only */
    /* true: the members begin with the parameters of member 0. False: each draws its own from the
     * seed, and nothing is sent; members with equal seeds and models begin with equal bits. */
    bool sync_module_states;
    uint32_t group_size; /* 0: all members; of the hybrid forms, a divisor of the members */
} exo_parallel_config;

/* The default settings. */
EXO_API exo_parallel_config exo_parallel_config_init(void);
/* The strategy that the settings mean, as a name and a mapping for exo_trainer_fit or
 * exo_strategy_new. `options` is YAML of the other options of the strategy, such as optimizer and
 * max_norm; NULL or "": none. *name is a literal; the caller frees *doc. Errors: INVAL (a setting of
 * fsdp without use_fsdp, an option that is given twice), NOMEM. */
EXO_API exo_status exo_parallel_config_strategy(const exo_parallel_config *config,
                                                const char *options, const char **name,
                                                exo_config_doc **doc, exo_err *err);

/* A wrapped model: this member's part of its parameters, gradients and optimizer state. */
typedef struct exo_parallel exo_parallel;

/* Wraps a model, which it holds, for this member of `group`; NULL, or a group of one: the model is
 * alone. `options` as above; the loop has no end that is known, so a schedule with a curve needs its own
 * max_steps. Initial values are drawn from `seed`, as exo_model_params does. The group must outlive the
 * wrapped model, which the caller frees. Errors: INVAL (a setting or an option, with its name),
 * UNSUPPORTED (the model has no objective), NOMEM, those of collectives. */
EXO_API exo_status exo_parallel_wrap(exo_parallel **out, exo_model *model,
                                     const exo_parallel_config *config, const char *options,
                                     exo_group *group, uint64_t seed, exo_err *err);
/* Frees *parallel and sets it to NULL, before the group is closed; accepts NULL in it. */
EXO_API void exo_parallel_free(exo_parallel **parallel);
/* How the model is wrapped: "ddp" or "fsdp"; NULL: it is alone. A literal. */
EXO_API const char *exo_parallel_strategy(const exo_parallel *parallel);
/* The member's copy: flat, or by units under fsdp (units.h). Not owned. */
EXO_API exo_params *exo_parallel_params(exo_parallel *parallel);

/* Takes a step on the mean of the gradients of `count` batches (count), at least one, of each member.
 * All members have equally many. *loss is the mean loss of this member's batches. INVAL (no batch),
 * those of the model and of collectives; parameters are then undefined. */
EXO_API exo_status exo_parallel_step(exo_parallel *parallel, const exo_batch *batches, size_t count,
                                     float *loss, exo_err *err);
/* Computes the loss of a batch without training (running statistics, no dropout). Errors: those of
 * the model and of collectives. */
EXO_API exo_status exo_parallel_evaluate(exo_parallel *parallel, const exo_batch *batch,
                                         float *loss, exo_err *err);
/* Makes a flat copy, without gradients, of the whole model with this member's statistics. The caller
 * frees *whole before the model is dropped for the last time. With `across` (fsdp) it is the model of
 * this member's sharding group. */
EXO_API exo_status exo_parallel_gather(exo_parallel *parallel, exo_params **whole, exo_err *err);

/* Whether set-up distributes the parameters of node 0: the option sync_module_states, which every
 * strategy has. For hosts of strategies. */
EXO_API bool exo_strategy_syncs(const exo_strategy *strategy);

EXO_DECLS_END

#endif
