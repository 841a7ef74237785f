/* One exchange of a strategy that is made of the pieces which strategies share:
 *
 *     when       after the steps offset + H, offset + 2 H, ...; with a delay, the new values are
 *                written some steps later, and the messages pass in the meantime
 *     what       the parameters: all of them, fragments of the model in turn, or the coordinates
 *                that a selector draws. With a codec: encoded pseudo-gradients in their place
 *     partners   all nodes, or the node's random island, of which a pair is the smallest
 *     aggregate  the mean of the partners' values, or a rule that bears wrong values (aggregate.h)
 *     apply      the mean; an outer optimizer on the mean change; a mix of own values and the mean;
 *                an outer optimizer on the own change and the others' last one
 *
 * A composition is a list of exchanges, which follow the inner step in their order. fedavg, diloco,
 * sparta, local_sgd, noloco and others are compositions with options of their own. `compose` reads
 * a list of exchanges from a job. exchange_options.c has a table of names for each kind of piece;
 * exchange.c has the function of each.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (a round), exchange_start.c
 * (memory), partners.c, fragments.c, background.c (rounds in the background, codecs), exchange_options.c
 * (options), composition.c (the list), compose.c.
 */
#ifndef EXO_STRATEGIES_EXCHANGE_H
#define EXO_STRATEGIES_EXCHANGE_H

#include "strategies/aggregate.h"

#include <exogym/codec.h>

/* What a round does with the mean of the partners. */
typedef enum exo_apply {
    EXO_APPLY_MEAN,  /* theta = mean */
    EXO_APPLY_OUTER, /* theta = outer optimizer(theta_outer, theta_outer - mean), as in diloco */
    EXO_APPLY_MIX,   /* theta = alpha theta + (1 - alpha) mean */
    EXO_APPLY_EAGER, /* an outer step on the own change and the last change of the others */
} exo_apply;

/* A part of the parameters that has rounds of its own: some units of the model, or all. */
typedef struct exo_fragment {
    size_t *spans; /* (num_spans, 2) the first parameter and the count of each range; owned */
    size_t num_spans;
    size_t count, at;     /* elements; where they begin in memory of all fragments */
    size_t first, length; /* the part of the fragment whose outer step this node takes */
    size_t outer_at;      /* where that part begins in the outer parameters */
    exo_optim *optim;     /* the outer optimizer; owned */
} exo_fragment;

/* A round whose messages pass in the background (background.c). */
typedef struct exo_pending {
    exo_request *request; /* NULL: it has not begun */
    exo_group *group;     /* owned; NULL: the node's */
    exo_array buffer;     /* what is sent and received: values; without a codec */
    /* With one: the encodings of all members (members, size), and the mean of what they say; owned */
    exo_commons *commons;
    bool packed; /* it has this node's encoding */
} exo_pending;

typedef struct exo_param_exchange {
    /* --- Options, which the strategy sets before start; zeroed: the mean of all parameters ---- */
    char name[24]; /* in messages, in names of the state, and of the scope of its meters */
    bool scoped;   /* its meters have a scope of their own */
    exo_rounds rounds;
    uint64_t delay;     /* steps from the values of a round to their mean */
    uint64_t fragments; /* that have their rounds in turn; 0: all parameters at once */
    char *cut_at;       /* place of fragments in the config, for check_model; owned */
    bool selects;       /* only what a selector draws */
    exo_select_kind selector_kind;
    double p;             /* the part of the coordinates in a round, in (0, 1] */
    exo_codec *codec;     /* of pseudo-gradients; NULL: parameters are sent; owned */
    float feedback;       /* the part of the encoding's error that the next round sends, too */
    uint64_t island_size; /* 0: all nodes */
    char *place; /* place of island_size in the config, for check; NULL: not checked; owned */
    exo_aggregation aggregation;
    exo_apply apply;
    exo_optim_spec outer_spec; /* of EXO_APPLY_OUTER and EAGER */
    exo_schedule *momentum;    /* a factor on its momentum; NULL: constant; owned */
    float alpha;               /* the part of the own values that stays, in [0, 1] */

    /* --- State, from start -------------------------------------------------------------------- */
    uint64_t seed;
    uint32_t *ranks; /* (num_nodes) memory for an island; NULL: all nodes; owned */
    exo_selector *selector;
    uint32_t *here;      /* room for the selected coordinates that a part of the model has; owned */
    exo_fragment *parts; /* (num_parts) owned */
    size_t num_parts;
    /* Rounds in flight keep their values here: (num_slots, capacity). NULL data: the values are the
     * parameters themselves. */
    exo_array slots, own;
    uint64_t num_slots;
    size_t capacity;
    exo_pending *pending; /* (num_slots, num_parts); NULL: no round is in the background; owned */
    exo_array outer;      /* theta_outer of this node's part: a copy, never the model's memory */
    bool whole;           /* each node has the whole outer state, and takes the whole outer step */
    exo_array residual;   /* what feedback adds; as many as parameters */
    exo_array center;     /* (shard) the last mean of this node's shard, for norm_clip */
    /* Room for a fragment and for its encoding. */
    exo_array decoded;
    float *floats;
    uint8_t *bytes;
    exo_meter *rounds_done, *exchanged;
} exo_param_exchange;

