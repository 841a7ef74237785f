/* The typed readers of a configuration. A document belongs to one thread at a time; no other state.
 * Read next: config_tree.c (a document's memory), config_parse.c (text to tree), config_edit.c
 * (overrides), config_write.c (JSON and text). */
#include "base/config_tree.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/input.h"
#include "base/nearest.h"

enum {
    MAX_DESCRIPTION = 96, /* longest description of a value in a message */
};

/* --- Documents -------------------------------------------------------------------------------- */

static exo_status
parse_bytes(exo_config_doc **out, const char *source, const char *text, size_t size, exo_err *err)
{
    exo_status st = EXO_NOMEM;
    exo_config_doc *doc = exo_calloc(1, sizeof *doc);
    if (!doc || !(doc->source = exo_strdup(source))) {
        st = exo_fail(err, EXO_NOMEM, "%s: out of memory", source);
        goto done;
    }
    const exo_config_place start = {.line = 1, .column = 1};
    if (size > EXO_CONFIG_MAX_BYTES) {
        st = exo_config_fail_at(doc, &start, err, "larger than %d bytes", EXO_CONFIG_MAX_BYTES);
        goto done;
    }
    st = exo_config_read(doc, text, size, NULL, NULL, &doc->root, err);
    if (st == EXO_OK && (!doc->root || exo_config_is_null(doc->root)))
        st = exo_config_new(doc, EXO_CONFIG_MAP, &start, &doc->root, err);
    if (st != EXO_OK)
        goto done;
    *out = doc;
    doc = NULL; /* moved to the caller */
done:
    exo_config_free(&doc);
    return st;
}

exo_status
exo_config_parse(exo_config_doc **out, const char *source, const char *text, exo_err *err)
{
    return parse_bytes(out, source, text, strlen(text), err);
}

exo_status
exo_config_read_file(const char *path, char **text, size_t *size, exo_err *err)
{
    exo_status st = exo_input_read(path, EXO_CONFIG_MAX_BYTES, EXO_INPUT_PATIENCE, text, size, err);
    return st == EXO_INVAL ? exo_fail(err, st, "%s:1:1: larger than %d bytes", exo_input_name(path),
                                      EXO_CONFIG_MAX_BYTES)
                           : st;
}

exo_status
exo_config_load(exo_config_doc **out, const char *path, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    exo_status st = exo_config_read_file(path, &text, &size, err);
    if (st == EXO_OK)
        st = parse_bytes(out, exo_input_name(path), text, size, err);
    exo_free(text);
    return st;
}

exo_config *
exo_config_root(exo_config_doc *doc)
{
    return doc->root;
}

/* --- Messages --------------------------------------------------------------------------------- */

/* Describes a value for "expected ..., got ...". */
static const char *
describe(const exo_config *node, char text[MAX_DESCRIPTION])
{
    if (node->kind != EXO_CONFIG_SCALAR)
        return node->kind == EXO_CONFIG_MAP ? "a mapping" : "a list";
    if (exo_config_is_null(node))
        return "nothing";
    int length = (int)strcspn(node->text, "\r\n");
    snprintf(text, MAX_DESCRIPTION, node->quoted ? "the string \"%.*s\"" : "'%.*s'",
             length > 60 ? 60 : length, node->text);
    return text;
}

exo_status
exo_config_fail_type(const exo_config *node, const char *key, const char *expected, exo_err *err)
{
    char text[MAX_DESCRIPTION];
    return exo_config_fail(node, err, "%s: expected %s, got %s", key, expected,
                           describe(node, text));
}

/* --- Readers ---------------------------------------------------------------------------------- */

/* Finds `key` and its record, which is made if it is missing. *out_asked is NULL if there is no
 * mapping. */
static exo_status
ask(exo_config *map, const char *key, exo_config_asked **out_asked, exo_config **out, exo_err *err)
{
    *out = NULL;
    *out_asked = NULL;
    if (!map)
        return EXO_OK;
    if (map->kind != EXO_CONFIG_MAP) {
        char text[MAX_DESCRIPTION];
        return exo_config_fail(map, err, "expected a mapping, got %s", describe(map, text));
    }
    exo_config_asked *asked = exo_config_asked_of(map, key);
    if (!asked) {
        asked = exo_config_alloc(map->doc, sizeof *asked);
        char *copy = exo_config_copy_text(map->doc, key, strlen(key));
        map->forgot = map->forgot || !asked || !copy;
        if (!asked || !copy)
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", map->doc->source);
        asked->key = copy;
        asked->link = map->asked;
        map->asked = asked;
    }
    const exo_config_entry *entry = exo_config_find(map, key);
    *out_asked = asked;
    *out = entry ? entry->value : NULL;
    return EXO_OK;
}

