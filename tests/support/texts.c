/* Small texts: see texts.h. */
#include "support/texts.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "base/file.h"
#include "base/grow_text.h"

#include <exogym/memory.h>

const char *
texts_path_in(char out[TEXTS_PATH], const char *folder, const char *name)
{
    cr_assert(snprintf(out, TEXTS_PATH, "%s/%s", folder, name) < TEXTS_PATH);
    return out;
}

const char *
texts_write_in(char out[TEXTS_PATH], const char *folder, const char *name, const void *bytes,
               size_t size)
{
    const char *path = texts_path_in(out, folder, name);
    char parent[TEXTS_PATH];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    cr_assert_eq(exo_folder_make(parent, NULL), EXO_OK);
    cr_assert_eq(exo_file_write_atomic(path, bytes, size, NULL), EXO_OK);
    return path;
}

void
texts_write_tokenizer(const char *folder)
{
    exo_text json = {0};
    exo_text_add(&json,
                 "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                 "\"added_tokens\": [{\"id\": %d, "
                 "\"content\": \"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, "
                 "\"rstrip\": false, "
                 "\"normalized\": false, \"special\": true}], \"normalizer\": null, ",
                 TEXTS_END);
    exo_text_add(
        &json,
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, "
        "\"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}, \"model\": "
        "{\"type\": "
        "\"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\", "
        "\"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": "
        "{");
    /* GPT-2's spellings of newline and space */
    exo_text_add(&json, "\"\xC4\x8A\": 0, \"\xC4\xA0\": 1");
    for (int c = 'a'; c <= 'z'; c++)
        exo_text_add(&json, ", \"%c\": %d", c, c - 'a' + 2);
    exo_text_add(&json, ", \"<|endoftext|>\": %d}, \"merges\": []}}", TEXTS_END);
    cr_assert(!json.failed);
    texts_write_text(folder, "tokenizer.json", json.data);
    exo_free(json.data);
}

exo_tokenizer *
texts_tokenizer(const char *folder)
{
    exo_tokenizer *tokenizer = NULL;
    exo_err err = {0};
    texts_write_tokenizer(folder);
    cr_assert_eq(exo_tokenizer_load(&tokenizer, texts_path(folder, "tokenizer.json"), &err), EXO_OK,
                 "%s", err.text);
    cr_assert_eq(exo_tokenizer_end(tokenizer), TEXTS_END);
    return tokenizer;
}

void
texts_sample(const exo_dataset *dataset, size_t index, int32_t *tokens, int32_t *targets)
{
    exo_err err = {0};
    cr_assert_eq(
        exo_dataset_get(dataset, index, &(exo_sample_key){0}, (void *[]){tokens, targets}, &err),
        EXO_OK, "sample %zu: %s", index, err.text);
}

void
texts_expect(const exo_dataset *dataset, size_t index, size_t block, const int32_t *tokens,
             const int32_t *targets)
{
    int32_t found[TEXTS_MAX_BLOCK], found_targets[TEXTS_MAX_BLOCK];
    texts_sample(dataset, index, found, found_targets);
    for (size_t i = 0; i < block; i++) {
        cr_expect_eq(found[i], tokens[i], "sample %zu, token %zu is %d instead of %d", index, i,
                     found[i], tokens[i]);
        cr_expect_eq(found_targets[i], targets[i], "sample %zu, target %zu is %d instead of %d",
                     index, i, found_targets[i], targets[i]);
    }
}

void
texts_expect_equal(const exo_dataset *a, const exo_dataset *b)
{
    exo_field fields[2][EXO_MAX_FIELDS];
    cr_assert_eq(exo_dataset_length(a), exo_dataset_length(b));
    cr_assert_eq(exo_dataset_fields(a, fields[0]), 2);
    cr_assert_eq(exo_dataset_fields(b, fields[1]), 2);
    cr_assert_eq(fields[0][0].dims[0], fields[1][0].dims[0]);
    for (size_t i = 0; i < exo_dataset_length(a); i++) {
        int32_t tokens[TEXTS_MAX_BLOCK], targets[TEXTS_MAX_BLOCK];
        texts_sample(a, i, tokens, targets);
        texts_expect(b, i, fields[0][0].dims[0], tokens, targets);
    }
}
