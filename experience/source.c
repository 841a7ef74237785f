/* Sources of experience: see source.h. */
#include "experience/source.h"

#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>
#include <exogym/reward.h>

#include "base/config_edit.h"
#include "experience/draft.h"
#include "experience/named_device.h"
#include "experience/named_model.h"
#include "experience/reward_task.h"

enum {
    MAX_BATCH = 1 << 16,
    MAX_TENSOR = 1 << 10,
    MAX_NEW_TOKENS = 1 << 20
};

/* A draw under way; slot i has the answers i A, i A + 1, ... */
struct slot {
    bool used;
    uint64_t draw;
    size_t left; /* answers that have not ended */
};

struct exo_experience_source {
    exo_model *model;
    exo_prompts *prompts;
    exo_reward *reward;
    uint64_t answers, batch;
    exo_sampling sampling;
    int32_t stop[EXO_MAX_STOP_TOKENS];
    exo_weight_format weights;
    uint64_t tensor; /* members that share a generation */
    exo_named_device device;
    exo_model *part; /* of a member of a group; NULL: all */
    uint64_t seed, version;
    exo_params *params;
    exo_generator *generator;
    exo_draft_rules rules;
    struct slot *slots;    /* (batch) */
    exo_draft *under;      /* (batch answers) */
    size_t *order, active; /* (batch) the slots in use, by their draws */
    /* Answers that are being scored (batch answers), in three arrays. */
    exo_draft **judged;
    exo_answer *asked;
    double *scores;
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

/* Reads the tool, whose stop tokens end a sequence of the generator, too. */
static exo_status
read_tool(exo_experience_source *s, exo_config *config, exo_err *err)
{
    const exo_tokenizer *tokenizer = exo_prompts_tokenizer(s->prompts);
    exo_status st = exo_tool_read(&s->rules.tool, config, "tool", tokenizer, err);
    if (st != EXO_OK)
        return st;
    s->rules.tokenizer = tokenizer;
    s->rules.longest_prompt = exo_prompts_longest(s->prompts);
    s->rules.max_new_tokens = s->sampling.max_new_tokens;
    const exo_tool_shape *shape = s->rules.tool ? exo_tool_shape_of(s->rules.tool) : NULL;
    for (size_t i = 0; shape && i < shape->num_stop; i++) {
        if (s->sampling.num_stop_tokens == EXO_MAX_STOP_TOKENS)
            return exo_config_fail(config, err,
                                   "generate.stop and the tool have more than %d stop tokens",
                                   EXO_MAX_STOP_TOKENS);
        s->stop[s->sampling.num_stop_tokens++] = shape->stop[i];
    }
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
    exo_config *at = exo_config_get(config, "model");
    size_t vocabulary = exo_prompts_vocabulary(s->prompts);
    size_t most = exo_prompts_longest(s->prompts) + exo_draft_most(&s->rules);
    if (!spec)
        return exo_config_fail(at, err, "model: '%s' does not generate; use gpt",
                               exo_model_name(s->model));
    if (vocabulary > spec->vocabulary)
        return exo_config_fail(at, err,
                               "model: the vocabulary is %zu, but the prompts need %zu: set "
                               "model.vocabulary",
                               spec->vocabulary, vocabulary);
    for (size_t i = 0; i < s->sampling.num_stop_tokens; i++)
        if ((size_t)s->stop[i] >= spec->vocabulary)
            return exo_config_fail(at, err,
                                   "model: the vocabulary is %zu, but answers stop at the token "
                                   "%d: set model.vocabulary or generate.stop",
                                   spec->vocabulary, s->stop[i]);
    if (most > spec->context)
        return exo_config_fail(at, err,
                               "model: the context is %zu, but prompts of %zu tokens and answers "
                               "of %zu%s need %zu: set model.context",
                               spec->context, exo_prompts_longest(s->prompts),
                               exo_draft_most(&s->rules),
                               s->rules.tool ? ", the tool's replies included," : "", most);
    return EXO_OK;
}

/* The reward can score what the model and the tool will write. */
static exo_status
check_reward(const exo_experience_source *s, exo_config *config, exo_err *err)
{
    const exo_reward_task task = {.prompts = s->prompts,
                                  .vocabulary = exo_decoder_spec_of(s->model)->vocabulary,
                                  .max_new_tokens = s->sampling.max_new_tokens,
                                  .stop = s->stop,
                                  .num_stop = s->sampling.num_stop_tokens,
                                  .has_tool = s->rules.tool != NULL};
    exo_status st = exo_reward_check(s->reward, &task, err);
    return st == EXO_OK || st == EXO_NOMEM
               ? st
               : exo_config_add_place(exo_config_get(config, "reward"), err);
}

/* Reads `parallel`, and tries its first part. */
static exo_status
read_parallel(exo_experience_source *s, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    exo_model *part = NULL;
    exo_err reason = {0};
    s->tensor = 1;
    exo_status st = exo_config_map(config, "parallel", &map, err);
    if (st != EXO_OK || !map)
        return st;
    st = exo_config_u64(map, "tensor", 1, 1, MAX_TENSOR, &s->tensor, err);
    if (st == EXO_OK && s->tensor > 1 &&
        exo_model_output_part(&part, s->model, 0, (uint32_t)s->tensor, &reason) != EXO_OK)
        st = exo_config_fail(map, err, "parallel: %s", reason.text);
    if (part)
        exo_model_drop(&part);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
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
        st = read_tool(s, config, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "weights", "fp32", &weights, err);
    if (st == EXO_OK && exo_weight_format_named(weights, &s->weights, &reason) != EXO_OK)
        st = exo_config_fail(exo_config_get(config, "weights"), err, "weights: %s", reason.text);
    if (st == EXO_OK)
        st = check_model(s, config, err);
    if (st == EXO_OK)
        st = check_reward(s, config, err);
    if (st == EXO_OK)
        st = exo_named_device_read(&s->device, config, err);
    if (st == EXO_OK)
        st = read_parallel(s, config, err);
    if (st == EXO_OK)
        *out = s;
    else
        exo_experience_source_free(&s);
    return st;
}

/* --- Life ------------------------------------------------------------------------------------- */

void
exo_experience_source_free(exo_experience_source **source)
{
    exo_experience_source *s = *source;
    *source = NULL;
    if (!s)
        return;
    for (size_t i = 0; s->under && i < s->batch * s->answers; i++)
        exo_draft_release(&s->under[i]);
    exo_free(s->under);
    exo_free(s->slots);
    exo_free(s->order);
    exo_free(s->judged);
    exo_free(s->asked);
    exo_free(s->scores);
    exo_generator_free(&s->generator);
    exo_params_free(&s->params);
    exo_named_device_close(&s->device);
    if (s->part)
        exo_model_drop(&s->part);
    exo_reward_free(&s->reward);
    exo_tool_free(&s->rules.tool);
    exo_prompts_free(&s->prompts);
    exo_model_drop(&s->model);
    exo_free(s);
}

void
exo_experience_source_end(exo_experience_source *s)
{
    exo_generator_free(&s->generator);
}

static exo_status
make_room(exo_experience_source *s, exo_err *err)
{
    size_t count = (size_t)(s->batch * s->answers);
    s->slots = exo_calloc(s->batch, sizeof *s->slots);
    s->order = exo_calloc(s->batch, sizeof *s->order);
    s->under = exo_calloc(count, sizeof *s->under);
    s->judged = exo_calloc(count, sizeof *s->judged);
    s->asked = exo_calloc(count, sizeof *s->asked);
    s->scores = exo_calloc(count, sizeof *s->scores);
    if (!s->slots || !s->order || !s->under || !s->judged || !s->asked || !s->scores)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu answers at once", count);
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = exo_draft_init(&s->under[i], &s->rules, err);
    return st;
}

exo_status
exo_experience_source_start(exo_experience_source *s, uint64_t seed, uint32_t place,
                            exo_group *group, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(s->model);
    const exo_generator_opts opts = {
        .weights = s->weights,
        .sequences = (size_t)(s->batch * s->answers),
        .context = exo_prompts_longest(s->prompts) + exo_draft_most(&s->rules),
        .group = group,
    };
    s->seed = s->sampling.seed = s->rules.seed = seed;
    s->sampling.vocabulary = s->rules.vocabulary = spec->vocabulary;
    exo_status st = exo_named_device_open(&s->device, place, err);
    if (st == EXO_OK && group)
        st = exo_group_set_device(group, s->device.device, err);
    if (st == EXO_OK)
        st = exo_reward_start(s->reward, place, err);
    if (st == EXO_OK && group)
        st = exo_model_output_part(&s->part, s->model, exo_group_rank(group), exo_group_size(group),
                                   err);
    if (st == EXO_OK)
        st = exo_model_values(s->part ? s->part : s->model, seed, &s->params, err);
    if (st == EXO_OK)
        st = exo_params_move(&s->params, s->device.device, err);
    if (st == EXO_OK)
        st = exo_generator_new(&s->generator, spec, s->params, &opts, err);
    return st == EXO_OK ? make_room(s, err) : st;
}

const char *
exo_experience_source_device_name(const exo_experience_source *s)
{
    return s->device.name;
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
exo_experience_source_length(const exo_experience_source *s)
{
    return s->sampling.max_new_tokens;
}

size_t
exo_experience_source_numel(const exo_experience_source *s)
{
    return exo_model_numel(s->model);
}

exo_model *
exo_experience_source_model(exo_experience_source *s)
{
    return s->model;
}

exo_params *
exo_experience_source_params(exo_experience_source *s)
{
    return s->params;
}

exo_model *
exo_experience_source_part(exo_experience_source *s)
{
    return s->part;
}

uint32_t
exo_experience_source_tensor(const exo_experience_source *s)
{
    return (uint32_t)s->tensor;
}

exo_generator *
exo_experience_source_generator(exo_experience_source *s)
{
    return s->generator;
}

exo_weight_format
exo_experience_source_format(const exo_experience_source *s)
{
    return s->weights;
}

uint64_t
exo_experience_source_version(const exo_experience_source *s)
{
    return s->version;
}

size_t
exo_experience_source_room(const exo_experience_source *s)
{
    return (size_t)s->batch - s->active;
}

size_t
exo_experience_source_active(const exo_experience_source *s)
{
    return s->active;
}

bool
exo_experience_source_has(const exo_experience_source *s, uint64_t draw)
{
    for (size_t i = 0; i < s->active; i++)
        if (s->slots[s->order[i]].draw == draw)
            return true;
    return false;
}

size_t
exo_experience_source_unfinished(const exo_experience_source *s)
{
    size_t unfinished = 0;
    for (size_t i = 0; i < s->active; i++)
        unfinished += s->slots[s->order[i]].left;
    return unfinished;
}

size_t
exo_experience_source_waiting(const exo_experience_source *s)
{
    size_t waiting = 0;
    for (size_t i = 0; i < s->active; i++)
        for (uint64_t k = 0; k < s->answers; k++) {
            const exo_draft *a = &s->under[s->order[i] * s->answers + k];
            waiting += a->waits && a->finish == EXO_FINISH_NONE;
        }
    return waiting;
}

/* --- Answers under way ------------------------------------------------------------------------ */

/* Submits an answer with the tokens that it has. */
static exo_status
submit(exo_experience_source *s, uint64_t sequence, exo_draft *a, exo_err *err)
{
    exo_sampling sampling = s->sampling;
    a->known = a->length;
    a->cache = (int64_t)s->version;
    sampling.max_new_tokens = exo_draft_left(a, &s->rules);
    return exo_generator_submit(s->generator, sequence, a->tokens, a->length, &sampling, err);
}

exo_status
exo_experience_source_begin(exo_experience_source *s, uint64_t draw, exo_err *err)
{
    exo_prompt prompt;
    size_t at = 0;
    if (s->active == s->batch)
        return exo_fail(err, EXO_FULL, "all %llu draws of this source are under way",
                        (unsigned long long)s->batch);
    exo_status st = exo_prompts_draw(s->prompts, s->seed, draw, &prompt, err);
    if (st != EXO_OK)
        return st;
    while (s->slots[at].used)
        at++;
    for (uint64_t i = 0; st == EXO_OK && i < s->answers; i++) {
        exo_draft *a = &s->under[at * s->answers + i];
        exo_draft_begin(a, &s->rules, prompt.tokens, prompt.length);
        st = submit(s, draw * s->answers + i, a, err);
    }
    s->slots[at] = (struct slot){.used = true, .draw = draw, .left = (size_t)s->answers};
    size_t place = s->active++;
    for (; place > 0 && s->slots[s->order[place - 1]].draw > draw; place--)
        s->order[place] = s->order[place - 1];
    s->order[place] = at;
    return st;
}

/* The answer of a sequence. */
static exo_draft *
answer_of(exo_experience_source *s, uint64_t sequence, struct slot **slot)
{
    uint64_t draw = sequence / s->answers;
    size_t low = 0, high = s->active;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (s->slots[s->order[middle]].draw <= draw)
            low = middle;
        else
            high = middle;
    }
    *slot = &s->slots[s->order[low]];
    return &s->under[s->order[low] * s->answers + sequence % s->answers];
}

/* A sequence of the generator has finished: the answer ends, or goes on after the tool's reply. */
static exo_status
end_turn(exo_experience_source *s, uint64_t sequence, exo_finish finish, exo_draft *a,
         struct slot *slot, exo_err *err)
{
    size_t reply = 0;
    exo_status st = exo_draft_end_turn(a, &s->rules, sequence, finish, &reply, err);
    if (st != EXO_OK)
        return st;
    if (a->finish != EXO_FINISH_NONE) {
        slot->left--;
        return EXO_OK;
    }
    return exo_generator_extend(s->generator, sequence, a->tokens + a->length - reply, reply,
                                exo_draft_left(a, &s->rules), err);
}

/* Takes over the new tokens of a sequence. */
static exo_status
note(exo_experience_source *s, const exo_generated *g, exo_err *err)
{
    struct slot *slot = NULL;
    exo_draft *a = answer_of(s, g->id, &slot);
    if (g->finish == EXO_FINISH_NOT_FINITE)
        return exo_fail(err, EXO_FAILED,
                        "version %llu of the weights gives logits that are not finite, divided by "
                        "the temperature %g",
                        (unsigned long long)s->version, (double)s->sampling.temperature);
    exo_draft_add(a, g, s->version);
    return g->finish == EXO_FINISH_NONE ? EXO_OK : end_turn(s, g->id, g->finish, a, slot, err);
}

exo_status
exo_experience_source_step(exo_experience_source *s, exo_err *err)
{
    exo_generated g;
    exo_status st = exo_generator_step(s->generator, err);
    for (size_t i = 0; st == EXO_OK && exo_generator_at(s->generator, i, &g); i++)
        st = note(s, &g, err);
    while (st == EXO_OK && exo_generator_take(s->generator, &g))
        continue;
    return st;
}

exo_status
exo_experience_source_renew(exo_experience_source *s, uint64_t version, exo_kv kv, exo_err *err)
{
    exo_status st = EXO_OK;
    s->version = version;
    for (size_t i = 0; st == EXO_OK && i < s->active; i++) {
        size_t at = s->order[i];
        for (uint64_t k = 0; st == EXO_OK && k < s->answers; k++) {
            exo_draft *a = &s->under[at * s->answers + k];
            uint64_t sequence = s->slots[at].draw * s->answers + k;
            a->waits = a->finish == EXO_FINISH_NONE;
            if (!a->waits || kv == EXO_KV_KEEP)
                continue;
            st = exo_generator_cancel(s->generator, sequence, err);
            if (kv == EXO_KV_RESET)
                exo_draft_rewind(a, &s->rules);
            if (st == EXO_OK)
                st = submit(s, sequence, a, err);
        }
    }
    return st;
}

exo_status
exo_experience_source_abandon(exo_experience_source *s, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < s->active; i++) {
        size_t at = s->order[i];
        for (uint64_t k = 0; st == EXO_OK && k < s->answers; k++)
            if (s->under[at * s->answers + k].finish == EXO_FINISH_NONE)
                st = exo_generator_cancel(s->generator, s->slots[at].draw * s->answers + k, err);
        s->slots[at].used = false;
    }
    s->active = 0;
    return st;
}