/* Readers of pieces (exchange_options.c). Errors: INVAL with the place. */
/* Reads `p` and, under `key`, the selector's name. With p 0, `out` selects nothing: allowed only if
 * allow_zero. */
exo_status exo_param_exchange_read_selector(exo_param_exchange *out, exo_config *config,
                                            const char *key, bool allow_zero, exo_err *err);
/* Reads `delay`, of which `fallback` is the default. */
exo_status exo_param_exchange_read_delay(exo_param_exchange *out, exo_config *config,
                                         uint64_t fallback, exo_err *err);
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
/* Reads `codec` and `feedback`: how pseudo-gradients are encoded. `fallback`: the codec's name;
 * "raw" sends parameters. */
exo_status exo_param_exchange_read_codec(exo_param_exchange *out, exo_config *config,
                                         const char *fallback, float feedback, exo_err *err);
/* Reads the number of fragments under `key`. */
exo_status exo_param_exchange_read_fragments(exo_param_exchange *out, exo_config *config,
                                             const char *key, exo_err *err);
/* Checks that the pieces fit each other. INVAL with the place of `config`. */
exo_status exo_param_exchange_check_pieces(const exo_param_exchange *exchange, exo_config *config,
                                           exo_err *err);
/* Reads an outer optimizer, of which `fallback` has the defaults. */
exo_status exo_param_exchange_read_outer(exo_param_exchange *out, exo_config *config,
                                         const char *key, const exo_optim_spec *fallback,
                                         exo_err *err);
/* Reads the schedule of its momentum, a mapping under `key`. */
exo_status exo_param_exchange_read_momentum(exo_param_exchange *out, exo_config *config,
                                            const char *key, exo_err *err);
/* The outer optimizer of DiLoCo's paper: SGD with lr 0.7 and a Nesterov momentum of 0.9. */
exo_optim_spec exo_nesterov(void);
/* Reads a whole exchange of parameters, an item of the list `exchanges` of `compose`. */
exo_status exo_param_exchange_read(exo_param_exchange *out, exo_config *config, exo_err *err);
/* Appends an exchange as such an item. `outer` and `momentum` are the YAML of its outer optimizer and
 * of the schedule of its momentum; NULL: there is none. */
void exo_param_exchange_write(const exo_param_exchange *exchange, const char *outer,
                              const char *momentum, exo_text *out);

/* A round of an exchange (exchange.c). `seed` distinguishes the random choices of exchanges. */
exo_status exo_param_exchange_check(const exo_param_exchange *exchange, uint32_t num_nodes,
                                    exo_err *err);
exo_status exo_param_exchange_start(exo_param_exchange *exchange, exo_node *node, uint64_t seed,
                                    exo_err *err);
/* Does what is due after the inner step of node->step. Errors: those of the collectives. */
exo_status exo_param_exchange_run(exo_param_exchange *exchange, exo_node *node, exo_err *err);
/* Whether nodes meet after the inner step of `step`. */
bool exo_param_exchange_meets(const exo_param_exchange *exchange, uint64_t step);
void exo_param_exchange_state(exo_param_exchange *exchange, exo_state *state);
exo_strategy_edge exo_param_exchange_edge(const exo_param_exchange *exchange,
                                          const exo_param_info *infos, size_t num_infos,
                                          size_t numel, uint32_t num_nodes);
/* Ends the rounds in the background. Called before the node's group closes. */
void exo_param_exchange_leave(exo_param_exchange *exchange);
void exo_param_exchange_release(exo_param_exchange *exchange);

/* --- Parts of a round, for the files of exchanges --------------------------------------------- */

/* Whether the messages of rounds pass in the background. */
bool exo_param_exchange_flies(const exo_param_exchange *exchange);
/* Takes an outer step of a fragment's part at the momentum of this step. */
void exo_param_exchange_step_outer(const exo_param_exchange *exchange, const exo_node *node,
                                   size_t part, exo_array outer, exo_array gradient);
/* Whether all nodes together share the outer step. */
bool exo_param_exchange_shares(const exo_param_exchange *exchange);
/* Gives the group of a round, which the caller closes if it is not node->group. NULL: the node has
 * no partner in this round, and nothing to do. */
