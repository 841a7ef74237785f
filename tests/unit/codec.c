/* Codecs of values: each is compared with a plain reference below. Other tests: exact sizes, bounds
 * of errors, and the same bits with any number of threads and any compiler. The tests have no
 * shared state.
 *
 * Read next: codec_selection.c, codec_bytes.c and codec_config.c beside this file. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>
#include <exogym/tensor.h>

#include "codec/checksum.h"
#include "support/codecs.h"

static float
float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- References ------------------------------------------------------------------------------- */

/* They compute in double precision, in which each product and quotient of these formats is exact or
 * rounded once. */

/* x to the nearest multiple of 2^exponent, ties to even. */
static double
to_multiple(double x, int exponent)
{
    return ldexp(nearbyint(ldexp(x, -exponent)), exponent);
}

/* Rounds to `mantissa` bits, with exponents from `least` on. */
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
    for (int e = 1; e <= 7;
         e++) { /* the nearer of neighbours; of two equally near ones that with the even code */
        float value = ldexpf(1.0f, e - 7), before = e > 1 ? value / 2 : 0,
              middle = (before + value) / 2;
        if (u > middle || (u == middle && e % 2 == 0))
            best = value;
    }
    float y = best * scale;
    return best > 0 ? copysignf(y, x) : 0;
}

/* Each value becomes the mean of those of its sign that are, as it is, above or below the mean of
 * that sign. */
static void
bins_reference(const float *x, float *y, size_t n, bool bf16)
{
    const float largest = largest_of(x, n);
    for (size_t i = 0; i < n; i++)
        y[i] = isnan(x[i]) ? 0 : fminf(fmaxf(x[i], -largest), largest);
    double mean[2] = {0}, count[2] = {0}, bin_mean[4] = {0}, bin_count[4] = {0};
    for (size_t i = 0; i < n; i++) {
        mean[y[i] >= 0] += (double)y[i];
        count[y[i] >= 0]++;
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            int sign = y[i] >= 0, bin = 2 * sign + ((double)y[i] >= mean[sign] / count[sign]);
            if (pass == 0) {
                bin_mean[bin] += (double)y[i];
                bin_count[bin]++;
                continue;
            }
            float value = (float)(bin_mean[bin] / bin_count[bin]);
            float rounded = bf16 ? bf16_reference(value) : value;
            y[i] = isinf(rounded) ? copysignf(0x1.FEp127f, rounded) : rounded;
        }
}

/* The values that a codec gives for x. */
static void
reference(const char *name, bool e5m2, bool bf16_scale, size_t block, const float *x, float *y,
          size_t n)
{
    size_t step = block ? block : n;
    for (size_t at = 0; at < n; at += step) {
        size_t end = n - at < step ? n : at + step;
        float largest = largest_of(x + at, end - at);
        float steps = strcmp(name, "int8") == 0 ? 127.0f : strcmp(name, "int4") == 0 ? 7.0f : 1.0f;
        float scale = scale_reference(largest, steps, bf16_scale);
        if (strcmp(name, "bins") == 0) {
            bins_reference(x + at, y + at, end - at, bf16_scale);
            continue;
        }
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
    {"{name: int8, block: 33, scale: bf16}", "int8", .block = 33, .bf16_scale = true,
     .size = {1, 2}},
    {"{name: int8, block: 65536}", "int8", .block = 65536, .size = {1, 4}},
    {"int4", "int4", .block = 128, .bf16_scale = true, .size = {0.5, 2}},
    {"{name: int4, block: 7, scale: fp32}", "int4", .block = 7, .size = {0.5, 4}},
    {"e3m0", "e3m0", .block = 128, .bf16_scale = true, .size = {0.5, 2}},
    {"{name: e3m0, block: 1, scale: fp32}", "e3m0", .block = 1, .size = {0.5, 4}},
    {"bins", "bins", .block = 256, .bf16_scale = true, .size = {0.25, 8}},
    {"{name: bins, block: 7, scale: fp32}", "bins", .block = 7, .size = {0.25, 16}},
};

enum {
    VALUE_CODECS = sizeof value_codecs / sizeof *value_codecs
};

Test(codec, gives_the_values_of_the_reference)
{
    float *x = codec_noise(CODEC_LARGE, 1), *want = exo_calloc(CODEC_LARGE, sizeof *want);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        for (size_t s = 0; s < CODEC_SIZES; s++) {
            reference(v->name, v->e5m2, v->bf16_scale, v->block, x, want, codec_sizes[s]);
            float *got = codec_through(v->text, x, codec_sizes[s]);
            codec_expect_same(got, want, codec_sizes[s], v->text);
            exo_free(got);
        }
    }
    exo_free(x);
    exo_free(want);
}

