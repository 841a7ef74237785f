/* Sources of experience: see source.h. */
#include "experience/source.h"

#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/reward.h>

#include "base/config_edit.h"
#include "experience/named_model.h"

enum {
    MAX_BATCH = 1 << 16,
    MAX_NEW_TOKENS = 1 << 20
};

/* The answers of a batch, as the generator gives them. */
struct taken {
    int32_t *tokens;          /* (length) of prompt and answer */
    float *log_probs, *plain; /* (length - prompt) */
    size_t prompt, length;
    exo_finish finish;
};

struct exo_experience_source {
    exo_model *model;
    exo_prompts *prompts;
    exo_reward *reward;
    uint64_t answers, batch;
    exo_sampling sampling;
    int32_t stop[EXO_MAX_STOP_TOKENS];
    exo_weight_format weights;
    uint64_t seed, version;
    exo_params *params;
    exo_generator *generator;
    struct taken *taken; /* (batch answers) */
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_stop(exo_experience_source *s, exo_config *map, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = map ? exo_config_list(map, "stop", &list, err) : EXO_OK;
    int32_t end = exo_prompts_tokenizer(s->prompts)
                      ? exo_tokenizer_end(exo_prompts_tokenizer(s->prompts))
                      : -1;
    size_t count = list ? exo_config_length(list) : 0;
    if (st != EXO_OK)
        return st;
    if (count > EXO_MAX_STOP_TOKENS)
        return exo_config_fail(list, err, "stop: at most %d tokens", EXO_MAX_STOP_TOKENS);
    for (size_t i = 0; i < count; i++) {
        const char *text = exo_config_scalar(exo_config_item(list, i));
        char *rest = NULL;
        long long token = text ? strtoll(text, &rest, 10) : -1;
        if (!text || !*text || *rest || token < 0 || token > INT32_MAX)
            return exo_config_fail(list, err, "stop: expected token numbers");
        s->stop[i] = (int32_t)token;
    }
    if (!list && end >= 0)
        s->stop[count++] = end;
    s->sampling.stop_tokens = s->stop;
    s->sampling.num_stop_tokens = count;
    return EXO_OK;
}

static exo_status
read_generate(exo_experience_source *s, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    exo_config_doc *empty = NULL;
    uint64_t most = 16, top_k = 0;
    exo_status st = exo_config_map(config, "generate", &map, err);
    if (st == EXO_OK && !map && (st = exo_config_parse(&empty, "generate", "{}", err)) == EXO_OK)
        map = exo_config_root(empty);
    s->sampling.temperature = 1;
    if (st == EXO_OK)
        st = exo_config_u64(map, "max_new_tokens", most, 1, MAX_NEW_TOKENS, &most, err);
    if (st == EXO_OK)
        st = exo_config_float(map, "temperature", 1, 0, 1e6, &s->sampling.temperature, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "top_k", 0, 0, INT32_MAX, &top_k, err);
    if (st == EXO_OK)
        st = exo_config_float(map, "top_p", 1, 0, 1, &s->sampling.top_p, err);
    if (st == EXO_OK)
        st = read_stop(s, map, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    s->sampling.max_new_tokens = (size_t)most;
    s->sampling.top_k = (size_t)top_k;
    exo_config_free(&empty);
    return st;
}

/* The prompts and answers must fit the model. */
static exo_status
check_model(const exo_experience_source *s, exo_config *config, exo_err *err)
{
    if (!s->model)
        return exo_config_fail(config, err, "the key 'model' is missing: model: {name: gpt, ...}");
    const exo_decoder_spec *spec = exo_decoder_spec_of(s->model);
    size_t vocabulary = exo_prompts_vocabulary(s->prompts);
    size_t most = exo_prompts_longest(s->prompts) + s->sampling.max_new_tokens;
    if (!spec)
        return exo_config_fail(config, err, "model: '%s' does not generate; use gpt",
                               exo_model_name(s->model));
    if (vocabulary > spec->vocabulary)
        return exo_config_fail(config, err,
                               "model: the vocabulary is %zu, but the prompts need %zu: set "
                               "model.vocabulary",
                               spec->vocabulary, vocabulary);
    if (most > spec->context)
        return exo_config_fail(config, err,
                               "model: the context is %zu, but prompts of %zu tokens and answers "
                               "of %zu need %zu: set model.context",
                               spec->context, exo_prompts_longest(s->prompts),
                               s->sampling.max_new_tokens, most);
    return EXO_OK;
}

exo_status
exo_experience_source_read(exo_experience_source **out, exo_config *config, exo_err *err)
{
    const char *weights = NULL;
    exo_err reason = {0};
    exo_experience_source *s = exo_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a source of experience");
    exo_status st = exo_named_model_read(&s->model, config, "model", err);
    if (st == EXO_OK)
        st = exo_prompts_read(&s->prompts, config, err);
    if (st == EXO_OK)
        st = exo_reward_read(&s->reward, config, "reward", err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "answers", 1, 1, EXO_EXPERIENCE_MAX_ANSWERS, &s->answers, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "batch", 8, 1, MAX_BATCH, &s->batch, err);
    if (st == EXO_OK && s->answers * s->batch > MAX_BATCH)
        st = exo_config_fail(config, err, "batch * answers is at most %d", MAX_BATCH);
    if (st == EXO_OK)
        st = read_generate(s, config, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "weights", "fp32", &weights, err);
    if (st == EXO_OK && exo_weight_format_named(weights, &s->weights, &reason) != EXO_OK)
        st = exo_config_fail(config, err, "weights: %s", reason.text);
    if (st == EXO_OK)
        st = check_model(s, config, err);
    if (st == EXO_OK)
        *out = s;
    else
        exo_experience_source_free(&s);
    return st;
}

/* --- Life ------------------------------------------------------------------------------------- */

static void
release_taken(struct taken *t)
{
    exo_free(t->tokens);
    exo_free(t->log_probs);
    exo_free(t->plain);
    *t = (struct taken){0};
}

void
exo_experience_source_free(exo_experience_source **source)
{
    exo_experience_source *s = *source;
    *source = NULL;
    if (!s)
        return;
    for (size_t i = 0; s->taken && i < s->batch * s->answers; i++)
        release_taken(&s->taken[i]);
    exo_free(s->taken);
    exo_generator_free(&s->generator);
    exo_params_free(&s->params);
    exo_reward_free(&s->reward);
    exo_prompts_free(&s->prompts);
    exo_model_drop(&s->model);
    exo_free(s);
}

exo_status
exo_experience_source_start(exo_experience_source *s, uint64_t seed, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(s->model);
    const exo_generator_opts opts = {
        .weights = s->weights,
        .sequences = (size_t)(s->batch * s->answers),
        .context = exo_prompts_longest(s->prompts) + s->sampling.max_new_tokens,
    };
    s->seed = s->sampling.seed = seed;
    s->sampling.vocabulary = spec->vocabulary;
    exo_status st = exo_model_values(s->model, seed, &s->params, err);
    if (st == EXO_OK)
        st = exo_generator_new(&s->generator, spec, s->params, &opts, err);
    s->taken = st == EXO_OK ? exo_calloc(opts.sequences, sizeof *s->taken) : NULL;
    return st == EXO_OK && !s->taken ? exo_fail(err, EXO_NOMEM, "no memory for a batch") : st;
}

size_t
exo_experience_source_prompts(const exo_experience_source *s)
{
    return exo_prompts_count(s->prompts);
}

size_t
exo_experience_source_batch(const exo_experience_source *s)
{
    return (size_t)s->batch;
}

size_t
exo_experience_source_numel(const exo_experience_source *s)
{
    return exo_model_numel(s->model);
}

float *
exo_experience_source_values(exo_experience_source *s)
{
    return exo_params_values(s->params);
}

exo_status
exo_experience_source_use(exo_experience_source *s, uint64_t version, exo_err *err)
{
    exo_status st = exo_generator_set_weights(s->generator, s->params, err);
    if (st == EXO_OK)
        s->version = version;
    return st;
}

uint64_t
exo_experience_source_version(const exo_experience_source *s)
{
    return s->version;
}

/* --- Sampling --------------------------------------------------------------------------------- */

/* A batch under way. */
struct batch {
    uint64_t first, stride;
    size_t count, done;
};

static exo_status
submit_all(exo_experience_source *s, const struct batch *b, exo_err *err)
{
    exo_prompt prompt;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < b->count; i++) {
        uint64_t draw = b->first + i * b->stride;
        st = exo_prompts_draw(s->prompts, s->seed, draw, &prompt, err);
        for (uint64_t a = 0; st == EXO_OK && a < s->answers; a++)
            st = exo_generator_submit(s->generator, draw * s->answers + a, prompt.tokens,
                                      prompt.length, &s->sampling, err);
    }
    return st;
}

/* Copies a finished sequence. */
static exo_status
take_one(exo_experience_source *s, const struct batch *b, const exo_generated *g, exo_err *err)
{
    uint64_t draw = g->id / s->answers;
    size_t index = (size_t)((draw - b->first) / b->stride * s->answers + g->id % s->answers);
    struct taken *t = &s->taken[index];
    size_t length = g->length - g->prompt;
    if (g->finish == EXO_FINISH_NOT_FINITE)
        return exo_fail(err, EXO_FAILED,
                        "version %llu of the weights gives logits that are not finite",
                        (unsigned long long)s->version);
    t->tokens = exo_calloc(g->length, sizeof *t->tokens);
    t->log_probs = exo_calloc(length, sizeof *t->log_probs);
    t->plain = exo_calloc(length, sizeof *t->plain);
    if (!t->tokens || !t->log_probs || !t->plain)
        return exo_fail(err, EXO_NOMEM, "no memory for an answer of %zu tokens", length);
    memcpy(t->tokens, g->tokens, g->length * sizeof *t->tokens);
    memcpy(t->log_probs, g->log_probs, length * sizeof *t->log_probs);
    memcpy(t->plain, g->plain_log_probs, length * sizeof *t->plain);
    t->prompt = g->prompt;
    t->length = g->length;
    t->finish = g->finish;
    return EXO_OK;
}

static exo_status
generate(exo_experience_source *s, struct batch *b, exo_err *err)
{
    exo_generated done;
    exo_status st = submit_all(s, b, err);
    while (st == EXO_OK && b->done < b->count * s->answers) {
        st = exo_generator_step(s->generator, err);
        while (st == EXO_OK && exo_generator_take(s->generator, &done)) {
            st = take_one(s, b, &done, err);
            b->done++;
        }
    }
    return st;
}

static exo_status
score(exo_experience_source *s, const struct taken *t, double *out, exo_err *err)
{
    const exo_answer answer = {.prompt = t->tokens,
                               .prompt_length = t->prompt,
                               .tokens = t->tokens + t->prompt,
                               .length = t->length - t->prompt,
                               .stopped = t->finish == EXO_FINISH_STOP,
                               .tokenizer = exo_prompts_tokenizer(s->prompts)};
    return exo_reward_score(s->reward, &answer, out, err);
}

/* Makes the item of a draw, whose answers are `taken` (answers). */
static exo_status
make_item(exo_experience_source *s, uint64_t maker, uint64_t draw, const struct taken *taken,
          exo_item **item, exo_err *err)
{
    exo_experience e;
    exo_prompt prompt;
    size_t length = 0, at = 0;
    for (uint64_t a = 0; a < s->answers; a++)
        length += taken[a].length - taken[a].prompt;
    exo_status st = exo_prompts_draw(s->prompts, s->seed, draw, &prompt, err);
    if (st == EXO_OK)
        st = exo_experience_new(item, &e, (size_t)s->answers, prompt.length, length, err);
    if (st != EXO_OK)
        return st;
    e.id = draw;
    e.prompt = prompt.index;
    e.epoch = prompt.epoch;
    e.maker = maker;
    e.temperature = s->sampling.temperature;
    e.filtered = s->sampling.top_k > 0 || (s->sampling.top_p > 0 && s->sampling.top_p < 1);
    exo_experience_sign(&e, *item);
    memcpy(e.prompt_tokens, prompt.tokens, prompt.length * sizeof *prompt.tokens);
    for (uint64_t a = 0; st == EXO_OK && a < s->answers; a++) {
        const struct taken *t = &taken[a];
        size_t count = t->length - t->prompt;
        e.lengths[a] = (int32_t)count;
        e.finish[a] = (uint8_t)t->finish;
        memcpy(e.tokens + at, t->tokens + t->prompt, count * sizeof *e.tokens);
        memcpy(e.log_probs + at, t->log_probs, count * sizeof *e.log_probs);
        memcpy(e.plain_log_probs + at, t->plain, count * sizeof *e.plain_log_probs);
        for (size_t i = at; i < at + count; i++)
            e.versions[i] = e.cache_versions[i] = (int64_t)s->version;
        at += count;
        st = score(s, t, &e.scores[a], err);
    }
    (*item)->version = s->version;
    (*item)->key = draw;
    return st;
}

exo_status
exo_experience_source_make(exo_experience_source *s, uint64_t maker, uint64_t first,
                           uint64_t stride, size_t count, exo_item **items, exo_err *err)
{
    struct batch b = {.first = first, .stride = stride, .count = count};
    memset(items, 0, count * sizeof *items);
    exo_status st = generate(s, &b, err);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = make_item(s, maker, first + i * stride, &s->taken[i * s->answers], &items[i], err);
    for (size_t i = 0; i < count * s->answers; i++)
        release_taken(&s->taken[i]);
    for (size_t i = 0; st != EXO_OK && i < count; i++)
        exo_item_drop(&items[i]);
    return st;
}
