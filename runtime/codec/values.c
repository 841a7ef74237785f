/* Value codecs: sizes, scales, and the division of an array into pieces for the kernels. No
 * state.
 *
 * An encoding has the scales of all blocks, then the blocks. A piece is a fixed number of whole
 * blocks, so the bytes do not depend on the number of threads. */
#include "codec/codec_impl.h"

#include <float.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bf16.h"
#include "base/parallel.h"
#include "codec/kernels.h"

enum {
    PIECE = 1 << 15, /* elements */
    FEW_PIECES = 4,  /* up to this many run on the calling thread */
    /* exponent of its largest number, 1.75 * 2^8; e5m2's is 1.75 * 2^15 */
    E4M3_EXPONENT = 8,
    E5M2_EXPONENT = 15,
};

void
exo_codec_pieces(size_t count, void (*piece)(void *context, size_t index), void *context)
{
    if (count > FEW_PIECES) {
        exo_parallel_for(count, piece, context);
        return;
    }
    for (size_t i = 0; i < count; i++)
        piece(context, i);
}

/* --- Sizes ------------------------------------------------------------------------------------ */

static size_t
blocks_of(const exo_value_codec *codec, size_t count)
{
    return codec->block ? count / codec->block + (count % codec->block != 0) : 0;
}

/* The size of a scale, or of a mean. */
static size_t
number_bytes(const exo_value_codec *codec)
{
    return codec->scales == EXO_SCALE_BF16 ? 2 : 4;
}

static size_t
scale_bytes(const exo_value_codec *codec)
{
    if (codec->kind == EXO_CODEC_FP8)
        return 1;
    return number_bytes(codec) * (codec->kind == EXO_CODEC_BINS ? 4 : 1);
}

/* The size in bytes of `count` elements without scales: whole blocks, and at most one block that is
 * not whole. */
static size_t
element_bytes(const exo_value_codec *codec, size_t count)
{
    switch (codec->kind) {
    case EXO_CODEC_FP16:
    case EXO_CODEC_BF16:
        return 2 * count;
    case EXO_CODEC_FP8:
    case EXO_CODEC_INT8:
        return count;
    case EXO_CODEC_INT4:
    case EXO_CODEC_E3M0: {
        size_t blocks = count / codec->block, rest = count % codec->block;
        return blocks * (codec->block / 2 + codec->block % 2) + rest / 2 + rest % 2;
    }
    case EXO_CODEC_BINS: {
        size_t blocks = count / codec->block, rest = count % codec->block;
        return blocks * (codec->block / 4 + (codec->block % 4 != 0)) + rest / 4 + (rest % 4 != 0);
    }
    default:
        return 4 * count;
    }
}

size_t
exo_values_size(const exo_value_codec *codec, size_t count)
{
    return blocks_of(codec, count) * scale_bytes(codec) + element_bytes(codec, count);
}

/* --- Scales ----------------------------------------------------------------------------------- */

/* The quotient of a block's largest magnitude and its scale. */
static float
steps_of(const exo_value_codec *codec)
{
    return codec->kind == EXO_CODEC_INT8 ? 127.0f : codec->kind == EXO_CODEC_INT4 ? 7.0f : 1.0f;
}

/* Writes a finite number to `at` as fp32 or bf16, and returns it as written. */
static float
put_number(const exo_value_codec *codec, float x, uint8_t *at)
{
    if (codec->scales == EXO_SCALE_FP32) {
        memcpy(at, &x, sizeof x);
        return x;
    }
    uint16_t upper = exo_to_bf16(x);
    if ((upper & 0x7FFF) >= 0x7F80)
        upper = (uint16_t)(upper - 1); /* what rounds to infinity becomes the largest number */
    memcpy(at, &upper, sizeof upper);
    return exo_from_bf16(upper);
}

/* Writes a block's scale to `at` and returns it as written. A scale below the smallest normal
 * number becomes 0, and so do the block's values. */
static float
put_scale(const exo_value_codec *codec, float largest, uint8_t *at)
{
    float scale = largest / steps_of(codec);
    return put_number(codec, scale < FLT_MIN ? 0 : scale, at);
}

static float
get_number(const exo_value_codec *codec, const uint8_t *at)
{
    float x;
    uint16_t upper = 0;
    if (codec->scales == EXO_SCALE_FP32) {
        memcpy(&x, at, sizeof x);
        return x;
    }
    memcpy(&upper, at, sizeof upper);
    return exo_from_bf16(upper);
}

static bool
get_scale(const exo_value_codec *codec, const uint8_t *at, float *scale)
{
    *scale = get_number(codec, at);
    return exo_bits_of(*scale) == 0 || (*scale >= FLT_MIN && *scale <= FLT_MAX);
}

/* The smallest power of two that makes no finite element too large. It is stored as one byte, the
 * exponent + 127 (E8M0 of the OCP's MX formats). */
static int
exponent_of(const exo_value_codec *codec, float largest)
{
    uint32_t bits = exo_bits_of(largest);
    int exponent = (int)(bits >> 23) - 127 + ((bits & 0x7FFFFFu) > 0x600000u);
    exponent -= codec->format == EXO_FP8_E4M3 ? E4M3_EXPONENT : E5M2_EXPONENT;
    return exponent < -127 ? -127 : exponent;
}

static int
largest_exponent(const exo_value_codec *codec)
{
    return exponent_of(codec, FLT_MAX);
}

/* --- Bins ------------------------------------------------------------------------------------- */

static void
encode_bins(const exo_value_codec *codec, const float *x, uint8_t *means_at, uint8_t *out, size_t n)
{
    float means[4];
    exo_kernel_to_bins(x, means, out, n);
    for (size_t b = 0; b < 4; b++)
        put_number(codec, means[b], means_at + b * number_bytes(codec));
}

