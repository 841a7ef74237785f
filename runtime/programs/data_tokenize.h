/* `exogym data tokenize`: its options and its work. No state. */
#ifndef EXO_PROGRAMS_DATA_TOKENIZE_H
#define EXO_PROGRAMS_DATA_TOKENIZE_H

#include "programs/args.h"

/* The options as given; NULL: not given. */
struct exo_tokenize_args {
    const char *tokenizer, *output, *shard_size, *documents;
};

/* The name of the first option that was given, or NULL. */
const char *exo_tokenize_option(const struct exo_tokenize_args *args);
/* Errors: INVAL (an option is missing, or a value is not a number). */
exo_status exo_tokenize_check(const struct exo_tokenize_args *args, const exo_words *inputs,
                              exo_err *err);
/* Writes the tokens and prints a summary on standard output. */
exo_status exo_tokenize(const struct exo_tokenize_args *args, const exo_words *inputs,
                        exo_err *err);

#endif