/* All signs and exponents, with the mantissas at which formats round, tie and overflow. */
Test(codec, rounds_every_kind_of_number_as_the_reference)
{
    static const uint32_t mantissas[] = {
        0,        1,        0x0FFF,   0x1000,   0x1001,   0x3000,   0x7FFF,   0x8000,
        0x8001,   0x18000,  0x7FFFF,  0x80000,  0x80001,  0xFFFFF,  0x100000, 0x100001,
        0x17FFFF, 0x180000, 0x1FFFFF, 0x200000, 0x3FFFFF, 0x400000, 0x400001, 0x5FFFFF,
        0x600000, 0x600001, 0x67FFFF, 0x680000, 0x680001, 0x7FF000, 0x7FF001, 0x7FFFFF};
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
        float *got = codec_through(v->text, x, n);
        codec_expect_same(got, want, n, v->text);
        exo_free(got);
    }
}

/* If the largest number of a block is just the format's largest, the scale stays 1. A larger scale
 * would round the smallest number to 0. */
Test(codec, the_scale_of_fp8_is_no_larger_than_it_must_be)
{
    const float x[2][2] = {{448, 0x1p-9f}, {57344, 0x1p-16f}};
    static const char *const texts[] = {"fp8", "{name: fp8, format: e5m2}"};
    for (size_t c = 0; c < 2; c++) {
        float *y = codec_through(texts[c], x[c], 2);
        codec_expect_same(y, x[c], 2, texts[c]);
        exo_free(y);
    }
}

