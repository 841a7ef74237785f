/* One member's shard of every unit: see exogym/shards.h. No state beyond the struct. */
#include <exogym/shards.h>

#include <exogym/memory.h>

exo_status
exo_shards_init(exo_shards *out, const exo_unit_info *units, size_t num_units, uint32_t size,
                uint32_t rank, exo_device *device, exo_err *err)
{
    *out = (exo_shards){.units = units, .num_units = num_units, .size = size, .rank = rank};
    out->at = exo_calloc(num_units + 1, sizeof *out->at);
    if (!out->at)
        return exo_fail(err, EXO_NOMEM, "no memory for the shards of %zu units", num_units);
    size_t all = 0;
    for (size_t u = 0; u < num_units; u++) {
        size_t first, length;
        exo_shard(units[u].count, size, rank, &first, &length);
        out->at[u] = all;
        all += length;
    }
    exo_status st = exo_array_init(&out->all, device, EXO_F32, all, err);
    if (st != EXO_OK)
        exo_shards_release(out);
    return st;
}

void
exo_shards_release(exo_shards *shards)
{
    exo_array_release(&shards->all);
    exo_free(shards->at);
    *shards = (exo_shards){0};
}

/* This member's part of the whole unit. */
static exo_array
own_part(const exo_shards *shards, size_t unit, exo_array whole)
{
    size_t first, length;
    exo_shard(shards->units[unit].count, shards->size, shards->rank, &first, &length);
    return exo_array_part(whole, first, length);
}

exo_array
exo_shards_of(const exo_shards *shards, size_t unit)
{
    size_t first, length;
    exo_shard(shards->units[unit].count, shards->size, shards->rank, &first, &length);
    return exo_array_part(shards->all, shards->at[unit], length);
}

size_t
exo_shards_first(const exo_shards *shards, size_t unit)
{
    size_t first, length;
    exo_shard(shards->units[unit].count, shards->size, shards->rank, &first, &length);
    return shards->units[unit].first + first;
}

/* Copies between two devices, of which one is the host's. The other one remembers a failure. */
static void
copy_across(exo_array to, exo_array from)
{
    if (to.device == from.device)
        exo_vec_copy(to, from);
    else if (exo_device_is_host(to.device))
        exo_array_read(from, to.data, NULL);
    else
        exo_array_write(to, from.data, NULL);
}

void
exo_shards_keep(exo_shards *shards, size_t unit, exo_array whole)
{
    copy_across(exo_shards_of(shards, unit), own_part(shards, unit, whole));
}

exo_status
exo_shards_gather(const exo_shards *shards, size_t unit, exo_array whole, exo_group *group,
                  exo_err *err)
{
    copy_across(own_part(shards, unit, whole), exo_shards_of(shards, unit));
    return exo_all_gather(group, whole, err);
}
