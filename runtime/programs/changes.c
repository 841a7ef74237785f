/* Records of changes: see changes.h. Read next: replay.c. */
#include "programs/changes.h"

#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/config_maker.h"
#include "base/config_units.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "programs/lenient_json.h"

enum {
    LARGEST = 16 << 20
};

static exo_status
write_config(const char *folder, exo_config_doc *config, exo_err *err)
{
    char *path = exo_text_make(err, "%s/config.json", folder), *text = NULL;
    exo_status st = path ? exo_config_json(exo_config_root(config), &text, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text, strlen(text), err);
    exo_free(text);
    exo_free(path);
    return st;
}

exo_status
exo_changes_read(const char *folder, exo_config_doc **out, exo_err *err)
{
    char *path = exo_text_make(err, "%s/config.json", folder), *text = NULL;
    size_t size = 0;
    exo_status st = path ? exo_file_read(path, LARGEST, &text, &size, err) : EXO_NOMEM;
    *out = NULL;
    if (st == EXO_OK)
        st = exo_config_parse(out, path, text, err);
    exo_free(text);
    exo_free(path);
    return st;
}

exo_status
exo_changes_expand(const exo_graph_spec *graph, exo_config_doc **out, exo_err *err)
{
    char *yaml = NULL;
    exo_status st = exo_graph_expand(graph, &yaml, err);
    *out = NULL;
    if (st == EXO_OK)
        st = exo_config_parse(out, graph->source, yaml, err);
    exo_free(yaml);
    return st;
}

/* --- Differences ------------------------------------------------------------------------------ */

/* A list of changes that a comparison fills. */
struct record {
    exo_config *list;
    exo_config_maker *maker;
};

static void
add_difference(struct record *r, const char *path, const exo_config *from, const exo_config *to)
{
    exo_config *entry = exo_make_map(r->maker, r->list, NULL);
    exo_make_string(r->maker, entry, "key", path);
    exo_make_copy(r->maker, entry, "from", from);
    exo_make_copy(r->maker, entry, "to", to);
}

exo_config *
exo_changes_edge(exo_config *edges, const char *name)
{
    for (size_t i = 0; i < exo_config_length(edges); i++) {
        exo_config *edge = exo_config_item(edges, i);
        const char *own = exo_config_scalar(exo_config_get(edge, "name"));
        if (own && strcmp(own, name) == 0)
            return edge;
    }
    return NULL;
}

static void compare(struct record *r, const char *path, exo_config *a, exo_config *b);

/* Compares lists of edges by name, whatever their order. */
static void
compare_edges(struct record *r, exo_config *a, exo_config *b)
{
    exo_config *sides[] = {a, b};
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < exo_config_length(sides[side]); i++) {
            exo_config *edge = exo_config_item(sides[side], i);
            const char *name = exo_config_scalar(exo_config_get(edge, "name"));
            exo_config *other = exo_changes_edge(sides[1 - side], name ? name : "?");
            char *path = exo_text_make(NULL, "edges.%s", name ? name : "?");
            if (path && side == 0)
                compare(r, path, edge, other);
            else if (path && !other)
                add_difference(r, path, NULL, edge);
            exo_free(path);
        }
    }
}

static void
compare(struct record *r, const char *path, exo_config *a, exo_config *b)
{
    if (a && b && !exo_config_differs(a, b, NULL, NULL))
        return;
    if (!exo_config_is_map(a) || !exo_config_is_map(b)) {
        add_difference(r, path, a, b);
        return;
    }
    exo_config *sides[] = {a, b};
    for (int side = 0; side < 2; side++) {
        exo_config *value = NULL;
        const char *key;
        for (size_t i = 0; (key = exo_config_key(sides[side], i, &value)); i++) {
            exo_config *other = exo_config_get(sides[1 - side], key);
            exo_text inner = {0};
            if (side == 1 && other)
                continue;
            exo_text_add(&inner, "%s%s%s", path, *path ? "." : "", key);
            if (inner.failed)
                add_difference(r, key, a, b);
            else if (strcmp(inner.data, "edges") == 0 && exo_config_is_list(value) &&
                     exo_config_is_list(other))
                compare_edges(r, value, other);
            else
                compare(r, inner.data, side == 0 ? value : NULL, side == 0 ? other : value);
            exo_free(inner.data);
        }
    }
}

