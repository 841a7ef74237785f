/* Tables of 64-bit keys: their allocation and filling. See map64.h. */
#include "nn/text/map64.h"

#include <assert.h>

#include <exogym/memory.h>

bool
exo_map64_init(exo_map64 *map, size_t count)
{
    size_t size = 16;
    while (size < 2 * count)
        size *= 2;
    *map = (exo_map64){.slots = exo_calloc(size, sizeof *map->slots), .mask = size - 1};
    if (!map->slots)
        return false;
    for (size_t i = 0; i < size; i++)
        map->slots[i].key = EXO_MAP64_NONE;
    return true;
}

void
exo_map64_release(exo_map64 *map)
{
    exo_free(map->slots);
    *map = (exo_map64){0};
}

void
exo_map64_set(exo_map64 *map, uint64_t key, uint64_t value)
{
    size_t i = exo_hash64(key) & map->mask;
    while (map->slots[i].key != EXO_MAP64_NONE && map->slots[i].key != key)
        i = (i + 1) & map->mask;
    if (map->slots[i].key == EXO_MAP64_NONE) {
        assert(map->count <= map->mask / 2);
        map->slots[i].key = key;
        map->count++;
    }
    map->slots[i].value = value;
}
