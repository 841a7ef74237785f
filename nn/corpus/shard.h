/* Token shards: files of tokens with a header that says what they are. docs/data.md has the format.
 *
 * A writer belongs to one thread. What is open is part of a corpus. */
#ifndef EXO_SHARD_H
#define EXO_SHARD_H

#include "base/file.h"
#include "nn/corpus/corpus.h"

#define EXO_SHARD_ENDING ".tokens"

enum {
    EXO_SHARD_VERSION = 1,
    EXO_SHARD_HEADER = 128 /* bytes before the first token */
};

/* What a header says; all shards of a corpus say the same but for the count. */
typedef struct exo_shard_info {
    unsigned width; /* bytes of a token: 2 or 4 */
    uint64_t count;
    uint64_t vocabulary;
    int32_t end;           /* the end token, or -1                                    */
    uint8_t tokenizer[32]; /* SHA-256 of tokenizer.json; zeros: there is none         */
} exo_shard_info;

/* Writes the header's EXO_SHARD_HEADER bytes; reads them again. DAMAGED says what is wrong and at which byte, without the file's name. */
void exo_shard_pack(const exo_shard_info *info, uint8_t out[EXO_SHARD_HEADER]);
exo_status exo_shard_unpack(const uint8_t header[EXO_SHARD_HEADER], exo_shard_info *out,
                            exo_err *err);

/* Maps one file. `info`: of shards, what it says; of bare numbers (`files`) its width decides. Errors: NOT_FOUND, IO, DAMAGED. */
exo_status exo_shard_map(const char *path, exo_token_files files, exo_corpus_part *out,
                         exo_shard_info *info, exo_err *err);

/* SHA-256 of a tokenizer.json, or of the one in a folder. */
exo_status exo_tokenizer_file_hash(const char *path, uint8_t out[32], exo_err *err);

/* --- Writing ------------------------------------------------------------------------------------------------------------ */

typedef struct exo_shard_writer {
    const char *folder;
    exo_shard_info info; /* count: of the open file */
    uint64_t per_shard;
    exo_file file;
    uint8_t *buffer;
    size_t shards; /* begun */
    uint64_t tokens;
} exo_shard_writer;

/* `folder` and what `info` says hold for all files, shard-000000.tokens and so on. */
exo_status exo_shard_writer_init(exo_shard_writer *writer, const char *folder,
                                 const exo_shard_info *info, uint64_t per_shard, exo_err *err);
/* An exo_token_sink. FAILED: a token is out of the vocabulary. */
exo_status exo_shard_write(void *writer, const int32_t *tokens, size_t count, bool begins,
                           exo_err *err);
/* Ends the open file; a writer that is released before leaves no half of one. */
exo_status exo_shard_writer_finish(exo_shard_writer *writer, exo_err *err);
void exo_shard_writer_release(exo_shard_writer *writer);

#endif
