/* Windows of a corpus as data sets. A sample has `block` tokens, and for each the token that
 * follows.
 *
 * Read-only, for any thread; a data set holds its corpus. See corpus.h. */
#include "nn/corpus/corpus.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/dataset_impl.h"

struct windows {
    exo_corpus *corpus;
    size_t first, count; /* the part of the corpus, in tokens */
    size_t block, stride;
    bool separate;
};

exo_window_opts
exo_window_opts_init(void)
{
    return (exo_window_opts){.block = 256, .stride = 1, .end = 0.9, .val_start = 0.9, .val_end = 1};
}

static exo_status
check_part(const char *names[2], double start, double end, exo_err *err)
{
    if (start >= 0 && start < end && end <= 1)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "%s %g and %s %g: 0 <= %s < %s <= 1 must hold", names[0], start,
                    names[1], end, names[0], names[1]);
}

exo_status
exo_window_opts_check(const exo_window_opts *opts, bool validated, exo_err *err)
{
    if (opts->block < 1 || opts->block > INT32_MAX)
        return exo_fail(err, EXO_INVAL, "block must be 1 to %d, got %zu", INT32_MAX, opts->block);
    if (opts->stride < 1)
        return exo_fail(err, EXO_INVAL, "stride must be at least 1");
    if ((unsigned)opts->documents > EXO_DOCUMENTS_SEPARATE)
        return exo_fail(err, EXO_INVAL, "documents: unknown choice %d", (int)opts->documents);
    exo_status st = check_part((const char *[]){"start_pc", "end_pc"}, opts->start, opts->end, err);
    return st == EXO_OK && validated ? check_part((const char *[]){"val_start_pc", "val_end_pc"},
                                                  opts->val_start, opts->val_end, err)
                                     : st;
}

exo_status
exo_documents_end(exo_documents documents, const exo_tokenizer *tokenizer, int32_t *out,
                  exo_err *err)
{
    int32_t end = exo_tokenizer_end(tokenizer);
    *out = documents == EXO_DOCUMENTS_IGNORE ? -1 : end;
    if (documents == EXO_DOCUMENTS_END && end < 0)
        return exo_fail(
            err, EXO_INVAL,
            "documents: end: the tokenizer has no end token; choose ignore or separate");
    return EXO_OK;
}

/* --- The class -------------------------------------------------------------------------------- */

static size_t
windows_length(const void *self)
{
    const struct windows *w = self;
    return (w->count - w->block - 1) / w->stride + 1;
}

static size_t
windows_fields(const void *self, exo_field *out)
{
    const struct windows *w = self;
    out[0] = (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {w->block}};
    out[1] = (exo_field){.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {w->block}};
    return 2;
}

/* Targets that begin another document become -1, which losses ignore. `at`: the window's first
 * token. */
static void
part_documents(const struct windows *w, size_t at, const int32_t *tokens, int32_t *targets)
{
    int32_t end = exo_corpus_end(w->corpus);
    for (size_t i = 0; end >= 0 && i < w->block; i++)
        if (tokens[i] == end)
            targets[i] = -1;
    if (end >= 0)
        return;
    for (size_t next = exo_corpus_next_document(w->corpus, at); next <= at + w->block;
         next = exo_corpus_next_document(w->corpus, next))
        targets[next - at - 1] = -1;
}

static exo_status
windows_get(const void *self, size_t index, const exo_sample_key *key, void *const *out,
            exo_err *err)
{
    (void)key;
    const struct windows *w = self;
    int32_t *tokens = out[0], *targets = out[1];
    size_t at = w->first + index * w->stride;
    exo_status st = exo_corpus_read(w->corpus, at, 1, tokens, err);
    if (st == EXO_OK)
        st = exo_corpus_read(w->corpus, at + 1, w->block, targets, err);
    if (st != EXO_OK)
        return st;
    memcpy(tokens + 1, targets, (w->block - 1) * sizeof *tokens);
    if (w->separate)
        part_documents(w, at, tokens, targets);
    return EXO_OK;
}

