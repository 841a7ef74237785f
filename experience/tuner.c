/* Tuners: their options, life and steps. See tuner.h. Read next: tuner_pass.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/rng.h>
#include <exogym/state.h>

#include "base/config_edit.h"
#include "experience/named_model.h"
#include "experience/tuner_impl.h"
#include "nn/host_params.h"

enum {
    DIGITS = 64,            /* of a SHA-256 */
    HASHED = DIGITS / 4 + 1 /* before the tokens: a hash and the prompt's length */
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_counts(exo_tuner *t, exo_config *config, exo_err *err)
{
    const struct {
        const char *key;
        uint64_t fallback, min, max, *out;
    } counts[] = {
        {"batch", 16, 1, 1 << 16, &t->batch},
        {"rows", 64, 2, 1 << 16, &t->rows_a_pass},
        {"epochs", 1, 1, 1 << 20, &t->epochs},
        {"steps", 0, 0, UINT32_MAX, &t->steps},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof counts / sizeof *counts; i++)
        st = exo_config_u64(config, counts[i].key, counts[i].fallback, counts[i].min, counts[i].max,
                            counts[i].out, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "max_norm", 1, 0, 1e9, &t->max_norm, err);
    if (st == EXO_OK)
        st = exo_config_fraction(config, "validation", 0.1, 0, 0.9, &t->validation, err);
    if (st == EXO_OK && t->kind != EXO_TUNER_ANSWERS)
        st = exo_config_double(config, "smoothing", 0, 0, 0.5, &t->smoothing, err);
    if (st == EXO_OK && t->kind == EXO_TUNER_DPO)
        st = exo_config_double(config, "beta", 0.1, 1e-6, 1e6, &t->beta, err);
    return st;
}

static exo_status
read_model(exo_tuner *t, exo_config *config, exo_err *err)
{
    exo_optim_spec fallback = exo_optim_spec_init(EXO_ADAMW);
    fallback.lr = 1e-4f;
    fallback.weight_decay = 0;
    exo_status st = exo_named_model_read(&t->model, config, "model", err);
    if (st == EXO_OK && !t->model)
        st = exo_config_fail(config, err, "the key 'model' is missing: model: {name: gpt, ...}");
    if (st == EXO_OK)
        st = exo_named_model_check_saved(t->model, config, "model", err);
    if (st == EXO_OK && t->kind == EXO_TUNER_RANKING && !exo_named_model_gives_values(t->model))
        st = exo_config_fail(config, err,
                             "a reward model needs a value head: set model.values: true");
    if (st == EXO_OK)
        st = exo_named_device_read(&t->device, config, err);
    if (st == EXO_OK)
        st = exo_named_model_folder(&t->folder, config, "model", err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(config, "optimizer", &fallback, &t->spec, err);
    if (st == EXO_OK)
        st = exo_optim_groups_check(&t->spec, exo_model_infos(t->model),
                                    exo_model_num_infos(t->model), err);
    return st == EXO_OK ? exo_schedule_read(&t->schedule, config, "lr_scheduler", err) : st;
}

/* The most that the model takes: of what it scores, the last token is an input, too. */
static exo_texts_limits
limits_of(const exo_tuner *t)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(t->model);
    return (exo_texts_limits){.vocabulary = spec->vocabulary,
                              .length = spec->context + (t->kind != EXO_TUNER_RANKING)};
}

static exo_status
read_texts(exo_tuner *t, exo_config *config, exo_err *err)
{
    exo_config *data = NULL;
    exo_texts_kind kind = t->kind == EXO_TUNER_ANSWERS ? EXO_TEXTS_ANSWERS : EXO_TEXTS_COMPARISONS;
    exo_texts_limits limits = limits_of(t);
    exo_status st = exo_config_map(config, "data", &data, err);
    if (st != EXO_OK)
        return st;
    t->has_data = data != NULL;
    if (!data)
        return exo_texts_new(&t->texts, kind, err);
    st = exo_texts_read(&t->texts, data, kind, &limits, err);
    return st == EXO_OK ? exo_config_finish(data, err) : st;
}

exo_status
exo_tuner_read(exo_tuner **out, exo_config *config, exo_tuner_kind kind, exo_err *err)
{
    exo_tuner *t = exo_calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return exo_fail(err, EXO_NOMEM, "no memory for a tuner");
    t->kind = kind;
    exo_status st = read_model(t, config, err);
    if (st == EXO_OK)
        st = read_counts(t, config, err);
    if (st == EXO_OK)
        st = read_texts(t, config, err);
    if (st == EXO_OK)
        *out = t;
    else
        exo_tuner_free(&t);
    return st;
}

