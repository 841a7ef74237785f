/* Codecs: every one against a plain reference written here, exact sizes, bounds of errors, chains, error feedback, selectors, mistakes
 * in configs, faults, and bytes that were cut or altered. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>
#include <exogym/rng.h>
#include <exogym/select.h>
#include <exogym/tensor.h>

#include "checksum.h"
#include "codec_impl.h"
#include "memory_fault.h"

enum {
    CHECK = 4,     /* bytes at the end of every encoding */
    LARGE = 300007 /* several pieces of every loop, the last one short */
};

static exo_codec *
codec_of(const char *text)
{
    exo_codec *codec = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_codec_parse(&codec, text, &err), EXO_OK, "%s", err.text);
    return codec;
}

/* Gradients: normal, some of them zero, a few of other sizes. */
static float *
noise(size_t n, uint64_t seed)
{
    float *x = exo_calloc(n, sizeof *x);
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t kind = exo_rng_u32(&rng) % 64;
        x[i] = kind == 0 ? 0.0f : exo_rng_normal(&rng) * (kind == 1 ? 100.0f : kind < 8 ? 1e-4f : 1e-2f);
    }
    return x;
}

/* Encodes; the caller frees. */
static uint8_t *
encode(exo_codec *codec, const exo_codec_place *place, const float *x, size_t n, size_t *size)
{
    exo_err err = {0};
    size_t bound = exo_codec_bound(codec, n), exact = 0;
    uint8_t *bytes = exo_calloc(bound, 1);
    cr_assert_eq(exo_codec_encode(codec, place, x, n, bytes, size, &err), EXO_OK, "%s", err.text);
    cr_assert_leq(*size, bound);
    if (exo_codec_size(codec, n, &exact))
        cr_expect_eq(*size, exact, "%s of %zu: %zu bytes, said to be %zu", exo_codec_text(codec), n, *size, exact);
    return bytes;
}

static void
decode(exo_codec *codec, const exo_codec_place *place, const uint8_t *bytes, size_t size, float *y, size_t n)
{
    exo_err err = {0};
    cr_assert_eq(exo_codec_decode(codec, place, bytes, size, y, n, &err), EXO_OK, "%s", err.text);
}

/* What is left of x at the other end; the caller frees. */
static float *
through(const char *text, const float *x, size_t n)
{
    exo_codec *codec = codec_of(text);
    size_t size = 0;
    uint8_t *bytes = encode(codec, NULL, x, n, &size);
    float *y = exo_calloc(n, sizeof *y);
    decode(codec, NULL, bytes, size, y, n);
    exo_free(bytes);
    exo_codec_free(&codec);
    return y;
}

static uint32_t
bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float
float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- References: in double precision, where every product and quotient of these formats is exact or rounded once ------------- */

/* x to the nearest multiple of 2^exponent, ties to even. */
static double
to_multiple(double x, int exponent)
{
    return ldexp(nearbyint(ldexp(x, -exponent)), exponent);
}

/* To `mantissa` bits with exponents from `least` on. */
static double
to_float_format(double x, int mantissa, int least)
{
    int exponent = 0;
    if (x == 0)
        return x;
    frexp(x, &exponent); /* |x| in [0.5, 1) * 2^exponent */
    exponent--;
    return to_multiple(x, (exponent < least ? least : exponent) - mantissa);
}

static float
fp16_reference(float x)
{
    if (!isfinite(x))
        return x;
    double y = to_float_format((double)x, 10, -14);
    return fabs(y) > 65504 ? copysignf(INFINITY, x) : (float)y;
}

static float
bf16_reference(float x)
{
    if (!isfinite(x))
        return x;
    double y = to_float_format((double)x, 7, -126);
    return fabs(y) > (double)FLT_MAX ? copysignf(INFINITY, x) : (float)y;
}

static float
largest_of(const float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && fabsf(x[i]) > largest)
            largest = fabsf(x[i]);
    return largest;
}

static float
fp8_reference(float x, float largest, bool e5m2, bool scaled)
{
    double top = e5m2 ? 57344 : 448, scale = 1;
    if (scaled) {
        scale = 0x1p-127;
        while ((double)largest / scale > top)
            scale *= 2;
    }
    if (isnan(x) || (isinf(x) && e5m2))
        return x;
    double y = fmax(-top, fmin(top, (double)x / scale));
    return (float)(to_float_format(y, e5m2 ? 2 : 3, e5m2 ? -14 : -6) * scale);
}

static float
scale_reference(float largest, float steps, bool bf16)
{
    float scale = largest / steps;
    if (scale < FLT_MIN)
        return 0;
    return bf16 ? fminf(bf16_reference(scale), float_of(0x7F7F0000)) : scale;
}

static float
integer_reference(float x, float scale, float steps)
{
    if (isnan(x) || scale == 0)
        return 0;
    double q = fmax(-(double)steps, fmin((double)steps, nearbyint((double)(x / scale))));
    double y = q * (double)scale;
    return (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, y));
}

static float
e3m0_reference(float x, float scale)
{
    if (isnan(x) || scale == 0)
        return 0;
    float u = fabsf(x / scale), best = 0;
    for (int e = 1; e <= 7; e++) { /* the nearer of neighbours; of two equally near ones that with the even code */
        float value = ldexpf(1.0f, e - 7), before = e > 1 ? value / 2 : 0, middle = (before + value) / 2;
        if (u > middle || (u == middle && e % 2 == 0))
            best = value;
    }
    float y = best * scale;
    return best > 0 ? copysignf(y, x) : 0;
}

/* What a codec makes of x, by the text of its options. */
static void
reference(const char *name, bool e5m2, bool bf16_scale, size_t block, const float *x, float *y, size_t n)
{
    size_t step = block ? block : n;
    for (size_t at = 0; at < n; at += step) {
        size_t end = n - at < step ? n : at + step;
        float largest = largest_of(x + at, end - at);
        float steps = strcmp(name, "int8") == 0 ? 127.0f : strcmp(name, "int4") == 0 ? 7.0f : 1.0f;
        float scale = scale_reference(largest, steps, bf16_scale);
        for (size_t i = at; i < end; i++) {
            if (strcmp(name, "raw") == 0)
                y[i] = x[i];
            else if (strcmp(name, "fp16") == 0)
                y[i] = fp16_reference(x[i]);
            else if (strcmp(name, "bf16") == 0)
                y[i] = bf16_reference(x[i]);
            else if (strcmp(name, "fp8") == 0)
                y[i] = fp8_reference(x[i], largest, e5m2, block > 0);
            else if (strcmp(name, "e3m0") == 0)
                y[i] = e3m0_reference(x[i], scale);
            else
                y[i] = integer_reference(x[i], scale, steps);
        }
    }
}

