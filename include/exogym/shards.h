/* Shards: one member's part of every unit of a model (units.h), in one array. The part of a unit is
 * that of exo_shard (comm.h), so all members together have each element once.
 *
 * A fully sharded strategy keeps shards of the parameters, and in the same shape shards of the
 * gradients. One thread at a time.
 */
#ifndef EXOGYM_SHARDS_H
#define EXOGYM_SHARDS_H

#include <exogym/comm.h>
#include <exogym/units.h>

EXO_DECLS_BEGIN

/* One member's part of every unit. */
typedef struct exo_shards {
    exo_array all;              /* the shards, one after another; fp32, owned */
    const exo_unit_info *units; /* (num_units) the model's units */
    size_t num_units;
    uint32_t size, rank; /* the number of members; the member of this struct */
    size_t *at;          /* (num_units) where each shard begins in `all`; owned */
} exo_shards;

/* Makes the shards of member `rank` of `size`, all zero, on `device`: that of the units, or the host's,
 * where they take no memory of the units' device. The caller releases them.
 * `units` must outlive them. NOMEM, or the device's errors. */
EXO_API exo_status exo_shards_init(exo_shards *out, const exo_unit_info *units, size_t num_units,
                                   uint32_t size, uint32_t rank, exo_device *device, exo_err *err);
/* Frees the shards; accepts a struct that is all zero. */
EXO_API void exo_shards_release(exo_shards *shards);
/* The shard of a unit: a part of `all`. */
EXO_API exo_array exo_shards_of(const exo_shards *shards, size_t unit);
/* The index in the flat parameters at which the shard of a unit begins. */
EXO_API size_t exo_shards_first(const exo_shards *shards, size_t unit);
/* Copies this member's shard from the whole unit, `whole` (count of the unit). */
EXO_API void exo_shards_keep(exo_shards *shards, size_t unit, exo_array whole);
/* Fills the whole unit, `whole` (count of the unit), with the shards of all members: an all-gather
 * among the `size` members of `group`. Blocks as the collective does. Errors: the collective's. */
EXO_API exo_status exo_shards_gather(const exo_shards *shards, size_t unit, exo_array whole,
                                     exo_group *group, exo_err *err);

EXO_DECLS_END

#endif
