/* What the files of the codec layer share: the chain as it was read, and its stages.
 *
 *     values (count) --selection--> values (fewer) --value codec--> bytes --lossless, lossless--> bytes, check
 *
 * codec.c runs the stages and owns all state; spec.c reads a chain; values.c (kernels.h) turns
 * values into bytes; topk.c chooses the largest and packs their indices; lossless.c compresses;
 * checksum.c makes the last four bytes. Every stage says the exact number of bytes that it makes
 * before it makes them, but for the lossless ones, which have a bound. */
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

/* More elements than any memory holds; no size overflows below it. */
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
    EXO_CODEC_TOPK,
    EXO_CODEC_SPARSE,
    EXO_CODEC_ZSTD,
    EXO_CODEC_LZ4,
    EXO_CODEC_KINDS
} exo_codec_kind;

/* The order within a chain. */
typedef enum exo_codec_stage {
    EXO_STAGE_SELECTION,
    EXO_STAGE_VALUES,
    EXO_STAGE_LOSSLESS,
} exo_codec_stage;

/* A codec with its name. */
typedef struct exo_codec_entry {
    const char *name, *help;
    exo_codec_kind kind;
    exo_codec_stage stage;
} exo_codec_entry;

extern exo_registry exo_codec_registry;                          /* of exo_codec_entry; spec.c */
extern const exo_codec_entry exo_codec_entries[EXO_CODEC_KINDS]; /* by kind */

typedef enum exo_fp8_format {
    EXO_FP8_E4M3,
    EXO_FP8_E5M2,
} exo_fp8_format;

typedef enum exo_scale_format {
    EXO_SCALE_FP32,
    EXO_SCALE_BF16,
} exo_scale_format;

/* topk. */
typedef struct exo_topk {
    double ratio;      /* of a block; 0: k says how many */
    uint64_t k, block; /* block 0: the whole array       */
    bool error_feedback;
    double decay;
} exo_topk;

/* A value codec with its options. */
typedef struct exo_value_codec {
    exo_codec_kind kind;
    size_t block;            /* elements with one scale; 0: none (fp8) */
    exo_fp8_format format;   /* fp8                                    */
    exo_scale_format scales; /* int8, int4, e3m0                       */
} exo_value_codec;

typedef struct exo_lossless {
    exo_codec_kind kind;
    int level; /* zstd */
} exo_lossless;

typedef struct exo_codec_spec {
    exo_codec_kind selection; /* TOPK, SPARSE; RAW: none */
    exo_topk topk;
    exo_select_kind select_kind;
    double p;
    exo_value_codec values;
    exo_lossless lossless[EXO_CODEC_MAX_LOSSLESS];
    size_t num_lossless;
} exo_codec_spec;

/* Reads a chain; `node` NULL is raw. INVAL with place, NOMEM. */
exo_status exo_codec_spec_read(exo_codec_spec *spec, exo_config *node, exo_err *err);
/* The chain as text that reads to the same chain. */
void exo_codec_spec_text(const exo_codec_spec *spec, char text[EXO_CODEC_TEXT]);

/* The check of an encoding's bytes. Seeded by the codec's text, the number of elements and, with a
 * selector, the place. */
uint32_t exo_codec_check(const exo_codec *codec, const exo_codec_place *place, size_t count,
                         const uint8_t *bytes, size_t size);

/* ceil(share * count), where share * count may round to just above an integer; at least 1 of 1 or
 * more. share in (0, 1]. */
size_t exo_codec_share(double share, size_t count);

/* --- Value codecs (values.c) ------------------------------------------------------------------ */

size_t exo_values_size(const exo_value_codec *codec, size_t count);
void exo_values_encode(const exo_value_codec *codec, const float *values, size_t count,
                       uint8_t *out);
/* `in` has exo_values_size bytes. False: the codec makes no such bytes. */
bool exo_values_decode(const exo_value_codec *codec, const uint8_t *in, float *values,
                       size_t count);

/* piece(context, i) for i in [0, count): at once if there are few, else in parallel. */
void exo_codec_pieces(size_t count, void (*piece)(void *context, size_t index), void *context);

/* --- The largest (topk.c) --------------------------------------------------------------------- */

/* How many of `count` are kept, and the bytes of their indices. */
size_t exo_topk_kept(const exo_topk *topk, size_t count);
size_t exo_topk_index_bytes(const exo_topk *topk, size_t count);
/* index (exo_topk_kept): the places of the largest magnitudes of each block, ascending; of equal
 * ones the first. NaN is larger than infinity, which is larger than all others. room (2 count) is
 * scratch. count < 2^32. */
void exo_topk_choose(const exo_topk *topk, const float *values, size_t count, uint32_t *index,
                     uint32_t *room);
void exo_topk_pack(const exo_topk *topk, const uint32_t *index, size_t count, uint8_t *out);
/* `in` has exo_topk_index_bytes. False: out of range, not ascending, or not what pack makes. */
bool exo_topk_unpack(const exo_topk *topk, const uint8_t *in, size_t count, uint32_t *index);

/* --- Lossless (lossless.c) -------------------------------------------------------------------- */

/* Contexts of zstd, one a lane of pieces; made when they are needed. Zero: none yet. */
enum {
    EXO_LOSSLESS_LANES = 16
};
typedef struct exo_lossless_room {
    void *compress[EXO_LOSSLESS_LANES], *decompress[EXO_LOSSLESS_LANES];
} exo_lossless_room;

void exo_lossless_release(exo_lossless_room *room);
size_t exo_lossless_bound(const exo_lossless *lossless, size_t size);
/* in (size) -> out (*out_size, at most the bound). NOMEM. */
exo_status exo_lossless_encode(const exo_lossless *lossless, exo_lossless_room *room,
                               const uint8_t *in, size_t size, uint8_t *out, size_t *out_size,
                               exo_err *err);
/* in (size) -> out (*out_size, at most `capacity`). INVAL, NOMEM. */
exo_status exo_lossless_decode(const exo_lossless *lossless, exo_lossless_room *room,
                               const uint8_t *in, size_t size, uint8_t *out, size_t capacity,
                               size_t *out_size, exo_err *err);

#endif
