/* Decoding token by token.
 *
 * The stream keeps a window of the last tokens, and decodes the window with and without the new
 * tokens. The difference is the new text. Decoding the new tokens alone would not do: some
 * decoders treat the first token in another way, and remove its space.
 *
 * Tokens whose bytes end within a character wait until the next ones complete the character, or
 * show that it is invalid.
 *
 * Owner: one thread at a time; a stream holds its tokenizer. Read next: decode.c. */
#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"
#include "nn/text/tokenizer_impl.h"

/* SHOWN_MOST: shown tokens in the window, as many as a character has bytes. WINDOW_MOST: all
 * tokens in the window. More than 3 tokens wait only if each one ends within a character that the
 * next one completes. */
enum {
    SHOWN_MOST = 4,
    WINDOW_MOST = 16
};

struct exo_token_stream {
    exo_tokenizer *tokenizer;
    bool special;
    int32_t window[WINDOW_MOST];
    size_t count, shown;   /* tokens in the window; the first `shown` of them were shown */
    exo_text before, text; /* texts of the window without and with the new tokens; work memory */
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

/* *upto: the number of tokens of the window, from its beginning, that need not wait. The last of
 * them ends with a complete character or an invalid one. NOMEM. */
static exo_status
settled(exo_token_stream *s, size_t *upto, exo_err *err)
{
    const exo_vocab *vocab = &s->tokenizer->bpe.vocab;
    size_t ends[WINDOW_MOST];
    s->text.length = 0;
    exo_text_add_bytes(&s->text, "", 0);
    for (size_t i = s->shown; i < s->count; i++) {
        const exo_spelling *spelling = &vocab->spellings[s->window[i]];
        exo_steps_token_bytes(&s->tokenizer->decoder, vocab->bytes.data + spelling->begin,
                              spelling->length, &s->text);
        ends[i] = s->text.length;
    }
    if (s->text.failed)
        return exo_fail(err, EXO_NOMEM, "no memory to decode a token");
    size_t whole = s->text.length - exo_utf8_unfinished(s->text.data, s->text.length), at = 0,
           i = s->shown;
    *upto = s->shown;
    while (i < s->count) {
        uint32_t code;
        for (; i < s->count && ends[i] <= at; i++)
            if (ends[i] == at)
                *upto = i + 1;
        if (at >= whole)
            break;
        at += exo_utf8_next(s->text.data + at, s->text.length - at, &code);
    }
    if (s->count == WINDOW_MOST && *upto <= SHOWN_MOST) /* the window is full: nothing can wait */
        *upto = s->count;
    return EXO_OK;
}

static bool
begins_with(const exo_text *text, const exo_text *beginning)
{
    return beginning->length <= text->length &&
           memcmp(text->data, beginning->data, beginning->length) == 0;
}

/* Removes zeros, because a 0 would end the text for the caller. */
static void
leave_out_zeros(char *text, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; i < size; i++)
        if (text[i])
            text[length++] = text[i];
    text[length] = '\0';
}

/* *text: the text of the first `upto` tokens without that of the shown ones. The window then
 * forgets the tokens shown before; the new ones become the shown ones. */
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
    /* Invalid bytes can turn the shown text before them into U+FFFD, too. Then the new tokens are
     * decoded by themselves. */
    if (!goes_on) {
        known = 0;
        st = decode(s, s->shown, &s->text, err);
    }
    if (st == EXO_OK) {
        leave_out_zeros(s->text.data + known, s->text.length - known);
        *text = s->text.data + known;
    }
    if (s->shown > SHOWN_MOST) {
        size_t old = s->shown - SHOWN_MOST;
        memmove(s->window, s->window + old, (s->count - old) * sizeof *s->window);
        s->count -= old;
        s->shown = SHOWN_MOST;
    }
    return st;
}

/* The last tokens become the window's shown ones. */
exo_status
exo_token_stream_follow(exo_token_stream *s, const int32_t *tokens, size_t count, exo_err *err)
{
    size_t first = SHOWN_MOST;
    int32_t last[SHOWN_MOST];
    for (size_t i = count; i > 0 && first > 0; i--) {
        const exo_spelling *spelling = exo_vocab_spelling(&s->tokenizer->bpe.vocab, tokens[i - 1]);
        if (!spelling)
            return exo_fail(err, EXO_INVAL, "the number %d is not a token of this tokenizer",
                            tokens[i - 1]);
        if (s->special || !spelling->special)
            last[--first] = tokens[i - 1];
    }
    s->count = s->shown = SHOWN_MOST - first;
    memcpy(s->window, last + first, s->count * sizeof *last);
    return EXO_OK;
}

exo_status
exo_token_stream_put(exo_token_stream *s, int32_t token, const char **text, exo_err *err)
{
    const exo_spelling *spelling = exo_vocab_spelling(&s->tokenizer->bpe.vocab, token);
    *text = "";
    if (!spelling)
        return exo_fail(err, EXO_INVAL, "the number %d is not a token of this tokenizer", token);
    if (!s->special && spelling->special)
        return EXO_OK;
    s->window[s->count++] = token;
    size_t upto = 0;
    exo_status st = settled(s, &upto, err);
    if (st != EXO_OK)
        s->count--;
    else if (upto > s->shown)
        st = show(s, upto, text, err);
    return st;
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
