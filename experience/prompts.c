/* Prompts: see prompts.h. */
#include "experience/prompts.h"

#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_edit.h"
#include "base/file.h"
#include "experience/given.h"
#include "nn/json_line.h"

enum {
    MAX_PROMPTS = 1 << 24,
    MAX_FILE = 1 << 30
};

struct exo_prompts {
    exo_tokenizer *tokenizer;
    size_t count, room, longest, vocabulary;
    int32_t **tokens; /* (count) */
    size_t *lengths;  /* (count) */
    bool shuffle;
    /* the order of one epoch */
    uint32_t *order; /* (count) */
    uint64_t epoch;
    bool ordered;
};

void
exo_prompts_free(exo_prompts **prompts)
{
    exo_prompts *p = *prompts;
    *prompts = NULL;
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        exo_free(p->tokens[i]);
    exo_free(p->tokens);
    exo_free(p->lengths);
    exo_free(p->order);
    exo_tokenizer_drop(&p->tokenizer);
    exo_free(p);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Takes over `tokens` (length), also after an error. */
static exo_status
add(exo_prompts *p, int32_t *tokens, size_t length, exo_err *err)
{
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        int32_t **more = exo_realloc(p->tokens, room, sizeof *more);
        if (more)
            p->tokens = more;
        size_t *lengths = more ? exo_realloc(p->lengths, room, sizeof *lengths) : NULL;
        if (!lengths) {
            exo_free(tokens);
            return exo_fail(err, EXO_NOMEM, "no memory for %zu prompts", room);
        }
        p->lengths = lengths;
        p->room = room;
    }
    p->tokens[p->count] = tokens;
    p->lengths[p->count++] = length;
    p->longest = length > p->longest ? length : p->longest;
    for (size_t i = 0; i < length; i++)
        p->vocabulary =
            (size_t)tokens[i] + 1 > p->vocabulary ? (size_t)tokens[i] + 1 : p->vocabulary;
    return EXO_OK;
}

static exo_status
add_text(exo_prompts *p, const char *text, size_t size, const char *where, size_t line,
         exo_err *err)
{
    int32_t *tokens = NULL;
    size_t count = 0;
    exo_status st = exo_tokenizer_encode(p->tokenizer, text, size, true, &tokens, &count, err);
    if (st == EXO_OK && count == 0)
        st = exo_fail(err, EXO_INVAL, "a prompt without tokens");
    if (st == EXO_OK)
        return add(p, tokens, count, err);
    exo_free(tokens);
    return exo_fail_in(err, st, "%s, prompt %zu", where, line);
}

/* Adds the text under the key "prompt" of a line of JSON; lines of spaces have none. */
static exo_status
add_json(exo_prompts *p, const char *text, size_t size, const char *path, size_t line, exo_err *err)
{
    json_t *object = NULL;
    exo_status st = exo_json_line(&object, path, line, text, size, err);
    if (!object)
        return st;
    const json_t *value = json_object_get(object, "prompt");
    st = json_is_string(value)
             ? add_text(p, json_string_value(value), json_string_length(value), path, line, err)
             : exo_fail(err, EXO_INVAL,
                        "%s:%zu: \"prompt\" is missing, or is no text: each line of a *.jsonl "
                        "is an object with this key",
                        path, line);
    json_decref(object);
    return st;
}

static bool
has_json(const char *path)
{
    const char *ending = strrchr(path, '.');
    return ending && strcmp(ending, ".jsonl") == 0;
}

static exo_status
read_file(exo_prompts *p, const char *path, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    const bool json = has_json(path);
    exo_status st = exo_file_read(path, MAX_FILE, &text, &size, err);
    for (size_t at = 0, line = 1; st == EXO_OK && at < size; line++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        if (length > 0)
            st = json ? add_json(p, text + at, length, path, line, err)
                      : add_text(p, text + at, length, path, line, err);
        at += length + 1;
    }
    exo_free(text);
    return st;
}

static exo_status
read_lines(exo_prompts *p, exo_config *lines, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(lines); i++) {
        const char *text = exo_config_scalar(exo_config_item(lines, i));
        st = text ? add_text(p, text, strlen(text), "lines", i + 1, err)
                  : exo_config_fail(exo_config_item(lines, i), err, "a prompt must be a text");
    }
    return st;
}

static exo_status
read_numbers(exo_prompts *p, exo_config *list, exo_err *err)
{
    size_t length = exo_config_length(list);
    if (!exo_config_is_list(list) || length == 0)
        return exo_config_fail(list, err, "a prompt must be a list of token numbers");
    int32_t *tokens = exo_calloc(length, sizeof *tokens);
    if (!tokens)
        return exo_fail(err, EXO_NOMEM, "no memory for a prompt");
    for (size_t i = 0; i < length; i++) {
        const char *text = exo_config_scalar(exo_config_item(list, i));
        char *end = NULL;
        long long value = text ? strtoll(text, &end, 10) : -1;
        if (!text || !*text || *end || value < 0 || value > INT32_MAX) {
            exo_free(tokens);
            return exo_config_fail(list, err, "a token must be a number from 0 to %d, got '%s'",
                                   INT32_MAX, text ? text : "a list");
        }
        tokens[i] = (int32_t)value;
    }
    return add(p, tokens, length, err);
}

static exo_status
read_tokens(exo_prompts *p, exo_config *prompts, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(prompts); i++)
        st = read_numbers(p, exo_config_item(prompts, i), err);
    return st;
}