/* Equal to the bit; NaN is equal to NaN, and zeros of either sign are. */
static void
expect_same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        bool same = isnan(want[i]) ? isnan(got[i]) : got[i] == want[i];
        cr_assert(same, "%s: element %zu of %zu is %.9g, not %.9g", what, i, n, (double)got[i], (double)want[i]);
    }
}

static const struct value_codec {
    const char *text, *name;
    bool e5m2, bf16_scale;
    size_t block;
    double size[2]; /* bytes of an element, and of a block's scale */
} value_codecs[] = {
    {"raw", "raw", .size = {4, 0}},
    {"fp16", "fp16", .size = {2, 0}},
    {"bf16", "bf16", .size = {2, 0}},
    {"fp8", "fp8", .block = 128, .size = {1, 1}},
    {"{name: fp8, block: 0}", "fp8", .size = {1, 0}},
    {"{name: fp8, format: e5m2, block: 32}", "fp8", .e5m2 = true, .block = 32, .size = {1, 1}},
    {"{name: fp8, format: e5m2, block: 0}", "fp8", .e5m2 = true, .size = {1, 0}},
    {"int8", "int8", .block = 256, .size = {1, 4}},
    {"{name: int8, block: 33, scale: bf16}", "int8", .block = 33, .bf16_scale = true, .size = {1, 2}},
    {"{name: int8, block: 65536}", "int8", .block = 65536, .size = {1, 4}},
    {"int4", "int4", .block = 128, .bf16_scale = true, .size = {0.5, 2}},
    {"{name: int4, block: 7, scale: fp32}", "int4", .block = 7, .size = {0.5, 4}},
    {"e3m0", "e3m0", .block = 128, .bf16_scale = true, .size = {0.5, 2}},
    {"{name: e3m0, block: 1, scale: fp32}", "e3m0", .block = 1, .size = {0.5, 4}},
};

enum {
    VALUE_CODECS = sizeof value_codecs / sizeof *value_codecs
};

static const size_t sizes[] = {0, 1, 2, 3, 7, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000, 32768, 32769, LARGE};

enum {
    SIZES = sizeof sizes / sizeof *sizes
};

Test(codec, gives_the_values_of_the_reference)
{
    float *x = noise(LARGE, 1), *want = exo_calloc(LARGE, sizeof *want);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        for (size_t s = 0; s < SIZES; s++) {
            reference(v->name, v->e5m2, v->bf16_scale, v->block, x, want, sizes[s]);
            float *got = through(v->text, x, sizes[s]);
            expect_same(got, want, sizes[s], v->text);
            exo_free(got);
        }
    }
    exo_free(x);
    exo_free(want);
}

/* Every sign and exponent with the mantissas at which formats round, tie and overflow. */
Test(codec, rounds_every_kind_of_number_as_the_reference)
{
    static const uint32_t mantissas[] = {
        0,        1,        0x0FFF,   0x1000,   0x1001,   0x3000,   0x7FFF,   0x8000,   0x8001,   0x18000,  0x7FFFF,
        0x80000,  0x80001,  0xFFFFF,  0x100000, 0x100001, 0x17FFFF, 0x180000, 0x1FFFFF, 0x200000, 0x3FFFFF, 0x400000,
        0x400001, 0x5FFFFF, 0x600000, 0x600001, 0x67FFFF, 0x680000, 0x680001, 0x7FF000, 0x7FF001, 0x7FFFFF};
    enum {
        MANTISSAS = sizeof mantissas / sizeof *mantissas,
        NUMBERS = 2 * 256 * MANTISSAS
    };
    static float x[NUMBERS], want[NUMBERS];
    size_t n = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t exponent = 0; exponent < 256; exponent++)
            for (size_t m = 0; m < MANTISSAS; m++)
                x[n++] = float_of(sign << 31 | exponent << 23 | mantissas[m]);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        reference(v->name, v->e5m2, v->bf16_scale, v->block, x, want, n);
        float *got = through(v->text, x, n);
        expect_same(got, want, n, v->text);
        exo_free(got);
    }
}

/* The largest of a block that is just the format's largest needs no larger scale, by which the smallest would be lost. */
Test(codec, the_scale_of_fp8_is_no_larger_than_it_must_be)
{
    const float x[2][2] = {{448, 0x1p-9f}, {57344, 0x1p-16f}};
    static const char *const texts[] = {"fp8", "{name: fp8, format: e5m2}"};
    for (size_t c = 0; c < 2; c++) {
        float *y = through(texts[c], x[c], 2);
        expect_same(y, x[c], 2, texts[c]);
        exo_free(y);
    }
}

Test(codec, every_code_of_the_small_floats_comes_back_as_itself)
{
    static float x[65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = float_of(i << 16);
    float *y = through("bf16", x, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        cr_expect(isnan(x[i]) ? isnan(y[i]) : bits_of(x[i]) == bits_of(y[i]), "bf16 %04x", i);
    exo_free(y);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t exponent = i >> 10 & 31, mantissa = i & 1023;
        double value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        x[i] = exponent == 31 ? (mantissa ? NAN : INFINITY) : (float)value;
        x[i] = copysignf(x[i], i >> 15 ? -1.0f : 1.0f);
    }
    y = through("fp16", x, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        cr_expect(isnan(x[i]) ? isnan(y[i]) : bits_of(x[i]) == bits_of(y[i]), "fp16 %04x", i);
    exo_free(y);
}

Test(codec, sizes_are_the_formulas)
{
    float *x = noise(LARGE, 2);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        exo_codec *codec = codec_of(v->text);
        for (size_t s = 0; s < SIZES; s++) {
            size_t n = sizes[s], exact = 0, size = 0, want = 0;
            size_t step = v->block ? v->block : n ? n : 1;
            for (size_t at = 0; at < n; at += step) { /* each block by itself, whole bytes */
                size_t here = n - at < step ? n - at : step;
                want += (size_t)ceil(v->size[0] * (double)here) + (size_t)v->size[1];
            }
            cr_assert(exo_codec_size(codec, n, &exact));
            cr_expect_eq(exact, want + CHECK, "%s of %zu: %zu, not %zu", v->text, n, exact, want + CHECK);
            cr_expect_eq(exo_codec_bound(codec, n), exact);
            uint8_t *bytes = encode(codec, NULL, x, n, &size);
            cr_expect_eq(size, exact);
            exo_free(bytes);
        }
        exo_codec_free(&codec);
    }
    exo_free(x);
}

/* The bounds of docs/codecs.md. */
Test(codec, errors_are_within_their_bounds)
{
    enum {
        N = 10000
    };
    float *x = noise(N, 3);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        float *y = through(v->text, x, N);
        for (size_t i = 0; i < N; i++) {
            size_t first = v->block ? i / v->block * v->block : 0;
            size_t end = v->block && first + v->block < N ? first + v->block : N;
            double largest = (double)largest_of(x + first, end - first), size = fabs((double)x[i]);
            double error = fabs((double)x[i] - (double)y[i]), bound = 0;
            if (strcmp(v->name, "fp16") == 0)
                bound = fmax(size * 0x1p-11, 0x1p-25);
            else if (strcmp(v->name, "bf16") == 0)
                bound = size * 0x1p-8;
            else if (strcmp(v->name, "fp8") == 0 && v->block)
                bound = v->e5m2 ? fmax(size * 0x1p-3, largest * 0x1p-31) : fmax(size * 0x1p-4, largest * 0x1p-17);
            else if (strcmp(v->name, "fp8") == 0)
                bound = v->e5m2 ? fmax(size * 0x1p-3, 0x1p-17) : fmax(size * 0x1p-4, 0x1p-10);
            else if (strcmp(v->name, "int8") == 0)
                bound = largest / 127 / 2 * (1 + 0x1p-7);
            else if (strcmp(v->name, "int4") == 0)
                bound = largest / 7 / 2 * (1 + 0x1p-7);
            else if (strcmp(v->name, "e3m0") == 0)
                bound = fmax(size / 3, largest * 0x1p-7) * (1 + 0x1p-6);
            cr_assert(error <= bound, "%s: %.9g became %.9g", v->text, (double)x[i], (double)y[i]);
        }
        exo_free(y);
    }
    exo_free(x);
}

