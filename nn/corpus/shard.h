/* Token shards: files of tokens with a header. docs/data.md has the format.
 *
 * Owner of a writer: one thread. Owner of a mapped shard: its corpus. Read next: shard.c;
 * tokens.c, which reads shards; tokenize.c, which writes them. */
#ifndef EXO_SHARD_H
#define EXO_SHARD_H

#include "base/file.h"
#include "nn/corpus/corpus.h"

#define EXO_SHARD_ENDING ".tokens"

enum {
    EXO_SHARD_VERSION = 1,
    EXO_SHARD_HEADER = 128 /* bytes before the first token */
};

/* The fields of a header. Except for the count, all shards of a corpus have equal fields. */
typedef struct exo_shard_info {
    unsigned width; /* bytes of a token: 2 or 4 */
    uint64_t count;
    uint64_t vocabulary;
    int32_t end;           /* the end token, or -1 */
    uint8_t tokenizer[32]; /* SHA-256 of tokenizer.json; zeros: no tokenizer */
} exo_shard_info;

/* Writes a header's bytes. */
void exo_shard_pack(const exo_shard_info *info, uint8_t out[EXO_SHARD_HEADER]);
/* Reads a header's bytes. DAMAGED names the wrong field and its byte, but not the file. */
exo_status exo_shard_unpack(const uint8_t header[EXO_SHARD_HEADER], exo_shard_info *out,
                            exo_err *err);

/* Maps one file as a part of a corpus. *info: a shard's header; of bare numbers (`files` names
 * their type) the width and the count. The caller owns *out. NOT_FOUND, IO, NOMEM, DAMAGED. */
exo_status exo_shard_map(const char *path, exo_token_files files, exo_corpus_part *out,
                         exo_shard_info *info, exo_err *err);

/* The SHA-256 of a tokenizer.json; `path` is the file or its folder. INVAL: the path is too long.
 * NOT_FOUND, IO, NOMEM, DAMAGED (too large). */
exo_status exo_tokenizer_file_hash(const char *path, uint8_t out[32], exo_err *err);

/* --- Writing ---------------------------------------------------------------------------------- */

typedef struct exo_shard_writer {
    const char *folder;
    exo_shard_info info; /* its count is that of the open file */
    uint64_t per_shard;  /* tokens of a shard, at most */
    exo_file file;
    uint8_t *buffer;
    size_t shards;   /* shards begun */
    uint64_t tokens; /* tokens written to all shards */
} exo_shard_writer;

/* A writer of the files shard-000000.tokens, shard-000001.tokens, ... in `folder`, which must
 * outlive the writer. `info` has the fields of all headers, except the count. NOMEM. */
exo_status exo_shard_writer_init(exo_shard_writer *writer, const char *folder,
                                 const exo_shard_info *info, uint64_t per_shard, exo_err *err);
/* An exo_token_sink. FAILED: a token is not in the vocabulary. INVAL (the path is too long), IO,
 * NOMEM. */
exo_status exo_shard_write(void *writer, const int32_t *tokens, size_t count, bool begins,
                           exo_err *err);
/* Completes the open file. Without this, releasing the writer removes the incomplete file. IO. */
exo_status exo_shard_writer_finish(exo_shard_writer *writer, exo_err *err);
void exo_shard_writer_release(exo_shard_writer *writer);

#endif