/* Copies the prompts of a data loader. */
static exo_status
read_given(exo_prompts *p, const exo_given *given, exo_config *map, exo_err *err)
{
    const int32_t *tokens = NULL;
    size_t length = 0;
    exo_status st = EXO_OK;
    if (!given->dataloader)
        return exo_config_fail(map, err, "prompts: no data loader was given");
    for (size_t i = 0; st == EXO_OK && i <= MAX_PROMPTS &&
                       given->dataloader(given->dataloader_context, i, &tokens, &length);
         i++) {
        if (length == 0 || !tokens)
            return exo_config_fail(map, err, "prompts: prompt %zu of the data loader is empty", i);
        for (size_t k = 0; k < length; k++)
            if (tokens[k] < 0)
                return exo_config_fail(map, err,
                                       "prompts: prompt %zu of the data loader has the "
                                       "token %d",
                                       i, tokens[k]);
        int32_t *copy = exo_calloc(length, sizeof *copy);
        if (!copy)
            return exo_fail(err, EXO_NOMEM, "no memory for a prompt");
        memcpy(copy, tokens, length * sizeof *copy);
        st = add(p, copy, length, err);
    }
    return st;
}

/* Makes the tokenizer of texts. */
static exo_status
read_tokenizer(exo_prompts *p, exo_config *map, exo_err *err)
{
    const char *tokenizer = NULL, *alphabet = NULL;
    exo_status st = exo_config_string(map, "alphabet", NULL, &alphabet, err);
    if (st == EXO_OK && alphabet && exo_config_has(map, "tokenizer"))
        st = exo_config_fail(map, err, "prompts: give one of tokenizer and alphabet");
    if (st == EXO_OK && !alphabet)
        st = exo_config_string(map, "tokenizer", "bytes", &tokenizer, err);
    if (st != EXO_OK)
        return st;
    if (alphabet)
        return exo_tokenizer_characters_of(&p->tokenizer, alphabet, strlen(alphabet), err);
    if (strcmp(tokenizer, "bytes") == 0)
        return exo_tokenizer_bytes(&p->tokenizer, err);
    st = exo_config_note_file(map, tokenizer, err);
    return st == EXO_OK ? exo_tokenizer_load(&p->tokenizer, tokenizer, err) : st;
}

static exo_status
read_all(exo_prompts *p, exo_config *map, exo_err *err)
{
    const char *path = NULL;
    exo_config *tokens = NULL, *lines = NULL;
    const exo_given *given = NULL;
    exo_status st = exo_given_read(&given, map, err);
    if (st == EXO_OK)
        st = exo_config_string(map, "path", NULL, &path, err);
    if (st == EXO_OK)
        st = exo_config_list(map, "lines", &lines, err);
    if (st == EXO_OK)
        st = exo_config_list(map, "tokens", &tokens, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "shuffle", true, &p->shuffle, err);
    if (st == EXO_OK && given)
        return read_given(p, given, map, err);
    if (st == EXO_OK && (path != NULL) + (tokens != NULL) + (lines != NULL) != 1)
        st = exo_config_fail(map, err, "prompts: give one of path, lines and tokens");
    if (st == EXO_OK && tokens)
        return read_tokens(p, tokens, err);
    if (st == EXO_OK)
        st = read_tokenizer(p, map, err);
    if (st == EXO_OK && path)
        st = exo_config_note_file(map, path, err);
    if (st == EXO_OK)
        st = path ? read_file(p, path, err) : read_lines(p, lines, err);
    if (st == EXO_OK)
        p->vocabulary = exo_tokenizer_vocabulary(p->tokenizer);
    return st;
}

exo_status
exo_prompts_read(exo_prompts **out, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    exo_prompts *p = exo_calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for prompts");
    exo_status st = exo_config_map(config, "prompts", &map, err);
    if (st == EXO_OK && !map)
        st = exo_config_fail(config, err, "the key 'prompts' is missing: prompts: {path: FILE}");
    if (st == EXO_OK)
        st = read_all(p, map, err);
    if (st != EXO_OK && st != EXO_NOMEM && map)
        exo_config_add_place(map, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    if (st == EXO_OK && (p->count == 0 || p->count > MAX_PROMPTS))
        st = exo_config_fail(map, err, "prompts: %zu prompts; expected 1 to %d", p->count,
                             MAX_PROMPTS);
    if (st == EXO_OK)
        *out = p;
    else
        exo_prompts_free(&p);
    return st;
}

/* --- Access ----------------------------------------------------------------------------------- */

size_t
exo_prompts_count(const exo_prompts *p)
{
    return p->count;
}

size_t
exo_prompts_longest(const exo_prompts *p)
{
    return p->longest;
}

size_t
exo_prompts_vocabulary(const exo_prompts *p)
{
    return p->vocabulary;
}

exo_tokenizer *
exo_prompts_tokenizer(const exo_prompts *p)
{
    return p->tokenizer;
}

exo_prompt
exo_prompts_at(const exo_prompts *p, size_t index)
{
    return (exo_prompt){.index = index, .tokens = p->tokens[index], .length = p->lengths[index]};
}

exo_status
exo_prompts_draw(exo_prompts *p, uint64_t seed, uint64_t draw, exo_prompt *out, exo_err *err)
{
    exo_rng rng;
    uint64_t epoch = draw / p->count;
    size_t index = (size_t)(draw % p->count);
    if (!p->order)
        p->order = exo_calloc(p->count, sizeof *p->order);
    if (!p->order)
        return exo_fail(err, EXO_NOMEM, "no memory for the order of %zu prompts", p->count);
    if (p->shuffle && (!p->ordered || p->epoch != epoch)) {
        exo_rng_init(&rng, seed, EXO_RNG_SHUFFLE, 0, epoch);
        exo_rng_permutation(&rng, p->order, (uint32_t)p->count);
        p->epoch = epoch;
        p->ordered = true;
    }
    if (p->shuffle)
        index = p->order[index];
    *out = exo_prompts_at(p, index);
    out->epoch = epoch;
    return EXO_OK;
}
