/* Texts to learn from: see texts.h. */
#include "experience/texts.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/file.h"
#include "experience/given.h"
#include "nn/json_line.h"

enum {
    MAX_FILE = 1 << 30,
    MAX_TEXTS = 1 << 26,
    MAX_WHERE = 512
};

struct exo_texts {
    exo_texts_kind kind;
    exo_tokenizer *tokenizer;
    exo_prompted *items; /* (count) */
    size_t count, room;
};

/* How a file is read. */
struct reading {
    exo_texts *texts;
    exo_texts_limits limits;
    bool end, truncate;
    const char *where; /* the file, and the line */
};

exo_status
exo_texts_new(exo_texts **out, exo_texts_kind kind, exo_err *err)
{
    *out = exo_calloc(1, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for texts");
    (*out)->kind = kind;
    return EXO_OK;
}

void
exo_texts_free(exo_texts **texts)
{
    exo_texts *t = *texts;
    *texts = NULL;
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        exo_free(t->items[i].tokens);
    exo_free(t->items);
    exo_tokenizer_drop(&t->tokenizer);
    exo_free(t);
}

size_t
exo_texts_each(const exo_texts *t)
{
    return t->kind == EXO_TEXTS_COMPARISONS ? 2 : 1;
}

size_t
exo_texts_count(const exo_texts *t)
{
    return t->count / exo_texts_each(t);
}

const exo_prompted *
exo_texts_at(const exo_texts *t, size_t sample)
{
    return t->items + sample * exo_texts_each(t);
}

exo_tokenizer *
exo_texts_tokenizer(const exo_texts *t)
{
    return t->tokenizer;
}

exo_status
exo_texts_add(exo_texts *t, const int32_t *prompt_tokens, size_t prompt,
              const int32_t *answer_tokens, size_t answer, exo_err *err)
{
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        exo_prompted *more = room <= MAX_TEXTS ? exo_realloc(t->items, room, sizeof *more) : NULL;
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu texts", room);
        t->items = more;
        t->room = room;
    }
    int32_t *tokens = exo_calloc(prompt + answer, sizeof *tokens);
    if (!tokens)
        return exo_fail(err, EXO_NOMEM, "no memory for a text of %zu tokens", prompt + answer);
    memcpy(tokens, prompt_tokens, prompt * sizeof *tokens);
    memcpy(tokens + prompt, answer_tokens, answer * sizeof *tokens);
    t->items[t->count++] =
        (exo_prompted){.tokens = tokens, .prompt = prompt, .length = prompt + answer};
    return EXO_OK;
}

/* --- One text --------------------------------------------------------------------------------- */

static exo_status
check_tokens(const struct reading *r, const int32_t *tokens, size_t count, exo_err *err)
{
    for (size_t i = 0; i < count; i++)
        if ((size_t)tokens[i] >= r->limits.vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "%s: the token %d is beyond the model's vocabulary of %zu: set "
                            "model.vocabulary, or another tokenizer",
                            r->where, tokens[i], r->limits.vocabulary);
    return EXO_OK;
}

/* Adds a text, cut to what the model takes. */
static exo_status
add_fitting(const struct reading *r, const int32_t *prompt, size_t prompt_length,
            const int32_t *answer, size_t length, exo_err *err)
{
    size_t most = r->limits.length;
    exo_status st = check_tokens(r, prompt, prompt_length, err);
    if (st == EXO_OK)
        st = check_tokens(r, answer, length, err);
    if (st != EXO_OK)
        return st;
    if (prompt_length + length > most && (!r->truncate || prompt_length >= most))
        return exo_fail(err, EXO_INVAL,
                        "%s: a prompt of %zu tokens and an answer of %zu; the model takes %zu: set "
                        "model.context, or data.truncate: true, which cuts answers",
                        r->where, prompt_length, length, most);
    if (prompt_length + length > most)
        length = most - prompt_length;
    return exo_texts_add(r->texts, prompt, prompt_length, answer, length, err);
}

