/* One exchange of a strategy that is made of the pieces which strategies share:
 *
 *     when       after the steps offset + H, offset + 2 H, ...
 *     what       the parameters: all of them, or the coordinates that a selector draws
 *     partners   all nodes, or the node's random island, of which a pair is the smallest
 *     aggregate  the mean of the partners' values, or a rule that bears wrong values (aggregate.h)
 *     apply      the mean; an outer optimizer on the mean change; a mix of own values and the mean
 *
 * A composition is a list of exchanges, which follow the inner step in their order. fedavg, diloco,
 * sparta, local_sgd, noloco and sparta_diloco are compositions with options of their own. `compose`
 * reads a list of exchanges from a job. exchange_options.c has a table of names for each kind of
 * piece; exchange.c has the function of each.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (a round), exchange_options.c
 * (options), composition.c (the list), compose.c.
 */
#ifndef EXO_STRATEGIES_EXCHANGE_H
#define EXO_STRATEGIES_EXCHANGE_H

#include "strategies/aggregate.h"

/* What a round does with the mean of the partners. */
typedef enum exo_apply {
    EXO_APPLY_MEAN,  /* theta = mean */
    EXO_APPLY_OUTER, /* theta = outer optimizer(theta_outer, theta_outer - mean), as in diloco */
    EXO_APPLY_MIX,   /* theta = alpha theta + (1 - alpha) mean */
} exo_apply;

typedef struct exo_param_exchange {
    /* --- Options, which the strategy sets before start; zeroed: the mean of all parameters ---- */
    char name[24]; /* in messages, in names of the state, and of the scope of its meters */
    bool scoped;   /* its meters have a scope of their own */
    exo_rounds rounds;
    uint64_t delay; /* steps from the values of a round to their mean */
    bool selects;   /* only what a selector draws */
    exo_select_kind selector_kind;
    double p;             /* the part of the coordinates in a round, in (0, 1] */
    uint64_t island_size; /* 0: all nodes */
    char *place;          /* place of island_size in the config, for check; NULL: not checked */
    exo_aggregation aggregation;
    exo_apply apply;
    exo_optim_spec outer_spec; /* of EXO_APPLY_OUTER */
    float alpha;               /* of EXO_APPLY_MIX, in [0, 1] */

    /* --- State, from start -------------------------------------------------------------------- */
    uint64_t seed;
    uint32_t *ranks; /* (num_nodes) memory for an island; NULL: all nodes; owned */
    exo_selector *selector;
    /* Rounds in flight keep their values here: (num_slots, capacity). NULL data: the values are the
     * parameters themselves. */
    exo_array slots, own;
    uint64_t num_slots;
    size_t capacity;
    size_t first, length;   /* the part of the parameters whose outer step this node takes */
    exo_array outer;        /* (length) theta_outer: a copy, never the model's memory */
    exo_array center;       /* (shard) the last mean of this node's shard, for norm_clip */
    exo_optim *outer_optim; /* owned */
    exo_meter *rounds_done, *exchanged;
} exo_param_exchange;

/* Readers of pieces (exchange_options.c). Errors: INVAL with the place. */
/* Reads `p` and, under `key`, the selector's name. With p 0, `out` selects nothing: allowed only if
 * allow_zero. */
exo_status exo_param_exchange_read_selector(exo_param_exchange *out, exo_config *config,
                                            const char *key, bool allow_zero, exo_err *err);
/* Reads `delay`. */
exo_status exo_param_exchange_read_delay(exo_param_exchange *out, exo_config *config, exo_err *err);
/* Reads the options of sparta; `interval` is the key of its interval (sparta.c). */
exo_status exo_param_exchange_read_sparta(exo_param_exchange *out, exo_config *config,
                                          const char *interval, bool allow_zero, exo_err *err);
/* Reads the islands' size, which must be at most the number of nodes; without `key` *out keeps all
 * nodes. */
exo_status exo_param_exchange_read_island(exo_param_exchange *out, exo_config *config,
                                          const char *key, exo_err *err);
/* Reads `aggregate`, after all other pieces but the outer optimizer's. */
exo_status exo_param_exchange_read_aggregate(exo_param_exchange *out, exo_config *config,
                                             exo_err *err);
/* Reads an outer optimizer, of which `fallback` has the defaults. */
exo_status exo_param_exchange_read_outer(exo_param_exchange *out, exo_config *config,
                                         const char *key, const exo_optim_spec *fallback,
                                         exo_err *err);
/* The outer optimizer of DiLoCo's paper: SGD with lr 0.7 and a Nesterov momentum of 0.9. */
exo_optim_spec exo_nesterov(void);
/* Reads a whole exchange of parameters, an item of the list `exchanges` of `compose`. */
exo_status exo_param_exchange_read(exo_param_exchange *out, exo_config *config, exo_err *err);
/* Appends an exchange as such an item. `outer` is the YAML of its outer optimizer. */
void exo_param_exchange_write(const exo_param_exchange *exchange, const char *outer, exo_text *out);

/* A round of an exchange (exchange.c). `seed` distinguishes the random choices of exchanges. */
exo_status exo_param_exchange_check(const exo_param_exchange *exchange, uint32_t num_nodes,
                                    exo_err *err);
exo_status exo_param_exchange_start(exo_param_exchange *exchange, exo_node *node, uint64_t seed,
                                    exo_err *err);
/* Does what is due after the inner step of node->step. Errors: those of the collectives. */
exo_status exo_param_exchange_run(exo_param_exchange *exchange, exo_node *node, exo_err *err);
void exo_param_exchange_state(exo_param_exchange *exchange, exo_state *state);
exo_strategy_edge exo_param_exchange_edge(const exo_param_exchange *exchange, size_t numel,
                                          uint32_t num_nodes);
void exo_param_exchange_release(exo_param_exchange *exchange);

/* --- Compositions (composition.c) ------------------------------------------------------------- */

/* The state of a class that is a composition: its `init` fills in this list. */
typedef struct exo_composition {
    exo_param_exchange each[EXO_STRATEGY_MAX_EDGES];
    size_t count;
} exo_composition;

/* Adds an exchange with a round after every step, and returns it. The name is that of its state;
 * with `scoped`, also that of its meters. */
exo_param_exchange *exo_composition_add(exo_composition *composition, const char *name,
                                        bool scoped);

/* The functions of such a class. */
exo_status exo_composition_start(void *self, exo_node *node, exo_err *err);
exo_status exo_composition_step(void *self, exo_node *node, exo_err *err);
void exo_composition_state(void *self, exo_state *state);
void exo_composition_release(void *self);
size_t exo_composition_edges(const void *self, size_t numel, uint32_t num_nodes,
                             exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
exo_status exo_composition_check(const void *self, uint32_t num_nodes, exo_err *err);
/* The part of step after the inner step. */
exo_status exo_composition_exchange(exo_composition *composition, exo_node *node, exo_err *err);

/* The members of a class that is a composition, besides name, help and init. */
#define EXO_COMPOSITION_CLASS                                                                      \
    .state_size = sizeof(exo_composition), .start = exo_composition_start,                         \
    .step = exo_composition_step, .steps_alone = exo_always_steps_alone,                           \
    .state = exo_composition_state, .release = exo_composition_release,                            \
    .edges = exo_composition_edges, .check = exo_composition_check

#endif
