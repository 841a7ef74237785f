/* Traffic as JSON, in its three forms. The columns are those of runtime/base/traffic.h. No
 * state. */
#ifndef EXO_REPORT_TRAFFIC_JSON_H
#define EXO_REPORT_TRAFFIC_JSON_H

#include <jansson.h>

#include "base/traffic.h"

typedef enum exo_traffic_form {
    /* {"messages", ..., "send_blocked_s", "recv_blocked_s", "device_bytes"}: for people */
    EXO_TRAFFIC_SECONDS,
    /* [messages, ..., send_blocked, recv_blocked, device_bytes], times in ns: among actors, and in checkpoints */
    EXO_TRAFFIC_NUMBERS,
    /* {"messages", "calls", ..., "wire_bytes", "waited_s"}: a collective in result.json */
    EXO_TRAFFIC_CALLS,
} exo_traffic_form;

/* Returns a new reference; NULL: no memory. */
json_t *exo_traffic_json(const exo_traffic *traffic, exo_traffic_form form);
/* Reads traffic from untrusted JSON: a value that is missing, negative or not a number is 0. `json`
 * may be NULL. */
exo_traffic exo_traffic_of_json(const json_t *json, exo_traffic_form form);

#endif
