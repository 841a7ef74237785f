/* Files of tokens and of text. The first byte chooses how the rest is read:
 * - as a shard, as it is or with the header's checksum made right, or as bare numbers. An opened
 *   data set gives windows whose tokens are all in the vocabulary, or an error that names the bad
 *   token;
 * - as a text in pieces of the size of the second byte: no byte is lost, and if its characters make
 *   a tokenizer, encoding and decoding gives back the text.
 *
 * One thread; the input is a file in memory. Read next: nn/corpus/shard.h, documents.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <openssl/sha.h>

#include <exogym/memory.h>

#include "nn/corpus/documents.h"
#include "nn/corpus/shard.h"

enum {
    BLOCK = 5,
    WINDOWS = 64
};

static void
expect(int right)
{
    if (!right)
        abort();
}

/* Makes a file in memory, and gives its path. */
static int
open_file(const uint8_t *data, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* --- Tokens ----------------------------------------------------------------------------------- */

static void
read_windows(const exo_dataset *dataset)
{
    size_t length = exo_dataset_length(dataset), vocabulary = exo_dataset_vocabulary(dataset);
    size_t limit = vocabulary ? vocabulary : INT32_MAX;
    for (size_t i = 0; i < length && i < WINDOWS; i++) {
        int32_t tokens[BLOCK], targets[BLOCK];
        exo_err err = {0};
        exo_status st =
            exo_dataset_get(dataset, i, &(exo_sample_key){0}, (void *[]){tokens, targets}, &err);
        expect(st == EXO_OK || ((st == EXO_INVAL || st == EXO_DAMAGED) && err.text[0]));
        for (int k = 0; st == EXO_OK && k < BLOCK; k++) {
            expect(tokens[k] >= 0 && (size_t)tokens[k] < limit && targets[k] >= -1);
            expect(targets[k] == -1 || k + 1 == BLOCK || targets[k] == tokens[k + 1]);
        }
    }
}

static void
read_tokens(const uint8_t *data, size_t size, exo_token_files files, bool separate)
{
    char path[32];
    exo_err err = {0};
    exo_dataset *train = NULL, *val = NULL;
    const exo_window_opts opts = {.block = BLOCK,
                                  .stride = 3,
                                  .end = 0.6,
                                  .val_start = 0.5,
                                  .val_end = 1,
                                  .documents =
                                      separate ? EXO_DOCUMENTS_SEPARATE : EXO_DOCUMENTS_AUTO};
    int fd = open_file(data, size, path);
    exo_status st = exo_dataset_tokens(&train, &val, path, files, NULL, &opts, &err);
    expect(st == EXO_OK ? train && val
                        : !train && !val && (st == EXO_INVAL || st == EXO_DAMAGED) &&
                              strstr(err.text, path));
    if (st == EXO_OK) {
        read_windows(train);
        read_windows(val);
    }
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    close(fd);
}

static void
read_shard(const uint8_t *data, size_t size, bool right, bool separate)
{
    uint8_t *copy = exo_calloc(size + 1, 1);
    expect(copy != NULL);
    memcpy(copy, data, size);
    if (right && size >= EXO_SHARD_HEADER)
        SHA256(copy, 96, copy + 96);
    read_tokens(copy, size, EXO_TOKEN_FILES_SHARDS, separate);
    exo_free(copy);
}

/* --- Text ------------------------------------------------------------------------------------- */

struct rest {
    const uint8_t *text;
    size_t size, limit;
};

static exo_status
take(void *context, size_t index, const char *text, size_t size, uint64_t offset, exo_err *err)
{
    (void)err;
    (void)offset;
    struct rest *r = context;
    expect(index == 0 && size > 0 && size <= r->limit && size <= r->size &&
           memcmp(r->text, text, size) == 0);
    r->text += size;
    r->size -= size;
    return EXO_OK;
}

static void
read_text(const uint8_t *data, size_t size, size_t limit)
{
    char path[32], *text = NULL;
    int fd = open_file(data, size, path);
    exo_file_list files = {0};
    exo_tokenizer *tokenizer = NULL;
    struct rest rest = {.text = data, .size = size, .limit = limit};
    exo_err err = {0};
    expect(exo_file_list_add(&files, path, ".txt", NULL) == EXO_OK);
    expect(exo_documents_read(&files, limit, take, &rest, NULL, NULL) == EXO_OK && rest.size == 0);
    exo_status st = exo_documents_alphabet(&files, limit, &tokenizer, &err);
    expect(st == EXO_OK || ((st == EXO_INVAL || st == EXO_DAMAGED) && strstr(err.text, path)));
    if (st == EXO_OK) {
        int32_t *tokens = NULL;
        size_t count = 0, back = 0;
        expect(exo_tokenizer_encode(tokenizer, (const char *)data, size, false, &tokens, &count,
                                    NULL) == EXO_OK);
        expect(exo_tokenizer_decode(tokenizer, tokens, count, true, &text, &back, NULL) == EXO_OK);
        expect(back == size && memcmp(text, data, size) == 0);
        exo_free(tokens);
        exo_free(text);
    }
    exo_tokenizer_drop(&tokenizer);
    exo_file_list_release(&files);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    bool separate = data[1] & 1;
    switch (data[0] % 5) {
    case 0:
        read_shard(data + 2, size - 2, false, separate);
        break;
    case 1:
        read_shard(data + 2, size - 2, true, separate);
        break;
    case 2:
        read_tokens(data + 2, size - 2, EXO_TOKEN_FILES_U16, separate);
        break;
    case 3:
        read_tokens(data + 2, size - 2, EXO_TOKEN_FILES_U32, separate);
        break;
    default:
        read_text(data + 2, size - 2, 8 + data[1]);
    }
    return 0;
}
