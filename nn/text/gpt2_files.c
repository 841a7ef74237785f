/* Conversion of vocab.json and merges.txt, the older files of GPT-2's tokenizer, to a
 * tokenizer.json with the same tokens, as Hugging Face's library converts them.
 *
 * The model is byte pair encoding over bytes. Special tokens, add_prefix_space, add_bos_token and
 * add_eos_token come from tokenizer_config.json and special_tokens_map.json. Tokenizers of other
 * classes are refused, because they split texts in other ways. One call owns all state. Read next:
 * load.c, which parses the result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/text/tokenizer_impl.h"

enum {
    FILE_MOST = 256 << 20 /* bytes */
};

#define ADVICE                                                                                     \
    "write a tokenizer.json with transformers: "                                                   \
    "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"

/* The state of one conversion. */
struct making {
    const char *folder;
    json_t *config, *map, *added_file; /* objects, or NULL */
    json_t *vocab;
    json_t *added;   /* the list added_tokens of tokenizer.json */
    json_int_t next; /* one more than the largest number of a token */
    exo_err *err;
};

/* --- Files ------------------------------------------------------------------------------------ */

static exo_status
parse(const struct making *m, const char *file, const char *text, size_t size, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!*out) /* model_max_length often has thirty digits, too many for an integer */
        *out = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!*out)
        return exo_fail(m->err, EXO_DAMAGED, "%s/%s:%d:%d: %s", m->folder, file, error.line,
                        error.column, error.text);
    return json_is_object(*out)
               ? EXO_OK
               : exo_fail(m->err, EXO_DAMAGED, "%s/%s: is not a JSON object", m->folder, file);
}

static exo_status
read_text(const struct making *m, const char *file, char **text, size_t *size)
{
    exo_text path = {0};
    exo_text_add(&path, "%s/%s", m->folder, file);
    exo_status st = path.failed ? exo_fail(m->err, EXO_NOMEM, "%s: no memory", m->folder)
                                : exo_file_read(path.data, FILE_MOST, text, size, m->err);
    exo_free(path.data);
    return st;
}

/* *out stays NULL if the file does not exist and `needed` is false. */
static exo_status
read_json(const struct making *m, const char *file, bool needed, json_t **out)
{
    char *text = NULL;
    size_t size = 0;
    exo_status st = read_text(m, file, &text, &size);
    if (st == EXO_OK)
        st = parse(m, file, text, size, out);
    else if (st == EXO_NOT_FOUND && !needed)
        st = EXO_OK;
    exo_free(text);
    return st;
}

/* --- The class -------------------------------------------------------------------------------- */

/* GPT-2's rules apply to the class GPT2Tokenizer, to GPT-2 and OPT models, and to folders that
 * name neither a class nor a model. */
static exo_status
check_class(const struct making *m)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast"}, *const types[] = {
                                                                                     "gpt2", "opt"};
    const char *name = json_string_value(json_object_get(m->config, "tokenizer_class"));
    const char *const *known = classes;
    json_t *model = NULL;
    exo_status st = name ? EXO_OK : read_json(m, "config.json", false, &model);
    if (!name) {
        name = json_string_value(json_object_get(model, "model_type"));
        known = types;
    }
    if (st == EXO_OK && name && strcmp(name, known[0]) != 0 && strcmp(name, known[1]) != 0)
        st = exo_fail(m->err, EXO_UNSUPPORTED,
                      "%s: vocab.json and merges.txt are read by GPT-2's rules only, and these are "
                      "of '%.64s': " ADVICE,
                      m->folder, name);
    json_decref(model);
    return st;
}

/* --- Added tokens ----------------------------------------------------------------------------- */

static json_t *
find_added(const struct making *m, const char *content)
{
    size_t i;
    json_t *token;
    json_array_foreach (m->added, i, token)
        if (strcmp(json_string_value(json_object_get(token, "content")), content) == 0)
            return token;
    return NULL;
}

