/* Protobuf messages as payloads. Only the files of the head, the worker and the cluster include the
 * generated code of cluster.proto. */
#ifndef EXO_CLUSTER_MESSAGES_H
#define EXO_CLUSTER_MESSAGES_H

#include <exogym/actor.h>

#include "actor/future.h"
#include "cluster.pb-c.h"
#include "wire/pack.h" /* exo_message_pack */
#include "wire/unpack.h"

/* Unpacks the message in a payload; NULL: the bytes are no such message, or are nested more deeply
 * than any message of the protocol. The caller frees it with EXO_RELEASE. */
void *exo_message_unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload);
/* Unpacks the arguments of a system actor's method: as above, and NULL if they have more than
 * EXO_MAX_CONTROL bytes, or too many messages or fields within, because unpacked ones take much more
 * memory and time. */
void *exo_message_unpack_args(const ProtobufCMessageDescriptor *descriptor,
                              const exo_payload *args);
/* INVAL: exo_message_unpack_args has refused the arguments of this method. */
exo_status exo_message_refuse_args(const char *method, exo_err *err);
/* Counts the messages in a repeated field, as far as the arguments can be read. It costs far less
 * than unpacking. */
size_t exo_message_count(const exo_payload *args, uint32_t field);
/* The number in a field, likewise; 0: there is none. */
uint64_t exo_message_number(const exo_payload *args, uint32_t field);
/* The text of one of the first fields, likewise; "": there is none, or it does not fit into
 * `out`. */
void exo_message_text(const exo_payload *args, uint32_t field, char *out, size_t size);
/* Copies a message. */
void *exo_message_copy(const ProtobufCMessage *message);

#define EXO_UNPACK(Type, type, payload) ((Type *)exo_message_unpack(&type##__descriptor, payload))
#define EXO_UNPACK_ARGS(Type, type, args)                                                          \
    ((Type *)exo_message_unpack_args(&type##__descriptor, args))
#define EXO_RELEASE(message) exo_message_release((message) ? &(message)->base : NULL)

/* protobuf-c's strings are not const, although it only reads them. */
static inline char *
exo_pb_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

#endif
