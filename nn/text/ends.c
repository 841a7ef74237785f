/* The tokens that begin and end a document. tokenizer.json does not name them. They come from:
 *
 *   1. bos_token and eos_token of tokenizer_config.json, then of special_tokens_map.json. If the
 *      two differ, the first counts, and a warning is logged.
 *   2. the tokens that the post-processor puts before and after a text;
 *   3. special tokens with customary names.
 *
 * The tokenizer owns the result. Read next: contradictions.c. */
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "nn/text/tokenizer_impl.h"

struct ends {
    bool begin_known, end_known; /* a file has the key; null means that there is no such token */
};

/* Reads a token from a key: "text", {"content": "text"} or null. */
static exo_status
read_end(const exo_tokenizer *t, const exo_json *root, const char *key, int32_t *out, bool *known,
         exo_err *err)
{
    exo_json part, content;
    const char *text = NULL;
    if (!json_object_get(root->value, key))
        return EXO_OK;
    bool before = *known, there = exo_json_find(root, key, &part);
    *known = true;
    if (!there)
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
    int32_t number = exo_tokenizer_token(t, text);
    if (before) {
        if (number != *out)
            EXO_LOG(
                WARN, TEXT,
                "%s: %s is '%.64s', but tokenizer_config.json, which counts, says something else",
                root->file, key, text);
        return EXO_OK;
    }
    *out = number;
    return *out >= 0 ? EXO_OK
                     : exo_json_fail(&part, err, EXO_DAMAGED,
                                     "'%.64s' is not a token of tokenizer.json", text);
}

static exo_status
read_file(exo_tokenizer *t, const char *path, size_t which, struct ends *ends, exo_err *err)
{
    json_error_t error;
    exo_text name = {0};
    const char *text = t->beside.text[which], *slash = strrchr(path, '/');
    if (!text)
        return EXO_OK;
    exo_text_add(&name, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                 exo_beside_name(which));
    if (name.failed)
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    /* Integers are read as reals, because model_max_length often has thirty digits. */
    json_t *json = json_loadb(text, t->beside.size[which],
                              JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    exo_json root = {.value = json, .file = name.data};
    exo_status st = json ? exo_json_object(&root, err)
                         : exo_fail(err, EXO_DAMAGED, "%s:%d:%d: %s", name.data, error.line,
                                    error.column, error.text);
    if (st == EXO_OK)
        st = read_end(t, &root, "bos_token", &t->begin, &ends->begin_known, err);
    if (st == EXO_OK)
        st = read_end(t, &root, "eos_token", &t->end, &ends->end_known, err);
    if (st == EXO_OK && which == EXO_BESIDE_CONFIG)
        exo_warn_of_contradictions(t, &root);
    json_decref(json);
    exo_free(name.data);
    return st;
}

/* The first special token with one of these names, or -1. */
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
    static const char *const begins[] = {"<s>",   "<|begin_of_text|>", "<|startoftext|>",
                                         "<bos>", "<|endoftext|>",     NULL};
    static const char *const stops[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", NULL};
    struct ends ends = {0};
    exo_status st = EXO_OK;
    for (size_t i = EXO_BESIDE_CONFIG; i <= EXO_BESIDE_MAP && st == EXO_OK; i++)
        st = read_file(t, path, i, &ends, err);
    if (!ends.begin_known)
        t->begin = t->before.count ? t->before.items[0] : named(t, begins);
    if (!ends.end_known)
        t->end = t->after.count ? t->after.items[0] : named(t, stops);
    return st;
}
