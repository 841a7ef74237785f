/* `exogym data tokenize`: text files to shards, with memory that does not depend on the files'
 * sizes.
 *
 * The shards are written into a new folder beside the final one, which is then renamed. So the
 * final folder is complete or absent. One call owns all state; one thread. Read next: shard.h. */
#include "nn/corpus/tokenize.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "nn/corpus/documents.h"
#include "nn/corpus/shard.h"

enum {
    SHARD_TOKENS = 100000000 /* tokens of a shard, unless the caller says otherwise */
};

/* --- The folder ------------------------------------------------------------------------------- */

static exo_status
check_absent(const char *folder, exo_err *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
    bool empty = true;
    for (const struct dirent *entry; empty && (entry = readdir(dir));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(dir);
    return empty ? EXO_OK
                 : exo_fail(err, EXO_EXISTS,
                            "%s: the folder exists and is not empty: name a new one or remove it",
                            folder);
}

/* Makes a temporary folder beside the final one. *out is its path, which the caller frees. */
static exo_status
make_beside(const char *folder, char **out, exo_err *err)
{
    static const char suffix[] = ".partial-XXXXXX";
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    char *name = exo_calloc(length + sizeof suffix, 1);
    if (!name)
        return exo_fail(err, EXO_NOMEM, "no memory for a path");
    memcpy(name, folder, length);
    char *slash = strrchr(name, '/');
    exo_status st = EXO_OK;
    if (slash && slash != name) {
        *slash = '\0';
        st = exo_folder_make(name, err);
        *slash = '/';
    }
    memcpy(name + length, suffix, sizeof suffix);
    if (st == EXO_OK && exo_dir_temporary_folder(name) != 0)
        st = exo_fail(err, EXO_IO, "%s: %s", folder, exo_dir_reason(errno));
    if (st != EXO_OK) {
        exo_free(name);
        return st;
    }
    *out = name;
    return EXO_OK;
}

/* True: `name` is a file of exo_data_tokenize, complete or not. */
static bool
is_ours(const char *name)
{
    static const char *const beginnings[] = {"shard-", "tokenizer", "special_tokens_map.json",
                                             "chat_template"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* Removes the folder of make_beside with its files. Does not follow a link in its place, and keeps
 * other files. */
static void
remove_beside(const char *folder)
{
    int fd = exo_dir_open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_ours(entry->d_name))
            unlinkat(fd, entry->d_name, 0);
    if (dir)
        closedir(dir);
    exo_dir_rmdir(folder);
}

/* --- The work --------------------------------------------------------------------------------- */

struct count {
    exo_shard_writer writer;
    uint64_t documents;
};

static exo_status
write_and_count(void *context, const int32_t *tokens, size_t count, bool begins, exo_err *err)
{
    struct count *c = context;
    c->documents += begins;
    return exo_shard_write(&c->writer, tokens, count, begins, err);
}

/* Writes the tokenizer and the shards into an empty folder. */
static exo_status
fill(const exo_file_list *files, const char *folder, exo_tokenizer *tokenizer,
     const exo_tokenize_opts *opts, exo_tokenize_result *result, exo_err *err)
{
    struct count count = {0};
    exo_shard_info info = {.vocabulary = exo_tokenizer_vocabulary(tokenizer)};
    info.width = info.vocabulary <= 1 << 16 ? 2 : 4;
    exo_status st = exo_documents_end(opts->documents, tokenizer, &info.end, err);
    if (st == EXO_OK)
        st = exo_tokenizer_save(tokenizer, folder, err);
    if (st == EXO_OK)
        st = exo_tokenizer_file_hash(folder, info.tokenizer, err);
    if (st == EXO_OK)
        st = exo_shard_writer_init(&count.writer, folder, &info,
                                   opts->shard_tokens ? opts->shard_tokens : SHARD_TOKENS, err);
    const exo_encoding encoding = {.tokenizer = tokenizer,
                                   .end = info.end,
                                   .limit = EXO_PIECE_BYTES,
                                   .sink = write_and_count,
                                   .context = &count,
                                   .progress = opts->progress,
                                   .progress_context = opts->context};
    if (st == EXO_OK)
        st = exo_documents_encode(files, &encoding, err);
    if (st == EXO_OK)
        st = exo_shard_writer_finish(&count.writer, err);
    if (st == EXO_OK && count.writer.tokens == 0)
        st = exo_fail(err, EXO_INVAL, "%s: there is no text", files->paths[0]);
    *result = (exo_tokenize_result){.documents = count.documents,
                                    .bytes = exo_file_list_bytes(files),
                                    .tokens = count.writer.tokens,
                                    .shards = count.writer.shards,
                                    .vocabulary = (size_t)info.vocabulary};
    exo_shard_writer_release(&count.writer);
    return st;
}

static exo_status
write_folder(const exo_file_list *files, const char *folder, exo_tokenizer *tokenizer,
             const exo_tokenize_opts *opts, exo_tokenize_result *result, exo_err *err)
{
    char *beside = NULL;
    exo_status st = check_absent(folder, err);
    if (st == EXO_OK)
        st = make_beside(folder, &beside, err);
    if (st == EXO_OK)
        st = fill(files, beside, tokenizer, opts, result, err);
    if (st == EXO_OK && exo_dir_rename(beside, folder, 0) != 0)
        st = exo_fail(err, errno == ENOTEMPTY || errno == EEXIST ? EXO_EXISTS : EXO_IO, "%s: %s",
                      folder, exo_dir_reason(errno));
    if (st != EXO_OK && beside)
        remove_beside(beside);
    exo_free(beside);
    return st;
}

exo_status
exo_tokenize_until(const char *const *inputs, size_t num_inputs, const char *folder,
                   const exo_tokenize_opts *opts, const _Atomic int *stop,
                   exo_tokenize_result *result, exo_err *err)
{
    exo_file_list files = {.stop = stop};
    exo_tokenizer *characters = NULL;
    *result = (exo_tokenize_result){0};
    if (num_inputs == 0)
        return exo_fail(err, EXO_INVAL, "no text to tokenize");
    if (opts->documents == EXO_DOCUMENTS_SEPARATE)
        return exo_fail(err, EXO_INVAL,
                        "documents: separate applies when tokens are read: choose end or ignore");
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < num_inputs; i++)
        st = exo_file_list_add(&files, inputs[i], ".txt", err);
    if (st == EXO_OK && !opts->tokenizer)
        st = exo_documents_alphabet(&files, EXO_PIECE_BYTES, &characters, err);
    if (st == EXO_OK)
        st = write_folder(&files, folder, opts->tokenizer ? opts->tokenizer : characters, opts,
                          result, err);
    exo_tokenizer_drop(&characters);
    exo_file_list_release(&files);
    return st;
}

exo_status
exo_data_tokenize(const char *const *inputs, size_t num_inputs, const char *folder,
                  const exo_tokenize_opts *opts, exo_tokenize_result *result, exo_err *err)
{
    return exo_tokenize_until(inputs, num_inputs, folder, opts, NULL, result, err);
}
