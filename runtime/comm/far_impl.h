/* Inside of a member of a collective among actors elsewhere, shared by the files that make it up:
 * far.c (its life), far_messages.c, far_work.c (the operations). One lock guards all of a member's
 * state; it is not held while anything is called. */
#ifndef EXO_COMM_FAR_IMPL_H
#define EXO_COMM_FAR_IMPL_H

#include <pthread.h>

#include "comm/far.h"

#include "comm/backend.h"
#include "comm/encode.h"
#include "comm/timing.h"

/* Phases of a call. */
enum {
    EXO_FAR_REDUCE = 0,
    EXO_FAR_GATHER = 1,
    /* not a phase: a member says that one died, or that it cancelled; count: the status */
    EXO_FAR_FAILED = 2,
};

enum {
    EXO_FAR_NAME = 64
};

/* Before the data of every message; little endian, as all machines that this runs on. */
typedef struct exo_far_header {
    uint32_t channel, phase, from, operation; /* from: a rank; root: a place */
    uint64_t number, count;                   /* number: of the calls that both were in, from 0 */
    uint32_t dtype, reduce, root;
    /* tells the sets of members apart that call together; 0: all */
    uint32_t members;
    uint64_t bytes; /* that follow */
    /* of an emulated link: how long after it was sent it may be seen */
    exo_time passing;
} exo_far_header;
_Static_assert(sizeof(exo_far_header) == EXO_COMM_HEADER, "the ledger counts it");

typedef struct exo_far_message {
    struct exo_far_message *next;
    exo_far_header header;
    exo_payload payload; /* header included */
    exo_time ready;      /* it may be seen from then on, on the communicator's clock */
} exo_far_message;

typedef struct exo_far {
    exo_comm_far_opts opts;
    exo_comm_edge edge; /* without links: nothing is emulated */
    uint32_t *hosts;    /* the edge's, copied */
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    exo_ref *members;              /* (size); NULL until connected. Guarded by lock, as all below */
    uint64_t *nodes;               /* (size) processes of the members; 0: not known yet */
    struct exo_far_watch *watches; /* (size) */
    unsigned watching;
    bool *left; /* (size) stopped cleanly */
    /* (size) how many this member was in with each other one. Owner: who calls, as is */
    uint64_t *calls;
    /* tells the members of the call under way from others, as in a header */
    uint32_t among;
    exo_far_message *inbox;
    /* the rank, and 1, whose message a call waits for and which has not come; 0: none */
    uint32_t awaited;
    bool inside; /* of a call: as in a member of local.c */
    uint64_t made;
    exo_collective operation;
    exo_time since;
    bool passing; /* its own message, or the one that it waits for, is on an emulated link */
    /* (2 size) messages of calls to each member, counted before they go, and from each */
    uint64_t *counts;
    char name[EXO_FAR_NAME];
    bool open;
    exo_err broken;      /* code OK: it is not */
    exo_encoder encoder; /* owner: whoever makes the call under way */
    /* Requests that were begun and not yet waited for (far_request.c): guarded by lock. */
    exo_engine_request *first, **last; /* those that are to be made, in order */
    bool threaded, closing;            /* there is `thread`, which makes them; it is to end */
    bool asked;                        /* the member waits for one that the thread makes */
    pthread_t thread;
} exo_far;

/* Ends the call under way and all later ones with the first reason that is given. */
void exo_far_break(exo_far *far, exo_status status, const char *text);
void exo_far_break_locked(exo_far *far, exo_status status, const char *text);

static inline uint32_t
exo_far_rank_at(const exo_collective_args *args, uint32_t place)
{
    return args->ranks ? args->ranks[place] : place;
}

/* The header of what goes to `to`, a rank, in this call: `bytes` of data. */
void exo_far_describe(exo_far_header *out, const exo_far *far, uint32_t to, uint32_t phase,
                      const exo_collective_args *args, size_t bytes);
/* Sends header and data (count fp32 values, encoded where there is an encoder; else header->bytes).
 * Does not wait. */
exo_status exo_far_send(exo_far *far, uint32_t to, exo_far_header *header, exo_encoder *encoder,
                        const void *data, size_t count, exo_err *err);
/* What the member at `place` sends in this call; checked against our part of the call. NULL: *st
 * says why. */
exo_far_message *exo_far_await(exo_far *far, uint32_t phase, uint32_t place,
                               const exo_collective_args *args, size_t bytes, exo_time deadline,
                               exo_status *st, exo_err *err);
void exo_far_message_free(exo_far_message *message);

/* Makes one call, from beginning to end, on the calling thread. */
exo_status exo_far_run(exo_far *far, const exo_collective_args *args, exo_time deadline,
                       exo_err *err);
/* A member died (EXO_PEER_LOST), or cancelled a call (EXO_CANCELLED): breaks this communicator, and
 * says so to the others, who may wait for it. */
void exo_far_tell(exo_far *far, uint32_t rank, exo_status status, const char *cause);

/* Requests: far_request.c. Stop ends the thread that makes them, if there is one, when none is
 * under way. */
exo_status exo_far_begin(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
exo_status exo_far_test(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                        exo_err *err);
exo_status exo_far_wait(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
void exo_far_cancel(void *group, uint32_t rank, exo_engine_request *request);
void exo_far_stop(exo_far *far);

#endif