Test(codec, what_is_not_finite_is_as_the_documentation_says)
{
    static const struct {
        const char *text;
        float want[4]; /* of NaN, infinity, -infinity, 1e38 in a block with 2 */
    } cases[] = {
        {"raw", {NAN, INFINITY, -INFINITY, 1e38f}},
        {"fp16", {NAN, INFINITY, -INFINITY, INFINITY}},
        {"{name: fp8, block: 0}", {NAN, 448, -448, 448}},
        {"{name: fp8, block: 0, format: e5m2}", {NAN, INFINITY, -INFINITY, 57344}},
    };
    const float x[] = {NAN, INFINITY, -INFINITY, 1e38f, 2};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float *y = through(cases[c].text, x, 5);
        expect_same(y, cases[c].want, 4, cases[c].text);
        cr_expect_eq(y[4], 2);
        exo_free(y);
    }
    static const char *const scaled[] = {"int8", "int4", "e3m0"};
    const float z[] = {NAN, INFINITY, -INFINITY, 2, -1}, want[] = {0, 2, -2, 2, -1};
    for (size_t c = 0; c < 3; c++) {
        float *y = through(scaled[c], z, 5);
        for (size_t i = 0; i < 5; i++)
            cr_expect(fabsf(y[i] - want[i]) <= 0.15f, "%s: %g became %g", scaled[c], (double)z[i], (double)y[i]);
        exo_free(y);
    }
}

Test(codec, the_same_bits_with_any_threads)
{
    static const char *const texts[] = {"raw",
                                        "bf16",
                                        "fp8",
                                        "int8",
                                        "int4",
                                        "e3m0",
                                        "{name: topk, ratio: 0.02}",
                                        "{name: topk, ratio: 0.02, block: 1000}",
                                        "[bf16, zstd]",
                                        "lz4"};
    enum {
        N = 1500001
    };
    float *x = noise(N, 4);
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        exo_codec *one = codec_of(texts[c]), *four = codec_of(texts[c]);
        size_t size = 0, other = 0;
        exo_set_num_threads(1);
        uint8_t *a = encode(one, NULL, x, N, &size);
        exo_set_num_threads(4);
        uint8_t *b = encode(four, NULL, x, N, &other);
        cr_expect_eq(size, other);
        cr_expect_eq(memcmp(a, b, size), 0, "%s", texts[c]);
        float *y = exo_calloc(N, sizeof *y);
        decode(four, NULL, b, other, y, N);
        exo_free(y);
        exo_free(a);
        exo_free(b);
        exo_codec_free(&one);
        exo_codec_free(&four);
    }
    exo_free(x);
}

/* Ends of a stream may be built by different compilers for different processors. lz4 and zstd are not here: their bytes are those of
 * the installed library. */
Test(codec, known_answers)
{
    static const struct {
        const char *text;
        uint32_t check;
    } cases[] = {
        {"raw", 0x5FC42CDBu},
        {"fp16", 0x9F125A50u},
        {"bf16", 0xA2B60689u},
        {"fp8", 0xD560C4F5u},
        {"{name: fp8, format: e5m2, block: 0}", 0x941B9063u},
        {"int8", 0x60799FC6u},
        {"{name: int8, scale: bf16}", 0xAD9B15C0u},
        {"int4", 0xDCD5696Du},
        {"{name: int4, block: 33, scale: fp32}", 0xE07AB755u},
        {"e3m0", 0x6A75821Cu},
        {"topk", 0x6B7A64BAu},
        {"{name: topk, ratio: 0.2, block: 100}", 0x0285CAD6u},
        {"[{name: topk, ratio: 0.01}, bf16]", 0x15390708u},
        {"[{name: sparse, p: 0.1}, int4]", 0x648F9705u},
        {"{name: sparse, p: 0.1, selector: partitioned}", 0xBC623560u},
    };
    float *x = noise(5001, 5);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        const exo_codec_place place = {.round = 3, .seed = 42};
        size_t size = 0;
        uint8_t *bytes = encode(codec, &place, x, 5001, &size);
        uint32_t check = exo_checksum(bytes, size, 0);
        cr_expect_eq(check, cases[c].check, "{\"%s\", 0x%08Xu},", cases[c].text, check);
        exo_free(bytes);
        exo_codec_free(&codec);
    }
    exo_free(x);
}

/* --- topk ------------------------------------------------------------------------------------------------------------------- */

struct ranked {
    uint32_t key, index;
};

static int
by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* y: the k largest of each block of x, the others 0. */
static void
topk_reference(const float *x, float *y, size_t n, size_t block, double ratio, size_t k)
{
    size_t step = block && block < n ? block : n;
    memset(y, 0, n * sizeof *y);
    for (size_t at = 0; at < n; at += step) {
        size_t here = n - at < step ? n - at : step, kept = k ? k : (size_t)ceil(ratio * (double)here - 1e-9);
        kept = kept < 1 ? 1 : kept > here ? here : kept;
        struct ranked *r = exo_calloc(here, sizeof *r);
        for (size_t i = 0; i < here; i++)
            r[i] = (struct ranked){bits_of(x[at + i]) & 0x7FFFFFFFu, (uint32_t)i};
        qsort(r, here, sizeof *r, by_rank);
        for (size_t i = 0; i < kept; i++)
            y[at + r[i].index] = x[at + r[i].index];
        exo_free(r);
    }
}

