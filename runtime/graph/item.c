/* Items: see item.h. An item and its arrays in host memory are one block of memory, with a count of
 * references. A sent item is read-only, so any thread may read it. item_far.c has arrays on
 * devices. */
#include "graph/item.h"

#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "codec/checksum.h"
#include "graph/item_impl.h"

enum {
    ALIGNMENT = 64
};

/* Describes one array in a message. */
struct part_header {
    uint32_t dtype; /* and, from bit 8 on, its way */
    uint32_t check; /* over this header, with 0 here, and the message's header */
    uint64_t count;
    uint64_t bytes; /* of the encoded array, and of its name before it */
};

static exo_dtype
dtype_of(const struct part_header *h)
{
    return (exo_dtype)(h->dtype & 0xff);
}

static exo_item_way
way_of(const struct part_header *h)
{
    return (exo_item_way)(h->dtype >> 8);
}

/* A 4-byte checksum of an array's header and the message's header. The codec checks the array's own
 * bytes. */
static uint32_t
check_of(const exo_channel_header *header, const struct part_header *part, uint32_t index)
{
    exo_channel_header h = *header;
    struct part_header p = *part;
    h.passing = 0; /* The sender sets `passing` and `bytes` after the checksum. */
    h.bytes = 0;
    p.check = 0;
    return exo_checksum(&p, sizeof p, exo_checksum(&h, sizeof h, index));
}

/* True: the bytes can be such an array. Checked before the array is allocated. */
static bool
is_encoded(exo_dtype dtype, uint64_t count, const exo_codec *codec, const exo_codec_place *place,
           const char *in, uint64_t bytes)
{
    return dtype == EXO_F32
               ? exo_codec_accepts(codec, place, in, bytes, count)
               : exo_codec_accepts_bytes(codec, in, bytes, count * exo_dtype_size(dtype));
}

/* Bytes of an array, from untrusted numbers; false: they do not fit. */
static bool
part_bytes(exo_dtype dtype, uint64_t count, uint64_t *bytes)
{
    size_t size = exo_dtype_size(dtype);
    *bytes = count * size;
    return size != 0 && count <= (UINT64_C(1) << 40) / size;
}

static size_t
aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

exo_status
exo_item_make(exo_item **out, const exo_item_part *parts, size_t num_parts, const bool *far,
              exo_err *err)
{
    if (num_parts < 1 || num_parts > EXO_MAX_PARTS)
        return exo_fail(err, EXO_INVAL, "an item has 1 to %d arrays, not %zu", EXO_MAX_PARTS,
                        num_parts);
    size_t total = aligned(sizeof(exo_counted_item));
    for (size_t i = 0; i < num_parts; i++) {
        uint64_t bytes = 0;
        if (!part_bytes(parts[i].dtype, parts[i].count, &bytes))
            return exo_fail(err, EXO_INVAL, "an item cannot have an array of %zu elements",
                            parts[i].count);
        total += far[i] ? 0 : aligned(bytes);
    }
    exo_counted_item *c = exo_alloc_aligned(total);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for an item of %zu bytes", total);
    char *at = (char *)c + aligned(sizeof *c);
    c->references = 1;
    c->item.num_parts = num_parts;
    for (size_t i = 0; i < num_parts; i++) {
        c->item.parts[i] = (exo_item_part){.dtype = parts[i].dtype, .count = parts[i].count};
        if (far[i])
            continue;
        c->item.parts[i].data = at;
        at += aligned(parts[i].count * exo_dtype_size(parts[i].dtype));
    }
    *out = &c->item;
    return EXO_OK;
}

exo_item *
exo_item_hold(exo_item *item)
{
    exo_counted(item)->references++;
    return item;
}

/* Frees no memory of a GPU, which may wait for it, as a lock may be held: ports sweep. */
void
exo_item_drop(exo_item **item)
{
    exo_counted_item *c = *item ? exo_counted(*item) : NULL;
    *item = NULL;
    if (!c || --c->references > 0)
        return;
    for (size_t i = 0; i < c->item.num_parts; i++) {
        exo_joint_drop(&c->far[i].share);
        exo_object_drop(&c->far[i].name);
        exo_free(c->far[i].host);
    }
    exo_free(c);
}

static uint64_t
bytes_of(const exo_item_part *part)
{
    return part->count * exo_dtype_size(part->dtype);
}

uint64_t
exo_item_bytes(const exo_item *item)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < item->num_parts; i++)
        bytes += bytes_of(&item->parts[i]);
    return bytes;
}

uint64_t
exo_item_host_bytes(const exo_item *item)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < item->num_parts; i++)
        bytes += item->parts[i].data ? bytes_of(&item->parts[i]) : 0;
    return bytes;
}

/* --- Writing ---------------------------------------------------------------------------------- */

