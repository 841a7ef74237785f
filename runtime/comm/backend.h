/* Inside of a communicator: an engine (exogym/engine.h), and what those of the library can
 * besides. */
#ifndef EXO_COMM_BACKEND_H
#define EXO_COMM_BACKEND_H

#include <stdbool.h>

#include <exogym/comm.h>
#include <exogym/engine.h>

#include "comm/edge.h"
#include "comm/encode.h"

/* What `local` and `net` can beside what every engine can. */
typedef struct exo_comm_extras {
    /* Others have just done an all_reduce of `count` fp32 elements over the connections of member
     * `rank`. */
    void (*warm)(void *group, uint32_t rank, size_t count);
    /* exo_comm_look_at; *look is zero. */
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
    /* of its edge, copied; NULL: raw */
    const char *codec;
    /* how often the codec was changed: groups follow with their next call */
    _Atomic uint32_t codings;
    _Atomic uint64_t codecs_made; /* by its groups */
};

#endif
