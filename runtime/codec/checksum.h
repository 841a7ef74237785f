/* The check at the end of every encoding. No state. */
#ifndef EXO_CODEC_CHECKSUM_H
#define EXO_CODEC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum {
    EXO_CHECKSUM_BYTES = 4
};

/* The check of `size` bytes under a seed: equal for any number of threads, and on every machine of
 * this byte order. It protects against accidents, not against forgery, which no 32 bits prevent:
 * - bytes that differ within one aligned word of 4 (so in a single bit or byte) never have the same
 *   check;
 * - bytes that differ otherwise have the same check with probability 2^-32. */
uint32_t exo_checksum(const void *bytes, size_t size, uint64_t seed);

#endif