static bool
decode_bins(const exo_value_codec *codec, const uint8_t *means_at, const uint8_t *in, float *x,
            size_t n)
{
    float means[4];
    for (size_t b = 0; b < 4; b++) {
        means[b] = get_number(codec, means_at + b * number_bytes(codec));
        if ((exo_bits_of(means[b]) & EXO_MAGNITUDE) >= EXO_INFINITY)
            return false;
    }
    return exo_kernel_from_bins(in, means, x, n);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static void
encode_block(const exo_value_codec *codec, const float *x, uint8_t *scale_at, uint8_t *out,
             size_t n)
{
    float scale = 0;
    int exponent = 0;
    if (codec->kind == EXO_CODEC_BINS) {
        encode_bins(codec, x, scale_at, out, n);
        return;
    }
    if (codec->kind == EXO_CODEC_FP8 && codec->block) {
        exponent = exponent_of(codec, exo_kernel_largest(x, n));
        *scale_at = (uint8_t)(exponent + 127);
    } else if (codec->block) {
        scale = put_scale(codec, exo_kernel_largest(x, n), scale_at);
    }
    switch (codec->kind) {
    case EXO_CODEC_FP16:
        exo_kernel_to_fp16(x, out, n);
        return;
    case EXO_CODEC_BF16:
        exo_kernel_to_bf16(x, out, n);
        return;
    case EXO_CODEC_FP8:
        if (codec->format == EXO_FP8_E4M3)
            exo_kernel_to_e4m3(x, exponent, out, n);
        else
            exo_kernel_to_e5m2(x, exponent, out, n);
        return;
    case EXO_CODEC_INT8:
        exo_kernel_to_int8(x, scale, out, n);
        return;
    case EXO_CODEC_INT4:
        exo_kernel_to_int4(x, scale, out, n);
        return;
    case EXO_CODEC_E3M0:
        exo_kernel_to_e3m0(x, scale, out, n);
        return;
    default:
        memcpy(out, x, 4 * n);
    }
}

static bool
decode_block(const exo_value_codec *codec, const uint8_t *scale_at, const uint8_t *in, float *x,
             size_t n)
{
    float scale = 0;
    int exponent = 0;
    if (codec->kind == EXO_CODEC_BINS)
        return decode_bins(codec, scale_at, in, x, n);
    if (codec->kind == EXO_CODEC_FP8 && codec->block) {
        exponent = *scale_at - 127;
        if (exponent > largest_exponent(codec))
            return false;
    } else if (codec->block && !get_scale(codec, scale_at, &scale)) {
        return false;
    }
    switch (codec->kind) {
    case EXO_CODEC_FP16:
        exo_kernel_from_fp16(in, x, n);
        return true;
    case EXO_CODEC_BF16:
        exo_kernel_from_bf16(in, x, n);
        return true;
    case EXO_CODEC_FP8:
        if (codec->format == EXO_FP8_E4M3)
            exo_kernel_from_e4m3(in, exponent, x, n);
        else
            exo_kernel_from_e5m2(in, exponent, x, n);
        return true;
    case EXO_CODEC_INT8:
        return exo_kernel_from_int8(in, scale, x, n);
    case EXO_CODEC_INT4:
        return exo_kernel_from_int4(in, scale, x, n);
    case EXO_CODEC_E3M0:
        return exo_kernel_from_e3m0(in, scale, x, n);
    default:
        memcpy(x, in, 4 * n);
        return true;
    }
}

/* --- Pieces ----------------------------------------------------------------------------------- */

struct job {
    const exo_value_codec *codec;
    size_t count, piece; /* elements */
    const float *from;   /* encode   */
    uint8_t *bytes;
    const uint8_t *in; /* decode */
    float *values;
    atomic_bool wrong;
};

static size_t
piece_of(const exo_value_codec *codec)
{
    if (!codec->block)
        return PIECE;
    return codec->block < PIECE ? PIECE / codec->block * codec->block : codec->block;
}

static void
run_piece(void *context, size_t index)
{
    struct job *job = context;
    const exo_value_codec *codec = job->codec;
    size_t first = index * job->piece, left = job->count - first,
           end = first + (left < job->piece ? left : job->piece);
    size_t step = codec->block ? codec->block : job->piece,
           scales = blocks_of(codec, job->count) * scale_bytes(codec);
    for (size_t at = first; at < end; at += step) {
        size_t n = end - at < step ? end - at : step;
        size_t scale_at = codec->block ? at / codec->block * scale_bytes(codec) : 0;
        size_t bytes_at = scales + element_bytes(codec, at);
        if (job->from)
            encode_block(codec, job->from + at, job->bytes + scale_at, job->bytes + bytes_at, n);
        else if (!decode_block(codec, job->in + scale_at, job->in + bytes_at, job->values + at, n))
            atomic_store_explicit(&job->wrong, true, memory_order_relaxed);
    }
}

static size_t
pieces_of(const struct job *job)
{
    return job->count / job->piece + (job->count % job->piece != 0);
}

void
exo_values_encode(const exo_value_codec *codec, const float *values, size_t count, uint8_t *out)
{
    struct job job = {
        .codec = codec, .count = count, .piece = piece_of(codec), .from = values, .bytes = out};
    exo_codec_pieces(pieces_of(&job), run_piece, &job);
}

bool
exo_values_decode(const exo_value_codec *codec, const uint8_t *in, float *values, size_t count)
{
    struct job job = {
        .codec = codec, .count = count, .piece = piece_of(codec), .in = in, .values = values};
    exo_codec_pieces(pieces_of(&job), run_piece, &job);
    return !atomic_load_explicit(&job.wrong, memory_order_relaxed);
}
