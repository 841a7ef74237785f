/* What the actor class `victim` (tests/plugins/victim.c) answers. */
#ifndef EXO_TEST_VICTIM_H
#define EXO_TEST_VICTIM_H

#include <stdint.h>

struct victim_reply {
    uint64_t nonce; /* of the call; of audit: how many have run */
    uint64_t life;  /* random, of this life of the actor        */
    uint64_t runs, repeated, pid;
};

#endif