double
exo_tuner_flop_a_token(const exo_tuner *t)
{
    return (t->kind == EXO_TUNER_DPO ? 8 : 6) * (double)exo_model_numel(t->model);
}

bool
exo_tuner_has_data(const exo_tuner *t)
{
    return t->has_data;
}

/* --- Life ------------------------------------------------------------------------------------- */

void
exo_tuner_free(exo_tuner **tuner)
{
    exo_tuner *t = *tuner;
    *tuner = NULL;
    if (!t)
        return;
    (free)(t->folder); /* realpath allocates with malloc */
    exo_text_rows_release(&t->rows);
    exo_free(t->order);
    exo_free(t->scratch);
    exo_tape_free(&t->tape);
    exo_optim_free(&t->optim);
    exo_params_free(&t->reference);
    exo_params_free(&t->params);
    exo_texts_free(&t->texts);
    exo_texts_free(&t->references);
    exo_schedule_free(&t->schedule);
    exo_optim_spec_release(&t->spec);
    exo_model_drop(&t->model);
    exo_named_device_close(&t->device);
    exo_free(t);
}

/* Adds a text to a list, if the model takes it. */
static exo_status
add_text(exo_tuner *t, exo_texts *texts, const int32_t *prompt_tokens, size_t prompt,
         const int32_t *answer_tokens, size_t answer, exo_err *err)
{
    exo_texts_limits limits = limits_of(t);
    size_t largest = 0;
    for (size_t i = 0; i < prompt; i++)
        largest = (size_t)prompt_tokens[i] > largest ? (size_t)prompt_tokens[i] : largest;
    for (size_t i = 0; i < answer; i++)
        largest = (size_t)answer_tokens[i] > largest ? (size_t)answer_tokens[i] : largest;
    if (largest >= limits.vocabulary || prompt + answer > limits.length)
        return exo_fail(
            err, EXO_INVAL,
            "a text of %zu tokens, the largest of which is %zu, does not fit the model: "
            "it takes %zu tokens below %zu",
            prompt + answer, largest, limits.length, limits.vocabulary);
    return exo_texts_add(texts, prompt_tokens, prompt, answer_tokens, answer, err);
}

exo_status
exo_tuner_add(exo_tuner *t, const int32_t *prompt_tokens, size_t prompt,
              const int32_t *answer_tokens, size_t answer, exo_err *err)
{
    return add_text(t, t->texts, prompt_tokens, prompt, answer_tokens, answer, err);
}

exo_status
exo_tuner_add_reference(exo_tuner *t, const int32_t *prompt_tokens, size_t prompt,
                        const int32_t *answer_tokens, size_t answer, exo_err *err)
{
    exo_status st = t->references ? EXO_OK : exo_texts_new(&t->references, EXO_TEXTS_ANSWERS, err);
    return st == EXO_OK
               ? add_text(t, t->references, prompt_tokens, prompt, answer_tokens, answer, err)
               : st;
}

const char *
exo_tuner_device_name(const exo_tuner *t)
{
    return t->device.name;
}

exo_device *
exo_tuner_device(const exo_tuner *t)
{
    return t->device.device;
}

double
exo_tuner_validation(const exo_tuner *t)
{
    return t->validation;
}

/* Makes the models, the optimizer and the tape on the device. */
static exo_status
make_models(exo_tuner *t, uint32_t place, exo_err *err)
{
    exo_status st = exo_named_device_open(&t->device, place, err);
    if (st == EXO_OK)
        st = exo_model_params(t->model, t->seed, &t->params, err);
    if (st == EXO_OK)
        st = exo_params_move(&t->params, t->device.device, err);
    if (st == EXO_OK && t->kind == EXO_TUNER_DPO)
        st = exo_model_values(t->model, t->seed, &t->reference, err);
    if (st == EXO_OK && t->kind == EXO_TUNER_DPO)
        st = exo_params_move(&t->reference, t->device.device, err);
    if (st == EXO_OK)
        st = exo_optim_new_grouped(&t->optim, &t->spec, exo_model_infos(t->model),
                                   exo_model_num_infos(t->model), t->device.device, 0,
                                   exo_model_numel(t->model), err);
    return st == EXO_OK ? exo_tape_new_on(&t->tape, t->device.device, err) : st;
}

