/* The bytes of codecs: chains, lossless compression of bytes, and bytes that were cut, altered or
 * not made by an encoder. The tests have no shared state. Read next: runtime/codec/codec_impl.h. */
#include <criterion/criterion.h>

#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>

#include "codec/checksum.h"
#include "codec/codec_impl.h"
#include "support/codecs.h"

/* --- Chains ----------------------------------------------------------------------------------- */

Test(codec_bytes, a_chain_gives_what_its_codecs_give_one_after_the_other)
{
    float *x = codec_noise(CODEC_LARGE, 11);
    for (size_t c = 0; c < CODEC_CHAINS; c++) {
        for (size_t s = 0; s < CODEC_SIZES; s++) {
            size_t n = codec_sizes[s], size = 0;
            const exo_codec_place place = {.round = 2, .seed = 9};
            exo_codec *sender = codec_of(codec_chains[c]), *receiver = codec_of(codec_chains[c]);
            float *y = exo_calloc(n, sizeof *y);
            uint8_t *bytes = codec_encode(sender, &place, x, n, &size);
            codec_decode(receiver, &place, bytes, size, y, n);
            if (exo_codec_is_lossless(sender)) {
                cr_expect_eq(memcmp(x, y, n * sizeof *x), 0, "%s of %zu", codec_chains[c], n);
            } else if (strstr(codec_chains[c], "topk") == NULL &&
                       strstr(codec_chains[c], "sparse") == NULL) {
                float *z = codec_through(strstr(codec_chains[c], "int4") ? "int4" : "bf16", x, n);
                codec_expect_same(y, z, n, codec_chains[c]);
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

Test(codec_bytes, lossless_ones_compress_what_can_be_compressed)
{
    float *x = exo_calloc(CODEC_LARGE, sizeof *x);
    static const char *const texts[] = {"zstd", "lz4", "[lz4, zstd]", "[bf16, zstd]"};
    for (size_t c = 0; c < 4; c++) {
        exo_codec *codec = codec_of(texts[c]);
        size_t size = 0;
        exo_free(codec_encode(codec, NULL, x, CODEC_LARGE, &size));
        cr_expect_lt(size, CODEC_LARGE / 40);
        cr_expect_not(exo_codec_size(codec, CODEC_LARGE, &size));
        exo_codec_free(&codec);
    }
    exo_free(x);
}

Test(codec_bytes, bytes_go_through_the_lossless_end)
{
    enum {
        N = 3000000
    };
    uint8_t *in = exo_calloc(N, 1), *back = exo_calloc(N, 1);
    for (size_t i = 0; i < N; i++)
        in[i] = (uint8_t)(i * i >> 7);
    for (size_t c = 0; c < CODEC_CHAINS; c++) {
        exo_codec *codec = codec_of(codec_chains[c]);
        exo_err err = {0};
        for (size_t n = 0; n <= N; n = n * 7 + 1) {
            size_t size = 0;
            uint8_t *out = exo_calloc(exo_codec_bytes_bound(codec, n), 1);
            cr_assert_eq(exo_codec_encode_bytes(codec, in, n, out, &size, &err), EXO_OK, "%s",
                         err.text);
            cr_expect_leq(size, exo_codec_bytes_bound(codec, n));
            memset(back, 0, n);
            cr_assert_eq(exo_codec_decode_bytes(codec, out, size, back, n, &err), EXO_OK, "%s",
                         err.text);
            cr_expect_eq(memcmp(in, back, n), 0);
            if (n > 0 && n < 1000) {
                cr_expect_eq(exo_codec_decode_bytes(codec, out, size, back, n - 1, &err),
                             EXO_INVAL);
                cr_expect_eq(exo_codec_decode_bytes(codec, out, size, back, n + 1, &err),
                             EXO_INVAL);
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

/* --- Wrong bytes ------------------------------------------------------------------------------ */

static const char *const altered[] = {
    "raw",
    "fp16",
    "bf16",
    "fp8",
    "{name: fp8, format: e5m2, block: 0}",
    "int8",
    "int4",
    "e3m0",
    "bins",
    "{name: topk, ratio: 0.1}",
    "{name: topk, ratio: 0.3, block: 32, error_feedback: false}",
    "{name: sparse, p: 0.3}",
    "zstd",
    "lz4",
    "[lz4, zstd]",
    "[{name: topk, ratio: 0.1}, bf16, zstd]",
};

Test(codec_bytes, cut_lengthened_and_altered_bytes_are_refused)
{
    enum {
        N = 75
    };
    float *x = codec_noise(N, 12), y[N + 1];
    for (size_t c = 0; c < sizeof altered / sizeof *altered; c++) {
        exo_codec *codec = codec_of(altered[c]);
        exo_err err = {0};
        size_t size = 0;
        uint8_t *bytes = codec_encode(codec, NULL, x, N, &size), *longer = exo_calloc(size + 1, 1);
        memcpy(longer, bytes, size);
        for (size_t cut = 0; cut < size; cut++) {
            /* allocated with that size, so that the sanitizer sees accesses beyond it */
            uint8_t *shorter = exo_calloc(cut, 1);
            memcpy(shorter, bytes, cut);
            cr_assert_eq(exo_codec_decode(codec, NULL, shorter, cut, y, N, &err), EXO_INVAL,
                         "%s: %zu", altered[c], cut);
            exo_free(shorter);
        }
        cr_expect_eq(exo_codec_decode(codec, NULL, longer, size + 1, y, N, &err), EXO_INVAL);
        cr_expect_eq(exo_codec_decode(codec, NULL, bytes, size, y, N + 1, &err), EXO_INVAL, "%s",
                     altered[c]);
        cr_expect_eq(exo_codec_decode(codec, NULL, bytes, size, y, N - 1, &err), EXO_INVAL, "%s",
                     altered[c]);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            cr_assert_eq(exo_codec_decode(codec, NULL, bytes, size, y, N, &err), EXO_INVAL,
                         "%s: bit %zu", altered[c], bit);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t at = 0; at < size; at++) {
            for (unsigned change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                cr_assert_eq(exo_codec_decode(codec, NULL, bytes, size, y, N, &err), EXO_INVAL,
                             "%s: byte %zu", altered[c], at);
                bytes[at] ^= (uint8_t)change;
            }
        }
        codec_decode(codec, NULL, bytes, size, y, N);
        exo_free(bytes);
        exo_free(longer);
        exo_codec_free(&codec);
    }
    exo_free(x);
}

Test(codec_bytes, the_bytes_of_another_codec_are_refused)
{
    static const char *const texts[] = {"fp16", "bf16"};
    float x[10] = {1, 2, 3}, y[10];
    exo_codec *sender = codec_of(texts[0]), *receiver = codec_of(texts[1]);
    exo_err err = {0};
    size_t size = 0;
    uint8_t *bytes = codec_encode(sender, NULL, x, 10, &size);
    cr_expect_eq(exo_codec_decode(receiver, NULL, bytes, size, y, 10, &err), EXO_INVAL);
    cr_expect_str_eq(
        err.text,
        "codec bf16: 24 bytes were altered, cut, or made by another codec or for another place: "
        "their check is wrong");
    cr_expect_eq(exo_codec_decode(receiver, NULL, bytes, size, y, 9, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "codec bf16: 24 bytes instead of 22 for 9 elements");
    exo_free(bytes);
    exo_codec_free(&sender);
    exo_codec_free(&receiver);
}

/* Bytes that no encoder makes, with a right check: the decoder refuses them for their content. */
Test(codec_bytes, what_no_encoder_makes_is_refused_behind_a_right_check)
{
    static const struct {
        const char *text;
        size_t count, size;
        uint8_t bytes[24];
        bool right; /* a valid encoding, which shows that the other bytes of the cases are right */
    } cases[] = {
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x3F, 1, 2, 0x81, 4}, true},
        /* -128 */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x3F, 1, 2, 0x80, 4}, false},
        /* a negative scale */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0xBF, 1, 2, 3, 4}, false},
        /* the scale is NaN */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0xC0, 0x7F, 1, 2, 3, 4}, false},
        /* the scale is infinite */
        {"{name: int8, block: 4}", 4, 8, {0, 0, 0x80, 0x7F, 1, 2, 3, 4}, false},
        /* the scale is subnormal */
        {"{name: int8, block: 4}", 4, 8, {1, 0, 0, 0, 1, 2, 3, 4}, false},
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x0F}, true},
        /* -8 */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x81, 0x0F}, false},
        /* -8 in the last byte */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x08}, false},
        /* the unused half of the last byte is not 0 */
        {"{name: int4, block: 3}", 3, 4, {0x80, 0x3F, 0x71, 0x1F}, false},
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0xF1, 0x0F}, true},
        /* -0 */
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0x18, 0x0F}, false},
        {"{name: e3m0, block: 3}", 3, 4, {0x80, 0x3F, 0xF1, 0x2F}, false},
        {"{name: bins, block: 3}", 3, 9, {0x80, 0xBF, 0, 0, 0, 0, 0x80, 0x3F, 0x34}, true},
        /* an infinite mean */
        {"{name: bins, block: 3}", 3, 9, {0x80, 0xFF, 0, 0, 0, 0, 0x80, 0x3F, 0x34}, false},
        /* the unused bits are not 0 */
        {"{name: bins, block: 3}", 3, 9, {0x80, 0xBF, 0, 0, 0, 0, 0x80, 0x3F, 0x74}, false},
        {"fp8", 2, 3, {247, 1, 2}, true},
        {"fp8", 2, 3, {248, 1, 2}, false}, /* a scale beyond the largest float */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x31, 1, 2}, true},  /* 1, 3 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x33, 1, 2}, false}, /* 3, 3 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0x13, 1, 2}, false}, /* 3, 1 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 10, 3, {0xA3, 1, 2}, false}, /* 3, 10 */
        /* bits 0 and 4 of 5 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x11, 1, 2}, true},
        /* a bit beyond 5 */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x31, 1, 2}, false},
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x13, 1, 2}, false}, /* three bits */
        {"[{name: topk, k: 2}, {name: fp8, block: 0}]", 5, 3, {0x10, 1, 2}, false}, /* one bit */
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, true},
        /* another size before compression */
        {"lz4", 1, 17, {5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        {"lz4", 1, 17, {3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        /* another compressed length */
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0x40, 1, 2, 3, 4}, false},
        /* not lz4 */
        {"lz4", 1, 17, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x30, 1, 2, 3, 4}, false},
        {"lz4", 1, 7, {4, 0, 0, 0, 0, 0, 0}, false},
        {"lz4", 1, 11, {4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0}, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_codec *codec = codec_of(cases[c].text);
        const exo_codec_place place = {0};
        exo_err err = {0};
        uint8_t bytes[28];
        float y[10];
        uint32_t check =
            exo_codec_check(codec, &place, cases[c].count, cases[c].bytes, cases[c].size);
        memcpy(bytes, cases[c].bytes, cases[c].size);
        memcpy(bytes + cases[c].size, &check, CODEC_CHECK);
        exo_status st = exo_codec_decode(codec, &place, bytes, cases[c].size + CODEC_CHECK, y,
                                         cases[c].count, &err);
        cr_expect_eq(st, cases[c].right ? EXO_OK : EXO_INVAL, "case %zu, %s: %s", c, cases[c].text,
                     err.text);
        exo_codec_free(&codec);
    }
}

/* The guarantee of the check, for lengths with each kind of remainder, and for several pieces. */
Test(codec_bytes, the_check_shows_every_change_within_a_word)
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
