/* Files beside a model's weights: see export_files.h. */
#include "programs/export_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "programs/args.h"

enum {
    MAX_FILE = 1 << 28,
    MAX_DEPTH = 8
};

#define GENERATION "generation_config.json"
#define TEMPLATES  "additional_chat_templates"

/* The files that belong to a tokenizer or contain its token numbers. */
static const char *const tokenizers_files[] = {"tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "vocab.txt",
                                               "tokenizer.model",
                                               "spiece.model",
                                               "sentencepiece.bpe.model",
                                               "tokenizer.tiktoken",
                                               "tekken.json",
                                               "chat_template.jinja",
                                               "chat_template.json",
                                               TEMPLATES,
                                               GENERATION};

enum {
    NUM_TOKENIZERS_FILES = sizeof tokenizers_files / sizeof *tokenizers_files
};

/* A walk through a folder and its subfolders. */
struct walk {
    exo_carry what;
    struct stat target; /* the target folder, which may lie within the source */
    exo_carried *out;
};

/* The index of a name in the list above; the list's length if it is not there. */
static size_t
find_tokenizers_file(const char *name)
{
    size_t i = 0;
    while (i < NUM_TOKENIZERS_FILES && strcmp(tokenizers_files[i], name) != 0)
        i++;
    return i;
}

void
exo_carried_keep(exo_carried *carried, const char *name)
{
    size_t i = find_tokenizers_file(name);
    if (i < NUM_TOKENIZERS_FILES)
        carried->kept |= UINT32_C(1) << i;
}

void
exo_carried_release(exo_carried *carried)
{
    exo_free(carried->left.data);
    exo_free(carried->removed.data);
    *carried = (exo_carried){0};
}

static bool
ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), end = strlen(ending);
    return length >= end && strcmp(name + length - end, ending) == 0;
}

/* Recognizes weights and their indexes by their usual endings. They are not carried, because
 * readers would take old weights beside the new ones for these. */
static bool
is_weights(const char *name)
{
    static const char *const endings[] = {
        ".safetensors", ".bin",  ".pt",  ".pth",  ".h5",        ".msgpack", ".ot",  ".onnx",
        ".ckpt",        ".gguf", ".npz", ".ggml", ".onnx_data", ".tflite",  ".pkl", ".index.json"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i]))
            return true;
    return false;
}

/* Recognizes the files that exo_decoder_save writes. */
static bool
is_ours(const char *name)
{
    static const char ours[] = "config.json|model.safetensors|model.safetensors.index.json";
    return exo_fixed_index(ours, name) >= 0 ||
           (strncmp(name, "model-", 6) == 0 && strstr(name, "-of-") &&
            ends_with(name, ".safetensors"));
}

static void
leave_out(struct walk *w, const char *inside, const char *name, const char *why)
{
    exo_text_add(&w->out->left, "%s%s%s%s", w->out->left.length > 0 ? ", " : "", inside, name, why);
}

static exo_status
copy_file(struct walk *w, const char *inside, const char *name, const char *from, const char *to,
          exo_err *err)
{
    char *data = NULL;
    size_t size = 0;
    exo_err reason = {0};
    exo_status st = exo_file_read(from, MAX_FILE, &data, &size, &reason);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s", reason.text);
    if (st != EXO_OK) {
        leave_out(w, inside, name,
                  st == EXO_DAMAGED ? " (larger than 256 MiB)" : " (cannot be read)");
        return EXO_OK;
    }
    /* made only once there is a file for it */
    char *folder = exo_text_make(err, "%.*s", (int)(strrchr(to, '/') - to), to);
    st = folder ? exo_folder_make(folder, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_file_write_atomic(to, data, size, err);
    exo_free(folder);
    exo_free(data);
    return st;
}

static exo_status walk_folder(struct walk *w, const char *inside, const char *from, const char *to,
                              int depth, exo_err *err);

/* Copies one entry of a folder. inside: the folder's path in messages, "" or "folder/". */
static exo_status
walk_entry(struct walk *w, const char *inside, const char *name, const char *from, const char *to,
           int depth, exo_err *err)
{
    struct stat info, link;
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
        char *below = exo_text_make(err, "%s%s/", inside, name);
        exo_status st = below ? walk_folder(w, below, from, to, depth + 1, err) : EXO_NOMEM;
        exo_free(below);
        return st;
    }
    if (!S_ISREG(info.st_mode))
        leave_out(w, inside, name, " (no plain file)");
    else if (is_weights(name))
        leave_out(w, inside, name, "");
    else if (strcmp(name, "adapter_config.json") == 0)
        leave_out(w, inside, name, " (an adapter: its weights are not carried, either)");
    else
        return copy_file(w, inside, name, from, to, err);
    return EXO_OK;
}

