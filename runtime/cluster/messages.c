/* Protobuf messages as payloads: see messages.h. */
#include "messages.h"

#include <exogym/memory.h>

exo_status
exo_message_pack(exo_payload *out, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *data = exo_calloc(1, size + 1);
    if (!data)
        return EXO_NOMEM;
    protobuf_c_message_pack(message, data);
    *out = (exo_payload){.data = data, .size = size, .release = exo_free};
    return EXO_OK;
}

void *
exo_message_unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload)
{
    static const uint8_t nothing[1];
    return protobuf_c_message_unpack(descriptor, NULL, payload->size, payload->data ? payload->data : nothing);
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
