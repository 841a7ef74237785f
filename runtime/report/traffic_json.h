/* Traffic as JSON: the one place that knows its forms. The columns are those of
 * runtime/base/traffic.h. No state. */
#ifndef EXO_REPORT_TRAFFIC_JSON_H
#define EXO_REPORT_TRAFFIC_JSON_H

#include <jansson.h>

#include "base/traffic.h"

typedef enum exo_traffic_form {
    EXO_TRAFFIC_SECONDS, /* {"messages", ..., "send_blocked_s", "recv_blocked_s"}: for people */
    /* [messages, ..., send_blocked, recv_blocked], times in ns: among actors, in checkpoints */
    EXO_TRAFFIC_NUMBERS,
    /* {"messages", "calls", ..., "wire_bytes", "waited_s"}: of a collective, in result.json */
    EXO_TRAFFIC_CALLS,
} exo_traffic_form;

/* A new reference; NULL: no memory. */
json_t *exo_traffic_json(const exo_traffic *traffic, exo_traffic_form form);
/* What is missing, negative or no number is 0: the text may be anybody's. `json` may be NULL. */
exo_traffic exo_traffic_of_json(const json_t *json, exo_traffic_form form);

#endif
