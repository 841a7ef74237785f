/* Tokenizers against Hugging Face's library: the same tokens and the same text for every kind of
 * tokenizer in golden/tokenizers, for a corpus with every byte, and for random texts.
 * golden/tokenizer.py wrote the expected values. Each test is a process and owns `corpus`. Read
 * next: tests/golden/tokenizer.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tokenizer.h>

#include "../golden/tokenizer_golden.h"
#include "base/file.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    CORPUS_MOST = 20000,
    TEXT_MOST = 1 << 10,
};

/* --- The corpus ------------------------------------------------------------------------------- */

static char corpus[CORPUS_MOST]; /* all texts, one after another */
static size_t begins[GOLDEN_TEXTS + 1];

static void
read_corpus(void)
{
    char *file = NULL;
    size_t size = 0, at = 0;
    cr_assert_eq(exo_file_read(EXO_TEST_SOURCE_DIR "/golden/tokenizers/corpus.bin", CORPUS_MOST,
                               &file, &size, NULL),
                 EXO_OK);
    for (size_t i = 0; i < GOLDEN_TEXTS; i++) {
        cr_assert_leq(at + 2, size);
        size_t length = (unsigned char)file[at] | (size_t)(unsigned char)file[at + 1] << 8;
        cr_assert_leq(at + 2 + length, size);
        memcpy(corpus + begins[i], file + at + 2, length);
        begins[i + 1] = begins[i] + length;
        at += 2 + length;
    }
    cr_assert_eq(at, size);
    exo_free(file);
}

static exo_tokenizer *
load(const char *name)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/golden/tokenizers/%s", EXO_TEST_SOURCE_DIR, name);
    cr_assert_eq(exo_tokenizer_load(&t, path, &err), EXO_OK, "%s", err.text);
    return t;
}

