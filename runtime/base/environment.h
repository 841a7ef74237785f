/* The variables EXOGYM_* and their allowed values. Any thread; never blocks. */
#ifndef EXO_BASE_ENVIRONMENT_H
#define EXO_BASE_ENVIRONMENT_H

#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_MAX_THREADS = 1024
};

/* Checks all variables. INVAL names a variable with its value and its allowed values, or suggests a
 * name for a misspelt one. Programs call it at the start, and runtimes when they open. */
exo_status exo_environment_check(exo_err *err);

/* A variable's value; NULL: not set, or empty. */
const char *exo_environment(const char *name);
/* The value of EXOGYM_THREADS; 0: not set, or invalid. */
unsigned exo_environment_threads(void);
/* The bytes of EXOGYM_STORE; 0: not set, or invalid. */
uint64_t exo_environment_store(void);

#endif
