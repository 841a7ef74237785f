/* Groups of four members on the GPUs of tests/cuda, with the NCCL of tests/nccl, for tests with Criterion. */
#ifndef EXO_TEST_NCCL_WORLD_H
#define EXO_TEST_NCCL_WORLD_H

#include <exogym/exogym.h>

#include "nccl/nccl_test.h"

enum {
    NCCL_WORLD_SIZE = 4
};

/* Owner: one thread. The members share one communicator, or each has one of its own (far), whose messages
 * go by actors as between processes. */
struct nccl_world {
    bool nccl, far;
    exo_runtime *runtime; /* of far */
    exo_ref refs[NCCL_WORLD_SIZE];
    exo_comm *comms[NCCL_WORLD_SIZE];
    exo_group *groups[NCCL_WORLD_SIZE];
    exo_device *devices[NCCL_WORLD_SIZE];
};

/* The NCCL of the tests, which the engine takes from now on. */
const nccl_test *nccl_world_load(void);
/* The engine `nccl`. */
const exo_engine_class *nccl_world_engine(void);
/* Opens the members' devices and groups; nccl: of the engine `nccl`, else of `local` on the CPU. */
void nccl_world_open(struct nccl_world *w, bool nccl, bool far);
void nccl_world_close(struct nccl_world *w);
/* Closes a group, on a thread of its member. */
void *nccl_world_leave(void *group);
/* Says that the members change, before the world is closed (exo_engine_post.moves_on). Only if far. */
void nccl_world_move_on(struct nccl_world *w);
/* Calls every operation among `ranks` (size; NULL: all four), each member on a thread, and looks at all
 * results. absent: one of the ranks, which is dead and does not call; UINT32_MAX: none. expected: the status
 * of all others. */
void nccl_world_call(const struct nccl_world *w, const uint32_t *ranks, uint32_t size,
                     uint32_t absent, exo_status expected);
/* Begins and ends a run of one member. */
void nccl_world_another_run(void);
/* Ends what a run has left, as any later run does. */
void nccl_world_later_run(void);
/* Nothing of NCCL and of the GPUs may be left after `what`, the n-th. */
void nccl_world_expect_empty(const nccl_test *nccl, const char *what, uint64_t n);

#endif
