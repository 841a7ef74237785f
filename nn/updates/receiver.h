/* The state of a receiver, for receiver.c and incoming.c.
 *
 * The life of the update that comes:
 *
 *          chunk 0 accepted            last chunk good            exo_update_swap
 *   IDLE -------------------> COMING -------------------> READY -------------------> IDLE
 *    ^                          |
 *    +--------------------------+ a chunk that does not fit, exo_update_abandon: refused
 *
 * In a group the last good chunk leads to COMPLETE, and exo_update_agree from there to READY or IDLE.
 *
 * 1. The copy in use changes in exo_update_swap only.
 * 2. A tensor of the other copy has a hash if and only if its values have this hash; with a part,
 *    if they are the part's rows of a whole tensor that has it. A tensor that is being written has
 *    none, also after a failure.
 * 3. An update ends with one reply, whatever its end. `refused` remembers its identity, so that its
 *    later chunks are errors without a further reply.
 *
 * Owner: one thread at a time; other threads may read the copy in use. Read next: receiver.c. */
#ifndef EXO_UPDATES_RECEIVER_H
#define EXO_UPDATES_RECEIVER_H

#include "nn/hash.h"
#include "nn/updates/body.h"

/* A copy of the parameters. */
typedef struct exo_received {
    exo_params *params;
    uint8_t (*hashes)[EXO_SHA]; /* of each tensor; zeros: unknown */
    exo_state_id id;            /* version 0: none */
    char state[65];
} exo_received;

typedef enum exo_incoming_stage {
    EXO_INCOMING_IDLE,
    EXO_INCOMING_COMING,
    EXO_INCOMING_COMPLETE, /* of a group, which is to agree */
    EXO_INCOMING_READY,
} exo_incoming_stage;

/* The update that comes. */
typedef struct exo_incoming {
    exo_incoming_stage stage;
    exo_chunk_header first; /* the header of chunk 0 */
    exo_update_manifest manifest;
    exo_piece_plan plan;
    uint32_t next;  /* number of the next chunk */
    exo_hash hash;  /* of the tensor that is being written */
    size_t hashing; /* its index; SIZE_MAX: none */
} exo_incoming;

struct exo_update_receiver {
    exo_model *model;
    exo_model *part;    /* what the copies have; NULL: all */
    exo_device *device; /* of the copies */
    uint64_t place;     /* of its memory, for replies; 0: updates come as bytes */
    /* (whole_room) with a part, or on a device: the piece that is being decoded, and its base */
    float *whole;
    size_t whole_room;
    exo_group *group; /* of the generator; NULL: none */
    uint8_t fingerprint[EXO_SHA];
    size_t count; /* tensors */
    exo_received copies[2];
    exo_received *front, *back; /* in use; for the next version */
    exo_generator *generator;   /* the caller's; NULL: none */
    exo_generator *other;       /* with the weights of `back` once a version is ready */
    bool needs_canary;
    double tolerance;
    exo_body body;
    exo_incoming incoming;
    uint8_t refused[EXO_SHA]; /* the update that was refused last */
};

/* Begins an update with its manifest, after all checks that need no tensor. Errors: see
 * exo_update_receive. *need_whole: whether a whole update would do. */
exo_status exo_incoming_begin(exo_update_receiver *r, const exo_chunk_header *header,
                              const uint8_t *bytes, bool *need_whole, exo_err *err);
/* Copies all tensors of an update that names memory of the device into the back copy, and verifies
 * what has arrived. Errors: those of exo_ipc_array_open, DAMAGED, the device's. */
exo_status exo_incoming_fetch(exo_update_receiver *r, exo_err *err);
/* Decodes a chunk of tensors into the back copy. */
exo_status exo_incoming_take(exo_update_receiver *r, const exo_chunk_header *header,
                             const uint8_t *bytes, exo_err *err);
/* Completes the back copy: the tensors that were not sent, and the generator's weights, with the
 * canary unless a group is to agree. */
exo_status exo_incoming_complete(exo_update_receiver *r, exo_err *err);
/* Computes the canary of the back copy and compares it with the update's, of a group with all members
 * at the same time. FAILED. */
exo_status exo_incoming_prove(exo_update_receiver *r, exo_err *err);
/* Forgets the update, finished or not. */
void exo_incoming_end(exo_update_receiver *r);

#endif
