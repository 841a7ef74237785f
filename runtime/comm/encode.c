/* Encoders of collectives: see encode.h. State: the caller's encoder. */
#include "comm/encode.h"

#include <exogym/memory.h>

exo_status
exo_comm_codec_new(exo_codec **out, const char *text, exo_err *err)
{
    size_t size = 0;
    exo_codec *codec = NULL;
    *out = NULL;
    exo_status st = text ? exo_codec_parse(&codec, text, err) : EXO_OK;
    if (st != EXO_OK || !codec)
        return st;
    if (!exo_codec_is_stateless(codec) || !exo_codec_size(codec, 1, &size))
        st = exo_fail(err, EXO_INVAL,
                      "codec %s: a collective takes one without memory and of a fixed size: fp16, "
                      "bf16, fp8, int8, int4, e3m0 or bins",
                      exo_codec_text(codec));
    if (st != EXO_OK || exo_codec_is_lossless(codec))
        exo_codec_free(&codec); /* a lossless codec counts as raw */
    *out = codec;
    return st;
}

void
exo_encoder_release(exo_encoder *encoder)
{
    exo_free(encoder->floats);
    exo_free(encoder->bytes);
    *encoder = (exo_encoder){0};
}

exo_status
exo_encoder_use(exo_encoder *encoder, exo_codec *codec, size_t floats, size_t count, exo_err *err)
{
    size_t bytes = exo_codec_bound(codec, count);
    encoder->codec = codec;
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

exo_status
exo_encoder_use_for(exo_encoder *encoder, const exo_collective_args *args, exo_err *err)
{
    bool shifts = args->operation == EXO_SHIFT, all = shifts || args->operation == EXO_SWAP;
    size_t shard = all ? args->count : args->count / args->size + 1;
    if (!args->codec || args->rehearsal)
        return EXO_OK;
    return exo_encoder_use(encoder, args->codec, shard * (shifts ? 1 : args->size + 1), shard, err);
}

exo_status
exo_encoder_round_trip(exo_encoder *encoder, const float *in, float *out, size_t count,
                       exo_err *err)
{
    const exo_codec_place place = {0};
    size_t size = 0;
    exo_status st = exo_codec_encode(encoder->codec, &place, in, count, encoder->bytes, &size, err);
    return st == EXO_OK
               ? exo_codec_decode(encoder->codec, &place, encoder->bytes, size, out, count, err)
               : st;
}
