/* The inside of a member of a collective among actors. Shared by far.c (its life), far_messages.c,
 * far_work.c (the operations) and far_request.c. One lock guards all of a member's state, except
 * where a member of the struct says otherwise. It is not held during calls into other layers. */
#ifndef EXO_COMM_FAR_IMPL_H
#define EXO_COMM_FAR_IMPL_H

#include <pthread.h>

#include "comm/far.h"

#include "actor/delivery.h"
#include "comm/backend.h"
#include "comm/encode.h"
#include "comm/timing.h"

/* Phases of a call. */
enum {
    EXO_FAR_REDUCE = 0,
    EXO_FAR_GATHER = 1,
    /* not a phase: the sender reports a dead member, or its own cancellation; count: the status */
    EXO_FAR_FAILED = 2,
    EXO_FAR_MEET = 3, /* where the member's board is (near.h) */
    EXO_FAR_MET = 4,  /* whether it has mapped the boards of all members of the call */
    /* not a phase: a message of the server, or for it; root: a status other than OK ends all calls
     * with the text that follows */
    EXO_FAR_SERVER = 5,
    EXO_FAR_PROBE = 6, /* of a measurement of links, or its answer */
    /* not a phase: a message of another engine, which this communicator carries (far_post.c) */
    EXO_FAR_POST = 7,
    /* plus the number of a move (ways.h) */
    EXO_FAR_MOVE = 16,
};

enum {
    EXO_FAR_NAME = 64
};

/* The header of every message; little endian like all supported machines. */
typedef struct exo_far_header {
    uint32_t channel, phase, from, operation; /* from: a rank; root: a place */
    /* number: of the calls with both ends as members, from 0 */
    uint64_t number, count;
    uint32_t dtype, reduce, root;
    /* distinguishes the sets of members of calls; 0: all members */
    uint32_t members;
    uint64_t bytes; /* after the header */
    /* rest of its way over an emulated link, when it is sent */
    exo_time passing;
} exo_far_header;
_Static_assert(sizeof(exo_far_header) == EXO_COMM_HEADER, "the ledger counts it");

typedef struct exo_far_message {
    struct exo_far_message *next;
    exo_far_header header;
    exo_payload payload; /* with the header */
    exo_time ready;      /* the call may use it from this time on, on the communicator's clock */
} exo_far_message;

typedef struct exo_near exo_near;

typedef struct exo_far {
    exo_comm_far_opts opts;
    exo_comm_edge edge; /* without links: nothing is emulated */
    uint32_t *hosts;    /* the edge's, copied */
    const exo_clock *clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* (size); NULL until connected. Guarded by lock, as all members below */
    exo_ref *members;
    uint64_t *nodes;               /* (size) numbers of the members' processes; 0: not known yet */
    struct exo_far_watch *watches; /* (size) monitors */
    unsigned watching;
    bool *left; /* (size) the member's actor has ended */
    /* (size) calls so far with this member and each other one. Owner: the thread that calls; it
     * owns `among`, too */
    uint64_t *calls;
    /* the set of members of the present call, as `members` of a header, and its deadline */
    uint32_t among;
    exo_time deadline;
    exo_far_message *inbox;
    /* 1 plus the rank of the member whose message the call waits for; 0: none */
    uint32_t awaited;
    bool inside; /* as `inside` in a member of local.c, with its made, operation and since */
    uint64_t made;
    exo_collective operation;
    exo_time since;
    exo_delivery *delivery; /* constant */
    bool passing; /* its own message, or the one that it waits for, is on an emulated link */
    /* (2 size) messages of calls to each member, counted before they are sent; then those from
     * each */
    uint64_t *counts;
    char name[EXO_FAR_NAME];
    char noun[EXO_FAR_NAME]; /* of exo_comm_far_opts; constant */
    bool open;
    exo_err broken;      /* code OK: not broken */
    exo_encoder encoder; /* owner: the thread that makes the present call */
    /* Requests that were begun and not yet waited for (far_request.c). Guarded by lock. */
    exo_engine_request *first, **last; /* requests still to be made, in order */
    bool threaded, closing;            /* `thread` runs and makes them; it is to end */
    bool asked;                        /* the member waits for a request that the thread makes */
    pthread_t thread;
    /* shared memory with members of this host, from the first call on; written under the lock by
     * the thread that calls */
    exo_near *near;
    exo_server *server;          /* attached; it is owned by the communicator */
    exo_far_message *for_server; /* in order, until one is attached */
    /* The engine whose messages this communicator carries, and its group; set before it is connected.
     * NULL: none. */
    const exo_engine_class *carried;
    void *carried_group;
    exo_engine_post post; /* what that engine has of it */
} exo_far;

