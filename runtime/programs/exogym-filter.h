/* The system calls that a head may make. The kernel refuses all others after exo_filter_install.
 * The head answers its peers with these calls only, so an attacker who runs code in the head cannot
 * start a program, access another process or bypass the host's network filters.
 *
 * exogym-filter.c has the list with a reason for each call. docs/security.md shows how a refused
 * call is reported. */
#ifndef EXO_PROGRAMS_FILTER_H
#define EXO_PROGRAMS_FILTER_H

#include <exogym/status.h>

/* Applies to all threads of the process, present and future, and cannot be undone. Sets
 * no_new_privs and a handler of SIGSYS. Errors: FAILED, with a message that names the way out.
 * Builds with sanitizers, whose libraries need more calls, install no filter and return OK. Blocks:
 * never. */
exo_status exo_filter_install(exo_err *err);

#endif
