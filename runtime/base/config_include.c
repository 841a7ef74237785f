/* Further files of a document. Their nodes belong to the document, and messages name their own
 * file. No state. */
#include "base/config_tree.h"

#include <string.h>

#include <exogym/memory.h>

exo_status
exo_config_load_more(exo_config_doc *doc, const char *path, exo_config **out, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    exo_config *node = NULL;
    exo_config_file *file = exo_config_alloc(doc, sizeof *file);
    const char *source = exo_config_copy_text(doc, path, strlen(path));
    if (!file || !source)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", path);
    *file = (exo_config_file){.link = doc->files, .path = source};
    doc->files = file;

    const exo_config_place start = {.source = source, .line = 1, .column = 1};
    exo_status st = exo_config_read_file(path, &text, &size, err);
    if (st == EXO_OK && size > EXO_CONFIG_MAX_BYTES)
        st = exo_config_fail_at(doc, &start, err, "larger than %d bytes", EXO_CONFIG_MAX_BYTES);
    if (st == EXO_OK)
        st = exo_config_read(doc, text, size, source, NULL, &node, err);
    if (st == EXO_OK && (!node || exo_config_is_null(node)))
        st = exo_config_new(doc, EXO_CONFIG_MAP, &start, &node, err);
    exo_free(text);
    if (st == EXO_OK)
        *out = node;
    return st;
}

static exo_status
fail_duplicate(const exo_config *into, const exo_config_entry *first,
               const exo_config_entry *second, const char *what, exo_err *err)
{
    const char *source = first->place.source ? first->place.source : into->doc->source;
    if (first->place.origin)
        source = first->place.origin;
    return exo_config_fail_at(into->doc, &second->place, err,
                              "duplicate %s '%.60s', first in %s:%u:%u", what, second->key, source,
                              first->place.line, first->place.column);
}

exo_status
exo_config_merge(exo_config *into, const exo_config *from, const char *what, exo_err *err)
{
    /* the keys of one mapping differ already */
    size_t own = into->length;
    for (size_t i = 0; i < from->length; i++) {
        const exo_config_entry *entry = &from->entries[i];
        for (size_t k = 0; entry->key && k < own; k++)
            if (strcmp(into->entries[k].key, entry->key) == 0)
                return fail_duplicate(into, &into->entries[k], entry, what, err);
        exo_status st = exo_config_append(into, entry->key, &entry->place, entry->value, err);
        if (st != EXO_OK)
            return st;
    }
    return EXO_OK;
}

/* --- Files that values name ------------------------------------------------------------------- */

exo_status
exo_config_note_file(const exo_config *at, const char *path, exo_err *err)
{
    exo_config_named **last = &at->doc->named;
    for (; *last; last = &(*last)->link)
        if (strcmp((*last)->path, path) == 0)
            return EXO_OK;
    exo_config_named *named = exo_config_alloc(at->doc, sizeof *named);
    const char *copy = exo_config_copy_text(at->doc, path, strlen(path));
    if (!named || !copy)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", path);
    *named = (exo_config_named){.path = copy, .at = at};
    *last = named;
    return EXO_OK;
}

const char *
exo_config_noted_file(const exo_config_doc *doc, size_t index, const exo_config **at)
{
    const exo_config_named *named = doc->named;
    for (; named && index > 0; index--)
        named = named->link;
    if (named && at)
        *at = named->at;
    return named ? named->path : NULL;
}
