/* The reply of the actor class `victim` (tests/plugins/victim.c). */
#ifndef EXO_TEST_VICTIM_H
#define EXO_TEST_VICTIM_H

#include <stdint.h>

struct victim_reply {
    uint64_t nonce; /* of the call; the reply of audit: the number of calls that have run */
    uint64_t life;  /* random, drawn for this life of the actor */
    uint64_t runs, repeated, pid;
};

#endif
