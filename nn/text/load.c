/* Loading of tokenizer.json: the search for the file, its root, and the post-processor. The parts
 * are loaded in the order in which they need each other. The new tokenizer owns all state. Read
 * next: load_model.c, load_steps.c. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/text/tokenizer_impl.h"

enum {
    DEPTH_MOST = 16,      /* nested sequences of post-processors */
    FILE_MOST = 256 << 20 /* bytes */
};

/* --- The post-processor ----------------------------------------------------------------------- */

/* Adds the tokens of {"SpecialToken": {"id": NAME}}: the ids of NAME in special_tokens. */
static exo_status
load_special(exo_tokenizer *t, const exo_json *template, const exo_json *part, exo_tokens *out,
             exo_err *err)
{
    static const char *const keys[] = {"id", "type_id", NULL}, *const token_keys[] = {
                                                                   "id", "ids", "tokens", NULL};
    exo_json all, token, ids;
    const char *name = NULL;
    size_t count = 0;
    exo_status st = exo_json_only(part, keys, err);
    if (st == EXO_OK)
        st = exo_json_text_of(part, "id", &name, err);
    if (st == EXO_OK)
        st = exo_json_get(template, "special_tokens", &all, err);
    if (st == EXO_OK)
        st = exo_json_get(&all, name, &token, err);
    if (st == EXO_OK)
        st = exo_json_only(&token, token_keys, err);
    if (st == EXO_OK)
        st = exo_json_get(&token, "ids", &ids, err);
    if (st == EXO_OK)
        st = exo_json_list(&ids, &count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json item = exo_json_item(&ids, i);
        uint64_t number = 0;
        st = exo_json_number(&item, EXO_VOCAB_MOST - 1, &number, err);
        int32_t id = (int32_t)number;
        if (st == EXO_OK && !exo_vocab_spelling(&t->bpe.vocab, id))
            st = exo_json_fail(&item, err, EXO_DAMAGED, "no token has the number %d", id);
        if (st == EXO_OK && !exo_tokens_add(out, &id, 1))
            st = exo_json_fail(&item, err, EXO_NOMEM, "no memory");
    }
    return st;
}

static exo_status
load_template(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    static const char *const keys[] = {"type", "single", "pair", "special_tokens", NULL};
    static const char *const piece_keys[] = {"Sequence", "SpecialToken", NULL};
    exo_json single, inner;
    size_t count = 0;
    bool text = false;
    exo_status st = exo_json_only(part, keys, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "single", &single, err);
    if (st == EXO_OK)
        st = exo_json_list(&single, &count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json piece = exo_json_item(&single, i);
        st = exo_json_only(&piece, piece_keys, err);
        if (st == EXO_OK && json_object_size(piece.value) != 1)
            st = exo_json_fail(&piece, err, EXO_DAMAGED,
                               "either 'Sequence' or 'SpecialToken' is expected");
        if (st == EXO_OK && exo_json_find(&piece, "SpecialToken", &inner)) {
            st = load_special(t, part, &inner, text ? &t->after : &t->before, err);
        } else if (st == EXO_OK) {
            const char *name = NULL;
            st = exo_json_get(&piece, "Sequence", &inner, err);
            if (st == EXO_OK)
                st = exo_json_text_of(&inner, "id", &name, err);
            if (st == EXO_OK && (strcmp(name, "A") != 0 || text))
                st = exo_json_fail(&piece, err, EXO_UNSUPPORTED,
                                   "only one sequence, 'A', is supported");
            text = true;
        }
    }
    if (st == EXO_OK && !text)
        st = exo_json_fail(&single, err, EXO_UNSUPPORTED,
                           "a template without the sequence 'A' is not supported");
    return st;
}

