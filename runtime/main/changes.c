/* Records of changes: see changes.h. */
#include "changes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "file.h"
#include "grow_text.h"

#define JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(15))

enum {
    LARGEST = 16 << 20
};

static void
release_text(char *text)
{
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
}

static char *
config_path(const char *folder)
{
    exo_text path = {0};
    exo_text_add(&path, "%s/config.json", folder);
    if (path.failed) {
        exo_free(path.data);
        return NULL;
    }
    return path.data;
}

static exo_status
write_config(const char *folder, const json_t *config, exo_err *err)
{
    char *path = config_path(folder), *text = config ? json_dumps(config, JSON_STYLE) : NULL;
    exo_status st =
        path && text ? exo_file_write_atomic(path, text, strlen(text), err) : exo_fail(err, EXO_NOMEM, "out of memory");
    release_text(text);
    exo_free(path);
    return st;
}

/* NULL: there is none, or it is not JSON. */
static json_t *
read_config(const char *folder)
{
    char *path = config_path(folder), *text = NULL;
    size_t size = 0;
    json_t *config = NULL;
    if (path && exo_file_read(path, LARGEST, &text, &size, NULL) == EXO_OK)
        config = json_loadb(text, size, 0, NULL);
    exo_free(text);
    exo_free(path);
    return config;
}

/* With every default. */
static exo_status
graph_json(const exo_graph_spec *graph, json_t **out, exo_err *err)
{
    char *yaml = NULL, *text = NULL;
    exo_config_doc *doc = NULL;
    exo_status st = exo_graph_expand(graph, &yaml, err);
    if (st == EXO_OK)
        st = exo_config_parse(&doc, graph->source, yaml, err);
    if (st == EXO_OK)
        st = exo_config_json(exo_config_root(doc), &text, err);
    *out = st == EXO_OK ? json_loads(text, 0, NULL) : NULL;
    if (st == EXO_OK && !*out)
        st = exo_fail(err, EXO_NOMEM, "no memory for JSON, or a text that is not UTF-8");
    exo_config_free(&doc);
    exo_free(yaml);
    exo_free(text);
    return st;
}

/* --- Differences ---------------------------------------------------------------------------------------------------------------- */

static void
add_difference(json_t *list, const char *path, json_t *from, json_t *to)
{
    json_array_append_new(list, json_pack("{s:s, s:O?, s:O?}", "key", path, "from", from, "to", to));
}

static json_t *
edge_of(const json_t *edges, const char *name)
{
    size_t i;
    json_t *edge;
    json_array_foreach ((json_t *)(uintptr_t)edges, i, edge)
        if (name && json_is_string(json_object_get(edge, "name")) &&
            strcmp(json_string_value(json_object_get(edge, "name")), name) == 0)
            return edge;
    return NULL;
}

static void compare(json_t *list, const char *path, json_t *a, json_t *b);

/* Edges are known by their names, wherever they stand. */
static void
compare_edges(json_t *list, json_t *a, json_t *b)
{
    json_t *sides[] = {a, b};
    for (int side = 0; side < 2; side++) {
        size_t i;
        json_t *edge;
        json_array_foreach (sides[side], i, edge) {
            const char *name = json_string_value(json_object_get(edge, "name"));
            json_t *other = edge_of(sides[1 - side], name);
            exo_text path = {0};
            exo_text_add(&path, "edges.%s", name ? name : "?");
            if (!path.failed && side == 0)
                compare(list, path.data, edge, other);
            else if (!path.failed && !other)
                add_difference(list, path.data, NULL, edge);
            exo_free(path.data);
        }
    }
}

static void
compare(json_t *list, const char *path, json_t *a, json_t *b)
{
    if (a && b && json_equal(a, b))
        return;
    if (!json_is_object(a) || !json_is_object(b)) {
        add_difference(list, path, a, b);
        return;
    }
    json_t *sides[] = {a, b};
    for (int side = 0; side < 2; side++) {
        const char *key;
        json_t *value;
        json_object_foreach(sides[side], key, value)
        {
            json_t *other = json_object_get(sides[1 - side], key);
            exo_text inner = {0};
            if (side == 1 && other)
                continue;
            exo_text_add(&inner, "%s%s%s", path, *path ? "." : "", key);
            if (inner.failed)
                add_difference(list, key, a, b);
            else if (strcmp(inner.data, "edges") == 0 && json_is_array(value) && json_is_array(other))
                compare_edges(list, value, other);
            else
                compare(list, inner.data, side == 0 ? value : NULL, side == 0 ? other : value);
            exo_free(inner.data);
        }
    }
}

/* --- Records -------------------------------------------------------------------------------------------------------------------- */

json_t *
exo_changes_of(const char *folder)
{
    json_t *config = read_config(folder), *changes = json_object_get(config, "changes");
    if (json_array_size(changes) == 0)
        changes = NULL;
    json_incref(changes);
    json_decref(config);
    return changes;
}

exo_status
exo_changes_add(const char *folder, const exo_graph_spec *before, const exo_graph_spec *after,
                const exo_change_time *when, exo_err *err)
{
    json_t *from = NULL, *to = NULL, *changed = json_array(), *config = read_config(folder);
    char at[32];
    struct tm utc;
    time_t seconds = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    exo_status st = graph_json(before, &from, err);
    if (st == EXO_OK)
        st = graph_json(after, &to, err);
    if (st == EXO_OK && !json_is_object(config))
        st = exo_fail(err, EXO_IO, "%s/config.json cannot be read", folder);
    if (st == EXO_OK) {
        compare(changed, "", from, to);
        json_t *all = json_object_get(config, "changes");
        if (!all) {
            all = json_array();
            json_object_set_new(config, "changes", all);
        }
        json_t *entry = json_pack("{s:s, s:f, s:O}", "at", at, "time_s", (double)when->time * 1e-9, "changed", changed);
        if (when->step >= 0)
            json_object_set_new(entry, "step", json_integer((json_int_t)when->step));
        json_array_append_new(all, entry);
        st = write_config(folder, config, err);
    }
    json_decref(from);
    json_decref(to);
    json_decref(changed);
    json_decref(config);
    return st;
}

exo_status
exo_changes_begin(const char *folder, const exo_graph_spec *graph, exo_err *err)
{
    json_t *config = NULL;
    exo_status st = graph_json(graph, &config, err);
    if (st == EXO_OK)
        st = write_config(folder, config, err);
    json_decref(config);
    return st;
}
