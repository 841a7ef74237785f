/* Texts through lossless tokenizers. The first byte chooses the tokenizer:
 * - of bytes: decoding gives back any text;
 * - of GPT-2's and of LLaMA's kind: decoding, of all tokens and as a stream, gives back the text
 *   with U+FFFD in place of invalid UTF-8;
 * - of four letters with merges: the tokens are those of the definition of byte pair encoding.
 *
 * One thread; the tokenizers are made once. Read next: nn/text/tokenizer_impl.h;
 * docs/tokenizers.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"
#include "nn/text/steps.h"
#include "nn/text/tokenizer_impl.h"

enum {
    BYTES,
    GPT2,
    LLAMA,
    LETTERS,
    KINDS,
    TEXT_MOST = 1 << 16,
};

static exo_tokenizer *tokenizers[KINDS];
static const char *const merges[] = {"a a",   "b c",         "aa bc", "c d",    "aa a",
                                     "d a",   "aabc d",      "b b",   "aaa aa", "da da",
                                     "bb cd", "aaaaa aaaaa", "a b"};

static void
expect(int right)
{
    if (!right)
        abort();
}

/* --- The tokenizers --------------------------------------------------------------------------- */

static exo_tokenizer *
parse(exo_text *json)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    expect(!json->failed);
    exo_status st = exo_tokenizer_parse(&t, "fuzz", json->data, json->length, &err);
    if (st != EXO_OK)
        fprintf(stderr, "%s\n", err.text);
    expect(st == EXO_OK);
    return t;
}

static void
add_byte(exo_text *json, unsigned byte, bool named)
{
    char bytes[4];
    uint32_t code = exo_byte_character((unsigned char)byte);
    if (named)
        exo_text_add(json, "\"<0x%02X>\": %u, ", byte, byte);
    else if (code == '"' || code == '\\')
        exo_text_add(json, "\"\\%c\": %u, ", (int)code, byte);
    else
        exo_text_add(json, "\"%.*s\": %u, ", (int)exo_utf8_put(code, bytes), bytes, byte);
}

static exo_tokenizer *
of_bytes(bool llama)
{
    exo_text json = {0};
    exo_text_add(
        &json, "%s",
        llama
            ? "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
              "\"prepend\": \"\u2581\"},{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
              "\"content\": \"\u2581\"}]},\"decoder\": {\"type\": \"Sequence\", \"decoders\": "
              "[{\"type\": \"Replace\", \"pattern\": {\"String\":\"\u2581\"}, \"content\": \" \"}, "
              "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},{\"type\": \"Strip\", "
              "\"content\": \" \", \"start\": 1, \"stop\": 0}]},"
            : "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
              "\"decoder\": {\"type\": \"ByteLevel\"},");
    exo_text_add(&json,
                 "\"added_tokens\": [{\"id\": 264, \"content\": \"<s>\", \"special\": true}],"
                 "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {");
    for (unsigned byte = 0; byte < 256; byte++)
        add_byte(&json, byte, llama);
    if (llama)
        exo_text_add(&json, "\"\u2581\": 256, \"a\": 257, \"b\": 258, \"ab\": 259, \"\u2581a\": "
                            "260, \"\u00e9\": 261, \"\u4f60\": 262,\"\u2581\u2581\": 263}, "
                            "\"merges\": [\"a b\", \"\u2581 a\", \"\u2581 \u2581\"]}}");
    else
        exo_text_add(&json, "\"ab\": 256, \"\u0120a\": 257, \"\u0120ab\": 258, \"\u0120\u0120\": "
                            "259, \"\u00c3\u00a9\": 260, \"th\": 261,\"the\": 262, \"\u0120the\": "
                            "263}, \"merges\": [\"a b\", \"\u0120 ab\", \"\u0120 a\", \"\u0120 "
                            "\u0120\",\"\u00c3 \u00a9\", \"t h\", \"th e\", \"\u0120 the\"]}}");
    return parse(&json);
}

static exo_tokenizer *
of_letters(void)
{
    exo_text json = {0};
    exo_text_add(
        &json,
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        int left = (int)strcspn(merges[i], " ");
        exo_text_add(&json, ", \"%.*s%s\": %zu", left, merges[i], merges[i] + left + 1, i + 4);
    }
    exo_text_add(&json, "}, \"merges\": [");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        exo_text_add(&json, "%s\"%s\"", i ? ", " : "", merges[i]);
    exo_text_add(&json, "]}}");
    return parse(&json);
}

/* --- Invariants ------------------------------------------------------------------------------- */

static size_t
encode(const exo_tokenizer *t, const char *text, size_t size, int32_t **tokens)
{
    size_t count = 0;
    expect(exo_tokenizer_encode(t, text, size, true, tokens, &count, NULL) == EXO_OK);
    return count;
}

