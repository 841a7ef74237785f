/* zstd and lz4, in pieces of a fixed size: the pieces run in parallel, and the bytes do not depend
 * on the number of threads.
 *
 *   size before compression, 8 bytes | length of each piece, 4 bytes | the pieces
 *
 * A piece is a zstd frame with its content size, or an lz4 block. The codec owns the contexts, one
 * for each lane of pieces. lz4 needs neither contexts nor memory. */
#include "codec/codec_impl.h"

/* for contexts from this library's allocator */
#define ZSTD_STATIC_LINKING_ONLY
#include <lz4.h>
#include <stdatomic.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <exogym/memory.h>

#include "base/parallel.h"

enum {
    PIECE = 1 << 20, /* bytes */
    HEADER = 8,
    LENGTH = 4,
};

static void *
zstd_alloc(void *unused, size_t size)
{
    (void)unused;
    return exo_calloc(1, size);
}

static void
zstd_free(void *unused, void *memory)
{
    (void)unused;
    exo_free(memory);
}

static const ZSTD_customMem zstd_memory = {.customAlloc = zstd_alloc, .customFree = zstd_free};

void
exo_lossless_release(exo_lossless_room *room)
{
    for (size_t i = 0; i < EXO_LOSSLESS_LANES; i++) {
        ZSTD_freeCCtx(room->compress[i]);
        ZSTD_freeDCtx(room->decompress[i]);
    }
    *room = (exo_lossless_room){0};
}

static size_t
pieces_of(size_t size)
{
    return size / PIECE + (size % PIECE != 0);
}

static size_t
length_of(size_t size, size_t piece)
{
    size_t left = size - piece * PIECE;
    return left < PIECE ? left : PIECE;
}

static size_t
piece_bound(const exo_lossless *lossless, size_t length)
{
    return lossless->kind == EXO_CODEC_ZSTD ? ZSTD_compressBound(length)
                                            : (size_t)LZ4_compressBound((int)length);
}

size_t
exo_lossless_bound(const exo_lossless *lossless, size_t size)
{
    size_t bound = HEADER + LENGTH * pieces_of(size) + size / PIECE * piece_bound(lossless, PIECE);
    return bound + (size % PIECE ? piece_bound(lossless, size % PIECE) : 0);
}

/* --- Pieces in lanes -------------------------------------------------------------------------- */

struct job {
    const exo_lossless *lossless;
    exo_lossless_room *room;
    size_t pieces, lanes;
    const uint8_t *in;
    uint8_t *out;
    size_t size;          /* before compression */
    const uint8_t *coded; /* decode: the compressed pieces */
    uint8_t *lengths;     /* encode: the lengths, written */
    const uint8_t *given; /* decode: the lengths, read */
    atomic_int status;    /* the first failure  */
};

static uint32_t
get_length(const uint8_t *lengths, size_t piece)
{
    uint32_t length = 0;
    memcpy(&length, lengths + LENGTH * piece, sizeof length);
    return length;
}

static void
fail(struct job *job, exo_status status)
{
    int none = EXO_OK;
    atomic_compare_exchange_strong(&job->status, &none, (int)status);
}

/* Converts a result of zstd: NOMEM, or `otherwise` for other errors. */
static exo_status
zstd_status(size_t result, exo_status otherwise)
{
    if (!ZSTD_isError(result))
        return EXO_OK;
    return ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation ? EXO_NOMEM : otherwise;
}

static exo_status
compress(const struct job *job, ZSTD_CCtx *context, size_t piece)
{
    size_t length = length_of(job->size, piece), bound = piece_bound(job->lossless, length);
    uint8_t *out = job->out + piece * piece_bound(job->lossless, PIECE);
    size_t done = 0;
    if (context) {
        done = ZSTD_compressCCtx(context, out, bound, job->in + piece * PIECE, length,
                                 job->lossless->level);
        exo_status st = zstd_status(done, EXO_FAILED);
        if (st != EXO_OK)
            return st;
    } else {
        done = (size_t)LZ4_compress_default((const char *)job->in + piece * PIECE, (char *)out,
                                            (int)length, (int)bound);
    }
    uint32_t written = (uint32_t)done;
    memcpy(job->lengths + LENGTH * piece, &written, sizeof written);
    return done > 0 ? EXO_OK : EXO_FAILED;
}

static void
compress_lane(void *context, size_t lane)
{
    struct job *job = context;
    ZSTD_CCtx *zstd = NULL;
    if (job->lossless->kind == EXO_CODEC_ZSTD) {
        if (!job->room->compress[lane])
            job->room->compress[lane] = ZSTD_createCCtx_advanced(zstd_memory);
        zstd = job->room->compress[lane];
        if (!zstd) {
            fail(job, EXO_NOMEM);
            return;
        }
    }
    for (size_t i = lane; i < job->pieces; i += job->lanes) {
        exo_status st = compress(job, zstd, i);
        if (st != EXO_OK) {
            fail(job, st);
            return;
        }
    }
}

