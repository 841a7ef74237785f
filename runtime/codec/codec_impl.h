/* The codec layer's inside: a chain as it was read, and its stages.
 *
 *     values (count) --selection--> values (fewer) --value codec--> bytes
 *         --lossless, lossless--> bytes, check
 *
 * codec.c runs the stages and owns all state. spec.c reads a chain. values.c (with kernels.h) turns
 * values into bytes. topk.c chooses the largest values and packs their indices. lossless.c
 * compresses. checksum.c computes the last four bytes. Every stage knows its exact number of bytes
 * in advance, except for the lossless ones, which have a bound. Read next: codec.c. */
#ifndef EXO_CODEC_IMPL_H
#define EXO_CODEC_IMPL_H

#include <exogym/codec.h>
#include <exogym/select.h>

#include "base/registry.h"

enum {
    EXO_CODEC_TEXT = 512,
    EXO_CODEC_MAX_BLOCK = 1 << 20,
    EXO_CODEC_MAX_LOSSLESS = 2,
};

/* A limit beyond any memory; below it no size overflows. */
#define EXO_CODEC_MAX_COUNT ((size_t)1 << 56)

/* --- The chain -------------------------------------------------------------------------------- */

typedef enum exo_codec_kind {
    EXO_CODEC_RAW,
    EXO_CODEC_FP16,
    EXO_CODEC_BF16,
    EXO_CODEC_FP8,
    EXO_CODEC_INT8,
    EXO_CODEC_INT4,
    EXO_CODEC_E3M0,
    EXO_CODEC_BINS,
    EXO_CODEC_TOPK,
    EXO_CODEC_SPARSE,
    EXO_CODEC_ZSTD,
    EXO_CODEC_LZ4,
    EXO_CODEC_KINDS
} exo_codec_kind;

/* The stages in their order within a chain. */
typedef enum exo_codec_stage {
    EXO_STAGE_SELECTION,
    EXO_STAGE_VALUES,
    EXO_STAGE_LOSSLESS,
} exo_codec_stage;

/* A codec's name, and its stage. */
typedef struct exo_codec_entry {
    const char *name, *help;
    exo_codec_kind kind;
    exo_codec_stage stage;
} exo_codec_entry;

extern exo_registry exo_codec_registry;                          /* of exo_codec_entry; spec.c */
extern const exo_codec_entry exo_codec_entries[EXO_CODEC_KINDS]; /* indexed by kind */

typedef enum exo_fp8_format {
    EXO_FP8_E4M3,
    EXO_FP8_E5M2,
} exo_fp8_format;

typedef enum exo_scale_format {
    EXO_SCALE_FP32,
    EXO_SCALE_BF16,
} exo_scale_format;

/* Options of topk. */
typedef struct exo_topk {
    double ratio;      /* fraction of a block; 0: k is the number */
    uint64_t k, block; /* block 0: the whole array */
    bool error_feedback;
    double decay;
} exo_topk;

/* A value codec with its options. */
typedef struct exo_value_codec {
    exo_codec_kind kind;
    size_t block;            /* elements that share a scale; 0: no scale (fp8) */
    exo_fp8_format format;   /* fp8                                    */
    exo_scale_format scales; /* int8, int4, e3m0; of bins, its means   */
} exo_value_codec;

typedef struct exo_lossless {
    exo_codec_kind kind;
    int level; /* zstd */
} exo_lossless;

typedef struct exo_codec_spec {
    exo_codec_kind selection; /* TOPK or SPARSE; RAW: none */
    exo_topk topk;
    exo_select_kind select_kind;
    double p;
    exo_value_codec values;
    exo_lossless lossless[EXO_CODEC_MAX_LOSSLESS];
    size_t num_lossless;
} exo_codec_spec;

/* Reads a chain; node: NULL is raw. Errors: INVAL with the place, NOMEM. */
exo_status exo_codec_spec_read(exo_codec_spec *spec, exo_config *node, exo_err *err);
/* Writes the chain as text that reads as the same chain. */
void exo_codec_spec_text(const exo_codec_spec *spec, char text[EXO_CODEC_TEXT]);

/* The check of an encoding's bytes. The codec's text, the number of elements and, with a selector,
 * the place are its seed. */
uint32_t exo_codec_check(const exo_codec *codec, const exo_codec_place *place, size_t count,
                         const uint8_t *bytes, size_t size);

/* ceil(share * count), without the rounding errors of the product; at least 1 if count is. share in
 * (0, 1]. */
size_t exo_codec_share(double share, size_t count);

/* --- Value codecs (values.c) ------------------------------------------------------------------ */

/* The exact size of `count` encoded values, and their encoding. */
size_t exo_values_size(const exo_value_codec *codec, size_t count);
void exo_values_encode(const exo_value_codec *codec, const float *values, size_t count,
                       uint8_t *out);
/* Decodes exo_values_size bytes. False: the codec cannot have made these bytes. */
bool exo_values_decode(const exo_value_codec *codec, const uint8_t *in, float *values,
                       size_t count);

/* Runs piece(context, i) for i in [0, count): on the calling thread if there are few, else in
 * parallel. */
void exo_codec_pieces(size_t count, void (*piece)(void *context, size_t index), void *context);

/* --- The largest values (topk.c) -------------------------------------------------------------- */

/* The number of values that are kept of `count`, and the size of their indices in bytes. */
size_t exo_topk_kept(const exo_topk *topk, size_t count);
size_t exo_topk_index_bytes(const exo_topk *topk, size_t count);
/* Writes the places of each block's largest magnitudes, ascending, to index (exo_topk_kept). Of
 * equal magnitudes the first count. NaN exceeds infinity. room (2 count) is scratch. count <
 * 2^32. */
void exo_topk_choose(const exo_topk *topk, const float *values, size_t count, uint32_t *index,
                     uint32_t *room);
/* Packs the places into exo_topk_index_bytes bytes. */
void exo_topk_pack(const exo_topk *topk, const uint32_t *index, size_t count, uint8_t *out);
/* Unpacks exo_topk_index_bytes bytes. False: places out of range or not ascending, or bytes that
 * pack does not make. */
bool exo_topk_unpack(const exo_topk *topk, const uint8_t *in, size_t count, uint32_t *index);

/* --- Lossless codecs (lossless.c) ------------------------------------------------------------- */

/* zstd's contexts, one for each lane of pieces, made on demand. Zeroed: none yet. */
enum {
    EXO_LOSSLESS_LANES = 16
};
typedef struct exo_lossless_room {
    void *compress[EXO_LOSSLESS_LANES], *decompress[EXO_LOSSLESS_LANES];
} exo_lossless_room;

void exo_lossless_release(exo_lossless_room *room);
/* The largest size of `size` compressed bytes. */
size_t exo_lossless_bound(const exo_lossless *lossless, size_t size);
/* Compresses in (size) to out (*out_size, at most the bound). Errors: NOMEM. */
exo_status exo_lossless_encode(const exo_lossless *lossless, exo_lossless_room *room,
                               const uint8_t *in, size_t size, uint8_t *out, size_t *out_size,
                               exo_err *err);
/* Decompresses in (size) to out (*out_size, at most `capacity`). Errors: INVAL, NOMEM. */
exo_status exo_lossless_decode(const exo_lossless *lossless, exo_lossless_room *room,
                               const uint8_t *in, size_t size, uint8_t *out, size_t capacity,
                               size_t *out_size, exo_err *err);

#endif
