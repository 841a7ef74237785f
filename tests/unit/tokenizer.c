/* Tokenizers of characters and bytes, saving, the first and last token of a document, long texts,
 * streams, and failed allocations. tokenizer_golden.c tests the tokens themselves, tokenizer_file.c
 * the contents of a file. Each test owns its tokenizers. Read next: include/exogym/tokenizer.h;
 * docs/tokenizers.md. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tokenizer.h>

#include "base/file.h"
#include "base/memory_fault.h"
#include "support/sanitized.h"
#include "support/temp.h"

static exo_tokenizer *
golden(const char *name)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/golden/tokenizers/%s/tokenizer.json", EXO_TEST_SOURCE_DIR,
             name);
    cr_assert_eq(exo_tokenizer_load(&t, path, &err), EXO_OK, "%s", err.text);
    return t;
}

static size_t
encode(const exo_tokenizer *t, const char *text, size_t size, int32_t **tokens)
{
    size_t count = 0;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_encode(t, text, size, false, tokens, &count, &err), EXO_OK, "%s",
                 err.text);
    return count;
}

static void
expect_round_trip(const exo_tokenizer *t, const char *text, size_t size)
{
    int32_t *tokens = NULL;
    char *back = NULL;
    size_t count = encode(t, text, size, &tokens), length = 0;
    cr_assert_eq(exo_tokenizer_decode(t, tokens, count, true, &back, &length, NULL), EXO_OK);
    cr_expect_eq(length, size);
    cr_expect_arr_eq(back, text, size);
    cr_expect_eq(back[length], '\0');
    exo_free(tokens);
    exo_free(back);
}

static void
expect_same(const exo_tokenizer *a, const exo_tokenizer *b, const char *text, size_t size)
{
    int32_t *one = NULL, *other = NULL;
    size_t count = encode(a, text, size, &one);
    cr_assert_eq(encode(b, text, size, &other), count);
    cr_expect_arr_eq(one, other, count * sizeof *one);
    exo_free(one);
    exo_free(other);
}

/* --- Characters and bytes --------------------------------------------------------------------- */

Test(tokenizer, characters_are_numbered_in_the_order_of_code_points)
{
    exo_tokenizer *t = NULL;
    int32_t *tokens = NULL;
    const char *text = "hello \u00e9\n\U0001f600\"\\";
    cr_assert_eq(exo_tokenizer_characters_of(&t, text, strlen(text), NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_vocabulary(t), 10); /* l counts once */
    cr_expect_eq(encode(t, "\n o\u00e9", 5, &tokens), 4);
    cr_expect_arr_eq(tokens, ((int32_t[]){0, 1, 7, 8}), 4 * sizeof *tokens);
    cr_expect_eq(exo_tokenizer_token(t, "\U0001f600"), 9);
    cr_expect_eq(exo_tokenizer_token(t, "x"), -1);
    cr_expect_eq(exo_tokenizer_end(t), -1);
    cr_expect_eq(exo_tokenizer_begin(t), -1);
    expect_round_trip(t, text, strlen(text));
    expect_round_trip(t, "", 0);
    exo_free(tokens);
    exo_tokenizer_drop(&t);
    cr_expect_null(t);
}

Test(tokenizer, a_character_outside_the_alphabet_is_an_error)
{
    exo_tokenizer *t = NULL;
    int32_t *tokens = NULL;
    size_t count;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_characters(&t, "abc", 3, NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_encode(t, "abxc", 4, false, &tokens, &count, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "U+0078"), "%s", err.text);
    cr_expect_null(tokens);
    exo_tokenizer_drop(&t);
}

Test(tokenizer, alphabets_that_are_none)
{
    static const struct {
        const char *alphabet;
        size_t size;
        const char *reason;
    } wrong[] = {{"ba", 2, "sorted"},
                 {"aa", 2, "sorted"},
                 {"", 0, "empty"},
                 {"a\xff", 2, "UTF-8 at byte 1"},
                 {"\0a", 2, "U+0000"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        exo_tokenizer *t = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_tokenizer_characters(&t, wrong[i].alphabet, wrong[i].size, &err),
                     EXO_INVAL);
        cr_expect(strstr(err.text, wrong[i].reason), "%s", err.text);
        cr_expect_null(t);
    }
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_tokenizer_characters_of(&t, "abc\xe2\x82", 5, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "byte 3"), "%s", err.text);
}

