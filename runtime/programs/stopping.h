/* Requests from outside to stop a run: signals, and the loss of its own head. State: one flag of
 * the process, set by a signal handler or by the thread that notices the loss, and read by the
 * run. */
#ifndef EXO_PROGRAMS_STOPPING_H
#define EXO_PROGRAMS_STOPPING_H

enum {
    EXO_STOP_LOST = -1 /* in place of a signal: the run's own head is gone */
};

/* 0: no request; else the first signal, or EXO_STOP_LOST. A later SIGINT or SIGTERM replaces SIGHUP
 * and EXO_STOP_LOST. */
extern _Atomic int exo_stop_reason;

/* Lets SIGINT, SIGTERM and SIGHUP set the flag; the first one prints `message`, which must stay
 * valid. A second SIGINT or SIGTERM ends the process at once. SIGHUP never ends it, since a closing
 * terminal sends SIGHUP more than once; an ignored SIGHUP (nohup) stays ignored. */
void exo_stop_on_signals(const char *message);

/* Ignores broken pipes: if the reader of standard output or error goes away, only the output for it
 * is lost. */
void exo_outlive_readers(void);
/* Call it before a successful end: a standard output that has lost its reader is then no
 * failure. */
void exo_forgive_readers(void);

#endif
