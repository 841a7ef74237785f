/* The check of an encoding: XXH32's rounds on 64 lanes instead of 4, which fill vectors. No
 * state.
 *
 * A lane's step is h = rotl(h + word * odd, 13) * odd, which is invertible, so different words give
 * different lanes. Lanes and pieces are folded by invertible steps, too. So a change within one
 * word always changes the check. */
#include "codec/checksum.h"

#include <string.h>

#include "base/parallel.h"
#include "base/vector_width.h"

enum {
    LANES = 64, /* words of 4 bytes: 256 bytes a round */
    STRIPE = 4 * LANES,
    MAX_PIECES = 64,
    MIN_PIECE = 1 << 18, /* bytes */
};

#define P1 0x9E3779B1u
#define P2 0x85EBCA77u
#define P3 0xC2B2AE3Du
#define P4 0x27D4EB2Fu

enum {
    VECTORS = STRIPE / EXO_VECTOR_BYTES
};

typedef uint32_t vector __attribute__((vector_size(EXO_VECTOR_BYTES)));

static uint32_t
fold(uint32_t h, uint32_t word)
{
    h += word * P3;
    return (h << 17 | h >> 15) * P4;
}

static uint32_t
avalanche(uint32_t h)
{
    h = (h ^ h >> 15) * P2;
    h = (h ^ h >> 13) * P3;
    return h ^ h >> 16;
}

/* One round of all lanes. The loop is unrolled, so that the vectors stay in registers. */
static inline __attribute__((always_inline)) void
stir(vector *h, const uint8_t *from)
{
#pragma GCC unroll 16
    for (size_t v = 0; v < VECTORS; v++) {
        vector word;
        memcpy(&word, from + v * sizeof word, sizeof word);
        h[v] += word * P2;
        h[v] = (h[v] << 13 | h[v] >> 19) * P1;
    }
}

static uint32_t
check_piece(const uint8_t *bytes, size_t size, uint32_t seed)
{
    const uint32_t first[] = {seed + P1, seed + P2, seed, seed - P1};
    vector h[VECTORS];
    uint32_t lanes[LANES];
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = first[i / (LANES / 4)];
    memcpy(h, lanes, sizeof h);
    size_t at = 0;
    for (; size - at >= STRIPE; at += STRIPE)
        stir(h, bytes + at);
    if (at < size) {
        uint8_t rest[STRIPE] = {0};
        memcpy(rest, bytes + at, size - at);
        stir(h, rest);
    }
    memcpy(lanes, h, sizeof lanes);
    uint32_t sum = fold(fold(seed, (uint32_t)size), (uint32_t)(size >> 32));
    for (size_t i = 0; i < LANES; i++)
        sum = fold(sum, lanes[i]);
    return avalanche(sum);
}

struct job {
    const uint8_t *bytes;
    size_t size, piece;
    uint32_t seed;
    uint32_t checks[MAX_PIECES];
};

static void
run_piece(void *context, size_t index)
{
    struct job *job = context;
    size_t first = index * job->piece, left = job->size - first;
    job->checks[index] =
        check_piece(job->bytes + first, left < job->piece ? left : job->piece, job->seed);
}

uint32_t
exo_checksum(const void *bytes, size_t size, uint64_t seed)
{
    struct job job = {
        .bytes = bytes, .size = size, .seed = fold((uint32_t)seed, (uint32_t)(seed >> 32))};
    job.piece = (size / MAX_PIECES / STRIPE + 1) * STRIPE;
    if (job.piece < MIN_PIECE)
        job.piece = MIN_PIECE;
    size_t pieces = (size + job.piece - 1) / job.piece;
    if (pieces <= 1)
        return check_piece(bytes, size, job.seed);
    exo_parallel_for(pieces, run_piece, &job);
    uint32_t h = job.seed;
    for (size_t i = 0; i < pieces; i++)
        h = fold(h, job.checks[i]);
    return avalanche(h);
}
