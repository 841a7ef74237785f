/* Compute slots and parallel loops.
 *
 * A process has exo_num_threads compute slots. A thread that computes for long holds a slot
 * (exo_compute_enter) and gives it up while it waits for others (exo_compute_pause). So N simulated
 * nodes on two cores run two at a time instead of thrashing the caches. Free slots help the
 * parallel loops of the slots' holders.
 *
 * The caller chooses the pieces of a loop, never by the number of threads. Any thread may run any
 * piece, so each piece writes only to its own places. Read next: parallel.c. */
#ifndef EXO_BASE_PARALLEL_H
#define EXO_BASE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* The number of cores that this process may use, at least 1. */
unsigned exo_usable_cores(void);

/* Enter waits for a slot. Calls nest; the outermost leave returns the slot. */
void exo_compute_enter(void);
void exo_compute_leave(void);
/* Pause returns the calling thread's slot, if it has one, and resume takes one again. Call them
 * around every wait for another lane. */
void exo_compute_pause(void);
void exo_compute_resume(void);
/* The same after a wait that ended with `st`. After an error it does not wait, and takes one slot
 * more than there are if none is free: the error has to come at its deadline, and whoever was waited
 * for may have the slot. */
void exo_compute_resume_after(exo_status st);

/* Runs piece(context, i) for every i in [0, count) and returns when all are done. Pieces may run on
 * other threads and must not wait for each other. A loop inside a piece runs on that piece's
 * thread. Any thread. */
void exo_parallel_for(size_t count, void (*piece)(void *context, size_t index), void *context);

/* With `on`, loops of the calling thread run no pieces, which shows what a computation
 * allocates. */
void exo_parallel_rehearse(bool on);

/* Reports that a thread that runs pieces keeps `bytes` of scratch memory; exo_parallel_scratch
 * returns the largest report. */
void exo_parallel_need_scratch(size_t bytes);
size_t exo_parallel_scratch(void);

#endif