static void
windows_free(void *self)
{
    struct windows *w = self;
    exo_corpus_drop(&w->corpus);
    exo_free(w);
}

static exo_tokenizer *
windows_tokenizer(const void *self)
{
    return exo_corpus_tokenizer(((const struct windows *)self)->corpus);
}

static size_t
windows_vocabulary(const void *self)
{
    return exo_corpus_vocabulary(((const struct windows *)self)->corpus);
}

static exo_status windows_split(const void *self, uint32_t rank, uint32_t num_parts,
                                exo_dataset **out, exo_err *err);

static const exo_dataset_class windows_class = {
    .name = "windows",
    .length = windows_length,
    .fields = windows_fields,
    .get = windows_get,
    .free = windows_free,
    .tokenizer = windows_tokenizer,
    .vocabulary = windows_vocabulary,
    .split = windows_split,
};

static exo_status
windows_new(const struct windows *from, exo_dataset **out, exo_err *err)
{
    struct windows *w = exo_calloc(1, sizeof *w);
    if (!w)
        return exo_fail(err, EXO_NOMEM, "no memory for a data set");
    *w = *from;
    exo_corpus_hold(w->corpus);
    return exo_dataset_new(out, &windows_class, w, err);
}

static exo_status
windows_split(const void *self, uint32_t rank, uint32_t num_parts, exo_dataset **out, exo_err *err)
{
    const struct windows *w = self;
    struct windows part = *w;
    size_t first = exo_split_point(w->count, rank, num_parts),
           end = exo_split_point(w->count, rank + 1, num_parts);
    if (end - first <= w->block)
        return exo_fail(err, EXO_INVAL,
                        "part %u of %u has %zu of the %zu tokens: a window of block %zu takes one "
                        "more than that",
                        rank, num_parts, end - first, w->count, w->block);
    part.first += first;
    part.count = end - first;
    return windows_new(&part, out, err);
}

exo_status
exo_dataset_check_tokens(const exo_dataset *dataset, size_t vocabulary, exo_err *err)
{
    if (exo_dataset_class_of(dataset) == &windows_class)
        return exo_corpus_check(((const struct windows *)exo_dataset_self(dataset))->corpus,
                                vocabulary, err);
    size_t needed = exo_dataset_vocabulary(dataset);
    if (needed <= vocabulary)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "the data set '%s' has a vocabulary of %zu, the model has %zu",
                    exo_dataset_class_of(dataset)->name, needed, vocabulary);
}

/* --- Both halves ------------------------------------------------------------------------------ */

static exo_status
make_part(exo_dataset **out, exo_corpus *corpus, const char *name, const char *half, double start,
          double end, const exo_window_opts *opts, exo_err *err)
{
    double count = (double)exo_corpus_count(corpus);
    struct windows w = {.corpus = corpus, .block = opts->block, .stride = opts->stride};
    size_t after = end < 1 ? (size_t)(end * count) : exo_corpus_count(corpus);
    w.first = (size_t)(start * count);
    w.count = after > w.first ? after - w.first : 0;
    w.separate = opts->documents == EXO_DOCUMENTS_SEPARATE;
    bool validates = strcmp(half, "validation") == 0;
    if (w.count <= w.block)
        return exo_fail(err, EXO_INVAL,
                        "%s: the %s part, %g to %g of %zu tokens, has %zu: a window of block %zu "
                        "takes one more than "
                        "that%s",
                        name, half, start, end, exo_corpus_count(corpus), w.count, w.block,
                        validates ? "; a job with val_size: none needs no such part" : "");
    return windows_new(&w, out, err);
}

exo_status
exo_corpus_windows(exo_dataset **train, exo_dataset **val, exo_corpus *corpus, const char *name,
                   const exo_window_opts *opts, exo_err *err)
{
    *train = NULL;
    if (val)
        *val = NULL;
    exo_status st = make_part(train, corpus, name, "training", opts->start, opts->end, opts, err);
    if (st == EXO_OK && val)
        st = make_part(val, corpus, name, "validation", opts->val_start, opts->val_end, opts, err);
    if (st != EXO_OK)
        exo_dataset_drop(train);
    return st;
}
