/* Whole copies: mappings with every key that their readers have asked for. Readers record their
 * fallbacks (config_tree.h), and the copy contains these for the missing keys. No state. Read next:
 * config_compare.c. */
#include "base/config_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/config_units.h"

static exo_status
fail_nomem(const exo_config_doc *doc, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "%s: out of memory", doc->source);
}

static exo_status
new_scalar(exo_config *at, const char *text, bool quoted, exo_config **out, exo_err *err)
{
    exo_status st = exo_config_new(at->doc, EXO_CONFIG_SCALAR, &at->place, out, err);
    if (st != EXO_OK)
        return st;
    (*out)->quoted = quoted;
    (*out)->text = exo_config_copy_text(at->doc, text, strlen(text));
    return (*out)->text ? EXO_OK : fail_nomem(at->doc, err);
}

/* --- Notes of readers ------------------------------------------------------------------------- */

exo_status
exo_config_stand_in(exo_config *map, const char *key, exo_config **out, exo_err *err)
{
    exo_config *given = NULL, *name = NULL;
    *out = NULL;
    if (!map)
        return EXO_OK;
    exo_status st = exo_config_ask(map, key, &given, err);
    if (st != EXO_OK)
        return st;
    exo_config_asked *asked = map->asked;
    while (strcmp(asked->key, key) != 0)
        asked = asked->link;
    if (given && given->kind == EXO_CONFIG_MAP) {
        asked->stand_in = NULL;
        *out = given;
        return EXO_OK;
    }
    if (given && (given->kind == EXO_CONFIG_LIST || exo_config_is_null(given)))
        return exo_config_fail_type(given, key, "a name or a mapping", err);
    /* made once: later readers get what the first one got */
    if (!asked->stand_in) {
        exo_config *made = NULL;
        st = exo_config_new(map->doc, EXO_CONFIG_MAP, given ? &given->place : &map->place, &made,
                            err);
        if (st == EXO_OK && given)
            st = new_scalar(made, given->text, given->quoted, &name, err);
        if (st == EXO_OK && given)
            st = exo_config_append(made, "name", &given->place, name, err);
        if (st != EXO_OK)
            return st;
        made->stands_for = given ? asked->key : NULL;
        asked->stand_in = made;
    }
    *out = asked->stand_in;
    return EXO_OK;
}

exo_status
exo_config_note_numbers(exo_config *map, const char *key, const double *numbers, size_t count,
                        exo_err *err)
{
    const exo_config_note note = {.kind = EXO_NOTE_NUMBERS, .numbers = numbers, .count = count};
    exo_config *node = NULL;
    return exo_config_ask_noting(map, key, &note, &node, err);
}

/* --- The copy --------------------------------------------------------------------------------- */

static exo_status
list_of(const exo_config_note *note, exo_config *at, exo_config **out, exo_err *err)
{
    char text[EXO_UNIT_TEXT];
    exo_status st = exo_config_new(at->doc, EXO_CONFIG_LIST, &at->place, out, err);
    for (size_t i = 0; st == EXO_OK && i < note->count; i++) {
        exo_config *item = NULL;
        st = new_scalar(at, exo_unit_number(note->numbers[i], text), false, &item, err);
        if (st == EXO_OK)
            st = exo_config_append(*out, NULL, &at->place, item, err);
    }
    return st;
}

/* Makes the node that reads as the noted fallback, in the document of `at`; *out is NULL if text
 * cannot express it. */
static exo_status
node_of(const exo_config_note *note, exo_config *at, exo_config **out, exo_err *err)
{
    char text[EXO_UNIT_TEXT];
    *out = NULL;
    switch (note->kind) {
    case EXO_NOTE_NONE:
        return EXO_OK;
    case EXO_NOTE_STRING:
        return new_scalar(at, note->text, true, out, err);
    case EXO_NOTE_NUMBERS:
        return list_of(note, at, out, err);
    case EXO_NOTE_BOOL:
        return new_scalar(at, note->truth ? "true" : "false", false, out, err);
    case EXO_NOTE_U64:
        snprintf(text, sizeof text, "%" PRIu64, note->integer);
        break;
    case EXO_NOTE_U64_BYTES:
        snprintf(text, sizeof text, "%" PRIu64 " B", note->integer);
        break;
    case EXO_NOTE_DOUBLE:
        exo_unit_number(note->number, text);
        break;
    case EXO_NOTE_FLOAT:
        exo_unit_float((float)note->number, text);
        break;
    case EXO_NOTE_TIME:
        exo_unit_time(note->time, text);
        break;
    case EXO_NOTE_RATE:
        exo_unit_rate(note->number, text);
        break;
    case EXO_NOTE_BYTES:
        exo_unit_bytes(note->number, text);
        break;
    }
    return new_scalar(at, text, false, out, err);
}