static const struct topk_case {
    size_t block, k;
    double ratio;
} topk_cases[] = {{0, 0, 0.01}, {0, 0, 0.3}, {0, 5, 0},   {0, 0, 1},         {64, 0, 0.1},
                  {1000, 3, 0}, {1, 1, 0},   {7, 100, 0}, {65536, 0, 0.001}, {256, 0, 0.5}};

static exo_codec *
topk_of(const struct topk_case *c, bool feedback)
{
    char text[160], many[60];
    if (c->k)
        snprintf(many, sizeof many, "k: %zu", c->k);
    else
        snprintf(many, sizeof many, "ratio: %g", c->ratio);
    snprintf(text, sizeof text, "{name: topk, %s, block: %zu, error_feedback: %s}", many, c->block,
             feedback ? "true" : "false");
    return codec_of(text);
}

Test(codec, topk_keeps_the_largest_of_each_block)
{
    float *x = noise(LARGE, 6), *want = exo_calloc(LARGE, sizeof *want), *y = exo_calloc(LARGE, sizeof *y);
    for (size_t c = 0; c < sizeof topk_cases / sizeof *topk_cases; c++) {
        exo_codec *codec = topk_of(&topk_cases[c], false);
        for (size_t s = 0; s < SIZES; s++) {
            size_t n = sizes[s], size = 0;
            topk_reference(x, want, n, topk_cases[c].block, topk_cases[c].ratio, topk_cases[c].k);
            uint8_t *bytes = encode(codec, NULL, x, n, &size);
            decode(codec, NULL, bytes, size, y, n);
            expect_same(y, want, n, exo_codec_text(codec));
            exo_free(bytes);
        }
        exo_codec_free(&codec);
    }
    exo_free(x);
    exo_free(want);
    exo_free(y);
}

/* Equal magnitudes, a sample that tells nothing, values that are not finite: the rank is exact all the same. */
Test(codec, topk_is_exact_for_arrays_that_are_unlike_gradients)
{
    float *x = exo_calloc(LARGE, sizeof *x), *want = exo_calloc(LARGE, sizeof *want);
    for (int kind = 0; kind < 5; kind++) {
        float *noisy = noise(LARGE, 7);
        for (size_t i = 0; i < LARGE; i++) {
            if (kind == 0)
                x[i] = i % 2 ? 1.0f : -1.0f;
            else if (kind == 1)
                x[i] = i % (LARGE / 8192) == 0 ? 1000.0f + (float)(i % 977) : noisy[i];
            else if (kind == 2)
                x[i] = (float)i * (i % 3 ? 1.0f : -1.0f);
            else if (kind == 3)
                x[i] = i % 5000 == 17 ? NAN : i % 5000 == 18 ? -INFINITY : noisy[i];
            else
                x[i] = i < LARGE - 3000 ? 0.0f : noisy[i];
        }
        topk_reference(x, want, LARGE, 0, 0.01, 0);
        float *y = through("{name: topk, ratio: 0.01, error_feedback: false}", x, LARGE);
        expect_same(y, want, LARGE, "topk");
        exo_free(y);
        exo_free(noisy);
    }
    exo_free(x);
    exo_free(want);
}

static size_t
width(size_t n)
{
    size_t bits = 0;
    while (((size_t)1 << bits) < n)
        bits++;
    return bits;
}

Test(codec, topk_sizes_are_the_formula)
{
    for (size_t c = 0; c < sizeof topk_cases / sizeof *topk_cases; c++) {
        exo_codec *codec = topk_of(&topk_cases[c], true);
        for (size_t s = 0; s < SIZES; s++) {
            size_t n = sizes[s], size = 0, bits = 0, values = 0;
            size_t step = topk_cases[c].block && topk_cases[c].block < n ? topk_cases[c].block : n ? n : 1;
            for (size_t at = 0; at < n; at += step) {
                size_t here = n - at < step ? n - at : step;
                size_t k = topk_cases[c].k ? topk_cases[c].k : (size_t)ceil(topk_cases[c].ratio * (double)here - 1e-9);
                k = k < 1 ? 1 : k > here ? here : k;
                size_t list = k * width(here);
                bits += k == here ? 0 : list < here ? list : here;
                values += 4 * k;
            }
            cr_assert(exo_codec_size(codec, n, &size));
            cr_expect_eq(size, (bits + 7) / 8 + values + CHECK, "%s of %zu: %zu", exo_codec_text(codec), n, size);
        }
        exo_codec_free(&codec);
    }
}

/* With small integers nothing is rounded: what came in is what was sent and what is left, to the bit. */
Test(codec, error_feedback_loses_nothing)
{
    enum {
        N = 500,
        ROUNDS = 40
    };
    static const char *const texts[] = {"{name: topk, ratio: 0.05}", "[{name: topk, ratio: 0.1, block: 64}, zstd]",
                                        "[{name: topk, k: 30}, int8]", "[{name: topk, ratio: 0.2}, bf16]"};
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        exo_codec *sender = codec_of(texts[c]), *receiver = codec_of(texts[c]);
        double in[2][N] = {{0}}, out[2][N] = {{0}};
        float x[N], y[N];
        exo_rng rng;
        exo_rng_init(&rng, 8, EXO_RNG_USER, 0, 0);
        cr_expect_not(exo_codec_is_stateless(sender));
        for (uint64_t round = 0; round < ROUNDS + 200; round++) {
            const exo_codec_place place = {.slot = (uint32_t)(round % 2) * 15, .round = round};
            for (size_t i = 0; i < N; i++) { /* in the end zeros, so that all that was left is sent */
                x[i] = round < ROUNDS ? (float)(int)exo_rng_below(&rng, 201) - 100 : 0.0f;
                in[round % 2][i] += (double)x[i];
            }
            size_t size = 0;
            uint8_t *bytes = encode(sender, &place, x, N, &size);
            decode(receiver, &place, bytes, size, y, N);
            for (size_t i = 0; i < N; i++)
                out[round % 2][i] += (double)y[i];
            exo_free(bytes);
        }
        for (size_t i = 0; i < N; i++) {
            double tolerance = strstr(texts[c], "int8") ? 1 : strstr(texts[c], "bf16") ? 0.5 : 0;
            for (size_t slot = 0; slot < 2; slot++)
                cr_assert(fabs(in[slot][i] - out[slot][i]) <= tolerance, "%s: %g came in, %g was sent", texts[c],
                          in[slot][i], out[slot][i]);
        }
        exo_codec_free(&sender);
        exo_codec_free(&receiver);
    }
}

