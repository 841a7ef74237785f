/* Decoding token by token. What is new is what a few tokens give more than without the last of them; they are decoded together with those
 * shown just before, because some decoders treat the first token otherwise (they take a space off it).
 *
 * A text that ends with U+FFFD may end within a character, whose other bytes come with the next tokens, so it waits. A character has four
 * bytes at most, so of what is still lost after three more tokens the first is shown as it is.
 */
#include <string.h>

#include <exogym/memory.h>

#include "tokenizer_impl.h"
#include "utf8.h"

enum {
    WAITING_MOST = 3, /* tokens that may be the beginning of a character */
    WINDOW_MOST = 16
};

struct exo_token_stream {
    exo_tokenizer *tokenizer;
    bool special;
    int32_t window[WINDOW_MOST];
    size_t count, shown; /* tokens; the first `shown` of them were shown */
    exo_text before, text;
};

exo_status
exo_token_stream_open(exo_token_stream **out, exo_tokenizer *tokenizer, bool special, exo_err *err)
{
    exo_token_stream *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a stream of tokens");
    s->tokenizer = exo_tokenizer_hold(tokenizer);
    s->special = special;
    *out = s;
    return EXO_OK;
}

void
exo_token_stream_close(exo_token_stream **stream)
{
    exo_token_stream *s = *stream;
    if (!s)
        return;
    exo_tokenizer_drop(&s->tokenizer);
    exo_free(s->before.data);
    exo_free(s->text.data);
    exo_free(s);
    *stream = NULL;
}

static exo_status
decode(exo_token_stream *s, size_t count, exo_text *out, exo_err *err)
{
    out->length = 0;
    return exo_tokenizer_decode_text(s->tokenizer, s->window, count, s->special, out, err);
}

static bool
ends_lost(const exo_text *text)
{
    size_t length = strlen(EXO_UTF8_LOST);
    return text->length >= length && memcmp(text->data + text->length - length, EXO_UTF8_LOST, length) == 0;
}

static bool
begins_with(const exo_text *text, const exo_text *beginning)
{
    return beginning->length <= text->length && memcmp(text->data, beginning->data, beginning->length) == 0;
}

/* What the first `upto` tokens give beyond those that were shown. These are forgotten, and the new ones are what was shown last. */
static exo_status
show(exo_token_stream *s, size_t upto, const char **text, exo_err *err)
{
    exo_status st = decode(s, s->shown, &s->before, err);
    if (st == EXO_OK)
        st = decode(s, upto, &s->text, err);
    if (st != EXO_OK)
        return st;
    size_t known = s->before.length, gone = s->shown;
    bool goes_on = begins_with(&s->text, &s->before);
    memmove(s->window, s->window + gone, (s->count - gone) * sizeof *s->window);
    s->count -= gone;
    s->shown = upto - gone;
    if (!goes_on) { /* bytes that are no text make none of those that were shown before them: the new ones are shown by themselves */
        known = 0;
        st = decode(s, s->shown, &s->text, err);
    }
    if (st == EXO_OK)
        *text = s->text.data + known;
    return st;
}

exo_status
exo_token_stream_put(exo_token_stream *s, int32_t token, const char **text, exo_err *err)
{
    const exo_spelling *spelling = exo_vocab_spelling(&s->tokenizer->bpe.vocab, token);
    *text = "";
    if (!spelling)
        return exo_fail(err, EXO_INVAL, "the number %d is no token of this tokenizer", token);
    if (!s->special && spelling->special)
        return EXO_OK;
    s->window[s->count++] = token;
    exo_status st = decode(s, s->count, &s->text, err);
    if (st != EXO_OK) {
        s->count--;
        return st;
    }
    if (!ends_lost(&s->text))
        return show(s, s->count, text, err);
    if (s->count - s->shown <= WAITING_MOST)
        return EXO_OK;
    size_t upto = s->count - WAITING_MOST; /* or more, if these end within a character */
    for (; upto < s->count && st == EXO_OK; upto++) {
        st = decode(s, upto, &s->before, err);
        if (st == EXO_OK && begins_with(&s->text, &s->before))
            break;
    }
    return st == EXO_OK ? show(s, upto, text, err) : st;
}

exo_status
exo_token_stream_end(exo_token_stream *s, const char **text, exo_err *err)
{
    *text = "";
    exo_status st = s->count > s->shown ? show(s, s->count, text, err) : EXO_OK;
    if (st == EXO_OK)
        s->count = s->shown = 0;
    return st;
}