static exo_status
encode(const struct reading *r, const char *what, const char *text, size_t size, bool special,
       int32_t **tokens, size_t *count, exo_err *err)
{
    exo_status st =
        exo_tokenizer_encode(r->texts->tokenizer, text, size, special, tokens, count, err);
    if (st == EXO_OK && *count == 0)
        st = exo_fail(err, EXO_INVAL, "it has no tokens");
    return st == EXO_OK ? st : exo_fail_in(err, st, "%s: \"%s\"", r->where, what);
}

/* Adds the text of a prompt and the answer under `key`. */
static exo_status
add_answer(const struct reading *r, const int32_t *prompt, size_t prompt_length, const json_t *line,
           const char *key, exo_err *err)
{
    const json_t *value = json_object_get(line, key);
    int32_t *tokens = NULL, end = exo_tokenizer_end(r->texts->tokenizer);
    size_t count = 0;
    if (!json_is_string(value))
        return exo_fail(err, EXO_INVAL, "%s: \"%s\" is missing, or is no text", r->where, key);
    exo_status st = encode(r, key, json_string_value(value), json_string_length(value), false,
                           &tokens, &count, err);
    if (st == EXO_OK && r->end && end >= 0 && tokens[count - 1] != end) {
        int32_t *more = exo_realloc(tokens, count + 1, sizeof *more);
        if (more) {
            tokens = more;
            tokens[count++] = end;
        } else {
            st = exo_fail(err, EXO_NOMEM, "no memory for a text of %zu tokens", count + 1);
        }
    }
    if (st == EXO_OK)
        st = add_fitting(r, prompt, prompt_length, tokens, count, err);
    exo_free(tokens);
    return st;
}

/* Adds the texts of a line. */
static exo_status
add_line(const struct reading *r, const json_t *line, exo_err *err)
{
    const json_t *value = json_object_get(line, "prompt");
    int32_t *prompt = NULL;
    size_t length = 0;
    if (!json_is_string(value))
        return exo_fail(err, EXO_INVAL, "%s: \"prompt\" is missing, or is no text", r->where);
    exo_status st = encode(r, "prompt", json_string_value(value), json_string_length(value), true,
                           &prompt, &length, err);
    if (st == EXO_OK && r->texts->kind == EXO_TEXTS_ANSWERS)
        st = add_answer(r, prompt, length, line, "answer", err);
    if (st == EXO_OK && r->texts->kind == EXO_TEXTS_COMPARISONS)
        st = add_answer(r, prompt, length, line, "chosen", err);
    if (st == EXO_OK && r->texts->kind == EXO_TEXTS_COMPARISONS)
        st = add_answer(r, prompt, length, line, "rejected", err);
    exo_free(prompt);
    return st;
}

/* --- Files ------------------------------------------------------------------------------------ */

static exo_status
read_lines(struct reading *r, const char *path, exo_err *err)
{
    char *text = NULL, where[MAX_WHERE];
    size_t size = 0;
    exo_status st = exo_file_read(path, MAX_FILE, &text, &size, err);
    r->where = where;
    for (size_t at = 0, number = 1; st == EXO_OK && at < size; number++) {
        json_t *line = NULL;
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        snprintf(where, sizeof where, "%.400s:%zu", path, number);
        st = exo_json_line(&line, path, number, text + at, length, err);
        if (line)
            st = add_line(r, line, err);
        json_decref(line);
        at += length + 1;
    }
    exo_free(text);
    return st;
}

/* Cuts a text into pieces. */
static exo_status
read_pieces(struct reading *r, const char *path, size_t block, exo_err *err)
{
    char *text = NULL;
    int32_t *tokens = NULL;
    size_t size = 0, count = 0;
    exo_status st = exo_file_read(path, MAX_FILE, &text, &size, err);
    r->where = path;
    if (st == EXO_OK)
        st = encode(r, "text", text, size, true, &tokens, &count, err);
    for (size_t at = 0; st == EXO_OK && at + block < count; at += block)
        st = add_fitting(r, tokens + at, 1, tokens + at + 1, block, err);
    exo_free(tokens);
    exo_free(text);
    return st;
}

/* --- Functions of C programs ------------------------------------------------------------------ */

static bool
has_tokens(const int32_t *tokens, size_t length)
{
    return tokens && length > 0;
}

