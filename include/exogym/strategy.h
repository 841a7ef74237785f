/* Strategies: how the nodes of a training run use their gradients, and what they exchange.
 *
 * A strategy is a class with one required function, step. Before it, node->grads has the gradients
 * of this node's batch; after it, node->params has the parameters for the next step. All functions
 * run on the node's compute lane. DDP is:
 *
 *     static exo_status ddp_step(void *self, exo_node *node, exo_err *err) {
 *         exo_status st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
 *         return st == EXO_OK ? exo_node_inner_step(node, err) : st;
 *     }
 *     const exo_strategy_class ddp = {.name = "ddp", .step = ddp_step};
 *
 * Every strategy has these options, which are read from the same mapping before the class sees it:
 * optimizer (adamw), lr_scheduler (constant) with warmup_steps and the scheduler's own options, and
 * max_norm (0: no clipping).
 *
 * After the inner step, step may use node->grads as scratch memory. The statistics in node->buffers
 * are each node's own under every strategy, as in PyTorch without synchronized batch-norm. They are
 * averaged for evaluation and for the result only.
 *
 * A strategy whose nodes do not have all parameters has four more functions, and works on units
 * (units.h) in place of the two arrays:
 *
 *     at set-up                       keep            copy this node's part of a whole unit
 *     before a unit is read           before_use      gather the unit
 *     when a pass has left a unit     after_use       close the unit
 *     in backward                     gradient_ready  when a unit has all gradients: reduce them,
 *                                                     and close them
 *     at the end of a step            step            the optimizer on this node's part
 */
#ifndef EXOGYM_STRATEGY_H
#define EXOGYM_STRATEGY_H

#include <exogym/comm.h>
#include <exogym/config.h>
#include <exogym/meter.h>
#include <exogym/model.h>
#include <exogym/optim.h>
#include <exogym/parallel.h>
#include <exogym/select.h> /* for strategies of plugins */
#include <exogym/shards.h>
#include <exogym/units.h>
#include <exogym/whole.h>

EXO_DECLS_BEGIN

/* What a node has of a copy of the model that several nodes share (parallel.h). */
typedef struct exo_node_part {
    /* Nodes of the copy that together have every element of it, for sums over the copy. */
    exo_group *copy;
    /* (num_counted) ranges of the flat parameters, ascending: elements that several of these nodes have
     * are in the ranges of one. */
    const exo_band *counted;
    size_t num_counted;
    /* The nodes with the other slices of this node's parameters; NULL: parameters are whole. */
    exo_group *slices;
    exo_model *const *models; /* of those nodes, in the order of ranks; NULL: as slices */
    const exo_model *own,
        *whole; /* the node's part of the model or its stage, and the whole model */
} exo_node_part;

/* What a node clips gradients with. */
typedef struct exo_clipping exo_clipping;

/* A strategy's view of its node. Owner: the node's compute lane. The strategy changes only the
 * elements of the arrays. */