exo_status
exo_tuner_start(exo_tuner *t, uint64_t seed, uint32_t rank, uint32_t size, uint32_t place,
                exo_err *err)
{
    size_t count = exo_texts_count(t->texts);
    t->seed = seed;
    t->rank = rank;
    t->size = size;
    t->held_out = (size_t)((double)count * t->validation);
    t->samples = count - t->held_out;
    if (t->samples == 0)
        return exo_fail(err, EXO_INVAL, "there are no samples to learn from");
    if (t->steps == 0)
        t->steps = t->epochs * exo_tuner_epoch_steps(t);
    exo_status st = make_models(t, place, err);
    t->order = st == EXO_OK ? exo_calloc(t->samples, sizeof *t->order) : NULL;
    t->epoch = UINT64_MAX;
    return st == EXO_OK && !t->order ? exo_fail(err, EXO_NOMEM, "no memory for an order") : st;
}

uint64_t
exo_tuner_steps(const exo_tuner *t)
{
    return t->steps;
}

uint64_t
exo_tuner_epoch_steps(const exo_tuner *t)
{
    uint64_t each = t->batch * t->size;
    return (t->samples + each - 1) / each;
}

size_t
exo_tuner_held_out(const exo_tuner *t)
{
    return t->held_out;
}

/* A hash of the texts: that of each text with the hash of those before it. */
static exo_status
hash_texts(const exo_texts *texts, char sha256[65], exo_err *err)
{
    size_t longest = 0, each = exo_texts_each(texts), count = exo_texts_count(texts) * each;
    for (size_t i = 0; i < count; i++) {
        size_t length = exo_texts_at(texts, i / each)[i % each].length;
        longest = length > longest ? length : longest;
    }
    int32_t *numbers = exo_calloc(HASHED + longest, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory to hash the texts");
    for (size_t i = 0; i < count; i++) {
        const exo_prompted *text = &exo_texts_at(texts, i / each)[i % each];
        numbers[DIGITS / 4] = (int32_t)text->prompt;
        memcpy(numbers + HASHED, text->tokens, text->length * sizeof *numbers);
        exo_sha256(numbers, (HASHED + text->length) * sizeof *numbers, sha256);
        memcpy(numbers, sha256, DIGITS);
    }
    exo_free(numbers);
    return EXO_OK;
}

exo_status
exo_tuner_state(exo_tuner *t, exo_state *state, char texts[64], exo_err *err)
{
    char sha256[65];
    exo_status st = hash_texts(t->texts, sha256, err);
    if (st != EXO_OK)
        return st;
    memcpy(texts, sha256, DIGITS);
    exo_state_add(state, "texts", EXO_U8, texts, DIGITS);
    exo_state_add_array(state, "values", exo_params_values_array(t->params));
    exo_optim_state(t->optim, "optim", state);
    return EXO_OK;
}

exo_status
exo_tuner_sha256(const exo_tuner *t, char out[65], exo_err *err)
{
    exo_params *host = NULL;
    exo_status st = exo_host_params_take(&host, t->model, t->params, err);
    if (st == EXO_OK)
        exo_sha256(exo_params_values(host), exo_model_numel(t->model) * sizeof(float), out);
    exo_host_params_give_back(&host, t->params);
    return st;
}

exo_status
exo_tuner_save(const exo_tuner *t, const char *folder, exo_err *err)
{
    exo_params *host = NULL;
    exo_status st = exo_host_params_take(&host, t->model, t->params, err);
    if (st == EXO_OK)
        st = exo_decoder_save(folder, t->model, host, EXO_F32, 0, err);
    exo_host_params_give_back(&host, t->params);
    if (st != EXO_OK)
        return st;
    return exo_texts_tokenizer(t->texts)
               ? exo_tokenizer_save(exo_texts_tokenizer(t->texts), folder, err)
               : exo_named_model_save_tokenizer(t->folder, folder, err);
}

exo_status
exo_tuner_save_adapter(const exo_tuner *t, const char *folder, exo_err *err)
{
    exo_params *host = NULL;
    if (!t->folder || !exo_named_model_has_lora(t->model))
        return EXO_OK;
    exo_status st = exo_host_params_take(&host, t->model, t->params, err);
    if (st == EXO_OK)
        st = exo_decoder_save_adapter(folder, t->model, host, t->folder, err);
    exo_host_params_give_back(&host, t->params);
    return st;
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* The order of the samples in an epoch. */
static void
set_order(exo_tuner *t, uint64_t epoch)
{
    exo_rng rng;
    if (t->epoch == epoch)
        return;
    exo_rng_init(&rng, t->seed, EXO_RNG_SHUFFLE, 0, epoch);
    exo_rng_permutation(&rng, t->order, (uint32_t)t->samples);
    t->epoch = epoch;
}

/* Adds up the sums of all tuners and makes figures of them. */
static exo_status
finish(exo_group *group, const double sums[EXO_TUNER_SUMS], size_t samples, exo_tuner_figures *f,
       exo_err *err)
{
    float all[EXO_TUNER_SUMS];
    double n = (double)samples;
    for (size_t i = 0; i < EXO_TUNER_SUMS; i++)
        all[i] = (float)sums[i];
    exo_status st =
        group ? exo_all_reduce(group, exo_host_array(EXO_F32, all, EXO_TUNER_SUMS), EXO_SUM, err)
              : EXO_OK;
    if (st != EXO_OK)
        return st;
    f->samples = samples;
    f->loss = (double)all[EXO_TUNER_LOSS];
    f->accuracy = (double)all[EXO_TUNER_RIGHT] / n;
    f->margin = (double)all[EXO_TUNER_MARGIN] / n;
    f->mean = (double)all[EXO_TUNER_SCORE] / (2 * n);
    f->deviation = sqrt(fmax(0, (double)all[EXO_TUNER_SQUARE] / (2 * n) - f->mean * f->mean));
    return isfinite(f->loss) ? EXO_OK : exo_fail(err, EXO_FAILED, "the loss is not finite");
}

/* Counts this tuner's part of samples. */
static void
count_own(const exo_tuner *t, const uint32_t *samples, size_t count, exo_tuner_figures *f)
{
    size_t each = exo_texts_each(t->texts);
    for (size_t i = t->rank; i < count; i += t->size)
        for (size_t k = 0; k < each; k++) {
            f->own_answers++;
            f->own_tokens += exo_texts_at(t->texts, samples[i])[k].length;
        }
}

exo_status
exo_tuner_step(exo_tuner *t, exo_group *group, uint64_t step, exo_tuner_figures *f, exo_err *err)
{
    double sums[EXO_TUNER_SUMS] = {0};
    uint64_t each = t->batch * t->size, epoch = exo_tuner_epoch_steps(t);
    size_t begin = (size_t)(step % epoch * each);
    size_t end = begin + each < t->samples ? begin + (size_t)each : t->samples;
    float norm = 0;
    *f = (exo_tuner_figures){0};
    set_order(t, step / epoch);
    count_own(t, t->order + begin, end - begin, f);
    exo_params_zero_grads(t->params);
    exo_status st = exo_tuner_pass(t, t->order + begin, end - begin, &step, sums, err);
    exo_array grads = exo_params_grads_array(t->params);
    if (st == EXO_OK && group)
        st = exo_all_reduce(group, grads, EXO_SUM, err);
    if (st == EXO_OK)
        st = finish(group, sums, end - begin, f, err);
    if (st == EXO_OK)
        st = exo_clip_grad_norm(grads, t->max_norm > 0 ? (float)t->max_norm : INFINITY, &norm, err);
    if (st != EXO_OK)
        return st;
    exo_optim_step(t->optim, exo_params_values_array(t->params), grads,
                   t->spec.lr * exo_schedule_factor(t->schedule, step, t->steps));
    f->norm = (double)norm;
    return exo_optim_result(t->optim, err);
}

exo_status
exo_tuner_evaluate(exo_tuner *t, exo_group *group, exo_tuner_figures *f, exo_err *err)
{
    double sums[EXO_TUNER_SUMS] = {0};
    size_t first = t->held_out ? t->samples : 0, count = t->held_out ? t->held_out : t->samples;
    uint32_t *samples = exo_calloc(count, sizeof *samples);
    *f = (exo_tuner_figures){0};
    if (!samples)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu samples", count);
    for (size_t i = 0; i < count; i++)
        samples[i] = (uint32_t)(first + i);
    exo_status st = exo_tuner_pass(t, samples, count, NULL, sums, err);
    if (st == EXO_OK)
        st = finish(group, sums, count, f, err);
    if (st == EXO_OK && t->references && t->kind == EXO_TUNER_RANKING)
        st = exo_tuner_score_references(t, &f->mean, &f->deviation, err);
    exo_free(samples);
    return st;
}