Test(tokenizer, bytes_are_themselves)
{
    exo_tokenizer *t = NULL;
    char all[256];
    int32_t *tokens = NULL;
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_vocabulary(t), 256);
    cr_expect_eq(encode(t, all, sizeof all, &tokens), 256);
    for (int i = 0; i < 256; i++)
        cr_expect_eq(tokens[i], i);
    expect_round_trip(t, all, sizeof all); /* bytes that are no UTF-8 too */
    exo_free(tokens);
    exo_tokenizer_drop(&t);
}

/* --- Saving ----------------------------------------------------------------------------------- */

Test(tokenizer, what_was_loaded_is_saved_byte_for_byte)
{
    char folder[64], path[600], *before = NULL, *after = NULL;
    size_t size = 0, saved = 0;
    exo_tokenizer *t = golden("gpt2");
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_tokenizer_save(t, folder, NULL), EXO_OK);
    snprintf(path, sizeof path, "%s/golden/tokenizers/gpt2/tokenizer.json", EXO_TEST_SOURCE_DIR);
    cr_assert_eq(exo_file_read(path, 1 << 20, &before, &size, NULL), EXO_OK);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 20, &after, &saved, NULL), EXO_OK);
    cr_assert_eq(size, saved);
    cr_expect_arr_eq(before, after, size);
    exo_free(before);
    exo_free(after);
    exo_tokenizer_drop(&t);
    temp_remove(folder);
}

Test(tokenizer, what_was_made_can_be_loaded_again)
{
    const char *text = "\t\"quotes\" and \\ back\x7f \u00e9\u4f60\U0001f600";
    char folder[64];
    temp_folder(folder, sizeof folder);
    for (int kind = 0; kind < 2; kind++) {
        exo_tokenizer *t = NULL, *again = NULL;
        exo_err err = {0};
        exo_status st = kind == 0 ? exo_tokenizer_characters_of(&t, text, strlen(text), NULL)
                                  : exo_tokenizer_bytes(&t, NULL);
        cr_assert_eq(st, EXO_OK);
        cr_assert_eq(exo_tokenizer_save(t, folder, NULL), EXO_OK);
        cr_assert_eq(exo_tokenizer_load(&again, folder, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_tokenizer_vocabulary(again), exo_tokenizer_vocabulary(t));
        expect_same(t, again, text, strlen(text));
        expect_round_trip(again, text, strlen(text));
        exo_tokenizer_drop(&t);
        exo_tokenizer_drop(&again);
    }
    temp_remove(folder);
}

Test(tokenizer, a_folder_that_cannot_be_written)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_save(t, "/dev/null/folder", &err), EXO_IO);
    cr_expect(strstr(err.text, "/dev/null"), "%s", err.text);
    exo_tokenizer_drop(&t);
}

/* --- The first and last token of a document --------------------------------------------------- */

static void
expect_ends(const char *file, const char *text, exo_status expected, int32_t begin, int32_t end)
{
    char folder[64], path[128];
    exo_tokenizer *t = golden("llama3"), *again = NULL;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_tokenizer_save(t, folder, NULL), EXO_OK);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert_eq(exo_file_write_atomic(path, text, strlen(text), NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_load(&again, folder, &err), expected, "%s: %s", text, err.text);
    if (again) {
        cr_expect_eq(exo_tokenizer_begin(again), begin, "%s", text);
        cr_expect_eq(exo_tokenizer_end(again), end, "%s", text);
    } else {
        cr_expect(strstr(err.text, file), "%s", err.text);
    }
    exo_tokenizer_drop(&t);
    exo_tokenizer_drop(&again);
    temp_remove(folder);
}

