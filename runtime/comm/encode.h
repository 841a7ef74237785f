/* Encoding of the data of a collective. The codec belongs to the communicator's group, which makes
 * one for each member when it joins. The working memory belongs to the engine. */
#ifndef EXO_COMM_ENCODE_H
#define EXO_COMM_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/codec.h>
#include <exogym/engine.h>

/* The codec of a call, and working memory that is kept for later calls. Owner: the member, one
 * thread at a time. */
typedef struct exo_encoder {
    exo_codec *codec; /* of the call; borrowed */
    float *floats;    /* (room) */
    uint8_t *bytes;
    size_t room, bytes_room;
} exo_encoder;

/* Parses and checks the codec of an edge; NULL in *out: raw. INVAL: it has state, or no fixed
 * size. */
exo_status exo_comm_codec_new(exo_codec **out, const char *text, exo_err *err);

void exo_encoder_release(exo_encoder *encoder);
/* Prepares the encoder for calls with this codec: working memory of `floats` elements, and memory
 * for the encoding of `count` elements. Errors: NOMEM. */
exo_status exo_encoder_use(exo_encoder *encoder, exo_codec *codec, size_t floats, size_t count,
                           exo_err *err);
/* Prepares the encoder for one call, whose reductions decode each member's part of one shard. Does
 * nothing without a codec or data. Errors: NOMEM. */
exo_status exo_encoder_use_for(exo_encoder *encoder, const exo_collective_args *args, exo_err *err);
/* Writes into out (count) the values that the other end decodes from in (count); out may be in. The
 * encoder must be prepared for `count`. */
exo_status exo_encoder_round_trip(exo_encoder *encoder, const float *in, float *out, size_t count,
                                  exo_err *err);

#endif
