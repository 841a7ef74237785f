/* Files that the options of actors name: see files.h. No state but the function for hashes. */
#include "graph/files.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/dir.h"
#include "base/grow_text.h"

enum {
    DIGITS = 64,
    PATH = DIGITS + 1 /* offset of the path in an entry */
};

/* written before there are other threads */
static exo_status (*hash_file)(const char *path, char out[65], exo_err *err);

void
exo_graph_files_set_hash(exo_status (*hash)(const char *path, char out[65], exo_err *err))
{
    hash_file = hash;
}

void
exo_graph_files_release(exo_graph_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        exo_free(files->texts[i]);
    exo_free(files->texts);
    *files = (exo_graph_files){0};
}

/* --- Lists ------------------------------------------------------------------------------------ */

/* Adds the entry of a file; of none, if it cannot be read. */
static exo_status
add_file(exo_graph_files *files, const char *path, exo_err *err)
{
    char sha256[DIGITS + 1];
    exo_err reason = {0};
    exo_status st = hash_file(path, sha256, &reason);
    if (st != EXO_OK)
        return st == EXO_NOMEM ? exo_fail(err, st, "%s", reason.text) : EXO_OK;
    char **more = exo_realloc(files->texts, files->count + 1, sizeof *more);
    if (!more)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of files");
    files->texts = more;
    char *text = exo_text_make(err, "%s %s", sha256, path);
    if (!text)
        return EXO_NOMEM;
    files->texts[files->count++] = text;
    return EXO_OK;
}

/* Whether a file is a part of a model. */
static bool
is_of_model(const char *name)
{
    static const char suffix[] = ".safetensors";
    const size_t length = strlen(name);
    return strcmp(name, "config.json") == 0 || strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "reward.json") == 0 ||
           (length > strlen(suffix) && strcmp(name + length - strlen(suffix), suffix) == 0);
}

/* Adds the entries of a folder. */
static exo_status
add_folder(exo_graph_files *files, const char *path, DIR *dir, exo_err *err)
{
    exo_status st = EXO_OK;
    for (const struct dirent *e; st == EXO_OK && (e = readdir(dir));) {
        char *name = is_of_model(e->d_name) ? exo_text_make(err, "%s/%s", path, e->d_name) : NULL;
        if (name)
            st = add_file(files, name, err);
        else if (is_of_model(e->d_name))
            st = EXO_NOMEM;
        exo_free(name);
    }
    return st;
}

/* Adds the entries of a path, which may be a file or a folder. */
static exo_status
add_path(exo_graph_files *files, const char *path, exo_err *err)
{
    DIR *dir = exo_dir_list(path);
    if (!dir)
        return add_file(files, path, err);
    exo_status st = add_folder(files, path, dir, err);
    closedir(dir);
    return st;
}

exo_status
exo_graph_files_list(exo_graph_files *out, const exo_config_doc *doc, exo_err *err)
{
    exo_status st = EXO_OK;
    *out = (exo_graph_files){0};
    if (!hash_file)
        return EXO_OK;
    for (size_t i = 0; st == EXO_OK; i++) {
        const char *path = exo_config_noted_file(doc, i, NULL);
        if (!path)
            break;
        st = add_path(out, path, err);
    }
    return st;
}

/* --- Comparison ------------------------------------------------------------------------------- */

/* Whether an entry is of the path, or of a model's file in that folder. */
static bool
is_of(const char *text, const char *path)
{
    const size_t length = strlen(path);
    if (strlen(text) < PATH + length || strncmp(text + PATH, path, length) != 0)
        return false;
    const char *rest = text + PATH + length;
    return *rest == '\0' || (*rest == '/' && !strchr(rest + 1, '/') && is_of_model(rest + 1));
}

static bool
has_entry(const exo_graph_files *files, const char *text)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->texts[i], text) == 0)
            return true;
    return false;
}

/* The first entry of the path that only `files` has; NULL: none. */
static const char *
only_in(const exo_graph_files *files, const exo_graph_files *others, const char *path)
{
    for (size_t i = 0; i < files->count; i++)
        if (is_of(files->texts[i], path) && !has_entry(others, files->texts[i]))
            return files->texts[i];
    return NULL;
}

static exo_status
compare_path(const exo_graph_files *there, const char *path, const exo_config *at, exo_err *err)
{
    const exo_graph_files none = {0};
    exo_graph_files here = {0};
    if (!only_in(there, &none, path))
        return EXO_OK;
    exo_status st = add_path(&here, path, err);
    const char *other = only_in(&here, there, path);
    if (!other)
        other = only_in(there, &here, path);
    if (st == EXO_OK && other)
        st = exo_config_fail(at, err,
                             "'%s' is not on this host what it is on that of the run: the same "
                             "files must be on all hosts",
                             other + PATH);
    exo_graph_files_release(&here);
    return st;
}

exo_status
exo_graph_files_compare(const exo_graph_files *there, const exo_config_doc *doc, exo_err *err)
{
    const exo_config *at = NULL;
    exo_status st = EXO_OK;
    if (!hash_file)
        return EXO_OK;
    for (size_t i = 0; st == EXO_OK; i++) {
        const char *path = exo_config_noted_file(doc, i, &at);
        if (!path)
            break;
        st = compare_path(there, path, at, err);
    }
    return st;
}
