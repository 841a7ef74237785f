/* The largest magnitudes of an array or of its blocks, and their indices as bits. No state.
 *
 * Magnitudes are compared as the bits of floats without the sign. Bisection of these bits finds the
 * k-th largest: 31 counts, each a vectorized loop, over ever fewer keys. Of a large array, only
 * elements above a threshold from a sample are considered. The result is always exact, because a
 * threshold that leaves too few elements is dropped.
 *
 * The indices of a block take ceil(log2(block)) bits each, or one bit for each element if that is
 * less, or nothing if all elements are kept. */
#include "codec/codec_impl.h"

#include <math.h>
#include <string.h>

#include "codec/kernels.h"

enum {
    SAMPLE = 8192,
    LARGE = 16 * SAMPLE, /* elements; a smaller array needs no sample */
    MAX_PIECES = 64,
    MIN_PIECE = 1 << 15,
    /* elements that are skipped together */
    GROUP = 32,
    ROUND_BITS = 8, /* bits between two siftings of the keys */
    FEW = 4096,     /* so few keys are not worth sifting */
    /* elements; smaller blocks share a piece */
    BLOCKS_PIECE = 1 << 15,
};

static uint32_t
key_of(float x)
{
    return exo_bits_of(x) & EXO_MAGNITUDE;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static size_t
kept_of_block(const exo_topk *topk, size_t length)
{
    if (topk->k)
        return topk->k < length ? (size_t)topk->k : length;
    return exo_codec_share(topk->ratio, length);
}

static size_t
block_of(const exo_topk *topk, size_t count)
{
    return topk->block && topk->block < count ? (size_t)topk->block : count;
}

size_t
exo_topk_kept(const exo_topk *topk, size_t count)
{
    size_t block = block_of(topk, count);
    return block ? count / block * kept_of_block(topk, block) + kept_of_block(topk, count % block)
                 : 0;
}

/* ceil(log2(length)) */
static unsigned
width_of(size_t length)
{
    return length > 1 ? 64 - (unsigned)__builtin_clzll(length - 1) : 0;
}

static size_t
bits_of_block(size_t length, size_t kept)
{
    size_t listed = kept * width_of(length);
    if (kept == length)
        return 0;
    return listed < length ? listed : length;
}

size_t
exo_topk_index_bytes(const exo_topk *topk, size_t count)
{
    size_t block = block_of(topk, count);
    if (!block)
        return 0;
    size_t rest = count % block;
    size_t bits = count / block * bits_of_block(block, kept_of_block(topk, block)) +
                  bits_of_block(rest, kept_of_block(topk, rest));
    return bits / 8 + (bits % 8 != 0);
}

/* --- The k-th largest ------------------------------------------------------------------------- */

static size_t
count_from(const uint32_t *keys, size_t n, uint32_t from)
{
    size_t total = 0;
    while (n > 0) {
        size_t part = n < 1 << 16 ? n : 1 << 16;
        uint32_t here = 0;
        for (size_t i = 0; i < part; i++)
            here += keys[i] >= from;
        total += here;
        keys += part;
        n -= part;
    }
    return total;
}

/* The k-th largest of n keys; 1 <= k <= n. Changes the order of the keys. */
static uint32_t
kth_largest(uint32_t *keys, size_t n, size_t k)
{
    uint32_t found = 0; /* at least k keys are >= found */
    for (int bit = 30; bit >= 0; bit--) {
        uint32_t next = found | 1u << bit;
        if (count_from(keys, n, next) >= k)
            found = next;
        /* sift: from here on, only keys in [found, found + 2^bit) matter */
        if (bit > 0 && bit % ROUND_BITS == 0 && n > FEW) {
            uint32_t end = found + (1u << bit);
            size_t left = 0;
            k -= count_from(keys, n, end);
            for (size_t i = 0; i < n; i++) {
                uint32_t key = keys[i];
                keys[left] = key;
                left += key - found < 1u << bit;
            }
            n = left;
        }
    }
    return found;
}

/* --- Choosing --------------------------------------------------------------------------------- */

/* Writes the places, counted from `base`, of the values that reach `from` to out (n); returns their
 * number. */
static size_t
gather(const float *values, size_t n, uint32_t from, uint32_t base, uint32_t *out)
{
    size_t found = 0;
    for (size_t at = 0; at < n; at += GROUP) {
        size_t here = n - at < GROUP ? n - at : GROUP;
        uint32_t any = here < GROUP;
        if (here == GROUP)
            for (size_t i = 0; i < GROUP; i++)
                any |= key_of(values[at + i]) >= from;
        if (!any)
            continue;
        for (size_t i = at; i < at + here; i++) {
            out[found] = base + (uint32_t)i;
            found += key_of(values[i]) >= from;
        }
    }
    return found;
}

/* Chooses the k largest of `n` candidates, whose places ascend and count from `base`. `least` is
 * the k-th largest key; of the values that equal it, the first are taken. */
static void
choose(const float *values, uint32_t base, const uint32_t *candidates, size_t n, size_t k,
       uint32_t least, uint32_t *index)
{
    size_t larger = 0, taken = 0;
    for (size_t i = 0; i < n; i++)
        larger += key_of(values[candidates[i] - base]) > least;
    size_t ties = k - larger;
    for (size_t i = 0; taken < k; i++) {
        uint32_t key = key_of(values[candidates[i] - base]);
        bool tie = key == least && ties > 0;
        index[taken] = candidates[i];
        taken += key > least || tie;
        ties -= tie;
    }
}

/* A threshold from a sample that about k of the values reach, and at least k with near certainty; 0
 * if a sample does not help. keys (n) is scratch. */
static uint32_t
threshold(const float *values, size_t n, size_t k, uint32_t *keys)
{
    size_t sample = n / 16 < SAMPLE ? n / 16 : SAMPLE, stride = n / (sample + !sample);
    double expected = (double)k / (double)n * (double)sample,
           rank = expected + 4 * sqrt(expected) + 4;
    if (!(rank < (double)(sample / 2)))
        return 0;
    for (size_t i = 0; i < sample; i++)
        keys[i] = key_of(values[i * stride]);
    return kth_largest(keys, sample, (size_t)rank);
}

/* Chooses the k largest of `n` candidates (n >= k); keys (n) is scratch. */
static void
choose_among(const float *values, uint32_t base, const uint32_t *candidates, size_t n, size_t k,
             uint32_t *index, uint32_t *keys)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(values[candidates[i] - base]);
    choose(values, base, candidates, n, k, kth_largest(keys, n, k), index);
}