/* --- Items ------------------------------------------------------------------------------------ */

static exo_answer
ask(const exo_experience_source *s, const exo_draft *a)
{
    return (exo_answer){.prompt = a->tokens,
                        .prompt_length = a->prompt,
                        .tokens = a->tokens + a->prompt,
                        .mask = s->rules.tool ? a->mask : NULL,
                        .length = a->length - a->prompt,
                        .stopped = a->finish == EXO_FINISH_STOP,
                        .tokenizer = exo_prompts_tokenizer(s->prompts)};
}

/* Scores the answers of slot order[first], which has ended; of a reward that takes many at once, also
 * those of the draws after it that have ended. */
static exo_status
score_ended(exo_experience_source *s, size_t first, exo_err *err)
{
    size_t count = 0, end = exo_reward_batches(s->reward) ? s->active : first + 1;
    for (size_t i = first; i < end; i++) {
        exo_draft *all = &s->under[s->order[i] * s->answers];
        for (uint64_t k = 0; s->slots[s->order[i]].left == 0 && k < s->answers; k++) {
            if (all[k].scored)
                continue;
            s->judged[count] = &all[k];
            s->asked[count++] = ask(s, &all[k]);
        }
    }
    exo_status st = exo_reward_score_many(s->reward, s->asked, count, s->scores, err);
    for (size_t n = 0; st == EXO_OK && n < count; n++) {
        s->judged[n]->score = s->scores[n] + s->judged[n]->earned;
        s->judged[n]->scored = true;
    }
    return st;
}

