/* Strategies: how the nodes of a training run use their gradients and what they tell each other.
 *
 * A strategy is a class with one necessary function, step: gradients of this node's batch are in
 * node->grads; afterwards node->params hold the parameters for the next step. All of it runs on the
 * node's own compute lane. DDP is:
 *
 *     static exo_status ddp_step(void *self, exo_node *node, exo_err *err) {
 *         exo_status st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
 *         return st == EXO_OK ? exo_node_inner_step(node, err) : st;
 *     }
 *     const exo_strategy_class ddp = {.name = "ddp", .step = ddp_step};
 *
 * Options that every strategy has are read before the class sees the config, under the same
 * mapping:
 *     optimizer (adamw), lr_scheduler (constant) with warmup_steps and what else it takes, max_norm (0: no clip).
 *
 * A step may use node->grads, where they are, as scratch once the inner step is done. Statistics in
 * node->buffers are each node's own under every strategy, as in PyTorch without synchronized
 * batch-norm; they are averaged for evaluation and the result only.
 *
 * A strategy whose nodes do not have all parameters has four more functions, and works on units
 * (units.h) in place of the two arrays:
 *
 *     at set-up                   keep            take this node's part of a whole unit
 *     whenever a unit is read     before_use      make it whole: gather
 *     when a pass has left it     after_use       it may go: close it
 *     in backward                 gradient_ready  of all of a unit: reduce and close gradients
 *     at the end of a step        step            the optimizer on this node's part
 */
#ifndef EXOGYM_STRATEGY_H
#define EXOGYM_STRATEGY_H

#include <exogym/comm.h>
#include <exogym/config.h>
#include <exogym/meter.h>
#include <exogym/model.h>
#include <exogym/optim.h>
#include <exogym/select.h> /* a piece that strategies share */
#include <exogym/shards.h>
#include <exogym/units.h>

EXO_DECLS_BEGIN

/* What a strategy sees of its node. Owner: the node's compute lane. Read-only but for the buffers. */
typedef struct exo_node {
    uint32_t rank, num_nodes; /* of this node; of all */
    uint64_t step;            /* local steps done before this one: t, from 0 */
    uint64_t max_steps;       /* of the whole run */
    uint64_t seed;            /* the run's */
    size_t numel;             /* Psi */
    /* (numel) theta; its device is the node's. Data NULL for a strategy that keeps units. */
    exo_array params;
    /* (numel) the mean over this node's batch; data NULL likewise, and where the inner step is
     * taken within backward */
    exo_array grads;
    exo_array buffers; /* (buffer_numel) statistics, such as batch-norm's */
    size_t buffer_numel;
    /* The same numbers with names and shapes, by units where these are kept; may be NULL */
    exo_params *model;
    /* (num_infos) those names and shapes; NULL: unknown, and there are no parameter groups. Frozen
     * parameters are among them: they lie in model's buffers beyond buffer_numel, and no strategy
     * touches them. */
    const exo_param_info *infos;
    size_t num_infos;
    /* (num_units) of the model: ranges of params and grads; NULL: unknown */
    const exo_unit_info *units;
    size_t num_units;
    exo_group *group;     /* all nodes of the run; what it sends is counted */
    exo_optim *optim;     /* the inner optimizer; made by exo_strategy_start, the node's to free */
    exo_optim_spec inner; /* its constants; its groups are the strategy's */
    const exo_schedule *schedule; /* the strategy's; NULL: constant */
    float max_norm;               /* 0: no clip */
    float lr;                     /* written by exo_node_inner_step: the rate it used */
    float grad_norm;              /* likewise: the norm before clipping, if it clips */
    bool stepped; /* within backward: the next exo_node_inner_step does nothing more */
    /* The scope for the strategy's meters (meter.h), from start on; not to be counted in release.
     * NULL: nobody looks. */
    exo_meters *meters;
    /* All nodes, too, over the first of the two edges that a strategy declares; `group` is over the
     * second. NULL: `group` is over both. */
    exo_group *inside;
} exo_node;

/* Clips if max_norm is set, then one step of the inner optimizer at the scheduled rate. */
EXO_API exo_status exo_node_inner_step(exo_node *node, exo_err *err);
/* Begins the same step for a pass whose gradients it takes as they come (exo_pass): in place of gradients that lie in node->grads. For hosts of
 * strategies that exo_strategy_steps_alone. */
EXO_API exo_grad_sink exo_node_inner_sink(exo_node *node);

/* The scheduled rate of this step, which node->lr becomes: for strategies that keep units, whose
 * optimizers are their own. */
EXO_API float exo_node_rate(exo_node *node);

