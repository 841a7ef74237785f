/* The body of a chunk: pieces of tensors, as seven streams of bytes that are compressed apart.
 *
 *   table: 7 times (bytes before compression 8, bytes 8) | the streams
 *
 *   records   of each piece: tensor 4 | kind 4 | first element 8 | elements 4 | changed elements 4
 *   values    fp32, or the codecs' encodings; never compressed
 *   gaps      between changed elements, 7 bits a byte, the lowest first
 *   planes    4 streams: bytes of differences (delta.h)
 *
 * A stream that compression does not shorten stays as it is. Owner of a body: its update or its
 * receiver; one body encodes or decodes chunk after chunk in the same memory. Read next: body.c. */
#ifndef EXO_UPDATES_BODY_H
#define EXO_UPDATES_BODY_H

#include <exogym/codec.h>

#include "nn/updates/delta.h"
#include "nn/updates/wire.h"

enum {
    EXO_STREAM_RECORDS,
    EXO_STREAM_VALUES,
    EXO_STREAM_GAPS,
    EXO_STREAM_PLANES,
    EXO_STREAMS = EXO_STREAM_PLANES + 4,
    EXO_RECORD = 24, /* bytes */
    EXO_STREAM_TABLE = 16 * EXO_STREAMS,
};

/* The kinds of values that are not differences. Beside exo_delta_kind on the wire. */
typedef enum exo_piece_kind {
    EXO_PIECE_F32 = 8,
    EXO_PIECE_BF16 = 9,
    EXO_PIECE_INT8 = 10,
} exo_piece_kind;

typedef struct exo_stream {
    uint8_t *data; /* (room), owned */
    size_t size, room;
    size_t at; /* of the reader */
} exo_stream;

typedef struct exo_body {
    exo_codec *zstd, *bf16, *int8;
    exo_stream streams[EXO_STREAMS];
    exo_stream out; /* the encoded chunk, with room for its header */
    uint32_t *z;    /* (z_room): differences of a piece */
    size_t z_room;
} exo_body;

/* Makes the codecs. `out` is zero. The caller releases it, also after an error. */
exo_status exo_body_init(exo_body *out, exo_err *err);
void exo_body_release(exo_body *body);

/* --- Writing ---------------------------------------------------------------------------------- */

/* Begins the next chunk. */
void exo_body_begin(exo_body *body);
/* Adds a piece as differences between base and now (piece->count each). NOMEM. */
exo_status exo_body_add_delta(exo_body *body, const exo_piece_of *piece, const float *base,
                              const float *now, exo_err *err);
/* Adds a piece as fp32 or bf16 values. NOMEM. */
exo_status exo_body_add_values(exo_body *body, const exo_piece_of *piece, exo_piece_kind kind,
                               const float *now, exo_err *err);
/* Adds a piece in the encoding of the codec int8. NOMEM. */
exo_status exo_body_add_coded(exo_body *body, const exo_piece_of *piece, const void *coded,
                              size_t size, exo_err *err);
/* Compresses the streams into body->out, behind EXO_CHUNK_HEADER bytes. NOMEM, FAILED. */
exo_status exo_body_finish(exo_body *body, exo_err *err);

/* --- Reading ---------------------------------------------------------------------------------- */

/* Unpacks the streams of a chunk with `pieces` pieces of `elements` elements together. DAMAGED,
 * NOMEM. Memory is bounded by these numbers. */
exo_status exo_body_open(exo_body *body, const uint8_t *bytes, size_t size, size_t pieces,
                         size_t elements, exo_err *err);
/* Whether the next piece has differences from a base. */
bool exo_body_has_changes(const exo_body *body);
/* Decodes the next piece, which must be `piece`, to now (piece->count). base: the values of the
 * base; NULL: there is none, so differences are refused. DAMAGED: it is another piece, or not what
 * an encoder makes; `now` is then undefined. NOMEM. */
exo_status exo_body_take(exo_body *body, const exo_piece_of *piece, const float *base, float *now,
                         exo_err *err);
/* DAMAGED: bytes are left over. */
exo_status exo_body_close(const exo_body *body, exo_err *err);

#endif
