/* The reward `model`: the score that a trained reward model gives an answer, its value at the
 * answer's last token. State: the model, a device, a tape, and the arrays of a pass; owner: the
 * reward's caller. */
#include <stdio.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/model.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "experience/given.h"
#include "experience/named_device.h"
#include "experience/named_model.h"
#include "experience/reward_task.h"
#include "nn/pretrained/pretrained.h"

enum {
    MAX_PATH = 4096,
    PASS = 64,          /* most answers of a pass */
    PASS_TOKENS = 4096, /* most tokens of a pass of several answers, with padding */
    STEP = 16           /* lengths are multiples of it, so that few different shapes occur */
};

struct model_reward {
    exo_model *model;
    exo_params *params;
    exo_named_device device; /* of the parameters and the passes */
    exo_tape *tape;          /* NULL: it has not started */
    int32_t *tokens;         /* (room) of the answers of a pass, padded to one length */
    float *values;           /* (room) */
    size_t room;
    double mean, deviation; /* scores are (value - mean) / deviation */
};

/* Reads mean and deviation from the folder's reward.json. */
static exo_status
read_normal(struct model_reward *r, exo_config *config, const char *folder, exo_err *err)
{
    char path[MAX_PATH];
    exo_config_doc *doc = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/reward.json", folder) >= sizeof path)
        return exo_config_fail(config, err, "path: it is too long");
    exo_status st = exo_config_load(&doc, path, err);
    if (st != EXO_OK)
        return exo_config_fail(config, err,
                               "normalize: '%s' cannot be read, which reward_trainer writes: set "
                               "mean and deviation instead",
                               path);
    exo_config *root = exo_config_root(doc);
    st = exo_config_double(root, "mean", 0, -1e30, 1e30, &r->mean, err);
    if (st == EXO_OK)
        st = exo_config_double(root, "deviation", 1, 1e-30, 1e30, &r->deviation, err);
    exo_config_free(&doc);
    return st;
}

/* Moves the model to its device. */
static exo_status
model_start(void *self, uint32_t place, exo_err *err)
{
    struct model_reward *r = self;
    exo_status st = exo_named_device_open(&r->device, place, err);
    if (st == EXO_OK)
        st = exo_params_move(&r->params, r->device.device, err);
    return st == EXO_OK ? exo_tape_new_on(&r->tape, r->device.device, err) : st;
}

/* Takes the model that a function of a C program gives. */
static exo_status
take_model(struct model_reward *r, exo_config *config, exo_err *err)
{
    exo_status st = exo_given_model(&r->model, config, err);
    if (st == EXO_OK && (!exo_decoder_spec_of(r->model) || !exo_named_model_gives_values(r->model)))
        return exo_config_fail(config, err,
                               "the reward model must be a language model with values: true");
    return st == EXO_OK ? exo_model_values(r->model, 0, &r->params, err) : st;
}

/* Makes the model of a folder, with its value head. */
static exo_status
open_model(struct model_reward *r, exo_config *config, const char *folder, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_config *options = NULL;
    if (!exo_value_head_exists(folder))
        return exo_config_fail(config, err,
                               "path: '%s' is no reward model: it has no " EXO_VALUE_HEAD_FILE
                               "; a reward_trainer writes model_TRAINER in its run's folder",
                               folder);
    exo_status st = exo_config_parse(&doc, "reward", "{values: true}", err);
    options = st == EXO_OK ? exo_config_root(doc) : NULL;
    if (st == EXO_OK)
        st = exo_config_graft_string(options, "path", folder, err);
    if (st == EXO_OK)
        st = exo_model_new_named(&r->model, "gpt", options, err);
    if (st == EXO_OK)
        st = exo_model_values(r->model, 0, &r->params, err);
    exo_config_free(&doc);
    if (st == EXO_OK)
        st = exo_config_note_file(config, folder, err);
    return st == EXO_OK ? EXO_OK : exo_config_add_place(config, err);
}

static exo_status
model_init(void *self, exo_config *config, exo_err *err)
{
    struct model_reward *r = self;
    const char *folder = NULL;
    bool normalize = false, given = exo_config_has(config, "given");
    r->deviation = 1;
    exo_status st = exo_config_string(config, "path", NULL, &folder, err);
    if (st == EXO_OK && !folder && !given)
        st =
            exo_config_fail(config, err, "the key 'path' is missing: the folder of a reward model");
    if (st == EXO_OK)
        st = exo_config_bool(config, "normalize", false, &normalize, err);
    if (st == EXO_OK && given && (folder || normalize))
        st = exo_config_fail(config, err,
                             "a model that a function gives has no folder: set mean and deviation "
                             "instead of path and normalize");
    if (st == EXO_OK && normalize)
        st = read_normal(r, config, folder, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "mean", r->mean, -1e30, 1e30, &r->mean, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "deviation", r->deviation, 1e-30, 1e30, &r->deviation, err);
    if (st == EXO_OK)
        st = exo_named_device_read(&r->device, config, err);
    if (st != EXO_OK)
        return st;
    return given ? take_model(r, config, err) : open_model(r, config, folder, err);
}

static size_t
length_of(const exo_answer *a)
{
    return a->prompt_length + a->length;
}

static exo_status
check_length(const struct model_reward *r, const exo_answer *a, exo_err *err)
{
    size_t context = exo_decoder_spec_of(r->model)->context;
    if (length_of(a) <= context)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "a prompt of %zu tokens and an answer of %zu are longer than the context of "
                    "the reward model, %zu",
                    a->prompt_length, a->length, context);
}

