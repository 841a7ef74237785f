/* Codecs: encodings of the fp32 arrays that an edge carries.
 *
 * A codec is a name with options, or a list of them: "bf16", {name: int8, block: 128}, [{name:
 * topk, ratio: 0.01}, bf16, zstd]. A list is applied in order: first at most one selection, then
 * one codec of values, then up to two lossless ones. docs/codecs.md has the table of codecs, the
 * exact size of each encoding, and the error of each value.
 *
 * Every encoding ends with a check of 4 bytes. Decoding refuses bytes that were cut, lengthened or
 * altered by accident, or made by another codec.
 *
 * An exo_codec encodes or decodes one stream: the error feedback and the position of a selector
 * belong to the stream. Both ends of a stream are made from the same text, and process its rounds
 * in the same order. Large arrays are cut into fixed pieces for the compute threads, so a call may
 * wait for a compute slot; the bytes do not depend on the number of threads. Threads: one at a
 * time.
 */
#ifndef EXOGYM_CODEC_H
#define EXOGYM_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

typedef struct exo_codec exo_codec; /* one end of one stream */

/* Makes a codec from a name, a mapping with `name`, or a list of either; NULL: raw. Keeps no
 * reference to the config. The caller frees the codec. Errors: INVAL (with the place in the file),
 * NOMEM. */
EXO_API exo_status exo_codec_new(exo_codec **out, exo_config *config, exo_err *err);
/* Makes a codec from YAML text: exo_codec_parse(&codec, "[bf16, zstd]", err). NULL or "": raw. */
EXO_API exo_status exo_codec_parse(exo_codec **out, const char *text, exo_err *err);
/* Frees *codec and sets it to NULL; accepts NULL in it. */
EXO_API void exo_codec_free(exo_codec **codec);

/* The codec with all of its options, as YAML in flow style that exo_codec_parse reads. Lives as
 * long as the codec. */
EXO_API const char *exo_codec_text(const exo_codec *codec);
/* Whether equal arrays always become equal bytes. False with error feedback or a selector, which
 * remember earlier arrays or count rounds. */
EXO_API bool exo_codec_is_stateless(const exo_codec *codec);
/* Whether decoding restores every bit: true for raw, and for lossless codecs alone. */
EXO_API bool exo_codec_is_lossless(const exo_codec *codec);
/* exo_codec_bound: the most bytes that `count` elements need, the check included; SIZE_MAX if the
 * number is too large for memory. exo_codec_size: the exact number; false if the number depends on
 * the values (zstd, lz4) or on the round (a selection whose rounds differ in size). docs/codecs.md
 * has the formula of each codec. */
EXO_API size_t exo_codec_bound(const exo_codec *codec, size_t count);
EXO_API bool exo_codec_size(const exo_codec *codec, size_t count, size_t *size);

/* The place of an array in its stream. `slot`: the index of the array in its item, below 16; each
 * slot has error feedback of its own. `round`: the number of the item in the stream. `seed`: the
 * run's, for selectors. NULL in a call: all zero. */
typedef struct exo_codec_place {
    uint32_t slot;
    uint64_t round, seed;
} exo_codec_place;

/* Encodes values (count) into out (*size bytes, at most exo_codec_bound). raw, and floats that have
 * infinities and NaN, keep values that are not finite; other codecs saturate infinities and turn
 * NaN into 0 (docs/codecs.md). An array of another length restarts the error feedback of its slot.
 * After an error the stream is unchanged. Errors: INVAL (slot of 16 or more, or a selection from
 * 2^32 elements), NOMEM. */
EXO_API exo_status exo_codec_encode(exo_codec *codec, const exo_codec_place *place,
                                    const float *values, size_t count, void *out, size_t *size,
                                    exo_err *err);
/* Decodes in (size bytes) into values (count). Elements that a sparse encoding left out become 0.
 * Errors: INVAL (the bytes are truncated, too long, altered, or not an encoding of `count` elements
 * at this place; `values` are then undefined), NOMEM. */
EXO_API exo_status exo_codec_decode(exo_codec *codec, const exo_codec_place *place, const void *in,
                                    size_t size, float *values, size_t count, exo_err *err);

/* The same for bytes that are not an fp32 array: only the lossless codecs of the list (zstd, lz4)
 * apply, if there are any, and then the check. `size` bytes become *out_size bytes, and decoding
 * must give exactly `size` bytes again. */
EXO_API size_t exo_codec_bytes_bound(const exo_codec *codec, size_t size);
EXO_API exo_status exo_codec_encode_bytes(exo_codec *codec, const void *in, size_t size, void *out,
                                          size_t *out_size, exo_err *err);
EXO_API exo_status exo_codec_decode_bytes(exo_codec *codec, const void *in, size_t in_size,
                                          void *out, size_t size, exo_err *err);

/* Whether `size` bytes may be an encoding of `count` elements, or of `bytes` bytes, at this place:
 * for a receiver that must make room for a count from elsewhere. Checks the size and, where the
 * size depends on the values, the check of 4 bytes. Decoding may still refuse accepted bytes. */
EXO_API bool exo_codec_accepts(const exo_codec *codec, const exo_codec_place *place, const void *in,
                               size_t size, size_t count);
EXO_API bool exo_codec_accepts_bytes(const exo_codec *codec, const void *in, size_t size,
                                     size_t bytes);

/* The name of the codec of an index, and one line about it; false after the last. Any thread. */
EXO_API bool exo_codec_at(size_t index, const char **name, const char **help);

EXO_DECLS_END

#endif
