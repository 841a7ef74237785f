/* Threads that wait for each other: how they spin, and how they part. Two that wait by yielding on
 * one core are never asleep, so the kernel may leave both there while another core has nothing to
 * do. Beside other work on its core, a thread that yields waits for a turn of each of the others,
 * while one that sleeps runs soon after it is woken. No state but the caller's. */
#ifndef EXO_BASE_CROWD_H
#define EXO_BASE_CROWD_H

#include <stdbool.h>

/* Tells the core that the thread looks again and again at what another one will write. */
static inline void
exo_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* What a thread has seen. Begins as zeros. Owner: the thread. */
typedef struct exo_crowd {
    unsigned met, patience; /* waits for another on its core since it moved; so many make it move */
    unsigned sleeps, most;  /* waits that are to sleep at once; how many there were after a yield */
} exo_crowd;

/* The core that the calling thread is on; below 0: not known. */
int exo_core(void);
/* The thread has waited for one on the core `other`. If that is its own, and this happens often, it
 * asks the kernel for another core of those that it may use; less often each time. */
void exo_crowd_wait(exo_crowd *crowd, int other);
/* Yields the core. False: the wait is to sleep. The yield took long, or one that did was so short a
 * time ago that this call did not yield; each long one in succession makes more waits sleep. */
bool exo_crowd_yield(exo_crowd *crowd);

#endif
