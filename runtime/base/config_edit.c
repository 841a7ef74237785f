/* Edits of a document: assignments from the command line or a preset, overlays, copies between
 * documents. No state. */
#include "base/config_edit.h"

#include "base/config_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/input.h"
#include "base/printable.h"

enum {
    MAX_LABEL = 100
};

static exo_status
fail_nomem(const exo_config_doc *doc, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "%s: out of memory", doc->source);
}

static exo_status
copy(exo_config_doc *doc, const exo_config *from, exo_config **out, exo_err *err)
{
    exo_config *node = NULL;
    exo_status st = exo_config_new(doc, from->kind, &from->place, &node, err);
    if (st != EXO_OK)
        return st;
    node->text = from->text;
    node->quoted = from->quoted;
    for (size_t i = 0; i < from->length; i++) {
        exo_config *child = NULL;
        st = copy(doc, from->entries[i].value, &child, err);
        if (st == EXO_OK)
            st = exo_config_append(node, from->entries[i].key, &from->entries[i].place, child, err);
        if (st != EXO_OK)
            return st;
    }
    *out = node;
    return EXO_OK;
}

/* Finds the entry of `parent` that one part of a path names. A new key of a mapping, or the index
 * after the end of a list, makes an entry without a value. */
static exo_status
step_into(exo_config *parent, const char *part, const exo_config_place *place,
          exo_config_entry **out, exo_err *err)
{
    exo_config_doc *doc = parent->doc;
    if (parent->kind == EXO_CONFIG_SCALAR)
        return exo_config_fail_at(doc, place, err, "'%s' cannot be set inside the value '%.60s'",
                                  part, parent->text);
    if (parent->kind == EXO_CONFIG_LIST) {
        bool integer = false;
        if (strlen(part) > 6 || !exo_config_is_number(part, &integer) || !integer || *part == '-' ||
            *part == '+')
            return exo_config_fail_at(doc, place, err, "'%.60s' is no index of a list", part);
        size_t index = (size_t)strtoul(part, NULL, 10);
        if (index > parent->length)
            return exo_config_fail_at(doc, place, err, "index %zu is past the end of a list of %zu",
                                      index, parent->length);
        if (index == parent->length) {
            exo_status st = exo_config_append(parent, NULL, place, NULL, err);
            if (st != EXO_OK)
                return st;
        }
        *out = &parent->entries[index];
        return EXO_OK;
    }
    *out = exo_config_find(parent, part);
    if (*out)
        return EXO_OK;
    char *key = exo_config_copy_text(doc, part, strlen(part));
    if (!key)
        return fail_nomem(doc, err);
    exo_status st = exo_config_append(parent, key, place, NULL, err);
    if (st == EXO_OK)
        *out = &parent->entries[parent->length - 1];
    return st;
}

/* Puts `value` (of the same document) at `path` and makes the missing mappings. After an error the
 * document is no longer usable. */
static exo_status
put_at(exo_config_doc *doc, const char *path, exo_config *value, const exo_config_place *place,
       exo_err *err)
{
    exo_config *at = doc->root;
    for (unsigned depth = 0;; depth++) {
        size_t length = strcspn(path, ".");
        if (length == 0 || depth >= EXO_CONFIG_MAX_DEPTH)
            return exo_config_fail_at(doc, place, err,
                                      "'%.60s' is no path of keys like train.max_steps", path);
        char *part = exo_config_copy_text(doc, path, length);
        if (!part)
            return fail_nomem(doc, err);
        exo_config_entry *entry = NULL;
        exo_status st = step_into(at, part, place, &entry, err);
        if (st != EXO_OK)
            return st;
        if (path[length] == '\0') {
            entry->place = *place;
            entry->value = value;
            return EXO_OK;
        }
        if (!entry->value || exo_config_is_null(entry->value)) {
            st = exo_config_new(doc, EXO_CONFIG_MAP, place, &entry->value, err);
            if (st != EXO_OK)
                return st;
        }
        at = entry->value;
        path += length + 1;
    }
}

exo_status
exo_config_put(exo_config *value, const char *path, exo_err *err)
{
    exo_config *node = NULL;
    exo_status st = copy(value->doc, value, &node, err);
    return st == EXO_OK ? put_at(value->doc, path, node, &value->place, err) : st;
}

