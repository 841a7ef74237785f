/* A corpus: one stream of tokens, in memory or in mapped files, shared by all data sets that show windows of it.
 *
 * Counted references, read-only once it is filled; any thread. Read next: windows.c (samples), text.c and tokens.c (where tokens come from).
 */
#ifndef EXO_CORPUS_H
#define EXO_CORPUS_H

#include <exogym/data.h>
#include <exogym/tokenizer.h>

/* A run of the stream that lies in one piece. */
typedef struct exo_corpus_part {
    const void *tokens; /* (count) little-endian, `width` bytes each */
    size_t first, count;
    unsigned width; /* 2 or 4 */
    char *path;     /* of a mapped file, else NULL: the tokens are memory of our own */
    void *map;
    size_t map_bytes;
} exo_corpus_part;

/* Of a part that no corpus has. */
void exo_corpus_part_release(exo_corpus_part *part);

typedef struct exo_corpus exo_corpus;

/* Empty; the tokenizer (may be NULL) is held. `end`: the end token that stands between documents, or -1. */
exo_status exo_corpus_new(exo_corpus **out, exo_tokenizer *tokenizer, size_t vocabulary,
                          int32_t end, exo_err *err);
exo_corpus *exo_corpus_hold(exo_corpus *corpus);
void exo_corpus_drop(exo_corpus **corpus);

/* Adds tokens at the end; part->first is set. Path, map and memory are handed over, also on failure. */
exo_status exo_corpus_add(exo_corpus *corpus, exo_corpus_part part, exo_err *err);
/* The first tokens of documents, in order, (count); the array is handed over. */
void exo_corpus_set_documents(exo_corpus *corpus, size_t *starts, size_t count);

size_t exo_corpus_count(const exo_corpus *corpus);
exo_tokenizer *exo_corpus_tokenizer(const exo_corpus *corpus);
size_t exo_corpus_vocabulary(const exo_corpus *corpus); /* 0: not known, nothing is checked */
int32_t exo_corpus_end(const exo_corpus *corpus);
/* The first document that begins after token `at`: its first token, or SIZE_MAX. */
size_t exo_corpus_next_document(const exo_corpus *corpus, size_t at);

/* Are all tokens less than `vocabulary`? Files of bare numbers are read through, once, and whatever has a larger vocabulary: of that not all need
 * occur. INVAL names the file, the byte and the first token that is not. */
exo_status exo_corpus_check(exo_corpus *corpus, size_t vocabulary, exo_err *err);
/* Reads tokens [first, first + count), which are there. DAMAGED: one is out of the vocabulary; names the file and the byte. */
exo_status exo_corpus_read(const exo_corpus *corpus, size_t first, size_t count, int32_t *out,
                           exo_err *err);

/* windows.c: the two halves as data sets; `name` is of the whole, for messages. `val` may be NULL. */
exo_status exo_corpus_windows(exo_dataset **train, exo_dataset **val, exo_corpus *corpus,
                              const char *name, const exo_window_opts *opts, exo_err *err);
/* INVAL says which option is wrong. */
exo_status exo_window_opts_check(const exo_window_opts *opts, bool validated, exo_err *err);
/* What stands between documents: the tokenizer's end token, or -1: nothing. INVAL: `documents` is END and there is no such token. */
exo_status exo_documents_end(exo_documents documents, const exo_tokenizer *tokenizer, int32_t *out,
                             exo_err *err);

#endif
