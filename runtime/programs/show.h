/* What others wrote, on a terminal and as JSON. No state. */
#ifndef EXO_PROGRAMS_SHOW_H
#define EXO_PROGRAMS_SHOW_H

#include <stdio.h>

#include <jansson.h>

#include "base/printable.h"

/* Prints `size` bytes as printable.h escapes them. */
void exo_show(FILE *out, const char *text, size_t size, exo_shown shown);

/* A string of JSON, with U+FFFD for what is no UTF-8: a path, an argument, what an actor said.
 * NULL: no memory. */
json_t *exo_lossy_json(const char *text);
json_t *exo_lossy_json_bytes(const char *text, size_t size);

#endif