exo_status
exo_config_set(exo_config_doc *doc, const char *assignment, exo_err *err)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return exo_fail(err, EXO_INVAL, "--set %.60s: expected KEY=VALUE", assignment);
    size_t length = (size_t)(equals - assignment);
    char *path = exo_config_copy_text(doc, assignment, length);
    char *origin = exo_config_alloc(doc, length + sizeof "--set ");
    if (!path || !origin)
        return fail_nomem(doc, err);
    snprintf(origin, length + sizeof "--set ", "--set %s", path);

    const exo_config_place place = {.origin = origin, .line = 1, .column = 1};
    const char *text = equals + 1;
    exo_config *value = NULL;
    exo_status st =
        strlen(text) > EXO_CONFIG_MAX_BYTES
            ? exo_config_fail_at(doc, &place, err, "larger than %d bytes", EXO_CONFIG_MAX_BYTES)
            : exo_config_read(doc, text, strlen(text), NULL, origin, &value, err);
    if (st == EXO_OK && !value)
        st = exo_config_new(doc, EXO_CONFIG_SCALAR, &place, &value, err);
    return st == EXO_OK ? put_at(doc, path, value, &place, err) : st;
}

const exo_config *
exo_config_find_set(const exo_config *node)
{
    const exo_config *found = node && node->place.origin ? node : NULL;
    for (size_t i = 0; !found && node && i < node->length; i++)
        found = exo_config_find_set(node->entries[i].value);
    return found;
}

exo_status
exo_config_overlay(const exo_config *base, exo_config *top, exo_config **out, exo_err *err)
{
    exo_config *node = NULL;
    exo_config_doc *doc = top->doc;
    exo_status st = exo_config_new(doc, EXO_CONFIG_MAP, &top->place, &node, err);
    for (size_t i = 0; st == EXO_OK && base && i < base->length; i++) {
        const exo_config_entry *entry = &base->entries[i];
        exo_config *value = NULL;
        if (top->kind == EXO_CONFIG_MAP ? exo_config_find(top, entry->key) != NULL
                                        : strcmp(entry->key, "name") == 0)
            continue;
        st = copy(doc, entry->value, &value, err);
        if (st == EXO_OK)
            st = exo_config_append(node, entry->key, &entry->place, value, err);
    }
    if (st == EXO_OK && top->kind == EXO_CONFIG_SCALAR) {
        exo_config *value = NULL;
        st = copy(doc, top, &value, err);
        if (st == EXO_OK)
            st = exo_config_append(node, "name", &top->place, value, err);
    }
    for (size_t i = 0; st == EXO_OK && top->kind == EXO_CONFIG_MAP && i < top->length; i++) {
        const exo_config_entry *entry = &top->entries[i];
        exo_config *value = NULL;
        st = copy(doc, entry->value, &value, err);
        if (st == EXO_OK)
            st = exo_config_append(node, entry->key, &entry->place, value, err);
    }
    if (st == EXO_OK)
        *out = node;
    return st;
}

void
exo_config_remove(exo_config *map, const char *key)
{
    exo_config_entry *entry = exo_config_find(map, key);
    if (!entry)
        return;
    size_t after = (size_t)(map->entries + map->length - entry) - 1;
    memmove(entry, entry + 1, after * sizeof *entry);
    map->length--;
}

exo_config *
exo_config_get(exo_config *map, const char *key)
{
    exo_config *value = NULL;
    if (!exo_config_is_map(map) || exo_config_ask(map, key, &value, NULL) != EXO_OK)
        return NULL;
    return value;
}

exo_status
exo_config_new_map(const exo_config *at, exo_config **out, exo_err *err)
{
    return exo_config_new(at->doc, EXO_CONFIG_MAP, &at->place, out, err);
}

exo_status
exo_config_new_list(const exo_config *at, exo_config **out, exo_err *err)
{
    return exo_config_new(at->doc, EXO_CONFIG_LIST, &at->place, out, err);
}

/* Copies a place; its texts live in `doc`. */
static exo_status
adopt_place(exo_config_doc *doc, const exo_config_doc *from, const exo_config_place *place,
            exo_config_place *out, exo_err *err)
{
    const char *source = place->source ? place->source : from->source;
    *out = *place;
    out->source =
        strcmp(source, doc->source) == 0 ? NULL : exo_config_copy_text(doc, source, strlen(source));
    out->origin =
        place->origin ? exo_config_copy_text(doc, place->origin, strlen(place->origin)) : NULL;
    bool failed =
        (place->origin && !out->origin) || (!out->source && strcmp(source, doc->source) != 0);
    return failed ? fail_nomem(doc, err) : EXO_OK;
}