exo_status
exo_channel_write(exo_payload *out, const exo_channel_header *header, const void *data, size_t size,
                  exo_err *err)
{
    char *message = exo_calloc(1, sizeof *header + size);
    if (!message)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a channel");
    exo_channel_header *h = (exo_channel_header *)message;
    *h = *header;
    h->bytes = size;
    if (size)
        memcpy(message + sizeof *h, data, size);
    *out = (exo_payload){.data = message, .size = sizeof *h + size, .release = exo_free};
    return EXO_OK;
}

static size_t
bound_of(const exo_codec *codec, const exo_item_part *part)
{
    return part->dtype == EXO_F32
               ? exo_codec_bound(codec, part->count)
               : exo_codec_bytes_bound(codec, part->count * exo_dtype_size(part->dtype));
}

static exo_status
encode(const exo_item_part *part, const void *values, exo_codec *codec,
       const exo_codec_place *place, char *out, size_t *size, exo_err *err)
{
    return part->dtype == EXO_F32
               ? exo_codec_encode(codec, place, values, part->count, out, size, err)
               : exo_codec_encode_bytes(codec, values, bytes_of(part), out, size, err);
}

/* Encodes an array that is on a device. */
static exo_status
encode_far(const exo_item_part *part, const exo_joint *share, const exo_item_form *form,
           const exo_codec_place *place, char *out, size_t *size, exo_err *err)
{
    uint64_t bytes = bytes_of(part);
    void *values = exo_alloc_aligned(bytes ? bytes : 1);
    exo_status st = values ? exo_joint_read(form->reader, share, values, err)
                           : exo_fail(err, EXO_NOMEM, "no memory for an array of %llu bytes",
                                      (unsigned long long)bytes);
    if (st == EXO_OK)
        st = encode(part, values, form->codec, place, out, size, err);
    exo_free(values);
    return st;
}

/* The way of an array, and its name if that is needed. */
static exo_item_way
choose_way(const exo_item_far *f, exo_item_way wanted, exo_item_name *name)
{
    if (wanted == EXO_WAY_ITSELF || wanted == EXO_WAY_BYTES)
        return wanted;
    name->place = f->place;
    name->unit = f->unit;
    return f->place && exo_joint_name(f->share, &name->handle) ? wanted : EXO_WAY_BYTES;
}

struct written {
    exo_item_way way;
    size_t size, encoded; /* in the message; as if it was bytes */
};

static exo_status
write_far(struct written *out, const exo_item_part *part, const exo_item_far *f,
          const exo_item_form *form, const exo_codec_place *place, char *at, exo_err *err)
{
    exo_item_name name;
    exo_status st = EXO_OK;
    *out = (struct written){.way = choose_way(f, form->way, &name),
                            .encoded = bound_of(form->codec, part)};
    if (out->way == EXO_WAY_NAME || out->way == EXO_WAY_TRY) {
        memcpy(at, &name, sizeof name);
        out->size = sizeof name;
    }
    if (out->way == EXO_WAY_NAME)
        st = exo_joint_wait(f->share, err);
    else if (out->way != EXO_WAY_ITSELF)
        st = encode_far(part, f->share, form, place, at + out->size, &out->encoded, err);
    if (out->way == EXO_WAY_BYTES || out->way == EXO_WAY_TRY)
        out->size += out->encoded;
    return st;
}

static exo_status
write_part(struct written *out, const exo_item *item, uint32_t i, const exo_item_form *form,
           const exo_codec_place *place, char *at, exo_err *err)
{
    const exo_item_part *part = &item->parts[i];
    if (!part->data && exo_counted(item)->far[i].share)
        return write_far(out, part, &exo_counted(item)->far[i], form, place, at, err);
    *out = (struct written){.way = EXO_WAY_BYTES};
    exo_status st = encode(part, part->data, form->codec, place, at, &out->encoded, err);
    out->size = out->encoded;
    return st;
}

/* The room that a message needs at most. */
static size_t
room_for(const exo_item *item, const exo_codec *codec)
{
    size_t room = sizeof(exo_channel_header) + item->num_parts * sizeof(struct part_header);
    for (size_t i = 0; i < item->num_parts; i++)
        room += bound_of(codec, &item->parts[i]) + sizeof(exo_item_name);
    return room;
}

