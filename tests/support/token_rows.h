/* Rows of tokens that follow a rule, for language models: a data set without files. */
#ifndef EXO_TEST_TOKEN_ROWS_H
#define EXO_TEST_TOKEN_ROWS_H

#include <exogym/data.h>

/* `count` samples of "tokens" and "targets" (block), each token below `vocabulary`. */
exo_dataset *token_rows_new(size_t count, size_t block, size_t vocabulary);

#endif
