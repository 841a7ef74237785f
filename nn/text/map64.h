/* Tables from 64-bit keys to 64-bit values, and hashes of bytes. One thread fills a table; then
 * any thread may read it, many at once. */
#ifndef EXO_TEXT_MAP64_H
#define EXO_TEXT_MAP64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXO_MAP64_NONE UINT64_MAX /* not allowed as key or value */

typedef struct exo_map64_slot {
    uint64_t key, value;
} exo_map64_slot;

/* Open addressing with linear probing; at most half of the slots are used. Zero-initialize. */
typedef struct exo_map64 {
    exo_map64_slot *slots;
    size_t mask, count;
} exo_map64;

/* Allocates room for `count` keys. False: no memory. */
bool exo_map64_init(exo_map64 *map, size_t count);
void exo_map64_release(exo_map64 *map);
/* Sets the value of a key. The caller sets no more keys than the map has room for. */
void exo_map64_set(exo_map64 *map, uint64_t key, uint64_t value);

static inline uint64_t
exo_hash64(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 29;
}

static inline uint64_t
exo_hash_bytes(const char *bytes, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return exo_hash64(hash);
}

/* The value of a key, or EXO_MAP64_NONE. */
static inline uint64_t
exo_map64_get(const exo_map64 *map, uint64_t key)
{
    if (!map->slots)
        return EXO_MAP64_NONE;
    for (size_t i = exo_hash64(key) & map->mask;; i = (i + 1) & map->mask) {
        if (map->slots[i].key == key)
            return map->slots[i].value;
        if (map->slots[i].key == EXO_MAP64_NONE)
            return EXO_MAP64_NONE;
    }
}

#endif