exo_status
exo_config_ask(exo_config *map, const char *key, exo_config **out, exo_err *err)
{
    exo_config_asked *asked = NULL;
    return ask(map, key, &asked, out, err);
}

/* Records a fallback. Texts and numbers are copied, unless they equal the recorded ones, because a
 * node may be read a thousand times. */
static bool
take_note(exo_config_doc *doc, exo_config_note *into, const exo_config_note *note)
{
    const exo_config_note before = *into;
    *into = *note;
    if (note->kind == EXO_NOTE_STRING && !note->text)
        into->kind = EXO_NOTE_NONE;
    else if (note->kind == EXO_NOTE_STRING) {
        bool known = before.kind == note->kind && strcmp(before.text, note->text) == 0;
        into->text =
            known ? before.text : exo_config_copy_text(doc, note->text, strlen(note->text));
        return into->text != NULL;
    }
    if (note->kind == EXO_NOTE_NUMBERS) {
        size_t size = note->count * sizeof *note->numbers;
        bool known = before.kind == note->kind && before.count == note->count &&
                     memcmp(before.numbers, note->numbers, size) == 0;
        double *copy = known ? NULL : exo_config_alloc(doc, size);
        if (copy)
            memcpy(copy, note->numbers, size);
        into->numbers = known ? before.numbers : copy;
        return into->numbers != NULL;
    }
    return true;
}

exo_status
exo_config_ask_noting(exo_config *map, const char *key, const exo_config_note *note,
                      exo_config **out, exo_err *err)
{
    exo_config_asked *asked = NULL;
    exo_status st = ask(map, key, &asked, out, err);
    if (st != EXO_OK || !asked)
        return st;
    asked->is_text = note->kind == EXO_NOTE_STRING;
    if (take_note(map->doc, &asked->note, note))
        return EXO_OK;
    asked->note.kind = EXO_NOTE_NONE;
    return exo_fail(err, EXO_NOMEM, "%s: out of memory", map->doc->source);
}

bool
exo_config_has(const exo_config *map, const char *key)
{
    return map && map->kind == EXO_CONFIG_MAP && exo_config_find(map, key);
}

