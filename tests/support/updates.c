/* Updates for tests: see updates.h. */
#include "support/updates.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "nn/updates/wire.h"

void
updates_learn(exo_params *params, float share, uint64_t seed)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    float *values = exo_params_values(params);
    for (size_t i = 0; i < exo_params_numel(params); i++) {
        float draw = exo_rng_uniform(&rng), step = 1e-3f * exo_rng_normal(&rng);
        if (draw < share)
            values[i] += step;
    }
}

void
updates_round(exo_params *params)
{
    uint32_t *bits = (uint32_t *)(void *)exo_params_values(params);
    for (size_t i = 0; i < exo_params_numel(params); i++) {
        uint32_t word;
        memcpy(&word, bits + i, sizeof word);
        word = (word + 0x7FFFu + (word >> 16 & 1)) & 0xFFFF0000u;
        memcpy(bits + i, &word, sizeof word);
    }
}

void
updates_keep(kept_update *out, exo_update_sender *sender, const char *receiver)
{
    exo_update *update = NULL;
    exo_err err = {0};
    const void *bytes = NULL;
    size_t size = 0;
    *out = (kept_update){0};
    cr_assert_eq(exo_update_begin(&update, sender, &receiver, 1, &err), EXO_OK, "%s", err.text);
    exo_status st = EXO_OK;
    while ((st = exo_update_next(update, &bytes, &size, &err)) == EXO_OK) {
        cr_assert_lt(out->count, UPDATES_CHUNKS);
        out->bytes[out->count] = malloc(size);
        memcpy(out->bytes[out->count], bytes, size);
        out->size[out->count++] = size;
    }
    cr_assert_eq(st, EXO_CLOSED, "%s", err.text);
    cr_assert_eq(out->count, exo_update_facts_of(update).chunks);
    exo_update_free(&update);
}

void
updates_release(kept_update *update)
{
    for (size_t i = 0; i < update->count; i++)
        free(update->bytes[i]);
    *update = (kept_update){0};
}

void
updates_seal(kept_update *update, size_t index)
{
    uint8_t *chunk = update->bytes[index];
    cr_assert_eq(exo_hash_two(chunk, EXO_CHUNK_HASHED, chunk + EXO_CHUNK_HEADER,
                              update->size[index] - EXO_CHUNK_HEADER, chunk + EXO_CHUNK_HASHED,
                              NULL),
                 EXO_OK);
}

void
updates_seal_all(kept_update *update)
{
    uint8_t id[EXO_SHA];
    cr_assert_eq(exo_hash_two(update->bytes[0] + EXO_CHUNK_HEADER,
                              update->size[0] - EXO_CHUNK_HEADER, NULL, 0, id, NULL),
                 EXO_OK);
    for (size_t i = 0; i < update->count; i++) {
        memcpy(update->bytes[i] + EXO_CHUNK_HASHED - EXO_SHA, id, EXO_SHA);
        updates_seal(update, i);
    }
}

bool
updates_are_same(exo_params *a, exo_params *b)
{
    return memcmp(exo_params_values(a), exo_params_values(b),
                  exo_params_numel(a) * sizeof(float)) == 0 &&
           memcmp(exo_params_buffers(a), exo_params_buffers(b),
                  exo_params_buffer_numel(a) * sizeof(float)) == 0;
}
