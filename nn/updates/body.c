/* Bodies of chunks: see body.h. */
#include "nn/updates/body.h"

#include <exogym/memory.h>

static const char *const stream_names[EXO_STREAMS] = {"records", "values",  "gaps",   "plane 0",
                                                      "plane 1", "plane 2", "plane 3"};

exo_status
exo_body_init(exo_body *out, exo_err *err)
{
    exo_status st = exo_codec_parse(&out->zstd, "{name: zstd, level: 1}", err);
    if (st == EXO_OK)
        st = exo_codec_parse(&out->bf16, "bf16", err);
    return st == EXO_OK ? exo_codec_parse(&out->int8, "int8", err) : st;
}

void
exo_body_release(exo_body *body)
{
    exo_codec_free(&body->zstd);
    exo_codec_free(&body->bf16);
    exo_codec_free(&body->int8);
    for (size_t s = 0; s < EXO_STREAMS; s++)
        exo_free(body->streams[s].data);
    exo_free(body->out.data);
    exo_free(body->z);
    *body = (exo_body){0};
}

/* Makes room for `more` bytes at the end of a stream. */
static exo_status
grow(exo_stream *s, size_t more, exo_err *err)
{
    if (more <= s->room - s->size)
        return EXO_OK;
    size_t room = s->size + more;
    room = room < 2 * s->room ? 2 * s->room : room;
    uint8_t *data = exo_realloc(s->data, room, 1);
    if (!data)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu bytes of an update", room);
    s->data = data;
    s->room = room;
    return EXO_OK;
}

static exo_status
room_for_differences(exo_body *body, size_t count, exo_err *err)
{
    if (count <= body->z_room)
        return EXO_OK;
    exo_free(body->z);
    body->z = exo_alloc_aligned(count * sizeof *body->z);
    body->z_room = body->z ? count : 0;
    return body->z ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the changes of a tensor");
}

/* --- Writing ---------------------------------------------------------------------------------- */

void
exo_body_begin(exo_body *body)
{
    for (size_t s = 0; s < EXO_STREAMS; s++)
        body->streams[s].size = 0;
    body->out.size = 0;
}

static exo_status
add_record(exo_body *body, const exo_piece_of *piece, uint32_t kind, uint32_t changed, exo_err *err)
{
    exo_stream *records = &body->streams[EXO_STREAM_RECORDS];
    exo_status st = grow(records, EXO_RECORD, err);
    if (st != EXO_OK)
        return st;
    uint8_t *at = records->data + records->size;
    exo_put_u32(at, piece->tensor);
    exo_put_u32(at + 4, kind);
    exo_put_u64(at + 8, piece->first);
    exo_put_u32(at + 16, piece->count);
    exo_put_u32(at + 20, changed);
    records->size += EXO_RECORD;
    return EXO_OK;
}

exo_status
exo_body_add_delta(exo_body *body, const exo_piece_of *piece, const float *base, const float *now,
                   exo_err *err)
{
    uint8_t *planes[4] = {0};
    exo_stream *gaps = &body->streams[EXO_STREAM_GAPS];
    exo_status st = room_for_differences(body, piece->count, err);
    if (st != EXO_OK)
        return st;
    const exo_delta_shape shape =
        exo_delta_subtract((const exo_float_bits *)(const void *)base,
                           (const exo_float_bits *)(const void *)now, piece->count, body->z);
    bool sparse = exo_delta_is_sparse(shape.kind);
    size_t each = sparse ? shape.changed : piece->count;
    size_t num_planes = exo_delta_planes(shape.kind);
    st = add_record(body, piece, shape.kind, shape.changed, err);
    if (st == EXO_OK && sparse)
        st = grow(gaps, (size_t)5 * shape.changed, err);
    for (size_t p = 0; st == EXO_OK && p < num_planes; p++) {
        exo_stream *s = &body->streams[EXO_STREAM_PLANES + p];
        st = grow(s, each, err);
        if (st == EXO_OK) {
            planes[p] = s->data + s->size;
            s->size += each;
        }
    }
    if (st == EXO_OK && num_planes > 0)
        gaps->size += exo_delta_split(body->z, piece->count, shape, planes,
                                      sparse ? gaps->data + gaps->size : NULL);
    return st;
}

