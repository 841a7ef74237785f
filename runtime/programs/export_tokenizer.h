/* What goes with an exported model: the tokenizer, and how texts begin and end. No state. */
#ifndef EXO_PROGRAMS_EXPORT_TOKENIZER_H
#define EXO_PROGRAMS_EXPORT_TOKENIZER_H

#include <jansson.h>

#include <exogym/tokenizer.h>

/* Writes tokenizer.json and what was beside it; tokenizer_config.json also of one that had none;
 * and, with `generate`, how texts begin and end with it as generation_config.json. */
exo_status exo_export_tokenizer(const exo_tokenizer *tokenizer, const char *folder, bool generate,
                                exo_err *err);
/* Writes a generation_config.json. */
exo_status exo_export_generation(const char *folder, json_t *json, exo_err *err);

#endif
