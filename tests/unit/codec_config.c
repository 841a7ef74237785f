/* Codecs in configs: their texts, their properties, errors, the list of codecs; and failed
 * allocations. The tests have no shared state. Read next: exogym/codec.h. */
#include <criterion/criterion.h>

#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "support/codecs.h"

/* --- Configs ---------------------------------------------------------------------------------- */

Test(codec_config, its_text_makes_the_same_codec)
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
        {"bins", "{name: bins, block: 256, scale: bf16}"},
        {"topk", "{name: topk, ratio: 0.01, block: 0, error_feedback: true, decay: 1}"},
        {"{name: topk, k: 10, decay: 0.9}",
         "{name: topk, k: 10, block: 0, error_feedback: true, decay: 0.9}"},
        {"{name: topk, ratio: 1e-05, error_feedback: false, block: 9}",
         "{name: topk, ratio: 1e-05, block: 9, error_feedback: false}"},
        {"sparse", "{name: sparse, p: 0.005, selector: random}"},
        {"[{name: topk, ratio: 0.01}, bf16, zstd]",
         "[{name: topk, ratio: 0.01, block: 0, error_feedback: true, decay: 1}, bf16, {name: zstd, "
         "level: 3}]"},
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

Test(codec_config, says_what_it_keeps)
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

#define ORDER                                                                                      \
    "first a selection (topk, sparse), then one codec of values, then lossless ones (zstd, lz4)"

Test(codec_config, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"bf15", "codec:1:1: there is no codec 'bf15'; did you mean 'bf16'?"},
        {"huffman",
         "codec:1:1: there is no codec 'huffman'; known are: bf16, bins, e3m0, fp16, fp8, "
         "int4, int8, lz4, raw, sparse, "
         "topk, zstd"},
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
        {"{name: fp8, scale: fp32}",
         "codec:1:13: unknown key 'scale'; known are: block, format, name"},
        {"{name: topk, ratio: 0}", "codec:1:1: topk: ratio must be greater than 0 and at most 1"},
        {"{name: topk, ratio: 1.5}", "codec:1:21: ratio must be at most 1, got 1.5"},
        {"{name: topk, k: 0}", "codec:1:17: k must be at least 1, got 0"},
        {"{name: topk, k: 3, ratio: 0.1}",
         "codec:1:1: topk: k and ratio say the same; one of them is enough"},
        {"{name: topk, error_feedback: no}",
         "codec:1:30: error_feedback: expected true or false, got 'no'"},
        {"{name: topk, error_feedback: false, decay: 0.5}",
         "codec:1:1: topk: decay needs error_feedback"},
        {"{name: sparse, p: 0}", "codec:1:1: sparse: p must be greater than 0 and at most 1"},
        {"{name: sparse, selector: rand}", "codec:1:26: selector: expected one of random, "
                                           "shuffled_sequential, partitioned, got 'rand'"},
        {"{name: zstd, level: 20}", "codec:1:21: level must be at most 19, got 20"},
        {"{name: lz4, level: 1}", "codec:1:13: unknown key 'level'; known are: name"},
        {"[bf16, topk]", "codec:1:8: topk cannot come after bf16: " ORDER},
        {"[zstd, bf16]", "codec:1:8: bf16 cannot come after zstd: " ORDER},
        {"[topk,\n {name: sparse}]",
         "codec:2:2: sparse after topk: a chain has one selection at most"},
        {"[topk, fp16, bf16]",
         "codec:1:14: bf16 after fp16: a chain has one codec of values at most"},
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

Test(codec_config, refuses_slots_and_lengths_that_it_cannot_have)
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

Test(codec_config, all_are_listed)
{
    const char *name = NULL, *help = NULL;
    size_t i = 0;
    for (; exo_codec_at(i, &name, &help); i++) {
        exo_codec *codec = codec_of(name);
        cr_expect(*help);
        exo_codec_free(&codec);
    }
    cr_expect_eq(i, 12);
}

/* --- Faults ----------------------------------------------------------------------------------- */

Test(codec_config, every_failed_allocation_is_an_error_and_leaks_nothing)
{
    enum {
        N = 2000
    };
    float *x = codec_noise(N, 13), y[N];
    for (size_t c = 0; c < CODEC_CHAINS; c++) {
        exo_status st = EXO_NOMEM;
        uint64_t n = 1;
        for (; st != EXO_OK; n++) {
            exo_codec *codec = NULL;
            exo_err err = {0};
            exo_memory_fail_at(n);
            st = exo_codec_parse(&codec, codec_chains[c], &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && !codec && err.text[0]), "%s: %s",
                      codec_chains[c], err.text);
            exo_codec_free(&codec);
        }
        cr_expect_gt(n, 2);
        st = EXO_NOMEM;
        for (n = 1; st != EXO_OK; n++) {
            exo_codec *codec = codec_of(codec_chains[c]);
            exo_err err = {0};
            size_t size = 0;
            uint8_t *bytes = exo_calloc(exo_codec_bound(codec, N), 1);
            exo_memory_fail_at(n);
            st = exo_codec_encode(codec, NULL, x, N, bytes, &size, &err);
            if (st == EXO_OK)
                st = exo_codec_decode(codec, NULL, bytes, size, y, N, &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s: %s", codec_chains[c],
                      err.text);
            exo_free(bytes);
            exo_codec_free(&codec);
        }
    }
    exo_free(x);
}

/* A failed encoding changes no state: the next encoding gives the bytes of a stream without the
 * failure. */
Test(codec_config, a_failed_encoding_changes_nothing)
{
    enum {
        N = 300
    };
    const char *text = "[{name: topk, ratio: 0.05}, bf16, zstd]";
    float *x = codec_noise(N, 14), *z = codec_noise(N, 15);
    exo_codec *sure = codec_of(text);
    size_t want_size = 0;
    exo_free(codec_encode(sure, NULL, x, N, &want_size));
    uint8_t *want = codec_encode(sure, NULL, z, N, &want_size);
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
