/* The data sets "text", "shakespeare" and "tokens" of a job. docs/jobs.md has their options. No
 * state. Read next: text.c, tokens.c. */
#include "nn/corpus/corpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "nn/corpus/named.h"

enum {
    MAX_BLOCK = 1 << 24, /* tokens of a window, at most */
    TEXT_BLOCK = 256,    /* the default for text */
    TOKENS_BLOCK = 1024  /* the default for tokens */
};

/* --- Shared options --------------------------------------------------------------------------- */

/* The stride is a number of tokens, or the word "block". */
static exo_status
read_stride(exo_config *config, exo_window_opts *o, exo_err *err)
{
    const char *word = NULL;
    uint64_t stride = 1;
    exo_status st = exo_config_string(config, "stride", "1", &word, err);
    if (st == EXO_OK && strcmp(word, "block") == 0)
        stride = o->block;
    else if (st == EXO_OK && (*word < '0' || *word > '9'))
        st = exo_config_fail(exo_config_get(config, "stride"), err,
                             "stride: expected an integer or block, got '%.60s'", word);
    else if (st == EXO_OK)
        st = exo_config_u64(config, "stride", 1, 1, MAX_BLOCK, &stride, err);
    o->stride = (size_t)stride;
    return st;
}

/* Reads the bounds of a part. A part that is not used may be empty. */
static exo_status
read_part(exo_config *config, const char *start_key, const char *end_key, double *start,
          double *end, bool used, exo_err *err)
{
    exo_status st = exo_config_fraction(config, start_key, *start, 0, 1, start, err);
    if (st == EXO_OK)
        st = exo_config_fraction(config, end_key, *end, 0, 1, end, err);
    if (st == EXO_OK && used && *start >= *end)
        st = exo_config_fail(config, err, "%s must be less than %s, got %g and %g", start_key,
                             end_key, *start, *end);
    return st;
}

/* The words of `documents` are in the order of exo_documents. */
static exo_status
read_windows(exo_config *config, size_t block, bool validated, exo_window_opts *o, exo_err *err)
{
    static const char *const words[] = {"auto", "ignore", "end", "separate", NULL};
    uint64_t size = block;
    size_t choice = EXO_DOCUMENTS_AUTO;
    *o = exo_window_opts_init();
    exo_status st = exo_config_u64(config, "block", block, 1, MAX_BLOCK, &size, err);
    o->block = (size_t)size;
    if (st == EXO_OK)
        st = read_stride(config, o, err);
    if (st == EXO_OK)
        st = read_part(config, "start_pc", "end_pc", &o->start, &o->end, true, err);
    if (st == EXO_OK)
        st = read_part(config, "val_start_pc", "val_end_pc", &o->val_start, &o->val_end, validated,
                       err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "documents", EXO_DOCUMENTS_AUTO, words, &choice, err);
    o->documents = (exo_documents)choice;
    return st;
}

/* Reads the tokenizer: a word or a path. *out is NULL for "characters", and without a word. */
static exo_status
read_tokenizer(exo_config *config, const char *otherwise, exo_tokenizer **out, exo_err *err)
{
    const char *word = NULL;
    *out = NULL;
    exo_status st = exo_config_string(config, "tokenizer", otherwise, &word, err);
    if (st != EXO_OK || !word || strcmp(word, "characters") == 0)
        return st;
    return strcmp(word, "bytes") == 0 ? exo_tokenizer_bytes(out, err)
                                      : exo_tokenizer_load(out, word, err);
}

static exo_status
need_path(exo_config *config, const char *example, const char **out, exo_err *err)
{
    *out = NULL;
    exo_status st = config ? exo_config_string(config, "path", NULL, out, err) : EXO_OK;
    if (st != EXO_OK || *out)
        return st;
    return config ? exo_config_fail(config, err, "the key 'path' is missing: data: %s", example)
                  : exo_fail(err, EXO_INVAL, "the key 'path' is missing: data: %s", example);
}