/* A member's part of a communicator of `net`, or of one whose messages `net` carries. */
static inline exo_far *
exo_far_of(const exo_comm *comm)
{
    return comm->post ? comm->post->state : comm->state;
}

/* Ends the present call and all later ones. The first reason stays. */
void exo_far_break(exo_far *far, exo_status status, const char *text);
void exo_far_break_locked(exo_far *far, exo_status status, const char *text);

/* Writes texts such as "node_1 (rank 1) died: killed", "node_1 (rank 1) cancelled its
 * all_reduce". cause: (length) */
void exo_far_end_text(const exo_far *far, char text[EXO_ERR_TEXT], uint32_t rank, exo_status status,
                      const char *cause, size_t length);

static inline uint32_t
exo_far_rank_at(const exo_collective_args *args, uint32_t place)
{
    return args->ranks ? args->ranks[place] : place;
}

/* Fills in the header of a message to the rank `to` in this call, with `bytes` of data. */
void exo_far_describe(exo_far_header *out, const exo_far *far, uint32_t to, uint32_t phase,
                      const exo_collective_args *args, size_t bytes);
/* Sends a header and its data: count fp32 values, encoded if there is an encoder, else
 * header->bytes bytes. Waits on emulated links only, until the deadline of the present call. */
exo_status exo_far_send(exo_far *far, uint32_t to, exo_far_header *header, exo_encoder *encoder,
                        const void *data, size_t count, exo_err *err);
/* An exo_delivery_lost: a message of the communicator to the rank `to`. All members would wait for it,
 * so the communicator breaks. */
void exo_far_lost(void *far, uint64_t to, const exo_err *reason);
/* Waits for the message of the member at `place` in this call, and checks it against this member's
 * own arguments and `bytes`; SIZE_MAX: it may have any number. The caller frees the message. NULL:
 * *st has the reason. */
exo_far_message *exo_far_await(exo_far *far, uint32_t phase, uint32_t place,
                               const exo_collective_args *args, size_t bytes, exo_time deadline,
                               exo_status *st, exo_err *err);
void exo_far_message_free(exo_far_message *message);
/* Finds a message of the member `from` for its present call with this one, of another call than
 * this member's; breaks the communicator by it, and lets the other member know. True: it did. Under
 * the lock, which is released meanwhile. */
bool exo_far_find_other_locked(exo_far *far, const exo_collective_args *args, uint32_t from);
/* Breaks the communicator because the member with this header makes another call. Under the
 * lock. */
void exo_far_disagree_locked(exo_far *far, const exo_collective_args *args,
                             const exo_far_header *header);

/* Makes a call that does not go directly; far_moves.c. */
exo_status exo_far_move(exo_far *far, const exo_collective_args *args, exo_time deadline,
                        exo_err *err);
/* Makes one call from beginning to end, on the calling thread. since: its start. */
exo_status exo_far_run(exo_far *far, const exo_collective_args *args, exo_time since,
                       exo_time deadline, exo_err *err);
/* Breaks this communicator because a member died (EXO_PEER_LOST) or cancelled a call
 * (EXO_CANCELLED), and tells the other members, which may wait for that member. */
void exo_far_tell(exo_far *far, uint32_t rank, exo_status status, const char *cause);

/* For the communicator's server: far_server.c, as in exo_comm_extras. */
const exo_comm_edge *exo_far_edge(const void *group);
void exo_far_attach(void *group, exo_server *server);
exo_status exo_far_carry(void *group, uint32_t to, const exo_server_message *message, exo_err *err);
void exo_far_fail_all(void *group, const exo_err *reason);
/* Takes a message with the phase EXO_FAR_SERVER; owns it. INVAL: it is none of a server. */
exo_status exo_far_server_message(exo_far *far, exo_far_message *message, exo_err *err);

/* Hands a message with the phase EXO_FAR_POST to the engine that it is of, and releases it unless it
 * is refused: far_post.c. */
exo_status exo_far_hear(exo_far *far, const exo_far_header *header, exo_payload *payload,
                        exo_err *err);

/* Requests: far_request.c. exo_far_stop ends the thread that makes them, if there is one, when no
 * request is in progress. */
exo_status exo_far_begin(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
exo_status exo_far_test(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                        exo_err *err);
exo_status exo_far_wait(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
void exo_far_cancel(void *group, uint32_t rank, exo_engine_request *request);
void exo_far_stop(exo_far *far);

#endif
