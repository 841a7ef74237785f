/* `exogym data tokenize`: see data_tokenize.h. */
#include "programs/data_tokenize.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/clock.h>
#include <exogym/data.h>
#include <exogym/tokenizer.h>

#include "nn/corpus/tokenize.h"
#include "programs/stopping.h"
#include "programs/text.h"

#define MAX_SHARD UINT64_C(1000000000000)

const char *
exo_tokenize_option(const struct exo_tokenize_args *args)
{
    return args->tokenizer    ? "--tokenizer"
           : args->output     ? "--output"
           : args->shard_size ? "--shard-size"
           : args->documents  ? "--documents"
                              : NULL;
}

/* Reads "100M", "64k", "1G" or "5000"; 0 if the option was not given. */
static exo_status
read_shard_size(const char *text, uint64_t *out, exo_err *err)
{
    static const char letters[] = "kMG";
    char *end = NULL;
    uint64_t unit = 1;
    *out = 0;
    if (!text)
        return EXO_OK;
    errno = 0;
    uint64_t value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    const char *letter = end && *end ? strchr(letters, *end) : NULL;
    for (const char *at = letters; letter && at <= letter; at++)
        unit *= 1000;
    bool whole = end && (letter ? end[1] == '\0' : *end == '\0');
    if (!whole || errno != 0 || value < 1 || value > MAX_SHARD / unit)
        return exo_fail(
            err, EXO_INVAL,
            "--shard-size: expected a number of tokens such as 100M, 1 to 1000G, got '%.60s'",
            text);
    *out = value * unit;
    return EXO_OK;
}

exo_status
exo_tokenize_check(const struct exo_tokenize_args *args, const exo_words *inputs, exo_err *err)
{
    uint64_t size = 0;
    if (inputs->length == 0)
        return exo_fail(err, EXO_INVAL, "tokenize what? FILE is missing");
    if (!args->tokenizer)
        return exo_fail(err, EXO_INVAL,
                        "--tokenizer is missing: characters, bytes, or a tokenizer.json");
    if (!args->output)
        return exo_fail(err, EXO_INVAL, "--output is missing: the new folder for the shards");
    return read_shard_size(args->shard_size, &size, err);
}

struct meter {
    bool terminal, shown;
    exo_time last;
    uint64_t bytes; /* as last shown */
};

static void
show_progress(void *context, uint64_t bytes, uint64_t total)
{
    struct meter *m = context;
    char done[EXO_FIGURE], all[EXO_FIGURE];
    exo_time now = exo_now(exo_clock_real());
    bool ends = m->shown && bytes >= total && m->bytes < total;
    if (!ends && now - m->last < (m->terminal ? EXO_SECOND / 10 : 2 * EXO_SECOND))
        return;
    m->last = now;
    m->shown = true;
    m->bytes = bytes;
    fprintf(stderr, "%stokenized %s of %s%s", m->terminal ? "\r" : "",
            exo_text_bytes((double)bytes, done), exo_text_bytes((double)total, all),
            m->terminal ? "\x1b[K" : "\n");
    fflush(stderr);
}

static exo_status
open_tokenizer(const char *word, exo_tokenizer **out, exo_err *err)
{
    *out = NULL;
    if (strcmp(word, "characters") == 0)
        return EXO_OK;
    return strcmp(word, "bytes") == 0 ? exo_tokenizer_bytes(out, err)
                                      : exo_tokenizer_load(out, word, err);
}

exo_status
exo_tokenize(const struct exo_tokenize_args *args, const exo_words *inputs, exo_err *err)
{
    struct meter meter = {.terminal = exo_text_can_redraw(stderr),
                          .last = exo_now(exo_clock_real())};
    exo_tokenize_opts opts = {.progress = show_progress, .context = &meter};
    exo_tokenize_result made;
    if (args->documents)
        opts.documents =
            strcmp(args->documents, "end") == 0 ? EXO_DOCUMENTS_END : EXO_DOCUMENTS_IGNORE;
    exo_stop_on_signals("\nexogym: removing the unfinished shards; again ends at once\n");
    exo_status st = read_shard_size(args->shard_size, &opts.shard_tokens, err);
    if (st == EXO_OK)
        st = open_tokenizer(args->tokenizer, &opts.tokenizer, err);
    if (st == EXO_OK)
        st = exo_tokenize_until(inputs->items, inputs->length, args->output, &opts,
                                &exo_stop_reason, &made, err);
    if (meter.terminal && meter.shown)
        fputc('\n', stderr);
    exo_tokenizer_drop(&opts.tokenizer);
    if (st != EXO_OK)
        return st;
    char tokens[EXO_FIGURE], documents[EXO_FIGURE], bytes[EXO_FIGURE];
    printf("%s tokens of %s document%s, %s, vocabulary %zu, in %zu shard%s: ",
           exo_text_count(made.tokens, tokens), exo_text_count(made.documents, documents),
           made.documents == 1 ? "" : "s", exo_text_bytes((double)made.bytes, bytes),
           made.vocabulary, made.shards, made.shards == 1 ? "" : "s");
    exo_print_path(stdout, "", args->output, "\n");
    return EXO_OK;
}
