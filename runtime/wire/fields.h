/* The fields of a packed protobuf message, one after the other, without unpacking it: for checks
 * that come before.
 *
 * No state beyond the bytes that are left, which the caller keeps. Any thread. */
#ifndef EXO_WIRE_FIELDS_H
#define EXO_WIRE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exo_wire_bytes {
    const uint8_t *at, *end;
} exo_wire_bytes;

/* How a field's value is written. */
typedef enum exo_wire_type {
    EXO_WIRE_VARINT = 0,
    EXO_WIRE_64 = 1,
    EXO_WIRE_BYTES = 2,
    EXO_WIRE_32 = 5,
} exo_wire_type;

typedef struct exo_wire_field {
    uint32_t number; /* from 1 */
    exo_wire_type kind;
    uint64_t value;        /* of a VARINT                       */
    exo_wire_bytes inside; /* of BYTES; of the others: the value */
} exo_wire_field;

/* Reads a varint and moves behind it; false: the bytes end before it does, or it has more than 64
 * bits. */
bool exo_wire_varint(exo_wire_bytes *bytes, uint64_t *out);
/* Reads the next field and moves behind it. False: the bytes are no field. Not for bytes of which
 * none are left. */
bool exo_wire_field_next(exo_wire_bytes *bytes, exo_wire_field *out);

#endif
