/* Iterates over the fields of a packed protobuf message without unpacking it, for checks before
 * that.
 *
 * The caller keeps the bytes that are left; no other state. Any thread. */
#ifndef EXO_WIRE_FIELDS_H
#define EXO_WIRE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exo_wire_bytes {
    const uint8_t *at, *end;
} exo_wire_bytes;

/* The encoding of a field's value. */
typedef enum exo_wire_type {
    EXO_WIRE_VARINT = 0,
    EXO_WIRE_64 = 1,
    EXO_WIRE_BYTES = 2,
    EXO_WIRE_32 = 5,
} exo_wire_type;

typedef struct exo_wire_field {
    uint32_t number; /* from 1 */
    exo_wire_type kind;
    uint64_t value;        /* of VARINT */
    exo_wire_bytes inside; /* of BYTES: its contents; of 32 and 64: the value */
} exo_wire_field;

/* Reads a varint and moves behind it. False: the bytes end too early, or it has more than 64
 * bits. */
bool exo_wire_varint(exo_wire_bytes *bytes, uint64_t *out);
/* Reads the next field and moves behind it. At least one byte must be left. False: the bytes are no
 * field. */
bool exo_wire_field_next(exo_wire_bytes *bytes, exo_wire_field *out);

#endif
