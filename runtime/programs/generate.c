/* `exogym generate`: continues a prompt with a decoder and prints the text token by token. One
 * thread. Read next: exogym/generate.h, generate_text.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/clock.h>
#include <exogym/memory.h>

#include "base/input.h"
#include "base/utf8.h"
#include "programs/commands.h"
#include "programs/decoder_source.h"
#include "programs/decoder_tokenizer.h"
#include "programs/generate_text.h"
#include "programs/generation_config.h"
#include "programs/program.h"
#include "programs/show.h"
#include "programs/text.h"
#include "programs/where.h"

enum {
    MAX_SAMPLES = 4096,
    AT_ONCE = 16, /* samples that are generated in one batch */
    MAX_PROMPT = 1 << 24
};

struct generate_args {
    const char *model, *tokenizer, *prompt, *prompt_file, *max_new_tokens, *temperature, *top_k,
        *top_p, *penalty, *seed, *weights, *device, *samples;
    exo_words stops;
    bool json;
};

/* The state of the command. */
struct generation {
    const struct generate_args *args;
    exo_decoder_source source;
    exo_tokenizer *tokenizer;
    const char *folder; /* the folder with the generation_config.json that applies; NULL: none */
    bool numbers;       /* its token numbers apply, too */
    exo_device *device;
    exo_generator *generator; /* on the device */
    exo_weight_format weights;
    exo_sampling sampling;
    int32_t begin; /* first token of a text without a prompt, or -1 */
    int32_t ends[EXO_MAX_STOP_TOKENS];
    size_t num_ends;
    char *prompt; /* the prompt's text */
    size_t prompt_size;
    int32_t *tokens; /* (num_tokens) of the prompt */
    size_t num_tokens;
    exo_sample_text *texts; /* (samples) */
    size_t samples;
    uint64_t new_tokens;
    exo_time started;
};

/* --- Arguments -------------------------------------------------------------------------------- */

static exo_status
read_number(const char *text, const char *name, double min, double max, double otherwise,
            double *out, exo_err *err)
{
    char *end = NULL;
    *out = otherwise;
    if (!text)
        return EXO_OK;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= min && value <= max))
        return exo_fail(err, EXO_INVAL, "%s '%.60s': expected a number from %g to %g", name, text,
                        min, max);
    *out = value;
    return EXO_OK;
}

static exo_status
read_count(const char *text, const char *name, uint64_t min, uint64_t max, uint64_t otherwise,
           uint64_t *out, exo_err *err)
{
    char *end = NULL;
    *out = otherwise;
    if (!text)
        return EXO_OK;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < min || value > max)
        return exo_fail(err, EXO_INVAL,
                        "%s '%.60s': expected a whole number from %" PRIu64 " to %" PRIu64, name,
                        text, min, max);
    *out = value;
    return EXO_OK;
}

/* An unknown name is a mistake on the command line. */
static exo_status
check_device(const char *name, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_device_check(name, &reason);
    return st == EXO_OK ? st : exo_fail(err, EXO_INVAL, "--device: %s", reason.text);
}

static exo_status
read_args(struct generation *g, const struct generate_args *a, exo_err *err)
{
    double temperature = 0, top_p = 0, penalty = 0;
    uint64_t top_k = 0, most = 0, samples = 0;
    g->args = a;
    if (a->prompt && a->prompt_file)
        return exo_fail(err, EXO_INVAL, "--prompt and --prompt-file say the same thing twice");
    exo_status st = read_number(a->temperature, "--temperature", 0, 1000, 0.8, &temperature, err);
    if (st == EXO_OK)
        st = read_number(a->top_p, "--top-p", 1e-6, 1, 1, &top_p, err);
    if (st == EXO_OK)
        st = read_number(a->penalty, "--repetition-penalty", 0.01, 100, 1, &penalty, err);
    if (st == EXO_OK)
        st = read_count(a->top_k, "--top-k", 0, INT32_MAX, 40, &top_k, err);
    if (st == EXO_OK)
        st = read_count(a->max_new_tokens, "--max-new-tokens", 1, INT32_MAX, 100, &most, err);
    if (st == EXO_OK)
        st = read_count(a->samples, "--samples", 1, MAX_SAMPLES, 1, &samples, err);
    if (st == EXO_OK)
        st = read_count(a->seed, "--seed", 0, UINT64_MAX, 1337, &g->sampling.seed, err);
    if (st == EXO_OK && a->weights)
        st = exo_weight_format_named(a->weights, &g->weights, err);
    if (st == EXO_OK && a->device)
        st = check_device(a->device, err);
    g->sampling.temperature = (float)temperature;
    g->sampling.top_p = (float)top_p;
    g->sampling.repetition_penalty = (float)penalty;
    g->sampling.top_k = (size_t)top_k;
    g->sampling.max_new_tokens = (size_t)most;
    g->samples = (size_t)samples;
    return st;
}

