/* Packing of protobuf messages into memory of a fixed size: see pack.h. */
#include "wire/pack.h"

#include <assert.h>
#include <string.h>

#include <exogym/memory.h>

/* A buffer with `room` free bytes at `at`. */
struct bounded {
    ProtobufCBuffer base;
    uint8_t *at;
    size_t room;
    bool full;
};

static void
append(ProtobufCBuffer *buffer, size_t length, const uint8_t *data)
{
    struct bounded *b = (struct bounded *)buffer;
    b->full = b->full || length > b->room;
    if (b->full || length == 0)
        return;
    memcpy(b->at, data, length);
    b->at += length;
    b->room -= length;
}

bool
exo_pack_bounded(const ProtobufCMessage *message, uint8_t *data, size_t size)
{
    struct bounded b = {.base.append = append, .at = data, .room = size};
    protobuf_c_message_pack_to_buffer(message, &b.base);
    return !b.full && b.room == 0;
}

exo_status
exo_pack_sized(const ProtobufCMessage *message, uint8_t *data, size_t size, exo_err *err)
{
    bool same = exo_pack_bounded(message, data, size);
    assert(same && "a message changed while it was packed");
    return same ? EXO_OK
                : exo_fail(err, EXO_INVAL, "a message of %zu bytes changed while it was packed",
                           size);
}

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
