/* Text files as documents: lists of files, reading in pieces of bounded size, and encoding.
 *
 * Owner of each struct: the caller; one thread at a time. All functions that read files block.
 * Read next: documents.c; alphabet.c. */
#ifndef EXO_DOCUMENTS_H
#define EXO_DOCUMENTS_H

#include <stdint.h>

#include <exogym/status.h>
#include <exogym/tokenizer.h>

enum {
    EXO_PIECE_BYTES = 16 << 20 /* larger documents are encoded in several pieces */
};

typedef struct exo_file_list {
    char **paths;
    size_t count, room;
    const _Atomic int *stop; /* its readers end as CANCELLED when it is not 0; NULL: never */
} exo_file_list;

/* Adds a file, `input`; or of a folder, `input`, the files whose names end with `ending`, sorted
 * by the bytes of their names. NOT_FOUND (also: the folder has no such file), IO, NOMEM. */
exo_status exo_file_list_add(exo_file_list *list, const char *input, const char *ending,
                             exo_err *err);
void exo_file_list_release(exo_file_list *list);
/* The sum of the files' sizes. A file without accessible size counts 0. */
uint64_t exo_file_list_bytes(const exo_file_list *list);

/* The folder of a file, or `path` itself if it is a folder. The caller frees *out with exo_free.
 * NOMEM. */
exo_status exo_folder_of(const char *path, char **out, exo_err *err);

/* Takes a piece of document `index`, which begins at the document's byte `offset`. */
typedef exo_status (*exo_document_piece)(void *context, size_t index, const char *text, size_t size,
                                         uint64_t offset, exo_err *err);

/* Calls `piece` for all files, in order, with pieces of at most `limit` bytes (at least 8). A
 * longer text is cut at the end of a line, if possible after a letter: no tokenizer that splits
 * text into words joins anything there. A text without such a place is cut between characters.
 * Empty files have no piece. Of a file "*.jsonl" each line is a document: the text under the key
 * "text" of an object. A line has at most `limit` bytes. Errors: NOT_FOUND, IO, NOMEM; INVAL, with
 * file and line, if a line is too long or no such object; CANCELLED; those of `piece`, with the file's
 * name before them. *read, which may be NULL, has the bytes of all files up to the end of the present
 * piece, or of its line. */
exo_status exo_documents_read(const exo_file_list *files, size_t limit, exo_document_piece piece,
                              void *context, uint64_t *read, exo_err *err);

/* A tokenizer of the characters in the files. INVAL: a file is not UTF-8 or has U+0000 (names file
 * and byte), or the files have no text. Other errors: those of exo_documents_read. */
exo_status exo_documents_alphabet(const exo_file_list *files, size_t limit, exo_tokenizer **out,
                                  exo_err *err);

/* Takes tokens. `begins`: the first of them begins a document. */
typedef exo_status (*exo_token_sink)(void *context, const int32_t *tokens, size_t count,
                                     bool begins, exo_err *err);

typedef struct exo_encoding {
    exo_tokenizer *tokenizer;
    int32_t end;  /* the token between documents; -1: none */
    size_t limit; /* bytes of a piece */
    exo_token_sink sink;
    void (*progress)(void *context, uint64_t bytes, uint64_t total); /* may be NULL */
    void *context, *progress_context;                                /* of `sink`; of `progress` */
} exo_encoding;

/* Encodes all files into the sink. Errors: those of exo_documents_read, of the tokenizer, and of
 * the sink. */
exo_status exo_documents_encode(const exo_file_list *files, const exo_encoding *encoding,
                                exo_err *err);

#endif