/* --- Model, tokenizer, prompt ----------------------------------------------------------------- */

static void
add_end(struct generation *g, int32_t token, const exo_decoder_spec *spec)
{
    for (size_t i = 0; i < g->num_ends; i++)
        if (g->ends[i] == token)
            return;
    if (token >= 0 && (size_t)token < spec->vocabulary && g->num_ends < EXO_MAX_STOP_TOKENS)
        g->ends[g->num_ends++] = token;
}

/* Takes the token numbers that the directory names, if they are numbers of this tokenizer: in
 * another tokenizer they would stand for arbitrary tokens. */
static void
take_numbers(struct generation *g, const exo_generation_defaults *d, const exo_decoder_spec *spec)
{
    if (g->numbers) {
        for (size_t i = 0; i < d->num_ends; i++)
            add_end(g, d->ends[i], spec);
        g->begin = d->begin >= 0 && (size_t)d->begin < spec->vocabulary ? d->begin : -1;
    } else if (d->num_ends > 0 || d->begin >= 0) {
        exo_text line = {0};
        exo_text_add(&line,
                     "exogym: %s/%s: bos_token_id and eos_token_id do not count: they are another "
                     "tokenizer's",
                     g->folder, d->file);
        exo_show(stderr, line.data ? line.data : "", line.length, EXO_SHOWN_LINE);
        fputc('\n', stderr);
        exo_free(line.data);
    }
    add_end(g, exo_tokenizer_end(g->tokenizer), spec);
    if (g->begin < 0)
        g->begin = exo_tokenizer_begin(g->tokenizer);
}

/* Options that are not given come from the model's directory, else they keep the defaults that the
 * help names. Texts end at the directory's end tokens, and at the tokenizer's. */
