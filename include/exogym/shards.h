/* Shards: one member's part of every unit of a model (units.h), which is exo_shard of each, one
 * after the other in one array.
 *
 * Together the members have each element once. What fully sharded strategies keep of parameters,
 * and in the same shape of gradients. One thread at a time.
 */
#ifndef EXOGYM_SHARDS_H
#define EXOGYM_SHARDS_H

#include <exogym/comm.h>
#include <exogym/units.h>

EXO_DECLS_BEGIN

/* One member's part of every unit. */
typedef struct exo_shards {
    exo_array all;              /* (the sum of the shards) owned */
    const exo_unit_info *units; /* (num_units) of the model */
    size_t num_units;
    uint32_t size, rank; /* of how many members whose this is */
    size_t *at;          /* (num_units): where each shard begins in `all`; owned */
} exo_shards;

/* Zeros, for member `rank` of `size`; the caller releases it. `units` must outlive it. NOMEM. */
EXO_API exo_status exo_shards_init(exo_shards *out, const exo_unit_info *units, size_t num_units,
                                   uint32_t size, uint32_t rank, exo_device *device, exo_err *err);
/* Frees it; accepts one that is all zero. */
EXO_API void exo_shards_release(exo_shards *shards);
/* The shard of a unit in `all`. */
EXO_API exo_array exo_shards_of(const exo_shards *shards, size_t unit);
/* Where that begins in the flat parameters. */
EXO_API size_t exo_shards_first(const exo_shards *shards, size_t unit);
/* Copies this member's shard out of the whole unit. */
EXO_API void exo_shards_keep(exo_shards *shards, size_t unit, exo_array whole);
/* Everybody's shard into the whole unit: an all-gather among the members of `group`, which are
 * `size`. Errors: the collective's. */
EXO_API exo_status exo_shards_gather(const exo_shards *shards, size_t unit, exo_array whole,
                                     exo_group *group, exo_err *err);

EXO_DECLS_END

#endif
