/* Members of the engine `net` that are all in this process, each with an actor that passes it its
 * messages. */
#ifndef EXO_TEST_FAR_MEMBERS_H
#define EXO_TEST_FAR_MEMBERS_H

#include <exogym/exogym.h>

enum {
    FAR_MEMBERS_MAX = 8
};

typedef struct far_members {
    uint32_t count;
    exo_runtime *runtime;
    exo_comm *comms[FAR_MEMBERS_MAX]; /* one of each member */
} far_members;

/* Aborts on an error. */
void far_members_open(far_members *members, uint32_t count);
void far_members_close(far_members *members);

#endif
