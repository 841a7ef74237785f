/* The end of a program that this process has started and that works for it, such as gnuplot. */
#ifndef EXO_PROGRAMS_CHILD_H
#define EXO_PROGRAMS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include <exogym/clock.h>
#include <exogym/status.h>

#define EXO_CHILD_PATIENCE (10 * 60 * EXO_SECOND) /* a picture of a large graph takes minutes */

/* Waits until the child has ended, and writes its status. One that has not ended after `patience` is
 * killed: TIMEOUT, with its name; and so is one when *stop is above 0 (a signal's number, as
 * exo_stop_reason has it; NULL: never): CANCELLED. FAILED: the kernel keeps no status, because this
 * process ignores SIGCHLD, which exo_program_main takes back. */
exo_status exo_child_await(pid_t child, const char *name, exo_time patience,
                           const _Atomic int *stop, int *status, exo_err *err);

/* Looks at a process that may be stopped, as by SIGSTOP. Zero it before the first look. */
typedef struct exo_standstill {
    bool stopped;
    exo_time since;
} exo_standstill;

#define EXO_STANDSTILL EXO_SECOND

/* Whether a process that is stopped, or not, has been stopped at each look since EXO_STANDSTILL. One that
 * goes on after ctrl-Z and fg may still look stopped when this process goes on. */
bool exo_stands_still(exo_standstill *s, bool stopped, exo_time now);

#endif