/* Chooses the k largest of values (n), whose places begin with `base`; room (n) and keys (n) are
 * scratch. */
static void
choose_block(const float *values, size_t n, size_t k, uint32_t base, uint32_t *index,
             uint32_t *room, uint32_t *keys)
{
    uint32_t from = threshold(values, n, k, keys);
    size_t found = from > 0 ? gather(values, n, from, base, room) : 0;
    if (found >= k) {
        choose_among(values, base, room, found, k, index, keys);
        return;
    }
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(values[i]);
    uint32_t least = kth_largest(keys, n, k);
    found = gather(values, n, least, base, room);
    if (found == k)
        memcpy(index, room, k * sizeof *index);
    else
        choose(values, base, room, found, k, least, index);
}

/* --- A large array ---------------------------------------------------------------------------- */

struct filter {
    const float *values;
    size_t count, piece;
    uint32_t from;
    uint32_t *candidates; /* (count) each piece writes from its own place on */
    size_t found[MAX_PIECES];
};

static void
filter_piece(void *context, size_t index)
{
    struct filter *filter = context;
    size_t first = index * filter->piece, left = filter->count - first;
    filter->found[index] =
        gather(filter->values + first, left < filter->piece ? left : filter->piece, filter->from,
               (uint32_t)first, filter->candidates + first);
}

