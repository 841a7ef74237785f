/* Text files as documents: which there are, read in pieces of bounded size, and made into tokens. One thread at a time. */
#ifndef EXO_DOCUMENTS_H
#define EXO_DOCUMENTS_H

#include <stdint.h>

#include <exogym/status.h>
#include <exogym/tokenizer.h>

enum {
    EXO_PIECE_BYTES = 16 << 20 /* a document up to this size is encoded in one piece */
};

typedef struct exo_file_list {
    char **paths;
    size_t count, room;
} exo_file_list;

/* Adds `input`, a file, or the files in a folder whose names end with `ending`, in the order of their bytes. Errors: NOT_FOUND (also: there
 * is none in the folder), IO. */
exo_status exo_file_list_add(exo_file_list *list, const char *input, const char *ending,
                             exo_err *err);
void exo_file_list_release(exo_file_list *list);
/* Bytes of all of them; what cannot be looked at counts 0. */
uint64_t exo_file_list_bytes(const exo_file_list *list);

/* The folder that a file is in, or the folder itself. The caller frees *out with exo_free. */
exo_status exo_folder_of(const char *path, char **out, exo_err *err);

/* A piece of document `index`, from its byte `offset` on. */
typedef exo_status (*exo_document_piece)(void *context, size_t index, const char *text, size_t size,
                                         uint64_t offset, exo_err *err);

/* Hands all files over, piece by piece, each of at most `limit` bytes (at least 8). What is longer is cut at the end of a line, best after a
 * letter, where no tokenizer that takes words apart joins anything; else between characters. Empty files have no piece. Errors: IO, NOMEM, and
 * what the piece gives, after the file's name. */
exo_status exo_documents_read(const exo_file_list *files, size_t limit, exo_document_piece piece,
                              void *context, exo_err *err);

/* The tokenizer of their characters. INVAL: not UTF-8; names file and byte. */
exo_status exo_documents_alphabet(const exo_file_list *files, size_t limit, exo_tokenizer **out,
                                  exo_err *err);

/* Takes tokens; `begins`: the first of them is the first of a document. */
typedef exo_status (*exo_token_sink)(void *context, const int32_t *tokens, size_t count,
                                     bool begins, exo_err *err);

typedef struct exo_encoding {
    exo_tokenizer *tokenizer;
    int32_t end;  /* stands between documents; -1: nothing does */
    size_t limit; /* of pieces */
    exo_token_sink sink;
    void (*progress)(void *context, uint64_t bytes, uint64_t total); /* may be NULL */
    void *context, *progress_context;
} exo_encoding;

/* Encodes all files into the sink. */
exo_status exo_documents_encode(const exo_file_list *files, const exo_encoding *encoding,
                                exo_err *err);

#endif
