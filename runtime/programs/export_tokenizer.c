/* Tokenizers of exported models: see export_tokenizer.h. */
#include "programs/export_tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "report/json_text.h"

enum {
    MAX_PATH = 4096
};

static exo_status
join(char out[MAX_PATH], const char *folder, const char *file, exo_err *err)
{
    int length = snprintf(out, MAX_PATH, "%s/%s", folder, file);
    return length >= 0 && length < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "the path '%.200s...' is too long", folder);
}

static exo_status
write_json(const char *folder, const char *file, json_t *json, exo_err *err)
{
    char path[MAX_PATH], *text = exo_json_dump(json, JSON_INDENT(2));
    exo_status st =
        text ? join(path, folder, file, err) : exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text, strlen(text), err);
    exo_free(text);
    return st;
}

/* Sets `key` to the token's text, if there is such a token. */
static exo_status
set_text(json_t *json, const char *key, const exo_tokenizer *tokenizer, int32_t token, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    if (token < 0)
        return EXO_OK;
    exo_status st = exo_tokenizer_decode(tokenizer, &token, 1, true, &text, &size, err);
    if (st == EXO_OK)
        json_object_set_new(json, key, json_stringn(text, size));
    exo_free(text);
    return st;
}

exo_status
exo_export_generation(const char *folder, json_t *json, exo_err *err)
{
    return write_json(folder, "generation_config.json", json, err);
}

/* Did the tokenizer come with a tokenizer_config.json? */
static bool
has_config(const char *folder)
{
    char path[MAX_PATH];
    return join(path, folder, "tokenizer_config.json", NULL) == EXO_OK && access(path, F_OK) == 0;
}

exo_status
exo_export_tokenizer(const exo_tokenizer *tokenizer, const char *folder, bool generate,
                     exo_err *err)
{
    int32_t begin = exo_tokenizer_begin(tokenizer), end = exo_tokenizer_end(tokenizer);
    json_t *config = json_pack("{s:s, s:b, s:[s, s]}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0, "model_input_names", "input_ids",
                               "attention_mask");
    json_t *generation = json_object();
    exo_status st = exo_tokenizer_save(tokenizer, folder, err);
    bool brought = st == EXO_OK && has_config(folder);
    if (st == EXO_OK)
        st = set_text(config, "bos_token", tokenizer, begin, err);
    if (st == EXO_OK)
        st = set_text(config, "eos_token", tokenizer, end, err);
    if (st == EXO_OK && !brought)
        st = write_json(folder, "tokenizer_config.json", config, err);
    if (begin >= 0)
        json_object_set_new(generation, "bos_token_id", json_integer(begin));
    if (end >= 0)
        json_object_set_new(generation, "eos_token_id", json_integer(end));
    if (st == EXO_OK && generate)
        st = exo_export_generation(folder, generation, err);
    json_decref(config);
    json_decref(generation);
    return st;
}
