/* Codecs, arrays and streams for tests: see codecs.h. */
#include "support/codecs.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

const size_t codec_sizes[] = {0,   1,   2,   3,   7,   31,   32,    33,    127,
                              128, 129, 255, 256, 257, 1000, 32768, 32769, CODEC_LARGE};

const char *const codec_chains[] = {
    "raw",
    "zstd",
    "lz4",
    "[lz4, zstd]",
    "[bf16, {name: zstd, level: 1}]",
    "[int4, lz4, zstd]",
    "[{name: topk, ratio: 0.1, error_feedback: false}, bf16, zstd]",
    "[{name: topk, ratio: 0.1, block: 50}, e3m0]",
    "[{name: topk, k: 16, block: 100, error_feedback: false}, {name: bins, block: 40}]",
    "[{name: topk, ratio: 0.3}, raw, lz4]",
    "[{name: sparse, p: 0.2}, fp8, lz4]",
    "[{name: sparse, p: 0.2, selector: shuffled_sequential}, int8]",
};

exo_codec *
codec_of(const char *text)
{
    exo_codec *codec = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_codec_parse(&codec, text, &err), EXO_OK, "%s", err.text);
    return codec;
}

float *
codec_noise(size_t n, uint64_t seed)
{
    float *x = exo_calloc(n, sizeof *x);
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t kind = exo_rng_u32(&rng) % 64;
        x[i] = kind == 0 ? 0.0f
                         : exo_rng_normal(&rng) * (kind == 1  ? 100.0f
                                                   : kind < 8 ? 1e-4f
                                                              : 1e-2f);
    }
    return x;
}

uint8_t *
codec_encode(exo_codec *codec, const exo_codec_place *place, const float *x, size_t n, size_t *size)
{
    exo_err err = {0};
    size_t bound = exo_codec_bound(codec, n), exact = 0;
    uint8_t *bytes = exo_calloc(bound, 1);
    cr_assert_eq(exo_codec_encode(codec, place, x, n, bytes, size, &err), EXO_OK, "%s", err.text);
    cr_assert_leq(*size, bound);
    if (exo_codec_size(codec, n, &exact))
        cr_expect_eq(*size, exact, "%s of %zu: %zu bytes, said to be %zu", exo_codec_text(codec), n,
                     *size, exact);
    return bytes;
}

void
codec_decode(exo_codec *codec, const exo_codec_place *place, const uint8_t *bytes, size_t size,
             float *y, size_t n)
{
    exo_err err = {0};
    cr_assert_eq(exo_codec_decode(codec, place, bytes, size, y, n, &err), EXO_OK, "%s", err.text);
}

float *
codec_through(const char *text, const float *x, size_t n)
{
    exo_codec *codec = codec_of(text);
    size_t size = 0;
    uint8_t *bytes = codec_encode(codec, NULL, x, n, &size);
    float *y = exo_calloc(n, sizeof *y);
    codec_decode(codec, NULL, bytes, size, y, n);
    exo_free(bytes);
    exo_codec_free(&codec);
    return y;
}

uint32_t
codec_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void
codec_expect_same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        bool same = isnan(want[i]) ? isnan(got[i]) : got[i] == want[i];
        cr_assert(same, "%s: element %zu of %zu is %.9g, not %.9g", what, i, n, (double)got[i],
                  (double)want[i]);
    }
}
