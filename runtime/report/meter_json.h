/* Meters to and from JSON, in the form of result.json, progress.json and checkpoints:
 *
 *     {"node_0.strategy.rounds": {"kind": "counter", "unit": "rounds", "help": "outer steps",
 *                                 "value": 12},
 *      "node_0.strategy.norm":   {"kind": "histogram", "unit": "1", "help": "...", "count": 40,
 *                                 "sum": 3.5, "bounds": [0.1, 1], "buckets": [30, 9, 1]}}
 *
 * The value of a gauge is null while the gauge is not set. The last bucket counts the observations
 * beyond all bounds. Reports to the head contain "unit" and "help" only once for all actors of one
 * name. No state. */
#ifndef EXO_REPORT_METER_JSON_H
#define EXO_REPORT_METER_JSON_H

#include <jansson.h>

#include "base/meter.h"

/* Returns a new object of all meters of a tree; NULL: no memory. */
json_t *exo_meters_json(const exo_meters *tree);
/* Adds the meters of such an object to a tree. Entries that are not valid meters, or that the tree
 * refuses, are skipped. */
void exo_meters_of_json(exo_meters *tree, const json_t *json);
/* Reads one meter as a sample, which points into the object, `c` and `bounds`. A missing unit or
 * help text is "". Returns false if the entry is not a valid meter. */
bool exo_meter_of_json(const char *path, const json_t *json, exo_meter_class *c,
                       double bounds[EXO_METER_BOUNDS], exo_meter_sample *out);

#endif
