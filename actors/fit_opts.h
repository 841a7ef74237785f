/* The options of a fit: defaults, checks, and what of them is written down. */
#ifndef EXO_FIT_OPTS_H
#define EXO_FIT_OPTS_H

#include <exogym/strategy.h>
#include <exogym/trainer.h>

/* INVAL names the option and what it must be. */
exo_status exo_fit_opts_check(const exo_fit_opts *opts, exo_err *err);

/* The settings that a resumed run must share with its checkpoint, as a JSON object: also what tells the data apart, by a few samples. `options` is
 * the strategy's as text. minibatch_size is the one in use. The caller frees *out with exo_free. */
exo_status exo_fit_settings_json(const exo_fit_opts *opts, const char *strategy,
                                 const char *options, const exo_model *model,
                                 const exo_dataset *train, size_t minibatch_size, char **out,
                                 exo_err *err);

/* All options, for config.json. The caller frees *out with exo_free. */
exo_status exo_fit_config_json(const exo_fit_opts *opts, const char *strategy, const char *options,
                               const exo_model *model, uint64_t max_steps, size_t minibatch_size,
                               char **out, exo_err *err);

/* Whether nodes take the inner step within backward and have no buffer of gradients: the strategy steps alone, and a step is one pass. */
bool exo_fit_steps_within(const exo_strategy *strategy, uint32_t num_nodes, size_t batch_size,
                          size_t minibatch_size);

/* UNSUPPORTED: the strategy keeps units, copies of which are possible on the CPU alone, and the device is another one. */
exo_status exo_fit_check_units(const exo_strategy *strategy, const char *device, exo_err *err);

/* The largest divisor of `batch_size` for which a forward and backward pass of `copies` nodes at once fits into most of the
 * memory that is free now; 1 if none does. */
exo_status exo_fit_auto_minibatch(exo_model *model, exo_dataset *train, size_t batch_size,
                                  bool autocast, unsigned copies, size_t *out, exo_err *err);

#endif
