/* Packing of protobuf messages into memory of a fixed size.
 *
 * protobuf_c_message_pack() writes as many bytes as the message has by then. If another thread
 * changes one of its strings after the size was computed, that is more than there is room for.
 * Nothing outside of pack.c calls it: whatever a caller does to its strings, no byte behind the
 * buffer is written. */
#ifndef EXO_WIRE_PACK_H
#define EXO_WIRE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <exogym/payload.h>
#include <exogym/status.h>

/* Writes the packed `message` to data[0..size). False: it does not take exactly `size` bytes, and
 * what was written is of no use. */
bool exo_pack_bounded(const ProtobufCMessage *message, uint8_t *data, size_t size);

/* As above, for a `size` that protobuf_c_message_get_packed_size() gave for this message. INVAL:
 * the message has changed since, which is a mistake of the caller's, at which a build with
 * assertions stops. */
exo_status exo_pack_sized(const ProtobufCMessage *message, uint8_t *data, size_t size,
                          exo_err *err);

/* Packs `message` into a payload of its own. NOMEM; INVAL: the message changed meanwhile, as
 * above. */
exo_status exo_message_pack(exo_payload *out, const ProtobufCMessage *message);

#endif