Test(tokenizer, ends)
{
    exo_tokenizer *gpt2 = golden("gpt2"), *llama2 = golden("llama2"), *llama3 = golden("llama3");
    int32_t first = exo_tokenizer_token(llama3, "<|begin_of_text|>"),
            last = exo_tokenizer_token(llama3, "<|end_of_text|>"),
            turn = exo_tokenizer_token(llama3, "<|eot_id|>");
    cr_expect_eq(exo_tokenizer_end(gpt2), exo_tokenizer_token(gpt2, "<|endoftext|>"));
    cr_expect_eq(exo_tokenizer_begin(gpt2), exo_tokenizer_end(gpt2));
    cr_expect_eq(exo_tokenizer_begin(llama2), 1);
    cr_expect_eq(exo_tokenizer_end(llama2), 2);
    expect_ends("other.json", "{}", EXO_OK, first, last);
    expect_ends("tokenizer_config.json",
                "{\"bos_token\": null, \"eos_token\": \"<|eot_id|>\", \"x\": [1]}", EXO_OK, -1,
                turn);
    expect_ends("tokenizer_config.json",
                "{\"eos_token\": {\"content\": \"<|eot_id|>\", \"lstrip\": false}}", EXO_OK, first,
                turn);
    expect_ends(
        "tokenizer_config.json",
        "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"<|eot_id|>\"}",
        EXO_OK, first, turn);
    expect_ends("special_tokens_map.json", "{\"eos_token\": \"<|eot_id|>\"}", EXO_OK, first, turn);
    expect_ends("tokenizer_config.json", "{\"eos_token\": \"<nothing>\"}", EXO_DAMAGED, 0, 0);
    expect_ends("tokenizer_config.json", "{\"eos_token\": 5}", EXO_DAMAGED, 0, 0);
    expect_ends("tokenizer_config.json", "[]", EXO_DAMAGED, 0, 0);
    expect_ends("tokenizer_config.json", "{", EXO_DAMAGED, 0, 0);
    exo_tokenizer_drop(&gpt2);
    exo_tokenizer_drop(&llama2);
    exo_tokenizer_drop(&llama3);
}

/* --- Texts ------------------------------------------------------------------------------------ */

Test(tokenizer, bytes_that_are_no_text_are_the_replacement_character)
{
    exo_tokenizer *t = golden("llama3");
    static const char wrong[] = "a\xff b\xe2\x82 \xf0\x9f\x98\xed\xa0\x80.\xc3";
    static const char lost[] = "a\ufffd b\ufffd \ufffd\ufffd\ufffd\ufffd.\ufffd";
    int32_t *one = NULL, *other = NULL;
    size_t count = encode(t, wrong, sizeof wrong - 1, &one);
    cr_assert_eq(encode(t, lost, sizeof lost - 1, &other), count);
    cr_expect_arr_eq(one, other, count * sizeof *one);
    exo_free(one);
    exo_free(other);
    exo_tokenizer_drop(&t);
}

/* One word of a megabyte (an eighth of it under sanitizers). The test ends in time only if the cost does not grow with the square of
 * the length. */
Test(tokenizer, long_words)
{
    static const char *const names[] = {"gpt2", "llama2", "bloom"};
    static const char *const words[] = {"a", "thequickbrown", "\u4f60\u597d", "\U0001f600", " ",
                                        "ab"};
    enum {
        SIZE = SANITIZED ? 1 << 17 : 1 << 20
    };
    char *text = exo_calloc(1, SIZE + 64);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = 0;
        for (size_t length = strlen(words[i]); size < SIZE; size += length)
            memcpy(text + size, words[i], length);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            exo_tokenizer *t = golden(names[k]);
            expect_round_trip(t, text, size);
            exo_tokenizer_drop(&t);
        }
    }
    exo_free(text);
}

Test(tokenizer, numbers_of_no_token_are_refused)
{
    exo_tokenizer *t = golden("gpt2"), *held = exo_tokenizer_hold(t);
    char *text = NULL;
    size_t size;
    exo_err err = {0};
    int32_t many = (int32_t)exo_tokenizer_vocabulary(t);
    exo_tokenizer_drop(&held);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(
            exo_tokenizer_decode(t, (int32_t[]){1, i ? many : -1}, 2, true, &text, &size, &err),
            EXO_INVAL);
        cr_expect(strstr(err.text, i ? "701 at 1" : "-1 at 1"), "%s", err.text);
    }
    exo_tokenizer_drop(&t);
}