exo_status exo_param_exchange_meet(const exo_param_exchange *exchange, const exo_node *node,
                                   uint64_t round, exo_group **out, exo_err *err);
/* Whether the node has no partner in a round, as the remainder of pairs or islands. */
bool exo_param_exchange_alone(const exo_param_exchange *exchange, const exo_node *node,
                              uint64_t round);

/* Fragments (fragments.c). Divides the parameters among `exchange->fragments`. INVAL: the model has
 * fewer units. */
exo_status exo_fragments_start(exo_param_exchange *exchange, const exo_node *node, exo_err *err);
/* Checks that a model of so many units can be cut into the fragments; 0: unknown. INVAL. */
exo_status exo_fragments_check(const exo_param_exchange *exchange, size_t num_units, exo_err *err);
void exo_fragments_release(exo_param_exchange *exchange);
/* Whether a round of a fragment follows the step of index `step`. */
bool exo_fragment_due(const exo_param_exchange *exchange, size_t part, uint64_t step);
/* The elements of a fragment of `numel` parameters; before start, by the units of `infos`
 * (num_infos), or of equal fragments if there are fewer units. */
size_t exo_fragment_count(const exo_param_exchange *exchange, size_t part,
                          const exo_param_info *infos, size_t num_infos, size_t numel);
/* Copies a fragment of the parameters to packed memory; and packed values, mixed with `alpha` of
 * the parameters, to the parameters. */
void exo_fragment_pack(const exo_fragment *part, exo_array packed, exo_array params);
void exo_fragment_unpack(const exo_fragment *part, exo_array packed, float alpha, exo_array params);

/* Rounds in the background (background.c). */
exo_status exo_background_start(exo_param_exchange *exchange, const exo_node *node, exo_err *err);
/* Adds the residual to the values of a round, and keeps what their encoding loses. */
exo_status exo_background_feed_back(exo_param_exchange *exchange, const exo_node *node, size_t part,
                                    exo_pending *pending, exo_array values, exo_err *err);
/* Begins to send the values of a round. Does nothing without a partner. */
exo_status exo_background_begin(exo_param_exchange *exchange, const exo_node *node, size_t part,
                                uint64_t round, exo_pending *pending, exo_array values,
                                exo_err *err);
/* Waits, and replaces the values by their mean. */
exo_status exo_background_end(exo_param_exchange *exchange, const exo_node *node, size_t part,
                              exo_pending *pending, exo_array values, exo_err *err);
/* The bytes of a fragment's encoding. */
size_t exo_background_bytes(const exo_param_exchange *exchange, size_t part);
void exo_background_leave(exo_param_exchange *exchange);
void exo_background_release(exo_param_exchange *exchange);

/* A round of EXO_APPLY_EAGER (eager.c). */
exo_status exo_param_exchange_run_eager(exo_param_exchange *exchange, exo_node *node, exo_err *err);

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

/* Whether no exchange treats elements by their places or by a norm of several. */
bool exo_composition_is_elementwise(const void *self);
bool exo_composition_is_by_parts(const void *self);
bool exo_composition_is_ordered(const void *self);
/* The functions of such a class. */
exo_status exo_composition_start(void *self, exo_node *node, exo_err *err);
exo_status exo_composition_step(void *self, exo_node *node, exo_err *err);
void exo_composition_state(void *self, exo_state *state);
void exo_composition_leave(void *self);
void exo_composition_release(void *self);
size_t exo_composition_edges(const void *self, const exo_param_info *infos, size_t num_infos,
                             size_t numel, uint32_t num_nodes,
                             exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
exo_status exo_composition_check(const void *self, uint32_t num_nodes, exo_err *err);
bool exo_composition_elastic(const void *self);
bool exo_composition_meets(const void *self, uint64_t step);
exo_status exo_composition_check_model(const void *self, const exo_model *model, exo_err *err);
/* The part of step after the inner step. */
exo_status exo_composition_exchange(exo_composition *composition, exo_node *node, exo_err *err);

/* The members of a class that is a composition, besides name, help and init. */
#define EXO_COMPOSITION_CLASS                                                                      \
    .state_size = sizeof(exo_composition), .start = exo_composition_start,                         \
    .step = exo_composition_step, .steps_alone = exo_always_steps_alone,                           \
    .state = exo_composition_state, .leave = exo_composition_leave,                                \
    .release = exo_composition_release, .model_edges = exo_composition_edges,                      \
    .check = exo_composition_check, .check_model = exo_composition_check_model,                    \
    .elastic = exo_composition_elastic, .meets = exo_composition_meets,                            \
    .is_elementwise = exo_composition_is_elementwise, .is_by_parts = exo_composition_is_by_parts,  \
    .is_ordered = exo_composition_is_ordered

#endif
