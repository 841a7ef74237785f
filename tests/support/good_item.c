/* See good_item.h. */
#include "support/good_item.h"

#include <criterion/criterion.h>

exo_item *
good_item(exo_experience *e)
{
    exo_item *item = NULL;
    cr_assert_eq(exo_experience_new(&item, e, ANSWERS, PROMPT, TOKENS, false, NULL), EXO_OK);
    e->id = 40;
    e->prompt = 3;
    e->epoch = 8;
    e->maker = 1;
    e->temperature = 0.5f;
    e->filtered = true;
    exo_experience_sign(e, item);
    e->lengths[0] = 2;
    e->lengths[1] = 5;
    for (int i = 0; i < TOKENS; i++) {
        e->log_probs[i] = -0.5f * (float)i;
        e->plain_log_probs[i] = -1;
        e->versions[i] = 4;
        e->cache_versions[i] = 3;
    }
    e->finish[0] = EXO_FINISH_STOP;
    e->finish[1] = EXO_FINISH_LENGTH;
    return item;
}
