/* A line of JSON lines that other programs write: documents of a corpus, texts to learn from. No
 * state. */
#ifndef EXO_JSON_LINE_H
#define EXO_JSON_LINE_H

#include <jansson.h>

#include <exogym/status.h>

/* Reads line `number`, from 1, of the file `path`: text (size), without its end. *out is its object,
 * which the caller drops with json_decref, or NULL if the line is blank. Keys that nobody asks for
 * may have numbers and strings that C's types do not hold: large integers, and \u0000. INVAL, with
 * file, line and column: it is no object, or has a key twice. */
exo_status exo_json_line(json_t **out, const char *path, size_t number, const char *text,
                         size_t size, exo_err *err);

#endif
