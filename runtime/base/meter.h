/* Meters (exogym/meter.h) as those who show them use them: taking over what was counted elsewhere, and looking one up by its path.
 * docs/decisions/0021-meters.md has the reasons. */
#ifndef EXO_BASE_METER_H
#define EXO_BASE_METER_H

#include <stdbool.h>

#include <exogym/meter.h>

/* Makes the meter at the sample's path below a scope what the sample says: one that another process counts, or that a file had. Scopes and
 * meter are made if they are new; the class is copied then, and must be of equal kind, unit and bounds afterwards. Errors: INVAL (path or
 * class), EXISTS (the path has something else), FULL, NOMEM. */
exo_status exo_meters_put(exo_meters *scope, const exo_meter_sample *sample, exo_err *err);
/* The meter at that path below a scope, whose `path` is then the one given; false: there is none. */
bool exo_meters_get(const exo_meters *scope, const char *path, exo_meter_sample *out);
/* Adds what a sample of the same meter counted before to what it has counted since: counters and histograms add up, a gauge keeps the later
 * value if it has one. Nothing, where kind or bounds differ. */
void exo_meter_sample_add(exo_meter_sample *since, const exo_meter_sample *before);

#endif
