/* Meters (exogym/meter.h) for code that shows them: taking over the counts of another process or of
 * a file, and finding a meter by its path. docs/decisions/0021-meters.md has the reasons. */
#ifndef EXO_BASE_METER_H
#define EXO_BASE_METER_H

#include <stdbool.h>

#include <exogym/meter.h>

/* Sets the meter at the sample's path below `scope` to the values of the sample, which come from
 * another process or from a file. Makes scopes and meter if they are new, and then copies the
 * class. Later samples of the path must have a class of equal kind, unit and bounds. Errors: INVAL
 * (path or class), EXISTS (the path has something else), FULL, NOMEM. */
exo_status exo_meters_put(exo_meters *scope, const exo_meter_sample *sample, exo_err *err);
/* Reads the meter at `path` below `scope`; out->path is then `path`. False: there is none. */
bool exo_meters_get(const exo_meters *scope, const char *path, exo_meter_sample *out);
/* Adds the counts of an earlier sample of the same meter to `since`: counters and histograms add
 * up, and a gauge keeps the later value if it has one. Does nothing if kind or bounds differ. */
void exo_meter_sample_add(exo_meter_sample *since, const exo_meter_sample *before);

#endif