static exo_status
add_sample(const struct reading *r, const exo_text_sample *s, exo_err *err)
{
    bool two = r->texts->kind == EXO_TEXTS_COMPARISONS;
    if (!has_tokens(s->prompt, s->prompt_length) || !has_tokens(s->answer, s->answer_length) ||
        (two && !has_tokens(s->rejected, s->rejected_length)))
        return exo_fail(err, EXO_INVAL, "%s: it needs tokens of a prompt and of %s", r->where,
                        two ? "two answers" : "an answer");
    exo_status st = add_fitting(r, s->prompt, s->prompt_length, s->answer, s->answer_length, err);
    return st == EXO_OK && two
               ? add_fitting(r, s->prompt, s->prompt_length, s->rejected, s->rejected_length, err)
               : st;
}

/* Copies the samples of a function. */
static exo_status
read_given(struct reading *r, const exo_given *given, exo_config *map, exo_err *err)
{
    exo_text_sample sample = {0};
    char where[MAX_WHERE];
    exo_status st = exo_config_bool(map, "truncate", false, &r->truncate, err);
    if (st == EXO_OK && !given->text)
        st = exo_config_fail(map, err, "data: no text_fn was given");
    r->where = where;
    for (size_t i = 0; st == EXO_OK && given->text(given->context, i, &sample); i++) {
        snprintf(where, sizeof where, "data: sample %zu of text_fn", i);
        st = add_sample(r, &sample, err);
        sample = (exo_text_sample){0};
    }
    if (st == EXO_OK && r->texts->count == 0)
        st = exo_config_fail(map, err, "data: text_fn has given no sample");
    r->where = NULL;
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static exo_status
open_tokenizer(exo_texts *t, exo_config *map, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(map, "tokenizer", "bytes", &name, err);
    if (st != EXO_OK)
        return st;
    if (strcmp(name, "bytes") == 0)
        return exo_tokenizer_bytes(&t->tokenizer, err);
    st = exo_config_note_file(map, name, err);
    return st == EXO_OK ? exo_tokenizer_load(&t->tokenizer, name, err) : st;
}

static exo_status
read_all(struct reading *r, exo_config *map, exo_err *err)
{
    const char *path = NULL, *text = NULL;
    const exo_given *given = NULL;
    uint64_t block = 0;
    exo_status st = exo_given_read(&given, map, err);
    if (st == EXO_OK && given)
        return read_given(r, given, map, err);
    if (st == EXO_OK)
        st = exo_config_string(map, "path", NULL, &path, err);
    if (st == EXO_OK && r->texts->kind == EXO_TEXTS_ANSWERS)
        st = exo_config_string(map, "text", NULL, &text, err);
    if (st == EXO_OK && text)
        st = exo_config_u64(map, "block", r->limits.length - 1, 1, r->limits.length - 1, &block,
                            err);
    if (st == EXO_OK && !path == !text)
        st = exo_config_fail(map, err,
                             r->texts->kind == EXO_TEXTS_ANSWERS
                                 ? "give either `path`, JSON lines with prompt and answer, or "
                                   "`text`, a text file"
                                 : "the key 'path' is missing: JSON lines with prompt, chosen and "
                                   "rejected");
    if (st == EXO_OK)
        st = open_tokenizer(r->texts, map, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "end", true, &r->end, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "truncate", false, &r->truncate, err);
    if (st == EXO_OK)
        st = exo_config_note_file(map, path ? path : text, err);
    if (st == EXO_OK)
        st = path ? read_lines(r, path, err) : read_pieces(r, text, (size_t)block, err);
    if (st == EXO_OK && r->texts->count == 0)
        st = exo_config_fail(map, err, "'%s' has no texts", path ? path : text);
    return st;
}

exo_status
exo_texts_read(exo_texts **out, exo_config *map, exo_texts_kind kind,
               const exo_texts_limits *limits, exo_err *err)
{
    struct reading r = {.limits = *limits};
    exo_status st = exo_texts_new(&r.texts, kind, err);
    *out = NULL;
    if (st == EXO_OK)
        st = read_all(&r, map, err);
    if (st == EXO_OK)
        *out = r.texts;
    else
        exo_texts_free(&r.texts);
    return st;
}