exo_status
exo_body_add_values(exo_body *body, const exo_piece_of *piece, exo_piece_kind kind,
                    const float *now, exo_err *err)
{
    exo_stream *values = &body->streams[EXO_STREAM_VALUES];
    size_t size = piece->count * sizeof *now;
    if (kind == EXO_PIECE_BF16)
        size = exo_codec_bound(body->bf16, piece->count);
    exo_status st = grow(values, size, err);
    if (st == EXO_OK)
        st = add_record(body, piece, kind, 0, err);
    if (st != EXO_OK)
        return st;
    if (kind == EXO_PIECE_BF16)
        st = exo_codec_encode(body->bf16, NULL, now, piece->count, values->data + values->size,
                              &size, err);
    else
        memcpy(values->data + values->size, now, size);
    values->size += size;
    return st;
}

exo_status
exo_body_add_coded(exo_body *body, const exo_piece_of *piece, const void *coded, size_t size,
                   exo_err *err)
{
    exo_stream *values = &body->streams[EXO_STREAM_VALUES];
    exo_status st = grow(values, size, err);
    if (st == EXO_OK)
        st = add_record(body, piece, EXO_PIECE_INT8, 0, err);
    if (st != EXO_OK)
        return st;
    memcpy(values->data + values->size, coded, size);
    values->size += size;
    return EXO_OK;
}

/* Appends a stream to the chunk, compressed if that is shorter. */
static exo_status
finish_stream(exo_body *body, size_t index, exo_err *err)
{
    const exo_stream *s = &body->streams[index];
    exo_stream *out = &body->out;
    size_t bound = exo_codec_bytes_bound(body->zstd, s->size), coded = s->size;
    exo_status st = grow(out, bound > s->size ? bound : s->size, err);
    if (st == EXO_OK && s->size > 0 && index != EXO_STREAM_VALUES)
        st = exo_codec_encode_bytes(body->zstd, s->data, s->size, out->data + out->size, &coded,
                                    err);
    if (st != EXO_OK)
        return st;
    if (coded >= s->size && s->size > 0) {
        memcpy(out->data + out->size, s->data, s->size);
        coded = s->size;
    }
    uint8_t *entry = out->data + EXO_CHUNK_HEADER + 16 * index;
    exo_put_u64(entry, s->size);
    exo_put_u64(entry + 8, coded);
    out->size += coded;
    return EXO_OK;
}

