/* Arguments of methods as messages: each built-in actor class has one table that says what its
 * methods take, and one function that decodes, checks and serves a call by it. What a method's own
 * function gets is whole: every required field is there, every field is known, of its type and in
 * its range, every text is UTF-8 without a 0. What depends on the actor's state, the method's
 * function checks.
 *
 * A wrong argument is INVAL, with a text that names the method and the field, and changes nothing:
 * whoever has joined the cluster may call. The messages are those of proto/train.proto. Tables are
 * constant; no state; any thread. Read next: check.c. */
#ifndef EXO_PROTOCOL_H
#define EXO_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <exogym/actor.h>

#include "base/registry.h"
#include "train.pb-c.h"
#include "wire/pack.h"

enum {
    EXO_ARGS_MOST = 16 << 20 /* bytes of a message: a node's document has its graph in it */
};

/* A bound of a field beyond that of its type. */
typedef struct exo_field_rule {
    const char *field;
    int64_t least, most; /* of a number; of a text: of its length in bytes. most 0: there is none */
} exo_field_rule;

/* What a method, or the start of an actor, takes. */
typedef struct exo_args {
    const char *method; /* "start" for start */
    const ProtobufCMessageDescriptor
        /* NULL: nothing, unless it is raw */
        *fields;
    const exo_field_rule *rules; /* (num_rules) */
    size_t num_rules;
    /* Bytes with a header of their own, which the method's own function reads and checks: data that
     * is not copied on its way. It may take the call's arguments over (exo_call_take_args). */
    bool raw;
    /* Serves the call. args: the decoded message, good for this call; NULL where there is none; of
     * a raw one its payload. NULL: start. */
    exo_status (*serve)(exo_call_context *call, void *self, const void *args, exo_payload *reply,
                        exo_err *err);
} exo_args;

/* The table of one class. */
typedef struct exo_protocol {
    const char *name; /* of the class                 */
    exo_args start;
    const exo_args *methods; /* (num_methods), a line for each of the class's */
    size_t num_methods;
} exo_protocol;

/* The tables of the classes that the library brings. */
extern exo_registry exo_protocol_registry;

const exo_args *exo_protocol_find(const exo_protocol *protocol, const char *method);

/* Serves the method that the call is of, for a class's `run`. INVAL: its argument is wrong. */
exo_status exo_protocol_serve(const exo_protocol *protocol, exo_call_context *call, void *self,
                              const exo_payload *args, exo_payload *reply, exo_err *err);
/* The decoded message of a start or a reply, to be freed with exo_args_free. INVAL, NOMEM. */
exo_status exo_args_decode(const exo_args *args, const exo_payload *payload, ProtobufCMessage **out,
                           exo_err *err);
void exo_args_free(ProtobufCMessage **message);

/* Packs an argument or a reply. NOMEM; INVAL: the message changed meanwhile (pack.h). */
exo_status exo_protocol_pack(exo_payload *out, const ProtobufCMessage *message, exo_err *err);

/* Are the bytes a message of that kind, whole and in the ranges of its types? Else INVAL, which
 * names the field after `method`. check.c */
exo_status exo_args_check(const exo_args *args, const uint8_t *data, size_t size, exo_err *err);

/* protobuf-c's strings are not const, but are only read. */
static inline char *
exo_args_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

#endif
