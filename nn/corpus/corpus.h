/* A corpus: one stream of tokens, in memory or in mapped files. All data sets of its windows share
 * it, and each holds a reference.
 *
 * One thread fills a corpus; from then on it is read-only, for any thread. Read next: windows.c,
 * the samples; text.c and tokens.c, the sources of tokens. */
#ifndef EXO_CORPUS_H
#define EXO_CORPUS_H

#include <exogym/data.h>
#include <exogym/tokenizer.h>

/* A contiguous part of the stream. */
typedef struct exo_corpus_part {
    const void *tokens;  /* (count) little-endian, `width` bytes each */
    size_t first, count; /* its first token's position in the stream; its tokens */
    unsigned width;      /* 2 or 4 */
    char *path;          /* of a mapped file; NULL: the part owns `tokens` */
    void *map;
    size_t map_bytes;
} exo_corpus_part;

/* Unmaps or frees a part that was not added to a corpus. */
void exo_corpus_part_release(exo_corpus_part *part);

typedef struct exo_corpus exo_corpus;

/* An empty corpus with one reference. It holds the tokenizer, which may be NULL. `vocabulary`: 0
 * if not known. `end`: the end token between documents, or -1. NOMEM. */
exo_status exo_corpus_new(exo_corpus **out, exo_tokenizer *tokenizer, size_t vocabulary,
                          int32_t end, exo_err *err);
exo_corpus *exo_corpus_hold(exo_corpus *corpus);
void exo_corpus_drop(exo_corpus **corpus);

/* Appends a part to the stream, and sets its `first`. Takes ownership of the part's path, map and
 * memory, also on failure. NOMEM. */
exo_status exo_corpus_add(exo_corpus *corpus, exo_corpus_part part, exo_err *err);
/* Sets the positions of the documents' first tokens, (count), ascending. Takes ownership of the
 * array. */
void exo_corpus_set_documents(exo_corpus *corpus, size_t *starts, size_t count);

size_t exo_corpus_count(const exo_corpus *corpus);
exo_tokenizer *exo_corpus_tokenizer(const exo_corpus *corpus);
size_t exo_corpus_vocabulary(const exo_corpus *corpus); /* 0: not known */
int32_t exo_corpus_end(const exo_corpus *corpus);
/* The position of the first document that begins after token `at`, or SIZE_MAX. */
size_t exo_corpus_next_document(const exo_corpus *corpus, size_t at);

/* Checks that all tokens are less than `vocabulary`. A corpus with bare numbers is read through,
 * once; so is a corpus with a larger vocabulary, because not all of its tokens need occur. INVAL
 * names the first token that is too large, its file and byte. */
exo_status exo_corpus_check(exo_corpus *corpus, size_t vocabulary, exo_err *err);
/* Reads tokens [first, first + count), which must exist. DAMAGED: a token is not in the corpus's
 * vocabulary, or is 2^31 or more; names the file and the byte. */
exo_status exo_corpus_read(const exo_corpus *corpus, size_t first, size_t count, int32_t *out,
                           exo_err *err);

/* In windows.c: the training and the validation part as data sets. `val` may be NULL. `name`: the
 * corpus's name in errors. INVAL: a part is too small for one window. NOMEM. */
exo_status exo_corpus_windows(exo_dataset **train, exo_dataset **val, exo_corpus *corpus,
                              const char *name, const exo_window_opts *opts, exo_err *err);
/* Checks options; those of the validation part if `validated`. INVAL names the wrong option. */
exo_status exo_window_opts_check(const exo_window_opts *opts, bool validated, exo_err *err);
/* The token between documents: the tokenizer's end token, or -1 (none). INVAL: `documents` is END,
 * and the tokenizer has no end token. */
exo_status exo_documents_end(exo_documents documents, const exo_tokenizer *tokenizer, int32_t *out,
                             exo_err *err);

#endif
