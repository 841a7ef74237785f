/* Units: copies of a model that have memory for a part of the parameters only.
 *
 * The parameters of a model are a sequence of units (exo_build_unit); a unit is a block of layers.
 * A copy by units has addresses for all units, and memory for the open ones. The memory of an
 * absent unit is given back to the system, and an access to its addresses raises SIGSEGV. A unit
 * keeps its address for the life of the copy, so the records of a pass stay valid when a unit is
 * closed after forward and opened again in backward. Buffers and frozen parameters always have
 * memory.
 *
 *     exo_array whole;
 *     st = exo_unit_open(params, unit, &whole, err);            absent -> open, zeros
 *     st = exo_shards_gather(&shards, unit, whole, group, err); the shards of all members
 *     ...
 *     exo_unit_close(params, unit);                             open -> absent
 *
 * The values of an absent unit are kept by the code that closes it: a strategy with `keep`
 * (strategy.h), most simply in exo_shards (shards.h).
 *
 * A copy by units is on the host, or on another device (exo_params_to), where closing a unit waits for
 * the work that was asked for before. The functions below also take flat copies, whose units are always
 * open: opening returns the range of the flat array, and closing does nothing.
 */
#ifndef EXOGYM_UNITS_H
#define EXOGYM_UNITS_H

#include <exogym/model.h>

EXO_DECLS_BEGIN

/* Makes a copy by units, with addresses for values and gradients; all units are absent. Buffers and
 * frozen parameters are initialized from `seed`. The caller frees it with exo_params_free, before
 * the model is dropped for the last time. One thread at a time. NOMEM. */
EXO_API exo_status exo_model_by_units(exo_model *model, uint64_t seed, exo_params **out,
                                      exo_err *err);
/* Whether `params` is a copy by units. */
EXO_API bool exo_params_by_units(const exo_params *params);

/* The number of units of the copy's model, and the units; they live as long as the model. */
EXO_API size_t exo_params_num_units(const exo_params *params);
EXO_API const exo_unit_info *exo_params_units(const exo_params *params);

/* Opens a unit. *values is the unit's values (count); they are zero if the unit was absent.
 * NOMEM. */
EXO_API exo_status exo_unit_open(exo_params *params, size_t unit, exo_array *values, exo_err *err);
/* Gives the memory of the unit's values back. Does nothing if the unit is absent. */
EXO_API void exo_unit_close(exo_params *params, size_t unit);
/* The unit's values (count), not owned. `data` is NULL if the unit is absent. */
EXO_API exo_array exo_unit_values(exo_params *params, size_t unit);
/* Writes the unit's initial values, which are those of exo_model_params with this seed. The unit
 * must be open. Errors: those of the model class. */
EXO_API exo_status exo_unit_draw(exo_model *model, exo_params *params, size_t unit, uint64_t seed,
                                 exo_err *err);

/* The same for the unit's gradients. Backward opens the gradients that it needs. */
EXO_API exo_status exo_unit_open_grads(exo_params *params, size_t unit, exo_array *grads,
                                       exo_err *err);
EXO_API void exo_unit_close_grads(exo_params *params, size_t unit);

/* The bytes of values and gradients that are open now, and the most that were open at once. For a
 * flat copy, both count everything. */
EXO_API size_t exo_params_open_bytes(const exo_params *params);
EXO_API size_t exo_params_most_open_bytes(const exo_params *params);

EXO_DECLS_END

#endif
