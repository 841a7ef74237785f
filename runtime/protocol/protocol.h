/* Arguments of methods as messages. Each built-in actor class has one table of its methods'
 * arguments, and one function that decodes, checks and serves a call by the table. A method's own
 * function gets a complete message: all required fields are present; each field is known and has
 * its type and range; each text is UTF-8 without NUL. The method's function checks only what
 * depends on the actor's state.
 *
 * A wrong argument gives INVAL, with a text that names the method and the field, and changes
 * nothing, because every member of the cluster may call. The messages are those of
 * proto/train.proto. Tables are constant; no state; any thread. Read next: check.c. */
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
    EXO_ARGS_MOST = 16 << 20 /* longest message, in bytes: a node's document contains its graph */
};

/* The bounds of a field, narrower than those of its type. */
typedef struct exo_field_rule {
    const char *field;
    /* of a number, or of a text's length in bytes. most 0: no upper bound */
    int64_t least, most;
} exo_field_rule;

/* The arguments of a method, or of an actor's start. */
typedef struct exo_args {
    const char *method; /* "start" for start */
    /* NULL: no argument, unless the method is raw */
    const ProtobufCMessageDescriptor *fields;
    const exo_field_rule *rules; /* (num_rules) */
    size_t num_rules;
    /* The argument is bytes with their own header, which the method's function reads and checks.
     * Such data is not copied on its way. The function may take the call's arguments over
     * (exo_call_take_args). */
    bool raw;
    /* Serves the call. args: the decoded message, valid during the call; NULL if the method takes
     * none; the payload of a raw method. NULL for start. */
    exo_status (*serve)(exo_call_context *call, void *self, const void *args, exo_payload *reply,
                        exo_err *err);
} exo_args;

/* The table of one class. */
typedef struct exo_protocol {
    const char *name; /* of the class */
    exo_args start;
    const exo_args *methods; /* (num_methods), one for each of the class's methods */
    size_t num_methods;
} exo_protocol;

/* The tables of the library's own classes. */
extern exo_registry exo_protocol_registry;

/* The method's entry, or NULL. */
const exo_args *exo_protocol_find(const exo_protocol *protocol, const char *method);

/* Serves the call's method; for the `run` of a class. Errors: INVAL if the argument is wrong,
 * NOT_FOUND if no table has the method, and those of the method. */
exo_status exo_protocol_serve(const exo_protocol *protocol, exo_call_context *call, void *self,
                              const exo_payload *args, exo_payload *reply, exo_err *err);
/* Decodes the message of a start or a reply, to be freed with exo_args_free. Errors: INVAL,
 * NOMEM. */
exo_status exo_args_decode(const exo_args *args, const exo_payload *payload, ProtobufCMessage **out,
                           exo_err *err);
void exo_args_free(ProtobufCMessage **message);

/* Packs an argument or a reply. Errors: NOMEM; INVAL if the message changed meanwhile (pack.h). */
exo_status exo_protocol_pack(exo_payload *out, const ProtobufCMessage *message, exo_err *err);

/* Checks that the bytes are a complete message of that kind, in the ranges of its types. Otherwise
 * INVAL, which names the field after `method`. See check.c. */
exo_status exo_args_check(const exo_args *args, const uint8_t *data, size_t size, exo_err *err);

/* protobuf-c's strings are not const, but it only reads them. */
static inline char *
exo_args_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

#endif
