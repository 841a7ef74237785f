/* The companions of an exported model: its tokenizer, and the tokens at which texts begin and end.
 * No state. */
#ifndef EXO_PROGRAMS_EXPORT_TOKENIZER_H
#define EXO_PROGRAMS_EXPORT_TOKENIZER_H

#include <jansson.h>

#include <exogym/tokenizer.h>

/* Writes tokenizer.json and the files that came with it; tokenizer_config.json also if none came
 * with it. `generate`: also writes generation_config.json with the tokens at which texts begin and
 * end. */
exo_status exo_export_tokenizer(const exo_tokenizer *tokenizer, const char *folder, bool generate,
                                exo_err *err);
/* Writes a generation_config.json. */
exo_status exo_export_generation(const char *folder, json_t *json, exo_err *err);

#endif
