/* Small texts, a tokenizer with an end token, and the samples that data sets make of them. Uses
 * Criterion's asserts. */
#ifndef EXO_TEST_TEXTS_H
#define EXO_TEST_TEXTS_H

#include <string.h>

#include <exogym/data.h>

enum {
    TEXTS_END = 28, /* the end token of texts_tokenizer */
    TEXTS_MAX_BLOCK = 64,
    TEXTS_PATH = 256
};

/* A path in a test's folder. Valid until the end of the caller's block, like those of texts_write
 * and texts_write_text. */
#define texts_path(folder, name) texts_path_in((char[TEXTS_PATH]){0}, folder, name)
/* Writes folder/name, makes missing folders, and returns the path. */
#define texts_write(folder, name, bytes, size)                                                     \
    texts_write_in((char[TEXTS_PATH]){0}, folder, name, bytes, size)
#define texts_write_text(folder, name, text) texts_write(folder, name, text, strlen(text))

const char *texts_path_in(char out[TEXTS_PATH], const char *folder, const char *name);
const char *texts_write_in(char out[TEXTS_PATH], const char *folder, const char *name,
                           const void *bytes, size_t size);

/* Writes folder/tokenizer.json. Its tokens are newline 0, space 1, a to z 2 to 27, and
 * <|endoftext|>. */
void texts_write_tokenizer(const char *folder);
/* Writes the tokenizer and loads it. */
exo_tokenizer *texts_tokenizer(const char *folder);

/* Reads sample `index`, which must exist. */
void texts_sample(const exo_dataset *dataset, size_t index, int32_t *tokens, int32_t *targets);
/* Expects that sample `index`, of `block` tokens, equals the given one. */
void texts_expect(const exo_dataset *dataset, size_t index, size_t block, const int32_t *tokens,
                  const int32_t *targets);
/* Expects that both have the same samples. */
void texts_expect_equal(const exo_dataset *a, const exo_dataset *b);

#endif
