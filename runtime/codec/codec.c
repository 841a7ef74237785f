/* Codecs: a chain, run forwards and backwards, and the state of a stream. Read next: spec.c,
 * values.c.
 *
 * An encoding ends with a check (checksum.h) of its bytes. The check's seed contains the codec's
 * text and the number of elements, and with a selector the run's seed and the round. So the decoder
 * refuses altered bytes, and those of another codec or another place.
 *
 * Owner: one thread at a time. Scratch memory grows and is kept. A call that fails leaves the
 * stream's state unchanged. */
#include "codec/codec_impl.h"

#include <string.h>

#include <exogym/memory.h>

#include "codec/checksum.h"
#include "codec/kernels.h"

enum {
    MAX_SLOTS = 16,
    PIECE = 1 << 15, /* elements */
};

/* Scratch memory that grows. */
struct room {
    void *data;
    size_t size; /* bytes */
};

/* The residual of error feedback of an array. */
struct feedback {
    struct room left; /* (count) floats */
    size_t count;
};

/* The selector of a slot's last array. */
struct selection {
    exo_selector *selector;
    size_t count;
    uint64_t seed;
};

struct exo_codec {
    exo_codec_spec spec;
    char text[EXO_CODEC_TEXT];
    uint32_t text_check;
    struct feedback feedback[MAX_SLOTS];
    struct selection selections[MAX_SLOTS];
    exo_lossless_room lossless[EXO_CODEC_MAX_LOSSLESS];
    /* Scratch. */
    /* (count) floats: the array and the residual */
    struct room sum;
    /* (kept) places of the values */
    struct room index;
    /* (2 count) for topk */
    struct room keys;
    struct room packed; /* (kept) floats                                           */
    /* (kept) floats: the values as the receiver decodes them */
    struct room sent;
    /* bytes between stages */
    struct room stages[2];
};

/* --- Life ------------------------------------------------------------------------------------- */

exo_status
exo_codec_new(exo_codec **out, exo_config *config, exo_err *err)
{
    exo_codec *codec = exo_calloc(1, sizeof *codec);
    if (!codec)
        return exo_fail(err, EXO_NOMEM, "no memory for a codec");
    exo_status st = exo_codec_spec_read(&codec->spec, config, err);
    if (st != EXO_OK) {
        exo_codec_free(&codec);
        return st;
    }
    exo_codec_spec_text(&codec->spec, codec->text);
    codec->text_check = exo_checksum(codec->text, strlen(codec->text), 0);
    *out = codec;
    return EXO_OK;
}

