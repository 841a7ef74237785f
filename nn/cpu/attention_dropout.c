/* Which weights dropout keeps: Philox4x32-10, a block of numbers for 8 keys of one query, 16 queries at a time. */
#include "attention_kernels.h"

#include "attention_vector.h"

enum {
    GROUP = 16,      /* queries at a time    */
    KEYS = 8,        /* of a block's numbers */
    ROUNDS = 10,     /* of Philox            */
    BLOCK_BITS = 22, /* as in exo_dropout    */
    HIGH_SHIFT = 16  /* of the step's upper word */
};

struct counters {
    uint32_t word[4][GROUP] __attribute__((aligned(64)));
};

/* Both halves of a * factor. */
INLINE void
wide_products(const uint32_t *restrict a, uint32_t factor, uint32_t *restrict high, uint32_t *restrict low)
{
#if LANES == 16
    const __m512i f = _mm512_set1_epi64(factor), x = _mm512_load_si512(a);
    __m512i even = _mm512_mul_epu32(x, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), f);
    _mm512_store_si512(high, _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd));
    _mm512_store_si512(low, _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32)));
#else
    for (size_t l = 0; l < GROUP; l++) {
        uint64_t product = (uint64_t)a[l] * factor;
        high[l] = (uint32_t)(product >> 32);
        low[l] = (uint32_t)product;
    }
#endif
}

static void
philox(struct counters *c, const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        struct counters high, low;
        wide_products(c->word[0], 0xD2511F53u, high.word[0], low.word[0]);
        wide_products(c->word[2], 0xCD9E8D57u, high.word[2], low.word[2]);
        for (size_t l = 0; l < GROUP; l++) {
            c->word[0][l] = high.word[2][l] ^ c->word[1][l] ^ k0;
            c->word[2][l] = high.word[0][l] ^ c->word[3][l] ^ k1;
            c->word[1][l] = low.word[2][l];
            c->word[3][l] = low.word[0][l];
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void
exo_attention_keep(const exo_attention_plan *plan, size_t sequence, size_t head, size_t first_query, size_t first_key,
                   uint32_t *keep)
{
    uint64_t row_blocks = (plan->tokens + KEYS - 1) / KEYS;
    uint64_t row = ((uint64_t)sequence * plan->heads + head) * plan->tokens + first_query;
    uint64_t first = row * row_blocks + first_key / KEYS;
    uint32_t place = plan->ordinal << BLOCK_BITS, threshold = plan->dropped;
    for (size_t j = 0; j < EXO_ATTENTION_BLOCK; j += KEYS, first++) {
        for (size_t i = 0; i < EXO_ATTENTION_BLOCK; i += GROUP) {
            struct counters c;
            for (size_t l = 0; l < GROUP; l++) {
                uint64_t block = first + (i + l) * row_blocks;
                c.word[0][l] = place | (uint32_t)(block & ((1u << BLOCK_BITS) - 1));
                c.word[1][l] = plan->rng.counter[1];
                c.word[2][l] = plan->rng.counter[2];
                c.word[3][l] = plan->rng.counter[3] ^ (uint32_t)(block >> BLOCK_BITS) << HIGH_SHIFT;
            }
            philox(&c, plan->rng.key);
            for (size_t k = 0; k < KEYS; k++) {
                uint32_t *restrict out = keep + (j + k) * EXO_ATTENTION_BLOCK + i;
                const uint32_t *restrict word = c.word[k / 2];
                for (size_t l = 0; l < GROUP; l++)
                    out[l] = (word[l] >> (k % 2 * 16) & 0xFFFFu) >= threshold ? UINT32_MAX : 0;
            }
        }
    }
}
