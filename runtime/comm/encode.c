/* Encoders of collectives: see encode.h. No state of its own. */
#include "comm/encode.h"

#include <exogym/memory.h>

exo_status
exo_encoder_init(exo_encoder *encoder, const char *codec, exo_err *err)
{
    *encoder = (exo_encoder){0};
    size_t size = 0;
    exo_status st = codec ? exo_codec_parse(&encoder->codec, codec, err) : EXO_OK;
    if (st != EXO_OK || !encoder->codec)
        return st;
    if (!exo_codec_is_stateless(encoder->codec) || !exo_codec_size(encoder->codec, 1, &size))
        st =
            exo_fail(err, EXO_INVAL,
                     "codec %s: a collective takes one without memory and of a fixed size: fp16, bf16, fp8, int8, int4 "
                     "or e3m0",
                     exo_codec_text(encoder->codec));
    if (st != EXO_OK || exo_codec_is_lossless(encoder->codec))
        exo_codec_free(&encoder->codec); /* raw: nothing to do */
    return st;
}

void
exo_encoder_release(exo_encoder *encoder)
{
    exo_codec_free(&encoder->codec);
    exo_free(encoder->floats);
    exo_free(encoder->bytes);
    *encoder = (exo_encoder){0};
}

exo_status
exo_encoder_reserve(exo_encoder *encoder, size_t floats, size_t count, exo_err *err)
{
    size_t bytes = encoder->codec ? exo_codec_bound(encoder->codec, count) : 0;
    if (floats > encoder->room) {
        exo_free(encoder->floats);
        encoder->floats = exo_alloc_aligned(floats * sizeof *encoder->floats);
        encoder->room = encoder->floats ? floats : 0;
    }
    if (bytes > encoder->bytes_room) {
        exo_free(encoder->bytes);
        encoder->bytes = exo_calloc(1, bytes);
        encoder->bytes_room = encoder->bytes ? bytes : 0;
    }
    if (floats > encoder->room || bytes > encoder->bytes_room)
        return exo_fail(err, EXO_NOMEM, "no memory to encode %zu elements", count);
    return EXO_OK;
}

size_t
exo_encoder_size(const exo_encoder *encoder, size_t count)
{
    size_t size = count * sizeof(float);
    if (encoder->codec)
        exo_codec_size(encoder->codec, count, &size);
    return size;
}

exo_status
exo_encoder_round_trip(exo_encoder *encoder, const float *in, float *out, size_t count, exo_err *err)
{
    const exo_codec_place place = {0};
    size_t size = 0;
    exo_status st = exo_codec_encode(encoder->codec, &place, in, count, encoder->bytes, &size, err);
    return st == EXO_OK ? exo_codec_decode(encoder->codec, &place, encoder->bytes, size, out, count, err) : st;
}
