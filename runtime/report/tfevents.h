/* TensorBoard event files: records of hand-encoded protobuf, framed with masked CRC-32C.
 *
 * Format: tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/util/event.proto and
 * tensorflow/core/framework/summary.proto (messages).
 */
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
    EXO_TFEVENT_BYTES = 4096, /* room for any record below */
    EXO_MAX_SCALARS = 8,
};

/* Each writes one framed record to `out` (EXO_TFEVENT_BYTES) and gives its size. `time` is in
 * seconds since 1970. */

/* The first record of every file. */
size_t exo_tfevent_version(uint8_t *out, double time);
/* A session starts: what the reader has from `step` on, of an earlier file, is void. */
size_t exo_tfevent_start(uint8_t *out, double time, uint64_t step);
/* Up to EXO_MAX_SCALARS scalars of one step. */
size_t exo_tfevent_scalars(uint8_t *out, double time, uint64_t step, const exo_scalar *scalars,
                           size_t count);

/* One meter of a step, with its unit and help as the tag's description. tag: shorter than
 * EXO_METER_PATH. A histogram's outermost buckets are drawn at its first and last bound, as nobody
 * knows how far they reach. */
size_t exo_tfevent_meter(uint8_t *out, double time, uint64_t step, const char *tag,
                         const exo_meter_sample *meter);

/* CRC-32C (Castagnoli; RFC 3720, B.4). */
uint32_t exo_crc32c(const void *data, size_t size);

#endif