typedef struct exo_node {
    uint32_t rank, num_nodes; /* of this node; of all */
    uint64_t step;            /* t, from 0: the local steps before this one */
    uint64_t max_steps;       /* local steps of the whole run */
    uint64_t seed;            /* the run's seed */
    size_t numel;             /* Psi */
    /* (numel) theta, on the node's device. `data` is NULL for a strategy with `keep`. */
    exo_array params;
    /* (numel) the mean gradient over this node's batch. `data` is NULL for a strategy with `keep`,
     * and when backward takes the inner step */
    exo_array grads;
    exo_array buffers; /* (buffer_numel) statistics, such as batch-norm's */
    size_t buffer_numel;
    /* The copy of the model that has these numbers; a copy by units for a strategy with `keep`. May
     * be NULL */
    exo_params *model;
    /* (num_infos) names and shapes of the model. NULL: unknown; there are then no parameter groups.
     * Frozen parameters are among them. They lie in the model's flat buffers after buffer_numel,
     * and no strategy touches them. */
    const exo_param_info *infos;
    size_t num_infos;
    /* (num_units) the model's units: ranges of params and grads; NULL: unknown */
    const exo_unit_info *units;
    size_t num_units;
    exo_group *group; /* all nodes of the run; its traffic is counted */
    /* The inner optimizer. exo_strategy_start makes it, the owner of the node frees it. NULL for a
     * strategy with `keep`. */
    exo_optim *optim;
    exo_optim_spec inner; /* constants of the inner optimizer; the strategy owns its groups */
    const exo_schedule *schedule; /* the strategy's; NULL: constant */
    float max_norm;               /* 0: no clipping */
    float lr; /* the rate of the step; exo_node_inner_step and exo_node_rate write it */
    /* The norm before clipping, if it clips; exo_node_inner_step writes it, or on a GPU
     * exo_strategy_read_norm */
    float grad_norm;
    bool stepped; /* the step has been taken: the next exo_node_inner_step does nothing */
    /* The scope for the strategy's meters (meter.h), from start until release. NULL: nothing is
     * counted. */
    exo_meters *meters;
    /* Also all nodes, over the first of the two edges that a strategy declares; `group` is then
     * over the second. NULL: `group` is over both. */
    exo_group *inside;
    /* The nodes of the run may change between two steps: rank, num_nodes and group are then those of
     * the present nodes. When start is called, num_nodes is the most that there can be. A strategy
     * keeps all of its state on every node, so that none is lost with a node. */
    bool elastic;
    /* NULL: the node has all of its copy of the model. */
    const exo_node_part *part;
    exo_clipping *clipping; /* of exo_node_clip; exo_strategy_start sets it, the strategy owns it */
} exo_node;

/* If max_norm is set, clips the gradients by their norm, which is that of the whole copy, and writes
 * it to node->grad_norm. A GPU keeps it instead, and the host does not wait. With node->part it calls
 * node->part->copy: an all-gather of 8 bytes of each node. Errors: NOMEM, and those of the call; the
 * device remembers its own. */
EXO_API exo_status exo_node_clip(exo_node *node, exo_err *err);
/* Calls exo_node_clip, then takes one step of the inner optimizer at the scheduled rate, which calls
 * node->part->slices if muon steps matrices of which the node has slices. Does nothing if
 * node->stepped, which it resets. Errors: the device's, and those of the calls. */
EXO_API exo_status exo_node_inner_step(exo_node *node, exo_err *err);
/* Begins the same step within backward: the sink (exo_pass) takes each gradient when it is final,
 * in place of node->grads. For hosts of strategies for which exo_strategy_steps_alone is true. */
EXO_API exo_grad_sink exo_node_inner_sink(exo_node *node);

/* Returns the scheduled rate of this step, and writes it to node->lr. For strategies with `keep`,
 * which have their own optimizers. */
EXO_API float exo_node_rate(exo_node *node);

/* One kind of exchange among the nodes of a run, for plans, predictions and the graph of a job. */
typedef struct exo_strategy_edge {
    const char *carries; /* "gradients" or "parameters"; a literal, as all texts here */
    /* The route (docs/graph.md): "all_reduce", also for a reduce_scatter with an all_gather. */
    const char *route;
    /* fp32 values in a round: the exact number, or the expected one if they are drawn. Of other
     * calls, those of an all_reduce with the same traffic; an all_gather of b bytes from each of N
     * nodes has that of N b / 8 values, and a shift of n values that of N n / (2 (N - 1)). */
    double elements;
    uint64_t every;    /* steps from one round to the next */
    const char *codec; /* NULL: raw */
    /* The nodes in one all_reduce; the remainder forms a smaller one. 0: all nodes. */
    uint32_t members;
} exo_strategy_edge;

/* The most edges of a strategy. */
enum {
    EXO_STRATEGY_MAX_EDGES = 4
};

