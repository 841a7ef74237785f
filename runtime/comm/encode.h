/* What a member encodes its data with: a codec and room to work in. Owner: the group, one thread at a time. */
#ifndef EXO_COMM_ENCODE_H
#define EXO_COMM_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/codec.h>

typedef struct exo_encoder {
    exo_codec *codec;
    float *floats; /* (room) */
    uint8_t *bytes;
    size_t room, bytes_room;
} exo_encoder;

/* The codec of an edge, checked: *out has none for raw. INVAL. */
exo_status exo_encoder_init(exo_encoder *encoder, const char *codec, exo_err *err);
void exo_encoder_release(exo_encoder *encoder);
/* Room for `floats` elements to work in, and for the encoding of `count`. */
exo_status exo_encoder_reserve(exo_encoder *encoder, size_t floats, size_t count, exo_err *err);
/* Bytes of `count` elements when encoded; without a codec 4 each. */
size_t exo_encoder_size(const exo_encoder *encoder, size_t count);
/* out (count) becomes what is left of in (count) at the other end; may be the same. The room must be there. */
exo_status exo_encoder_round_trip(exo_encoder *encoder, const float *in, float *out, size_t count, exo_err *err);

#endif
