/* JSON files of a Hugging Face directory. No state. */
#ifndef EXO_PRETRAINED_SAVE_JSON_H
#define EXO_PRETRAINED_SAVE_JSON_H

#include <jansson.h>

#include <exogym/status.h>

/* Writes folder/name, atomically. NOMEM (also: json is NULL), IO. */
exo_status exo_pretrained_write_json(const char *folder, const char *name, const json_t *json,
                                     exo_err *err);

#endif
