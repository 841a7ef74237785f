/* Which tokens begin and end a document. tokenizer.json does not say it; tokenizer_config.json and special_tokens_map.json beside it do,
 * under bos_token and eos_token. Without them: what the post-processor puts before and after a text, and names that are in use.
 */
#include <string.h>

#include <exogym/memory.h>

#include "file.h"
#include "tokenizer_impl.h"

enum {
    FILE_MOST = 16 << 20 /* bytes */
};

struct ends {
    bool begin_known, end_known; /* a file says it, and may say that there is none */
};

/* "text", {"content": "text"} or null. */
static exo_status
read_end(const exo_tokenizer *t, const exo_json *root, const char *key, int32_t *out, bool *known, exo_err *err)
{
    exo_json part, content;
    const char *text = NULL;
    if (*known || !json_object_get(root->value, key))
        return EXO_OK;
    *known = true;
    if (!exo_json_find(root, key, &part))
        return EXO_OK;
    exo_status st = EXO_OK;
    if (json_is_object(part.value)) {
        st = exo_json_get(&part, "content", &content, err);
        if (st == EXO_OK)
            st = exo_json_text(&content, &text, err);
    } else {
        st = exo_json_text(&part, &text, err);
    }
    if (st != EXO_OK)
        return st;
    *out = exo_tokenizer_token(t, text);
    return *out >= 0 ? EXO_OK : exo_json_fail(&part, err, EXO_INVAL, "'%.64s' is no token of tokenizer.json", text);
}

static exo_status
read_file(exo_tokenizer *t, const char *folder, const char *file, struct ends *ends, exo_err *err)
{
    exo_text path = {0};
    char *text = NULL;
    size_t size = 0;
    json_error_t error;
    exo_text_add(&path, "%s%s", folder, file);
    if (path.failed) {
        exo_free(path.data);
        return exo_fail(err, EXO_NOMEM, "%s: no memory", file);
    }
    exo_err missing = {0};
    exo_status st = exo_file_read(path.data, FILE_MOST, &text, &size, &missing);
    if (st == EXO_NOT_FOUND) {
        st = EXO_OK;
    } else if (st != EXO_OK) {
        st = exo_fail(err, st, "%s", missing.text);
    } else {
        /* model_max_length is often a number of thirty digits. */
        json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
        exo_json root = {.value = json, .file = path.data};
        st = json ? exo_json_object(&root, err)
                  : exo_fail(err, EXO_INVAL, "%s:%d:%d: %s", path.data, error.line, error.column, error.text);
        if (st == EXO_OK)
            st = read_end(t, &root, "bos_token", &t->begin, &ends->begin_known, err);
        if (st == EXO_OK)
            st = read_end(t, &root, "eos_token", &t->end, &ends->end_known, err);
        json_decref(json);
    }
    exo_free(text);
    exo_free(path.data);
    return st;
}

/* The first of the names that is a special token, or -1. */
static int32_t
named(const exo_tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t number = exo_tokenizer_token(t, *names);
        if (number >= 0 && t->bpe.vocab.spellings[number].special)
            return number;
    }
    return -1;
}

exo_status
exo_load_ends(exo_tokenizer *t, const char *path, exo_err *err)
{
    static const char *const begins[] = {"<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>", "<|endoftext|>", NULL};
    static const char *const stops[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", NULL};
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    struct ends ends = {0};
    exo_status st = EXO_OK;
    if (path) {
        char *folder = exo_strdup(path);
        if (!folder)
            return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
        char *slash = strrchr(folder, '/');
        *(slash ? slash + 1 : folder) = '\0';
        for (size_t i = 0; i < 2 && st == EXO_OK; i++)
            st = read_file(t, folder, files[i], &ends, err);
        exo_free(folder);
    }
    if (!ends.begin_known)
        t->begin = t->before.count ? t->before.items[0] : named(t, begins);
    if (!ends.end_known)
        t->end = t->after.count ? t->after.items[0] : named(t, stops);
    return st;
}