/* A model whose vocabulary is larger than the tokenizer's draws numbers that no token has. */
Test(tokenizer, texts_without_special_tokens_leave_out_numbers_of_no_token)
{
    exo_tokenizer *kinds[2] = {golden("gpt2"), NULL};
    cr_assert_eq(exo_tokenizer_bytes(&kinds[1], NULL), EXO_OK);
    for (size_t i = 0; i < 2; i++) {
        char *text = NULL;
        size_t size;
        int32_t many = (int32_t)exo_tokenizer_vocabulary(kinds[i]), *tokens = NULL;
        size_t count = 0;
        cr_assert_eq(exo_tokenizer_encode(kinds[i], "ab", 2, false, &tokens, &count, NULL), EXO_OK);
        const int32_t drawn[] = {many, tokens[0], -1, many + 7, count > 1 ? tokens[1] : many};
        exo_err err = {0};
        cr_assert_eq(exo_tokenizer_decode(kinds[i], drawn, 5, false, &text, &size, &err), EXO_OK,
                     "%s", err.text);
        cr_expect_str_eq(text, "ab");
        cr_expect_eq(size, 2);
        exo_free(text);
        exo_free(tokens);
        exo_tokenizer_drop(&kinds[i]);
    }
}

/* --- Streams ---------------------------------------------------------------------------------- */

/* Puts the tokens one by one. Each part must be whole characters, and all parts together must equal
 * the decoded text. */
static void
expect_stream(exo_tokenizer *t, const int32_t *tokens, size_t count, bool special)
{
    exo_token_stream *s = NULL;
    char *whole = NULL;
    const char *part;
    size_t size = 0, at = 0;
    cr_assert_eq(exo_tokenizer_decode(t, tokens, count, special, &whole, &size, NULL), EXO_OK);
    cr_assert_eq(exo_token_stream_open(&s, t, special, NULL), EXO_OK);
    for (size_t i = 0; i <= count; i++) {
        exo_status st = i < count ? exo_token_stream_put(s, tokens[i], &part, NULL)
                                  : exo_token_stream_end(s, &part, NULL);
        cr_assert_eq(st, EXO_OK);
        cr_assert_leq(at + strlen(part), size);
        cr_assert_arr_eq(part, whole + at, strlen(part), "token %zu", i);
        cr_assert_neq((unsigned char)part[0] & 0xc0, 0x80, "token %zu goes on within a character",
                      i);
        at += strlen(part);
    }
    cr_expect_eq(at, size);
    exo_free(whole);
    exo_token_stream_close(&s);
    cr_expect_null(s);
}

Test(tokenizer, a_stream_gives_whole_characters)
{
    static const char *const names[] = {"gpt2",  "opt",     "bloom", "llama2", "llama3",
                                        "qwen2", "mistral", "mixed", "splits"};
    static const char text[] =
        "</s><s> A stream of \U0001f600\U0001f468\u200d\U0001f469 \u4f60\u597d, caf\u00e9 "
        "<|endoftext|>\xff\xfe and \u263a";
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        exo_tokenizer *t = golden(names[k]);
        int32_t *tokens = NULL;
        size_t count = encode(t, text, sizeof text - 1, &tokens);
        expect_stream(t, tokens, count, true);
        expect_stream(t, tokens, count, false);
        exo_free(tokens);
        exo_tokenizer_drop(&t);
    }
}

/* A text that goes on after the first tokens is the rest of the whole text. Those are cut where a
 * character ends. */
