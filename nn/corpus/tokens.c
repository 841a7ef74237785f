/* Files of tokens as a data set. The files are mapped, so a host has one copy, in its page cache.
 * One thread makes it; corpus.h has the owner of the tokens. Read next: shard.h, windows.c. */
#include "nn/corpus/corpus.h"
#include "nn/corpus/documents.h"
#include "nn/corpus/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

/* The tokenizer of the shards: the caller's, else the tokenizer.json beside them, else none. The
 * file must be the one with which the shards were made. */
static exo_status
find_tokenizer(const char *path, exo_tokenizer *given, const exo_shard_info *info,
               exo_tokenizer **out, exo_err *err)
{
    static const uint8_t none[32] = {0};
    char *folder = NULL, file[4096] = "";
    uint8_t hash[32];
    if (given) {
        *out = exo_tokenizer_hold(given);
        return EXO_OK;
    }
    exo_status st = exo_folder_of(path, &folder, err);
    if (st == EXO_OK &&
        snprintf(file, sizeof file, "%s/tokenizer.json", folder) >= (int)sizeof file)
        st = exo_fail(err, EXO_INVAL, "%s: the path is too long", folder);
    exo_free(folder);
    if (st != EXO_OK || access(file, F_OK) != 0)
        return st;
    bool named = memcmp(info->tokenizer, none, sizeof none) != 0;
    if (named)
        st = exo_tokenizer_file_hash(file, hash, err);
    if (st == EXO_OK && named && memcmp(hash, info->tokenizer, sizeof hash) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is not the tokenizer.json that %s was made with: its SHA-256 differs",
                        file, path);
    return st == EXO_OK ? exo_tokenizer_load(out, file, err) : st;
}

/* The headers of all shards must agree. */
static exo_status
check_alike(const exo_shard_info *a, const exo_shard_info *b, const char *path_a,
            const char *path_b, exo_err *err)
{
    const char *what = NULL;
    if (a->vocabulary != b->vocabulary)
        what = "vocabulary";
    else if (a->end != b->end)
        what = "end token";
    else if (memcmp(a->tokenizer, b->tokenizer, sizeof a->tokenizer) != 0)
        what = "tokenizer";
    return what ? exo_fail(err, EXO_DAMAGED,
                           "%s and %s do not belong together: each has a different %s", path_a,
                           path_b, what)
                : EXO_OK;
}

/* The vocabulary and the end token are those of the shards; with bare numbers, the tokenizer's. */
static exo_status
make_corpus(const exo_shard_info *info, exo_tokenizer *tokenizer, const char *path,
            exo_token_files files, exo_corpus **out, exo_err *err)
{
    uint64_t vocabulary = info->vocabulary;
    int32_t end = info->end;
    size_t known = tokenizer ? exo_tokenizer_vocabulary(tokenizer) : 0;
    if (files != EXO_TOKEN_FILES_SHARDS) {
        vocabulary = known;
        end = tokenizer ? exo_tokenizer_end(tokenizer) : -1;
    } else if (tokenizer && known != vocabulary) {
        return exo_fail(err, EXO_DAMAGED,
                        "%s: was made with a vocabulary of %" PRIu64 ", the tokenizer's has %zu",
                        path, vocabulary, known);
    }
    return exo_corpus_new(out, tokenizer, (size_t)vocabulary, end, err);
}

static exo_status
map_all(const exo_file_list *list, exo_token_files files, exo_corpus_part first,
        const exo_shard_info *info, exo_corpus *corpus, exo_err *err)
{
    exo_status st = exo_corpus_add(corpus, first, err);
    for (size_t i = 1; st == EXO_OK && i < list->count; i++) {
        exo_corpus_part part;
        exo_shard_info next;
        st = exo_shard_map(list->paths[i], files, &part, &next, err);
        if (st == EXO_OK)
            st = exo_corpus_add(corpus, part, err);
        if (st == EXO_OK)
            st = check_alike(info, &next, list->paths[0], list->paths[i], err);
    }
    return st;
}

static exo_status
open_corpus(const exo_file_list *list, const char *path, exo_token_files files,
            exo_tokenizer *given, exo_corpus **out, exo_err *err)
{
    exo_corpus_part part = {0};
    exo_shard_info info;
    exo_tokenizer *tokenizer = NULL;
    exo_corpus *corpus = NULL;
    exo_status st = exo_shard_map(list->paths[0], files, &part, &info, err);
    if (st == EXO_OK)
        st = find_tokenizer(path, given, &info, &tokenizer, err);
    if (st == EXO_OK)
        st = make_corpus(&info, tokenizer, path, files, &corpus, err);
    if (st == EXO_OK)
        st = map_all(list, files, part, &info, corpus, err);
    else if (part.map)
        exo_corpus_part_release(&part);
    exo_tokenizer_drop(&tokenizer);
    if (st == EXO_OK) {
        *out = corpus;
        corpus = NULL;
    }
    exo_corpus_drop(&corpus);
    return st;
}

exo_status
exo_dataset_tokens(exo_dataset **train, exo_dataset **val, const char *path, exo_token_files files,
                   exo_tokenizer *tokenizer, const exo_window_opts *opts, exo_err *err)
{
    const exo_window_opts usual = exo_window_opts_init();
    exo_file_list list = {0};
    exo_corpus *corpus = NULL;
    opts = opts ? opts : &usual;
    exo_status st = exo_window_opts_check(opts, val != NULL, err);
    if (st == EXO_OK)
        st = exo_file_list_add(&list, path,
                               files == EXO_TOKEN_FILES_SHARDS ? EXO_SHARD_ENDING : ".bin", err);
    if (st == EXO_OK)
        st = open_corpus(&list, path, files, tokenizer, &corpus, err);
    if (st == EXO_OK && opts->documents == EXO_DOCUMENTS_SEPARATE && exo_corpus_end(corpus) < 0)
        st = exo_fail(err, EXO_INVAL,
                      "%s: documents: separate: the tokens have no end token that separates them",
                      path);
    if (st == EXO_OK)
        st = exo_corpus_windows(train, val, corpus, path, opts, err);
    exo_corpus_drop(&corpus);
    exo_file_list_release(&list);
    return st;
}