exo_status
exo_body_finish(exo_body *body, exo_err *err)
{
    body->out.size = 0;
    exo_status st = grow(&body->out, EXO_CHUNK_HEADER + EXO_STREAM_TABLE, err);
    if (st == EXO_OK)
        body->out.size = EXO_CHUNK_HEADER + EXO_STREAM_TABLE;
    for (size_t s = 0; st == EXO_OK && s < EXO_STREAMS; s++)
        st = finish_stream(body, s, err);
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static exo_status
damaged_stream(size_t index, exo_err *err)
{
    return exo_fail(err, EXO_DAMAGED, "the stream '%s' of the chunk is damaged",
                    stream_names[index]);
}

/* The most bytes of a stream before compression; of the records, the exact number. */
static size_t
most_bytes(size_t index, size_t pieces, size_t elements)
{
    switch (index) {
    case EXO_STREAM_RECORDS:
        return EXO_RECORD * pieces;
    case EXO_STREAM_VALUES:
        return 4 * elements + 16 * pieces;
    case EXO_STREAM_GAPS:
        return 5 * elements;
    default:
        return elements;
    }
}

static exo_status
open_stream(exo_body *body, size_t index, const uint8_t *in, size_t coded, size_t size,
            exo_err *err)
{
    exo_stream *s = &body->streams[index];
    s->size = s->at = 0;
    exo_status st = grow(s, size, err);
    if (st != EXO_OK)
        return st;
    if (coded == size && size > 0)
        memcpy(s->data, in, size);
    else if (size > 0)
        st = exo_codec_decode_bytes(body->zstd, in, coded, s->data, size, err);
    s->size = size;
    return st == EXO_OK || st == EXO_NOMEM ? st : damaged_stream(index, err);
}

exo_status
exo_body_open(exo_body *body, const uint8_t *bytes, size_t size, size_t pieces, size_t elements,
              exo_err *err)
{
    if (size < EXO_STREAM_TABLE)
        return exo_fail(err, EXO_DAMAGED, "the chunk ends in its table of streams");
    const uint8_t *in = bytes + EXO_STREAM_TABLE;
    size_t left = size - EXO_STREAM_TABLE;
    exo_status st = EXO_OK;
    for (size_t s = 0; st == EXO_OK && s < EXO_STREAMS; s++) {
        uint64_t raw = exo_get_u64(bytes + 16 * s), coded = exo_get_u64(bytes + 16 * s + 8);
        bool exact = s != EXO_STREAM_RECORDS || raw == EXO_RECORD * pieces;
        if (coded > left || coded > raw || raw > most_bytes(s, pieces, elements) || !exact ||
            (raw > 0 && coded == 0))
            return damaged_stream(s, err);
        st = open_stream(body, s, in, (size_t)coded, (size_t)raw, err);
        in += coded;
        left -= coded;
    }
    if (st == EXO_OK && left > 0)
        st = exo_fail(err, EXO_DAMAGED, "the chunk has %zu bytes after its streams", left);
    return st;
}

/* The next bytes of a stream, at least one; NULL: there are fewer. */
static const uint8_t *
take(exo_stream *s, size_t size)
{
    if (size == 0 || size > s->size - s->at)
        return NULL;
    const uint8_t *at = s->data + s->at;
    s->at += size;
    return at;
}

static exo_status
take_values(exo_body *body, uint32_t kind, size_t count, float *now, exo_err *err)
{
    exo_codec *codec = kind == EXO_PIECE_BF16 ? body->bf16 : body->int8;
    size_t size = count * sizeof *now;
    if (kind != EXO_PIECE_F32)
        exo_codec_size(codec, count, &size);
    const uint8_t *at = take(&body->streams[EXO_STREAM_VALUES], size);
    if (!at)
        return damaged_stream(EXO_STREAM_VALUES, err);
    if (kind != EXO_PIECE_F32)
        return exo_codec_decode(codec, NULL, at, size, now, count, err) == EXO_OK
                   ? EXO_OK
                   : damaged_stream(EXO_STREAM_VALUES, err);
    memcpy(now, at, size);
    return EXO_OK;
}

static exo_status
take_delta(exo_body *body, exo_delta_shape shape, size_t count, const float *base, float *now,
           exo_err *err)
{
    const uint8_t *planes[4] = {0};
    exo_stream *gaps = &body->streams[EXO_STREAM_GAPS];
    size_t each = exo_delta_is_sparse(shape.kind) ? shape.changed : count;
    for (size_t p = 0; p < exo_delta_planes(shape.kind); p++) {
        planes[p] = take(&body->streams[EXO_STREAM_PLANES + p], each);
        if (!planes[p])
            return damaged_stream(EXO_STREAM_PLANES + p, err);
    }
    const uint8_t *at = gaps->size ? gaps->data + gaps->at : NULL;
    const uint8_t *end = gaps->size ? gaps->data + gaps->size : NULL;
    if (!exo_delta_add((const exo_float_bits *)(const void *)base, (exo_float_bits *)(void *)now,
                       count, shape, planes, &at, end))
        return damaged_stream(EXO_STREAM_GAPS, err);
    if (at)
        gaps->at = (size_t)(at - gaps->data);
    return EXO_OK;
}

bool
exo_body_has_changes(const exo_body *body)
{
    const exo_stream *s = &body->streams[EXO_STREAM_RECORDS];
    return s->size - s->at >= EXO_RECORD && exo_get_u32(s->data + s->at + 4) <= EXO_DELTA_SPARSE16;
}

exo_status
exo_body_take(exo_body *body, const exo_piece_of *piece, const float *base, float *now,
              exo_err *err)
{
    const uint8_t *record = take(&body->streams[EXO_STREAM_RECORDS], EXO_RECORD);
    if (!record || exo_get_u32(record) != piece->tensor ||
        exo_get_u64(record + 8) != piece->first || exo_get_u32(record + 16) != piece->count)
        return exo_fail(err, EXO_DAMAGED,
                        "the chunk has other pieces than the manifest says: expected elements "
                        "%llu to %llu",
                        (unsigned long long)piece->first,
                        (unsigned long long)piece->first + piece->count);
    uint32_t kind = exo_get_u32(record + 4), changed = exo_get_u32(record + 20);
    if (kind >= EXO_PIECE_F32 && kind <= EXO_PIECE_INT8 && changed == 0)
        return take_values(body, kind, piece->count, now, err);
    if (kind > EXO_DELTA_SPARSE16)
        return exo_fail(err, EXO_DAMAGED, "a piece has the unknown kind %u", kind);
    if (!base)
        return exo_fail(err, EXO_DAMAGED,
                        "a piece has changes only, but the manifest says that there is no base");
    const exo_delta_shape shape = {.kind = (exo_delta_kind)kind, .changed = changed};
    return take_delta(body, shape, piece->count, base, now, err);
}

exo_status
exo_body_close(const exo_body *body, exo_err *err)
{
    for (size_t s = 0; s < EXO_STREAMS; s++)
        if (body->streams[s].at != body->streams[s].size)
            return damaged_stream(s, err);
    return EXO_OK;
}
