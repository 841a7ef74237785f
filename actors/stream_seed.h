/* Seeds for the random streams of actors: a seed for each name, so that the actors of a run draw
 * different numbers. */
#ifndef EXO_STREAM_SEED_H
#define EXO_STREAM_SEED_H

#include <stdint.h>

/* The run's seed, XORed with the 64-bit FNV-1a hash of the name. */
static inline uint64_t
exo_stream_seed(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return seed ^ hash;
}

#endif