Test(codec, error_feedback_decays_and_begins_anew_with_another_length)
{
    exo_codec *codec = codec_of("{name: topk, k: 1, decay: 0.5}");
    float x[4] = {8, 4, 0, 0}, y[4];
    static const float want[][4] = {{8, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 0, 0}};
    for (size_t round = 0; round < 3; round++) {
        size_t size = 0;
        uint8_t *bytes = encode(codec, NULL, x, 4, &size);
        decode(codec, NULL, bytes, size, y, 4);
        cr_expect_arr_eq(y, want[round], sizeof y, "round %zu: %g %g", round, (double)y[0], (double)y[1]);
        memset(x, 0, sizeof x);
        exo_free(bytes);
    }
    float three[3] = {3, 2, 1}, nothing[4] = {0};
    size_t size = 0;
    exo_free(encode(codec, NULL, three, 3, &size));
    uint8_t *bytes = encode(codec, NULL, nothing, 4, &size);
    decode(codec, NULL, bytes, size, y, 4);
    cr_expect_arr_eq(y, nothing, sizeof y);
    exo_free(bytes);
    exo_codec_free(&codec);
}

Test(codec, error_feedback_keeps_nothing_of_what_is_not_finite)
{
    exo_codec *codec = codec_of("[{name: topk, k: 2}, {name: fp8, block: 0}]");
    float x[4] = {NAN, 1, INFINITY, 0.5f}, y[4], zero[4] = {0};
    size_t size = 0;
    uint8_t *bytes = encode(codec, NULL, x, 4, &size);
    decode(codec, NULL, bytes, size, y, 4);
    cr_expect(isnan(y[0]) && y[1] == 0 && y[2] == 448 && y[3] == 0);
    exo_free(bytes);
    bytes = encode(codec, NULL, zero, 4, &size);
    decode(codec, NULL, bytes, size, y, 4);
    cr_expect(y[0] == 0 && y[1] == 1 && y[2] == 0 && y[3] == 0.5f);
    exo_free(bytes);
    exo_codec_free(&codec);
}