/* What the nodes of a run exchange, round by round: for plans, predictions and the graph that a job stands for. */
typedef struct exo_strategy_edge {
    const char *carries; /* "gradients" or "parameters"; a literal, as all texts here */
    /* How it is exchanged (docs/graph.md): "all_reduce", also as reduce_scatter and all_gather. */
    const char *route;
    /* fp32 values in a round, exactly; where they are drawn, the expected number */
    double elements;
    uint64_t every;    /* steps from one round to the next */
    const char *codec; /* NULL: raw */
    /* Of an all_reduce: how many nodes meet in one, the remainder in a smaller one; 0: all. */
    uint32_t members;
} exo_strategy_edge;

/* The most edges that a strategy can say it has. */
enum {
    EXO_STRATEGY_MAX_EDGES = 4
};

/* A strategy: read-only, and alive as long as the process. */
typedef struct exo_strategy_class {
    const char *name;  /* what a job names under `strategy` */
    const char *help;  /* one line */
    size_t state_size; /* bytes of the zeroed state of each node, `self` below */
    /* Reads options; their strings live as long as the call. Unknown keys are refused by the caller. Called once a node, and
     * once on no node to check a config before a run. May be NULL: no options. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* Allocates what depends on the model, when parameters are equal on all nodes. Not called at a mere check. May be NULL. */
    exo_status (*start)(void *self, exo_node *node, exo_err *err);
    /* One step: see the top of this file. Errors of collectives are given back; the run then
     * ends. */
    exo_status (*step)(void *self, exo_node *node, exo_err *err);
    /* Elements [first, first + count) of node->grads, a whole parameter, are this batch's: nothing more of the step adds to them. Called
     * within backward, between start and step, for each parameter once a step, in the order in which backward comes to them, which is the
     * same on all nodes for models of the library, but need not be for one of a plugin. For collectives that step waits for. An error ends
     * the run. May be NULL: step does it all. */
    exo_status (*gradient_ready)(void *self, exo_node *node, size_t first, size_t count,
                                 exo_err *err);
    /* The node's parameters are in units of which it does not have all: node->model is a copy by
     * units, node->params and node->grads have no data, and node->optim is NULL. Called at set-up
     * after start, once for each unit, which is whole and equal on all nodes: keeps this node's
     * part. The caller closes the unit. NULL: every node always has all parameters in
     * node->params. */
    exo_status (*keep)(void *self, exo_node *node, size_t unit, exo_err *err);
    /* The unit's values are about to be read on all nodes: by forward or backward (exo_unit_hooks),
     * by an evaluation, or for the mean of all copies. When it returns, they are in
     * exo_unit_values(node->model, unit), whole. Collectives are called on `group`: node->group
     * within a step; elsewhere one of the same members, on which nothing is counted as the
     * strategy's. A strategy with all parameters may wait here for what it has begun. An error ends
     * the run. May be NULL, except with `keep`. */
    exo_status (*before_use)(void *self, exo_node *node, size_t unit, exo_group *group,
                             exo_err *err);
    /* The values are not read for now: exo_unit_close is possible. Changes since before_use, which
     * only the strategy makes, are the strategy's to keep. May be NULL, except with `keep`. */
    exo_status (*after_use)(void *self, exo_node *node, size_t unit, exo_group *group,
                            exo_err *err);
    /* Adds what must survive a restart, this node's parts of units included, besides the inner
     * optimizer ("optim."). After start. May be NULL: nothing. */
    void (*state)(void *self, exo_state *state);
    /* Frees what init and start allocated; once, also after their failure. May be NULL. */
    void (*release)(void *self);
    /* Whether step, among so many nodes, begins with exo_node_inner_step and has no other use for node->grads: the step may then have been
     * taken within backward, and node->grads is no array. After init. May be NULL: no. */
    bool (*steps_alone)(const void *self, uint32_t num_nodes);
    /* What `num_nodes` nodes of a model of `numel` parameters exchange; gives how many edges it wrote, no two of which carry the same.
     * After init, perhaps without start. May be NULL: it is not known. */
    size_t (*edges)(const void *self, size_t numel, uint32_t num_nodes,
                    exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
    /* Whether so many nodes can train by these options; INVAL says why not. After init, before start. May be NULL: any number can. */
    exo_status (*check)(const void *self, uint32_t num_nodes, exo_err *err);
    /* Closes the groups that start made of node->group or node->inside, which are closed next. After a start, also one that failed. May be NULL:
     * it made none, or has closed them. */
    void (*leave)(void *self);
} exo_strategy_class;

/* One node's strategy. */
typedef struct exo_strategy exo_strategy;

/* Reads a strategy by name with its options from `config` (a mapping that may hold the key `name`; NULL: all defaults).
 * Strict. Keeps nothing of the config. Errors: NOT_FOUND names the nearest one, or all; INVAL with place. */
EXO_API exo_status exo_strategy_new(exo_strategy **out, const char *name, exo_config *config,
                                    exo_err *err);
/* The same with options as YAML text: exo_strategy_parse(&s, "diloco", "{H: 20, optimizer: {name: adamw, lr: 3e-4}}", err). */
EXO_API exo_status exo_strategy_parse(exo_strategy **out, const char *name, const char *options,
                                      exo_err *err);
/* Frees it and sets *strategy to NULL; accepts NULL in it. */
EXO_API void exo_strategy_free(exo_strategy **strategy);
/* The name of its class. Static. */
EXO_API const char *exo_strategy_name(const exo_strategy *strategy);
/* Whether `num_nodes` nodes can train so: a mistake that is found before a run. exo_strategy_start checks it too. INVAL, with the place of
 * the option. */
EXO_API exo_status exo_strategy_check(const exo_strategy *strategy, uint32_t num_nodes,
                                      exo_err *err);
/* Whether its options fit the model: each parameter group of the optimizer takes some of its parameters. INVAL. */
EXO_API exo_status exo_strategy_check_model(const exo_strategy *strategy, const exo_model *model,
                                            exo_err *err);

/* Makes the inner optimizer and the strategy's own state for `node`, whose rank to group the caller has filled in; sets
 * optim (which whoever owns the node frees; NULL after an error) to grad_norm. Once. */
EXO_API exo_status exo_strategy_start(exo_strategy *strategy, exo_node *node, exo_err *err);
/* Whether it wants to be told of gradients while backward goes on. */
EXO_API bool exo_strategy_awaits_gradients(const exo_strategy *strategy);
/* Tells it: see gradient_ready of its class. Not for a node whose inner step is taken within backward. Hosts that never call it have the
 * same results. */
EXO_API exo_status exo_strategy_gradient_ready(exo_strategy *strategy, exo_node *node, size_t first,
                                               size_t count, exo_err *err);
/* Whether its nodes have less than all parameters: its class has `keep`. The host then gives a copy
 * by units. */
EXO_API bool exo_strategy_keeps_units(const exo_strategy *strategy);
/* Whether it is told when a unit is used: its class has before_use or after_use. All nodes then
 * evaluate together, because these calls are collectives. */
EXO_API bool exo_strategy_awaits_units(const exo_strategy *strategy);
/* Calls `keep` of its class; nothing if the class lacks it. */
EXO_API exo_status exo_strategy_keep(exo_strategy *strategy, exo_node *node, size_t unit,
                                     exo_err *err);
/* The same of before_use. */
EXO_API exo_status exo_strategy_before_use(exo_strategy *strategy, exo_node *node, size_t unit,
                                           exo_group *group, exo_err *err);
/* The same of after_use. */
EXO_API exo_status exo_strategy_after_use(exo_strategy *strategy, exo_node *node, size_t unit,
                                          exo_group *group, exo_err *err);
/* One local step with the gradients in node->grads, or after a backward that has taken it (exo_node_inner_sink); the caller then counts
 * node->step up. Errors: those of the collectives; the parameters are then undefined. */
EXO_API exo_status exo_strategy_step(exo_strategy *strategy, exo_node *node, exo_err *err);
/* Whether the inner step needs no more than this node's gradients, one after the other: the class says so, and they are not clipped. */
EXO_API bool exo_strategy_steps_alone(const exo_strategy *strategy, uint32_t num_nodes);
/* What it exchanges; false: the class does not say. */
EXO_API bool exo_strategy_edges(const exo_strategy *strategy, size_t numel, uint32_t num_nodes,
                                exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES], size_t *count);