static uint32_t
fnv(uint32_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 16777619u;
    return hash;
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void
expect_tokens(const struct golden_tokenizer *golden, size_t text, const int32_t *tokens,
              size_t count, const uint16_t *expected)
{
    cr_assert_eq(count, golden->counts[text], "%s, text %zu: %zu tokens, not %d", golden->name,
                 text, count, golden->counts[text]);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(tokens[i], expected[i], "%s, text %zu: token %zu is %d, not %d", golden->name,
                     text, i, tokens[i], expected[i]);
}

static void
expect_text(const exo_tokenizer *t, const struct golden_tokenizer *golden, size_t text,
            const int32_t *tokens, size_t count, bool special, uint32_t expected)
{
    char *out = NULL;
    size_t size = 0;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_decode(t, tokens, count, special, &out, &size, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(strlen(out) <= size, true);
    cr_expect_eq(fnv(2166136261u, out, size), expected, "%s, text %zu: special %d, '%s'",
                 golden->name, text, special, out);
    exo_free(out);
}

Test(tokenizer_golden, corpus)
{
    read_corpus();
    for (size_t k = 0; k < COUNT(golden_tokenizers); k++) {
        const struct golden_tokenizer *golden = &golden_tokenizers[k];
        exo_tokenizer *t = load(golden->name);
        const uint16_t *expected = golden->tokens;
        for (size_t i = 0; i < GOLDEN_TEXTS; i++) {
            const char *text = corpus + begins[i];
            size_t size = begins[i + 1] - begins[i], count = 0, before = golden->before_count;
            int32_t *tokens = NULL;
            exo_err err = {0};
            cr_assert_eq(exo_tokenizer_encode(t, text, size, false, &tokens, &count, &err), EXO_OK,
                         "%s", err.text);
            expect_tokens(golden, i, tokens, count, expected);
            exo_free(tokens);
            cr_assert_eq(exo_tokenizer_encode(t, text, size, true, &tokens, &count, &err), EXO_OK,
                         "%s", err.text);
            cr_assert_geq(count, before);
            cr_expect_arr_eq(tokens, golden->before, before * sizeof *tokens, "%s, text %zu",
                             golden->name, i);
            expect_tokens(golden, i, tokens + before, count - before, expected);
            expect_text(t, golden, i, tokens, count, true, golden->whole[i]);
            expect_text(t, golden, i, tokens, count, false, golden->skipped[i]);
            exo_free(tokens);
            expected += golden->counts[i];
        }
        exo_tokenizer_drop(&t);
    }
}

/* --- Random texts, as golden/tokenizer.py makes them ------------------------------------------ */

static uint64_t random_state;

static size_t
below(size_t n)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (size_t)((random_state * UINT64_C(0x2545F4914F6CDD1D) >> 33) % n);
}

static const uint32_t ranges[][2] = {{0x20, 0x7e},     {0xa1, 0x17f},    {0x370, 0x373},
                                     {0x3b1, 0x3c9},   {0x410, 0x44f},   {0x300, 0x33f},
                                     {0x4e00, 0x4fff}, {0xac00, 0xacff}, {0x1f600, 0x1f64f}};
static const char *const parts[] = {
    " ",      "  ",   "\n",    "\r\n",  "\t",  "'s",     "'LL",  "<|endoftext|>",
    "<s>",    "</s>", "[L]",   "[LR]",  "[R]", "[mask]", "word", "<|eot_id|>",
    "\u2581", "::",   "<unk>", "fancy", "e",   "aa",     "i",    "12x"};

static size_t
put(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((length == 2 ? 0xc0u : length == 3 ? 0xe0u : 0xf0u) | code);
    return length;
}

static size_t
random_text(char *out)
{
    size_t length = 0;
    for (size_t n = 1 + below(12); n > 0; n--) {
        size_t kind = below(5);
        if (kind == 0) {
            size_t begin = below(begins[GOLDEN_TEXTS]), count = below(24),
                   left = begins[GOLDEN_TEXTS] - begin;
            count = count < left ? count : left;
            memcpy(out + length, corpus + begin, count);
            length += count;
        } else if (kind == 1) {
            out[length++] = (char)below(256);
        } else if (kind == 2) {
            const uint32_t *range = ranges[below(COUNT(ranges))];
            for (size_t count = 1 + below(3); count > 0; count--)
                length += put(out + length, range[0] + (uint32_t)below(range[1] - range[0] + 1));
        } else if (kind == 3) {
            const char *part = parts[below(COUNT(parts))];
            memcpy(out + length, part, strlen(part));
            length += strlen(part);
        } else {
            for (size_t count = 1 + below(9); count > 0; count--)
                out[length++] = (char)('a' + below(26));
        }
    }
    return length;
}

static uint32_t
random_block(const exo_tokenizer *t)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < GOLDEN_BLOCK; i++) {
        char text[TEXT_MOST], *out = NULL;
        size_t length = random_text(text), count = 0, size = 0;
        int32_t *tokens = NULL;
        exo_err err = {0};
        cr_assert_eq(exo_tokenizer_encode(t, text, length, false, &tokens, &count, &err), EXO_OK,
                     "%s", err.text);
        cr_assert_eq(exo_tokenizer_decode(t, tokens, count, false, &out, &size, &err), EXO_OK, "%s",
                     err.text);
        hash = fnv(fnv(hash, tokens, count * sizeof *tokens), out, size);
        exo_free(tokens);
        exo_free(out);
    }
    return hash;
}

Test(tokenizer_golden, random_texts)
{
    read_corpus();
    for (size_t k = 0; k < COUNT(golden_tokenizers); k++) {
        exo_tokenizer *t = load(golden_tokenizers[k].name);
        random_state = GOLDEN_SEED;
        for (size_t block = 0; block < GOLDEN_BLOCKS; block++)
            cr_expect_eq(random_block(t), golden_tokenizers[k].random[block],
                         "%s, texts %zu to %zu", golden_tokenizers[k].name, block * GOLDEN_BLOCK,
                         (block + 1) * GOLDEN_BLOCK - 1);
        exo_tokenizer_drop(&t);
    }
}
