/* One tokenizer in several threads under the thread sanitizer: each thread gets the tokens that one
 * thread alone gets, and decodes and streams them to the same text. Each thread holds a reference.
 * Read next: include/exogym/tokenizer.h. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tokenizer.h>

#include "support/check.h"

enum {
    THREADS = 4,
    ROUNDS = 200
};

static const char text[] =
    " One tokenizer, it's for 1234 threads: <s>caf\u00e9\u4f60\u597d</s>\n\n  \U0001f600 \xff "
    "internationalizationinternationalization";

struct work {
    exo_tokenizer *tokenizer;
    int32_t *tokens; /* the expected tokens and their text */
    size_t count;
    char *text;
    size_t size;
};

static void *
run(void *argument)
{
    const struct work *work = argument;
    exo_tokenizer *t = exo_tokenizer_hold(work->tokenizer);
    for (int i = 0; i < ROUNDS; i++) {
        int32_t *tokens = NULL;
        char *out = NULL;
        const char *part;
        size_t count = 0, size = 0, at = 0;
        exo_token_stream *stream = NULL;
        CHECK(exo_tokenizer_encode(t, text, sizeof text - 1, true, &tokens, &count, NULL) ==
              EXO_OK);
        CHECK(count == work->count && memcmp(tokens, work->tokens, count * sizeof *tokens) == 0);
        CHECK(exo_tokenizer_decode(t, tokens, count, false, &out, &size, NULL) == EXO_OK);
        CHECK(size == work->size && memcmp(out, work->text, size) == 0);
        CHECK(exo_token_stream_open(&stream, t, false, NULL) == EXO_OK);
        for (size_t k = 0; k <= count; k++) {
            CHECK((k < count ? exo_token_stream_put(stream, tokens[k], &part, NULL)
                             : exo_token_stream_end(stream, &part, NULL)) == EXO_OK);
            CHECK(at + strlen(part) <= size && memcmp(out + at, part, strlen(part)) == 0);
            at += strlen(part);
        }
        CHECK(at == size);
        exo_token_stream_close(&stream);
        exo_free(tokens);
        exo_free(out);
    }
    exo_tokenizer_drop(&t);
    return NULL;
}

int
main(void)
{
    static const char *const names[] = {"gpt2", "mistral", "qwen2"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        pthread_t threads[THREADS];
        struct work work = {0};
        char path[512];
        snprintf(path, sizeof path, "%s/golden/tokenizers/%s", EXO_TEST_SOURCE_DIR, names[k]);
        CHECK(exo_tokenizer_load(&work.tokenizer, path, NULL) == EXO_OK);
        CHECK(exo_tokenizer_encode(work.tokenizer, text, sizeof text - 1, true, &work.tokens,
                                   &work.count, NULL) == EXO_OK);
        CHECK(work.count > 0 && exo_tokenizer_decode(work.tokenizer, work.tokens, work.count, false,
                                                     &work.text, &work.size, NULL) == EXO_OK);
        CHECK(work.size > 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, run, &work) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        exo_tokenizer_drop(&work.tokenizer);
        exo_free(work.tokens);
        exo_free(work.text);
    }
    return 0;
}
