/* Packing of protobuf messages into memory of a fixed size. No state; any thread.
 *
 * protobuf_c_message_pack() has no bound: if another thread lengthens a string of the message after
 * its size was computed, it writes beyond the buffer. Therefore only pack.c packs messages, and it
 * never writes beyond the buffer, whatever a caller does to its strings. */
#ifndef EXO_WIRE_PACK_H
#define EXO_WIRE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <exogym/payload.h>
#include <exogym/status.h>

/* Writes the packed `message` to data[0..size). False: it does not take exactly `size` bytes, and
 * the written ones are useless. */
bool exo_pack_bounded(const ProtobufCMessage *message, uint8_t *data, size_t size);

/* exo_pack_bounded for the `size` that protobuf_c_message_get_packed_size() returned for this
 * message. INVAL: the message has changed since. That is a mistake of the caller, and stops a build
 * with assertions. */
exo_status exo_pack_sized(const ProtobufCMessage *message, uint8_t *data, size_t size,
                          exo_err *err);

/* Packs `message` into a new payload. Errors: NOMEM; INVAL if the message changed meanwhile, as
 * above. */
exo_status exo_message_pack(exo_payload *out, const ProtobufCMessage *message);

#endif
