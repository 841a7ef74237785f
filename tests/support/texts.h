/* Small texts, a tokenizer with an end token, and what data sets make of them. Uses Criterion's
 * asserts. */
#ifndef EXO_TEST_TEXTS_H
#define EXO_TEST_TEXTS_H

#include <string.h>

#include <exogym/data.h>

enum {
    TEXTS_END = 28, /* the end token of texts_tokenizer */
    TEXTS_MAX_BLOCK = 64,
    TEXTS_PATH = 256
};

/* A path below a test's own folder; valid until the end of the caller's block, as those of
 * texts_write and texts_write_text. */
#define texts_path(folder, name) texts_path_in((char[TEXTS_PATH]){0}, folder, name)
/* Writes folder/name and gives its path; folders on the way are made. */
#define texts_write(folder, name, bytes, size)                                                     \
    texts_write_in((char[TEXTS_PATH]){0}, folder, name, bytes, size)
#define texts_write_text(folder, name, text) texts_write(folder, name, text, strlen(text))

const char *texts_path_in(char out[TEXTS_PATH], const char *folder, const char *name);
const char *texts_write_in(char out[TEXTS_PATH], const char *folder, const char *name,
                           const void *bytes, size_t size);

/* Writes folder/tokenizer.json: newline 0, space 1, a to z 2 to 27, and <|endoftext|>. */
void texts_write_tokenizer(const char *folder);
/* Opens it. */
exo_tokenizer *texts_tokenizer(const char *folder);

/* Sample `index`, which must be there. */
void texts_sample(const exo_dataset *dataset, size_t index, int32_t *tokens, int32_t *targets);
/* Is sample `index` of `block` tokens what is given? */
void texts_expect(const exo_dataset *dataset, size_t index, size_t block, const int32_t *tokens,
                  const int32_t *targets);
/* Have both the same samples? */
void texts_expect_equal(const exo_dataset *a, const exo_dataset *b);

#endif
