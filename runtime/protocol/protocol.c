/* Methods by their tables: see protocol.h. No state but the registry. */
#include "protocol/protocol.h"

#include <string.h>

#include <exogym/object.h>

#include "actor/hooks.h"
#include "wire/unpack.h"

exo_registry exo_protocol_registry = EXO_REGISTRY("protocol");

const exo_args *
exo_protocol_find(const exo_protocol *protocol, const char *method)
{
    for (size_t i = 0; i < protocol->num_methods; i++)
        if (strcmp(protocol->methods[i].method, method) == 0)
            return &protocol->methods[i];
    return NULL;
}

/* --- Decoding --------------------------------------------------------------------------------- */

/* The bytes are read several times: here, and by protobuf-c, which counts before it fills. So they
 * must be a private copy. */
exo_status
exo_args_decode(const exo_args *args, const exo_payload *payload, ProtobufCMessage **out,
                exo_err *err)
{
    static const uint8_t nothing[1];
    exo_payload bytes = {0};
    *out = NULL;
    if (payload->size > EXO_ARGS_MOST)
        return exo_fail(err, EXO_INVAL, "%s: a message of %zu bytes is too long", args->method,
                        payload->size);
    exo_status st = exo_payload_stable(&bytes, payload);
    if (st != EXO_OK)
        return exo_fail(err, st, "%s: no memory for a message of %zu bytes", args->method,
                        payload->size);
    const uint8_t *data = bytes.data ? bytes.data : nothing;
    st = exo_args_check(args, data, bytes.size, err);
    void *message = NULL;
    if (st == EXO_OK &&
        (st = exo_message_unpack_bytes(&message, args->fields, bytes.size, data)) != EXO_OK)
        exo_fail(err, st,
                 st == EXO_NOMEM ? "%s: no memory for a message" : "%s: the argument is no message",
                 args->method);
    exo_payload_release(&bytes);
    *out = message;
    return st;
}

void
exo_args_free(ProtobufCMessage **message)
{
    exo_message_release(*message);
    *message = NULL;
}

exo_status
exo_protocol_pack(exo_payload *out, const ProtobufCMessage *message, exo_err *err)
{
    exo_status st = exo_message_pack(out, message);
    return st == EXO_OK ? st : exo_fail(err, st, "no memory for a message");
}

/* --- Serving ---------------------------------------------------------------------------------- */

exo_status
exo_protocol_serve(const exo_protocol *protocol, exo_call_context *call, void *self,
                   const exo_payload *payload, exo_payload *reply, exo_err *err)
{
    const exo_args *args = exo_protocol_find(protocol, exo_call_method(call));
    ProtobufCMessage *message = NULL;
    if (!args)
        return exo_fail(err, EXO_NOT_FOUND, "%s: is in no table of %s", exo_call_method(call),
                        protocol->name);
    if (args->raw)
        return args->serve(call, self, payload, reply, err);
    if (!args->fields && payload->size > 0)
        return exo_fail(err, EXO_INVAL, "%s: takes no argument, and got %zu bytes", args->method,
                        payload->size);
    exo_status st = args->fields ? exo_args_decode(args, payload, &message, err) : EXO_OK;
    if (st == EXO_OK)
        st = args->serve(call, self, message, reply, err);
    exo_args_free(&message);
    return st;
}
