/* What passes through a codec in a collective: the codec is the communicator's (one for each
 * member, made when it joins), the room to work in is the engine's. */
#ifndef EXO_COMM_ENCODE_H
#define EXO_COMM_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/codec.h>
#include <exogym/engine.h>

/* A codec in one call, and room to work in that is kept from call to call. Owner: the member, one
 * thread at a time. */
typedef struct exo_encoder {
    exo_codec *codec; /* of the call; not owned */
    float *floats;    /* (room) */
    uint8_t *bytes;
    size_t room, bytes_room;
} exo_encoder;

/* The codec of an edge, checked: NULL for raw. INVAL: it has a memory, or no fixed size. */
exo_status exo_comm_codec_new(exo_codec **out, const char *text, exo_err *err);

void exo_encoder_release(exo_encoder *encoder);
/* The encoder for calls with this codec, with room for `floats` elements to work in, and for the
 * encoding of `count`. */
exo_status exo_encoder_use(exo_encoder *encoder, exo_codec *codec, size_t floats, size_t count,
                           exo_err *err);
/* The same for one call, whose reductions decode every member's part of one shard. Nothing, if it
 * has no codec or no data. */
exo_status exo_encoder_use_for(exo_encoder *encoder, const exo_collective_args *args, exo_err *err);
/* out (count) becomes what is left of in (count) at the other end; may be the same. The room must
 * be there. */
exo_status exo_encoder_round_trip(exo_encoder *encoder, const float *in, float *out, size_t count,
                                  exo_err *err);

#endif