static bool
flag(const json_t *from, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(from, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* Adds a token. Its number is that of the vocabulary, else `number`, else (-1) the next free one.
 * `from` may have flags, such as lstrip. */
static exo_status
add_token(struct making *m, const char *content, json_int_t number, const json_t *from,
          bool special)
{
    const json_t *in_vocab = json_object_get(m->vocab, content);
    json_t *known = find_added(m, content);
    if (known) {
        if (special)
            json_object_set_new(known, "special", json_true());
        return EXO_OK;
    }
    if (in_vocab)
        number = json_integer_value(in_vocab);
    else if (number < 0)
        number = m->next;
    m->next = number >= m->next ? number + 1 : m->next;
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", number, "content",
                              content, "single_word", flag(from, "single_word", false), "lstrip",
                              flag(from, "lstrip", false), "rstrip", flag(from, "rstrip", false),
                              "normalized", flag(from, "normalized", !special), "special", special);
    return json_array_append_new(m->added, token) == 0
               ? EXO_OK
               : exo_fail(m->err, EXO_NOMEM, "%s: no memory", m->folder);
}

/* The text of "text" or {"content": "text", ...}; NULL: neither. */
static const char *
content_of(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* A special token of tokenizer_config.json, else of special_tokens_map.json, else `otherwise`.
 * *from is the JSON value, or NULL. */
static const char *
special_token(const struct making *m, const char *key, const char *otherwise, const json_t **from)
{
    const json_t *said = json_object_get(m->config, key) ? json_object_get(m->config, key)
                                                         : json_object_get(m->map, key);
    *from = said;
    return said ? content_of(said) : otherwise;
}

struct numbered {
    json_int_t number;
    const char *content;
    const json_t *from;
};

static int
by_number(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Adds the tokens of added_tokens_decoder ({"NUMBER": {...}}) and of added_tokens.json ({"text":
 * number}), in the order of their numbers. */
static exo_status
add_numbered(struct making *m)
{
    const json_t *decoder = json_object_get(m->config, "added_tokens_decoder");
    size_t room = json_object_size(decoder) + json_object_size(m->added_file), count = 0;
    struct numbered *all = exo_calloc(room + 1, sizeof *all);
    exo_status st = all ? EXO_OK : exo_fail(m->err, EXO_NOMEM, "%s: no memory", m->folder);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)decoder, key, value)
        if (st == EXO_OK && content_of(value))
            all[count++] = (struct numbered){strtoll(key, NULL, 10), content_of(value), value};
    json_object_foreach (m->added_file, key, value)
        if (st == EXO_OK)
            all[count++] = (struct numbered){json_integer_value(value), key, NULL};
    if (count > 0)
        qsort(all, count, sizeof *all, by_number);
    for (size_t i = 0; i < count && st == EXO_OK; i++)
        st = add_token(m, all[i].content, all[i].number, all[i].from,
                       flag(all[i].from, "special", false));
    exo_free(all);
    return st;
}

/* The default <|endoftext|> is added only if a token of this name exists. Otherwise it would get a
 * new number, which the model does not have. */
static exo_status
add_special(struct making *m)
{
    static const struct {
        const char *key, *usual;
    } tokens[] = {{"bos_token", "<|endoftext|>"},
                  {"eos_token", "<|endoftext|>"},
                  {"unk_token", "<|endoftext|>"},
                  {"sep_token", NULL},
                  {"pad_token", NULL},
                  {"cls_token", NULL},
                  {"mask_token", NULL}};
    exo_status st = EXO_OK;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && st == EXO_OK; i++) {
        const json_t *from = NULL;
        const char *content = special_token(m, tokens[i].key, tokens[i].usual, &from);
        if (content && *content &&
            (from || json_object_get(m->vocab, content) || find_added(m, content)))
            st = add_token(m, content, -1, from, true);
    }
    const json_t *more = json_object_get(m->config, "additional_special_tokens");
    more = more ? more : json_object_get(m->map, "additional_special_tokens");
    for (size_t i = 0; i < json_array_size(more) && st == EXO_OK; i++) {
        const char *content = content_of(json_array_get(more, i));
        if (content && *content)
            st = add_token(m, content, -1, json_array_get(more, i), true);
    }
    return st;
}

/* --- tokenizer.json --------------------------------------------------------------------------- */

/* One merge a line. Lines that begin with #version, and empty ones, are skipped. */
static exo_status
read_merges(const struct making *m, json_t *out)
{
    char *text = NULL;
    size_t size = 0, line = 0;
    exo_status st = read_text(m, "merges.txt", &text, &size);
    if (st == EXO_OK && memchr(text, 0, size))
        st =
            exo_fail(m->err, EXO_DAMAGED, "%s/merges.txt: is not text: it has a 0 byte", m->folder);
    for (char *at = text, *end; st == EXO_OK && *at; at = end) {
        size_t length = strcspn(at, "\n");
        end = at + length + (at[length] == '\n');
        at[length] = '\0';
        if (length > 0 && at[length - 1] == '\r')
            at[--length] = '\0';
        line++;
        if (length == 0 || strncmp(at, "#version", 8) == 0)
            continue;
        const char *space = strchr(at, ' ');
        if (!space || space == at || !space[1] || strchr(space + 1, ' '))
            st = exo_fail(m->err, EXO_DAMAGED,
                          "%s/merges.txt:%zu: two tokens with a space between them are expected",
                          m->folder, line);
        else if (json_array_append_new(out, json_string(at)) != 0)
            st = exo_fail(m->err, EXO_DAMAGED, "%s/merges.txt:%zu: is not UTF-8", m->folder, line);
    }
    exo_free(text);
    return st;
}

static json_t *
template_part(const char *content)
{
    return json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", content, "type_id", 0);
}