static void
expect_followed(exo_tokenizer *t, const int32_t *tokens, size_t count, bool special)
{
    exo_token_stream *s = NULL;
    char *whole = NULL, *before = NULL;
    const char *part;
    size_t size = 0, at = 0;
    cr_assert_eq(exo_token_stream_open(&s, t, special, NULL), EXO_OK);
    cr_assert_eq(exo_tokenizer_decode(t, tokens, count, special, &whole, &size, NULL), EXO_OK);
    for (size_t first = 0; first < count; first++) {
        cr_assert_eq(exo_tokenizer_decode(t, tokens, first, special, &before, &at, NULL), EXO_OK);
        bool cut = at <= size && memcmp(before, whole, at) == 0;
        exo_free(before);
        if (!cut)
            continue;
        cr_assert_eq(exo_token_stream_follow(s, tokens, first, NULL), EXO_OK);
        for (size_t i = first; i <= count; i++, at += strlen(part)) {
            exo_status st = i < count ? exo_token_stream_put(s, tokens[i], &part, NULL)
                                      : exo_token_stream_end(s, &part, NULL);
            cr_assert_eq(st, EXO_OK);
            cr_assert_arr_eq(part, whole + at, strlen(part), "%zu, then token %zu", first, i);
        }
        cr_expect_eq(at, size, "%zu", first);
    }
    exo_free(whole);
    exo_token_stream_close(&s);
}

Test(tokenizer, a_text_that_follows_another_keeps_its_space)
{
    static const char *const names[] = {"gpt2", "opt", "llama2", "llama3", "mistral"};
    static const char *const texts[] = {
        "One sentence, and \u4f60\u597d more words</s> at its end.",
        "One</s></s></s></s></s></s> or more" /* more special tokens than the window has */
    };
    for (size_t k = 0; k < 2 * sizeof names / sizeof *names; k++) {
        const char *text = texts[k % 2];
        exo_tokenizer *t = golden(names[k / 2]);
        int32_t *tokens = NULL;
        size_t count = encode(t, text, strlen(text), &tokens);
        expect_followed(t, tokens, count, true);
        expect_followed(t, tokens, count, false);
        exo_free(tokens);
        exo_tokenizer_drop(&t);
    }
}