/* --- sparse ----------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    exo_select_kind kind;
} selectors[] = {{"random", EXO_SELECT_RANDOM},
                 {"shuffled_sequential", EXO_SELECT_SHUFFLED_SEQUENTIAL},
                 {"partitioned", EXO_SELECT_PARTITIONED}};

Test(codec, sparse_sends_what_the_selector_says_and_no_indices)
{
    float *x = noise(1003, 9), y[1003], want[1003];
    for (size_t k = 0; k < 3; k++) {
        char text[80];
        snprintf(text, sizeof text, "{name: sparse, p: 0.1, selector: %s}", selectors[k].name);
        exo_codec *sender = codec_of(text), *receiver = codec_of(text);
        exo_selector *selector = NULL;
        cr_assert_eq(exo_selector_new(&selector, selectors[k].kind, 0.1, 1003, 77, NULL), EXO_OK);
        cr_expect_not(exo_codec_is_stateless(sender));
        for (uint64_t round = 0; round < 25; round++) {
            const exo_codec_place place = {.slot = (uint32_t)(round % 3), .round = round, .seed = 77};
            const uint32_t *index = NULL;
            size_t n = exo_selector_round(selector, round, &index), size = 0;
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < n; i++)
                want[index[i]] = x[index[i]];
            uint8_t *bytes = encode(sender, &place, x, 1003, &size);
            cr_expect_eq(size, 4 * n + CHECK);
            decode(receiver, &place, bytes, size, y, 1003);
            cr_expect_arr_eq(y, want, sizeof y);
            exo_free(bytes);
        }
        exo_selector_free(&selector);
        exo_codec_free(&sender);
        exo_codec_free(&receiver);
    }
    exo_free(x);
}

Test(codec, sparse_of_another_round_or_seed_is_refused)
{
    exo_codec *codec = codec_of("{name: sparse, p: 0.1, selector: partitioned}");
    float *x = noise(1000, 10), y[1000];
    const exo_codec_place place = {.round = 5, .seed = 1}, round = {.round = 6, .seed = 1},
                          seed = {.round = 5, .seed = 2};
    size_t size = 0, exact = 0;
    uint8_t *bytes = encode(codec, &place, x, 1000, &size);
    cr_expect(exo_codec_size(codec, 1000, &exact) && exact == 400 + CHECK); /* 10 parts of 100 */
    cr_expect_not(exo_codec_size(codec, 1001, &exact));                     /* one round has 101 */
    cr_expect_eq(exo_codec_decode(codec, &round, bytes, size, y, 1000, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_decode(codec, &seed, bytes, size, y, 1000, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_decode(codec, &place, bytes, size, y, 1000, NULL), EXO_OK);
    exo_free(bytes);
    exo_free(x);
    exo_codec_free(&codec);
}

/* --- Chains ----------------------------------------------------------------------------------------------------------------- */

static const char *const chains[] = {
    "raw",
    "zstd",
    "lz4",
    "[lz4, zstd]",
    "[bf16, {name: zstd, level: 1}]",
    "[int4, lz4, zstd]",
    "[{name: topk, ratio: 0.1, error_feedback: false}, bf16, zstd]",
    "[{name: topk, ratio: 0.1, block: 50}, e3m0]",
    "[{name: topk, ratio: 0.3}, raw, lz4]",
    "[{name: sparse, p: 0.2}, fp8, lz4]",
    "[{name: sparse, p: 0.2, selector: shuffled_sequential}, int8]",
};

enum {
    CHAINS = sizeof chains / sizeof *chains
};

Test(codec, a_chain_gives_what_its_codecs_give_one_after_the_other)
{
    float *x = noise(LARGE, 11);
    for (size_t c = 0; c < CHAINS; c++) {
        for (size_t s = 0; s < SIZES; s++) {
            size_t n = sizes[s], size = 0;
            const exo_codec_place place = {.round = 2, .seed = 9};
            exo_codec *sender = codec_of(chains[c]), *receiver = codec_of(chains[c]);
            float *y = exo_calloc(n, sizeof *y);
            uint8_t *bytes = encode(sender, &place, x, n, &size);
            decode(receiver, &place, bytes, size, y, n);
            if (exo_codec_is_lossless(sender)) {
                cr_expect_eq(memcmp(x, y, n * sizeof *x), 0, "%s of %zu", chains[c], n);
            } else if (strstr(chains[c], "topk") == NULL && strstr(chains[c], "sparse") == NULL) {
                float *z = through(strstr(chains[c], "int4") ? "int4" : "bf16", x, n);
                expect_same(y, z, n, chains[c]);
                exo_free(z);
            }
            exo_free(bytes);
            exo_free(y);
            exo_codec_free(&sender);
            exo_codec_free(&receiver);
        }
    }
    exo_free(x);
}

Test(codec, lossless_ones_compress_what_can_be_compressed)
{
    float *x = exo_calloc(LARGE, sizeof *x);
    static const char *const texts[] = {"zstd", "lz4", "[lz4, zstd]", "[bf16, zstd]"};
    for (size_t c = 0; c < 4; c++) {
        exo_codec *codec = codec_of(texts[c]);
        size_t size = 0;
        exo_free(encode(codec, NULL, x, LARGE, &size));
        cr_expect_lt(size, LARGE / 40);
        cr_expect_not(exo_codec_size(codec, LARGE, &size));
        exo_codec_free(&codec);
    }
    exo_free(x);
}

Test(codec, bytes_go_through_the_lossless_end)
{
    enum {
        N = 3000000
    };
    uint8_t *in = exo_calloc(N, 1), *back = exo_calloc(N, 1);
    for (size_t i = 0; i < N; i++)
        in[i] = (uint8_t)(i * i >> 7);
    for (size_t c = 0; c < CHAINS; c++) {
        exo_codec *codec = codec_of(chains[c]);
        exo_err err = {0};
        for (size_t n = 0; n <= N; n = n * 7 + 1) {
            size_t size = 0;
            uint8_t *out = exo_calloc(exo_codec_bytes_bound(codec, n), 1);
            cr_assert_eq(exo_codec_encode_bytes(codec, in, n, out, &size, &err), EXO_OK, "%s", err.text);
            cr_expect_leq(size, exo_codec_bytes_bound(codec, n));
            memset(back, 0, n);
            cr_assert_eq(exo_codec_decode_bytes(codec, out, size, back, n, &err), EXO_OK, "%s", err.text);
            cr_expect_eq(memcmp(in, back, n), 0);
            if (n > 0 && n < 1000) {
                cr_expect_eq(exo_codec_decode_bytes(codec, out, size, back, n - 1, &err), EXO_INVAL);
                cr_expect_eq(exo_codec_decode_bytes(codec, out, size, back, n + 1, &err), EXO_INVAL);
                for (size_t cut = 0; cut < size; cut++)
                    cr_expect_eq(exo_codec_decode_bytes(codec, out, cut, back, n, &err), EXO_INVAL);
            }
            exo_free(out);
        }
        exo_codec_free(&codec);
    }
    exo_free(in);
    exo_free(back);
}

/* --- Bytes that are wrong ----------------------------------------------------------------------------------------------------- */

static const char *const altered[] = {
    "raw",
    "fp16",
    "bf16",
    "fp8",
    "{name: fp8, format: e5m2, block: 0}",
    "int8",
    "int4",
    "e3m0",
    "{name: topk, ratio: 0.1}",
    "{name: topk, ratio: 0.3, block: 32, error_feedback: false}",
    "{name: sparse, p: 0.3}",
    "zstd",
    "lz4",
    "[lz4, zstd]",
    "[{name: topk, ratio: 0.1}, bf16, zstd]",
};

Test(codec, cut_lengthened_and_altered_bytes_are_refused)
{
    enum {
        N = 75
    };
    float *x = noise(N, 12), y[N + 1];
    for (size_t c = 0; c < sizeof altered / sizeof *altered; c++) {
        exo_codec *codec = codec_of(altered[c]);
        exo_err err = {0};
        size_t size = 0;
        uint8_t *bytes = encode(codec, NULL, x, N, &size), *longer = exo_calloc(size + 1, 1);
        memcpy(longer, bytes, size);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *shorter = exo_calloc(cut, 1); /* of that size, so that the sanitizer sees what lies behind it */
            memcpy(shorter, bytes, cut);
            cr_assert_eq(exo_codec_decode(codec, NULL, shorter, cut, y, N, &err), EXO_INVAL, "%s: %zu", altered[c],
                         cut);
            exo_free(shorter);
        }
        cr_expect_eq(exo_codec_decode(codec, NULL, longer, size + 1, y, N, &err), EXO_INVAL);
        cr_expect_eq(exo_codec_decode(codec, NULL, bytes, size, y, N + 1, &err), EXO_INVAL, "%s", altered[c]);
        cr_expect_eq(exo_codec_decode(codec, NULL, bytes, size, y, N - 1, &err), EXO_INVAL, "%s", altered[c]);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            cr_assert_eq(exo_codec_decode(codec, NULL, bytes, size, y, N, &err), EXO_INVAL, "%s: bit %zu", altered[c],
                         bit);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t at = 0; at < size; at++) {
            for (unsigned change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                cr_assert_eq(exo_codec_decode(codec, NULL, bytes, size, y, N, &err), EXO_INVAL, "%s: byte %zu",
                             altered[c], at);
                bytes[at] ^= (uint8_t)change;
            }
        }
        decode(codec, NULL, bytes, size, y, N);
        exo_free(bytes);
        exo_free(longer);
        exo_codec_free(&codec);
    }
    exo_free(x);
}

