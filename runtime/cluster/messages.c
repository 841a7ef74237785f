/* Protobuf messages as payloads: see messages.h. */
#include "cluster/messages.h"

#include <exogym/memory.h>
#include <exogym/object.h>

#include "cluster/quota.h"
#include "wire/pack.h"

exo_status
exo_message_pack(exo_payload *out, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *data = exo_calloc(1, size + 1);
    if (!data)
        return EXO_NOMEM;
    exo_status st = exo_pack_sized(message, data, size, NULL);
    if (st == EXO_OK)
        *out = (exo_payload){.data = data, .size = size, .release = exo_free};
    else
        exo_free(data);
    return st;
}

/* --- Depth ----------------------------------------------------------------------------------------------------------------------- */

/* Unpacking recurses for every message within a message, as deep as the sender likes: a Spawn within a Spawn within a Spawn would run
 * out of stack. So the bytes are looked through first. What is not well formed here is left to the unpacking to refuse. */
enum {
    MAX_DEPTH = 4, /* a Register has Actors, a Spawn has Spawns with Resources */
    MAX_PARTS =
        12000 /* messages within the arguments of a method: an empty one takes 2 bytes packed, and 300 unpacked */
};

struct bytes {
    const uint8_t *at, *end;
};

static bool
read_varint(struct bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool
skip(struct bytes *b, uint64_t length)
{
    if (length > (uint64_t)(b->end - b->at))
        return false;
    b->at += length;
    return true;
}

static bool
is_flat(const ProtobufCMessageDescriptor *descriptor, struct bytes b, int depth, size_t *parts)
{
    uint64_t tag, length;
    while (read_varint(&b, &tag)) {
        bool well = false;
        switch (tag & 7) {
        case 0:
            well = read_varint(&b, &length);
            break;
        case 1:
            well = skip(&b, 8);
            break;
        case 5:
            well = skip(&b, 4);
            break;
        case 2: {
            if (!read_varint(&b, &length))
                break;
            struct bytes inside = {.at = b.at, .end = b.at};
            well = skip(&b, length);
            inside.end = b.at;
            const ProtobufCFieldDescriptor *field =
                well && tag >> 3 <= UINT32_MAX
                    ? protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3))
                    : NULL;
            if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
                (depth == MAX_DEPTH || (*parts)-- == 0 || !is_flat(field->descriptor, inside, depth + 1, parts)))
                return false;
            break;
        }
        default:
            break;
        }
        if (!well)
            return true;
    }
    return true;
}

/* The bytes are read several times: here, and by protobuf-c, which counts before it fills. So they must be ours alone. */
static void *
unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload, size_t parts)
{
    static const uint8_t nothing[1];
    exo_payload bytes = {0};
    void *message = NULL;
    if (exo_payload_stable(&bytes, payload) != EXO_OK)
        return NULL;
    const uint8_t *data = bytes.data ? bytes.data : nothing;
    if (is_flat(descriptor, (struct bytes){.at = data, .end = data + bytes.size}, 1, &parts))
        message = protobuf_c_message_unpack(descriptor, NULL, bytes.size, data);
    exo_payload_release(&bytes);
    return message;
}

void *
exo_message_unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload)
{
    return unpack(descriptor, payload, SIZE_MAX);
}

void *
exo_message_unpack_args(const ProtobufCMessageDescriptor *descriptor, const exo_payload *args)
{
    return args->size <= EXO_MAX_CONTROL ? unpack(descriptor, args, MAX_PARTS) : NULL;
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