exo_status
exo_config_bool(exo_config *map, const char *key, bool fallback, bool *out, exo_err *err)
{
    const exo_config_note note = {.kind = EXO_NOTE_BOOL, .truth = fallback};
    exo_config *node = NULL;
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    const char *word =
        node->kind == EXO_CONFIG_SCALAR && !node->quoted ? exo_config_boolean(node->text) : NULL;
    if (!word)
        return exo_config_fail_type(node, key, "true or false", err);
    *out = *word == 't';
    return EXO_OK;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* [-+] digits [. digits] [e [-+] digits], with a digit before the exponent. */
bool
exo_config_is_number(const char *text, bool *integer)
{
    size_t digits = 0;
    *integer = true;
    if (*text == '-' || *text == '+')
        text++;
    for (; is_digit(*text); text++)
        digits++;
    if (*text == '.') {
        *integer = false;
        for (text++; is_digit(*text); text++)
            digits++;
    }
    if (digits == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        *integer = false;
        text++;
        if (*text == '-' || *text == '+')
            text++;
        if (!is_digit(*text))
            return false;
        while (is_digit(*text))
            text++;
    }
    return *text == '\0';
}

double
exo_config_to_double(const char *text)
{
    return exo_c_strtod(text, NULL);
}

bool
exo_config_vanishes(const char *text, double value)
{
    const char *first = text + strcspn(text, "123456789eE");
    return value == 0 && is_digit(*first);
}

static bool
is_plain_scalar(const exo_config *node)
{
    return node->kind == EXO_CONFIG_SCALAR && !node->quoted;
}

exo_status
exo_config_u64(exo_config *map, const char *key, uint64_t fallback, uint64_t min, uint64_t max,
               uint64_t *out, exo_err *err)
{
    /* A fallback outside the range cannot be written as a value. */
    const exo_config_note note = {.kind = fallback >= min && fallback <= max ? EXO_NOTE_U64
                                                                             : EXO_NOTE_NONE,
                                  .integer = fallback};
    exo_config *node = NULL;
    bool integer = false;
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    if (!is_plain_scalar(node) || !exo_config_is_number(node->text, &integer) || !integer)
        return exo_config_fail_type(node, key, "an integer", err);

    const char *digits = node->text + (*node->text == '-' || *node->text == '+');
    uint64_t value = 0;
    bool overflow = false;
    for (; *digits; digits++)
        overflow |= __builtin_mul_overflow(value, UINT64_C(10), &value) ||
                    __builtin_add_overflow(value, (uint64_t)(*digits - '0'), &value);
    bool negative = *node->text == '-' && (value > 0 || overflow);
    if (negative || (!overflow && value < min))
        return exo_config_fail(node, err, "%s must be at least %" PRIu64 ", got %.40s", key, min,
                               node->text);
    if (overflow || value > max)
        return exo_config_fail(node, err, "%s must be at most %" PRIu64 ", got %.40s", key, max,
                               node->text);
    *out = value;
    return EXO_OK;
}

static exo_status
read_double(exo_config *map, const char *key, exo_config_note_kind kind, double fallback,
            double min, double max, double *out, exo_err *err)
{
    bool rounds = kind == EXO_NOTE_FLOAT;
    bool is_valid = isfinite(fallback) && fallback >= (rounds ? (double)(float)min : min) &&
                    fallback <= (rounds ? (double)(float)max : max);
    const exo_config_note note = {.kind = is_valid ? kind : EXO_NOTE_NONE, .number = fallback};
    exo_config *node = NULL;
    bool integer = false;
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    if (!is_plain_scalar(node) || !exo_config_is_number(node->text, &integer))
        return exo_config_fail_type(node, key, "a number", err);
    double value = exo_config_to_double(node->text),
           rounded = rounds ? (double)(float)value : value;
    if (isinf(value))
        return exo_config_fail(node, err, "%s: %.40s is too large for a number", key, node->text);
    if (exo_config_vanishes(node->text, rounded))
        return exo_config_fail(node, err, "%s: %.40s is too small for a number, and would be 0",
                               key, node->text);
    if (value < min && rounded < min)
        return exo_config_fail(node, err, "%s must be at least %g, got %.40s", key, min,
                               node->text);
    if (value > max && rounded > max)
        return exo_config_fail(node, err, "%s must be at most %g, got %.40s", key, max, node->text);
    *out = value;
    return EXO_OK;
}

exo_status
exo_config_double(exo_config *map, const char *key, double fallback, double min, double max,
                  double *out, exo_err *err)
{
    return read_double(map, key, EXO_NOTE_DOUBLE, fallback, min, max, out, err);
}

exo_status
exo_config_float(exo_config *map, const char *key, float fallback, double min, double max,
                 float *out, exo_err *err)
{
    double value = 0;
    exo_status st = read_double(map, key, EXO_NOTE_FLOAT, (double)fallback, min, max, &value, err);
    if (st == EXO_OK)
        *out = (float)value;
    return st;
}

exo_status
exo_config_string(exo_config *map, const char *key, const char *fallback, const char **out,
                  exo_err *err)
{
    const exo_config_note note = {.kind = EXO_NOTE_STRING, .text = fallback};
    exo_config *node = NULL;
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (node && (node->kind != EXO_CONFIG_SCALAR || exo_config_is_null(node)))
        return exo_config_fail_type(node, key, "a string", err);
    *out = node ? node->text : fallback;
    return EXO_OK;
}

exo_status
exo_config_choice(exo_config *map, const char *key, size_t fallback, const char *const *choices,
                  size_t *out, exo_err *err)
{
    const exo_config_note note = {.kind = EXO_NOTE_STRING, .text = choices[fallback]};
    exo_config *node = NULL;
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    char expected[EXO_ERR_TEXT / 2];
    int used = snprintf(expected, sizeof expected, "%s", choices[1] ? "one of " : "");
    for (size_t i = 0; choices[i]; i++) {
        if (node->kind == EXO_CONFIG_SCALAR && strcmp(node->text, choices[i]) == 0) {
            *out = i;
            return EXO_OK;
        }
        if (used >= 0 && (size_t)used < sizeof expected)
            used += snprintf(expected + used, sizeof expected - (size_t)used, "%s%s", i ? ", " : "",
                             choices[i]);
    }
    return exo_config_fail_type(node, map->stands_for ? map->stands_for : key, expected, err);
}

static exo_status
ask_container(exo_config *map, const char *key, exo_config_kind kind, exo_config **out,
              exo_err *err)
{
    exo_config *node = NULL;
    exo_status st = exo_config_ask(map, key, &node, err);
    if (st != EXO_OK)
        return st;
    if (node && node->kind != kind)
        return exo_config_fail_type(node, key, kind == EXO_CONFIG_MAP ? "a mapping" : "a list",
                                    err);
    *out = node;
    return EXO_OK;
}

exo_status
exo_config_map(exo_config *map, const char *key, exo_config **out, exo_err *err)
{
    return ask_container(map, key, EXO_CONFIG_MAP, out, err);
}

exo_status
exo_config_list(exo_config *map, const char *key, exo_config **out, exo_err *err)
{
    return ask_container(map, key, EXO_CONFIG_LIST, out, err);
}

/* --- Inspection ------------------------------------------------------------------------------- */

size_t
exo_config_length(const exo_config *node)
{
    return node ? node->length : 0;
}

exo_config *
exo_config_item(exo_config *list, size_t index)
{
    return list && list->kind == EXO_CONFIG_LIST && index < list->length
               ? list->entries[index].value
               : NULL;
}

const char *
exo_config_key(exo_config *map, size_t index, exo_config **value)
{
    if (!map || map->kind != EXO_CONFIG_MAP || index >= map->length)
        return NULL;
    exo_config *found = NULL;
    if (exo_config_ask(map, map->entries[index].key, &found, NULL) != EXO_OK)
        return NULL;
    if (value)
        *value = found;
    return map->entries[index].key;
}

bool
exo_config_is_map(const exo_config *node)
{
    return node && node->kind == EXO_CONFIG_MAP;
}

bool
exo_config_is_list(const exo_config *node)
{
    return node && node->kind == EXO_CONFIG_LIST;
}

const char *
exo_config_scalar(const exo_config *node)
{
    return node && node->kind == EXO_CONFIG_SCALAR ? node->text : NULL;
}

const char *
exo_config_plain(const exo_config *node)
{
    return node && is_plain_scalar(node) ? node->text : NULL;
}

/* --- Unknown keys ----------------------------------------------------------------------------- */

static exo_status
fail_unknown(const exo_config *map, const exo_config_entry *entry, exo_err *err)
{
    exo_nearest nearest = {.word = entry->key};
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    for (const exo_config_asked *a = map->asked; a; a = a->link) {
        exo_nearest_try(&nearest, a->key);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     a->key);
    }
    if (exo_nearest_name(&nearest))
        return exo_config_fail_at(map->doc, &entry->place, err,
                                  "unknown key '%.60s'; did you mean '%s'?", entry->key,
                                  nearest.name);
    if (!map->asked)
        return exo_config_fail_at(map->doc, &entry->place, err,
                                  "unknown key '%.60s'; there are none here", entry->key);
    return exo_config_fail_at(map->doc, &entry->place, err, "unknown key '%.60s'; known are: %s",
                              entry->key, known);
}