static exo_status
take_defaults(struct generation *g, exo_err *err)
{
    const struct generate_args *a = g->args;
    const exo_decoder_spec *spec = exo_decoder_spec_of(g->source.model);
    exo_generation_defaults d = {.begin = -1};
    exo_status st = g->folder ? exo_generation_defaults_read(&d, g->folder, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (!a->temperature && d.has_temperature)
        g->sampling.temperature = (float)d.temperature;
    if (!a->temperature && !a->top_k && !a->top_p && d.greedy)
        g->sampling.temperature = 0;
    if (!a->top_k && d.has_top_k)
        g->sampling.top_k = (size_t)d.top_k;
    if (!a->top_p && d.has_top_p)
        g->sampling.top_p = (float)d.top_p;
    if (!a->penalty && d.has_penalty)
        g->sampling.repetition_penalty = (float)d.repetition_penalty;
    if (!a->max_new_tokens && d.has_most)
        g->sampling.max_new_tokens = (size_t)d.max_new_tokens;
    take_numbers(g, &d, spec);
    g->sampling.stop_tokens = g->ends;
    g->sampling.num_stop_tokens = g->num_ends;
    return EXO_OK;
}

static exo_status
find_tokenizer(struct generation *g, exo_err *err)
{
    exo_decoder_tokenizer found;
    exo_status st = exo_decoder_tokenizer_find(&found, &g->source, g->args->tokenizer, err);
    if (st != EXO_OK && !g->args->tokenizer && !g->source.pretrained)
        exo_fail_in(err, st,
                    "the tokenizer comes from the run's data (or name one with --tokenizer)");
    if (st != EXO_OK)
        return st;
    g->tokenizer = found.own;
    g->folder = found.folder;
    g->numbers = found.numbers;
    if (!g->tokenizer && g->folder)
        return exo_tokenizer_load(&g->tokenizer, g->folder, err);
    return g->tokenizer
               ? EXO_OK
               : exo_fail(err, EXO_NOT_FOUND,
                          "%s: the run's data have no tokenizer; name one with --tokenizer",
                          g->source.config);
}

static exo_status
read_prompt(struct generation *g, exo_err *err)
{
    const struct generate_args *a = g->args;
    exo_status st = EXO_OK;
    if (a->prompt_file) {
        st = exo_input_read(a->prompt_file, MAX_PROMPT, EXO_INPUT_PATIENCE, &g->prompt,
                            &g->prompt_size, err);
        if (st == EXO_OK && g->prompt_size == 0)
            st = exo_fail(err, EXO_INVAL, "%s: the file is empty", exo_input_name(a->prompt_file));
    } else {
        g->prompt = exo_strdup(a->prompt ? a->prompt : "");
        g->prompt_size = g->prompt ? strlen(g->prompt) : 0;
        st = g->prompt ? EXO_OK : exo_fail(err, EXO_NOMEM, "out of memory");
    }
    size_t valid = st == EXO_OK ? exo_utf8_valid(g->prompt, g->prompt_size) : 0;
    if (st == EXO_OK && a->json && valid < g->prompt_size)
        st = exo_fail(err, EXO_INVAL,
                      "%s: is not UTF-8 at byte %zu, and JSON holds nothing else: convert it "
                      "(iconv -t utf-8), or leave out --json",
                      a->prompt_file ? exo_input_name(a->prompt_file) : "--prompt", valid);
    return st;
}

/* Encodes the prompt. Without a prompt, the text begins with the tokenizer's first token or, if it
 * has none, its end token. */
static exo_status
encode_prompt(struct generation *g, exo_err *err)
{
    int32_t begin = g->begin >= 0 ? g->begin : exo_tokenizer_end(g->tokenizer);
    if (g->prompt_size > 0) {
        exo_status st = exo_tokenizer_encode(g->tokenizer, g->prompt, g->prompt_size, true,
                                             &g->tokens, &g->num_tokens, err);
        return st == EXO_OK ? st : exo_fail_in(err, st, "the prompt");
    }
    if (begin < 0)
        return exo_fail(err, EXO_INVAL,
                        "--prompt TEXT is missing: this tokenizer has no token that begins a text");
    g->tokens = exo_calloc(1, sizeof *g->tokens);
    if (!g->tokens)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    g->tokens[0] = begin;
    g->num_tokens = 1;
    return EXO_OK;
}

/* The shortest context that suffices, because the caches' memory grows with it. */
static size_t
context_of(const struct generation *g, const exo_decoder_spec *spec)
{
    size_t left = spec->context > g->num_tokens ? spec->context - g->num_tokens : 0;
    return left > g->sampling.max_new_tokens ? g->num_tokens + g->sampling.max_new_tokens
                                             : spec->context;
}

static exo_status
check_fit(const struct generation *g, const exo_decoder_spec *spec, exo_err *err)
{
    if (g->num_tokens >= spec->context)
        return exo_fail(err, EXO_INVAL,
                        "the prompt has %zu tokens and the model's context %zu, which leaves no "
                        "room for a new one; shorten the prompt",
                        g->num_tokens, spec->context);
    for (size_t i = 0; i < g->num_tokens; i++)
        if (g->tokens[i] < 0 || (size_t)g->tokens[i] >= spec->vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "the prompt's token %d is not in the model's vocabulary of %zu: the "
                            "tokenizer, of %zu, is another model's",
                            g->tokens[i], spec->vocabulary, exo_tokenizer_vocabulary(g->tokenizer));
    return EXO_OK;
}

/* Makes the generator on the device, with a copy of the parameters there, and frees them. */
static exo_status
make_generator(struct generation *g, const exo_decoder_spec *spec, exo_err *err)
{
    const char *name = g->args->device ? g->args->device : "cpu";
    const exo_generator_opts opts = {.weights = g->weights,
                                     .sequences = g->samples < AT_ONCE ? g->samples : AT_ONCE,
                                     .context = context_of(g, spec)};
    exo_status st = exo_device_open(&g->device, name, err);
    if (st == EXO_OK)
        st = exo_params_move(&g->source.params, g->device, err);
    if (st == EXO_OK)
        st = exo_generator_new(&g->generator, spec, g->source.params, &opts, err);
    exo_params_free(&g->source.params); /* the generator has its own copy */
    return st;
}

static exo_status
prepare(struct generation *g, exo_err *err)
{
    exo_status st = read_prompt(g, err);
    if (st == EXO_OK)
        st = exo_decoder_source_open(&g->source, g->args->model, err);
    if (st == EXO_OK)
        st = find_tokenizer(g, err);
    if (st != EXO_OK)
        return st;
    const exo_decoder_spec *spec = exo_decoder_spec_of(g->source.model);
    g->sampling.vocabulary = exo_tokenizer_vocabulary(g->tokenizer);
    st = take_defaults(g, err);
    if (st == EXO_OK)
        st = encode_prompt(g, err);
    if (st == EXO_OK)
        st = check_fit(g, spec, err);
    if (st == EXO_OK)
        st = make_generator(g, spec, err);
    g->texts = exo_calloc(g->samples, sizeof *g->texts);
    if (st == EXO_OK && !g->texts)
        st = exo_fail(err, EXO_NOMEM, "no memory for %zu samples", g->samples);
    for (size_t i = 0; st == EXO_OK && i < g->samples; i++)
        st = exo_sample_text_open(&g->texts[i], g->tokenizer, g->tokens, g->num_tokens, err);
    return st;
}

/* --- Generating ------------------------------------------------------------------------------- */

/* Reads the new tokens of each sample, and removes finished samples from the batch. */
static exo_status
read_step(struct generation *g, exo_err *err)
{
    exo_generated s;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && exo_generator_at(g->generator, i, &s);) {
        exo_sample_text *text = &g->texts[s.id];
        if (s.finish == EXO_FINISH_NOT_FINITE)
            return exo_fail(
                err, EXO_FAILED,
                "sample %" PRIu64
                ": a logit is infinite or no number after %zu tokens: the model's weights "
                "are broken",
                s.id, s.length);
        st = exo_sample_text_read(text, &s, &g->args->stops, s.finish != EXO_FINISH_NONE, err);
        if (st == EXO_OK && text->done) {
            text->finish = text->stopped ? EXO_FINISH_STOP : s.finish;
            g->new_tokens += text->count;
            st = exo_generator_cancel(g->generator, s.id, err);
        } else {
            i++;
        }
    }
    return st;
}

