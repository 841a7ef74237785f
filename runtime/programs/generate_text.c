/* Texts of samples: see generate_text.h. No state of its own. */
#include "programs/generate_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "programs/program.h"
#include "programs/show.h"

exo_status
exo_sample_text_open(exo_sample_text *sample, exo_tokenizer *tokenizer, const int32_t *prompt,
                     size_t count, exo_err *err)
{
    *sample = (exo_sample_text){0};
    exo_status st = exo_token_stream_open(&sample->stream, tokenizer, false, err);
    return st == EXO_OK ? exo_token_stream_follow(sample->stream, prompt, count, err) : st;
}

void
exo_sample_text_release(exo_sample_text *sample)
{
    exo_token_stream_close(&sample->stream);
    exo_free(sample->text.data);
    exo_free(sample->tokens);
    exo_free(sample->log_probs);
    exo_free(sample->plain_log_probs);
    *sample = (exo_sample_text){0};
}

/* Cuts the text at the first stop text that ends after `from`. */
static void
look_for_stop(exo_sample_text *s, const exo_words *stops, size_t from)
{
    size_t cut = SIZE_MAX;
    for (size_t i = 0; s->text.data && i < stops->length; i++) {
        size_t length = strlen(stops->items[i]), first = from >= length ? from - length + 1 : 0;
        const char *found = strstr(s->text.data + first, stops->items[i]);
        if (found && (size_t)(found - s->text.data) < cut)
            cut = (size_t)(found - s->text.data);
    }
    if (cut == SIZE_MAX)
        return;
    s->stopped = true;
    s->text.length = cut;
    s->text.data[cut] = '\0';
}

static exo_status
add(exo_sample_text *s, const char *text, const exo_words *stops, exo_err *err)
{
    size_t before = s->text.length;
    exo_text_add(&s->text, "%s", text);
    if (s->text.failed)
        return exo_fail(err, EXO_NOMEM, "no memory for a text of %zu bytes", before);
    look_for_stop(s, stops, before);
    return EXO_OK;
}

static exo_status
keep(exo_sample_text *s, const exo_generated *sequence, exo_err *err)
{
    s->done = true;
    s->finish = sequence->finish;
    s->count = s->read;
    s->tokens = exo_calloc(s->count, sizeof *s->tokens);
    s->log_probs = exo_calloc(s->count, sizeof *s->log_probs);
    s->plain_log_probs = exo_calloc(s->count, sizeof *s->plain_log_probs);
    if (!s->tokens || !s->log_probs || !s->plain_log_probs)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu tokens", s->count);
    memcpy(s->tokens, sequence->tokens + sequence->prompt, s->count * sizeof *s->tokens);
    memcpy(s->log_probs, sequence->log_probs, s->count * sizeof *s->log_probs);
    memcpy(s->plain_log_probs, sequence->plain_log_probs, s->count * sizeof *s->plain_log_probs);
    return EXO_OK;
}

exo_status
exo_sample_text_read(exo_sample_text *s, const exo_generated *sequence, const exo_words *stops,
                     bool last, exo_err *err)
{
    const char *text = "";
    exo_status st = EXO_OK;
    while (st == EXO_OK && !s->stopped && s->read < sequence->length - sequence->prompt) {
        st = exo_token_stream_put(s->stream, sequence->tokens[sequence->prompt + s->read++], &text,
                                  err);
        if (st == EXO_OK)
            st = add(s, text, stops, err);
    }
    if (st == EXO_OK && last && !s->stopped) {
        st = exo_token_stream_end(s->stream, &text, err);
        if (st == EXO_OK)
            st = add(s, text, stops, err);
    }
    if (st == EXO_OK && (last || s->stopped) && !s->done)
        st = keep(s, sequence, err);
    return st;
}

/* The number of bytes at the text's end that may begin a stop text. */
static size_t
held_back(const exo_sample_text *s, const exo_words *stops)
{
    size_t most = 0;
    for (size_t i = 0; !s->done && i < stops->length; i++) {
        size_t length = strlen(stops->items[i]),
               end = s->text.length < length ? s->text.length : length - 1;
        for (; end > most; end--)
            if (memcmp(s->text.data + s->text.length - end, stops->items[i], end) == 0)
                most = end;
    }
    return most;
}

void
exo_sample_show(const char *text, size_t size)
{
    if (isatty(STDOUT_FILENO))
        exo_show(stdout, text, size, EXO_SHOWN_TEXT);
    else
        fwrite(text, 1, size, stdout);
    exo_flush_output();
}

void
exo_sample_text_print(exo_sample_text *s, const exo_words *stops)
{
    size_t upto = s->text.length - held_back(s, stops);
    if (upto <= s->shown)
        return;
    exo_sample_show(s->text.data + s->shown, upto - s->shown);
    s->shown = upto;
}
