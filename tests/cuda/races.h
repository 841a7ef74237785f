/* What fibers.cc and mma.cc say to races.cc, with the emulator's lock. Where kernels are compiled
 * without the calls of the thread sanitizer, nobody says anything of their accesses. */
#ifndef EXO_TEST_CUDA_RACES_H
#define EXO_TEST_CUDA_RACES_H

#include <stddef.h>

/* A grid begins, whose threads have their stacks in these bytes, and whose kernel may declare `most` shared
 * bytes; and it has ended. */
void cuda_emulated_watch_grid(const char *name, size_t most, const void *stacks,
                              size_t stack_bytes);
void cuda_emulated_watch_end(void);
/* A block begins, which has these shared bytes. */
void cuda_emulated_watch_block(const void *shared, size_t bytes);
/* All threads of the block have met. */
void cuda_emulated_watch_barrier(void);
/* This thread goes on. */
void cuda_emulated_watch_thread(unsigned thread);
/* A copy to these 16 shared bytes has begun; and the thread has waited for it. */
void cuda_emulated_watch_copy(const void *to);
void cuda_emulated_watch_arrival(const void *to);
/* Accesses of instructions: of the thread that runs, and a read by the lanes of its warp. */
void cuda_emulated_note_write(const void *at, size_t bytes);
void cuda_emulated_note_read(const void *at, size_t bytes);
void cuda_emulated_note_warp_read(const void *at, size_t bytes);

#endif
