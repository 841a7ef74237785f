/* What goes with an exported model: the tokenizer, and how texts begin and end. No state. */
#ifndef EXO_MAIN_EXPORT_TOKENIZER_H
#define EXO_MAIN_EXPORT_TOKENIZER_H

#include <jansson.h>

#include <exogym/tokenizer.h>

/* Copies tokenizer.json and the files beside it that transformers reads from one Hugging Face directory to another. *found: whether there is a
 * tokenizer.json. Errors: IO. */
exo_status exo_export_copy_tokenizer(const char *from, const char *folder, bool *found, exo_err *err);
/* Writes tokenizer.json, tokenizer_config.json and generation_config.json. */
exo_status exo_export_tokenizer(const exo_tokenizer *tokenizer, const char *folder, exo_err *err);
/* The tokenizer of a run: the tokenizer.json beside its config.json, whose path and contents these are, or that of its data. The caller drops
 * it. NULL: it has none. */
exo_status exo_export_find_tokenizer(const char *path, const json_t *config, exo_tokenizer **out, exo_err *err);

#endif