/* Copies an answer to the item's arrays from `at` on, and its oldest version to *oldest. */
static void
copy_answer(const exo_draft *a, exo_experience *e, uint64_t index, size_t at, uint64_t *oldest)
{
    size_t count = a->length - a->prompt;
    e->lengths[index] = (int32_t)count;
    e->finish[index] = (uint8_t)a->finish;
    memcpy(e->tokens + at, a->tokens + a->prompt, count * sizeof *e->tokens);
    memcpy(e->log_probs + at, a->log_probs, count * sizeof *e->log_probs);
    memcpy(e->plain_log_probs + at, a->plain, count * sizeof *e->plain_log_probs);
    memcpy(e->versions + at, a->versions, count * sizeof *e->versions);
    memcpy(e->cache_versions + at, a->caches, count * sizeof *e->cache_versions);
    if (e->mask) {
        memcpy(e->mask + at, a->mask, count * sizeof *e->mask);
        memcpy(e->rewards + at, a->rewards, count * sizeof *e->rewards);
    }
    for (size_t i = 0; i < count; i++)
        if (a->mask[i] && (uint64_t)a->versions[i] < *oldest)
            *oldest = (uint64_t)a->versions[i];
}

static exo_status
make_item(exo_experience_source *s, uint64_t maker, size_t slot, exo_item **item, exo_err *err)
{
    exo_experience e;
    exo_prompt prompt;
    size_t length = 0, at = 0;
    uint64_t draw = s->slots[slot].draw, oldest = UINT64_MAX;
    const exo_draft *all = &s->under[slot * s->answers];
    for (uint64_t a = 0; a < s->answers; a++)
        length += all[a].length - all[a].prompt;
    exo_status st = exo_prompts_draw(s->prompts, s->seed, draw, &prompt, err);
    if (st == EXO_OK)
        st = exo_experience_new(item, &e, (size_t)s->answers, prompt.length, length,
                                s->rules.tool != NULL, err);
    if (st != EXO_OK)
        return st;
    e.id = draw;
    e.prompt = prompt.index;
    e.epoch = prompt.epoch;
    e.maker = maker;
    e.temperature = s->sampling.temperature;
    e.filtered =
        (s->sampling.top_k > 0 && s->sampling.top_k < exo_decoder_spec_of(s->model)->vocabulary) ||
        (s->sampling.top_p > 0 && s->sampling.top_p < 1);
    exo_experience_sign(&e, *item);
    memcpy(e.prompt_tokens, prompt.tokens, prompt.length * sizeof *prompt.tokens);
    for (uint64_t a = 0; a < s->answers; a++) {
        copy_answer(&all[a], &e, a, at, &oldest);
        at += all[a].length - all[a].prompt;
        e.scores[a] = all[a].score;
    }
    (*item)->version = oldest;
    (*item)->key = draw;
    return EXO_OK;
}

exo_status
exo_experience_source_take(exo_experience_source *s, uint64_t maker, exo_item **item, exo_err *err)
{
    size_t i = 0;
    *item = NULL;
    while (i < s->active && s->slots[s->order[i]].left > 0)
        i++;
    if (i == s->active)
        return EXO_OK;
    exo_status st = score_ended(s, i, err);
    if (st == EXO_OK)
        st = make_item(s, maker, s->order[i], item, err);
    s->slots[s->order[i]].used = false;
    s->active--;
    memmove(s->order + i, s->order + i + 1, (s->active - i) * sizeof *s->order);
    if (st != EXO_OK)
        exo_item_drop(item);
    return st;
}
