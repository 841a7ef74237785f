/* Members of the engine `net` that are all in this process, each with an actor that passes it its
 * messages. */
#ifndef EXO_TEST_FAR_MEMBERS_H
#define EXO_TEST_FAR_MEMBERS_H

#include <exogym/exogym.h>

#include "comm/edge.h"

enum {
    FAR_MEMBERS_MAX = 16
};

typedef struct far_members {
    uint32_t count;
    exo_runtime *runtime;
    exo_comm *comms[FAR_MEMBERS_MAX]; /* one of each member */
} far_members;

/* The class of such actors: the arguments are an exo_comm *, the method is "collective". */
extern const exo_actor_class far_hearer_class;

/* edge: of all; NULL: none. Aborts on an error. */
void far_members_open(far_members *members, uint32_t count, const exo_comm_edge *edge);
void far_members_close(far_members *members);

#endif
