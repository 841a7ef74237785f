/* Tokenizers of exported models. */
#include "export_tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/data.h>
#include <exogym/memory.h>

#include "file.h"
#include "text.h"

enum {
    MAX_PATH = 4096
};

static exo_status
join(char out[MAX_PATH], const char *folder, const char *file, exo_err *err)
{
    int length = snprintf(out, MAX_PATH, "%s/%s", folder, file);
    return length >= 0 && length < MAX_PATH ? EXO_OK
                                            : exo_fail(err, EXO_INVAL, "the path '%.200s...' is too long", folder);
}

static exo_status
write_json(const char *folder, const char *file, json_t *json, exo_err *err)
{
    char path[MAX_PATH], *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    exo_status st = text ? join(path, folder, file, err) : exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text, strlen(text), err);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return st;
}

/* Under `key` the token's text, if there is one. */
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

/* Has the tokenizer brought one? */
static bool
has_config(const char *folder)
{
    char path[MAX_PATH];
    return join(path, folder, "tokenizer_config.json", NULL) == EXO_OK && access(path, F_OK) == 0;
}

exo_status
exo_export_tokenizer(const exo_tokenizer *tokenizer, const char *folder, bool generate, exo_err *err)
{
    int32_t begin = exo_tokenizer_begin(tokenizer), end = exo_tokenizer_end(tokenizer);
    json_t *config = json_pack("{s:s, s:b, s:[s, s]}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0, "model_input_names", "input_ids", "attention_mask");
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

/* The tokenizer belongs to the data set: it is held before that goes. */
static exo_status
of_data(const char *name, exo_config *config, exo_tokenizer **out, exo_err *err)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_status st = exo_dataset_named(name, config, &train, &val, err);
    exo_tokenizer *tokenizer = st == EXO_OK ? exo_dataset_tokenizer(train) : NULL;
    if (tokenizer)
        *out = exo_tokenizer_hold(tokenizer);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    return st;
}

exo_status
exo_export_find_tokenizer(const char *path, const json_t *config, exo_tokenizer **out, exo_err *err)
{
    exo_text beside = {0};
    const char *slash = strrchr(path, '/');
    if (slash)
        exo_text_add_bytes(&beside, path, (size_t)(slash + 1 - path));
    exo_text_add(&beside, "tokenizer.json");
    if (beside.failed)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    bool there = access(beside.data, F_OK) == 0;
    exo_status found = there ? exo_tokenizer_load(out, beside.data, err) : EXO_OK;
    exo_free(beside.data);
    if (there)
        return found;
    const json_t *data = json_object_get(config, "data");
    const char *name = json_string_value(json_object_get(data, "name"));
    char *text = name ? json_dumps(data, JSON_COMPACT) : NULL;
    exo_config_doc *doc = NULL;
    *out = NULL;
    if (!text)
        return EXO_OK;
    exo_status st = exo_config_parse(&doc, "data", text, err);
    const char *ignored = NULL; /* what the job reads of it, and the data set does not know */
    bool split = false;
    if (st == EXO_OK)
        st = exo_config_string(exo_config_root(doc), "name", NULL, &ignored, err);
    if (st == EXO_OK)
        st = exo_config_bool(exo_config_root(doc), "split_by_node", false, &split, err);
    if (st == EXO_OK)
        st = of_data(name, exo_config_root(doc), out, err);
    exo_config_free(&doc);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return st;
}