static exo_status copy_whole(exo_config *at, const exo_config *from, exo_config **out,
                             exo_err *err);

static exo_status
append(exo_config *into, const char *key, exo_config *value, exo_err *err)
{
    char *copy = key ? exo_config_copy_text(into->doc, key, strlen(key)) : NULL;
    if (key && !copy)
        return fail_nomem(into->doc, err);
    return exo_config_append(into, copy, &value->place, value, err);
}

/* Adds a copy of a given value, or of the stand-in that readers got for it. */
static exo_status
add_given(exo_config *into, const exo_config *from, const exo_config_entry *entry, exo_err *err)
{
    const exo_config_asked *asked = entry->key ? exo_config_asked_of(from, entry->key) : NULL;
    const exo_config *given = asked && asked->stand_in ? asked->stand_in : entry->value;
    exo_config *value = NULL, *fallback = NULL;
    exo_status st = copy_whole(into, given, &value, err);
    if (st == EXO_OK && asked && asked->is_text && value->kind == EXO_CONFIG_SCALAR &&
        !exo_config_is_null(value))
        value->quoted = true;
    if (st == EXO_OK && asked)
        st = node_of(&asked->note, into, &fallback, err);
    if (st == EXO_OK && fallback && !asked->stand_in)
        value->is_fallback = !exo_config_differs(fallback, value, NULL, NULL);
    return st == EXO_OK ? append(into, entry->key, value, err) : st;
}

static exo_status
add_missing(exo_config *into, const exo_config_asked *asked, exo_err *err)
{
    exo_config *value = NULL;
    exo_status st = asked->stand_in ? copy_whole(into, asked->stand_in, &value, err)
                                    : node_of(&asked->note, into, &value, err);
    if (st != EXO_OK || !value)
        return st;
    value->is_fallback = value->was_missing = true;
    return append(into, asked->key, value, err);
}

/* Adds the missing keys in the order in which readers first asked for them; the list begins with
 * the last one. */
static exo_status
add_all_missing(exo_config *into, const exo_config *from, exo_err *err)
{
    size_t count = 0;
    exo_status st = EXO_OK;
    for (const exo_config_asked *a = from->asked; a; a = a->link)
        count++;
    for (; st == EXO_OK && count > 0; count--) {
        const exo_config_asked *asked = from->asked;
        for (size_t i = 1; i < count; i++)
            asked = asked->link;
        if (!exo_config_find(from, asked->key))
            st = add_missing(into, asked, err);
    }
    return st;
}

static exo_status
copy_whole(exo_config *at, const exo_config *from, exo_config **out, exo_err *err)
{
    exo_status st = exo_config_new(at->doc, from->kind, &at->place, out, err);
    if (st != EXO_OK)
        return st;
    (*out)->quoted = from->quoted;
    if (from->text &&
        !((*out)->text = exo_config_copy_text(at->doc, from->text, strlen(from->text))))
        return fail_nomem(at->doc, err);
    for (size_t i = 0; st == EXO_OK && i < from->length; i++)
        st = add_given(*out, from, &from->entries[i], err);
    return st == EXO_OK && from->kind == EXO_CONFIG_MAP ? add_all_missing(*out, from, err) : st;
}

exo_status
exo_config_graft_whole(exo_config *into, const char *key, const exo_config *value, exo_err *err)
{
    exo_config *copy = NULL;
    exo_status st = copy_whole(into, value, &copy, err);
    return st == EXO_OK ? append(into, key, copy, err) : st;
}

void
exo_config_mark_fallback(exo_config *node)
{
    node->is_fallback = true;
}
