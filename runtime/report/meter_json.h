/* Meters to and from JSON, as result.json, progress.json and checkpoints have them:
 *
 *     {"node_0.strategy.rounds": {"kind": "counter", "unit": "rounds", "help": "outer steps", "value": 12},
 *      "node_0.strategy.norm":   {"kind": "histogram", "unit": "1", "help": "...", "count": 40, "sum": 3.5,
 *                                 "bounds": [0.1, 1], "buckets": [30, 9, 1]}}
 *
 * A gauge's value is null while it is not set; the last bucket has what is beyond all bounds. What
 * a head is told has "unit" and "help" once for the meters of actors of one name. No state. */
#ifndef EXO_REPORT_METER_JSON_H
#define EXO_REPORT_METER_JSON_H

#include <jansson.h>

#include "base/meter.h"

/* A new object of all meters in a tree; NULL: no memory. */
json_t *exo_meters_json(const exo_meters *tree);
/* Puts those of such an object into a tree. What is no meter, or does not go in, is left out. */
void exo_meters_of_json(exo_meters *tree, const json_t *json);
/* One of them as a sample, which points into the object, `c` and `bounds`; without a unit or a help
 * text that is "". false: it is none. */
bool exo_meter_of_json(const char *path, const json_t *json, exo_meter_class *c,
                       double bounds[EXO_METER_BOUNDS], exo_meter_sample *out);

#endif