static exo_status
load_processor(exo_tokenizer *t, const exo_json *part, int depth, bool *templates, exo_err *err)
{
    static const char *const byte_level_keys[] = {"type", "add_prefix_space", "trim_offsets",
                                                  "use_regex", NULL};
    static const char *const sequence_keys[] = {"type", "processors", NULL};
    const char *type = NULL;
    exo_json list;
    size_t count = 0;
    exo_status st = exo_json_text_of(part, "type", &type, err);
    if (st != EXO_OK)
        return st;
    if (strcmp(type, "ByteLevel") == 0) /* changes the tokens' offsets in the text only */
        return exo_json_only(part, byte_level_keys, err);
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (*templates)
            return exo_json_fail(part, err, EXO_UNSUPPORTED, "a second template is not supported");
        *templates = true;
        return load_template(t, part, err);
    }
    if (strcmp(type, "Sequence") != 0)
        return exo_json_unknown(part, "the post-processor", type,
                                "ByteLevel, TemplateProcessing, Sequence", err);
    if (depth > DEPTH_MOST)
        return exo_json_fail(part, err, EXO_UNSUPPORTED,
                             "sequences nested this deep are not supported");
    st = exo_json_only(part, sequence_keys, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "processors", &list, err);
    if (st == EXO_OK)
        st = exo_json_list(&list, &count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json item = exo_json_item(&list, i);
        st = load_processor(t, &item, depth + 1, templates, err);
    }
    return st;
}

exo_status
exo_load_post_processor(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    bool templates = false;
    return load_processor(t, part, 0, &templates, err);
}

/* --- Options that must have no effect --------------------------------------------------------- */

/* Refuses truncation, and padding except to the longest text of a batch: a single text is already
 * as long as that. transformers sets both anew at each call. */
static exo_status
refuse_lengths(const exo_json *root, exo_err *err)
{
    exo_json part, key;
    if (exo_json_find(root, "truncation", &part))
        return exo_json_fail(&part, err, EXO_UNSUPPORTED,
                             "truncation is not supported; set it to null");
    if (!exo_json_find(root, "padding", &part))
        return EXO_OK;
    exo_status st = exo_json_get(&part, "strategy", &key, err);
    if (st == EXO_OK &&
        (!json_is_string(key.value) || strcmp(json_string_value(key.value), "BatchLongest") != 0 ||
         exo_json_find(&part, "pad_to_multiple_of", &key)))
        st = exo_json_fail(&part, err, EXO_UNSUPPORTED, "padding is not supported; set it to null");
    return st;
}

/* --- The file --------------------------------------------------------------------------------- */

static exo_status
load_root(exo_tokenizer *t, const exo_json *root, exo_err *err)
{
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    static const struct {
        const char *key;
        exo_status (*load)(exo_tokenizer *t, const exo_json *part, exo_err *err);
    } parts[] = {{"normalizer", exo_load_normalizer},
                 {"pre_tokenizer", exo_load_pre_tokenizer},
                 {"decoder", exo_load_decoder},
                 {"added_tokens", exo_load_added},
                 {"post_processor", exo_load_post_processor}};
    exo_json part;
    const char *version = "1.0";
    exo_status st = exo_json_only(root, keys, err);
    if (st == EXO_OK && exo_json_find(root, "version", &part))
        st = exo_json_text(&part, &version, err);
    if (st == EXO_OK && strcmp(version, "1.0") != 0)
        st = exo_json_unknown(root, "the version", version, "1.0", err);
    if (st == EXO_OK)
        st = refuse_lengths(root, err);
    if (st == EXO_OK)
        st = exo_json_get(root, "model", &part, err);
    if (st == EXO_OK)
        st = exo_load_model(t, &part, err);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && st == EXO_OK; i++)
        if (exo_json_find(root, parts[i].key, &part))
            st = parts[i].load(t, &part, err);
    t->joins = !exo_json_find(root, "decoder", &part);
    return st;
}

exo_status
exo_tokenizer_parse(exo_tokenizer **out, const char *name, char *file, size_t size, exo_err *err)
{
    json_error_t error;
    json_t *json = NULL;
    exo_status st = EXO_NOMEM;
    exo_tokenizer *t = exo_calloc(1, sizeof *t);
    if (!t) {
        exo_free(file);
        exo_fail(err, EXO_NOMEM, "%s: no memory", name);
        goto done;
    }
    atomic_init(&t->references, 1);
    t->file = file;
    t->file_size = size;
    t->added.most = t->begin = t->end = -1;
    json = json_loadb(file, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        enum json_error_code code = json_error_code(&error);
        bool nul = code == json_error_null_character || code == json_error_null_byte_in_key;
        st = code == json_error_out_of_memory ? EXO_NOMEM : nul ? EXO_UNSUPPORTED : EXO_DAMAGED;
        exo_fail(err, st, "%s:%d:%d: %s", name, error.line, error.column, error.text);
        goto done;
    }
    st = load_root(t, &(exo_json){.value = json, .file = name}, err);
    if (st == EXO_OK) {
        *out = t;
        t = NULL;
    }
done:
    json_decref(json);
    exo_tokenizer_drop(&t);
    return st;
}

