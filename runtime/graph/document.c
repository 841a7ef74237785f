/* From a graph's file to the document that spec.c reads: merges included files, then applies
 * presets, overrides and variables, in this order. No state. Read next: spec.c. */
#include "graph/spec_impl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

/* The sections that files may share: mappings by name, except for two lists. */
static const struct section {
    const char *key, *what;
    bool list;
} sections[] = {
    {"variables", "variable", false}, {"plugins", "plugin", true}, {"hosts", "host", false},
    {"actors", "actor", false},       {"edges", "edge", true},     {"links", "link", false},
};

enum {
    NUM_SECTIONS = sizeof sections / sizeof *sections,
    MAX_FILES = 256,
};

struct includes {
    exo_config_doc *doc;
    exo_config *merged[NUM_SECTIONS]; /* NULL: no file had it yet */
    /* resolved paths of all files so far */
    char *files[MAX_FILES];
    /* the file is being read; including it again is a cycle */
    bool open[MAX_FILES];
    size_t num_files;
    exo_err *err;
};

static exo_status merge_file(struct includes *in, exo_config *root);

static exo_status
read_include(struct includes *in, exo_config *item)
{
    char real[PATH_MAX];
    const char *name = exo_config_scalar(item);
    exo_config *root = NULL;
    if (!name || !*name)
        return exo_config_fail(item, in->err, "include: expected the path of a file");
    if (strstr(name, "${"))
        return exo_config_fail(item, in->err, "include: '%.60s': variables are not known here yet",
                               name);
    char *path = exo_config_relative(item, name);
    exo_status st = path ? EXO_OK : exo_fail(in->err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK && !realpath(path, real))
        st = exo_config_fail(item, in->err, "cannot read '%s': there is no such file", path);
    for (size_t i = 0; st == EXO_OK && i < in->num_files; i++) {
        if (strcmp(in->files[i], real) != 0)
            continue;
        if (in->open[i])
            st = exo_config_fail(item, in->err,
                                 "include: '%s' includes itself, or a file that does", name);
        exo_free(path);
        return st; /* a file that is included twice counts once */
    }
    if (st == EXO_OK && in->num_files == MAX_FILES)
        st = exo_config_fail(item, in->err, "include: more than %d files", MAX_FILES);
    if (st == EXO_OK) {
        st = exo_config_load_more(in->doc, path, &root, in->err);
        if (st != EXO_OK && st != EXO_NOMEM)
            st = exo_config_add_place(item, in->err);
    }
    if (st == EXO_OK) {
        in->files[in->num_files] = exo_config_copy_text(in->doc, real, strlen(real));
        st = in->files[in->num_files] ? EXO_OK : exo_fail(in->err, EXO_NOMEM, "out of memory");
    }
    if (st == EXO_OK) {
        size_t file = in->num_files++;
        in->open[file] = true;
        st = merge_file(in, root);
        in->open[file] = false;
    }
    exo_free(path);
    return st;
}

/* Merges the sections of the document's own file, which come last. */
static exo_status
merge_sections(struct includes *in, exo_config *root)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < NUM_SECTIONS; i++) {
        exo_config *section = NULL;
        st = sections[i].list ? exo_config_list(root, sections[i].key, &section, in->err)
                              : exo_config_map(root, sections[i].key, &section, in->err);
        if (st == EXO_OK && section && !in->merged[i])
            st = sections[i].list ? exo_config_new_list(section, &in->merged[i], in->err)
                                  : exo_config_new_map(section, &in->merged[i], in->err);
        if (st == EXO_OK && section)
            st = exo_config_merge(in->merged[i], section, sections[i].what, in->err);
    }
    return st;
}

static exo_status
merge_includes(struct includes *in, exo_config *root)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(root, "include", &list, in->err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++)
        st = read_include(in, exo_config_item(list, i));
    return st;
}

static exo_status
merge_file(struct includes *in, exo_config *root)
{
    uint64_t version = 0;
    if (!exo_config_is_map(root))
        return exo_config_fail(
            root, in->err, "an included file is a mapping: actors, edges, hosts, links, variables");
    exo_status st = exo_config_u64(root, "exogym", 1, 1, 1, &version, in->err);
    if (st == EXO_OK)
        st = merge_includes(in, root);
    if (st == EXO_OK)
        st = merge_sections(in, root);
    return st == EXO_OK ? exo_config_finish(root, in->err) : st;
}

static exo_status
include(exo_config_doc *doc, exo_config *root, exo_err *err)
{
    char real[PATH_MAX];
    struct includes in = {.doc = doc, .err = err};
    const char *own = realpath(exo_config_source(root), real);
    if (own) {
        in.files[0] = exo_config_copy_text(doc, own, strlen(own));
        if (!in.files[0])
            return exo_fail(err, EXO_NOMEM, "out of memory");
        in.open[0] = true;
        in.num_files = 1;
    }
    exo_status st = merge_includes(&in, root);
    if (st == EXO_OK)
        st = merge_sections(&in, root);
    for (size_t i = 0; st == EXO_OK && i < NUM_SECTIONS; i++) {
        exo_config_remove(root, sections[i].key);
        if (in.merged[i])
            st = exo_config_adopt(root, sections[i].key, in.merged[i], err);
    }
    exo_config_remove(root, "include");
    return st;
}

/* Refuses keys that would make a text from another process read files. */
static exo_status
refuse_files(exo_config *root, exo_err *err)
{
    static const char *const keys[] = {"include", "plugins"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        exo_config *node = exo_config_get(root, keys[i]);
        if (exo_config_length(node) > 0)
            return exo_config_fail(node, err, "%s: this graph may read no other file", keys[i]);
    }
    return EXO_OK;
}

exo_status
exo_graph_prepare(exo_config_doc *doc, const exo_graph_opts *opts, exo_err *err)
{
    exo_config *root = exo_config_root(doc);
    if (!exo_config_is_map(root))
        return exo_config_fail(root, err,
                               "a graph is a mapping: actors, edges, hosts, links (docs/graph.md)");
    if (opts->literal)
        return EXO_OK;
    exo_status st = opts->closed ? refuse_files(root, err) : EXO_OK;
    if (st == EXO_OK && exo_config_has(root, "include"))
        st = include(doc, root, err);
    if (st == EXO_OK)
        st = exo_config_apply_preset(root, opts->preset, "graph", err);
    for (size_t i = 0; st == EXO_OK && i < opts->num_sets; i++)
        st = exo_config_set(doc, opts->sets[i], err);
    if (st == EXO_OK && exo_config_has(root, "include") && !opts->closed)
        st = exo_config_fail(exo_config_get(root, "include"), err,
                             "include: files are included before presets and --set apply");
    if (st == EXO_OK && opts->closed)
        st = refuse_files(root, err);
    return st == EXO_OK ? exo_config_substitute(root, err) : st;
}
