/* The check at the end of every encoding. */
#ifndef EXO_CODEC_CHECKSUM_H
#define EXO_CODEC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum {
    EXO_CHECKSUM_BYTES = 4
};

/* The check of `size` bytes under a seed: the same with any number of threads and on every machine
 * of this byte order. Not against someone who means it, whom nothing of 32 bits keeps out; against
 * accidents:
 * - bytes that differ within one aligned word of 4 (so a single bit or byte) never have the same
 *   check;
 * - any others have it with probability 2^-32. */
uint32_t exo_checksum(const void *bytes, size_t size, uint64_t seed);

#endif
