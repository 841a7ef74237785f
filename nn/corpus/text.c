/* Text files as a data set: the text is encoded once, and its tokens are in memory once. One
 * thread makes it; corpus.h has the owner of the tokens. Read next: documents.h, windows.c. */
#include "nn/corpus/corpus.h"
#include "nn/corpus/documents.h"

#include <endian.h>
#include <string.h>

#include <exogym/memory.h>

/* The tokens encoded so far. */
struct collected {
    unsigned width;
    uint16_t *narrow; /* the tokens if the width is 2; else NULL */
    uint32_t *wide;   /* the tokens if the width is 4; else NULL */
    size_t count, room;
    size_t *starts; /* (num_starts): the documents' first tokens */
    size_t num_starts, starts_room;
};

static exo_status
make_room(struct collected *c, size_t more, exo_err *err)
{
    if (more > SIZE_MAX / 4 - c->count)
        return exo_fail(err, EXO_NOMEM, "there are too many tokens");
    if (c->count + more <= c->room)
        return EXO_OK;
    size_t room = c->room + c->room / 2;
    if (room < c->count + more)
        room = c->count + more;
    void *memory = c->width == 2 ? (void *)c->narrow : (void *)c->wide;
    memory = exo_realloc(memory, room, c->width);
    if (!memory)
        return exo_fail(err, EXO_NOMEM,
                        "no memory for %zu tokens; make shards with 'exogym data tokenize'", room);
    if (c->width == 2)
        c->narrow = memory;
    else
        c->wide = memory;
    c->room = room;
    return EXO_OK;
}

static exo_status
note_document(struct collected *c, exo_err *err)
{
    if (c->num_starts == c->starts_room) {
        size_t room = c->starts_room ? 2 * c->starts_room : 16;
        size_t *starts = exo_realloc(c->starts, room, sizeof *starts);
        if (!starts)
            return exo_fail(err, EXO_NOMEM, "no memory for the documents");
        c->starts = starts;
        c->starts_room = room;
    }
    c->starts[c->num_starts++] = c->count;
    return EXO_OK;
}

static exo_status
collect(void *context, const int32_t *tokens, size_t count, bool begins, exo_err *err)
{
    struct collected *c = context;
    exo_status st = make_room(c, count, err);
    if (st == EXO_OK && begins)
        st = note_document(c, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < count; i++)
        if (c->width == 2)
            c->narrow[c->count + i] = htole16((uint16_t)tokens[i]);
        else
            c->wide[c->count + i] = htole32((uint32_t)tokens[i]);
    c->count += count;
    return EXO_OK;
}

static exo_status
encode(const exo_file_list *files, exo_tokenizer *tokenizer, int32_t end, exo_corpus *corpus,
       exo_err *err)
{
    struct collected c = {.width = exo_tokenizer_vocabulary(tokenizer) <= 1 << 16 ? 2 : 4};
    const exo_encoding encoding = {.tokenizer = tokenizer,
                                   .end = end,
                                   .limit = EXO_PIECE_BYTES,
                                   .sink = collect,
                                   .context = &c};
    exo_status st = exo_documents_encode(files, &encoding, err);
    void *memory = c.width == 2 ? (void *)c.narrow : (void *)c.wide;
    if (st != EXO_OK || c.count == 0) {
        exo_free(memory);
        exo_free(c.starts);
        return st != EXO_OK ? st
                            : exo_fail(err, EXO_INVAL, "%s: there is no text", files->paths[0]);
    }
    void *shrunk = exo_realloc(memory, c.count, c.width);
    exo_corpus_set_documents(corpus, c.starts, c.num_starts);
    return exo_corpus_add(
        corpus,
        (exo_corpus_part){.tokens = shrunk ? shrunk : memory, .count = c.count, .width = c.width},
        err);
}

static exo_status
load(const exo_file_list *files, exo_tokenizer *tokenizer, const char *path,
     const exo_window_opts *opts, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    int32_t end = -1;
    exo_corpus *corpus = NULL;
    exo_status st = exo_documents_end(opts->documents, tokenizer, &end, err);
    if (st == EXO_OK)
        st = exo_corpus_new(&corpus, tokenizer, exo_tokenizer_vocabulary(tokenizer), end, err);
    if (st == EXO_OK)
        st = encode(files, tokenizer, end, corpus, err);
    if (st == EXO_OK)
        st = exo_corpus_windows(train, val, corpus, path, opts, err);
    exo_corpus_drop(&corpus);
    return st;
}

exo_status
exo_dataset_text(exo_dataset **train, exo_dataset **val, const char *path, exo_tokenizer *tokenizer,
                 const exo_window_opts *opts, exo_err *err)
{
    const exo_window_opts usual = exo_window_opts_init();
    exo_file_list files = {0};
    exo_tokenizer *characters = NULL;
    opts = opts ? opts : &usual;
    exo_status st = exo_window_opts_check(opts, val != NULL, err);
    if (st == EXO_OK)
        st = exo_file_list_add(&files, path, ".txt", err);
    if (st == EXO_OK && !tokenizer)
        st = exo_documents_alphabet(&files, EXO_PIECE_BYTES, &characters, err);
    if (st == EXO_OK)
        st = load(&files, tokenizer ? tokenizer : characters, path, opts, train, val, err);
    exo_tokenizer_drop(&characters);
    exo_file_list_release(&files);
    return st;
}