/* Prints the samples in order. The first unfinished one is printed as far as it is there. */
static void
show(struct generation *g, size_t *showing)
{
    for (; *showing < g->samples; ++*showing) {
        exo_sample_text *text = &g->texts[*showing];
        if (!text->begun && text->read > 0) {
            text->begun = true;
            if (g->samples > 1)
                printf("--- %zu\n", *showing + 1);
            exo_sample_show(g->prompt, g->prompt_size);
        }
        exo_sample_text_print(text, &g->args->stops);
        if (!text->done)
            return;
        putchar('\n');
        if (text->finish == EXO_FINISH_CONTEXT) {
            exo_flush_output();
            fprintf(stderr, "exogym: the context of %zu tokens is full\n",
                    exo_generator_options(g->generator)->context);
        }
    }
}

static exo_status
generate(struct generation *g, exo_err *err)
{
    uint64_t next = 0;
    size_t showing = 0;
    exo_status st = EXO_OK;
    g->started = exo_now(exo_clock_real());
    while (st == EXO_OK && (next < g->samples || exo_generator_active(g->generator) > 0)) {
        for (; st == EXO_OK && next < g->samples && exo_generator_room(g->generator) > 0; next++)
            st = exo_generator_submit(g->generator, next, g->tokens, g->num_tokens, &g->sampling,
                                      err);
        if (st == EXO_OK)
            st = exo_generator_step(g->generator, err);
        if (st == EXO_OK)
            st = read_step(g, err);
        if (!g->args->json)
            show(g, &showing);
    }
    return st;
}