static exo_status
refuse_token(const struct model_reward *r, int32_t token, exo_err *err)
{
    return exo_fail(err, EXO_INVAL,
                    "the token %d is beyond the reward model's vocabulary of %zu: policy and "
                    "reward model must have one tokenizer",
                    token, exo_decoder_spec_of(r->model)->vocabulary);
}

/* The prompts fit the reward model, each with an answer: of a token, unless all are as long as allowed. */
exo_status
exo_model_reward_check(const void *self, const exo_reward_task *task, exo_err *err)
{
    const struct model_reward *r = self;
    exo_status st = EXO_OK;
    const size_t length = task->num_stop > 0 || task->has_tool ? 1 : task->max_new_tokens;
    for (size_t i = 0; st == EXO_OK && i < exo_prompts_count(task->prompts); i++) {
        const exo_prompt prompt = exo_prompts_at(task->prompts, i);
        const exo_answer a = {
            .prompt = prompt.tokens, .prompt_length = prompt.length, .length = length};
        st = check_length(r, &a, err);
        for (size_t k = 0; st == EXO_OK && k < prompt.length; k++)
            if ((size_t)prompt.tokens[k] >= exo_decoder_spec_of(r->model)->vocabulary)
                st = refuse_token(r, prompt.tokens[k], err);
    }
    return st;
}

/* Copies an answer's tokens and its prompt's to `tokens`. */
static exo_status
take_tokens(const struct model_reward *r, const exo_answer *a, int32_t *tokens, exo_err *err)
{
    size_t vocabulary = exo_decoder_spec_of(r->model)->vocabulary;
    memcpy(tokens, a->prompt, a->prompt_length * sizeof *tokens);
    memcpy(tokens + a->prompt_length, a->tokens, a->length * sizeof *tokens);
    for (size_t i = 0; i < length_of(a); i++)
        if ((size_t)tokens[i] >= vocabulary)
            return refuse_token(r, tokens[i], err);
    return EXO_OK;
}

/* How many of the answers (count) a pass takes, at least 1, and their padded length. */
static size_t
cut_pass(const struct model_reward *r, const exo_answer *answers, size_t count, size_t *length)
{
    size_t context = exo_decoder_spec_of(r->model)->context, n = 0;
    *length = 0;
    while (n < count && n < PASS) {
        size_t padded = (length_of(&answers[n]) + STEP - 1) / STEP * STEP;
        padded = padded < context ? padded : context;
        padded = padded > *length ? padded : *length;
        if (n > 0 && (n + 1) * padded > PASS_TOKENS)
            break;
        *length = padded;
        n++;
    }
    return n;
}

/* Lays out answers as rows of a length. */
static exo_status
lay_out(struct model_reward *r, const exo_answer *answers, size_t count, size_t length,
        exo_err *err)
{
    exo_status st = EXO_OK;
    if (count * length > r->room) {
        exo_free(r->tokens);
        exo_free(r->values);
        r->tokens = exo_calloc(count * length, sizeof *r->tokens);
        r->values = exo_calloc(count * length, sizeof *r->values);
        r->room = r->tokens && r->values ? count * length : 0;
        if (r->room == 0)
            return exo_fail(err, EXO_NOMEM, "no memory for a reward model");
    }
    memset(r->tokens, 0, count * length * sizeof *r->tokens);
    for (size_t n = 0; st == EXO_OK && n < count; n++)
        st = take_tokens(r, &answers[n], r->tokens + n * length, err);
    return st;
}

/* Scores answers in one pass. It is invariant: what a row gives does not depend on the others, nor
 * on the padding behind it. */
static exo_status
score_pass(struct model_reward *r, const exo_answer *answers, size_t count, size_t length,
           double *out, exo_err *err)
{
    const exo_pass pass = {.invariant = true};
    exo_batch batch = {.size = count, .num_fields = 1};
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = lay_out(r, answers, count, length, err);
    if (st != EXO_OK)
        return st;
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}};
    batch.data[0] = r->tokens;
    exo_tape_begin(r->tape, r->params, &pass);
    if (!exo_model_forward(r->model, r->tape, &batch, &outputs))
        return exo_tape_error(r->tape, err);
    exo_tensor *values = exo_outputs_get(&outputs, "values");
    if (!values)
        return exo_tape_error(r->tape, err);
    exo_tensor_read(values, r->values);
    st = exo_tape_error(r->tape, err);
    for (size_t n = 0; st == EXO_OK && n < count; n++) {
        double last = (double)r->values[n * length + length_of(&answers[n]) - 1];
        out[n] = (last - r->mean) / r->deviation;
    }
    return st;
}

static exo_status
model_score_many(void *self, const exo_answer *answers, size_t count, double *out, exo_err *err)
{
    struct model_reward *r = self;
    exo_status st = r->tape ? EXO_OK : model_start(r, 0, err);
    for (size_t n = 0; st == EXO_OK && n < count; n++)
        st = check_length(r, &answers[n], err);
    for (size_t first = 0, n, length; st == EXO_OK && first < count; first += n) {
        n = cut_pass(r, answers + first, count - first, &length);
        st = score_pass(r, answers + first, n, length, out + first, err);
    }
    return st;
}

static exo_status
model_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    return model_score_many(self, answer, 1, out, err);
}

static void
model_release(void *self)
{
    struct model_reward *r = self;
    exo_free(r->tokens);
    exo_free(r->values);
    exo_tape_free(&r->tape);
    exo_params_free(&r->params);
    exo_model_drop(&r->model);
    exo_named_device_close(&r->device);
}

const exo_reward_class exo_model_reward = {
    .name = "model",
    .help = "the score of a trained reward model; options path, normalize, mean, deviation, "
            "device",
    .state_size = sizeof(struct model_reward),
    .init = model_init,
    .score = model_score,
    .release = model_release,
    .score_many = model_score_many,
    .start = model_start,
};
