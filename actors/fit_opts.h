/* The options of a fit: defaults, checks, and their forms as JSON. No state. */
#ifndef EXO_FIT_OPTS_H
#define EXO_FIT_OPTS_H

#include <exogym/parallel.h>
#include <exogym/strategy.h>
#include <exogym/trainer.h>

#include "graph/spec.h"

/* The shortest and the longest timeout, in a node's document too, which has milliseconds. */
#define EXO_FIT_MIN_TIMEOUT EXO_MS
#define EXO_FIT_MAX_TIMEOUT (1000000 * EXO_SECOND)

enum {
    EXO_FIT_MAX_NODES = 65536 /* the most members of a communicator in one process */
};

/* Checks the options. INVAL names the wrong option and its valid values. */
exo_status exo_fit_opts_check(const exo_fit_opts *opts, exo_err *err);

/* Writes the settings that a resumed run must share with its checkpoint, as a JSON object. The data
 * is identified by the number of its samples and a hash of a few of them. `options`: the strategy's
 * options as text. minibatch_size: the size in use. The caller frees *out with exo_free. NOMEM. */
exo_status exo_fit_settings_json(const exo_fit_opts *opts, const char *strategy,
                                 const char *options, const exo_model *model,
                                 const exo_dataset *train, size_t minibatch_size, char **out,
                                 exo_err *err);

/* Writes all options, for config.json. The caller frees *out with exo_free. NOMEM. */
exo_status exo_fit_config_json(const exo_fit_opts *opts, const char *strategy, const char *options,
                               const exo_model *model, uint64_t max_steps, size_t minibatch_size,
                               char **out, exo_err *err);

/* Whether the nodes take the inner step within backward and so have no buffer of gradients. That is
 * the case if the strategy steps each node alone and a step is a single pass. */
bool exo_fit_steps_within(const exo_strategy *strategy, uint32_t num_nodes, size_t batch_size,
                          size_t minibatch_size);

/* The share of the first node of a stage, if nodes share copies of the model. */
exo_share exo_fit_opts_share(const exo_fit_opts *opts, uint32_t stage);
/* Checks whether sequence or context parallelism, if the options have it, divides the sequences of
 * `data`. INVAL. */
exo_status exo_fit_check_sequences(const exo_fit_opts *opts, const exo_dataset *data, exo_err *err);
/* Checks whether nodes with parts or stages of the model can train with the strategy in the graph, which
 * may be NULL. UNSUPPORTED names the reason. */
exo_status exo_fit_check_parts(const exo_strategy *strategy, const exo_graph_spec *graph,
                               const exo_fit_opts *opts, exo_err *err);

/* Checks whether the nodes of the strategy, whose name is `name`, can change as `elastic` of the options
 * needs it. INVAL, UNSUPPORTED. */
exo_status exo_fit_check_elastic(const exo_fit_opts *opts, const exo_strategy *strategy,
                                 const char *name, exo_err *err);
/* Checks `failures` of the options. UNSUPPORTED: the clock of the graph, which may be NULL, is
 * real. */
exo_status exo_fit_check_failures(const exo_fit_opts *opts, const exo_graph_spec *graph,
                                  exo_err *err);

/* Finds the largest divisor of `batch_size` for which the forward and backward passes of `copies`
 * nodes at once fit into most of the memory that is free now; 1 if none fits, batch_size if the
 * free memory is unknown. */
exo_status exo_fit_auto_minibatch(exo_model *model, exo_dataset *train, size_t batch_size,
                                  exo_autocast autocast, unsigned copies, size_t *out,
                                  exo_err *err);

#endif
