/* See export_files.h. */
#include "export_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "file.h"

enum {
    MAX_FILE = 1 << 28,
    MAX_DEPTH = 8
};

/* What belongs to a tokenizer, or has its numbers. */
static const char *const tokenizers_files[] = {"tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "tokenizer.model",
                                               "chat_template.jinja",
                                               "chat_template.json",
                                               "additional_chat_templates",
                                               "generation_config.json",
                                               NULL};

/* A walk through one folder, and those in it. */
struct walk {
    bool tokenizer;
    struct stat target; /* may lie within the source */
    exo_carried *out;
};

static bool
is_one_of(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static bool
ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), end = strlen(ending);
    return length >= end && strcmp(name + length - end, ending) == 0;
}

/* Weights by their usual endings, and their indexes: those of another time beside the ones that are written would be taken for them. */
static bool
is_weights(const char *name)
{
    static const char *const endings[] = {".safetensors", ".bin",    ".pt",   ".pth",       ".h5",  ".msgpack",
                                          ".ot",          ".onnx",   ".ckpt", ".gguf",      ".npz", ".ggml",
                                          ".onnx_data",   ".tflite", ".pkl",  ".index.json"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i]))
            return true;
    return false;
}

/* What the model itself writes. */
static bool
is_ours(const char *name)
{
    static const char *const ours[] = {"config.json", "model.safetensors", "model.safetensors.index.json", NULL};
    return is_one_of(ours, name) ||
           (strncmp(name, "model-", 6) == 0 && strstr(name, "-of-") && ends_with(name, ".safetensors"));
}

static void
leave_out(struct walk *w, const char *inside, const char *name, const char *why)
{
    exo_text_add(&w->out->left, "%s%s%s%s", w->out->left.length > 0 ? ", " : "", inside, name, why);
}

static exo_status
copy_file(struct walk *w, const char *inside, const char *name, const char *from, const char *to, exo_err *err)
{
    char *data = NULL;
    size_t size = 0;
    exo_err reason = {0};
    exo_status st = exo_file_read(from, MAX_FILE, &data, &size, &reason);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s", reason.text);
    if (st != EXO_OK) {
        leave_out(w, inside, name, st == EXO_INVAL ? " (larger than 256 MiB)" : " (cannot be read)");
        return EXO_OK;
    }
    exo_text folder = {0}; /* made only when there is something to put into it */
    exo_text_add(&folder, "%.*s", (int)(strrchr(to, '/') - to), to);
    st = folder.failed ? exo_fail(err, EXO_NOMEM, "out of memory") : exo_folder_make(folder.data, err);
    if (st == EXO_OK)
        st = exo_file_write_atomic(to, data, size, err);
    exo_free(folder.data);
    exo_free(data);
    return st;
}

static exo_status walk_folder(struct walk *w, const char *inside, const char *from, const char *to, int depth,
                              exo_err *err);

/* One entry of a folder, which is called `inside` in what is left out ("" or "folder/"). */
static exo_status
walk_entry(struct walk *w, const char *inside, const char *name, const char *from, const char *to, int depth,
           exo_err *err)
{
    struct stat info, link;
    exo_text below = {0};
    if (stat(from, &info) != 0 || lstat(from, &link) != 0) {
        leave_out(w, inside, name, " (cannot be read)");
        return EXO_OK;
    }
    if (info.st_dev == w->target.st_dev && info.st_ino == w->target.st_ino)
        return EXO_OK;
    if (S_ISDIR(info.st_mode)) {
        if (name[0] == '.' || S_ISLNK(link.st_mode) || depth == MAX_DEPTH) {
            leave_out(w, inside, name, "/");
            return EXO_OK;
        }
        exo_text_add(&below, "%s%s/", inside, name);
        exo_status st = below.failed ? exo_fail(err, EXO_NOMEM, "out of memory")
                                     : walk_folder(w, below.data, from, to, depth + 1, err);
        exo_free(below.data);
        return st;
    }
    if (!S_ISREG(info.st_mode))
        leave_out(w, inside, name, " (no plain file)");
    else if (is_weights(name))
        leave_out(w, inside, name, "");
    else
        return copy_file(w, inside, name, from, to, err);
    return EXO_OK;
}

/* Of the folder itself: what the model writes, and what is a tokenizer's. */
static bool
is_wanted(struct walk *w, const char *name)
{
    static const char *const tokenizers[] = {"tokenizer.json", "vocab.json", "tokenizer.model", NULL};
    if (is_ours(name) || (!w->tokenizer && is_one_of(tokenizers_files, name)))
        return false;
    w->out->tokenizer = w->out->tokenizer || is_one_of(tokenizers, name);
    w->out->generation = w->out->generation || strcmp(name, "generation_config.json") == 0;
    return true;
}

static int
visible(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static exo_status
walk_folder(struct walk *w, const char *inside, const char *from, const char *to, int depth, exo_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(from, &entries, visible, alphasort);
    if (count < 0 && depth > 0) {
        leave_out(w, inside, "", " (cannot be read)");
        return EXO_OK;
    }
    if (count < 0)
        return exo_fail(err, errno == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", from, strerror(errno));
    exo_status st = EXO_OK;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        exo_text source = {0}, target = {0};
        exo_text_add(&source, "%s/%s", from, name);
        exo_text_add(&target, "%s/%s", to, name);
        if (st == EXO_OK && (source.failed || target.failed))
            st = exo_fail(err, EXO_NOMEM, "out of memory");
        if (st == EXO_OK && (depth > 0 || is_wanted(w, name)))
            st = walk_entry(w, inside, name, source.data, target.data, depth, err);
        exo_free(source.data);
        exo_free(target.data);
        (free)(entries[i]); /* scandir's */
    }
    (free)(entries);
    return st;
}

/* Of a tokenizer that lay there before: beside the new one's files they would be taken for its own. */
static exo_status
remove_stale(const char *from, const char *to, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; tokenizers_files[i] && st == EXO_OK; i++) {
        exo_text source = {0}, target = {0};
        exo_text_add(&source, "%s/%s", from, tokenizers_files[i]);
        exo_text_add(&target, "%s/%s", to, tokenizers_files[i]);
        if (source.failed || target.failed)
            st = exo_fail(err, EXO_NOMEM, "out of memory");
        else if (access(source.data, F_OK) != 0 && unlink(target.data) != 0 && errno != ENOENT && errno != EISDIR)
            st = exo_fail(err, EXO_IO, "%s: %s", target.data, strerror(errno));
        exo_free(source.data);
        exo_free(target.data);
    }
    return st;
}

exo_status
exo_carry_files(const char *from, const char *to, bool tokenizer, exo_carried *out, exo_err *err)
{
    struct walk w = {.tokenizer = tokenizer, .out = out};
    struct stat source;
    *out = (exo_carried){0};
    if (stat(from, &source) != 0)
        return exo_fail(err, errno == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", from, strerror(errno));
    if (stat(to, &w.target) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", to, strerror(errno));
    exo_status st = walk_folder(&w, "", from, to, 0, err);
    return st == EXO_OK && out->tokenizer ? remove_stale(from, to, err) : st;
}
