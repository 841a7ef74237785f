/* What lies beside a model's weights in a Hugging Face directory, carried to another. No state. */
#ifndef EXO_MAIN_EXPORT_FILES_H
#define EXO_MAIN_EXPORT_FILES_H

#include <stdbool.h>

#include "grow_text.h"

typedef struct exo_carried {
    bool tokenizer;  /* there was one: tokenizer.json, vocab.json with merges.txt, or tokenizer.model */
    bool generation; /* there was a generation_config.json                                            */
    exo_text left;   /* what was left out, ", " between: of weights in other formats, hidden folders,
                        what is larger than 256 MiB, no plain file, or cannot be read                 */
} exo_carried;

/* Copies files and folders of `from` to the folder `to`, which is there: all but config.json and the weights, which the model writes anew.
 * `tokenizer` false: also without what belongs to a tokenizer, and generation_config.json, which has its numbers. Errors: NOT_FOUND (there
 * is no `from`), IO, NOMEM. The caller frees `left`. */
exo_status exo_carry_files(const char *from, const char *to, bool tokenizer, exo_carried *out, exo_err *err);

#endif
