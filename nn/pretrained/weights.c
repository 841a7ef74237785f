/* The tensors of a directory, in one file or in shards with an index: see weights.h. */
#include "nn/pretrained/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/pretrained/paths.h"

enum {
    MAX_INDEX = 64 << 20, /* bytes */
    MAX_FILES = 10000,    /* shards */
};

void
exo_weights_close(exo_weights *weights)
{
    for (size_t i = 0; i < weights->num_files; i++)
        exo_safetensors_close(&weights->files[i]);
    exo_free(weights->files);
    exo_free(weights->all);
    *weights = (exo_weights){0};
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const exo_weight *)a)->tensor->name, ((const exo_weight *)b)->tensor->name);
}

exo_weight *
exo_weights_find(const exo_weights *weights, const char *name)
{
    const exo_safetensor tensor = {.name = name};
    const exo_weight key = {.tensor = &tensor};
    return weights->count ? bsearch(&key, weights->all, weights->count, sizeof key, by_name) : NULL;
}

/* Sorts the tensors of all files by name, for binary search: a file can have a million tensors. */
static exo_status
order_tensors(exo_weights *w, exo_err *err)
{
    if (w->count)
        qsort(w->all, w->count, sizeof *w->all, by_name);
    for (size_t i = 1; i < w->count; i++)
        if (by_name(&w->all[i - 1], &w->all[i]) == 0)
            return exo_fail(err, EXO_DAMAGED,
                            "%s: tensor '%s' is in %s too: each belongs in one file",
                            w->all[i].path, w->all[i].tensor->name, w->all[i - 1].path);
    return EXO_OK;
}

/* Opens one file and adds its tensors. */
static exo_status
add_file(exo_weights *w, const char *path, exo_err *err)
{
    exo_safetensors **files = exo_realloc(w->files, w->num_files + 1, sizeof *files);
    if (!files)
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    w->files = files;
    exo_safetensors *file = NULL;
    exo_status st = exo_safetensors_open(&file, path, err);
    if (st == EXO_DAMAGED && err && !strstr(err->text, "fetch it")) {
        const exo_err why = *err;
        exo_fail(err, st, "%s: fetch it again", why.text);
    }
    if (st != EXO_OK)
        return st;
    w->files[w->num_files++] = file;
    size_t count = exo_safetensors_count(file);
    exo_weight *all = exo_realloc(w->all, w->count + count + 1, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "%s: no memory for %zu tensors", path, count);
    w->all = all;
    for (size_t i = 0; i < count; i++)
        w->all[w->count++] =
            (exo_weight){.tensor = exo_safetensors_at(file, i), .path = exo_safetensors_path(file)};
    return EXO_OK;
}

/* The index and the files must agree: each tensor is in the file that the index names, and the
 * index has each tensor. */
static exo_status
check_index(const exo_weights *w, const char *folder, const char *index, json_t *map, exo_err *err)
{
    const char *name = NULL;
    json_t *file = NULL;
    json_object_foreach (map, name, file) {
        char path[EXO_PRETRAINED_PATH];
        const exo_weight *weight = exo_weights_find(w, name);
        exo_status st = exo_pretrained_path(path, folder, json_string_value(file), err);
        if (st != EXO_OK)
            return st;
        if (!weight || strcmp(weight->path, path) != 0)
            return exo_fail(err, EXO_DAMAGED,
                            "%s: tensor '%s' is not in %s: fetch both again, of one version", index,
                            name, path);
    }
    for (size_t i = 0; i < w->count; i++)
        if (!json_object_get(map, w->all[i].tensor->name))
            return exo_fail(err, EXO_DAMAGED,
                            "%s: does not have tensor '%s' of %s: fetch both again, of one version",
                            index, w->all[i].tensor->name, w->all[i].path);
    return EXO_OK;
}

