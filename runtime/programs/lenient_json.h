/* Reads JSON that exogym wrote. No state. */
#ifndef EXO_PROGRAMS_LENIENT_JSON_H
#define EXO_PROGRAMS_LENIENT_JSON_H

#include <jansson.h>

/* Like json_loadb, but also accepts integers beyond 2^63, as in a job's `H`, and reads them as
 * reals. NULL: not valid JSON; *reason says why. The caller drops the result. */
json_t *exo_json_load(const char *text, size_t size, json_error_t *reason);

#endif