/* It will not communicate any more: before the groups of its node are closed. Strategies that were not started may leave, too. */
EXO_API void exo_strategy_leave(exo_strategy *strategy);
/* Adds the inner optimizer's and the strategy's state to a checkpoint. */
EXO_API void exo_strategy_state(exo_strategy *strategy, exo_node *node, exo_state *state);

/* Who meets in a round: the ranks 0..num_nodes-1 are shuffled, for each round anew, and cut into islands of `island_size` (from 1), the last
 * of which has what remains. Writes the ranks of the island that `rank` is in to `out`, ascending, and gives how many; `out` (num_nodes) is
 * room to work in. A function of its arguments alone, the same on every node: nothing is sent. For exo_group_among. */
EXO_API uint32_t exo_island(uint64_t seed, uint64_t round, uint32_t num_nodes, uint32_t island_size,
                            uint32_t rank, uint32_t *out);

/* Registers a class under its name, which must be new; it must live as long as the process. Any
 * thread. Errors: EXISTS, INVAL (no name, no step, or keep without before_use, after_use and
 * gradient_ready), FULL (1024 of them). */
EXO_API exo_status exo_strategy_register(const exo_strategy_class *strategy_class, exo_err *err);
/* The i-th class in the order of names, or NULL after the last. Any thread. */
EXO_API const exo_strategy_class *exo_strategy_class_at(size_t index);

EXO_DECLS_END

#endif