/* A class of strategies. Read-only; it must live as long as the process. */
typedef struct exo_strategy_class {
    const char *name;  /* the name in a job, under `strategy` */
    const char *help;  /* one line, for `exogym list strategies` */
    size_t state_size; /* bytes of `self`, a state for each node, which begins zeroed */
    /* Reads options; their strings live as long as the call. The caller refuses keys that were not
     * read. Called once for each node, and once without a node to check a config before a run.
     * NULL: no options. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* Allocates what depends on the model. Parameters are then equal on all nodes. Not called when
     * a config is only checked. May be NULL. */
    exo_status (*start)(void *self, exo_node *node, exo_err *err);
    /* One step, as at the top of this file. Returns the errors of its collectives, which end the
     * run. */
    exo_status (*step)(void *self, exo_node *node, exo_err *err);
    /* Notice that the elements [first, first + count) of node->grads, a whole parameter, are final
     * for this step. Called within backward, before step, once in a step for each parameter. The
     * order is that of backward: it is the same on all nodes for the library's models, but perhaps
     * not for a plugin's. The function may begin collectives for which step waits. An error ends
     * the run. May be NULL, except with `keep`. */
    exo_status (*gradient_ready)(void *self, exo_node *node, size_t first, size_t count,
                                 exo_err *err);
    /* Copies this node's part of a unit. A class with this function has nodes that do not have all
     * parameters: node->model is a copy by units, node->params and node->grads have no data, and
     * node->optim is NULL. Called at set-up after start, once for each unit. The unit is then open,
     * and equal on all nodes; the caller closes it. NULL: every node always has all parameters in
     * node->params. */
    exo_status (*keep)(void *self, exo_node *node, size_t unit, exo_err *err);
    /* Makes a unit whole before all nodes read its values: in forward or backward (exo_unit_hooks),
     * in an evaluation, or for the mean of all copies. When it returns, the values are in
     * exo_unit_values(node->model, unit). It calls collectives on `group`, which is node->group
     * within a step; elsewhere it is a group of the same members whose traffic does not count as
     * the strategy's. A strategy without `keep` may wait here for collectives that it has begun. An
     * error ends the run. May be NULL, except with `keep`. */
    exo_status (*before_use)(void *self, exo_node *node, size_t unit, exo_group *group,
                             exo_err *err);
    /* Notice that the values of a unit are not read until the next before_use; the strategy may
     * close the unit. Only the strategy changes values, and it must have kept its changes before it
     * closes. An error ends the run. May be NULL, except with `keep`. */
    exo_status (*after_use)(void *self, exo_node *node, size_t unit, exo_group *group,
                            exo_err *err);
    /* Adds the state that a checkpoint must have besides the inner optimizer ("optim."), including
     * this node's parts of units. Called after start. NULL: there is none. */
    void (*state)(void *self, exo_state *state);
    /* Frees the memory of init and start. Called once, also after their failure. May be NULL. */
    void (*release)(void *self);
    /* Whether step, among `num_nodes` nodes, begins with exo_node_inner_step and does not use
     * node->grads otherwise. Backward may then take the inner step, and node->grads has no data.
     * Called after init. NULL: no. */
    bool (*steps_alone)(const void *self, uint32_t num_nodes);
    /* Writes the exchanges of `num_nodes` nodes with a model of `numel` parameters, and returns
     * their number. No two edges carry the same. Called after init, with or without start. NULL:
     * unknown. */
    size_t (*edges)(const void *self, size_t numel, uint32_t num_nodes,
                    exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
    /* Checks whether `num_nodes` nodes can train with these options. INVAL: they cannot. Called
     * after init and before start. NULL: any number can. */
    exo_status (*check)(const void *self, uint32_t num_nodes, exo_err *err);
    /* Closes the groups that start made from node->group or node->inside, and cancels requests that an
     * error left, before the host closes these groups and frees the node's arrays. Called after start,
     * also after a failed one. NULL: there are none, or they are gone already. */
    void (*leave)(void *self);
    /* Whether the nodes may change between two steps (exo_node.elastic): the class has neither `keep`
     * nor before_use nor after_use, no request or group of its own outlives a step, and `state` has
     * all that the next steps need. A class that is `apart` has `regroup`, too. Any number of nodes may
     * then be present, also one that `check` refuses. Called after init.
     * NULL: they may not. */
    bool (*elastic)(const void *self);
    /* Whether nodes may communicate in the step `step`, which is equal on all nodes; of a class that
     * is `apart`, whether this node may. For elastic runs, which take care of such steps. Called after
     * init. NULL: in every step. */
    bool (*meets)(const void *self, uint64_t step);
    /* The default of the option `optimizer`: a rule with that rule's own defaults. NULL: adamw. */
    exo_optim_spec (*optimizer)(void);
    /* In place of `edges`, for a class whose traffic depends on the shapes of the parameters: infos
     * (num_infos) are those of the model; NULL: unknown, all parameters are then one vector. */
    size_t (*model_edges)(const void *self, const exo_param_info *infos, size_t num_infos,
                          size_t numel, uint32_t num_nodes,
                          exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
    /* A step waits for no other node, as with a server (server.h). The host then lets nodes run
     * ahead of each other between evaluations and the end. Each writes its state when it comes to a
     * checkpoint, and the server's is written when the last one has. */
    bool apart;
    /* Checks whether the options fit the model. INVAL: they do not. Called after init and before
     * start. NULL: they fit every model. */
    exo_status (*check_model)(const void *self, const exo_model *model, exo_err *err);
    /* The most units whose values are open at once in a step, for predictions of memory; 0: all. For
     * classes with `keep`. Called after init. NULL: 1. */
    uint32_t (*open_units)(const void *self);
    /* For an elastic class that is `apart`: the nodes have changed between two steps. node->group is a
     * new one, of the members `ranks` (node->num_nodes), ascending, and its server is to be opened
     * again. If the server is with this node, it goes on with its state, or, if that was lost, begins
     * with what this node gives as options. Messages that were under way are lost. joined: the state
     * is a copy of another node's, which goes on with it, too. May be NULL. */
    exo_status (*regroup)(void *self, exo_node *node, const uint32_t *ranks, bool joined,
                          exo_err *err);
    /* How new the outer parameters are that the node has got from a server: if the server is lost,
     * the node with the highest version has the next one. NULL: 0. */
    uint64_t (*version)(const void *self);
    /* A step changes each element by its own gradients alone, whatever its place among the others. Such
     * nodes may have parts of a model (parallel.h). */
    bool elementwise;
    /* The same for classes whose options decide it. Called after init. NULL: elementwise says it. */
    bool (*is_elementwise)(const void *self);
    /* For classes of which a checkpoint can be converted to another number of nodes: all that a node
     * has follows from its rank and the state of the whole training, with one exception: statistics
     * are the host's. Copies this node's state to its place in the whole. Called after start, with the
     * state of a checkpoint, on the host; node->group may be NULL. NULL: nodes have states of their
     * own. */
    exo_status (*to_whole)(void *self, exo_node *node, exo_whole *whole, exo_err *err);
    /* Sets this node's state from the whole. What does not change numbers may keep its initial value.
     * Required with to_whole. */
    exo_status (*from_whole)(void *self, exo_node *node, const exo_whole *whole, exo_err *err);
    /* Checks whether the options admit these two. UNSUPPORTED: they do not. Called after init. NULL:
     * all do. */
    exo_status (*check_whole)(const void *self, exo_err *err);
    /* Whether the arrays of its state have a number for each parameter, or for each of the node's shard
     * (exo_shard), in the order of the flat parameters, and everything else is equal on the nodes that
     * share a copy of the model. Checkpoints can then be converted to nodes with other parts of the same
     * number of copies. Called after init. NULL: no. */
    bool (*is_ordered)(const void *self);
    /* A class that is not elementwise, but whose nodes may have parts of a model: what a step does to an
     * element may depend on others of the node's part, as with a scale, the largest values, or a rank.
     * After each step in which nodes meet, elements that several nodes of a copy have get the values of
     * the first of these nodes. */
    bool by_parts;
    /* The same for classes whose options decide it. Called after init. NULL: by_parts says it. */
    bool (*is_by_parts)(const void *self);
} exo_strategy_class;

/* The strategy of one node. One thread at a time. */
typedef struct exo_strategy exo_strategy;

/* Makes the strategy of a name with the options in `config`, a mapping that may have the key `name`
 * (NULL: all defaults). Refuses unknown keys. Keeps nothing of the config. The caller frees it.
 * Errors: NOT_FOUND (names the nearest strategy, or all), INVAL (with the place in the config),
 * NOMEM. */
EXO_API exo_status exo_strategy_new(exo_strategy **out, const char *name, exo_config *config,
                                    exo_err *err);
/* The same with the options as YAML text, such as "{H: 20, optimizer: {name: adamw, lr: 3e-4}}". */
EXO_API exo_status exo_strategy_parse(exo_strategy **out, const char *name, const char *options,
                                      exo_err *err);
/* Frees a strategy and sets *strategy to NULL; accepts NULL in it. */
EXO_API void exo_strategy_free(exo_strategy **strategy);
/* The name of the class; static. */
EXO_API const char *exo_strategy_name(const exo_strategy *strategy);
/* Replaces the inner optimizer that the options gave, before exo_strategy_start, for hosts with
 * options of their own for it. *spec moves to the strategy, and has no groups afterwards. */
EXO_API void exo_strategy_set_optimizer(exo_strategy *strategy, exo_optim_spec *spec);
/* Checks whether `num_nodes` nodes can train with this strategy. exo_strategy_start checks it, too.
 * INVAL, with the place of the option. */
EXO_API exo_status exo_strategy_check(const exo_strategy *strategy, uint32_t num_nodes,
                                      exo_err *err);
/* Checks whether the options fit the model: each parameter group of the optimizer must match some
 * of its parameters, and the class may have conditions of its own. INVAL. */
EXO_API exo_status exo_strategy_check_model(const exo_strategy *strategy, const exo_model *model,
                                            exo_err *err);

/* Checks whether the nodes may have parts of a model: steps are elementwise or by parts. `what` is the
 * subject of the message, such as "tensor parallelism". UNSUPPORTED names the strategy. */
EXO_API exo_status exo_strategy_check_parts(const exo_strategy *strategy, const char *what,
                                            exo_err *err);

/* Whether steps may treat elements that several nodes of a copy have in different ways, so that the host
 * makes them equal (by_parts of the class). */
EXO_API bool exo_strategy_is_by_parts(const exo_strategy *strategy);
/* Whether the state has the order of the parameters (is_ordered of the class). */
EXO_API bool exo_strategy_is_ordered(const exo_strategy *strategy);

/* Makes the inner optimizer and the strategy's own state for `node`. The caller has filled in the
 * members from rank to group, and sets meters and inside if there are such; this function sets
 * those from optim to grad_norm. The owner of the node frees node->optim (NULL after an error).
 * Once for each strategy. INVAL and EXISTS: `state` of the class lists memory that is not there, or two
 * entries of one name; with `keep`, only the first checkpoint finds that. */
EXO_API exo_status exo_strategy_start(exo_strategy *strategy, exo_node *node, exo_err *err);
/* Whether the class has gradient_ready. */
EXO_API bool exo_strategy_awaits_gradients(const exo_strategy *strategy);
/* Calls gradient_ready of the class; does nothing if the class lacks it. Not for a node whose inner
 * step backward takes. For a strategy without `keep`, a host that never calls it gets the same
 * results. */
EXO_API exo_status exo_strategy_gradient_ready(exo_strategy *strategy, exo_node *node, size_t first,
                                               size_t count, exo_err *err);
/* Whether the class has `keep`, so that nodes do not have all parameters. The host then gives the
 * node a copy by units. */
EXO_API bool exo_strategy_keeps_units(const exo_strategy *strategy);
/* The most units whose values are open at once in a step, of a class with `keep`; 0: all. */
EXO_API uint32_t exo_strategy_open_units(const exo_strategy *strategy);
/* Of a class with `keep`: the bytes that the optimizer's step of a node with this model takes beside its
 * moments, while no unit is open (exo_optim_unit_bytes). */
EXO_API uint64_t exo_strategy_step_bytes(const exo_strategy *strategy, const exo_model *model);
/* Whether the class has before_use or after_use. All nodes then evaluate together, because these
 * functions may call collectives. */
EXO_API bool exo_strategy_awaits_units(const exo_strategy *strategy);
/* Whether the nodes of the strategy may change between two steps. */
EXO_API bool exo_strategy_is_elastic(const exo_strategy *strategy);
/* Whether nodes may communicate in the step `step`. */
EXO_API bool exo_strategy_meets(const exo_strategy *strategy, uint64_t step);
/* Calls `keep` of the class; does nothing if the class lacks it. */
EXO_API exo_status exo_strategy_keep(exo_strategy *strategy, exo_node *node, size_t unit,
                                     exo_err *err);
/* Calls before_use of the class; does nothing if the class lacks it. */
EXO_API exo_status exo_strategy_before_use(exo_strategy *strategy, exo_node *node, size_t unit,
                                           exo_group *group, exo_err *err);
/* Calls after_use of the class; does nothing if the class lacks it. */
EXO_API exo_status exo_strategy_after_use(exo_strategy *strategy, exo_node *node, size_t unit,
                                          exo_group *group, exo_err *err);
/* Takes one local step with the gradients in node->grads, or after a backward that has taken the
 * inner step (exo_node_inner_sink). The caller then increments node->step. Blocks as its
 * collectives do. Errors: those of the collectives; the parameters are then undefined. */
EXO_API exo_status exo_strategy_step(exo_strategy *strategy, exo_node *node, exo_err *err);
/* Reads the norm of the last step, if a GPU has kept it (exo_node_clip), to node->grad_norm and to the
 * meter, and waits for the device. Errors: the device's. */
EXO_API exo_status exo_strategy_read_norm(exo_strategy *strategy, exo_node *node, exo_err *err);
/* Whether backward may take the inner step: steps_alone of the class is true, the class lacks
 * `keep`, and gradients are not clipped. */
EXO_API bool exo_strategy_steps_alone(const exo_strategy *strategy, uint32_t num_nodes);
/* Whether the class is `apart`. */
EXO_API bool exo_strategy_is_apart(const exo_strategy *strategy);
/* Calls regroup of the class; does nothing if the class lacks it. */
EXO_API exo_status exo_strategy_regroup(exo_strategy *strategy, exo_node *node,
                                        const uint32_t *ranks, bool joined, exo_err *err);
/* `version` of the class; 0 if the class lacks it. */
EXO_API uint64_t exo_strategy_version(const exo_strategy *strategy);
/* Writes the exchanges (out, *count) as `edges` or `model_edges` of the class, for a model of these
 * parameters. False: the class lacks both. */
EXO_API bool exo_strategy_edges(const exo_strategy *strategy, const exo_param_info *infos,
                                size_t num_infos, size_t numel, uint32_t num_nodes,
                                exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES], size_t *count);
/* Checks what `edges` or `model_edges` of the class declares. INVAL names the strategy and the member
 * that is wrong. NOMEM. */
EXO_API exo_status exo_strategy_check_edges(const exo_strategy *strategy,
                                            const exo_param_info *infos, size_t num_infos,
                                            size_t numel, uint32_t num_nodes, exo_err *err);
/* Ends the strategy's communication. The host calls it before it closes the groups of the node.
 * Allowed for strategies that were not started, too. */
EXO_API void exo_strategy_leave(exo_strategy *strategy);
/* Adds the state of the inner optimizer and of the strategy to a checkpoint. */
EXO_API void exo_strategy_state(exo_strategy *strategy, exo_node *node, exo_state *state);

/* Checks whether a checkpoint of the strategy can be converted to another number of nodes. UNSUPPORTED
 * names the strategy or the option with which it cannot. */
EXO_API exo_status exo_strategy_check_whole(const exo_strategy *strategy, exo_err *err);
/* Calls to_whole of the class, if exo_strategy_check_whole admits it. */
EXO_API exo_status exo_strategy_to_whole(exo_strategy *strategy, exo_node *node, exo_whole *whole,
                                         exo_err *err);
/* Calls from_whole of the class, likewise. */
EXO_API exo_status exo_strategy_from_whole(exo_strategy *strategy, exo_node *node,
                                           const exo_whole *whole, exo_err *err);

/* Random islands: shuffles the ranks 0..num_nodes-1 anew for each round, and cuts them into islands
 * of `island_size` (at least 1); the remainder forms a smaller island. Writes the ranks of the
 * island of `rank` to `out`, ascending, and returns their number. `out` (num_nodes) is also work
 * space. The result depends on the arguments alone, so all nodes agree without communication. For
 * exo_group_among. */
EXO_API uint32_t exo_island(uint64_t seed, uint64_t round, uint32_t num_nodes, uint32_t island_size,
                            uint32_t rank, uint32_t *out);

/* Registers a class under its name, which must be new. The class must live as long as the process.
 * Any thread. Errors: EXISTS, INVAL (no name, no step, or `keep` without before_use, after_use and
 * gradient_ready), FULL (1024 classes). */
EXO_API exo_status exo_strategy_register(const exo_strategy_class *strategy_class, exo_err *err);
/* The index-th class in the order of names; NULL after the last. Any thread. */
EXO_API const exo_strategy_class *exo_strategy_class_at(size_t index);

EXO_DECLS_END

#endif