/* --- Text ------------------------------------------------------------------------------------- */

static exo_status
load_text(exo_config *config, const char *path, exo_dataset **train, exo_dataset **val,
          exo_err *err)
{
    exo_window_opts opts;
    exo_tokenizer *tokenizer = NULL;
    exo_status st = read_windows(config, TEXT_BLOCK, val != NULL, &opts, err);
    if (st == EXO_OK)
        st = read_tokenizer(config, "characters", &tokenizer, err);
    if (st == EXO_OK)
        st = exo_config_finish(config, err); /* reports a misspelt option before a long read */
    if (st == EXO_OK)
        st = exo_dataset_text(train, val, path, tokenizer, &opts, err);
    exo_tokenizer_drop(&tokenizer);
    return st;
}

static exo_status
load_text_named(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    const char *path = NULL;
    exo_status st = need_path(config, "{name: text, path: my.txt}", &path, err);
    return st == EXO_OK ? load_text(config, path, train, val, err) : st;
}

static exo_status
load_shakespeare(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    const char *path = NULL;
    char *folder = NULL, file[4096];
    exo_status st = exo_config_string(config, "path", NULL, &path, err);
    if (st == EXO_OK && !path)
        st = exo_data_folder("shakespeare", &folder, err);
    if (st == EXO_OK && !path) {
        if (snprintf(file, sizeof file, "%s/tinyshakespeare.txt", folder) >= (int)sizeof file)
            st = exo_fail(err, EXO_INVAL, "%s: the path is too long", folder);
        path = file;
    }
    if (st == EXO_OK && access(path, F_OK) != 0)
        st = exo_fail(
            err, EXO_NOT_FOUND,
            "%s: %s: run 'exogym data get shakespeare', or say where the text is with data.path",
            path, strerror(errno));
    if (st == EXO_OK)
        st = load_text(config, path, train, val, err);
    exo_free(folder);
    return st;
}

static exo_status
load_shakespeare_named(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    exo_config_doc *empty = NULL;
    exo_status st = config ? EXO_OK : exo_config_parse(&empty, "data", "{}", err);
    if (st == EXO_OK)
        st = load_shakespeare(config ? config : exo_config_root(empty), train, val, err);
    exo_config_free(&empty);
    return st;
}

/* --- Tokens ----------------------------------------------------------------------------------- */

static exo_status
load_tokens(exo_config *config, const char *path, exo_dataset **train, exo_dataset **val,
            exo_err *err)
{
    static const char *const types[] = {"shards", "uint16", "uint32", NULL};
    size_t files = EXO_TOKEN_FILES_SHARDS;
    exo_window_opts opts;
    exo_tokenizer *tokenizer = NULL;
    exo_status st = read_windows(config, TOKENS_BLOCK, val != NULL, &opts, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "dtype", EXO_TOKEN_FILES_SHARDS, types, &files, err);
    if (st == EXO_OK)
        st = read_tokenizer(config, NULL, &tokenizer, err);
    if (st == EXO_OK)
        st = exo_config_finish(config, err);
    if (st == EXO_OK)
        st = exo_dataset_tokens(train, val, path, (exo_token_files)files, tokenizer, &opts, err);
    exo_tokenizer_drop(&tokenizer);
    return st;
}

static exo_status
load_tokens_named(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    const char *path = NULL;
    exo_status st = need_path(config, "{name: tokens, path: FOLDER}", &path, err);
    return st == EXO_OK ? load_tokens(config, path, train, val, err) : st;
}

const exo_named_data exo_text_sets[EXO_NUM_TEXT_SETS] = {
    {"shakespeare", "1.1 MB of Shakespeare's plays, one text", load_shakespeare_named},
    {"text", "text files of your own, made into tokens at the start", load_text_named},
    {"tokens", "token shards that 'exogym data tokenize' made, mapped", load_tokens_named},
};
