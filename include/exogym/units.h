/* Units: copies of a model of which a node has less than the whole at any time.
 *
 * A model's parameters are a sequence of units (exo_build_unit), of a block of layers each. A copy
 * by units has addresses for all of them, and memory only for those that are open: an absent unit's
 * memory is the system's, and whoever reads or writes there is ended by SIGSEGV. A unit has one
 * address for the life of the copy, so what a pass has recorded holds when the unit is closed after
 * forward and opened anew in backward. Buffers and frozen parameters are there always.
 *
 *     exo_array whole;
 *     st = exo_unit_open(params, unit, &whole, err);            absent -> whole, zeros
 *     st = exo_shards_gather(&shards, unit, whole, group, err); everybody's shard, on every member
 *     ...
 *     exo_unit_close(params, unit);                             whole -> absent
 *
 * Who has a unit's values meanwhile is the business of whoever closes it: a strategy that has
 * `keep` (strategy.h), most simply with exo_shards (shards.h).
 *
 * Copies by units are on the host. Every function below takes flat copies, too, whose units are always open: opening gives the
 * range, closing does nothing.
 */
#ifndef EXOGYM_UNITS_H
#define EXOGYM_UNITS_H

#include <exogym/model.h>

EXO_DECLS_BEGIN

/* A new copy by units, with addresses for gradients; all units are absent. Buffers and frozen
 * parameters are initialized from `seed`. The caller frees it as any copy, before the model is
 * dropped for the last time. It belongs to one thread at a time. NOMEM. */
EXO_API exo_status exo_model_by_units(exo_model *model, uint64_t seed, exo_params **out,
                                      exo_err *err);
/* Whether it is one. */
EXO_API bool exo_params_by_units(const exo_params *params);

/* The units of its model. */
EXO_API size_t exo_params_num_units(const exo_params *params);
EXO_API const exo_unit_info *exo_params_units(const exo_params *params);

/* The unit's values, (count), with memory: zeros if it was absent. NOMEM. */
EXO_API exo_status exo_unit_open(exo_params *params, size_t unit, exo_array *values, exo_err *err);
/* Gives the memory back; of an absent one nothing happens. */
EXO_API void exo_unit_close(exo_params *params, size_t unit);
/* The unit's values, (count), not owned; data NULL: it is absent. */
EXO_API exo_array exo_unit_values(exo_params *params, size_t unit);
/* Draws the unit's initial values, those of exo_model_params; it is open. Errors: the model
 * class's. */
EXO_API exo_status exo_unit_draw(exo_model *model, exo_params *params, size_t unit, uint64_t seed,
                                 exo_err *err);

/* The same of its gradients, which backward opens by itself. */
EXO_API exo_status exo_unit_open_grads(exo_params *params, size_t unit, exo_array *grads,
                                       exo_err *err);
EXO_API void exo_unit_close_grads(exo_params *params, size_t unit);

/* Bytes of values and gradients that are open now, and the most that were at once. Of a flat copy:
 * all. */
EXO_API size_t exo_params_open_bytes(const exo_params *params);
EXO_API size_t exo_params_most_open_bytes(const exo_params *params);

EXO_DECLS_END

#endif