Test(codec, the_bytes_of_another_codec_are_refused)
{
    static const char *const texts[] = {"fp16", "bf16"};
    float x[10] = {1, 2, 3}, y[10];
    exo_codec *sender = codec_of(texts[0]), *receiver = codec_of(texts[1]);
    exo_err err = {0};
    size_t size = 0;
    uint8_t *bytes = encode(sender, NULL, x, 10, &size);
    cr_expect_eq(exo_codec_decode(receiver, NULL, bytes, size, y, 10, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "codec bf16: 24 bytes were altered, cut, or made by another codec or for another place: "
                               "their check is wrong");
    cr_expect_eq(exo_codec_decode(receiver, NULL, bytes, size, y, 9, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "codec bf16: 24 bytes instead of 22 for 9 elements");
    exo_free(bytes);
    exo_codec_free(&sender);
    exo_codec_free(&receiver);
}

/* Whoever makes a right check to wrong bytes: they are refused for what they are. */
Test(codec, what_no_encoder_makes_is_refused_behind_a_right_check)
{
    static const struct {
        const char *text;
        size_t count, size;
        uint8_t bytes[24];
        bool right; /* the same with nothing wrong, to see that the rest is what it must be */
    } cases[] = {
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x3F, 1, 2, 0x81, 4}, true},
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x3F, 1, 2, 0x80, 4}, false}, /* -128            */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0xBF, 1, 2, 3, 4}, false},    /* a negative scale */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0xC0, 0x7F, 1, 2, 3, 4}, false},    /* NaN             */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x7F, 1, 2, 3, 4}, false},    /* infinity        */
        {"{name: int8, block: 4}", 4, 8, {1, 0, 0, 0, 1, 2, 3, 4}, false},          /* subnormal       */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x0F}, true},
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x81, 0x0F}, false}, /* -8                       */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x08}, false}, /* the same in the last     */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x1F}, false}, /* what fills the last byte */
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0xF1, 0x0F}, true},
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0x18, 0x0F}, false}, /* -0                       */
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0xF1, 0x2F}, false},
        {"fp8", 2, 3, {247, 1, 2}, true},
        {"fp8", 2, 3, {248, 1, 2}, false}, /* a scale beyond the largest float */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x31, 1, 2}, true},  /* 1, 3   */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x33, 1, 2}, false}, /* 3, 3   */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x13, 1, 2}, false}, /* 3, 1   */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0xA3, 1, 2}, false}, /* 3, 10  */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x11, 1, 2}, true},   /* bits 0 and 4 of 5 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x31, 1, 2}, false},  /* beyond */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x13, 1, 2}, false},  /* three  */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x10, 1, 2}, false},  /* one    */
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, true},
        {"lz4", 1, 17, {5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, false}, /* another size before */
        {"lz4", 1, 17, {3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0x40, 1, 2, 3, 4}, false}, /* another length */
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x30, 1, 2, 3, 4}, false}, /* not lz4        */
        {"lz4", 1, 7, {4, 0, 0, 0, 0, 0, 0}, false},
        {"lz4", 1, 11, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0}, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        const exo_codec_place place = {0};
        exo_err err = {0};
        uint8_t bytes[28];
        float y[10];
        uint32_t check = exo_codec_check(codec, &place, cases[c].count, cases[c].bytes, cases[c].size);
        memcpy(bytes, cases[c].bytes, cases[c].size);
        memcpy(bytes + cases[c].size, &check, CHECK);
        exo_status st = exo_codec_decode(codec, &place, bytes, cases[c].size + CHECK, y, cases[c].count, &err);
        cr_expect_eq(st, cases[c].right ? EXO_OK : EXO_INVAL, "case %zu, %s: %s", c, cases[c].text, err.text);
        exo_codec_free(&codec);
    }
}

/* The check's promise, over lengths with every kind of rest, and over several pieces. */
Test(codec, the_check_shows_every_change_within_a_word)
{
    static const size_t lengths[] = {1, 3, 4, 63, 255, 256, 257, 1000};
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        uint32_t check = exo_checksum(bytes, lengths[l], 1);
        cr_expect_neq(exo_checksum(bytes, lengths[l], 2), check);
        cr_expect_neq(exo_checksum(bytes, lengths[l] - 1, 1), check);
        for (size_t at = 0; at < lengths[l]; at++)
            for (unsigned change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                cr_assert_neq(exo_checksum(bytes, lengths[l], 1), check);
                bytes[at] ^= (uint8_t)change;
            }
    }
    enum {
        MANY = 20000003
    };
    uint8_t *many = exo_calloc(MANY, 1);
    uint32_t check = exo_checksum(many, MANY, 1);
    for (size_t at = 0; at < MANY; at += 999983) {
        many[at] = 1;
        cr_assert_neq(exo_checksum(many, MANY, 1), check);
        many[at] = 0;
    }
    exo_free(many);
}

/* --- Configs ---------------------------------------------------------------------------------------------------------------- */

Test(codec, its_text_makes_the_same_codec)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {NULL, "raw"},
        {"", "raw"},
        {" \n", "raw"},
        {"raw", "raw"},
        {"[raw]", "raw"},
        {"bf16", "bf16"},
        {"{name: bf16}", "bf16"},
        {"[raw, zstd]", "{name: zstd, level: 3}"},
        {"lz4", "lz4"},
        {"fp8", "{name: fp8, format: e4m3, block: 128}"},
        {"{name: fp8, format: e5m2, block: 0}", "{name: fp8, format: e5m2, block: 0}"},
        {"int8", "{name: int8, block: 256, scale: fp32}"},
        {"int4", "{name: int4, block: 128, scale: bf16}"},
        {"e3m0", "{name: e3m0, block: 128, scale: bf16}"},
        {"topk", "{name: topk, ratio: 0.01, block: 0, error_feedback: true, decay: 1}"},
        {"{name: topk, k: 10, decay: 0.9}", "{name: topk, k: 10, block: 0, error_feedback: true, decay: 0.9}"},
        {"{name: topk, ratio: 1e-05, error_feedback: false, block: 9}",
         "{name: topk, ratio: 1e-05, block: 9, error_feedback: false}"},
        {"sparse", "{name: sparse, p: 0.005, selector: random}"},
        {"[{name: topk, ratio: 0.01}, bf16, zstd]",
         "[{name: topk, ratio: 0.01, block: 0, error_feedback: true, decay: 1}, bf16, {name: zstd, level: 3}]"},
        {"[{name: sparse, p: 0.1, selector: partitioned}, raw, lz4, zstd]",
         "[{name: sparse, p: 0.1, selector: partitioned}, lz4, {name: zstd, level: 3}]"},
        {"[int4, lz4]", "[{name: int4, block: 128, scale: bf16}, lz4]"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        cr_expect_str_eq(exo_codec_text(codec), cases[c].want);
        exo_codec *again = codec_of(exo_codec_text(codec));
        cr_expect_str_eq(exo_codec_text(again), cases[c].want);
        exo_codec_free(&codec);
        exo_codec_free(&again);
    }
}

