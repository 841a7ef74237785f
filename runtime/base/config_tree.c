/* A document as a tree of nodes: its memory, its growth, and messages that name a place in it. A
 * document belongs to one thread at a time; no other state. Read next: config_parse.c, which makes
 * the tree, and config.c, which reads it. */
#include "base/config_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/nearest.h"
#include "base/printable.h"

enum {
    BLOCK_BYTES = 16 << 10,
    LONG_WORD = 6 /* letters */
};

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct exo_config_block {
    struct exo_config_block *link;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

/* --- Memory ----------------------------------------------------------------------------------- */

void *
exo_config_alloc(exo_config_doc *doc, size_t size)
{
    size = (size + 15) / 16 * 16;
    struct exo_config_block *block = doc->blocks;
    if (!block || block->size - block->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = exo_calloc(1, sizeof *block + room);
        if (!block)
            return NULL;
        block->size = room;
        block->link = doc->blocks;
        doc->blocks = block;
    }
    void *memory = block->bytes + block->used;
    block->used += size;
    return memory;
}

char *
exo_config_copy_text(exo_config_doc *doc, const char *text, size_t length)
{
    char *copy = exo_config_alloc(doc, length + 1);
    if (copy)
        memcpy(copy, text, length);
    return copy;
}

exo_status
exo_config_new(exo_config_doc *doc, exo_config_kind kind, const exo_config_place *place,
               exo_config **out, exo_err *err)
{
    if (doc->num_nodes >= EXO_CONFIG_MAX_NODES)
        return exo_config_fail_at(doc, place, err, "more than %d values in one document",
                                  EXO_CONFIG_MAX_NODES);
    exo_config *node = exo_config_alloc(doc, sizeof *node);
    if (!node)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", doc->source);
    doc->num_nodes++;
    node->doc = doc;
    node->kind = kind;
    node->place = *place;
    node->text = kind == EXO_CONFIG_SCALAR ? "" : NULL;
    *out = node;
    return EXO_OK;
}

exo_status
exo_config_append(exo_config *parent, const char *key, const exo_config_place *place,
                  exo_config *value, exo_err *err)
{
    if (parent->length == parent->capacity) {
        size_t capacity = parent->capacity ? 2 * parent->capacity : 4;
        exo_config_entry *entries = exo_config_alloc(parent->doc, capacity * sizeof *entries);
        if (!entries)
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", parent->doc->source);
        if (parent->length)
            memcpy(entries, parent->entries, parent->length * sizeof *entries);
        parent->entries = entries;
        parent->capacity = capacity;
    }
    parent->entries[parent->length++] =
        (exo_config_entry){.key = key, .place = *place, .value = value};
    return EXO_OK;
}

exo_config_entry *
exo_config_find(const exo_config *map, const char *key)
{
    for (size_t i = 0; i < map->length; i++)
        if (map->entries[i].key && strcmp(map->entries[i].key, key) == 0)
            return &map->entries[i];
    return NULL;
}

exo_config_asked *
exo_config_asked_of(const exo_config *map, const char *key)
{
    exo_config_asked *asked = map->asked;
    while (asked && strcmp(asked->key, key) != 0)
        asked = asked->link;
    return asked;
}

void
exo_config_free(exo_config_doc **doc)
{
    if (!doc || !*doc)
        return;
    struct exo_config_block *block = (*doc)->blocks;
    while (block) {
        struct exo_config_block *next = block->link;
        exo_free(block);
        block = next;
    }
    exo_free((*doc)->source);
    exo_free(*doc);
    *doc = NULL;
}

/* --- Messages --------------------------------------------------------------------------------- */

static exo_status
fail_at(const exo_config_doc *doc, const exo_config_place *place, exo_err *err, const char *format,
        va_list args)
{
    char reason[EXO_ERR_TEXT];
    int length = exo_c_vsnprintf(reason, sizeof reason, format, args);
    if (place->alias_line > 0 && length > 0 && (size_t)length < sizeof reason)
        snprintf(reason + length, sizeof reason - (size_t)length,
                 " (used by the alias in line %u, column %u)", place->alias_line,
                 place->alias_column);
    if (place->origin)
        return exo_fail(err, EXO_INVAL, "%s: %s", place->origin, reason);
    return exo_fail(err, EXO_INVAL, "%s:%u:%u: %s", place->source ? place->source : doc->source,
                    place->line, place->column, reason);
}

exo_status
exo_config_fail_at(const exo_config_doc *doc, const exo_config_place *place, exo_err *err,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    exo_status st = fail_at(doc, place, err, format, args);
    va_end(args);
    return st;
}

/* Whether the text has the key as a word. */
static bool
mentions(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key))
        if ((at == text || !strchr(WORD, at[-1])) && (!at[length] || !strchr(WORD, at[length])))
            return true;
    return false;
}

/* Whether one letter of a long word is wrong. "steps" only goes on after "step": these are two words. */
static bool
is_slip(const exo_nearest *nearest)
{
    size_t length = strlen(nearest->word), other = strlen(nearest->name);
    return nearest->edits == 1 && other >= LONG_WORD &&
           strncmp(nearest->word, nearest->name, length < other ? length : other) != 0;
}

void
exo_config_suggest(const exo_config *map, exo_err *err)
{
    for (size_t i = 0; err && map->kind == EXO_CONFIG_MAP && i < map->length; i++) {
        const exo_config_entry *entry = &map->entries[i];
        const size_t length = strlen(err->text);
        exo_nearest nearest = {.word = entry->key};
        if (exo_config_asked_of(map, entry->key)) /* its reader has taken it */
            continue;
        for (const exo_config_asked *a = map->asked; a; a = a->link)
            if (!exo_config_find(map, a->key))
                exo_nearest_try(&nearest, a->key);
        const char *meant = exo_nearest_name(&nearest);
        if (!meant || !(mentions(err->text, meant) || is_slip(&nearest)))
            continue;
        exo_format_cut(err->text + length, sizeof err->text - length,
                       "; is '%.60s' in line %u meant to be '%s'?", entry->key, entry->place.line,
                       meant);
        return;
    }
}

exo_status
exo_config_fail(const exo_config *node, exo_err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    exo_status st = fail_at(node->doc, &node->place, err, format, args);
    va_end(args);
    exo_config_suggest(node, err);
    return st;
}

bool
exo_config_is_null(const exo_config *node)
{
    static const char *const names[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != EXO_CONFIG_SCALAR || node->quoted)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(node->text, names[i]) == 0)
            return true;
    return false;
}

const char *
exo_config_boolean(const char *text)
{
    static const char *const constants[2][3] = {{"false", "False", "FALSE"},
                                                {"true", "True", "TRUE"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 3; i++)
            if (strcmp(text, constants[value][i]) == 0)
                return constants[value][0];
    return NULL;
}
