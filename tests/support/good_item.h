/* An item of experience as a maker makes it, for tests with Criterion that spoil it. */
#ifndef EXO_TEST_GOOD_ITEM_H
#define EXO_TEST_GOOD_ITEM_H

#include "experience/experience.h"

enum {
    ANSWERS = 2,
    PROMPT = 3,
    TOKENS = 7
};

/* The caller drops it; *e is its view. */
exo_item *good_item(exo_experience *e);

#endif