exo_status
exo_config_check_misplaced(exo_config *map, const char *const *keys, const char *place,
                           exo_err *err)
{
    for (size_t i = 0; exo_config_is_map(map) && i < map->length; i++) {
        const exo_config_entry *entry = &map->entries[i];
        const exo_config_asked *asked = exo_config_asked_of(map, entry->key);
        for (size_t k = 0; !asked && keys[k]; k++)
            if (strcmp(entry->key, keys[k]) == 0)
                return exo_config_fail_at(map->doc, &entry->place, err,
                                          "unknown key '%.60s'; did you mean '%s%s'?", entry->key,
                                          place, keys[k]);
    }
    return EXO_OK;
}

exo_status
exo_config_finish(exo_config *map, exo_err *err)
{
    if (!map)
        return EXO_OK;
    if (map->kind != EXO_CONFIG_MAP) {
        char text[MAX_DESCRIPTION];
        return exo_config_fail(map, err, "expected a mapping, got %s", describe(map, text));
    }
    for (size_t i = 0; i < map->length; i++) {
        const exo_config_asked *asked = exo_config_asked_of(map, map->entries[i].key);
        if (!asked && map->forgot) /* exo_config_get has no error for it */
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", map->doc->source);
        if (!asked)
            return fail_unknown(map, &map->entries[i], err);
    }
    return EXO_OK;
}
