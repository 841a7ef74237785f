/* Updates of weights for tests: a trainer's parameters that change, and the chunks of an update,
 * kept to be altered. For tests with Criterion. */
#ifndef EXO_TEST_UPDATES_H
#define EXO_TEST_UPDATES_H

#include <exogym/updates.h>

enum {
    UPDATES_CHUNKS = 256
};

/* The chunks of one update. */
typedef struct kept_update {
    uint8_t *bytes[UPDATES_CHUNKS];
    size_t size[UPDATES_CHUNKS];
    size_t count;
} kept_update;

/* Changes about `share` of all learned values a little; the sizes of the changes follow from the
 * seed. */
void updates_learn(exo_params *params, float share, uint64_t seed);
/* Rounds all values to bf16. */
void updates_round(exo_params *params);
/* Begins an update for one receiver and keeps its chunks. Fails the test on an error. */
void updates_keep(kept_update *out, exo_update_sender *sender, const char *receiver);
void updates_release(kept_update *update);
/* Writes the SHA-256 of chunk `index` again, after a change of its bytes. */
void updates_seal(kept_update *update, size_t index);
/* Writes the identity of the manifest into all chunks, and seals all of them. */
void updates_seal_all(kept_update *update);
/* Whether the values of both copies have equal bits. */
bool updates_are_same(exo_params *a, exo_params *b);

#endif
