/* The inside of a communicator: its engine (exogym/engine.h), and the additional functions of the
 * library's own engines. Read next: comm.c, local.c, far.c. */
#ifndef EXO_COMM_BACKEND_H
#define EXO_COMM_BACKEND_H

#include <stdbool.h>

#include <exogym/comm.h>
#include <exogym/engine.h>

#include "comm/edge.h"
#include "comm/encode.h"

/* Functions of `local` and `net` beyond those of every engine. */
typedef struct exo_comm_extras {
    /* Records that the group has just done an all_reduce of `count` fp32 elements beside the run,
     * over the connections of member `rank`. */
    void (*warm)(void *group, uint32_t rank, size_t count);
    /* exo_comm_look_at; *look is zeroed by the caller. */
    void (*look)(void *group, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                 uint64_t *counts);
} exo_comm_extras;

struct exo_comm {
    _Atomic uint32_t references;
    uint32_t size;
    const exo_clock *clock;
    const exo_engine_class *engine;
    const exo_comm_extras *extras; /* NULL: none */
    void *state;                   /* the engine's group */
    /* codec of its edge, copied; NULL: raw */
    const char *codec;
    /* number of changes of the codec; groups follow in their next call */
    _Atomic uint32_t codings;
    _Atomic uint64_t codecs_made; /* codecs that its groups have made */
};

#endif
