/* JSON as exogym writes it. No state. */
#ifndef EXO_PROGRAMS_LENIENT_JSON_H
#define EXO_PROGRAMS_LENIENT_JSON_H

#include <jansson.h>

/* json_loadb that also takes files with integers beyond 2^63, which a job may have, as of `H`:
 * those become reals. NULL: it is no JSON; *reason says why. The caller drops it. */
json_t *exo_json_load(const char *text, size_t size, json_error_t *reason);

#endif