Test(codec, every_code_of_the_small_floats_comes_back_as_itself)
{
    static float x[65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = float_of(i << 16);
    float *y = codec_through("bf16", x, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        cr_expect(isnan(x[i]) ? isnan(y[i]) : codec_bits(x[i]) == codec_bits(y[i]), "bf16 %04x", i);
    exo_free(y);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t exponent = i >> 10 & 31, mantissa = i & 1023;
        double value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        x[i] = exponent == 31 ? (mantissa ? NAN : INFINITY) : (float)value;
        x[i] = copysignf(x[i], i >> 15 ? -1.0f : 1.0f);
    }
    y = codec_through("fp16", x, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        cr_expect(isnan(x[i]) ? isnan(y[i]) : codec_bits(x[i]) == codec_bits(y[i]), "fp16 %04x", i);
    exo_free(y);
}

Test(codec, sizes_are_the_formulas)
{
    float *x = codec_noise(CODEC_LARGE, 2);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        exo_codec *codec = codec_of(v->text);
        for (size_t s = 0; s < CODEC_SIZES; s++) {
            size_t n = codec_sizes[s], exact = 0, size = 0, want = 0;
            size_t step = v->block ? v->block : n ? n : 1;
            for (size_t at = 0; at < n; at += step) { /* each block by itself, in whole bytes */
                size_t here = n - at < step ? n - at : step;
                want += (size_t)ceil(v->size[0] * (double)here) + (size_t)v->size[1];
            }
            cr_assert(exo_codec_size(codec, n, &exact));
            cr_expect_eq(exact, want + CODEC_CHECK, "%s of %zu: %zu, not %zu", v->text, n, exact,
                         want + CODEC_CHECK);
            cr_expect_eq(exo_codec_bound(codec, n), exact);
            uint8_t *bytes = codec_encode(codec, NULL, x, n, &size);
            cr_expect_eq(size, exact);
            exo_free(bytes);
        }
        exo_codec_free(&codec);
    }
    exo_free(x);
}

/* The bounds in docs/codecs.md. */
Test(codec, errors_are_within_their_bounds)
{
    enum {
        N = 10000
    };
    float *x = codec_noise(N, 3);
    for (size_t c = 0; c < VALUE_CODECS; c++) {
        const struct value_codec *v = &value_codecs[c];
        float *y = codec_through(v->text, x, N);
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
                bound = v->e5m2 ? fmax(size * 0x1p-3, largest * 0x1p-31)
                                : fmax(size * 0x1p-4, largest * 0x1p-17);
            else if (strcmp(v->name, "fp8") == 0)
                bound = v->e5m2 ? fmax(size * 0x1p-3, 0x1p-17) : fmax(size * 0x1p-4, 0x1p-10);
            else if (strcmp(v->name, "int8") == 0)
                bound = largest / 127 / 2 * (1 + 0x1p-7);
            else if (strcmp(v->name, "int4") == 0)
                bound = largest / 7 / 2 * (1 + 0x1p-7);
            else if (strcmp(v->name, "e3m0") == 0)
                bound = fmax(size / 3, largest * 0x1p-7) * (1 + 0x1p-6);
            else if (strcmp(v->name, "bins") == 0)
                bound = largest * (1 + 0x1p-7);
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
        float want[4]; /* for NaN, infinity, -infinity, and 1e38 in a block with 2 */
    } cases[] = {
        {"raw", {NAN, INFINITY, -INFINITY, 1e38f}},
        {"fp16", {NAN, INFINITY, -INFINITY, INFINITY}},
        {"{name: fp8, block: 0}", {NAN, 448, -448, 448}},
        {"{name: fp8, block: 0, format: e5m2}", {NAN, INFINITY, -INFINITY, 57344}},
    };
    const float x[] = {NAN, INFINITY, -INFINITY, 1e38f, 2};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float *y = codec_through(cases[c].text, x, 5);
        codec_expect_same(y, cases[c].want, 4, cases[c].text);
        cr_expect_eq(y[4], 2);
        exo_free(y);
    }
    static const char *const scaled[] = {"int8", "int4", "e3m0"};
    const float z[] = {NAN, INFINITY, -INFINITY, 2, -1}, want[] = {0, 2, -2, 2, -1};
    for (size_t c = 0; c < 3; c++) {
        float *y = codec_through(scaled[c], z, 5);
        for (size_t i = 0; i < 5; i++)
            cr_expect(fabsf(y[i] - want[i]) <= 0.15f, "%s: %g became %g", scaled[c], (double)z[i],
                      (double)y[i]);
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
                                        "bins",
                                        "{name: topk, ratio: 0.02}",
                                        "{name: topk, ratio: 0.02, block: 1000}",
                                        "[bf16, zstd]",
                                        "lz4"};
    enum {
        N = 1500001
    };
    float *x = codec_noise(N, 4);
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        exo_codec *one = codec_of(texts[c]), *four = codec_of(texts[c]);
        size_t size = 0, other = 0;
        exo_set_num_threads(1);
        uint8_t *a = codec_encode(one, NULL, x, N, &size);
        exo_set_num_threads(4);
        uint8_t *b = codec_encode(four, NULL, x, N, &other);
        cr_expect_eq(size, other);
        cr_expect_eq(memcmp(a, b, size), 0, "%s", texts[c]);
        float *y = exo_calloc(N, sizeof *y);
        codec_decode(four, NULL, b, other, y, N);
        exo_free(y);
        exo_free(a);
        exo_free(b);
        exo_codec_free(&one);
        exo_codec_free(&four);
    }
    exo_free(x);
}

/* The two ends of a stream may be built by different compilers for different processors. lz4 and
 * zstd are not tested here, because their bytes depend on the installed library. */
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
    float *x = codec_noise(5001, 5);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        const exo_codec_place place = {.round = 3, .seed = 42};
        size_t size = 0;
        uint8_t *bytes = codec_encode(codec, &place, x, 5001, &size);
        uint32_t check = exo_checksum(bytes, size, 0);
        cr_expect_eq(check, cases[c].check, "{\"%s\", 0x%08Xu},", cases[c].text, check);
        exo_free(bytes);
        exo_codec_free(&codec);
    }
    exo_free(x);
}
