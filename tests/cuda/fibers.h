/* Grids on the host: blocks as a loop in a drawn order, the threads of a block as fibers. Only launches.cc and mma.cc
 * call it, with the emulator's lock. */
#ifndef EXO_TEST_CUDA_FIBERS_H
#define EXO_TEST_CUDA_FIBERS_H

#include <cuda_runtime.h>

/* Shared bytes of a block: those of the launch, and the most that its kernel may declare beside them. */
struct emulated_shared_bytes {
    size_t launch, declared;
};

/* Runs `thread` for each thread of the grid. A barrier that some threads of a block never reach
 * ends the process, and so does any meeting of threads in a grid whose threads are each for
 * themselves. */
void cuda_emulated_grid(const char *name, dim3 grid, dim3 block, emulated_shared_bytes shared,
                        bool each, const std::function<void()> &thread);
/* Gives `bytes` of this lane, up to 32, and returns those of all lanes of the warp, one behind the
 * other. They stay until the next meeting. */
const void *cuda_emulated_meet(const void *own, size_t bytes);
/* mma.cc: forgets the copies of a thread that has ended, and says whether any were left. */
bool cuda_emulated_end_copies(unsigned thread);
/* The next draw. */
uint64_t cuda_emulated_random(void);

#endif