static void
choose_large(const float *values, size_t count, size_t k, uint32_t *index, uint32_t *room)
{
    struct filter filter = {.values = values, .count = count, .candidates = room};
    filter.piece = (count / MAX_PIECES / GROUP + 1) * GROUP;
    if (filter.piece < MIN_PIECE)
        filter.piece = MIN_PIECE;
    size_t pieces = (count + filter.piece - 1) / filter.piece, found = 0;
    filter.from = threshold(values, count, k, room);
    for (;;) {
        exo_codec_pieces(pieces, filter_piece, &filter);
        found = 0;
        for (size_t i = 0; i < pieces; i++)
            found += filter.found[i];
        if (found >= k)
            break;
        filter.from = 0;
    }
    size_t at = 0;
    for (size_t i = 0; i < pieces; i++) {
        memmove(room + at, room + i * filter.piece, filter.found[i] * sizeof *room);
        at += filter.found[i];
    }
    choose_among(values, 0, room, found, k, index, room + count);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

struct blocks {
    const exo_topk *topk;
    const float *values;
    size_t count, block, each; /* each: blocks in a piece */
    uint32_t *index, *room;
};

static void
choose_piece(void *context, size_t piece)
{
    const struct blocks *b = context;
    size_t kept = kept_of_block(b->topk, b->block);
    size_t first = piece * b->each * b->block, left = b->count - first;
    size_t end = first + (left < b->each * b->block ? left : b->each * b->block);
    for (size_t at = first; at < end; at += b->block) {
        size_t n = end - at < b->block ? end - at : b->block;
        choose_block(b->values + at, n, kept_of_block(b->topk, n), (uint32_t)at,
                     b->index + at / b->block * kept, b->room + at, b->room + b->count + at);
    }
}

void
exo_topk_choose(const exo_topk *topk, const float *values, size_t count, uint32_t *index,
                uint32_t *room)
{
    struct blocks b = {
        .topk = topk, .values = values, .count = count, .block = block_of(topk, count)};
    if (count == 0)
        return;
    if (b.block == count && count >= LARGE) {
        choose_large(values, count, kept_of_block(topk, count), index, room);
        return;
    }
    b.each = b.block < BLOCKS_PIECE ? BLOCKS_PIECE / b.block : 1;
    b.index = index;
    b.room = room;
    size_t piece = b.each * b.block;
    exo_codec_pieces(count / piece + (count % piece != 0), choose_piece, &b);
}

/* --- Indices as bits -------------------------------------------------------------------------- */

struct writer {
    uint8_t *at;
    uint64_t word;
    unsigned fill; /* below 8 between calls */
};

/* Appends the lowest `width` (at most 32) bits of `value`, the least significant first. */
static void
put_bits(struct writer *w, uint32_t value, unsigned width)
{
    w->word |= (uint64_t)value << w->fill;
    for (w->fill += width; w->fill >= 8; w->fill -= 8, w->word >>= 8)
        *w->at++ = (uint8_t)w->word;
}

struct reader {
    const uint8_t *at;
    uint64_t word;
    unsigned fill;
};

static uint32_t
get_bits(struct reader *r, unsigned width)
{
    for (; r->fill < width; r->fill += 8)
        r->word |= (uint64_t)*r->at++ << r->fill;
    uint32_t value = (uint32_t)(r->word & ((UINT64_C(1) << width) - 1));
    r->word >>= width;
    r->fill -= width;
    return value;
}

static void
pack_block(struct writer *w, const uint32_t *index, size_t kept, uint32_t base, size_t length)
{
    unsigned width = width_of(length);
    if (kept == length)
        return;
    if (kept * width <= length) {
        for (size_t i = 0; i < kept; i++)
            put_bits(w, index[i] - base, width);
        return;
    }
    size_t i = 0;
    for (size_t at = 0; at < length; at += 32) {
        uint32_t word = 0;
        for (; i < kept && index[i] - base < at + 32; i++)
            word |= 1u << ((index[i] - base) % 32);
        put_bits(w, word, length - at < 32 ? (unsigned)(length - at) : 32);
    }
}

static bool
unpack_block(struct reader *r, uint32_t *index, size_t kept, uint32_t base, size_t length)
{
    unsigned width = width_of(length);
    if (kept == length) {
        for (size_t i = 0; i < kept; i++)
            index[i] = base + (uint32_t)i;
        return true;
    }
    if (kept * width <= length) {
        bool right = true;
        for (size_t i = 0; i < kept; i++) {
            uint32_t at = get_bits(r, width);
            index[i] = base + at;
            right &= at < length && (i == 0 || index[i - 1] < index[i]);
        }
        return right;
    }
    size_t i = 0;
    for (size_t at = 0; at < length; at += 32) {
        uint32_t word = get_bits(r, length - at < 32 ? (unsigned)(length - at) : 32);
        if ((size_t)__builtin_popcount(word) > kept - i)
            return false;
        for (; word; word &= word - 1)
            index[i++] = base + (uint32_t)at + (uint32_t)__builtin_ctz(word);
    }
    return i == kept;
}

void
exo_topk_pack(const exo_topk *topk, const uint32_t *index, size_t count, uint8_t *out)
{
    struct writer w = {.at = out};
    size_t block = block_of(topk, count);
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block, kept = kept_of_block(topk, n);
        pack_block(&w, index, kept, (uint32_t)at, n);
        index += kept;
    }
    if (w.fill > 0)
        *w.at = (uint8_t)w.word;
}

bool
exo_topk_unpack(const exo_topk *topk, const uint8_t *in, size_t count, uint32_t *index)
{
    struct reader r = {.at = in};
    size_t block = block_of(topk, count);
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block, kept = kept_of_block(topk, n);
        if (!unpack_block(&r, index, kept, (uint32_t)at, n))
            return false;
        index += kept;
    }
    /* the padding of the last byte must be 0 */
    return r.word == 0;
}
