/* What asks a run to stop, from outside of it: signals, and the loss of its own head. State: one
 * flag of the process, set by a handler or by whoever notices the loss, read by the run. */
#ifndef EXO_PROGRAMS_STOPPING_H
#define EXO_PROGRAMS_STOPPING_H

enum {
    EXO_STOP_LOST = -1 /* in place of a signal: the run's own head is gone */
};

/* 0: nobody asks; else the first signal that did, or EXO_STOP_LOST. */
extern _Atomic int exo_stop_reason;

/* SIGINT, SIGTERM and SIGHUP set the flag; the first says `message`, which must live on. A second
 * SIGINT or SIGTERM ends the process at once; SIGHUP never does, since a terminal that closes sends
 * it more than once, and where it is ignored (nohup) it stays so. */
void exo_stop_on_signals(const char *message);

/* Whoever reads standard output or error may go: what is written for it is then lost, and nothing
 * else. */
void exo_outlive_readers(void);
/* Before the program ends well: that standard output has no reader any more is no failure. */
void exo_forgive_readers(void);

#endif
