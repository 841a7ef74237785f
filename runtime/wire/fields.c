/* The fields of a packed protobuf message: see fields.h. */
#include "wire/fields.h"

bool
exo_wire_varint(exo_wire_bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        if (shift == 63 && byte > 1)
            return false;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool
take(exo_wire_bytes *b, uint64_t length, exo_wire_bytes *out)
{
    if (length > (uint64_t)(b->end - b->at))
        return false;
    *out = (exo_wire_bytes){.at = b->at, .end = b->at + length};
    b->at += length;
    return true;
}

bool
exo_wire_field_next(exo_wire_bytes *b, exo_wire_field *out)
{
    uint64_t tag = 0, length = 0;
    *out = (exo_wire_field){0};
    if (!exo_wire_varint(b, &tag) || tag >> 3 == 0 || tag >> 3 >= 1u << 29)
        return false;
    out->number = (uint32_t)(tag >> 3);
    out->kind = (exo_wire_type)(tag & 7);
    switch (out->kind) {
    case EXO_WIRE_VARINT:
        return exo_wire_varint(b, &out->value);
    case EXO_WIRE_64:
        return take(b, 8, &out->inside);
    case EXO_WIRE_BYTES:
        return exo_wire_varint(b, &length) && take(b, length, &out->inside);
    case EXO_WIRE_32:
        return take(b, 4, &out->inside);
    default:
        return false;
    }
}
