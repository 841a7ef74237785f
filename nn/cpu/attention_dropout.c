/* The weights that dropout keeps: Philox4x32-10. A block of numbers serves 8 keys of one query;
 * each lane is a query. The layout of the stream is at exo_attention_keep. No state. */
#include "nn/cpu/attention_kernels.h"

#include "nn/cpu/attention_vector.h"

enum {
    WAYS = 4,        /* vectors at a time: one alone would wait for its products */
    KEYS = 8,        /* keys of a block of numbers */
    ROUNDS = 10,     /* of Philox */
    BLOCK_BITS = 22, /* as in exo_dropout */
    HIGH_SHIFT = 16  /* position of a block's upper bits in the step's upper word */
};

/* Philox's counters, and after the rounds its numbers. */
struct words {
    uvec w[4][WAYS];
};

/* The upper and the lower half of the 64-bit product a * factor. */
INLINE void
wide_product(uvec a, uint32_t factor, uvec *high, uvec *low)
{
#if LANES == 16
    const __m512i f = _mm512_set1_epi64(factor), x = (__m512i)a;
    __m512i even = _mm512_mul_epu32(x, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), f);
    *high = (uvec)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = (uvec)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
#else
    uint32_t upper[LANES], lower[LANES];
    for (size_t l = 0; l < LANES; l++) {
        uint64_t product = (uint64_t)a[l] * factor;
        upper[l] = (uint32_t)(product >> 32);
        lower[l] = (uint32_t)product;
    }
    memcpy(high, upper, sizeof *high);
    memcpy(low, lower, sizeof *low);
#endif
}

INLINE void
philox(struct words *c, const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < WAYS; i++) {
            uvec high[2], low[2];
            wide_product(c->w[0][i], 0xD2511F53u, &high[0], &low[0]);
            wide_product(c->w[2][i], 0xCD9E8D57u, &high[1], &low[1]);
            c->w[0][i] = high[1] ^ c->w[1][i] ^ k0;
            c->w[2][i] = high[0] ^ c->w[3][i] ^ k1;
            c->w[1][i] = low[1];
            c->w[3][i] = low[0];
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Masks for 8 keys and WAYS vectors of queries. The blocks of neighbouring queries are `stride`
 * apart. */
INLINE void
keep_keys(const exo_attention_plan *plan, uint64_t first, uint64_t stride, uint32_t *keep)
{
    const uint32_t place = plan->ordinal << BLOCK_BITS;
    const uvec threshold = (uvec){0} + plan->dropped;
    struct words c;
    uint32_t low[WAYS * LANES], high[WAYS * LANES];
    for (size_t i = 0; i < (size_t)WAYS * LANES; i++) {
        uint64_t block = first + i * stride;
        low[i] = place | (uint32_t)(block & ((1u << BLOCK_BITS) - 1));
        high[i] = plan->rng.counter[3] ^ (uint32_t)(block >> BLOCK_BITS) << HIGH_SHIFT;
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < WAYS; i++) {
        memcpy(&c.w[0][i], low + i * LANES, sizeof(uvec));
        c.w[1][i] = (uvec){0} + plan->rng.counter[1];
        c.w[2][i] = (uvec){0} + plan->rng.counter[2];
        memcpy(&c.w[3][i], high + i * LANES, sizeof(uvec));
    }
    philox(&c, plan->rng.key);
#pragma GCC unroll 4
    for (size_t i = 0; i < WAYS; i++)
#pragma GCC unroll 4
        for (size_t k = 0; k < KEYS / 2; k++) {
            uvec *out = (uvec *)(void *)(keep + 2 * k * EXO_ATTENTION_BLOCK + i * LANES);
            uvec *next = (uvec *)(void *)(keep + (2 * k + 1) * EXO_ATTENTION_BLOCK + i * LANES);
            *out = (uvec)((c.w[k][i] & 0xFFFFu) >= threshold);
            *next = (uvec)((c.w[k][i] >> 16) >= threshold);
        }
}

void
exo_attention_keep(const exo_attention_plan *plan, size_t sequence, size_t head, size_t first_query,
                   size_t first_key, uint32_t *keep)
{
    uint64_t row_blocks = (plan->tokens + KEYS - 1) / KEYS;
    uint64_t row = ((uint64_t)sequence * plan->heads + head) * plan->tokens + first_query;
    uint64_t first = row * row_blocks + first_key / KEYS;
    for (size_t j = 0; j < EXO_ATTENTION_BLOCK; j += KEYS, first++)
        for (size_t i = 0; i < EXO_ATTENTION_BLOCK; i += WAYS * LANES)
            keep_keys(plan, first + i * row_blocks, row_blocks, keep + j * EXO_ATTENTION_BLOCK + i);
}
