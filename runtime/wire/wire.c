/* Envelopes to bytes and back: see wire.h. Unpacked envelopes live in the reader's arena, one chunk
 * that every envelope reuses. Read next: fields.h. */
#include "wire/wire.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "wire.pb-c.h"
#include "wire/pack.h"

enum {
    LENGTH = 4,
    ARENA = 4096,
    FIRST_CAP = 1024
};

static const uint8_t magic[4] = {'E', 'X', 'O', 'G'};

/* --- Little-endian numbers -------------------------------------------------------------------- */

static void
put_u16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void
put_u32(uint8_t *at, uint32_t value)
{
    put_u16(at, value);
    put_u16(at + 2, value >> 16);
}

static uint32_t
get_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t
get_u32(const uint8_t *at)
{
    return get_u16(at) | get_u16(at + 2) << 16;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static exo_status
reserve(exo_wire_writer *w, size_t more, exo_err *err)
{
    size_t at = w->size ? w->size : EXO_WIRE_HEADER;
    if (more > EXO_WIRE_FRAME0 - at)
        return exo_fail(err, EXO_FULL, "a message of %zu bytes has no room for %zu more", at, more);
    if (at + more > w->cap) {
        size_t cap = w->cap ? w->cap : FIRST_CAP;
        while (cap < at + more)
            cap *= 2;
        uint8_t *larger = exo_realloc(w->data, cap, 1);
        if (!larger)
            return exo_fail(err, EXO_NOMEM, "no memory for a message of %zu bytes", at + more);
        w->data = larger;
        w->cap = cap;
    }
    w->size = at;
    return EXO_OK;
}

/* protobuf-c's strings are not const, but it only reads them. */
static char *
text_of(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

static exo_status
check_text(const char *what, const char *text, size_t limit, exo_err *err)
{
    if (text && strlen(text) >= limit)
        return exo_fail(err, EXO_INVAL, "%s is longer than %zu characters: '%.40s...'", what,
                        limit - 1, text);
    return EXO_OK;
}

/* The generated structs of one envelope, filled from an exo_envelope. */
struct packed {
    Exo__Wire__Envelope envelope;
    Exo__Wire__Payload payload;
    union {
        Exo__Wire__Call call;
        Exo__Wire__Reply reply;
        Exo__Wire__Cancel cancel;
        Exo__Wire__Beat beat;
        Exo__Wire__Hello hello;
        Exo__Wire__Welcome welcome;
        Exo__Wire__Refused refused;
        Exo__Wire__Goodbye goodbye;
        Exo__Wire__Ring ring;
        Exo__Wire__Piece piece;
    };
};

static exo_status
pack_payload(struct packed *p, const exo_wire_payload *from, exo_err *err)
{
    exo__wire__payload__init(&p->payload);
    ProtobufCBinaryData data = {.data = (uint8_t *)(uintptr_t)from->data, .len = from->size};
    switch (from->place) {
    case EXO_WIRE_NONE:
        p->payload.place = EXO__WIRE__PLACE__NONE;
        return EXO_OK;
    case EXO_WIRE_BYTES:
        if (from->size > EXO_WIRE_INLINE)
            return exo_fail(err, EXO_INVAL, "a payload of %zu bytes does not fit into an envelope",
                            from->size);
        p->payload.place = EXO__WIRE__PLACE__INLINE;
        p->payload.bytes = data;
        return EXO_OK;
    case EXO_WIRE_FRAMED:
        p->payload.place = EXO__WIRE__PLACE__FRAME;
        return EXO_OK;
    case EXO_WIRE_LANDED:
        p->payload.place = EXO__WIRE__PLACE__LANDED;
        return EXO_OK;
    case EXO_WIRE_OBJECT:
        if (from->size > EXO_WIRE_HANDLE)
            return exo_fail(err, EXO_INVAL, "a handle of %zu bytes is longer than %d", from->size,
                            EXO_WIRE_HANDLE);
        p->payload.place = EXO__WIRE__PLACE__OBJECT;
        p->payload.handle = data;
        return EXO_OK;
    }
    return exo_fail(err, EXO_INVAL, "a payload has no place %d", (int)from->place);
}

static exo_status
pack_call(struct packed *p, const exo_envelope *e, exo_err *err)
{
    exo_status st = check_text("the method", e->method, EXO_WIRE_NAME, err);
    if (st == EXO_OK)
        st = check_text("the actor's name", e->text, EXO_WIRE_NAME, err);
    if (st == EXO_OK)
        st = pack_payload(p, &e->payload, err);
    exo__wire__call__init(&p->call);
    p->call.id = e->id;
    p->call.actor = e->actor;
    p->call.method = text_of(e->method);
    p->call.name = text_of(e->text);
    p->call.timeout = e->timeout;
    p->call.args = e->payload.place != EXO_WIRE_NONE ? &p->payload : NULL;
    p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_CALL;
    p->envelope.call = &p->call;
    return st;
}

static exo_status
pack_reply(struct packed *p, const exo_envelope *e, char *reason, exo_err *err)
{
    exo_status st = pack_payload(p, &e->payload, err);
    exo__wire__reply__init(&p->reply);
    p->reply.id = e->id;
    p->reply.status = (uint32_t)e->status;
    p->reply.reason = reason;
    p->reply.value = e->payload.place != EXO_WIRE_NONE ? &p->payload : NULL;
    p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_REPLY;
    p->envelope.reply = &p->reply;
    return st;
}

static exo_status
pack_hello(struct packed *p, const exo_envelope *e, exo_err *err)
{
    const exo_wire_identity *who = &e->who;
    const char *const texts[] = {who->name, who->boot, who->endpoint, who->cluster};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        exo_status st = check_text("a part of the identity", texts[i], EXO_WIRE_NAME, err);
        if (st != EXO_OK)
            return st;
    }
    if (e->kind == EXO_WIRE_HELLO) {
        exo__wire__hello__init(&p->hello);
        p->hello.node = who->node;
        p->hello.pid = who->pid;
        p->hello.start = who->start;
        p->hello.name = text_of(who->name);
        p->hello.boot = text_of(who->boot);
        p->hello.endpoint = text_of(who->endpoint);
        p->hello.cluster = text_of(who->cluster);
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_HELLO;
        p->envelope.hello = &p->hello;
        return EXO_OK;
    }
    exo__wire__welcome__init(&p->welcome);
    p->welcome.node = who->node;
    p->welcome.pid = who->pid;
    p->welcome.start = who->start;
    p->welcome.name = text_of(who->name);
    p->welcome.boot = text_of(who->boot);
    p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_WELCOME;
    p->envelope.welcome = &p->welcome;
    return EXO_OK;
}

/* Fills `p`; `reason` is memory for a reason that is cut. */
static exo_status
pack(struct packed *p, const exo_envelope *e, char reason[EXO_WIRE_REASON], exo_err *err)
{
    exo__wire__envelope__init(&p->envelope);
    reason[0] = 0;
    if (e->text && e->kind != EXO_WIRE_CALL) /* a call's text is the name of an actor */
        exo_cut(reason, EXO_WIRE_REASON, e->text);
    switch (e->kind) {
    case EXO_WIRE_CALL:
        return pack_call(p, e, err);
    case EXO_WIRE_REPLY:
        return pack_reply(p, e, reason, err);
    case EXO_WIRE_HELLO:
    case EXO_WIRE_WELCOME:
        return pack_hello(p, e, err);
    case EXO_WIRE_CANCEL:
        exo__wire__cancel__init(&p->cancel);
        p->cancel.id = e->id;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_CANCEL;
        p->envelope.cancel = &p->cancel;
        return EXO_OK;
    case EXO_WIRE_BEAT:
        exo__wire__beat__init(&p->beat);
        p->beat.taken = e->taken;
        p->beat.read = e->read;
        p->beat.watches = e->watches;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_BEAT;
        p->envelope.beat = &p->beat;
        return EXO_OK;
    case EXO_WIRE_REFUSED:
        exo__wire__refused__init(&p->refused);
        p->refused.version = e->version;
        p->refused.reason = reason;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_REFUSED;
        p->envelope.refused = &p->refused;
        return EXO_OK;
    case EXO_WIRE_GOODBYE:
        exo__wire__goodbye__init(&p->goodbye);
        p->goodbye.reason = reason;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_GOODBYE;
        p->envelope.goodbye = &p->goodbye;
        return EXO_OK;
    case EXO_WIRE_RING:
        exo__wire__ring__init(&p->ring);
        p->ring.token = e->token;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_RING;
        p->envelope.ring = &p->ring;
        return EXO_OK;
    case EXO_WIRE_PIECE:
        exo__wire__piece__init(&p->piece);
        p->piece.size = e->size;
        p->envelope.kind_case = EXO__WIRE__ENVELOPE__KIND_PIECE;
        p->envelope.piece = &p->piece;
        return EXO_OK;
    }
    return exo_fail(err, EXO_INVAL, "there is no envelope of kind %d", (int)e->kind);
}

exo_status
exo_wire_add(exo_wire_writer *writer, const exo_envelope *envelope, exo_err *err)
{
    struct packed p;
    char reason[EXO_WIRE_REASON];
    exo_status st = pack(&p, envelope, reason, err);
    if (st != EXO_OK)
        return st;
    if (writer->count == EXO_WIRE_MAX_ENVELOPES)
        return exo_fail(err, EXO_FULL, "a message holds %d envelopes at most",
                        EXO_WIRE_MAX_ENVELOPES);
    size_t size = exo__wire__envelope__get_packed_size(&p.envelope);
    st = reserve(writer, LENGTH + size, err);
    if (st != EXO_OK)
        return st;
    put_u32(writer->data + writer->size, (uint32_t)size);
    st = exo_pack_sized(&p.envelope.base, writer->data + writer->size + LENGTH, size, err);
    if (st != EXO_OK)
        return st;
    writer->size += LENGTH + size;
    writer->count++;
    return EXO_OK;
}

void
exo_wire_finish(exo_wire_writer *writer, uint32_t number)
{
    memcpy(writer->data, magic, sizeof magic);
    put_u16(writer->data + 4, EXO_WIRE_VERSION);
    put_u16(writer->data + 6, writer->count);
    put_u32(writer->data + 8, number);
}

void
exo_wire_clear(exo_wire_writer *writer)
{
    writer->size = 0;
    writer->count = 0;
}

void
exo_wire_release(exo_wire_writer *writer)
{
    exo_free(writer->data);
    *writer = (exo_wire_writer){0};
}

uint32_t
exo_wire_number(const uint8_t header[EXO_WIRE_HEADER])
{
    return get_u32(header + 8);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* An allocation that does not fit into the arena: on the heap, in a list. */
struct big {
    struct big *next;
    max_align_t data[];
};

struct exo_wire_arena {
    size_t used;
    bool exhausted; /* an allocation for this envelope has failed */
    struct big *bigs;
    max_align_t data[ARENA / sizeof(max_align_t)];
};

static void *
arena_alloc(void *context, size_t size)
{
    struct exo_wire_arena *arena = context;
    size_t rounded = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    if (rounded <= sizeof arena->data - arena->used) {
        void *at = (char *)arena->data + arena->used;
        arena->used += rounded;
        return at;
    }
    struct big *big = exo_calloc(1, sizeof *big + size);
    if (!big) {
        arena->exhausted = true;
        return NULL;
    }
    big->next = arena->bigs;
    arena->bigs = big;
    return big->data;
}

static void
arena_free(void *context, void *memory)
{
    (void)context;
    /* arena_clear frees everything at once */
    (void)memory;
}

static void
arena_clear(struct exo_wire_arena *arena)
{
    for (struct big *b = arena->bigs, *next; b; b = next) {
        next = b->next;
        exo_free(b);
    }
    arena->bigs = NULL;
    arena->used = 0;
    arena->exhausted = false;
}

exo_status
exo_wire_reader_init(exo_wire_reader *reader, exo_err *err)
{
    *reader = (exo_wire_reader){.arena = exo_calloc(1, sizeof(struct exo_wire_arena))};
    return reader->arena ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a reader of messages");
}

void
exo_wire_reader_release(exo_wire_reader *reader)
{
    if (reader->arena)
        arena_clear(reader->arena);
    exo_free(reader->arena);
    *reader = (exo_wire_reader){0};
}

/* Forgets the frame: until the next one is opened, there is nothing to read, not even its end. */
static void
give_up(exo_wire_reader *reader)
{
    reader->data = NULL;
    reader->size = reader->at = 0;
    reader->left = 0;
}

exo_status
exo_wire_open(exo_wire_reader *reader, const void *data, size_t size, exo_err *err)
{
    const uint8_t *bytes = data;
    give_up(reader);
    if (size < EXO_WIRE_HEADER || size > EXO_WIRE_FRAME0 || memcmp(bytes, magic, sizeof magic) != 0)
        return exo_fail(err, EXO_INVAL, "%zu bytes that are no message of exogym", size);
    reader->version = get_u16(bytes + 4);
    if (reader->version != EXO_WIRE_VERSION)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "the peer speaks version %u of the protocol, and this exogym version %d: update %s",
            reader->version, EXO_WIRE_VERSION,
            reader->version < EXO_WIRE_VERSION ? "the other one" : "this one");
    reader->data = bytes;
    reader->size = size;
    reader->at = EXO_WIRE_HEADER;
    reader->left = get_u16(bytes + 6);
    reader->number = get_u32(bytes + 8);
    return EXO_OK;
}

static exo_status
read_payload(const Exo__Wire__Payload *from, exo_wire_payload *out, exo_err *err)
{
    *out = (exo_wire_payload){0};
    if (!from)
        return EXO_OK;
    switch (from->place) {
    case EXO__WIRE__PLACE__NONE:
        return EXO_OK;
    case EXO__WIRE__PLACE__INLINE:
        if (from->bytes.len > EXO_WIRE_INLINE)
            break;
        *out = (exo_wire_payload){
            .place = EXO_WIRE_BYTES, .data = from->bytes.data, .size = from->bytes.len};
        return EXO_OK;
    case EXO__WIRE__PLACE__FRAME:
        out->place = EXO_WIRE_FRAMED;
        return EXO_OK;
    case EXO__WIRE__PLACE__LANDED:
        out->place = EXO_WIRE_LANDED;
        return EXO_OK;
    case EXO__WIRE__PLACE__OBJECT:
        if (from->handle.len > EXO_WIRE_HANDLE)
            break;
        *out = (exo_wire_payload){
            .place = EXO_WIRE_OBJECT, .data = from->handle.data, .size = from->handle.len};
        return EXO_OK;
    default:
        break;
    }
    return exo_fail(err, EXO_INVAL, "a payload of an unknown kind or too long");
}

static exo_status
read_call(const Exo__Wire__Call *call, exo_envelope *out, exo_err *err)
{
    out->kind = EXO_WIRE_CALL;
    out->id = call->id;
    out->actor = call->actor;
    out->method = call->method;
    out->text = call->name;
    out->timeout = call->timeout;
    exo_status st = check_text("the method", out->method, EXO_WIRE_NAME, err);
    if (st == EXO_OK)
        st = check_text("the actor's name", out->text, EXO_WIRE_NAME, err);
    return st == EXO_OK ? read_payload(call->args, &out->payload, err) : st;
}

static exo_status
read_reply(const Exo__Wire__Reply *reply, exo_envelope *out, exo_err *err)
{
    out->kind = EXO_WIRE_REPLY;
    out->id = reply->id;
    /* An unknown code is a failure, too. */
    out->status = reply->status <= EXO_DENIED ? (exo_status)reply->status : EXO_FAILED;
    out->text = reply->reason;
    exo_status st = check_text("the reason", out->text, EXO_WIRE_REASON, err);
    return st == EXO_OK ? read_payload(reply->value, &out->payload, err) : st;
}

static exo_status
check_identity(const exo_wire_identity *who, exo_err *err)
{
    const char *const texts[] = {who->name, who->boot, who->endpoint, who->cluster};
    exo_status st = who->node ? EXO_OK : exo_fail(err, EXO_INVAL, "a peer without an identity");
    for (size_t i = 0; st == EXO_OK && i < sizeof texts / sizeof texts[0]; i++)
        st = check_text("a part of the identity", texts[i], EXO_WIRE_NAME, err);
    return st;
}

static exo_status
translate(const Exo__Wire__Envelope *e, exo_envelope *out, exo_err *err)
{
    switch (e->kind_case) {
    case EXO__WIRE__ENVELOPE__KIND_CALL:
        return read_call(e->call, out, err);
    case EXO__WIRE__ENVELOPE__KIND_REPLY:
        return read_reply(e->reply, out, err);
    case EXO__WIRE__ENVELOPE__KIND_CANCEL:
        out->kind = EXO_WIRE_CANCEL;
        out->id = e->cancel->id;
        return EXO_OK;
    case EXO__WIRE__ENVELOPE__KIND_BEAT:
        out->kind = EXO_WIRE_BEAT;
        out->taken = e->beat->taken;
        out->read = e->beat->read;
        out->watches = e->beat->watches;
        return EXO_OK;
    case EXO__WIRE__ENVELOPE__KIND_HELLO:
        out->kind = EXO_WIRE_HELLO;
        out->who = (exo_wire_identity){.node = e->hello->node,
                                       .pid = e->hello->pid,
                                       .start = e->hello->start,
                                       .name = e->hello->name,
                                       .boot = e->hello->boot,
                                       .endpoint = e->hello->endpoint,
                                       .cluster = e->hello->cluster};
        return check_identity(&out->who, err);
    case EXO__WIRE__ENVELOPE__KIND_WELCOME:
        out->kind = EXO_WIRE_WELCOME;
        out->who = (exo_wire_identity){.node = e->welcome->node,
                                       .pid = e->welcome->pid,
                                       .start = e->welcome->start,
                                       .name = e->welcome->name,
                                       .boot = e->welcome->boot,
                                       .endpoint = "",
                                       .cluster = ""};
        return check_identity(&out->who, err);
    case EXO__WIRE__ENVELOPE__KIND_REFUSED:
        out->kind = EXO_WIRE_REFUSED;
        out->version = e->refused->version;
        out->text = e->refused->reason;
        return check_text("the reason", out->text, EXO_WIRE_REASON, err);
    case EXO__WIRE__ENVELOPE__KIND_GOODBYE:
        out->kind = EXO_WIRE_GOODBYE;
        out->text = e->goodbye->reason;
        return check_text("the reason", out->text, EXO_WIRE_REASON, err);
    case EXO__WIRE__ENVELOPE__KIND_RING:
        out->kind = EXO_WIRE_RING;
        out->token = e->ring->token;
        return EXO_OK;
    case EXO__WIRE__ENVELOPE__KIND_PIECE:
        out->kind = EXO_WIRE_PIECE;
        out->size = e->piece->size;
        out->payload.place = EXO_WIRE_FRAMED;
        return EXO_OK;
    default:
        return exo_fail(err, EXO_INVAL, "an envelope of an unknown kind");
    }
}

exo_status
exo_wire_next(exo_wire_reader *reader, exo_envelope *out, exo_err *err)
{
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc, .free = arena_free, .allocator_data = reader->arena};
    if (!reader->data)
        return exo_fail(err, EXO_INVAL, "there is no message to be read");
    if (reader->left == 0)
        return reader->at == reader->size
                   ? EXO_NOT_FOUND
                   : exo_fail(err, EXO_INVAL, "%zu bytes after the last envelope",
                              reader->size - reader->at);
    arena_clear(reader->arena);
    reader->left--;
    size_t room = reader->size - reader->at;
    size_t length = room >= LENGTH ? get_u32(reader->data + reader->at) : 0;
    if (room < LENGTH || length > room - LENGTH || length > EXO_WIRE_ENVELOPE) {
        give_up(reader);
        return exo_fail(err, EXO_INVAL, "an envelope of %zu bytes where there are %zu", length,
                        room);
    }
    const uint8_t *at = reader->data + reader->at + LENGTH;
    reader->at += LENGTH + length;
    *out = (exo_envelope){0};
    Exo__Wire__Envelope *e = exo__wire__envelope__unpack(&allocator, length, at);
    exo_status st = EXO_OK;
    if (e)
        st = translate(e, out, err);
    else if (reader->arena->exhausted)
        st = exo_fail(err, EXO_NOMEM, "no memory for an envelope of %zu bytes", length);
    else
        st = exo_fail(err, EXO_INVAL, "an envelope that cannot be read");
    if (st != EXO_OK)
        give_up(reader);
    return st;
}
