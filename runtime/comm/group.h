/* The inside of a group, for comm.c and group_server.c. */
#ifndef EXO_COMM_GROUP_H
#define EXO_COMM_GROUP_H

#include <pthread.h>

#include "comm/backend.h"
#include "comm/stepped.h"

struct exo_group {
    exo_comm *comm; /* held */
    /* of a group among some members: the group that it was opened from; else NULL */
    exo_group *parent;
    uint32_t rank; /* in the communicator */
    uint32_t size, place;
    uint32_t *ranks; /* (size) of a group among some members; NULL: all */
    exo_time timeout;
    exo_codec *codec;    /* only without a parent; NULL: raw */
    uint32_t codings;    /* the communicator's `codings` when the codec was made */
    exo_request *begun;  /* requests in progress */
    exo_request *unused; /* requests for later use, so that a steady step allocates nothing */
    exo_stepped stepped; /* only without a parent; for an engine with `advance` */
    exo_collective_args chosen[EXO_SHIFT + 1]; /* the last call of each operation, with its way */
    pthread_mutex_t lock;
    exo_time waited; /* guarded by lock, like traffic */
    exo_traffic traffic;
};

/* The group of all members, whose codec is shared by the groups opened from it. */
static inline exo_group *
exo_group_whole(exo_group *group)
{
    while (group->parent)
        group = group->parent;
    return group;
}

#endif
