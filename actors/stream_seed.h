/* Random streams of an actor's own: a seed for each name, so that no two actors of a run draw the same. */
#ifndef EXO_STREAM_SEED_H
#define EXO_STREAM_SEED_H

#include <stdint.h>

/* The run's seed, and FNV-1a of the name. */
static inline uint64_t
exo_stream_seed(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return seed ^ hash;
}

#endif