exo_status
exo_codec_parse(exo_codec **out, const char *text, exo_err *err)
{
    exo_config_doc *doc = NULL;
    if (!text || !text[strspn(text, " \t\r\n")])
        return exo_codec_new(out, NULL, err);
    exo_status st = exo_config_parse(&doc, "codec", text, err);
    if (st == EXO_OK)
        st = exo_codec_new(out, exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

void
exo_codec_free(exo_codec **codec)
{
    if (!codec || !*codec)
        return;
    exo_codec *c = *codec;
    for (size_t i = 0; i < MAX_SLOTS; i++) {
        exo_free(c->feedback[i].left.data);
        exo_selector_free(&c->selections[i].selector);
    }
    for (size_t i = 0; i < EXO_CODEC_MAX_LOSSLESS; i++)
        exo_lossless_release(&c->lossless[i]);
    struct room *const rooms[] = {&c->sum,  &c->index,     &c->keys,     &c->packed,
                                  &c->sent, &c->stages[0], &c->stages[1]};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        exo_free(rooms[i]->data);
    exo_free(c);
    *codec = NULL;
}

const char *
exo_codec_text(const exo_codec *codec)
{
    return codec->text;
}

static bool
remembers(const exo_codec *codec)
{
    return codec->spec.selection == EXO_CODEC_TOPK && codec->spec.topk.error_feedback;
}

bool
exo_codec_is_stateless(const exo_codec *codec)
{
    return codec->spec.selection != EXO_CODEC_SPARSE && !remembers(codec);
}

bool
exo_codec_is_lossless(const exo_codec *codec)
{
    return codec->spec.selection == EXO_CODEC_RAW && codec->spec.values.kind == EXO_CODEC_RAW;
}

/* --- Sizes ------------------------------------------------------------------------------------ */

/* The number of bytes before the lossless stages if `kept` of `count` elements are sent. */
static size_t
body_size(const exo_codec *codec, size_t count, size_t kept)
{
    size_t index = codec->spec.selection == EXO_CODEC_TOPK
                       ? exo_topk_index_bytes(&codec->spec.topk, count)
                       : 0;
    return index + exo_values_size(&codec->spec.values, kept);
}

/* The largest number of elements that are sent of `count`. */
static size_t
most_kept(const exo_codec *codec, size_t count)
{
    return codec->spec.selection == EXO_CODEC_TOPK ? exo_topk_kept(&codec->spec.topk, count)
                                                   : count;
}

size_t
exo_codec_bytes_bound(const exo_codec *codec, size_t size)
{
    if (size > 16 * EXO_CODEC_MAX_COUNT)
        return SIZE_MAX;
    for (size_t i = 0; i < codec->spec.num_lossless; i++)
        size = exo_lossless_bound(&codec->spec.lossless[i], size);
    return size + EXO_CHECKSUM_BYTES;
}

size_t
exo_codec_bound(const exo_codec *codec, size_t count)
{
    if (count > EXO_CODEC_MAX_COUNT)
        return SIZE_MAX;
    return exo_codec_bytes_bound(codec, body_size(codec, count, most_kept(codec, count)));
}

bool
exo_codec_size(const exo_codec *codec, size_t count, size_t *size)
{
    const exo_codec_spec *spec = &codec->spec;
    size_t kept = most_kept(codec, count);
    if (spec->num_lossless > 0 || count > EXO_CODEC_MAX_COUNT)
        return false;
    if (spec->selection == EXO_CODEC_SPARSE && count > 0 && spec->p < 1) {
        size_t parts = exo_selector_parts(spec->p, count);
        if (spec->select_kind == EXO_SELECT_RANDOM || count % parts != 0)
            /* the size depends on the round */
            return false;
        kept = count / parts;
    }
    *size = body_size(codec, count, kept) + EXO_CHECKSUM_BYTES;
    return true;
}

/* --- Scratch and places ----------------------------------------------------------------------- */

/* Makes room for `count` items of `size` bytes; the old contents are lost. */
static bool
reserve(struct room *room, size_t count, size_t size)
{
    if (room->data && count <= room->size / size)
        return true;
    exo_free(room->data);
    room->data = exo_calloc(count, size);
    room->size = room->data ? count * size : 0;
    return room->data != NULL;
}

static exo_status
fail_memory(const exo_codec *codec, size_t count, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "codec %s: no memory for %zu elements", codec->text, count);
}

static const exo_codec_place nowhere;

static exo_status
check_call(const exo_codec *codec, const exo_codec_place *place, size_t count, exo_err *err)
{
    if (place->slot >= MAX_SLOTS)
        return exo_fail(err, EXO_INVAL, "codec %s: slot %u, there are %d", codec->text, place->slot,
                        MAX_SLOTS);
    size_t most = codec->spec.selection == EXO_CODEC_RAW ? EXO_CODEC_MAX_COUNT : UINT32_MAX;
    if (count > most)
        return exo_fail(err, EXO_INVAL, "codec %s: %zu elements are more than %zu", codec->text,
                        count, most);
    return EXO_OK;
}

/* Selects the round's coordinates, which are valid until the slot's next call. */
static exo_status
select_round(exo_codec *codec, const exo_codec_place *place, size_t count, const uint32_t **index,
             size_t *kept, exo_err *err)
{
    struct selection *s = &codec->selections[place->slot];
    if (!s->selector || s->count != count || s->seed != place->seed) {
        exo_selector *fresh = NULL;
        exo_status st = exo_selector_new(&fresh, codec->spec.select_kind, codec->spec.p, count,
                                         place->seed, err);
        if (st != EXO_OK)
            return st;
        exo_selector_free(&s->selector);
        *s = (struct selection){.selector = fresh, .count = count, .seed = place->seed};
    }
    *kept = exo_selector_round(s->selector, place->round, index);
    return EXO_OK;
}

static uint64_t
mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

uint32_t
exo_codec_check(const exo_codec *codec, const exo_codec_place *place, size_t count,
                const uint8_t *bytes, size_t size)
{
    uint64_t seed = mix(codec->text_check, count);
    if (codec->spec.selection == EXO_CODEC_SPARSE)
        seed = mix(mix(seed, place->seed), place->round);
    return exo_checksum(bytes, size, seed);
}

/* --- Lossless stages -------------------------------------------------------------------------- */

/* The memory for the `size` bytes before the lossless stages: `out` if there are none. NULL: no
 * memory. */
static uint8_t *
body_room(exo_codec *codec, uint8_t *out, size_t size)
{
    if (codec->spec.num_lossless == 0)
        return out;
    return reserve(&codec->stages[0], size, 1) ? codec->stages[0].data : NULL;
}

/* Compresses body (size) to out (*out_size) through the lossless stages, without the check. */
static exo_status
squeeze(exo_codec *codec, const uint8_t *body, size_t size, uint8_t *out, size_t *out_size,
        exo_err *err)
{
    const exo_codec_spec *spec = &codec->spec;
    *out_size = size;
    for (size_t i = 0; i < spec->num_lossless; i++) {
        bool last = i + 1 == spec->num_lossless;
        if (!last &&
            !reserve(&codec->stages[1], exo_lossless_bound(&spec->lossless[i], *out_size), 1))
            return exo_fail(err, EXO_NOMEM, "codec %s: no memory to compress %zu bytes",
                            codec->text, size);
        uint8_t *to = last ? out : codec->stages[1].data;
        exo_status st = exo_lossless_encode(&spec->lossless[i], &codec->lossless[i], body,
                                            *out_size, to, out_size, err);
        if (st != EXO_OK)
            return exo_fail_in(err, st, "codec %s", codec->text);
        body = to;
    }
    return EXO_OK;
}

/* Decompresses in (size, without the check) to *body, which must have `want` bytes. *body is `in`
 * itself, memory of the codec, or `out` if that is not NULL. */
static exo_status
expand(exo_codec *codec, const uint8_t *in, size_t size, const uint8_t **body, size_t want,
       uint8_t *out, exo_err *err)
{
    const exo_codec_spec *spec = &codec->spec;
    for (size_t i = spec->num_lossless; i-- > 0;) {
        size_t most = i > 0 ? exo_lossless_bound(&spec->lossless[0], want) : want;
        uint8_t *to = out;
        if (i > 0 || !out) {
            if (!reserve(&codec->stages[i], most, 1))
                return exo_fail(err, EXO_NOMEM, "codec %s: no memory to decompress %zu bytes",
                                codec->text, size);
            to = codec->stages[i].data;
        }
        exo_status st = exo_lossless_decode(&spec->lossless[i], &codec->lossless[i], in, size, to,
                                            most, &size, err);
        if (st != EXO_OK)
            return exo_fail_in(err, st, "codec %s", codec->text);
        in = to;
    }
    if (size != want)
        return exo_fail(err, EXO_INVAL, "codec %s: %zu bytes instead of %zu", codec->text, size,
                        want);
    *body = in;
    return EXO_OK;
}

static void
put_check(const exo_codec *codec, const exo_codec_place *place, size_t count, uint8_t *out,
          size_t *size)
{
    uint32_t check = exo_codec_check(codec, place, count, out, *size);
    memcpy(out + *size, &check, EXO_CHECKSUM_BYTES);
    *size += EXO_CHECKSUM_BYTES;
}

/* Verifies the check and subtracts its bytes from *size. */
static exo_status
take_check(const exo_codec *codec, const exo_codec_place *place, size_t count, const uint8_t *in,
           size_t *size, exo_err *err)
{
    uint32_t check = 0;
    if (*size < EXO_CHECKSUM_BYTES)
        return exo_fail(err, EXO_INVAL, "codec %s: %zu bytes are truncated", codec->text, *size);
    *size -= EXO_CHECKSUM_BYTES;
    memcpy(&check, in + *size, EXO_CHECKSUM_BYTES);
    if (exo_codec_check(codec, place, count, in, *size) != check)
        return exo_fail(err, EXO_INVAL,
                        "codec %s: %zu bytes were altered, cut, or made by another codec or for "
                        "another place: their check is wrong",
                        codec->text, *size + EXO_CHECKSUM_BYTES);
    return EXO_OK;
}

/* The largest size that `size` bytes can decompress to. A block of zstd has at most 2^17 bytes and
 * at least 4 encoded ones; lz4 counts at most 255 in a byte. */
static size_t
most_expanded(const exo_codec *codec, size_t size)
{
    for (size_t i = 0; i < codec->spec.num_lossless; i++) {
        size_t most = codec->spec.lossless[i].kind == EXO_CODEC_LZ4 ? 256 : 1 << 15;
        size = size > SIZE_MAX / most ? SIZE_MAX : size * most;
    }
    return size;
}

bool
exo_codec_accepts(const exo_codec *codec, const exo_codec_place *place, const void *in, size_t size,
                  size_t count)
{
    place = place ? place : &nowhere;
    if (check_call(codec, place, count, NULL) != EXO_OK)
        return false;
    bool sparse = codec->spec.selection == EXO_CODEC_SPARSE;
    /* a bound far below the size of any round, random ones included */
    double half = codec->spec.p * (double)count / 2;
    size_t kept = !sparse ? most_kept(codec, count) : half > 64 ? (size_t)half - 64 : 0;
    size_t least = body_size(codec, count, kept);
    if (codec->spec.num_lossless == 0 && !sparse)
        return size == least + EXO_CHECKSUM_BYTES;
    return least <= most_expanded(codec, size) &&
           take_check(codec, place, count, in, &size, NULL) == EXO_OK;
}

bool
exo_codec_accepts_bytes(const exo_codec *codec, const void *in, size_t size, size_t bytes)
{
    if (codec->spec.num_lossless == 0)
        return bytes <= SIZE_MAX - EXO_CHECKSUM_BYTES && size == bytes + EXO_CHECKSUM_BYTES;
    return bytes <= most_expanded(codec, size) &&
           take_check(codec, &nowhere, ~bytes, in, &size, NULL) == EXO_OK;
}

/* --- Arrays ----------------------------------------------------------------------------------- */

struct addition {
    const float *values, *left;
    float *sum;
    size_t count;
    float decay;
};

static void
add_piece(void *context, size_t index)
{
    const struct addition *a = context;
    size_t first = index * PIECE, end = a->count - first < PIECE ? a->count : first + PIECE;
    for (size_t i = first; i < end; i++)
        a->sum[i] = a->values[i] + a->decay * a->left[i];
}

/* sum = values + decay * the slot's residual. */
static void
add_feedback(exo_codec *codec, uint32_t slot, const float *values, size_t count)
{
    const struct feedback *f = &codec->feedback[slot];
    struct addition a = {values, f->left.data, codec->sum.data, count,
                         (float)codec->spec.topk.decay};
    if (f->count != count)
        memcpy(a.sum, values, count * sizeof *values);
    else
        exo_codec_pieces(count / PIECE + (count % PIECE != 0), add_piece, &a);
}

/* packed = packed - the values as the receiver decodes them; 0 where the difference is not
 * finite. */
static void
subtract_sent(float *packed, const float *sent, size_t kept)
{
    for (size_t i = 0; i < kept; i++) {
        float left = packed[i] - sent[i];
        packed[i] = (exo_bits_of(left) & EXO_MAGNITUDE) < EXO_INFINITY ? left : 0.0f;
    }
}

/* Makes the sum less the sent values the slot's residual. */
static void
keep_feedback(exo_codec *codec, uint32_t slot, const uint32_t *index, size_t kept, size_t count)
{
    struct feedback *f = &codec->feedback[slot];
    const float *packed = codec->packed.data;
    float *sum = codec->sum.data;
    for (size_t i = 0; i < kept; i++)
        sum[index[i]] = packed[i];
    struct room before = f->left;
    f->left = codec->sum;
    f->count = count;
    codec->sum = before;
}

exo_status
exo_codec_encode(exo_codec *codec, const exo_codec_place *place, const float *values, size_t count,
                 void *out, size_t *size, exo_err *err)
{
    const exo_codec_spec *spec = &codec->spec;
    const uint32_t *index = NULL;
    const bool topk = spec->selection == EXO_CODEC_TOPK, feedback = remembers(codec);
    size_t kept = most_kept(codec, count), index_bytes = 0;
    place = place ? place : &nowhere;
    exo_status st = check_call(codec, place, count, err);
    if (st == EXO_OK && spec->selection == EXO_CODEC_SPARSE)
        st = select_round(codec, place, count, &index, &kept, err);
    if (st != EXO_OK)
        return st;

    if (topk) {
        index_bytes = exo_topk_index_bytes(&spec->topk, count);
        if ((feedback && (!reserve(&codec->sum, count, sizeof(float)) ||
                          !reserve(&codec->sent, kept, sizeof(float)))) ||
            !reserve(&codec->keys, 2 * count, sizeof(uint32_t)) ||
            !reserve(&codec->index, kept, sizeof(uint32_t)))
            return fail_memory(codec, count, err);
    }
    if (spec->selection != EXO_CODEC_RAW && !reserve(&codec->packed, kept, sizeof(float)))
        return fail_memory(codec, count, err);
    const size_t body_bytes = body_size(codec, count, kept);
    const bool as_is = spec->num_lossless > 0 && exo_codec_is_lossless(codec);
    uint8_t *body = as_is ? NULL : body_room(codec, out, body_bytes);
    if (!body && !as_is)
        return fail_memory(codec, count, err);

    if (feedback && count > 0) {
        add_feedback(codec, place->slot, values, count);
        values = codec->sum.data;
    }
    if (topk) {
        exo_topk_choose(&spec->topk, values, count, codec->index.data, codec->keys.data);
        exo_topk_pack(&spec->topk, codec->index.data, count, body);
        index = codec->index.data;
    }
    if (spec->selection != EXO_CODEC_RAW) {
        float *packed = codec->packed.data;
        for (size_t i = 0; i < kept; i++)
            packed[i] = values[index[i]];
        values = packed;
    }
    if (!as_is)
        exo_values_encode(&spec->values, values, kept, body + index_bytes);
    st = squeeze(codec, as_is ? (const uint8_t *)values : body, body_bytes, out, size, err);
    if (st != EXO_OK)
        return st;
    put_check(codec, place, count, out, size);
    if (feedback && count > 0) {
        exo_values_decode(&spec->values, body + index_bytes, codec->sent.data, kept);
        subtract_sent(codec->packed.data, codec->sent.data, kept);
        keep_feedback(codec, place->slot, index, kept, count);
    }
    return EXO_OK;
}

exo_status
exo_codec_decode(exo_codec *codec, const exo_codec_place *place, const void *in, size_t size,
                 float *values, size_t count, exo_err *err)
{
    const exo_codec_spec *spec = &codec->spec;
    const uint32_t *index = NULL;
    const uint8_t *body = NULL;
    size_t kept = most_kept(codec, count), index_bytes = 0;
    place = place ? place : &nowhere;
    exo_status st = check_call(codec, place, count, err);
    if (st == EXO_OK && spec->selection == EXO_CODEC_SPARSE)
        st = select_round(codec, place, count, &index, &kept, err);
    if (st != EXO_OK)
        return st;
    const bool as_is = spec->num_lossless > 0 && exo_codec_is_lossless(codec);
    const size_t body_bytes = body_size(codec, count, kept);
    if (spec->num_lossless == 0 && size != body_bytes + EXO_CHECKSUM_BYTES)
        return exo_fail(err, EXO_INVAL, "codec %s: %zu bytes instead of %zu for %zu elements",
                        codec->text, size, body_bytes + EXO_CHECKSUM_BYTES, count);
    st = take_check(codec, place, count, in, &size, err);
    if (st == EXO_OK)
        st = expand(codec, in, size, &body, body_bytes, as_is ? (uint8_t *)values : NULL, err);
    if (st != EXO_OK || as_is)
        return st;

    if (spec->selection == EXO_CODEC_TOPK) {
        index_bytes = exo_topk_index_bytes(&spec->topk, count);
        if (!reserve(&codec->index, kept, sizeof(uint32_t)))
            return fail_memory(codec, count, err);
        if (!exo_topk_unpack(&spec->topk, body, count, codec->index.data))
            return exo_fail(err, EXO_INVAL, "codec %s: indices are out of range or order",
                            codec->text);
        index = codec->index.data;
    }
    float *to = values;
    if (spec->selection != EXO_CODEC_RAW) {
        if (!reserve(&codec->packed, kept, sizeof(float)))
            return fail_memory(codec, count, err);
        to = codec->packed.data;
    }
    if (!exo_values_decode(&spec->values, body + index_bytes, to, kept))
        return exo_fail(err, EXO_INVAL,
                        "codec %s: there are values or scales that it does not make", codec->text);
    if (spec->selection != EXO_CODEC_RAW && count > 0) {
        memset(values, 0, count * sizeof *values);
        for (size_t i = 0; i < kept; i++)
            values[index[i]] = to[i];
    }
    return EXO_OK;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

exo_status
exo_codec_encode_bytes(exo_codec *codec, const void *in, size_t size, void *out, size_t *out_size,
                       exo_err *err)
{
    exo_status st = squeeze(codec, in, size, out, out_size, err);
    if (codec->spec.num_lossless == 0 && size > 0)
        memcpy(out, in, size);
    if (st == EXO_OK)
        put_check(codec, &nowhere, ~size, out, out_size);
    return st;
}

exo_status
exo_codec_decode_bytes(exo_codec *codec, const void *in, size_t in_size, void *out, size_t size,
                       exo_err *err)
{
    const uint8_t *body = NULL;
    exo_status st = take_check(codec, &nowhere, ~size, in, &in_size, err);
    if (st == EXO_OK)
        st = expand(codec, in, in_size, &body, size, out, err);
    if (st == EXO_OK && codec->spec.num_lossless == 0 && size > 0)
        memcpy(out, body, size);
    return st;
}
