/* Checks the bytes of a message before they are unpacked: see protocol.h. No state.
 *
 * Protobuf is too lenient for methods: it takes missing fields as 0, skips unknown ones, cuts
 * numbers to the type's size, and accepts any bytes as text. Here each of these is an error that
 * names its field. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/protocol.h"
#include "wire/fields.h"

enum {
    MOST_FIELDS = 32 /* of one message, as `seen` has a bit for each */
};

static exo_wire_type
kind_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return EXO_WIRE_64;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return EXO_WIRE_32;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return EXO_WIRE_BYTES;
    default:
        return EXO_WIRE_VARINT;
    }
}

static const exo_field_rule *
rule_of(const exo_args *args, const char *field)
{
    for (size_t i = 0; i < args->num_rules; i++)
        if (strcmp(args->rules[i].field, field) == 0)
            return &args->rules[i];
    return NULL;
}

static exo_status
check_signed(const exo_args *args, const ProtobufCFieldDescriptor *f, int64_t value, exo_err *err)
{
    const exo_field_rule *rule = rule_of(args, f->name);
    if (rule && (value < rule->least || (rule->most && value > rule->most)))
        return exo_fail(err, EXO_INVAL, "%s: %s: %" PRId64 " is out of its range", args->method,
                        f->name, value);
    return EXO_OK;
}

static exo_status
check_varint(const exo_args *args, const ProtobufCFieldDescriptor *f, uint64_t value, exo_err *err)
{
    const exo_field_rule *rule = rule_of(args, f->name);
    int64_t number = (int64_t)value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (value > 1)
            return exo_fail(err, EXO_INVAL, "%s: %s: %" PRIu64 " is neither 0 nor 1", args->method,
                            f->name, value);
        return EXO_OK;
    case PROTOBUF_C_TYPE_ENUM:
        if (number < INT32_MIN || number > INT32_MAX ||
            !protobuf_c_enum_descriptor_get_value(f->descriptor, (int)number))
            return exo_fail(err, EXO_INVAL, "%s: %s: there is no value %" PRId64, args->method,
                            f->name, number);
        return EXO_OK;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
        if ((f->type == PROTOBUF_C_TYPE_UINT32 && value > UINT32_MAX) ||
            (rule &&
             (value < (uint64_t)rule->least || (rule->most && value > (uint64_t)rule->most))))
            return exo_fail(err, EXO_INVAL, "%s: %s: %" PRIu64 " is out of its range", args->method,
                            f->name, value);
        return EXO_OK;
    case PROTOBUF_C_TYPE_INT32:
        if (number < INT32_MIN || number > INT32_MAX)
            return exo_fail(err, EXO_INVAL, "%s: %s: %" PRId64 " is out of its range", args->method,
                            f->name, number);
        return check_signed(args, f, number, err);
    default:
        return check_signed(args, f, number, err);
    }
}

/* Checks a text: complete UTF-8 without NUL, within its bounds. */
static exo_status
check_text(const exo_args *args, const ProtobufCFieldDescriptor *f, exo_wire_bytes text,
           exo_err *err)
{
    const exo_field_rule *rule = rule_of(args, f->name);
    size_t length = (size_t)(text.end - text.at);
    if (length > 0 && memchr(text.at, 0, length))
        return exo_fail(err, EXO_INVAL, "%s: %s: the text has a 0 in it", args->method, f->name);
    if (exo_utf8_valid((const char *)text.at, length) != length)
        return exo_fail(err, EXO_INVAL, "%s: %s: the text is not UTF-8", args->method, f->name);
    if (rule && (length < (uint64_t)rule->least || (rule->most && length > (uint64_t)rule->most)))
        return exo_fail(err, EXO_INVAL, "%s: %s: a text of %zu bytes, which is too %s",
                        args->method, f->name, length,
                        length < (uint64_t)rule->least ? "short" : "long");
    return EXO_OK;
}

