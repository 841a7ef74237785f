/* Command lines: options and operands of one command, every mistake a line that names the argument. No state. */
#ifndef EXO_MAIN_ARGS_H
#define EXO_MAIN_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* Words in the order in which they were given; they point into argv. */
typedef struct exo_words {
    const char **items;
    size_t length;
} exo_words;

/* One option. Exactly one of the targets is set: `flag` takes no value, `value` the last one given, `list` every one. */
typedef struct exo_option {
    const char *name;  /* "--set" */
    const char *brief; /* "-o", or NULL */
    bool *flag;
    const char **value;
    exo_words *list;
} exo_option;

/* Reads `argc` words after the command's name. Options (ended by one without a name) may stand anywhere, "--name VALUE" or
 * "--name=VALUE"; what follows "--" is no option. The lists are released with exo_words_release, also after a failure.
 * Errors: INVAL (unknown option, a value missing or too much), NOMEM. */
exo_status exo_args_read(int argc, char *const *argv, const exo_option *options, exo_words *operands, exo_err *err);
void exo_words_release(exo_words *words);

#endif