Test(codec, says_what_it_keeps)
{
    static const struct {
        const char *text;
        bool stateless, lossless;
    } cases[] = {{"raw", true, true},      {"[lz4, zstd]", true, true},
                 {"bf16", true, false},    {"topk", false, false},
                 {"sparse", false, false}, {"{name: topk, error_feedback: false}", true, false},
                 {"int4", true, false},    {"[bf16, zstd]", true, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        cr_expect_eq(exo_codec_is_stateless(codec), cases[c].stateless, "%s", cases[c].text);
        cr_expect_eq(exo_codec_is_lossless(codec), cases[c].lossless, "%s", cases[c].text);
        exo_codec_free(&codec);
    }
}

#define ORDER "first a selection (topk, sparse), then one codec of values, then lossless ones (zstd, lz4)"

Test(codec, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"bf15", "codec:1:1: unknown codec 'bf15'; did you mean 'bf16'?"},
        {"huffman",
         "codec:1:1: unknown codec 'huffman'; known are: raw, fp16, bf16, fp8, int8, int4, e3m0, topk, sparse, "
         "zstd, lz4"},
        {"{block: 3}", "codec:1:1: which codec? The key 'name' is missing"},
        {"{name: [bf16]}", "codec:1:8: name: expected a string, got a list"},
        {"[]", "codec:1:1: the list of codecs is empty"},
        {"[bf16, [zstd]]", "codec:1:8: expected a codec's name, or a mapping with 'name'"},
        {"{name: bf16, block: 3}", "codec:1:14: unknown key 'block'; known are: name"},
        {"{name: int8, blok: 3}", "codec:1:14: unknown key 'blok'; did you mean 'block'?"},
        {"{name: int8, block: 0}", "codec:1:21: block must be at least 1, got 0"},
        {"{name: int8, block: 1048577}", "codec:1:21: block must be at most 1048576, got 1048577"},
        {"{name: int8, scale: fp16}", "codec:1:21: scale: expected one of fp32, bf16, got 'fp16'"},
        {"{name: fp8, format: e3m4}", "codec:1:21: format: expected one of e4m3, e5m2, got 'e3m4'"},
        {"{name: fp8, scale: fp32}", "codec:1:13: unknown key 'scale'; known are: block, format, name"},
        {"{name: topk, ratio: 0}", "codec:1:1: topk: ratio must be greater than 0 and at most 1"},
        {"{name: topk, ratio: 1.5}", "codec:1:21: ratio must be at most 1, got 1.5"},
        {"{name: topk, k: 0}", "codec:1:17: k must be at least 1, got 0"},
        {"{name: topk, k: 3, ratio: 0.1}", "codec:1:1: topk: k and ratio say the same; one of them is enough"},
        {"{name: topk, error_feedback: no}", "codec:1:30: error_feedback: expected true or false, got 'no'"},
        {"{name: topk, error_feedback: false, decay: 1}", "codec:1:1: topk: decay needs error_feedback"},
        {"{name: sparse, p: 0}", "codec:1:1: sparse: p must be greater than 0 and at most 1"},
        {"{name: sparse, selector: rand}",
         "codec:1:26: selector: expected one of random, shuffled_sequential, partitioned, got 'rand'"},
        {"{name: zstd, level: 20}", "codec:1:21: level must be at most 19, got 20"},
        {"{name: lz4, level: 1}", "codec:1:13: unknown key 'level'; known are: name"},
        {"[bf16, topk]", "codec:1:8: topk cannot come after bf16: " ORDER},
        {"[zstd, bf16]", "codec:1:8: bf16 cannot come after zstd: " ORDER},
        {"[topk,\n {name: sparse}]", "codec:2:2: sparse after topk: a chain has one selection at most"},
        {"[topk, fp16, bf16]", "codec:1:14: bf16 after fp16: a chain has one codec of values at most"},
        {"[zstd, lz4, zstd]", "codec:1:13: zstd: a chain has two lossless codecs at most"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_codec_parse(&codec, cases[c].text, &err), EXO_INVAL, "%s", cases[c].text);
        cr_expect_str_eq(err.text, cases[c].want);
        cr_expect_null(codec);
    }
}

Test(codec, refuses_slots_and_lengths_that_it_cannot_have)
{
    exo_codec *codec = codec_of("{name: topk, k: 1}"), *raw = codec_of("raw");
    const exo_codec_place place = {.slot = 16};
    float x[1] = {1};
    uint8_t out[64];
    size_t size = 0;
    cr_expect_eq(exo_codec_encode(codec, &place, x, 1, out, &size, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_decode(codec, &place, out, 8, x, 1, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_encode(codec, NULL, x, (size_t)1 << 32, out, &size, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_encode(raw, NULL, x, SIZE_MAX / 2, out, &size, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_bound(raw, SIZE_MAX / 2), SIZE_MAX);
    cr_expect_eq(exo_codec_bytes_bound(raw, SIZE_MAX), SIZE_MAX);
    exo_codec_free(&codec);
    exo_codec_free(&raw);
    exo_codec_free(&codec);
    exo_codec_free(NULL);
}

Test(codec, all_are_listed)
{
    const char *name = NULL, *help = NULL;
    size_t i = 0;
    for (; exo_codec_at(i, &name, &help); i++) {
        exo_codec *codec = codec_of(name);
        cr_expect(*help);
        exo_codec_free(&codec);
    }
    cr_expect_eq(i, 11);
}

/* --- Faults ----------------------------------------------------------------------------------------------------------------- */

Test(codec, every_failed_allocation_is_an_error_and_leaks_nothing)
{
    enum {
        N = 2000
    };
    float *x = noise(N, 13), y[N];
    for (size_t c = 0; c < CHAINS; c++) {
        exo_status st = EXO_NOMEM;
        uint64_t n = 1;
        for (; st != EXO_OK; n++) {
            exo_codec *codec = NULL;
            exo_err err = {0};
            exo_memory_fail_at(n);
            st = exo_codec_parse(&codec, chains[c], &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && !codec && err.text[0]), "%s: %s", chains[c], err.text);
            exo_codec_free(&codec);
        }
        cr_expect_gt(n, 2);
        st = EXO_NOMEM;
        for (n = 1; st != EXO_OK; n++) {
            exo_codec *codec = codec_of(chains[c]);
            exo_err err = {0};
            size_t size = 0;
            uint8_t *bytes = exo_calloc(exo_codec_bound(codec, N), 1);
            exo_memory_fail_at(n);
            st = exo_codec_encode(codec, NULL, x, N, bytes, &size, &err);
            if (st == EXO_OK)
                st = exo_codec_decode(codec, NULL, bytes, size, y, N, &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s: %s", chains[c], err.text);
            exo_free(bytes);
            exo_codec_free(&codec);
        }
    }
    exo_free(x);
}

/* An encoding that failed has not happened: the next one gives what a stream without the failure gives. */
Test(codec, a_failed_encoding_changes_nothing)
{
    enum {
        N = 300
    };
    const char *text = "[{name: topk, ratio: 0.05}, bf16, zstd]";
    float *x = noise(N, 14), *z = noise(N, 15);
    exo_codec *sure = codec_of(text);
    size_t want_size = 0;
    exo_free(encode(sure, NULL, x, N, &want_size));
    uint8_t *want = encode(sure, NULL, z, N, &want_size);
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_codec *codec = codec_of(text);
        size_t size = 0;
        uint8_t *bytes = exo_calloc(exo_codec_bound(codec, N), 1);
        exo_memory_fail_at(n);
        st = exo_codec_encode(codec, NULL, x, N, bytes, &size, NULL);
        exo_memory_fail_at(0);
        if (st != EXO_OK)
            cr_assert_eq(exo_codec_encode(codec, NULL, x, N, bytes, &size, NULL), EXO_OK);
        cr_assert_eq(exo_codec_encode(codec, NULL, z, N, bytes, &size, NULL), EXO_OK);
        cr_assert_eq(size, want_size);
        cr_expect_eq(memcmp(bytes, want, size), 0);
        exo_free(bytes);
        exo_codec_free(&codec);
    }
    exo_free(want);
    exo_free(x);
    exo_free(z);
    exo_codec_free(&sure);
}
