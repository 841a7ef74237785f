/* Codecs: how the fp32 arrays of an edge become bytes, and bytes arrays again.
 *
 * A codec is a name with options, or a list of them applied one after the other: "bf16", {name:
 * int8, block: 128}, [{name: topk, ratio: 0.01}, bf16, zstd]: first a selection, then one codec of
 * values, then up to two lossless ones. docs/codecs.md has the table with the exact size of each,
 * and what becomes of each value.
 *
 * Every encoding ends with a check of 4 bytes: whatever was cut, lengthened or altered by accident,
 * or made by another codec, is refused.
 *
 * One object encodes or decodes one stream: what error feedback leaves behind and where a selector
 * stands belong to it. Both ends of a stream are made from the same text, and go through its rounds
 * in the same order. Large arrays are cut into fixed pieces for the compute threads (what comes out
 * is the same with any number of them), so a call may wait for a compute slot. Threads: one at a
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

/* From a name, a mapping with `name`, or a list of either; NULL: raw. Keeps nothing of the config.
 * INVAL with place, NOMEM. */
EXO_API exo_status exo_codec_new(exo_codec **out, exo_config *config, exo_err *err);
/* The same from YAML text: exo_codec_parse(&codec, "[bf16, zstd]", err). NULL or "": raw. */
EXO_API exo_status exo_codec_parse(exo_codec **out, const char *text, exo_err *err);
/* Frees it and sets *codec to NULL; accepts NULL in it. */
EXO_API void exo_codec_free(exo_codec **codec);

/* The codec in flow style with every option: what exo_codec_parse takes. Lives as long as the
 * codec. */
EXO_API const char *exo_codec_text(const exo_codec *codec);
/* Does the same array always become the same bytes? False with error feedback or a selector: those
 * remember, or count rounds. */
EXO_API bool exo_codec_is_stateless(const exo_codec *codec);
/* Can it be undone to the bit? True for raw, and with lossless ones alone. */
EXO_API bool exo_codec_is_lossless(const exo_codec *codec);
/* Bytes that `count` elements need at most, the check included; SIZE_MAX if no memory holds as
 * many. exo_codec_size: the exact number; false if that depends on the values (zstd, lz4) or on the
 * round (sparse, unless all rounds have as many). The formula of each codec is in
 * docs/codecs.md. */
EXO_API size_t exo_codec_bound(const exo_codec *codec, size_t count);
EXO_API bool exo_codec_size(const exo_codec *codec, size_t count, size_t *size);

/* What tells apart the arrays that go through one codec: `slot` (below 16) which of an item's
 * arrays it is, with error feedback of its own; `round` the number of the item in its stream,
 * `seed` the run's, for selectors. NULL in a call: all zero. */
typedef struct exo_codec_place {
    uint32_t slot;
    uint64_t round, seed;
} exo_codec_place;

/* values (count) -> out (*size bytes, at most exo_codec_bound). Values that are not finite are kept
 * by raw and by floats that have them; infinities saturate elsewhere, and NaN becomes 0
 * (docs/codecs.md). Error feedback of a slot begins anew with an array of another length. After an
 * error nothing has changed for the stream. INVAL: slot of 16 or more, or a selection from 2^32
 * elements; NOMEM. */
EXO_API exo_status exo_codec_encode(exo_codec *codec, const exo_codec_place *place,
                                    const float *values, size_t count, void *out, size_t *size,
                                    exo_err *err);
/* in (size bytes) -> values (count). What is not in a sparse encoding becomes 0. INVAL: the bytes
 * are truncated, too long, altered, or not what the codec makes of `count` elements at this place;
 * `values` are then undefined. NOMEM. */
EXO_API exo_status exo_codec_decode(exo_codec *codec, const exo_codec_place *place, const void *in,
                                    size_t size, float *values, size_t count, exo_err *err);

/* The lossless end of the chain (zstd, lz4) on bytes that are no fp32 array; as they are if it has
 * none; then the check. Bound, encode, decode as above: `size` bytes in become *out_size, and on
 * the way back must become exactly `size` again. */
EXO_API size_t exo_codec_bytes_bound(const exo_codec *codec, size_t size);
EXO_API exo_status exo_codec_encode_bytes(exo_codec *codec, const void *in, size_t size, void *out,
                                          size_t *out_size, exo_err *err);
EXO_API exo_status exo_codec_decode_bytes(exo_codec *codec, const void *in, size_t in_size,
                                          void *out, size_t size, exo_err *err);

/* Could `size` bytes be what encode or encode_bytes made of `count` elements, or of `bytes` bytes,
 * at this place? Their number is looked at, and where that follows from the values their check,
 * too: for who has to make room for a count that came from elsewhere. What is accepted may still be
 * refused by decode. */
EXO_API bool exo_codec_accepts(const exo_codec *codec, const exo_codec_place *place, const void *in,
                               size_t size, size_t count);
EXO_API bool exo_codec_accepts_bytes(const exo_codec *codec, const void *in, size_t size,
                                     size_t bytes);

/* The i-th codec's name and a line about it, for `exogym list codecs`; false after the last. Any
 * thread. */
EXO_API bool exo_codec_at(size_t index, const char **name, const char **help);

EXO_DECLS_END

#endif
