/* TensorBoard event files: records of hand-encoded protobuf, framed with masked CRC-32C. No state.
 *
 * Format: tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/util/event.proto and
 * tensorflow/core/framework/summary.proto (messages). */
#ifndef EXO_REPORT_TFEVENTS_H
#define EXO_REPORT_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/meter.h>

typedef struct exo_scalar {
    const char *tag; /* at most 64 bytes */
    double value;
} exo_scalar;

enum {
    EXO_TFEVENT_BYTES = 4096, /* enough for any record below */
    EXO_MAX_SCALARS = 8,
};

/* Each function writes one framed record to `out` (EXO_TFEVENT_BYTES) and returns its size. `time`
 * is in seconds since 1970. */

/* The first record of every file. */
size_t exo_tfevent_version(uint8_t *out, double time);
/* The start of a session: a reader drops earlier records of `step` and later steps. */
size_t exo_tfevent_start(uint8_t *out, double time, uint64_t step);
/* Up to EXO_MAX_SCALARS scalars of one step. */
size_t exo_tfevent_scalars(uint8_t *out, double time, uint64_t step, const exo_scalar *scalars,
                           size_t count);

/* One meter of a step, with its help text and unit as the tag's description. tag: shorter than
 * EXO_METER_PATH. TensorBoard draws a histogram's outermost buckets up to its first and last bound,
 * because their real extent is unknown. */
size_t exo_tfevent_meter(uint8_t *out, double time, uint64_t step, const char *tag,
                         const exo_meter_sample *meter);

/* CRC-32C (Castagnoli; RFC 3720, B.4). */
uint32_t exo_crc32c(const void *data, size_t size);

#endif
