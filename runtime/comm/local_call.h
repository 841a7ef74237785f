/* One call of a collective among threads of a process: its members, their buffers, and the work
 * after its commit. Records of calls are used again. local.c owns the records and guards them with
 * its lock. */
#ifndef EXO_COMM_LOCAL_CALL_H
#define EXO_COMM_LOCAL_CALL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "comm/backend.h"

typedef struct exo_local_call exo_local_call;

/* Guarded by the communicator's lock until the commit. After the commit it is read-only, except for
 * the counters and `inside`. Members are numbered by their places in the call. */
struct exo_local_call {
    /* next open call that begins with the same rank, or next free record */
    exo_local_call *next;
    /* next of all records */
    exo_local_call *next_all;
    /* of the member that came first; its ranks are `ranks`, or NULL */
    exo_collective_args args;
    /* the most members of a call */
    uint32_t room;
    /* place of the member that came first */
    uint32_t first;
    /* members that have come; members that are still in the call */
    uint32_t arrived, inside;
    exo_time since; /* arrival of the first member, on the clock */
    /* set under the lock; a waiting member also looks at it without the lock */
    atomic_bool committed;
    int core;                   /* that the member which committed the call was on */
    uint32_t *ranks;            /* (room) */
    void **data;                /* (room) */
    bool *here;                 /* (room) the member has come */
    size_t blocks, block;       /* their number; elements of each */
    atomic_size_t *next_blocks; /* (room) next block of each member's part of the blocks */
    atomic_size_t done;
    atomic_uint asleep; /* members that sleep until all blocks are done */
    /* (room) times of each member on an edge with links, from the run's origin; else NULL */
    exo_time *begins, *ends;
    uint32_t *hosts;   /* (room) hosts of the members on an edge with links; else NULL */
    atomic_int failed; /* status of a block that failed; 0: none */
};

/* Makes a record for calls of up to `room` members; links: for an edge with links. NULL: no
 * memory. */
exo_local_call *exo_local_call_new(uint32_t room, bool links);
void exo_local_call_free(exo_local_call *call);
/* Makes the record a call of args->size members, none of which has come. hosts: of all members of
 * the communicator; NULL without links. */
void exo_local_call_begin(exo_local_call *call, const exo_collective_args *args,
                          const uint32_t *hosts);
/* True: the call is among the same members. */
bool exo_local_call_is_among(const exo_local_call *call, const exo_collective_args *args);
/* The rank of the member at a place; whether a rank is a member. */
uint32_t exo_local_call_rank(const exo_local_call *call, uint32_t place);
bool exo_local_call_has(const exo_local_call *call, uint32_t rank);
/* Does blocks until none is left, first those of the part of the member at `place`: in successive
 * calls these are in its caches. True: this thread did the last block of the call to be
 * completed. */
bool exo_local_call_help(exo_local_call *call, uint32_t place, exo_encoder *encoder);

#endif