/* The post-processor that add_bos_token and add_eos_token ask for. Without them: ByteLevel, which
 * changes no token. */
static json_t *
post_processor(const struct making *m)
{
    const json_t *from = NULL;
    const char *begin = special_token(m, "bos_token", "<|endoftext|>", &from);
    const char *end = special_token(m, "eos_token", "<|endoftext|>", &from);
    const char *around[2] = {flag(m->config, "add_bos_token", false) ? begin : NULL,
                             flag(m->config, "add_eos_token", false) ? end : NULL};
    json_t *single = json_array(), *tokens = json_object();
    for (size_t i = 0; i < 2; i++) {
        const json_t *token = around[i] ? find_added(m, around[i]) : NULL;
        if (token) {
            json_array_append_new(single, template_part(around[i]));
            json_object_set_new(tokens, around[i],
                                json_pack("{s:s, s:[O], s:[s]}", "id", around[i], "ids",
                                          json_object_get(token, "id"), "tokens", around[i]));
        }
        if (i == 0)
            json_array_append_new(single,
                                  json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
    }
    if (json_array_size(single) > 1)
        return json_pack("{s:s, s:o, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:o}", "type",
                         "TemplateProcessing", "single", single, "pair", "Sequence", "id", "A",
                         "type_id", 0, "Sequence", "id", "B", "type_id", 1, "special_tokens",
                         tokens);
    json_decref(single);
    json_decref(tokens);
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                     "trim_offsets", 0, "use_regex", 1);
}

static exo_status
write_file(const struct making *m, json_t *merges, char **out, size_t *size)
{
    const size_t style = JSON_INDENT(2) | JSON_ENCODE_ANY;
    json_t *all = json_pack(
        "{s:s, s:n, s:n, s:O, s:n, s:{s:s, s:b, s:b, s:b}, s:o, s:{s:s, s:b, s:b, s:b},"
        " s:{s:s, s:n, s:n, s:s, s:s, s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", m->added, "normalizer",
        "pre_tokenizer", "type", "ByteLevel", "add_prefix_space",
        flag(m->config, "add_prefix_space", false), "trim_offsets", 1, "use_regex", 1,
        "post_processor", post_processor(m), "decoder", "type", "ByteLevel", "add_prefix_space", 1,
        "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0, "byte_fallback",
        0, "ignore_merges", 0, "vocab", m->vocab, "merges", merges);
    *size = all ? json_dumpb(all, NULL, 0, style) : 0;
    *out = *size ? exo_calloc(*size + 1, 1) : NULL;
    if (*out)
        json_dumpb(all, *out, *size, style);
    json_decref(all);
    return *out ? EXO_OK : exo_fail(m->err, EXO_NOMEM, "%s: no memory for a tokenizer", m->folder);
}

static exo_status
read_all(struct making *m, const exo_beside *beside)
{
    exo_status st = read_json(m, "vocab.json", true, &m->vocab);
    if (st == EXO_OK && beside->text[EXO_BESIDE_CONFIG])
        st = parse(m, exo_beside_name(EXO_BESIDE_CONFIG), beside->text[EXO_BESIDE_CONFIG],
                   beside->size[EXO_BESIDE_CONFIG], &m->config);
    if (st == EXO_OK && beside->text[EXO_BESIDE_MAP])
        st = parse(m, exo_beside_name(EXO_BESIDE_MAP), beside->text[EXO_BESIDE_MAP],
                   beside->size[EXO_BESIDE_MAP], &m->map);
    if (st == EXO_OK)
        st = read_json(m, "added_tokens.json", false, &m->added_file);
    return st == EXO_OK ? check_class(m) : st;
}

exo_status
exo_gpt2_files(const char *folder, const exo_beside *beside, char **out, size_t *size, exo_err *err)
{
    exo_err mine = {0};
    struct making m = {.folder = folder, .added = json_array(), .err = &mine};
    json_t *merges = json_array();
    exo_status st =
        m.added && merges ? EXO_OK : exo_fail(&mine, EXO_NOMEM, "%s: no memory", folder);
    if (st == EXO_OK)
        st = read_all(&m, beside);
    const char *key;
    json_t *number;
    json_object_foreach (m.vocab, key, number)
        m.next = json_integer_value(number) >= m.next ? json_integer_value(number) + 1 : m.next;
    if (st == EXO_OK)
        st = add_numbered(&m);
    if (st == EXO_OK)
        st = add_special(&m);
    if (st == EXO_OK)
        st = read_merges(&m, merges);
    if (st == EXO_OK)
        st = write_file(&m, merges, out, size);
    if (st != EXO_OK && err)
        *err = mine;
    json_decref(m.config);
    json_decref(m.map);
    json_decref(m.added_file);
    json_decref(m.vocab);
    json_decref(m.added);
    json_decref(merges);
    return st;
}