Test(tokenizer, a_stream_follows_tokens_only)
{
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    exo_err err = {0};
    const char *text = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_assert_eq(exo_token_stream_open(&s, t, true, NULL), EXO_OK);
    cr_expect_eq(exo_token_stream_put(s, 0xc3, &text, NULL), EXO_OK);
    cr_expect_eq(exo_token_stream_follow(s, (const int32_t[]){'a', 256}, 2, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "256"), "%s", err.text);
    cr_expect_eq(exo_token_stream_put(s, 0xa9, &text, NULL), EXO_OK); /* it is as before */
    cr_expect_str_eq(text, "\u00e9");
    cr_expect_eq(exo_token_stream_follow(s, NULL, 0, NULL), EXO_OK);
    cr_expect_eq(exo_token_stream_put(s, 'b', &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "b");
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
}

static void
expect_put(exo_token_stream *s, int32_t token, const char *expected)
{
    const char *text = NULL;
    cr_expect_eq(exo_token_stream_put(s, token, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, expected, "token %d", token);
}

Test(tokenizer, an_unfinished_character_waits)
{
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    const char *text;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_assert_eq(exo_token_stream_open(&s, t, true, NULL), EXO_OK);
    expect_put(s, 'a', "a");
    expect_put(s, 0xf0, "");
    expect_put(s, 0x9f, "");
    expect_put(s, 0x98, "");
    expect_put(s, 0x80, "\U0001f600");
    expect_put(s, 0xc3, "");
    expect_put(s, 'b', "\ufffdb"); /* the bytes began no character */
    expect_put(s, 0xe2, "");
    cr_expect_eq(exo_token_stream_end(s, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "\ufffd");
    cr_expect_eq(exo_token_stream_end(s, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "");
    cr_expect_eq(exo_token_stream_put(s, 256, &text, &err), EXO_INVAL);
    expect_put(s, 'c', "c");
    expect_put(s, 0, ""); /* U+0000 cannot be shown */
    expect_put(s, 'd', "d");
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
}

Test(tokenizer, bytes_that_begin_no_character_do_not_wait)
{
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_assert_eq(exo_token_stream_open(&s, t, true, NULL), EXO_OK);
    for (int i = 0; i < 100; i++)
        expect_put(s, 0xff, "\ufffd");
    expect_put(s, 0xf0, "");
    expect_put(s, 0x9f, "");
    expect_put(s, 0x98, "");
    expect_put(s, 0x80, "\U0001f600");
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
}

Test(tokenizer, bytes_that_begin_characters_and_do_not_go_on_wait_for_one_more)
{
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    cr_assert_eq(exo_token_stream_open(&s, t, true, NULL), EXO_OK);
    expect_put(s, 0xe2, "");
    for (int i = 0; i < 100; i++)
        expect_put(s, 0xe2, "\ufffd");
    expect_put(s, 0x82, "");
    expect_put(s, 0xac, "\u20ac");
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
}

/* Each token of "\xe2", "\x82\xac\xe2", "\x82\xac\xe2", ... ends within a character. The number of
 * waiting bytes has a limit. */
Test(tokenizer, a_stream_without_an_end_of_a_character_goes_on)
{
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\u00e2\": 0, \"\u0124\u00ac\u00e2\": 1}, "
        "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
        "false}, \"decoder\": {\"type\": \"ByteLevel\"}}";
    char folder[256], path[288];
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    exo_err err = {0};
    const char *text;
    size_t shown = 0;
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    cr_assert_eq(exo_file_write_atomic(path, json, sizeof json - 1, NULL), EXO_OK);
    cr_assert_eq(exo_tokenizer_load(&t, folder, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_token_stream_open(&s, t, true, NULL), EXO_OK);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(exo_token_stream_put(s, i > 0, &text, NULL), EXO_OK);
        shown += strlen(text);
    }
    cr_expect_gt(shown, 100);
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
    temp_remove(folder);
}

/* --- Failed allocations ----------------------------------------------------------------------- */

/* Loads a tokenizer, encodes, decodes and streams. */
static exo_status
use(const char *name)
{
    static const char text[] =
        "A text</s> with  \u00e9 \xff and 123 [L] things, so that it is long enough to be cut: "
        "internationalizationinternationalizationinternationalizationinternationalization";
    exo_tokenizer *t = NULL;
    exo_token_stream *s = NULL;
    int32_t *tokens = NULL;
    char path[512], *out = NULL;
    const char *part;
    size_t count = 0, size = 0;
    exo_err err = {0};
    snprintf(path, sizeof path, "%s/golden/tokenizers/%s", EXO_TEST_SOURCE_DIR, name);
    exo_status st = exo_tokenizer_load(&t, path, &err);
    if (st == EXO_OK)
        st = exo_tokenizer_encode(t, text, sizeof text - 1, true, &tokens, &count, &err);
    if (st == EXO_OK)
        st = exo_tokenizer_decode(t, tokens, count, true, &out, &size, &err);
    if (st == EXO_OK)
        st = exo_token_stream_open(&s, t, false, &err);
    for (size_t i = 0; i < count && st == EXO_OK; i++)
        st = exo_token_stream_put(s, tokens[i], &part, &err);
    cr_expect_eq(st, err.code, "%s", err.text);
    exo_token_stream_close(&s);
    exo_tokenizer_drop(&t);
    exo_free(tokens);
    exo_free(out);
    return st;
}

/* Fails allocations of a use in turn: each of the first 100 and of the last 400, and every 37th
 * between them; a fifth of these under sanitizers. */
static void
fail_each(const char *name)
{
    uint64_t before = exo_memory_allocations();
    cr_assert_eq(use(name), EXO_OK);
    uint64_t all = exo_memory_allocations() - before, failed = 0;
    for (uint64_t n = 1; n <= all; n += (n > 100 && n + 400 < all ? 37 : 1) * one_of(5)) {
        exo_memory_fail_at(n);
        exo_status st = use(name);
        exo_memory_fail_at(0);
        cr_expect(st == EXO_NOMEM || st == EXO_OK, "%s: allocation %llu of %llu gives %d", name,
                  (unsigned long long)n, (unsigned long long)all, st);
        failed += st == EXO_NOMEM;
    }
    cr_expect_gt(failed, 0, "%s", name);
    cr_expect_eq(use(name), EXO_OK);
}

Test(tokenizer, memory_that_fails)
{
    fail_each("qwen2");
    fail_each("mixed");
    fail_each("mistral");
}
