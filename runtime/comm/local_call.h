/* One call of a collective among the threads of a process: who is in it, where their buffers are,
 * and the work that lies open after it is committed. Records of calls are used again. See local.c,
 * which owns them and guards them with its lock. */
#ifndef EXO_COMM_LOCAL_CALL_H
#define EXO_COMM_LOCAL_CALL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "comm/backend.h"

typedef struct exo_local_call exo_local_call;

/* Guarded by the communicator's lock up to the commit; read-only after it but for the counters and
 * `inside`. Members are numbered by their place among those of the call. */
struct exo_local_call {
    /* of those under way that begin with the same rank, or of those that are free */
    exo_local_call *next;
    /* of all */
    exo_local_call *next_all;
    /* the first to come's; its ranks are `ranks`, or NULL */
    exo_collective_args args;
    /* members that there is room for */
    uint32_t room;
    /* the place of who came first */
    uint32_t first;
    /* how many have come; how many have not gone again */
    uint32_t arrived, inside;
    exo_time since; /* when the first came, on the clock */
    bool committed;
    uint32_t *ranks; /* (room) */
    void **data;     /* (room) */
    bool *here;      /* (room) who has come */
    size_t blocks;
    atomic_size_t next_block, done;
    exo_time *begins, *ends; /* (room) of an edge with links, from the run's origin; else NULL */
    uint32_t *hosts;         /* (room) likewise: where they are */
    atomic_int failed;       /* the status of a block that could not be done */
};

/* A record for calls of up to `room` members; links: on an edge that has some. NULL: no memory. */
exo_local_call *exo_local_call_new(uint32_t room, bool links);
void exo_local_call_free(exo_local_call *call);
/* Makes it one of args->size members, of whom nobody has come. hosts: of all of the communicator;
 * NULL without links. */
void exo_local_call_begin(exo_local_call *call, const exo_collective_args *args,
                          const uint32_t *hosts);
/* Whether it is among the same members. */
bool exo_local_call_is_among(const exo_local_call *call, const exo_collective_args *args);
/* The rank of the member at a place, and whether a rank is a member. */
uint32_t exo_local_call_rank(const exo_local_call *call, uint32_t place);
bool exo_local_call_has(const exo_local_call *call, uint32_t rank);
/* Takes blocks until there are none. True: the last one of all to be done was among them. */
bool exo_local_call_help(exo_local_call *call, exo_encoder *encoder);

#endif
