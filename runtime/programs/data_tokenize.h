/* `exogym data tokenize`: its options and its work. No state. */
#ifndef EXO_PROGRAMS_DATA_TOKENIZE_H
#define EXO_PROGRAMS_DATA_TOKENIZE_H

#include "programs/args.h"

/* As they were given; NULL: not. */
struct exo_tokenize_args {
    const char *tokenizer, *output, *shard_size, *documents;
};

/* The first option that was given, or NULL. */
const char *exo_tokenize_option(const struct exo_tokenize_args *args);
/* INVAL: something is missing, or no number. */
exo_status exo_tokenize_check(const struct exo_tokenize_args *args, const exo_words *inputs,
                              exo_err *err);
/* Does it and says on standard output what it made. */
exo_status exo_tokenize(const struct exo_tokenize_args *args, const exo_words *inputs,
                        exo_err *err);

#endif
