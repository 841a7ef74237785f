/* The system calls that a head may make; the kernel refuses others from then on. What a head is
 * asked by its peers it does with these, so whoever makes it run code of theirs cannot start a
 * program, look into another process or leave a filter of the host's network.
 *
 * exogym-filter.c has the list, and why a call is on it. docs/security.md says how a refused one
 * looks. */
#ifndef EXO_PROGRAMS_FILTER_H
#define EXO_PROGRAMS_FILTER_H

#include <exogym/status.h>

/* For all threads of the process, those that run and those that come, and for good. Sets
 * no_new_privs and a handler of SIGSYS. Errors: FAILED, with a message that names the way out.
 * Builds with sanitizers, whose libraries need more calls, get none: EXO_OK. Blocks: never. */
exo_status exo_filter_install(exo_err *err);

#endif