/* --- The path --------------------------------------------------------------------------------- */

/* The files to which a path leads. */
struct source {
    exo_text folder; /* without a '/' at the end */
    exo_text file;   /* tokenizer.json; with `pair`, vocab.json */
    bool pair;       /* vocab.json with merges.txt */
};

static bool
has(const struct source *s, const char *name)
{
    exo_text path = {0};
    exo_text_add(&path, "%s/%s", s->folder.data, name);
    bool there = !path.failed && access(path.data, F_OK) == 0;
    exo_free(path.data);
    return there;
}

/* UNSUPPORTED: the folder has a file of a tokenizer of another kind. `only`: looks for this one. */
static exo_status
fail_other(const struct source *s, const char *only, exo_err *err)
{
    static const struct {
        const char *file, *kind;
    } others[] = {{"tokenizer.model", "SentencePiece"},
                  {"spiece.model", "SentencePiece"},
                  {"sentencepiece.bpe.model", "SentencePiece"},
                  {"tokenizer.tiktoken", "tiktoken"},
                  {"tekken.json", "Mistral's"},
                  {"vocab.json", "without a merges.txt"}};
    if ((!only || strcmp(only, "vocab.txt") == 0) && has(s, "vocab.txt"))
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "%s/vocab.txt (WordPiece) is not read, only tokenizers by BPE, as of GPT-2, "
            "LLaMA, Mistral and Qwen: choose another model",
            s->folder.data);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((!only || strcmp(only, others[i].file) == 0) && has(s, others[i].file))
            return exo_fail(
                err, EXO_UNSUPPORTED,
                "%s/%s (%s) is not read, only tokenizer.json, or vocab.json with merges.txt. Write "
                "a "
                "tokenizer.json beside it with transformers: python3 -c 'import sys, transformers "
                "as t; "
                "t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' FOLDER",
                s->folder.data, others[i].file, others[i].kind);
    return EXO_OK;
}

/* The path is a folder, a tokenizer.json under any name, or vocab.json or merges.txt of a pair. */
static exo_status
find_source(struct source *s, const char *path, exo_err *err)
{
    struct stat info;
    size_t length = strlen(path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (folder) {
        while (length > 1 && path[length - 1] == '/')
            length--;
        exo_text_add(&s->folder, "%.*s", (int)length, path);
    } else if (slash) {
        exo_text_add(&s->folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    } else {
        exo_text_add(&s->folder, ".");
    }
    if (s->folder.failed)
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    bool either = strcmp(name, "vocab.json") == 0 || strcmp(name, "merges.txt") == 0;
    s->pair = (either || (folder && !has(s, "tokenizer.json"))) && has(s, "vocab.json") &&
              has(s, "merges.txt");
    exo_text_add(&s->file, "%s%s", folder || s->pair ? s->folder.data : path,
                 s->pair  ? "/vocab.json"
                 : folder ? "/tokenizer.json"
                          : "");
    if (s->file.failed)
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    if (s->pair || (folder && has(s, "tokenizer.json")))
        return EXO_OK;
    return fail_other(s, folder ? NULL : name, err);
}

exo_status
exo_tokenizer_load(exo_tokenizer **out, const char *path, exo_err *err)
{
    struct source source = {0};
    exo_beside beside = {0};
    char *file = NULL;
    size_t size = 0;
    exo_tokenizer *t = NULL;
    exo_status st = find_source(&source, path, err);
    /* tokenizer.json is read first: without it, the files beside it do not matter. */
    if (st == EXO_OK && !source.pair)
        st = exo_file_read(source.file.data, FILE_MOST, &file, &size, err);
    if (st == EXO_OK)
        st = exo_beside_read(&beside, source.file.data, err);
    if (st == EXO_OK && source.pair)
        st = exo_gpt2_files(source.folder.data, &beside, &file, &size, err);
    if (st == EXO_OK) {
        st = exo_tokenizer_parse(&t, source.file.data, file, size, err);
        file = NULL;
    }
    if (st == EXO_OK) {
        t->beside = beside;
        beside = (exo_beside){0};
        st = exo_load_ends(t, source.file.data, err);
    }
    if (st == EXO_OK) {
        *out = t;
        t = NULL;
    }
    exo_tokenizer_drop(&t);
    exo_beside_release(&beside);
    exo_free(file);
    exo_free(source.folder.data);
    exo_free(source.file.data);
    return st;
}
