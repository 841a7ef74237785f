/* The variables EXOGYM_*: what they may be. Any thread; blocks never. */
#ifndef EXO_BASE_ENVIRONMENT_H
#define EXO_BASE_ENVIRONMENT_H

#include <exogym/status.h>

enum {
    EXO_MAX_THREADS = 1024
};

/* INVAL with the variable's name, what it is and what it may be, or with the name that a misspelt
 * one is near to. Programs ask when they start, and runtimes when they open. */
exo_status exo_environment_check(exo_err *err);

/* A variable's value; NULL: not set, or empty. */
const char *exo_environment(const char *name);
/* EXOGYM_THREADS; 0: not set, or wrong. */
unsigned exo_environment_threads(void);

#endif
