/* Codecs that select elements: topk against a plain reference, the error feedback of topk, and
 * sparse with each selector. The tests have no shared state. Read next:
 * runtime/codec/codec_impl.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>
#include <exogym/rng.h>
#include <exogym/select.h>

#include "support/codecs.h"

/* --- topk ------------------------------------------------------------------------------------- */

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

/* Writes the k largest of each block of x to y, and 0 elsewhere. */
static void
topk_reference(const float *x, float *y, size_t n, size_t block, double ratio, size_t k)
{
    size_t step = block && block < n ? block : n;
    memset(y, 0, n * sizeof *y);
    for (size_t at = 0; at < n; at += step) {
        size_t here = n - at < step ? n - at : step,
               kept = k ? k : (size_t)ceil(ratio * (double)here - 1e-9);
        kept = kept < 1 ? 1 : kept > here ? here : kept;
        struct ranked *r = exo_calloc(here, sizeof *r);
        for (size_t i = 0; i < here; i++)
            r[i] = (struct ranked){codec_bits(x[at + i]) & 0x7FFFFFFFu, (uint32_t)i};
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

Test(codec_selection, topk_keeps_the_largest_of_each_block)
{
    float *x = codec_noise(CODEC_LARGE, 6), *want = exo_calloc(CODEC_LARGE, sizeof *want),
          *y = exo_calloc(CODEC_LARGE, sizeof *y);
    for (size_t c = 0; c < sizeof topk_cases / sizeof *topk_cases; c++) {
        exo_codec *codec = topk_of(&topk_cases[c], false);
        for (size_t s = 0; s < CODEC_SIZES; s++) {
            size_t n = codec_sizes[s], size = 0;
            topk_reference(x, want, n, topk_cases[c].block, topk_cases[c].ratio, topk_cases[c].k);
            uint8_t *bytes = codec_encode(codec, NULL, x, n, &size);
            codec_decode(codec, NULL, bytes, size, y, n);
            codec_expect_same(y, want, n, exo_codec_text(codec));
            exo_free(bytes);
        }
        exo_codec_free(&codec);
    }
    exo_free(x);
    exo_free(want);
    exo_free(y);
}

/* Equal magnitudes, arrays whose samples mislead, and values that are not finite: topk is exact for
 * them, too. */
Test(codec_selection, topk_is_exact_for_arrays_that_are_unlike_gradients)
{
    float *x = exo_calloc(CODEC_LARGE, sizeof *x), *want = exo_calloc(CODEC_LARGE, sizeof *want);
    for (int kind = 0; kind < 5; kind++) {
        float *noisy = codec_noise(CODEC_LARGE, 7);
        for (size_t i = 0; i < CODEC_LARGE; i++) {
            if (kind == 0)
                x[i] = i % 2 ? 1.0f : -1.0f;
            else if (kind == 1)
                x[i] = i % (CODEC_LARGE / 8192) == 0 ? 1000.0f + (float)(i % 977) : noisy[i];
            else if (kind == 2)
                x[i] = (float)i * (i % 3 ? 1.0f : -1.0f);
            else if (kind == 3)
                x[i] = i % 5000 == 17 ? NAN : i % 5000 == 18 ? -INFINITY : noisy[i];
            else
                x[i] = i < CODEC_LARGE - 3000 ? 0.0f : noisy[i];
        }
        topk_reference(x, want, CODEC_LARGE, 0, 0.01, 0);
        float *y =
            codec_through("{name: topk, ratio: 0.01, error_feedback: false}", x, CODEC_LARGE);
        codec_expect_same(y, want, CODEC_LARGE, "topk");
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

Test(codec_selection, topk_sizes_are_the_formula)
{
    for (size_t c = 0; c < sizeof topk_cases / sizeof *topk_cases; c++) {
        exo_codec *codec = topk_of(&topk_cases[c], true);
        for (size_t s = 0; s < CODEC_SIZES; s++) {
            size_t n = codec_sizes[s], size = 0, bits = 0, values = 0;
            size_t step = topk_cases[c].block && topk_cases[c].block < n ? topk_cases[c].block
                          : n                                            ? n
                                                                         : 1;
            for (size_t at = 0; at < n; at += step) {
                size_t here = n - at < step ? n - at : step;
                size_t k = topk_cases[c].k
                               ? topk_cases[c].k
                               : (size_t)ceil(topk_cases[c].ratio * (double)here - 1e-9);
                k = k < 1 ? 1 : k > here ? here : k;
                size_t list = k * width(here);
                bits += k == here ? 0 : list < here ? list : here;
                values += 4 * k;
            }
            cr_assert(exo_codec_size(codec, n, &size));
            cr_expect_eq(size, (bits + 7) / 8 + values + CODEC_CHECK, "%s of %zu: %zu",
                         exo_codec_text(codec), n, size);
        }
        exo_codec_free(&codec);
    }
}

/* Small integers are not rounded, so the sum of the inputs equals the sum of what was sent and what
 * is left, to the bit. */
Test(codec_selection, error_feedback_loses_nothing)
{
    enum {
        N = 500,
        ROUNDS = 40
    };
    static const char *const texts[] = {
        "{name: topk, ratio: 0.05}", "[{name: topk, ratio: 0.1, block: 64}, zstd]",
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
            /* zeros at the end, so that everything that was left is sent */
            for (size_t i = 0; i < N; i++) {
                x[i] = round < ROUNDS ? (float)(int)exo_rng_below(&rng, 201) - 100 : 0.0f;
                in[round % 2][i] += (double)x[i];
            }
            size_t size = 0;
            uint8_t *bytes = codec_encode(sender, &place, x, N, &size);
            codec_decode(receiver, &place, bytes, size, y, N);
            for (size_t i = 0; i < N; i++)
                out[round % 2][i] += (double)y[i];
            exo_free(bytes);
        }
        for (size_t i = 0; i < N; i++) {
            double tolerance = strstr(texts[c], "int8") ? 1 : strstr(texts[c], "bf16") ? 0.5 : 0;
            for (size_t slot = 0; slot < 2; slot++)
                cr_assert(fabs(in[slot][i] - out[slot][i]) <= tolerance,
                          "%s: %g came in, %g was sent", texts[c], in[slot][i], out[slot][i]);
        }
        exo_codec_free(&sender);
        exo_codec_free(&receiver);
    }
}

Test(codec_selection, error_feedback_decays_and_begins_anew_with_another_length)
{
    exo_codec *codec = codec_of("{name: topk, k: 1, decay: 0.5}");
    float x[4] = {8, 4, 0, 0}, y[4];
    static const float want[][4] = {{8, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 0, 0}};
    for (size_t round = 0; round < 3; round++) {
        size_t size = 0;
        uint8_t *bytes = codec_encode(codec, NULL, x, 4, &size);
        codec_decode(codec, NULL, bytes, size, y, 4);
        cr_expect_arr_eq(y, want[round], sizeof y, "round %zu: %g %g", round, (double)y[0],
                         (double)y[1]);
        memset(x, 0, sizeof x);
        exo_free(bytes);
    }
    float three[3] = {3, 2, 1}, nothing[4] = {0};
    size_t size = 0;
    exo_free(codec_encode(codec, NULL, three, 3, &size));
    uint8_t *bytes = codec_encode(codec, NULL, nothing, 4, &size);
    codec_decode(codec, NULL, bytes, size, y, 4);
    cr_expect_arr_eq(y, nothing, sizeof y);
    exo_free(bytes);
    exo_codec_free(&codec);
}

Test(codec_selection, error_feedback_keeps_nothing_of_what_is_not_finite)
{
    exo_codec *codec = codec_of("[{name: topk, k: 2}, {name: fp8, block: 0}]");
    float x[4] = {NAN, 1, INFINITY, 0.5f}, y[4], zero[4] = {0};
    size_t size = 0;
    uint8_t *bytes = codec_encode(codec, NULL, x, 4, &size);
    codec_decode(codec, NULL, bytes, size, y, 4);
    cr_expect(isnan(y[0]) && y[1] == 0 && y[2] == 448 && y[3] == 0);
    exo_free(bytes);
    bytes = codec_encode(codec, NULL, zero, 4, &size);
    codec_decode(codec, NULL, bytes, size, y, 4);
    cr_expect(y[0] == 0 && y[1] == 1 && y[2] == 0 && y[3] == 0.5f);
    exo_free(bytes);
    exo_codec_free(&codec);
}

/* --- sparse ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    exo_select_kind kind;
} selectors[] = {{"random", EXO_SELECT_RANDOM},
                 {"shuffled_sequential", EXO_SELECT_SHUFFLED_SEQUENTIAL},
                 {"partitioned", EXO_SELECT_PARTITIONED}};

Test(codec_selection, sparse_sends_what_the_selector_says_and_no_indices)
{
    float *x = codec_noise(1003, 9), y[1003], want[1003];
    for (size_t k = 0; k < 3; k++) {
        char text[80];
        snprintf(text, sizeof text, "{name: sparse, p: 0.1, selector: %s}", selectors[k].name);
        exo_codec *sender = codec_of(text), *receiver = codec_of(text);
        exo_selector *selector = NULL;
        cr_assert_eq(exo_selector_new(&selector, selectors[k].kind, 0.1, 1003, 77, NULL), EXO_OK);
        cr_expect_not(exo_codec_is_stateless(sender));
        for (uint64_t round = 0; round < 25; round++) {
            const exo_codec_place place = {
                .slot = (uint32_t)(round % 3), .round = round, .seed = 77};
            const uint32_t *index = NULL;
            size_t n = exo_selector_round(selector, round, &index), size = 0;
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < n; i++)
                want[index[i]] = x[index[i]];
            uint8_t *bytes = codec_encode(sender, &place, x, 1003, &size);
            cr_expect_eq(size, 4 * n + CODEC_CHECK);
            codec_decode(receiver, &place, bytes, size, y, 1003);
            cr_expect_arr_eq(y, want, sizeof y);
            exo_free(bytes);
        }
        exo_selector_free(&selector);
        exo_codec_free(&sender);
        exo_codec_free(&receiver);
    }
    exo_free(x);
}

Test(codec_selection, sparse_of_another_round_or_seed_is_refused)
{
    exo_codec *codec = codec_of("{name: sparse, p: 0.1, selector: partitioned}");
    float *x = codec_noise(1000, 10), y[1000];
    const exo_codec_place place = {.round = 5, .seed = 1}, round = {.round = 6, .seed = 1},
                          seed = {.round = 5, .seed = 2};
    size_t size = 0, exact = 0;
    uint8_t *bytes = codec_encode(codec, &place, x, 1000, &size);
    /* 10 parts of 100 */
    cr_expect(exo_codec_size(codec, 1000, &exact) && exact == 400 + CODEC_CHECK);
    cr_expect_not(exo_codec_size(codec, 1001, &exact)); /* one of the parts has 101 */
    cr_expect_eq(exo_codec_decode(codec, &round, bytes, size, y, 1000, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_decode(codec, &seed, bytes, size, y, 1000, NULL), EXO_INVAL);
    cr_expect_eq(exo_codec_decode(codec, &place, bytes, size, y, 1000, NULL), EXO_OK);
    exo_free(bytes);
    exo_free(x);
    exo_codec_free(&codec);
}
