/* The columns of traffic (exogym/traffic.h): name, unit and meaning of each, in one place. Code
 * that sums, writes or reads traffic goes over them by number. No state; any thread. */
#ifndef EXO_BASE_TRAFFIC_H
#define EXO_BASE_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/traffic.h>

#include "base/meter.h"

enum {
    EXO_TRAFFIC_COLUMNS = 9
};

/* Counters, in the order of files. Those with the unit "ns" are times. */
extern const exo_meter_class exo_traffic_columns[EXO_TRAFFIC_COLUMNS];

bool exo_traffic_is_time(size_t column);
uint64_t exo_traffic_get(const exo_traffic *traffic, size_t column);
void exo_traffic_set(exo_traffic *traffic, size_t column, uint64_t value);
/* As (EXO_TRAFFIC_COLUMNS) numbers: what messages, reports and checkpoints have. */
void exo_traffic_put(const exo_traffic *traffic, uint64_t columns[EXO_TRAFFIC_COLUMNS]);
exo_traffic exo_traffic_of(const uint64_t columns[EXO_TRAFFIC_COLUMNS]);
void exo_traffic_add(exo_traffic *sum, const exo_traffic *more);

#endif