static exo_status
decompress(const struct job *job, ZSTD_DCtx *context, size_t piece, const uint8_t *in)
{
    size_t coded = get_length(job->given, piece), length = length_of(job->size, piece);
    uint8_t *out = job->out + piece * PIECE;
    if (!context) {
        int done = LZ4_decompress_safe((const char *)in, (char *)out, (int)coded, (int)length);
        return done >= 0 && (size_t)done == length ? EXO_OK : EXO_INVAL;
    }
    /* Exactly one frame, with the expected size. */
    if (ZSTD_getFrameContentSize(in, coded) != length ||
        ZSTD_findFrameCompressedSize(in, coded) != coded)
        return EXO_INVAL;
    size_t done = ZSTD_decompressDCtx(context, out, length, in, coded);
    exo_status st = zstd_status(done, EXO_INVAL);
    return st != EXO_OK ? st : done == length ? EXO_OK : EXO_INVAL;
}

static void
decompress_lane(void *context, size_t lane)
{
    struct job *job = context;
    ZSTD_DCtx *zstd = NULL;
    if (job->lossless->kind == EXO_CODEC_ZSTD) {
        if (!job->room->decompress[lane])
            job->room->decompress[lane] = ZSTD_createDCtx_advanced(zstd_memory);
        zstd = job->room->decompress[lane];
        if (!zstd) {
            fail(job, EXO_NOMEM);
            return;
        }
    }
    const uint8_t *in = job->coded;
    for (size_t i = 0; i < job->pieces; in += get_length(job->given, i), i++) {
        exo_status st = i % job->lanes == lane ? decompress(job, zstd, i, in) : EXO_OK;
        if (st != EXO_OK) {
            fail(job, st);
            return;
        }
    }
}

static exo_status
run(struct job *job, void (*lane)(void *context, size_t lane))
{
    job->pieces = pieces_of(job->size);
    job->lanes = job->pieces < EXO_LOSSLESS_LANES ? job->pieces : EXO_LOSSLESS_LANES;
    if (job->lanes > 1)
        exo_parallel_for(job->lanes, lane, job);
    else if (job->lanes == 1)
        lane(job, 0);
    return (exo_status)atomic_load(&job->status);
}

exo_status
exo_lossless_encode(const exo_lossless *lossless, exo_lossless_room *room, const uint8_t *in,
                    size_t size, uint8_t *out, size_t *out_size, exo_err *err)
{
    size_t pieces = pieces_of(size), at = HEADER + LENGTH * pieces;
    const uint64_t header = size;
    memcpy(out, &header, sizeof header);
    struct job job = {
        .lossless = lossless, .room = room, .in = in, .size = size, .lengths = out + HEADER};
    job.out = out + at;
    exo_status st = run(&job, compress_lane);
    if (st != EXO_OK)
        return exo_fail(err, st,
                        st == EXO_NOMEM ? "no memory to compress %zu bytes"
                                        : "cannot compress %zu bytes",
                        size);
    for (size_t i = 0; i < pieces; i++) {
        size_t length = get_length(job.lengths, i);
        memmove(out + at, job.out + i * piece_bound(lossless, PIECE), length);
        at += length;
    }
    *out_size = at;
    return EXO_OK;
}

exo_status
exo_lossless_decode(const exo_lossless *lossless, exo_lossless_room *room, const uint8_t *in,
                    size_t size, uint8_t *out, size_t capacity, size_t *out_size, exo_err *err)
{
    const char *name = lossless->kind == EXO_CODEC_ZSTD ? "zstd" : "lz4";
    uint64_t before = 0;
    if (size < HEADER)
        return exo_fail(err, EXO_INVAL, "%s: %zu bytes are truncated", name, size);
    memcpy(&before, in, sizeof before);
    if (before > capacity)
        return exo_fail(err, EXO_INVAL, "%s: says to be %llu bytes, %zu at most are expected", name,
                        (unsigned long long)before, capacity);
    size_t pieces = pieces_of((size_t)before), left = size - HEADER;
    if (left / LENGTH < pieces)
        return exo_fail(err, EXO_INVAL, "%s: %zu bytes are truncated", name, size);
    left -= LENGTH * pieces;
    for (size_t i = 0; i < pieces; i++) {
        size_t length = get_length(in + HEADER, i);
        if (length > left || length > piece_bound(lossless, PIECE))
            return exo_fail(err, EXO_INVAL, "%s: %zu bytes are truncated", name, size);
        left -= length;
    }
    if (left > 0)
        return exo_fail(err, EXO_INVAL, "%s: %zu bytes more than there should be", name, left);
    struct job job = {.lossless = lossless,
                      .room = room,
                      .size = (size_t)before,
                      .given = in + HEADER,
                      .out = out};
    job.coded = in + HEADER + LENGTH * pieces;
    exo_status st = run(&job, decompress_lane);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "no memory to decompress %zu bytes", size);
    if (st != EXO_OK)
        return exo_fail(err, st, "%s: what is there cannot be decompressed", name);
    *out_size = (size_t)before;
    return EXO_OK;
}
