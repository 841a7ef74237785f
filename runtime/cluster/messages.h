/* Protobuf messages as payloads. Only in the files of the head, the worker and the cluster is the
 * generated code of cluster.proto seen. */
#ifndef EXO_CLUSTER_MESSAGES_H
#define EXO_CLUSTER_MESSAGES_H

#include <exogym/actor.h>

#include "actor/future.h"
#include "cluster.pb-c.h"
#include "wire/pack.h" /* exo_message_pack */
#include "wire/unpack.h"

/* The message in a payload; NULL: it is none, or nested more deeply than ours ever are. The
 * caller frees it with EXO_RELEASE. */
void *exo_message_unpack(const ProtobufCMessageDescriptor *descriptor, const exo_payload *payload);
/* The same of the arguments of a system actor's method, which have EXO_MAX_CONTROL bytes at most:
 * unpacked, a message takes many times as much. */
void *exo_message_unpack_args(const ProtobufCMessageDescriptor *descriptor,
                              const exo_payload *args);
/* How many messages a repeated field of the arguments has, as far as they can be read: before they
 * are unpacked, which costs far more. */
size_t exo_message_count(const exo_payload *args, uint32_t field);
/* The number in a field of the arguments, likewise; 0: there is none. */
uint64_t exo_message_number(const exo_payload *args, uint32_t field);
/* The text of one of the first fields of the arguments, likewise; "": there is none, or it is too
 * long for `out`. */
void exo_message_text(const exo_payload *args, uint32_t field, char *out, size_t size);
/* A copy of a message that was packed or received. */
void *exo_message_copy(const ProtobufCMessage *message);

#define EXO_UNPACK(Type, type, payload) ((Type *)exo_message_unpack(&type##__descriptor, payload))
#define EXO_UNPACK_ARGS(Type, type, args)                                                          \
    ((Type *)exo_message_unpack_args(&type##__descriptor, args))
#define EXO_RELEASE(message) exo_message_release((message) ? &(message)->base : NULL)

/* protobuf-c's strings are not const, but are only read. */
static inline char *
exo_pb_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

#endif
