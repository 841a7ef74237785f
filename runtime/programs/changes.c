/* Records of changes: see changes.h. Read next: replay.c. */
#include "programs/changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
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

/* A list of changes that a comparison fills. `st` is the first error. */
struct record {
    exo_config *list;
    exo_status st;
    exo_err *err;
};

static void
add_difference(struct record *r, const char *path, const exo_config *from, const exo_config *to)
{
    exo_config *entry = NULL;
    if (r->st == EXO_OK)
        r->st = exo_config_new_map(r->list, &entry, r->err);
    if (r->st == EXO_OK)
        r->st = exo_config_graft_string(entry, "key", path, r->err);
    if (r->st == EXO_OK && from)
        r->st = exo_config_graft(entry, "from", from, r->err);
    if (r->st == EXO_OK && to)
        r->st = exo_config_graft(entry, "to", to, r->err);
    if (r->st == EXO_OK)
        r->st = exo_config_adopt(r->list, NULL, entry, r->err);
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
static exo_status
list_of(exo_config *root, int64_t step, exo_config **out, exo_err *err)
{
    exo_config *before = NULL;
    exo_status st = exo_config_list(root, "changes", &before, err);
    if (st == EXO_OK)
        st = exo_config_new_list(root, out, err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(before); i++)
        if (!is_later(exo_config_item(before, i), step))
            st = exo_config_graft(*out, NULL, exo_config_item(before, i), err);
    if (st == EXO_OK) {
        exo_config_remove(root, "changes");
        st = exo_config_adopt(root, "changes", *out, err);
    }
    return st;
}

static exo_status
add_head(exo_config *entry, const exo_change_time *when, exo_err *err)
{
    char at[32], number[EXO_UNIT_TEXT];
    struct tm utc;
    time_t seconds = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    exo_status st = exo_config_graft_string(entry, "at", at, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(entry, "time_s", exo_unit_seconds(when->time, number), err);
    if (st == EXO_OK && when->step >= 0) {
        snprintf(number, sizeof number, "%" PRId64, when->step);
        st = exo_config_graft_text(entry, "step", number, err);
    }
    return st;
}

/* Adds the graph after the change, from which a resumed job replays it. */
static exo_status
add_graph(exo_config *entry, exo_config *graph, exo_err *err)
{
    static const char *const keys[] = {"hosts", "links", "edges"};
    exo_config *kept = NULL;
    exo_status st = exo_config_new_map(entry, &kept, err);
    for (size_t i = 0; st == EXO_OK && i < sizeof keys / sizeof *keys; i++)
        if (exo_config_get(graph, keys[i]))
            st = exo_config_graft(kept, keys[i], exo_config_get(graph, keys[i]), err);
    return st == EXO_OK ? exo_config_adopt(entry, "graph", kept, err) : st;
}

exo_status
exo_changes_add(const char *folder, const exo_graph_spec *before, const exo_graph_spec *after,
                const exo_change_time *when, exo_err *err)
{
    exo_config_doc *from = NULL, *to = NULL, *config = NULL;
    exo_config *all = NULL, *entry = NULL, *changed = NULL;
    exo_status st = exo_changes_expand(before, &from, err);
    if (st == EXO_OK)
        st = exo_changes_expand(after, &to, err);
    if (st == EXO_OK)
        st = exo_changes_read(folder, &config, err);
    if (st == EXO_OK)
        st = list_of(exo_config_root(config), when->step, &all, err);
    if (st == EXO_OK)
        st = exo_config_new_map(all, &entry, err);
    if (st == EXO_OK)
        st = add_head(entry, when, err);
    if (st == EXO_OK)
        st = exo_config_new_list(entry, &changed, err);
    if (st == EXO_OK)
        st = exo_config_adopt(entry, "changed", changed, err);
    if (st == EXO_OK) {
        struct record r = {.list = changed, .err = err};
        compare(&r, "", exo_config_root(from), exo_config_root(to));
        st = r.st;
    }
    if (st == EXO_OK && when->step >= 0)
        st = add_graph(entry, exo_config_root(to), err);
    if (st == EXO_OK)
        st = exo_config_adopt(all, NULL, entry, err);
    if (st == EXO_OK)
        st = write_config(folder, config, err);
    exo_config_free(&from);
    exo_config_free(&to);
    exo_config_free(&config);
    return st;
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
