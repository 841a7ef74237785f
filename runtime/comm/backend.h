/* What moves a communicator's data: a small table of functions. comm.c checks arguments and counts; a backend does the rest. */
#ifndef EXO_COMM_BACKEND_H
#define EXO_COMM_BACKEND_H

#include <stdbool.h>

#include <exogym/comm.h>

#include "comm/edge.h"
#include "comm/encode.h"

typedef enum exo_collective {
    EXO_ALL_REDUCE,
    EXO_REDUCE_SCATTER,
    EXO_ALL_GATHER,
    EXO_BROADCAST,
    EXO_BARRIER,
} exo_collective;

/* "all_reduce" */
const char *exo_collective_name(exo_collective operation);

/* One member's part in one call. All but `data`, `encoder` and `place` must be equal on all members. */
typedef struct exo_collective_args {
    exo_collective operation;
    void *data;
    size_t count;
    exo_dtype dtype;
    exo_reduce reduce;
    uint32_t root;         /* a place, as below                                    */
    uint32_t size, place;  /* how many members take part, and which of them this is */
    const uint32_t *ranks; /* (size) theirs, ascending; NULL: all, whose places are their ranks */
    bool rehearsal;        /* there is no data: only the time is taken              */
    exo_encoder *encoder;  /* this member's, with room for the call; NULL: as it is */
} exo_collective_args;

typedef struct exo_comm_backend {
    /* Takes and leaves a place; `state` is what the backend's constructor made. */
    exo_status (*join)(void *state, uint32_t rank, const char *name, exo_err *err);
    void (*leave)(void *state, uint32_t rank);
    /* Ends calls in progress and all later ones. */
    void (*fail)(void *state, uint32_t rank, const char *cause);
    /* A call of member `rank`. Adds the time that it waited for others to *waited. */
    exo_status (*run)(void *state, uint32_t rank, const exo_collective_args *args, exo_time deadline, exo_time *waited,
                      exo_err *err);
    /* Others have just done an all_reduce of `count` fp32 elements over the connections of member `rank`. May be NULL. */
    void (*warm)(void *state, uint32_t rank, size_t count);
    /* exo_comm_look_at; *look is zero. */
    void (*look)(void *state, uint32_t rank, exo_comm_look *look, uint32_t *missing, uint64_t *counts);
    void (*free)(void *state);
} exo_comm_backend;

struct exo_comm {
    _Atomic uint32_t references;
    uint32_t size;
    const exo_clock *clock;
    const exo_comm_backend *backend;
    void *state;
    const char *codec;        /* of its edge, copied; NULL: raw */
    _Atomic uint32_t codings; /* how often the codec was changed: groups follow with their next call */
};

#endif