static exo_status
write_parts(char *message, const exo_item *item, const exo_item_form *form, exo_item_sizes *sizes,
            exo_err *err)
{
    exo_channel_header *h = (exo_channel_header *)message;
    const size_t heads = item->num_parts * sizeof(struct part_header);
    char *at = message + sizeof *h + heads;
    exo_status st = EXO_OK;
    *sizes = (exo_item_sizes){0};
    for (uint32_t i = 0; st == EXO_OK && i < item->num_parts; i++) {
        const exo_codec_place place = {.slot = i, .round = h->number, .seed = form->seed};
        struct written w;
        st = write_part(&w, item, i, form, &place, at, err);
        struct part_header part = {.dtype = (uint32_t)item->parts[i].dtype | (uint32_t)w.way << 8,
                                   .count = item->parts[i].count,
                                   .bytes = w.size};
        part.check = check_of(h, &part, i);
        memcpy(message + sizeof *h + i * sizeof part, &part, sizeof part);
        at += w.size;
        sizes->encoded += w.encoded;
        if (w.way == EXO_WAY_ITSELF || w.way == EXO_WAY_NAME)
            sizes->on_device += bytes_of(&item->parts[i]);
    }
    h->bytes = (uint64_t)(at - message) - sizeof *h;
    sizes->message = sizeof *h + heads + sizes->encoded;
    return st;
}

/* A message that holds an item of this process. The function says so to the reader: no other process
 * can make such a payload. */
struct holding {
    void *message;
    exo_item *item;
};

static void
release_holding(void *owner)
{
    struct holding *h = owner;
    exo_item_drop(&h->item);
    exo_free(h->message);
    exo_free(h);
}

static exo_status
hold_item(exo_payload *out, const exo_item *item, exo_err *err)
{
    struct holding *h = exo_calloc(1, sizeof *h);
    if (!h)
        return exo_fail(err, EXO_NOMEM, "no memory for a message");
    *h = (struct holding){.message = out->data, .item = &exo_counted(item)->item};
    exo_item_hold(h->item);
    out->release = release_holding;
    out->owner = h;
    return EXO_OK;
}

