/* The inside of exo_data_tokenize. No state. Read next: tokenize.c. */
#ifndef EXO_CORPUS_TOKENIZE_H
#define EXO_CORPUS_TOKENIZE_H

#include <exogym/data.h>

/* exo_data_tokenize that ends soon after *stop is not 0 (NULL: never): CANCELLED, and what it has
 * written is removed. A signal handler or any thread may set it. */
exo_status exo_tokenize_until(const char *const *inputs, size_t num_inputs, const char *folder,
                              const exo_tokenize_opts *opts, const _Atomic int *stop,
                              exo_tokenize_result *result, exo_err *err);

#endif
