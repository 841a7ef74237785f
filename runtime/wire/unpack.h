/* Unpacking of protobuf messages into few blocks of memory.
 *
 * protobuf-c allocates each string, each message within a message and each list of its own, and a
 * message of 2,000 others takes 20,000 allocations to make and to free. Here a message and all that
 * it refers to lie in one block, or in a few: it is released whole, and no part of it alone. */
#ifndef EXO_WIRE_UNPACK_H
#define EXO_WIRE_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <exogym/status.h>

/* Unpacks the message in data[0..size). The caller releases it with exo_message_release. `data`
 * must not change during the call. Any thread. Errors (*out is NULL): INVAL (the data is no message
 * of that type), NOMEM. */
exo_status exo_message_unpack_bytes(void **out, const ProtobufCMessageDescriptor *descriptor,
                                    size_t size, const uint8_t *data);

/* Frees a message from above; NULL is fine. What its fields were set to since is not freed. */
void exo_message_release(ProtobufCMessage *message);

#endif
