/* Philox4x32-10. The stream's key is the seed; its 128-bit counter contains the block's index,
 * (purpose, node) and the step. No state. */
#include <exogym/rng.h>

#include <math.h>

enum {
    ROUNDS = 10
};

static void
philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void
exo_rng_init(exo_rng *rng, uint64_t seed, exo_purpose purpose, uint32_t node, uint64_t step)
{
    *rng = (exo_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, (uint32_t)purpose << 24 | (node & 0xFFFFFFu), (uint32_t)step,
                    (uint32_t)(step >> 32)},
        .used = 4,
    };
}

void
exo_rng_block(const exo_rng *rng, uint32_t index, uint32_t out[4])
{
    const uint32_t counter[4] = {index, rng->counter[1], rng->counter[2], rng->counter[3]};
    philox(counter, rng->key, out);
}

uint32_t
exo_rng_u32(exo_rng *rng)
{
    if (rng->used == 4) {
        philox(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

float
exo_rng_uniform(exo_rng *rng)
{
    return (float)(exo_rng_u32(rng) >> 8) * 0x1p-24f;
}

float
exo_rng_normal(exo_rng *rng)
{
    /* 1 - u is in (0, 1], so the logarithm is finite. */
    double u = 1.0 - (double)exo_rng_uniform(rng);
    double v = (double)exo_rng_uniform(rng);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint32_t
exo_rng_below(exo_rng *rng, uint32_t n)
{
    uint64_t product = (uint64_t)exo_rng_u32(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (0u - n) % n;
        while ((uint32_t)product < threshold)
            product = (uint64_t)exo_rng_u32(rng) * n;
    }
    return (uint32_t)(product >> 32);
}

void
exo_rng_permutation(exo_rng *rng, uint32_t *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = exo_rng_below(rng, i);
        uint32_t swapped = out[i - 1];
        out[i - 1] = out[j];
        out[j] = swapped;
    }
}
