/* The columns of traffic: see traffic.h. */
#include "base/traffic.h"

#include <string.h>

const exo_meter_class exo_traffic_columns[EXO_TRAFFIC_COLUMNS] = {
    {.name = "messages", .unit = "messages", .help = "messages that were sent"},
    {.name = "items",
     .unit = "items",
     .help = "items of a channel, or calls of a collective, that messages carried"},
    {.name = "payload_bytes", .unit = "bytes", .help = "the items' arrays as the sender had them"},
    {.name = "encoded_bytes", .unit = "bytes", .help = "the items' arrays after the codec"},
    {.name = "wire_bytes",
     .unit = "bytes",
     .help = "encoded bytes with all headers: what a TCP socket is given"},
    {.name = "drops",
     .unit = "items",
     .help = "items that on_full dropped, or that waited for a receiver that ended"},
    {.name = "send_blocked", .unit = "ns", .help = "time that senders waited for room"},
    {.name = "recv_blocked",
     .unit = "ns",
     .help = "time that receivers waited for something to come"},
    {.name = "device_bytes",
     .unit = "bytes",
     .help = "of the payload, arrays that stayed on their device"},
};

static const size_t offsets[EXO_TRAFFIC_COLUMNS] = {
    offsetof(exo_traffic, messages),      offsetof(exo_traffic, items),
    offsetof(exo_traffic, payload_bytes), offsetof(exo_traffic, encoded_bytes),
    offsetof(exo_traffic, wire_bytes),    offsetof(exo_traffic, drops),
    offsetof(exo_traffic, send_blocked),  offsetof(exo_traffic, recv_blocked),
    offsetof(exo_traffic, device_bytes),
};

_Static_assert(sizeof(exo_traffic) == EXO_TRAFFIC_COLUMNS * sizeof(uint64_t),
               "every field of traffic is a column");
_Static_assert(sizeof(exo_time) == sizeof(uint64_t), "times are columns as they are");

bool
exo_traffic_is_time(size_t column)
{
    return strcmp(exo_traffic_columns[column].unit, "ns") == 0;
}

uint64_t
exo_traffic_get(const exo_traffic *traffic, size_t column)
{
    uint64_t value;
    memcpy(&value, (const char *)traffic + offsets[column], sizeof value);
    return value;
}

void
exo_traffic_set(exo_traffic *traffic, size_t column, uint64_t value)
{
    memcpy((char *)traffic + offsets[column], &value, sizeof value);
}

void
exo_traffic_put(const exo_traffic *traffic, uint64_t columns[EXO_TRAFFIC_COLUMNS])
{
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        columns[i] = exo_traffic_get(traffic, i);
}

exo_traffic
exo_traffic_of(const uint64_t columns[EXO_TRAFFIC_COLUMNS])
{
    exo_traffic traffic = {0};
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        exo_traffic_set(&traffic, i, columns[i]);
    return traffic;
}

void
exo_traffic_add(exo_traffic *sum, const exo_traffic *more)
{
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        exo_traffic_set(sum, i, exo_traffic_get(sum, i) + exo_traffic_get(more, i));
}