/* --- Records ---------------------------------------------------------------------------------- */

json_t *
exo_changes_of(const char *folder)
{
    exo_config_doc *config = NULL;
    char *text = NULL;
    json_t *changes = NULL, *entry;
    json_error_t reason;
    size_t i;
    exo_config *list = exo_changes_read(folder, &config, NULL) == EXO_OK
                           ? exo_config_get(exo_config_root(config), "changes")
                           : NULL;
    if (exo_config_length(list) > 0 && exo_config_json(list, &text, NULL) == EXO_OK)
        changes = exo_json_load(text, strlen(text), &reason);
    json_array_foreach (changes, i, entry)
        json_object_del(entry, "graph");
    exo_config_free(&config);
    exo_free(text);
    return changes;
}

/* Was the change made after a later step than `step`? */
static bool
is_later(exo_config *entry, int64_t step)
{
    uint64_t made = 0;
    return step >= 0 && exo_config_u64(entry, "step", 0, 0, UINT64_MAX, &made, NULL) == EXO_OK &&
           made > (uint64_t)step;
}

/* Makes the list `changes` without entries of later steps than `step`. These were undone: the run
 * was resumed from an older checkpoint, and changed in another way before it reached their steps
 * again. */
static exo_config *
list_of(exo_config_maker *m, exo_config *root, int64_t step)
{
    exo_config *before = NULL;
    if (m->status == EXO_OK)
        m->status = exo_config_list(root, "changes", &before, m->err);
    if (m->status != EXO_OK)
        return NULL;
    exo_config_remove(root, "changes");
    exo_config *list = exo_make_list(m, root, "changes");
    for (size_t i = 0; i < exo_config_length(before); i++)
        if (!is_later(exo_config_item(before, i), step))
            exo_make_copy(m, list, NULL, exo_config_item(before, i));
    return list;
}

static void
add_head(exo_config_maker *m, exo_config *entry, const exo_change_time *when)
{
    char at[32], number[EXO_UNIT_TEXT];
    struct tm utc;
    time_t seconds = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    exo_make_string(m, entry, "at", at);
    exo_make_text(m, entry, "time_s", exo_unit_seconds(when->time, number));
    if (when->step >= 0)
        exo_make_number(m, entry, "step", (uint64_t)when->step);
}

exo_status
exo_changes_add(const char *folder, const exo_graph_spec *before, const exo_graph_spec *after,
                const exo_change_time *when, exo_err *err)
{
    static const char *const keys[] = {"hosts", "links", "edges"};
    exo_config_doc *from = NULL, *to = NULL, *config = NULL;
    exo_config_maker m = {.err = err};
    m.status = exo_changes_expand(before, &from, err);
    if (m.status == EXO_OK)
        m.status = exo_changes_expand(after, &to, err);
    if (m.status == EXO_OK)
        m.status = exo_changes_read(folder, &config, err);
    exo_config *root = m.status == EXO_OK ? exo_config_root(config) : NULL,
               *list = list_of(&m, root, when->step), *entry = exo_make_map(&m, list, NULL);
    add_head(&m, entry, when);
    struct record r = {.list = exo_make_list(&m, entry, "changed"), .maker = &m};
    if (m.status == EXO_OK)
        compare(&r, "", exo_config_root(from), exo_config_root(to));
    if (m.status == EXO_OK && when->step >= 0) /* a resumed job replays the change from it */
        exo_make_copies(&m, exo_make_map(&m, entry, "graph"), exo_config_root(to), keys,
                        sizeof keys / sizeof *keys);
    if (m.status == EXO_OK)
        m.status = write_config(folder, config, err);
    exo_config_free(&from);
    exo_config_free(&to);
    exo_config_free(&config);
    return m.status;
}

exo_status
exo_changes_begin(const char *folder, const exo_graph_spec *graph, exo_err *err)
{
    exo_config_doc *config = NULL;
    exo_status st = exo_changes_expand(graph, &config, err);
    if (st == EXO_OK)
        st = write_config(folder, config, err);
    exo_config_free(&config);
    return st;
}
