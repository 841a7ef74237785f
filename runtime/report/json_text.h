/* JSON as text that exo_free frees. No state. */
#ifndef EXO_REPORT_JSON_TEXT_H
#define EXO_REPORT_JSON_TEXT_H

#include <jansson.h>

/* Like json_dumps. The caller frees the text with exo_free. NULL: `json` is NULL, or no memory. */
char *exo_json_dump(const json_t *json, size_t flags);

#endif
