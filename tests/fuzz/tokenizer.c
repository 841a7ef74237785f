/* A tokenizer.json: it is read, or refused with a reason that names it. An accepted tokenizer
 * encodes, decodes and streams some texts, with values or errors, and keeps the file as it was
 * read. The texts are short, because a regular expression that is slow on purpose is no bug.
 *
 * One thread; each input makes and frees its tokenizer. Read next:
 * nn/text/tokenizer_impl.h. */
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/text/tokenizer_impl.h"

static const char *const texts[] = {
    "",
    " Hello, it's 1234 <s>words</s> here\n\n  \xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80 \xff\xfe\t[x] "
    "ab",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "ab",
};

static void
expect(int right)
{
    if (!right)
        abort();
}

static void
decode(exo_tokenizer *t, const int32_t *tokens, size_t count, bool special)
{
    exo_err err = {0};
    char *text = NULL;
    const char *part;
    size_t size = 0;
    exo_token_stream *s = NULL;
    exo_status st = exo_tokenizer_decode(t, tokens, count, special, &text, &size, &err);
    expect(st == err.code && (st != EXO_OK || text[size] == '\0'));
    exo_free(text);
    expect(exo_token_stream_open(&s, t, special, NULL) == EXO_OK);
    for (size_t i = 0; i < count && st == EXO_OK; i++)
        st = exo_token_stream_put(s, tokens[i], &part, &err);
    expect(st == EXO_OK || err.text[0]);
    exo_token_stream_end(s, &part, NULL);
    exo_token_stream_close(&s);
}

static void
encode(exo_tokenizer *t, const char *text)
{
    for (int special = 0; special < 2; special++) {
        exo_err err = {0};
        int32_t *tokens = NULL;
        size_t count = 0;
        exo_status st = exo_tokenizer_encode(t, text, strlen(text), special, &tokens, &count, &err);
        expect(st == err.code);
        for (size_t i = 0; i < count; i++)
            expect(tokens[i] >= 0 && (size_t)tokens[i] < exo_tokenizer_vocabulary(t));
        if (st == EXO_OK)
            decode(t, tokens, count, special);
        exo_free(tokens);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    char *file = exo_calloc(1, size + 1);
    if (!file)
        return 0;
    memcpy(file, data, size);
    exo_status st = exo_tokenizer_parse(&t, "fuzz.json", file, size, &err);
    expect((st == EXO_OK) == (t != NULL));
    expect(st == EXO_OK || (st == err.code && strncmp(err.text, "fuzz.json", 9) == 0));
    if (t) {
        expect(t->file_size == size && memcmp(t->file, data, size) == 0);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            encode(t, texts[i]);
        int32_t all[64];
        size_t count = exo_tokenizer_vocabulary(t) < 64 ? exo_tokenizer_vocabulary(t) : 64;
        for (size_t i = 0; i < count; i++)
            all[i] = (int32_t)i;
        decode(t, all, count, true);
    }
    exo_tokenizer_drop(&t);
    return 0;
}
