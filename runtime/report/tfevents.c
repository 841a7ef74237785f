/* Event, Summary and SessionLog as bytes. Pure functions, no state. */
#include "report/tfevents.h"

#include <assert.h>
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER_BYTES = 12, /* the length and its checksum */
    MAX_TAG = 64,
};

enum wire_type {
    VARINT = 0,
    FIXED64 = 1,
    BYTES = 2,
    FIXED32 = 5,
};

struct message {
    uint8_t bytes[EXO_TFEVENT_BYTES];
    size_t size;
};

uint32_t
exo_crc32c(const void *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void
put_bytes(struct message *m, const void *bytes, size_t size)
{
    assert(m->size + size <= sizeof m->bytes);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void
put_little_endian(struct message *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_bytes(m, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void
put_varint(struct message *m, uint64_t value)
{
    while (value >= 0x80) {
        put_bytes(m, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
        value >>= 7;
    }
    put_bytes(m, &(uint8_t){(uint8_t)value}, 1);
}

static void
put_key(struct message *m, unsigned field, enum wire_type type)
{
    put_varint(m, field << 3 | type);
}

static void
put_field(struct message *m, unsigned field, const void *bytes, size_t size)
{
    put_key(m, field, BYTES);
    put_varint(m, size);
    put_bytes(m, bytes, size);
}

/* Event: wall_time = 1 (double), step = 2 (int64). */
static void
begin_event(struct message *m, double time, bool has_step, uint64_t step)
{
    uint64_t bits = 0;
    memcpy(&bits, &time, sizeof bits);
    put_key(m, 1, FIXED64);
    put_little_endian(m, bits, 8);
    if (has_step) {
        put_key(m, 2, VARINT);
        put_varint(m, step);
    }
}

static uint32_t
mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static size_t
frame(uint8_t *out, const struct message *event)
{
    struct message record = {.size = 0};
    put_little_endian(&record, event->size, 8);
    put_little_endian(&record, mask(exo_crc32c(record.bytes, 8)), 4);
    put_bytes(&record, event->bytes, event->size);
    put_little_endian(&record, mask(exo_crc32c(event->bytes, event->size)), 4);
    memcpy(out, record.bytes, record.size);
    return record.size;
}

size_t
exo_tfevent_version(uint8_t *out, double time)
{
    static const char version[] = "brain.Event:2";
    struct message event = {.size = 0};
    begin_event(&event, time, false, 0);
    put_field(&event, 3, version, strlen(version)); /* file_version */
    return frame(out, &event);
}

size_t
exo_tfevent_start(uint8_t *out, double time, uint64_t step)
{
    static const uint8_t start[] = {1 << 3 | VARINT, 1}; /* SessionLog: status = START */
    struct message event = {.size = 0};
    begin_event(&event, time, true, step);
    put_field(&event, 7, start, sizeof start); /* session_log */
    return frame(out, &event);
}

static void
put_double(struct message *m, unsigned field, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, FIXED64);
    put_little_endian(m, bits, 8);
}

/* Writes a packed field of doubles. */
static void
put_doubles(struct message *m, unsigned field, const double *values, size_t count)
{
    put_key(m, field, BYTES);
    put_varint(m, count * 8);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = 0;
        memcpy(&bits, &values[i], sizeof bits);
        put_little_endian(m, bits, 8);
    }
}

/* HistogramProto: min = 1, max = 2, num = 3, sum = 4, bucket_limit = 6, bucket = 7. */
static void
put_histogram(struct message *value, const exo_meter_sample *s)
{
    const exo_meter_class *c = s->meter_class;
    struct message histogram = {.size = 0};
    double limits[EXO_METER_BOUNDS + 1], counts[EXO_METER_BOUNDS + 1];
    for (size_t i = 0; i <= c->num_bounds; i++) {
        limits[i] = i < c->num_bounds ? c->bounds[i] : DBL_MAX;
        counts[i] = (double)s->buckets[i];
    }
    put_double(&histogram, 1, c->bounds[0]);
    put_double(&histogram, 2, c->bounds[c->num_bounds - 1]);
    put_double(&histogram, 3, (double)s->count);
    put_double(&histogram, 4, s->value);
    put_doubles(&histogram, 6, limits, c->num_bounds + 1);
    put_doubles(&histogram, 7, counts, c->num_bounds + 1);
    put_field(value, 5, histogram.bytes, histogram.size);
}

/* Summary.Value: tag = 1, simple_value = 2 (float), histo = 5, metadata = 9 with
 * summary_description = 3. */
size_t
exo_tfevent_meter(uint8_t *out, double time, uint64_t step, const char *tag,
                  const exo_meter_sample *meter)
{
    const exo_meter_class *c = meter->meter_class;
    struct message event = {.size = 0}, summary = {.size = 0}, value = {.size = 0},
                   metadata = {.size = 0};
    char description[EXO_METER_HELP + EXO_METER_UNIT + 4];
    int length = snprintf(description, sizeof description, "%s (%s)", c->help, c->unit);
    assert(strlen(tag) < EXO_METER_PATH && length > 0);
    put_field(&value, 1, tag, strlen(tag));
    if (c->kind == EXO_HISTOGRAM) {
        put_histogram(&value, meter);
    } else {
        float number = c->kind == EXO_COUNTER ? (float)meter->count : (float)meter->value;
        uint32_t bits = 0;
        memcpy(&bits, &number, sizeof bits);
        put_key(&value, 2, FIXED32);
        put_little_endian(&value, bits, 4);
    }
    put_field(&metadata, 3, description, (size_t)length);
    put_field(&value, 9, metadata.bytes, metadata.size);
    put_field(&summary, 1, value.bytes, value.size);
    begin_event(&event, time, true, step);
    put_field(&event, 5, summary.bytes, summary.size); /* summary */
    return frame(out, &event);
}

size_t
exo_tfevent_scalars(uint8_t *out, double time, uint64_t step, const exo_scalar *scalars,
                    size_t count)
{
    struct message event = {.size = 0}, summary = {.size = 0};
    assert(count <= EXO_MAX_SCALARS);
    for (size_t i = 0; i < count; i++) {
        struct message value = {.size = 0}; /* Summary.Value: tag = 1, simple_value = 2 (float) */
        float number = (float)scalars[i].value;
        uint32_t bits = 0;
        memcpy(&bits, &number, sizeof bits);
        assert(strlen(scalars[i].tag) <= MAX_TAG);
        put_field(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_key(&value, 2, FIXED32);
        put_little_endian(&value, bits, 4);
        put_field(&summary, 1, value.bytes, value.size);
    }
    begin_event(&event, time, true, step);
    put_field(&event, 5, summary.bytes, summary.size); /* summary */
    return frame(out, &event);
}
