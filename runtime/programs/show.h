/* Untrusted text on a terminal and in JSON. No state. */
#ifndef EXO_PROGRAMS_SHOW_H
#define EXO_PROGRAMS_SHOW_H

#include <stdio.h>

#include <jansson.h>

#include "base/printable.h"

/* Prints `size` bytes, escaped as in printable.h. */
void exo_show(FILE *out, const char *text, size_t size, exo_shown shown);

/* A JSON string with U+FFFD for bytes that are not UTF-8: for paths, arguments and messages of
 * actors. NULL: no memory. */
json_t *exo_lossy_json(const char *text);
json_t *exo_lossy_json_bytes(const char *text, size_t size);

#endif