/* Opens each file in the map once. `opened` gets the files' names. */
static exo_status
open_shards(exo_weights *w, const char *folder, const char *index, json_t *map, json_t *opened,
            exo_err *err)
{
    const char *name = NULL;
    json_t *file = NULL;
    json_object_foreach (map, name, file) {
        char path[EXO_PRETRAINED_PATH];
        const char *text = json_string_value(file);
        if (!text || text[0] == '\0' || text[0] == '.' || strchr(text, '/'))
            return exo_fail(err, EXO_DAMAGED,
                            "%s: tensor '%s' is in no file of this folder: '%.80s'", index, name,
                            text ? text : "");
        if (json_object_get(opened, text))
            continue;
        exo_status st = exo_pretrained_path(path, folder, text, err);
        if (st == EXO_OK && json_object_set_new(opened, text, json_true()) != 0)
            st = exo_fail(err, EXO_NOMEM, "%s: no memory", index);
        if (st != EXO_OK)
            return st;
        if (w->num_files == MAX_FILES)
            return exo_fail(err, EXO_DAMAGED, "%s: names more than %d files", index, MAX_FILES);
        st = add_file(w, path, err);
        if (st != EXO_OK)
            return st != EXO_NOT_FOUND
                       ? st
                       : exo_fail(err, EXO_NOT_FOUND,
                                  "%s: there is no such file, and %s names it: fetch it, too", path,
                                  index);
    }
    return EXO_OK;
}

static exo_status
open_index(exo_weights *w, const char *folder, const char *index, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t reason;
    exo_status st = exo_file_read(index, MAX_INDEX, &text, &size, err);
    if (st != EXO_OK)
        return st;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason), *opened = json_object();
    json_t *map = json_object_get(root, "weight_map");
    if (!root)
        st = exo_fail(err, EXO_DAMAGED, "%s:%d:%d: %s", index, reason.line, reason.column,
                      reason.text);
    else if (!json_is_object(map))
        st = exo_fail(err, EXO_DAMAGED,
                      "%s: has no weight_map, which says where each tensor is: fetch it again",
                      index);
    else
        st = open_shards(w, folder, index, map, opened, err);
    if (st == EXO_OK)
        st = order_tensors(w, err);
    if (st == EXO_OK)
        st = check_index(w, folder, index, map, err);
    json_decref(opened);
    json_decref(root);
    exo_free(text);
    return st;
}

/* The error of a folder that has neither model.safetensors nor its index. */
static exo_status
fail_missing(const char *folder, exo_err *err)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "tf_model.h5", "flax_model.msgpack"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[EXO_PRETRAINED_PATH];
        if (exo_pretrained_path(path, folder, others[i], NULL) == EXO_OK && access(path, F_OK) == 0)
            return exo_fail(err, EXO_UNSUPPORTED,
                            "%s: is not read: save the model again with transformers, which writes "
                            "model.safetensors",
                            path);
    }
    return exo_fail(
        err, EXO_NOT_FOUND,
        "%s: has neither " EXO_WEIGHTS_FILE " nor " EXO_WEIGHTS_INDEX
        ": fetch the weights, too, or save the model with transformers' save_pretrained",
        folder);
}

exo_status
exo_weights_open(exo_weights *weights, const char *folder, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH], index[EXO_PRETRAINED_PATH];
    *weights = (exo_weights){0};
    exo_status st = exo_pretrained_path(path, folder, EXO_WEIGHTS_FILE, err);
    if (st == EXO_OK)
        st = exo_pretrained_path(index, folder, EXO_WEIGHTS_INDEX, err);
    if (st != EXO_OK)
        return st;
    if (access(path, F_OK) == 0) { /* if both exist, transformers takes this one, too */
        st = add_file(weights, path, err);
        if (st == EXO_OK)
            st = order_tensors(weights, err);
    } else if (access(index, F_OK) == 0) {
        st = open_index(weights, folder, index, err);
    } else {
        st = fail_missing(folder, err);
    }
    if (st != EXO_OK)
        exo_weights_close(weights);
    return st;
}
