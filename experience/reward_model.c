/* The reward `model`: the score that a trained reward model gives an answer, its value at the
 * answer's last token. State: the model and a tape; owner: the reward's caller. */
#include <stdio.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/model.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "nn/pretrained/pretrained.h"

enum {
    MAX_PATH = 4096
};

struct model_reward {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    int32_t *tokens;        /* (context) */
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
    if (st == EXO_OK)
        st = exo_tape_new(&r->tape, err);
    exo_config_free(&doc);
    if (st != EXO_OK)
        return exo_config_add_place(config, err);
    r->tokens = exo_calloc(exo_decoder_spec_of(r->model)->context, sizeof *r->tokens);
    return r->tokens ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a reward model");
}

static exo_status
model_init(void *self, exo_config *config, exo_err *err)
{
    struct model_reward *r = self;
    const char *folder = NULL;
    bool normalize = false;
    r->deviation = 1;
    exo_status st = exo_config_string(config, "path", NULL, &folder, err);
    if (st == EXO_OK && !folder)
        st =
            exo_config_fail(config, err, "the key 'path' is missing: the folder of a reward model");
    if (st == EXO_OK)
        st = exo_config_bool(config, "normalize", false, &normalize, err);
    if (st == EXO_OK && normalize)
        st = read_normal(r, config, folder, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "mean", r->mean, -1e30, 1e30, &r->mean, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "deviation", r->deviation, 1e-30, 1e30, &r->deviation, err);
    return st == EXO_OK ? open_model(r, config, folder, err) : st;
}

/* Copies the answer's tokens and its prompt's. */
static exo_status
take_tokens(struct model_reward *r, const exo_answer *a, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(r->model);
    size_t length = a->prompt_length + a->length;
    if (length > spec->context)
        return exo_fail(
            err, EXO_INVAL,
            "a prompt of %zu tokens and an answer of %zu are longer than the context of "
            "the reward model, %zu",
            a->prompt_length, a->length, spec->context);
    memcpy(r->tokens, a->prompt, a->prompt_length * sizeof *r->tokens);
    memcpy(r->tokens + a->prompt_length, a->tokens, a->length * sizeof *r->tokens);
    for (size_t i = 0; i < length; i++)
        if ((size_t)r->tokens[i] >= spec->vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "the token %d is beyond the reward model's vocabulary of %zu: policy "
                            "and reward model must have one tokenizer",
                            r->tokens[i], spec->vocabulary);
    return EXO_OK;
}

static exo_status
model_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    struct model_reward *r = self;
    size_t length = answer->prompt_length + answer->length;
    const int32_t offsets[] = {(int32_t)length - 1, (int32_t)length};
    const exo_pass pass = {.invariant = true};
    exo_batch batch = {.size = 1, .num_fields = 1};
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = take_tokens(r, answer, err);
    if (st != EXO_OK)
        return st;
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}};
    batch.data[0] = r->tokens;
    exo_tape_begin(r->tape, r->params, &pass);
    if (!exo_model_forward(r->model, r->tape, &batch, &outputs))
        return exo_tape_error(r->tape, err);
    exo_tensor *last = exo_sequence_sum(r->tape, exo_outputs_get(&outputs, "values"), NULL,
                                        exo_tape_input(r->tape, EXO_I32, 1, &(size_t){2}, offsets));
    if (!last)
        return exo_tape_error(r->tape, err);
    *out = ((double)exo_tensor_item(last) - r->mean) / r->deviation;
    return EXO_OK;
}

static void
model_release(void *self)
{
    struct model_reward *r = self;
    exo_free(r->tokens);
    exo_tape_free(&r->tape);
    exo_params_free(&r->params);
    exo_model_drop(&r->model);
}

const exo_reward_class exo_model_reward = {
    .name = "model",
    .help = "the score of a trained reward model; options path, normalize, mean, deviation",
    .state_size = sizeof(struct model_reward),
    .init = model_init,
    .score = model_score,
    .release = model_release,
};
