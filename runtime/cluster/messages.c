/* Protobuf messages as payloads: see messages.h. */
#include "cluster/messages.h"

#include <exogym/object.h>

#include "cluster/quota.h"
#include "wire/fields.h"

/* --- Depth ------------------------------------------------------------------------------------ */

/* Unpacking recurses into each message within a message, to any depth that the sender chooses: a
 * Spawn within a Spawn within a Spawn would exhaust the stack. So the bytes are checked first. */
enum {
    MAX_DEPTH = 4, /* a Register has Actors, a Spawn has Spawns with Resources */
    /* messages within the arguments of a method: an empty one takes 2 bytes packed, and 300
     * unpacked */
    MAX_PARTS = 12000,
    /* fields within the arguments of a method: one of 2 bytes packed takes 80 while protobuf-c
     * unpacks, known or not. 2,048 actors that are made together have 30 fields each. */
    MAX_FIELDS = 65536
};

/* How much of a message may still be unpacked. */
struct room {
    size_t parts, fields;
};

static bool
is_flat(const ProtobufCMessageDescriptor *descriptor, exo_wire_bytes b, int depth,
        struct room *room)
{
    exo_wire_field at;
    while (b.at < b.end) {
        if (room->fields-- == 0 || !exo_wire_field_next(&b, &at))
            return false;
        const ProtobufCFieldDescriptor *field =
            at.kind == EXO_WIRE_BYTES
                ? protobuf_c_message_descriptor_get_field(descriptor, at.number)
                : NULL;
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
            (depth == MAX_DEPTH || room->parts-- == 0 ||
             !is_flat(field->descriptor, at.inside, depth + 1, room)))
            return false;
    }
    return true;
}

/* The bytes are read several times: here, and by protobuf-c, which counts before it fills. So they
 * must not change meanwhile: exo_payload_stable copies shared ones. */
static void *
unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload, struct room room)
{
    static const uint8_t nothing[1];
    exo_payload bytes = {0};
    void *message = NULL;
    if (exo_payload_stable(&bytes, payload) != EXO_OK)
        return NULL;
    const uint8_t *data = bytes.data ? bytes.data : nothing;
    if (is_flat(descriptor, (exo_wire_bytes){.at = data, .end = data + bytes.size}, 1, &room))
        exo_message_unpack_bytes(&message, descriptor, bytes.size, data);
    exo_payload_release(&bytes);
    return message;
}

void *
exo_message_unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload)
{
    return unpack(descriptor, payload, (struct room){SIZE_MAX, SIZE_MAX});
}

void *
exo_message_unpack_args(const ProtobufCMessageDescriptor *descriptor, const exo_payload *args)
{
    return args->size <= EXO_MAX_CONTROL
               ? unpack(descriptor, args, (struct room){MAX_PARTS, MAX_FIELDS})
               : NULL;
}

exo_status
exo_message_refuse_args(const char *method, exo_err *err)
{
    return exo_fail(
        err, EXO_INVAL,
        "%s: the arguments cannot be read, or are more than %d bytes, %d messages or %d "
        "fields",
        method, EXO_MAX_CONTROL, MAX_PARTS, MAX_FIELDS);
}

enum {
    /* fields that exo_message_text looks at: packed, fields stand in the order of their numbers */
    FIRST_FIELDS = 64
};

size_t
exo_message_count(const exo_payload *args, uint32_t field)
{
    exo_wire_bytes b = {.at = args->data, .end = (const uint8_t *)args->data + args->size};
    exo_wire_field at;
    size_t count = 0;
    if (!args->data)
        return 0;
    for (int n = 0; n <= MAX_FIELDS && b.at < b.end && exo_wire_field_next(&b, &at); n++)
        count += at.number == field && at.kind == EXO_WIRE_BYTES;
    return count;
}

uint64_t
exo_message_number(const exo_payload *args, uint32_t field)
{
    exo_wire_bytes b = {.at = args->data, .end = (const uint8_t *)args->data + args->size};
    exo_wire_field f;
    uint64_t number = 0;
    while (args->data && b.at < b.end && exo_wire_field_next(&b, &f))
        if (f.number == field && f.kind == EXO_WIRE_VARINT)
            number = f.value;
    return number;
}

void
exo_message_text(const exo_payload *args, uint32_t field, char *out, size_t size)
{
    exo_wire_bytes b = {.at = args->data, .end = (const uint8_t *)args->data + args->size};
    exo_wire_field f;
    out[0] = '\0';
    for (int n = 0; n < FIRST_FIELDS && args->data && b.at < b.end && exo_wire_field_next(&b, &f);
         n++) {
        size_t length = (size_t)(f.inside.end - f.inside.at);
        if (f.number != field || f.kind != EXO_WIRE_BYTES || length >= size)
            continue;
        memcpy(out, f.inside.at, length);
        out[length] = '\0';
    }
}

void *
exo_message_copy(const ProtobufCMessage *message)
{
    exo_payload packed = {0};
    if (exo_message_pack(&packed, message) != EXO_OK)
        return NULL;
    void *copy = exo_message_unpack(message->descriptor, &packed);
    exo_payload_release(&packed);
    return copy;
}
