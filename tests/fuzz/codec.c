/* Codecs. The first bytes choose a chain, the number of elements and one of these:
 * - the rest is decoded as it is: the outcome is values or an error;
 * - the same with a right checksum behind it, as a malicious sender would make it, so that the code
 *   behind the check is reached too;
 * - the rest is an array: its encoding has the predicted size and can be decoded, and so can the
 *   encoding of the decoded values, which gives these back where the chain is stable; a lossless
 *   codec gives back the array;
 * - the rest is a run of bytes: encoding and decoding gives it back.
 *
 * One thread; each input makes and frees its codec. Read next: include/exogym/codec.h;
 * docs/codecs.md. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>

#include "codec/checksum.h"
#include "codec/codec_impl.h"

/* stable: encoding the decoded values changes them no more. The others compute scales from the
 * values anew, or add the error of the time before. */
static const struct {
    const char *text;
    bool stable;
} chains[] = {
    {"raw", true},
    {"fp16", true},
    {"bf16", true},
    {"{name: fp8, block: 3}", false},
    {"{name: fp8, format: e5m2, block: 0}", false},
    {"{name: int8, block: 5}", false},
    {"{name: int8, scale: bf16}", false},
    {"{name: int4, block: 5}", false},
    {"{name: int4, scale: fp32}", false},
    {"{name: e3m0, block: 6, scale: fp32}", false},
    {"{name: bins, block: 6}", false},
    {"{name: topk, ratio: 0.1, error_feedback: false}", true},
    {"{name: topk, k: 3, block: 10, error_feedback: false}", true},
    {"[{name: topk, ratio: 0.4}, fp16]", false},
    {"{name: sparse, p: 0.3}", true},
    {"[{name: sparse, p: 0.3, selector: partitioned}, int4]", false},
    {"zstd", true},
    {"lz4", true},
    {"[lz4, zstd]", true},
    {"[bf16, zstd, lz4]", true},
    {"[{name: topk, ratio: 0.1, block: 64}, int8, lz4]", false},
};

enum {
    CHAINS = sizeof chains / sizeof *chains,
    HEADER = 4,
};

static const exo_codec_place place = {.slot = 1, .round = 2, .seed = 3};

static void
expect(int right)
{
    if (!right)
        abort();
}

/* Decodes from memory of exactly `size` bytes to memory of exactly `count` values, so that a
 * sanitizer sees every access beyond them. */
static exo_status
decode(exo_codec *codec, const uint8_t *data, size_t size, float **values, size_t count)
{
    exo_err err = {0};
    uint8_t *exact = malloc(size ? size : 1);
    *values = malloc(count ? count * sizeof(float) : 1);
    expect(exact && *values);
    memcpy(exact, data, size);
    exo_status st = exo_codec_decode(codec, &place, exact, size, *values, count, &err);
    expect(st == EXO_OK || (st == EXO_INVAL && err.text[0]));
    free(exact);
    return st;
}

/* -0 and 0 are the same, and any two NaN. */
static bool
are_same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))
            return false;
    return true;
}

static void
round_trip(exo_codec *codec, bool stable, const float *values, size_t count)
{
    exo_err err = {0};
    size_t size = 0, exact = 0, again_size = 0, bound = exo_codec_bound(codec, count);
    uint8_t *bytes = malloc(bound), *again = malloc(bound);
    float *decoded = NULL, *twice = NULL;
    expect(bytes && again);
    expect(exo_codec_encode(codec, &place, values, count, bytes, &size, &err) == EXO_OK &&
           size <= bound);
    expect(!exo_codec_size(codec, count, &exact) || exact == size);
    expect(decode(codec, bytes, size, &decoded, count) == EXO_OK);
    if (exo_codec_is_lossless(codec))
        expect(count == 0 || memcmp(decoded, values, count * sizeof *values) == 0);
    expect(exo_codec_encode(codec, &place, decoded, count, again, &again_size, &err) == EXO_OK);
    expect(decode(codec, again, again_size, &twice, count) == EXO_OK);
    expect(!stable || are_same(decoded, twice, count));
    free(bytes);
    free(again);
    free(decoded);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_codec *codec = NULL;
    exo_err err = {0};
    if (size < HEADER)
        return 0;
    const char *chain = chains[data[0] % CHAINS].text;
    bool stable = chains[data[0] % CHAINS].stable;
    unsigned kind = data[1] % 4;
    size_t count = data[2] | (size_t)(data[3] & 15) << 8;
    data += HEADER;
    size -= HEADER;
    expect(exo_codec_parse(&codec, chain, &err) == EXO_OK);
    if (kind == 0) {
        float *values = NULL;
        decode(codec, data, size, &values, count);
        free(values);
    } else if (kind == 1) {
        float *values = NULL;
        uint8_t *checked = malloc(size + EXO_CHECKSUM_BYTES);
        expect(checked != NULL);
        memcpy(checked, data, size);
        uint32_t check = exo_codec_check(codec, &place, count, data, size);
        memcpy(checked + size, &check, sizeof check);
        decode(codec, checked, size + EXO_CHECKSUM_BYTES, &values, count);
        free(values);
        free(checked);
    } else if (kind == 2) {
        float *values = malloc(size + 1);
        expect(values != NULL);
        memcpy(values, data, size);
        round_trip(codec, stable, values, size / sizeof(float));
        free(values);
    } else {
        uint8_t *out = malloc(exo_codec_bytes_bound(codec, size)), *back = malloc(size + 1);
        size_t out_size = 0;
        expect(out && back);
        expect(exo_codec_encode_bytes(codec, data, size, out, &out_size, &err) == EXO_OK);
        expect(exo_codec_decode_bytes(codec, out, out_size, back, size, &err) == EXO_OK);
        expect(memcmp(data, back, size) == 0);
        expect(exo_codec_decode_bytes(codec, data, size, back, size / 2, &err) != EXO_OK ||
               size >= EXO_CHECKSUM_BYTES);
        free(out);
        free(back);
    }
    exo_codec_free(&codec);
    return 0;
}