/* Copies a node; its texts live in `doc`. */
static exo_status
adopt(exo_config_doc *doc, const exo_config *from, exo_config **out, exo_err *err)
{
    exo_config_place place;
    exo_status st = adopt_place(doc, from->doc, &from->place, &place, err);
    if (st == EXO_OK)
        st = exo_config_new(doc, from->kind, &place, out, err);
    if (st != EXO_OK)
        return st;
    (*out)->quoted = from->quoted;
    if (from->text && !((*out)->text = exo_config_copy_text(doc, from->text, strlen(from->text))))
        return fail_nomem(doc, err);
    for (size_t i = 0; st == EXO_OK && i < from->length; i++) {
        const exo_config_entry *entry = &from->entries[i];
        exo_config *child = NULL;
        char *key = entry->key ? exo_config_copy_text(doc, entry->key, strlen(entry->key)) : NULL;
        if (entry->key && !key)
            return fail_nomem(doc, err);
        st = adopt_place(doc, from->doc, &entry->place, &place, err);
        if (st == EXO_OK)
            st = adopt(doc, entry->value, &child, err);
        if (st == EXO_OK)
            st = exo_config_append(*out, key, &place, child, err);
    }
    return st;
}

exo_status
exo_config_adopt(exo_config *into, const char *key, exo_config *value, exo_err *err)
{
    char *copied = key ? exo_config_copy_text(into->doc, key, strlen(key)) : NULL;
    if (key && !copied)
        return fail_nomem(into->doc, err);
    return exo_config_append(into, copied, &value->place, value, err);
}

exo_status
exo_config_graft(exo_config *into, const char *key, const exo_config *value, exo_err *err)
{
    exo_config *node = NULL;
    exo_status st = adopt(into->doc, value, &node, err);
    return st == EXO_OK ? exo_config_adopt(into, key, node, err) : st;
}

static exo_status
graft_scalar(exo_config *into, const char *key, const char *text, bool quoted, exo_err *err)
{
    exo_config *node = NULL;
    exo_status st = exo_config_new(into->doc, EXO_CONFIG_SCALAR, &into->place, &node, err);
    if (st != EXO_OK)
        return st;
    node->quoted = quoted;
    node->text = exo_config_copy_text(into->doc, text, strlen(text));
    return node->text ? exo_config_adopt(into, key, node, err) : fail_nomem(into->doc, err);
}

exo_status
exo_config_graft_text(exo_config *into, const char *key, const char *text, exo_err *err)
{
    return graft_scalar(into, key, text, false, err);
}

exo_status
exo_config_graft_string(exo_config *into, const char *key, const char *text, exo_err *err)
{
    return graft_scalar(into, key, text, true, err);
}

exo_config_doc *
exo_config_document(const exo_config *node)
{
    return node->doc;
}

const exo_config *
exo_config_peek(const exo_config *map, const char *key)
{
    const exo_config_entry *entry =
        map && map->kind == EXO_CONFIG_MAP ? exo_config_find(map, key) : NULL;
    return entry ? entry->value : NULL;
}

/* --- Places ----------------------------------------------------------------------------------- */

void
exo_config_where(const exo_config *node, char *out, size_t size)
{
    exo_err err = {0};
    exo_config_fail(node, &err, "%s", "");
    err.text[strlen(err.text) - strlen(": ")] = '\0';
    snprintf(out, size, "%s", err.text);
}

static bool
begins_with_place(const exo_err *err, const char *source)
{
    char shown[EXO_ERR_TEXT]; /* as exo_fail shows it */
    size_t length = strlen(exo_printable(shown, sizeof shown, source, EXO_SHOWN_LINE));
    return strncmp(err->text, shown, length) == 0 && err->text[length] == ':';
}

exo_status
exo_config_add_place(const exo_config *node, exo_err *err)
{
    if (!err)
        return EXO_INVAL;
    exo_status code = err->code;
    bool placed = strncmp(err->text, "--set ", strlen("--set ")) == 0 ||
                  begins_with_place(err, node->doc->source) ||
                  begins_with_place(err, exo_config_source(node));
    for (const exo_config_file *file = node->doc->files; file && !placed; file = file->link)
        placed = begins_with_place(err, file->path);
    if (placed)
        return code;
    char reason[EXO_ERR_TEXT];
    memcpy(reason, err->text, sizeof reason);
    exo_config_fail(node, err, "%s", reason[0] ? reason : exo_status_text(code));
    err->code = code;
    return code;
}

const char *
exo_config_source(const exo_config *node)
{
    return node->place.source && !node->place.origin ? node->place.source : node->doc->source;
}

char *
exo_config_relative(const exo_config *node, const char *path)
{
    const char *source = exo_config_source(node),
               *slash = exo_input_is_unnamed(source) ? NULL : strrchr(source, '/');
    int folder = *path != '/' && slash ? (int)(slash + 1 - source) : 0;
    return exo_text_make(NULL, "%.*s%s", folder, folder ? source : "", path);
}

bool
exo_config_is_label(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return *text && *text != '.' && *text != '-' && strlen(text) <= MAX_LABEL &&
           !text[strspn(text, allowed)];
}