/* Checks a packed list: numbers one after another, without tags. */
static exo_status
check_packed(const exo_args *args, const ProtobufCFieldDescriptor *f, exo_wire_bytes b,
             exo_err *err)
{
    size_t size = kind_of(f->type) == EXO_WIRE_64 ? 8 : 4, length = (size_t)(b.end - b.at);
    exo_status st = EXO_OK;
    if (kind_of(f->type) != EXO_WIRE_VARINT)
        return length % size == 0
                   ? EXO_OK
                   : exo_fail(err, EXO_INVAL, "%s: %s: a list that is cut", args->method, f->name);
    while (st == EXO_OK && b.at < b.end) {
        uint64_t value = 0;
        st = exo_wire_varint(&b, &value)
                 ? check_varint(args, f, value, err)
                 : exo_fail(err, EXO_INVAL, "%s: %s: a list that is cut", args->method, f->name);
    }
    return st;
}

/* Checks a message within the message by the same rules. No message type contains itself, so the
 * types bound the depth. */
static exo_status
check_inner(const exo_args *args, const ProtobufCFieldDescriptor *f, exo_wire_bytes inner,
            exo_err *err)
{
    exo_args within = *args;
    exo_err reason = {0};
    within.fields = f->descriptor;
    exo_status st = exo_args_check(&within, inner.at, (size_t)(inner.end - inner.at), &reason);
    return st == EXO_OK ? st : exo_fail(err, st, "%s (in %s)", reason.text, f->name);
}

static exo_status
check_field(const exo_args *args, const ProtobufCFieldDescriptor *f, const exo_wire_field *field,
            uint32_t *seen, exo_err *err)
{
    uint32_t bit = 1u << (f - args->fields->fields);
    bool listed = f->label == PROTOBUF_C_LABEL_REPEATED,
         packs = f->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    if ((*seen & bit) && (!listed || packs))
        return exo_fail(err, EXO_INVAL, "%s: %s: it is given twice", args->method, f->name);
    *seen |= bit;
    if (field->kind != (packs ? EXO_WIRE_BYTES : kind_of(f->type)))
        return exo_fail(err, EXO_INVAL, "%s: %s: is of another type", args->method, f->name);
    if (packs)
        return check_packed(args, f, field->inside, err);
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return check_text(args, f, field->inside, err);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_inner(args, f, field->inside, err);
    return field->kind == EXO_WIRE_VARINT ? check_varint(args, f, field->value, err) : EXO_OK;
}

static exo_status
check_required(const exo_args *args, uint32_t seen, exo_err *err)
{
    for (unsigned i = 0; i < args->fields->n_fields; i++)
        if (args->fields->fields[i].label == PROTOBUF_C_LABEL_REQUIRED && !(seen & 1u << i))
            return exo_fail(err, EXO_INVAL, "%s: %s: is missing", args->method,
                            args->fields->fields[i].name);
    return EXO_OK;
}

exo_status
exo_args_check(const exo_args *args, const uint8_t *data, size_t size, exo_err *err)
{
    exo_wire_bytes b = {.at = data, .end = data + size};
    exo_status st = EXO_OK;
    uint32_t seen = 0;
    if (size > EXO_ARGS_MOST || args->fields->n_fields > MOST_FIELDS)
        return exo_fail(err, EXO_INVAL, "%s: a message of %zu bytes is too long", args->method,
                        size);
    while (st == EXO_OK && b.at < b.end) {
        exo_wire_field field;
        if (!exo_wire_field_next(&b, &field))
            return exo_fail(err, EXO_INVAL, "%s: the argument is no message, or is cut",
                            args->method);
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(args->fields, field.number);
        st = f ? check_field(args, f, &field, &seen, err)
               : exo_fail(err, EXO_INVAL,
                          "%s: the argument has a field %" PRIu32 ", which is not known",
                          args->method, field.number);
    }
    return st == EXO_OK ? check_required(args, seen, err) : st;
}