/* A real with the shortest text that gives the float: 0.8, not 0.800000011920929. */
static json_t *
short_real(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

static json_t *
sample_json(const exo_sample_text *text)
{
    json_t *tokens = json_array(), *drawn = json_array(), *plain = json_array();
    double log_prob = 0, plain_log_prob = 0;
    for (size_t i = 0; i < text->count; i++) {
        json_array_append_new(tokens, json_integer(text->tokens[i]));
        json_array_append_new(drawn, json_real((double)text->log_probs[i]));
        json_array_append_new(plain, json_real((double)text->plain_log_probs[i]));
        log_prob += (double)text->log_probs[i];
        plain_log_prob += (double)text->plain_log_probs[i];
    }
    return json_pack(
        "{s:o, s:o, s:s, s:f, s:f, s:o, s:o}", "text",
        exo_lossy_json_bytes(text->text.data ? text->text.data : "", text->text.length), "tokens",
        tokens, "finish", exo_finish_text(text->finish), "log_prob", log_prob, "plain_log_prob",
        plain_log_prob, "log_probs", drawn, "plain_log_probs", plain);
}

/* The sampling options in effect, from any source. */
static json_t *
sampling_json(const exo_sampling *s)
{
    json_t *ends = json_array();
    for (size_t i = 0; i < s->num_stop_tokens; i++)
        json_array_append_new(ends, json_integer(s->stop_tokens[i]));
    return json_pack("{s:o, s:I, s:o, s:o, s:I, s:I, s:o}", "temperature",
                     short_real(s->temperature), "top_k", (json_int_t)s->top_k, "top_p",
                     short_real(s->top_p), "repetition_penalty", short_real(s->repetition_penalty),
                     "max_new_tokens", (json_int_t)s->max_new_tokens, "seed", (json_int_t)s->seed,
                     "end_tokens", ends);
}

static exo_status
report(const struct generation *g, exo_err *err)
{
    double seconds = (double)(exo_now(exo_clock_real()) - g->started) * 1e-9;
    char count[EXO_FIGURE], rate[EXO_FIGURE];
    if (!g->args->json) {
        fprintf(stderr, "exogym: %s tokens, %s a second\n", exo_text_count(g->new_tokens, count),
                exo_text_number((double)g->new_tokens / seconds, 3, rate));
        return EXO_OK;
    }
    json_t *samples = json_array();
    for (size_t i = 0; i < g->samples; i++)
        json_array_append_new(samples, sample_json(&g->texts[i]));
    return exo_print_json(
        json_pack("{s:o, s:o, s:I, s:I, s:f, s:o, s:o}", "model", exo_lossy_json(g->args->model),
                  "prompt", exo_lossy_json_bytes(g->prompt, g->prompt_size), "prompt_tokens",
                  (json_int_t)g->num_tokens, "new_tokens", (json_int_t)g->new_tokens, "seconds",
                  seconds, "sampling", sampling_json(&g->sampling), "samples", samples),
        err);
}

static int
generate_command(const exo_command_line *line)
{
    exo_err err = {0};
    struct generation g = {.begin = -1};
    if (read_args(&g, line->args, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = prepare(&g, &err);
    if (st == EXO_OK)
        st = generate(&g, &err);
    if (st == EXO_OK)
        st = report(&g, &err);
    for (size_t i = 0; g.texts && i < g.samples; i++)
        exo_sample_text_release(&g.texts[i]);
    exo_free(g.texts);
    exo_generator_free(&g.generator);
    exo_device_close(&g.device);
    exo_free(g.tokens);
    exo_free(g.prompt);
    exo_tokenizer_drop(&g.tokenizer);
    exo_decoder_source_release(&g.source);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {"--model", "DIR",
     "A run's folder (runs/texts/ddp), a checkpoint in it (.../checkpoints/step_00000100), or a "
     "Hugging Face directory.",
     EXO_INTO(struct generate_args, model), .word = EXO_WORD_FOLDER, .required = true},
    {"--prompt", "TEXT",
     "What the text begins with; without it, as the tokenizer begins one, if it has a token for "
     "that.",
     EXO_INTO(struct generate_args, prompt)},
    {"--prompt-file", "FILE", "The prompt from a file, all of it.",
     EXO_INTO(struct generate_args, prompt_file), .word = EXO_WORD_FILE},
    {"--max-new-tokens", "N",
     "Stops after N tokens; else as the model says (max_new_tokens), or 100.",
     EXO_INTO(struct generate_args, max_new_tokens)},
    {"--temperature", "T",
     "Divides the logits: 0 takes the most probable token each time; else as the model says, or "
     "0.8.",
     EXO_INTO(struct generate_args, temperature)},
    {"--top-k", "K",
     "Draws from the K most probable tokens; 0: from all; else as the model says, or 40.",
     EXO_INTO(struct generate_args, top_k)},
    {"--top-p", "P",
     "Draws from the fewest tokens that hold P of the probability; else as the model says, or 1: "
     "all.",
     EXO_INTO(struct generate_args, top_p)},
    {"--repetition-penalty", "R",
     "Makes tokens that are there already less probable; else as the model says, or 1: not.",
     EXO_INTO(struct generate_args, penalty)},
    {"--seed", "N", "The same seed gives the same text; 1337 unless it is given.",
     EXO_INTO(struct generate_args, seed)},
    {"--stop", "TEXT", "Ends the text before TEXT; can be given again and again.",
     EXO_INTO(struct generate_args, stops)},
    {"--weights", "fp32|int8|int4", "How weights are kept; fp32 unless it is given.",
     EXO_INTO(struct generate_args, weights), .word = EXO_WORD_FIXED},
    {"--device", "NAME",
     "What computes, by its name in `exogym list devices`; cpu unless it is given.",
     EXO_INTO(struct generate_args, device), .word = EXO_WORD_DEVICE},
    {"--samples", "N", "So many texts, each with draws of its own.",
     EXO_INTO(struct generate_args, samples)},
    {"--tokenizer", "PATH",
     "A tokenizer.json or the folder it is in, or the word bytes, instead of the model's.",
     EXO_INTO(struct generate_args, tokenizer), .word = EXO_WORD_FILE},
    {"--json", NULL,
     "Prints one JSON object at the end: texts, tokens, log-probabilities, and why each ended.",
     EXO_INTO(struct generate_args, json)},
    {0},
};

static const exo_note examples[] = {
    {"exogym generate --model runs/shakespeare/ddp --prompt ROMEO: --max-new-tokens 300",
     "Goes on with a prompt."},
    {"exogym generate --model gpt2 --prompt 'Once upon a time' --weights int8 --samples 3",
     "Three texts of a Hugging Face directory, with weights of 8 bits."},
    {0},
};

const exo_command exo_command_generate = {
    .name = "generate",
    .summary = "Generates text with a trained decoder",
    .description =
        "The prompt and what follows it appear on standard output, token by token. A text ends at "
        "an end token of the model or its tokenizer, at a stop text, after --max-new-tokens, or "
        "where the model's context is full.\n\n"
        "What is not given is as generation_config.json says in the model's directory, or in the "
        "one that a run began with: temperature, top_k, top_p, repetition_penalty, max_new_tokens, "
        "do_sample, and which tokens end a text.\n\n"
        "The tokenizer is the one that --tokenizer names; a Hugging Face directory's own; the one "
        "that the run trained with, from its folder or its data; or that of the directory that it "
        "began with. The same arguments give the same text, on any number of threads, and sample I "
        "is the same however many there are.",
    .args = table,
    .examples = examples,
    .args_size = sizeof(struct generate_args),
    .run = generate_command,
};