static void
round_trip(exo_tokenizer *t, const char *text, size_t size)
{
    int32_t *tokens = NULL;
    char *back = NULL;
    size_t count = encode(t, text, size, &tokens), length = 0;
    expect(exo_tokenizer_decode(t, tokens, count, true, &back, &length, NULL) == EXO_OK);
    expect(length == size && memcmp(back, text, size) == 0);
    exo_free(tokens);
    exo_free(back);
}

/* LLaMA's decoder cannot tell U+2581 from a space, nor a first space in the text from the one that
 * the normalizer put there. */
static void
expected_text(exo_text *out, const char *text, size_t size, bool llama)
{
    exo_text lossy = {0};
    exo_text_add_bytes(&lossy, "", 0);
    exo_utf8_lossy(&lossy, text, size);
    for (size_t at = 0; at < lossy.length;) {
        uint32_t code;
        size_t length = exo_utf8_next(lossy.data + at, lossy.length - at, &code);
        exo_text_add_bytes(out, llama && code == 0x2581 ? " " : lossy.data + at,
                           llama && code == 0x2581 ? 1 : length);
        at += length;
    }
    exo_free(lossy.data);
}

static void
stream(exo_tokenizer *t, const int32_t *tokens, size_t count, const char *whole, size_t size)
{
    exo_token_stream *s = NULL;
    const char *part;
    size_t at = 0;
    expect(exo_token_stream_open(&s, t, true, NULL) == EXO_OK);
    for (size_t i = 0; i <= count; i++) {
        exo_status st = i < count ? exo_token_stream_put(s, tokens[i], &part, NULL)
                                  : exo_token_stream_end(s, &part, NULL);
        size_t length = strlen(part);
        expect(st == EXO_OK && length <= size - at && memcmp(whole + at, part, length) == 0);
        at += length;
    }
    expect(at == size);
    exo_token_stream_close(&s);
}

static void
lossy_round_trip(exo_tokenizer *t, const char *text, size_t size, bool llama)
{
    int32_t *tokens = NULL;
    char *back = NULL;
    exo_text expected = {0};
    size_t count = encode(t, text, size, &tokens), length = 0;
    expected_text(&expected, text, size, llama);
    expect(exo_tokenizer_decode(t, tokens, count, true, &back, &length, NULL) == EXO_OK);
    /* With LLaMA's kind every part between two special tokens gets a first space of its own. */
    if (!llama || !memmem(text, size, "<s>", 3))
        expect(length == expected.length &&
               (length == 0 || memcmp(back, expected.data, length) == 0));
    if (!memchr(back, 0, length))
        stream(t, tokens, count, back, length);
    exo_free(tokens);
    exo_free(back);
    exo_free(expected.data);
}

/* The definition of byte pair encoding: as long as a merge joins some adjacent pair, the leftmost
 * pair of least rank is joined. */
static size_t
by_definition(const exo_tokenizer *t, const uint8_t *data, size_t size, int32_t *ids)
{
    for (size_t i = 0; i < size; i++)
        ids[i] = data[i] & 3;
    for (;;) {
        size_t best = 0;
        uint64_t least = EXO_MAP64_NONE;
        for (size_t i = 0; i + 1 < size; i++) {
            uint64_t merge = exo_map64_get(&t->bpe.merges,
                                           (uint64_t)(uint32_t)ids[i] << 32 | (uint32_t)ids[i + 1]);
            if (merge < least) {
                least = merge;
                best = i;
            }
        }
        if (least == EXO_MAP64_NONE)
            return size;
        ids[best] = (int32_t)(uint32_t)least;
        memmove(ids + best + 1, ids + best + 2, (size - best - 2) * sizeof *ids);
        size--;
    }
}

static void
letters(const exo_tokenizer *t, const uint8_t *data, size_t size)
{
    char *text = exo_calloc(1, size + 1);
    int32_t *expected = exo_calloc(size + 1, sizeof *expected), *tokens = NULL;
    expect(text && expected);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)('a' + (data[i] & 3));
    size_t count = encode(t, text, size, &tokens);
    expect(count == by_definition(t, data, size, expected));
    expect(count == 0 || memcmp(tokens, expected, count * sizeof *tokens) == 0);
    exo_free(text);
    exo_free(expected);
    exo_free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!tokenizers[BYTES]) {
        expect(exo_tokenizer_bytes(&tokenizers[BYTES], NULL) == EXO_OK);
        tokenizers[GPT2] = of_bytes(false);
        tokenizers[LLAMA] = of_bytes(true);
        tokenizers[LETTERS] = of_letters();
    }
    if (size == 0 || size > TEXT_MOST)
        return 0;
    int kind = data[0] % KINDS;
    const char *text = (const char *)data + 1;
    if (kind == BYTES)
        round_trip(tokenizers[kind], text, size - 1);
    else if (kind == LETTERS)
        letters(tokenizers[kind], data + 1, size - 1 < 2000 ? size - 1 : 2000);
    else
        lossy_round_trip(tokenizers[kind], text, size - 1, kind == LLAMA);
    return 0;
}