/* Is an entry of the top folder to be carried? Not if the model writes it, or if it belongs to
 * another tokenizer. */
static bool
is_wanted(struct walk *w, const char *name)
{
    static const char tokenizers[] = "tokenizer.json|vocab.json|tokenizer.model";
    bool generation = strcmp(name, GENERATION) == 0,
         theirs = find_tokenizers_file(name) < NUM_TOKENIZERS_FILES;
    if (is_ours(name))
        return false;
    if (theirs && !(generation ? w->what.generation : w->what.tokenizer)) {
        leave_out(w, "", name, " (another tokenizer's)");
        return false;
    }
    exo_carried_keep(w->out, name);
    w->out->tokenizer = w->out->tokenizer || exo_fixed_index(tokenizers, name) >= 0;
    w->out->generation = w->out->generation || generation;
    return true;
}

static int
visible(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static exo_status
walk_folder(struct walk *w, const char *inside, const char *from, const char *to, int depth,
            exo_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(from, &entries, visible, alphasort);
    if (count < 0 && depth > 0) {
        leave_out(w, inside, "", " (cannot be read)");
        return EXO_OK;
    }
    if (count < 0)
        return exo_fail(err, errno == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", from,
                        strerror(errno));
    exo_status st = EXO_OK;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (st == EXO_OK && (depth > 0 || is_wanted(w, name))) {
            char *source = exo_text_make(err, "%s/%s", from, name),
                 *target = exo_text_make(err, "%s/%s", to, name);
            st = source && target ? walk_entry(w, inside, name, source, target, depth, err)
                                  : EXO_NOMEM;
            exo_free(source);
            exo_free(target);
        }
        (free)(entries[i]); /* scandir allocates with malloc */
    }
    (free)(entries);
    return st;
}

exo_status
exo_carry_files(const char *from, const char *to, exo_carry what, exo_carried *out, exo_err *err)
{
    struct walk w = {.what = what, .out = out};
    struct stat source;
    exo_status st = exo_dir_guard(to, err);
    if (st != EXO_OK)
        return st;
    if (stat(from, &source) != 0)
        return exo_fail(err, errno == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", from,
                        strerror(errno));
    if (stat(to, &w.target) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", to, strerror(errno));
    return walk_folder(&w, "", from, to, 0, err);
}

/* --- Files of an earlier export --------------------------------------------------------------- */

/* Removes the .jinja files of additional_chat_templates, and the folder if it is empty then. */
static int
remove_templates(int at)
{
    int folder = openat(at, TEMPLATES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (!entries) {
        if (folder >= 0)
            close(folder);
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(entries));)
        if (ends_with(entry->d_name, ".jinja"))
            unlinkat(folder, entry->d_name, 0);
    closedir(entries);
    return unlinkat(at, TEMPLATES, AT_REMOVEDIR);
}

exo_status
exo_remove_stale(const char *to, exo_carried *carried, exo_err *err)
{
    exo_status st = EXO_OK;
    int folder = exo_dir_open(to, O_RDONLY | O_DIRECTORY, 0);
    if (folder < 0)
        return exo_fail(err, EXO_IO, "%s: %s", to, strerror(errno));
    for (size_t i = 0; st == EXO_OK && i < NUM_TOKENIZERS_FILES; i++) {
        const char *name = tokenizers_files[i];
        struct stat info;
        if ((carried->kept >> i & 1u) != 0 ||
            fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        bool templates = S_ISDIR(info.st_mode) && strcmp(name, TEMPLATES) == 0;
        if ((templates ? remove_templates(folder) : unlinkat(folder, name, 0)) != 0)
            st = exo_fail(err, EXO_IO, "%s/%s is of an earlier export and cannot be removed: %s",
                          to, name, strerror(errno));
        else
            exo_text_add(&carried->removed, "%s%s", carried->removed.length > 0 ? ", " : "", name);
    }
    close(folder);
    return st;
}
