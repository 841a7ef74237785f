/* Compute slots and parallel loops.
 *
 * A process has as many compute slots as exo_num_threads says. Whoever computes for long holds one
 * (exo_compute_enter), and gives it up while it waits for others (exo_compute_pause), so that N
 * simulated nodes on two cores run two at a time instead of thrashing the caches. Slots that nobody
 * holds help the parallel loops of those who do.
 *
 * The pieces of a loop are the caller's choice and never depend on the number of threads; which
 * thread runs which piece is not determined, so pieces write to places of their own. */
#ifndef EXO_BASE_PARALLEL_H
#define EXO_BASE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

/* The cores that this process may use, at least 1. */
unsigned exo_usable_cores(void);

/* Waits for a slot. Calls nest; the outermost leave gives the slot back. */
void exo_compute_enter(void);
void exo_compute_leave(void);
/* Gives up the calling thread's slot, if it has one, and takes one again; around every wait for
 * another lane. */
void exo_compute_pause(void);
void exo_compute_resume(void);

/* Runs piece(context, i) for every i in [0, count) and returns when all are done. Pieces may run on
 * other threads and must not wait for each other. Loops inside a piece run on that piece's thread.
 * Any thread. */
void exo_parallel_for(size_t count, void (*piece)(void *context, size_t index), void *context);

/* From here on loops of the calling thread run none of their pieces: for whoever wants to know what
 * a computation allocates. */
void exo_parallel_rehearse(bool on);

/* Says that a thread that runs pieces keeps so much scratch memory; and the most that was said. */
void exo_parallel_need_scratch(size_t bytes);
size_t exo_parallel_scratch(void);

#endif