exo_status
exo_item_write(exo_payload *out, const exo_channel_header *header, const exo_item *item,
               const exo_item_form *form, exo_item_sizes *sizes, exo_err *err)
{
    size_t room = room_for(item, form->codec);
    char *message = exo_calloc(1, room);
    if (!message)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of %zu bytes", room);
    exo_channel_header *h = (exo_channel_header *)message;
    *h = *header;
    h->num_parts = (uint32_t)item->num_parts;
    exo_status st = write_parts(message, item, form, sizes, err);
    *out = (exo_payload){.data = message, .size = sizeof *h + h->bytes, .release = exo_free};
    if (st == EXO_OK && form->way == EXO_WAY_ITSELF)
        st = hold_item(out, item, err);
    if (st != EXO_OK)
        exo_payload_release(out);
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------- */

exo_status
exo_channel_read(const exo_payload *message, exo_channel_header *out, exo_err *err)
{
    if (message->size < sizeof *out)
        return exo_fail(err, EXO_INVAL, "a message of %zu bytes is too short for a channel",
                        message->size);
    memcpy(out, message->data, sizeof *out);
    if (out->bytes != message->size - sizeof *out || out->kind < EXO_CHANNEL_DATA ||
        out->kind > EXO_CHANNEL_REACH || out->num_parts > EXO_MAX_PARTS || out->passing < 0 ||
        out->passing > EXO_PASSING_MAX)
        return exo_fail(err, EXO_INVAL, "a message that no channel has sent");
    return EXO_OK;
}

/* The item that a message of this process holds; NULL: it holds none. */
static const exo_item *
held_by(const exo_payload *message)
{
    return message->release == release_holding ? ((const struct holding *)message->owner)->item
                                               : NULL;
}

/* A message while it is read. */
struct reading {
    const exo_channel_header *header;
    exo_codec *codec;
    uint64_t seed;
    const exo_item *held;
    struct part_header heads[EXO_MAX_PARTS];
    const char *at[EXO_MAX_PARTS]; /* the bytes of each array */
};

static exo_codec_place
place_of(const struct reading *r, uint32_t i)
{
    return (exo_codec_place){.slot = i, .round = r->header->number, .seed = r->seed};
}

/* Whether the bytes can be such an array. */
static bool
is_array(const struct reading *r, uint32_t i)
{
    const struct part_header *h = &r->heads[i];
    const exo_codec_place place = place_of(r, i);
    const size_t name = sizeof(exo_item_name);
    switch (way_of(h)) {
    case EXO_WAY_BYTES:
        return is_encoded(dtype_of(h), h->count, r->codec, &place, r->at[i], h->bytes);
    case EXO_WAY_TRY:
        return h->bytes >= name && is_encoded(dtype_of(h), h->count, r->codec, &place,
                                              r->at[i] + name, h->bytes - name);
    case EXO_WAY_NAME:
        return h->bytes == name;
    case EXO_WAY_ITSELF:
        return h->bytes == 0 && r->held && i < r->held->num_parts &&
               exo_counted(r->held)->far[i].share && r->held->parts[i].dtype == dtype_of(h) &&
               r->held->parts[i].count == h->count;
    }
    return false;
}

/* Reads the headers of all arrays, and checks them, before memory is allocated. */
static exo_status
read_heads(struct reading *r, const exo_payload *message, exo_err *err)
{
    const uint32_t parts = r->header->num_parts;
    size_t size = parts * sizeof *r->heads;
    if (r->header->bytes < size || parts == 0)
        return exo_fail(err, EXO_INVAL, "a message that is cut");
    const char *at = (const char *)message->data + sizeof *r->header;
    uint64_t left = r->header->bytes - size;
    memcpy(r->heads, at, size);
    at += size;
    for (uint32_t i = 0; i < parts; i++) {
        const struct part_header *h = &r->heads[i];
        uint64_t bytes = 0;
        r->at[i] = at;
        if (h->check != check_of(r->header, h, i) || dtype_of(h) > EXO_I64 || h->bytes > left ||
            !part_bytes(dtype_of(h), h->count, &bytes) || !is_array(r, i))
            return exo_fail(err, EXO_INVAL, "array %u of a message makes no sense", i);
        left -= h->bytes;
        at += h->bytes;
    }
    if (left != 0)
        return exo_fail(err, EXO_INVAL, "a message has %llu bytes too many",
                        (unsigned long long)left);
    return EXO_OK;
}

static exo_status
decode(const struct reading *r, uint32_t i, size_t skip, const exo_item_part *part, exo_err *err)
{
    const exo_codec_place place = place_of(r, i);
    const char *in = r->at[i] + skip;
    const size_t size = r->heads[i].bytes - skip;
    return part->dtype == EXO_F32
               ? exo_codec_decode(r->codec, &place, in, size, part->data, part->count, err)
               : exo_codec_decode_bytes(r->codec, in, size, part->data, bytes_of(part), err);
}

static exo_status
take_name(const struct reading *r, uint32_t i, exo_item_far *f, exo_err *err)
{
    exo_item_name name;
    memcpy(&name, r->at[i], sizeof name);
    f->place = name.place;
    f->unit = name.unit;
    return exo_joint_import(&f->name, &name.handle, err);
}

static exo_status
read_part(const struct reading *r, uint32_t i, exo_item *item, exo_err *err)
{
    exo_item_far *f = &exo_counted(item)->far[i];
    switch (way_of(&r->heads[i])) {
    case EXO_WAY_NAME:
        return take_name(r, i, f, err);
    case EXO_WAY_ITSELF:
        f->share = exo_joint_hold(exo_counted(r->held)->far[i].share);
        return EXO_OK;
    case EXO_WAY_TRY:
        (void)take_name(r, i, f, NULL); /* the bytes are here anyway */
        return decode(r, i, sizeof(exo_item_name), &item->parts[i], err);
    case EXO_WAY_BYTES:
        break;
    }
    return decode(r, i, 0, &item->parts[i], err);
}

static exo_status
read_item(exo_item **out, const exo_payload *message, struct reading *r, exo_err *err)
{
    exo_item_part parts[EXO_MAX_PARTS];
    bool far[EXO_MAX_PARTS];
    exo_item *item = NULL;
    const exo_channel_header *header = r->header;
    exo_status st = read_heads(r, message, err);
    if (st != EXO_OK)
        return st;
    for (uint32_t i = 0; i < header->num_parts; i++) {
        const exo_item_way way = way_of(&r->heads[i]);
        parts[i] = (exo_item_part){.dtype = dtype_of(&r->heads[i]), .count = r->heads[i].count};
        far[i] = way == EXO_WAY_NAME || way == EXO_WAY_ITSELF;
    }
    st = exo_item_make(&item, parts, header->num_parts, far, err);
    for (uint32_t i = 0; st == EXO_OK && i < header->num_parts; i++)
        st = read_part(r, i, item, err);
    if (st != EXO_OK) {
        exo_item_drop(&item);
        return st;
    }
    exo_counted(item)->marked = true;
    item->number = header->number;
    item->version = header->version;
    item->key = header->key;
    item->sent = header->sent;
    item->from = header->from;
    item->life = header->life;
    *out = item;
    return EXO_OK;
}

/* Checks all arrays, before it allocates memory for them, and then decodes them. */
exo_status
exo_item_read(exo_item **out, const exo_payload *message, const exo_channel_header *header,
              exo_codec *codec, uint64_t seed, exo_err *err)
{
    exo_payload bytes = {0};
    struct reading r = {.header = header, .codec = codec, .seed = seed, .held = held_by(message)};
    exo_status st = exo_payload_stable(&bytes, message);
    st = st == EXO_OK ? read_item(out, &bytes, &r, err)
                      : exo_fail(err, st, "no memory for a message of %zu bytes", message->size);
    exo_payload_release(&bytes);
    return st;
}
