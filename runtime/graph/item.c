/* Items: see item.h. An item and its arrays are one block of memory, with a count of references. A
 * sent item is read-only, so any thread may read it. */
#include "graph/item.h"

#include <stdatomic.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "codec/checksum.h"

enum {
    ALIGNMENT = 64
};

struct counted {
    exo_item item; /* must be first: exo_item_drop frees the block by its item */
    atomic_uint references;
};

/* Describes one array in a message. */
struct part_header {
    uint32_t dtype;
    uint32_t check; /* over this header, with 0 here, and the message's header */
    uint64_t count;
    uint64_t bytes; /* of the encoded array */
};

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
is_array(const struct part_header *h, const exo_codec *codec, const exo_codec_place *place,
         const char *in)
{
    return h->dtype == EXO_F32
               ? exo_codec_accepts(codec, place, in, h->bytes, h->count)
               : exo_codec_accepts_bytes(codec, in, h->bytes,
                                         h->count * exo_dtype_size((exo_dtype)h->dtype));
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
exo_item_new(exo_item **out, const exo_item_part *parts, size_t num_parts, exo_err *err)
{
    if (num_parts < 1 || num_parts > EXO_MAX_PARTS)
        return exo_fail(err, EXO_INVAL, "an item has 1 to %d arrays, not %zu", EXO_MAX_PARTS,
                        num_parts);
    size_t total = aligned(sizeof(struct counted));
    for (size_t i = 0; i < num_parts; i++) {
        uint64_t bytes = 0;
        if (!part_bytes(parts[i].dtype, parts[i].count, &bytes))
            return exo_fail(err, EXO_INVAL, "an item cannot have an array of %zu elements",
                            parts[i].count);
        total += aligned(bytes);
    }
    struct counted *c = exo_alloc_aligned(total);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for an item of %zu bytes", total);
    char *at = (char *)c + aligned(sizeof *c);
    c->references = 1;
    c->item.num_parts = num_parts;
    for (size_t i = 0; i < num_parts; i++) {
        c->item.parts[i] =
            (exo_item_part){.dtype = parts[i].dtype, .count = parts[i].count, .data = at};
        at += aligned(parts[i].count * exo_dtype_size(parts[i].dtype));
    }
    *out = &c->item;
    return EXO_OK;
}

exo_item *
exo_item_hold(exo_item *item)
{
    ((struct counted *)item)->references++;
    return item;
}

void
exo_item_drop(exo_item **item)
{
    struct counted *c = (struct counted *)*item;
    *item = NULL;
    if (c && --c->references == 0)
        exo_free(c);
}

uint64_t
exo_item_bytes(const exo_item *item)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < item->num_parts; i++)
        bytes += item->parts[i].count * exo_dtype_size(item->parts[i].dtype);
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
write_part(struct part_header *h, const exo_item_part *part, exo_codec *codec,
           const exo_codec_place *place, char *out, exo_err *err)
{
    size_t size = 0;
    exo_status st =
        part->dtype == EXO_F32
            ? exo_codec_encode(codec, place, part->data, part->count, out, &size, err)
            : exo_codec_encode_bytes(codec, part->data, part->count * exo_dtype_size(part->dtype),
                                     out, &size, err);
    *h = (struct part_header){.dtype = (uint32_t)part->dtype, .count = part->count, .bytes = size};
    return st;
}

exo_status
exo_item_write(exo_payload *out, const exo_channel_header *header, const exo_item *item,
               exo_codec *codec, uint64_t seed, uint64_t *encoded, exo_err *err)
{
    size_t heads = item->num_parts * sizeof(struct part_header), room = sizeof *header + heads;
    for (size_t i = 0; i < item->num_parts; i++)
        room += bound_of(codec, &item->parts[i]);
    char *message = exo_calloc(1, room);
    if (!message)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of %zu bytes", room);
    exo_channel_header *h = (exo_channel_header *)message;
    char *at = message + sizeof *h + heads;
    exo_status st = EXO_OK;
    *h = *header;
    h->num_parts = (uint32_t)item->num_parts;
    *encoded = 0;
    for (size_t i = 0; st == EXO_OK && i < item->num_parts; i++) {
        const exo_codec_place place = {.slot = (uint32_t)i, .round = header->number, .seed = seed};
        struct part_header part;
        st = write_part(&part, &item->parts[i], codec, &place, at, err);
        part.check = check_of(h, &part, (uint32_t)i);
        memcpy(message + sizeof *h + i * sizeof part, &part, sizeof part);
        at += part.bytes;
        *encoded += part.bytes;
    }
    if (st != EXO_OK) {
        exo_free(message);
        return st;
    }
    h->bytes = heads + *encoded;
    *out = (exo_payload){.data = message, .size = sizeof *h + h->bytes, .release = exo_free};
    return EXO_OK;
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
        out->kind > EXO_CHANNEL_GONE || out->num_parts > EXO_MAX_PARTS || out->passing < 0 ||
        out->passing > EXO_PASSING_MAX)
        return exo_fail(err, EXO_INVAL, "a message that no channel has sent");
    return EXO_OK;
}

static exo_status
read_item(exo_item **out, const exo_payload *message, const exo_channel_header *header,
          exo_codec *codec, uint64_t seed, exo_err *err)
{
    struct part_header heads[EXO_MAX_PARTS];
    exo_item_part parts[EXO_MAX_PARTS];
    size_t size = header->num_parts * sizeof *heads;
    if (header->bytes < size || header->num_parts == 0)
        return exo_fail(err, EXO_INVAL, "a message that is cut");
    const char *at = (const char *)message->data + sizeof *header;
    const uint64_t total = header->bytes - size;
    uint64_t left = total;
    memcpy(heads, at, size);
    at += size;
    for (uint32_t i = 0; i < header->num_parts; i++) {
        const exo_codec_place place = {.slot = i, .round = header->number, .seed = seed};
        uint64_t bytes = 0;
        if (heads[i].check != check_of(header, &heads[i], i) || heads[i].dtype > EXO_I64 ||
            heads[i].bytes > left ||
            !part_bytes((exo_dtype)heads[i].dtype, heads[i].count, &bytes) ||
            !is_array(&heads[i], codec, &place, at + (total - left)))
            return exo_fail(err, EXO_INVAL, "array %u of a message makes no sense", i);
        left -= heads[i].bytes;
        parts[i] = (exo_item_part){.dtype = (exo_dtype)heads[i].dtype, .count = heads[i].count};
    }
    if (left != 0)
        return exo_fail(err, EXO_INVAL, "a message has %llu bytes too many",
                        (unsigned long long)left);
    exo_item *item = NULL;
    exo_status st = exo_item_new(&item, parts, header->num_parts, err);
    for (uint32_t i = 0; st == EXO_OK && i < header->num_parts; i++) {
        const exo_codec_place place = {.slot = i, .round = header->number, .seed = seed};
        const exo_item_part *part = &item->parts[i];
        st = part->dtype == EXO_F32
                 ? exo_codec_decode(codec, &place, at, heads[i].bytes, part->data, part->count, err)
                 : exo_codec_decode_bytes(codec, at, heads[i].bytes, part->data,
                                          part->count * exo_dtype_size(part->dtype), err);
        at += heads[i].bytes;
    }
    if (st != EXO_OK) {
        exo_item_drop(&item);
        return st;
    }
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
    exo_status st = exo_payload_stable(&bytes, message);
    st = st == EXO_OK ? read_item(out, &bytes, header, codec, seed, err)
                      : exo_fail(err, st, "no memory for a message of %zu bytes", message->size);
    exo_payload_release(&bytes);
    return st;
}
