/* Forks. A child of fork has the parent's memory, but none of its threads; memory that it shares with
 * the parent still serves the parent. So state that needs threads or shared memory belongs to the
 * process that made it: it keeps exo_forks() of then, and a child finds another number. Any thread;
 * never blocks. */
#ifndef EXO_BASE_FORKS_H
#define EXO_BASE_FORKS_H

/* Counts the forks between the process that called it first and this one. */
unsigned exo_forks(void);

#endif
