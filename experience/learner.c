/* Learners: their options, life, and steps. See learner.h. Read next: learner_batch.c,
 * learner_pass.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/config_edit.h"
#include "experience/learner_impl.h"
#include "experience/named_model.h"
#include "nn/host_params.h"

enum {
    MAX_SLICES = 1024
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_counts(exo_learner *l, exo_config *config, exo_err *err)
{
    const struct {
        const char *key;
        uint64_t fallback, max, *out;
    } counts[] = {
        {"epochs", 1, 1000, &l->epochs},
        {"minibatches", 1, 1 << 20, &l->minibatches},
        {"slices", 0, MAX_SLICES, &l->slices},
        {"rows", 64, 1 << 16, &l->rows_a_pass},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof counts / sizeof *counts; i++)
        st = exo_config_u64(config, counts[i].key, counts[i].fallback, counts[i].fallback ? 1 : 0,
                            counts[i].max, counts[i].out, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "max_norm", 1, 0, 1e9, &l->max_norm, err);
    return st;
}

static exo_status
read_student(exo_student *s, exo_config *config, const char *model, const char *optimizer, float lr,
             exo_err *err)
{
    exo_optim_spec fallback = exo_optim_spec_init(EXO_ADAMW);
    fallback.lr = lr;
    fallback.weight_decay = 0;
    exo_status st = exo_named_model_read(&s->model, config, model, err);
    if (st != EXO_OK || !s->model)
        return st;
    if (!exo_decoder_spec_of(s->model))
        return exo_config_fail(exo_config_get(config, model), err,
                               "%s: '%s' is no language model; use gpt", model,
                               exo_model_name(s->model));
    st = exo_optim_spec_read_groups(config, optimizer, &fallback, &s->spec, err);
    return st == EXO_OK ? exo_optim_groups_check(&s->spec, exo_model_infos(s->model),
                                                 exo_model_num_infos(s->model), err)
                        : st;
}

static exo_status
check_students(const exo_learner *l, exo_config *config, exo_err *err)
{
    const exo_model *critic = l->critic.model ? l->critic.model : l->actor.model;
    exo_config *at = l->critic.model ? exo_config_get(config, "critic") : config;
    if (!l->actor.model)
        return exo_config_fail(config, err, "the key 'model' is missing: model: {name: gpt, ...}");
    if (l->critic.model && !exo_learner_has_critic(l))
        return exo_config_fail(at, err, "critic: only the algorithm ppo has one");
    if (!exo_learner_has_critic(l))
        return EXO_OK;
    if (!exo_named_model_gives_values(critic))
        return exo_config_fail(at, err,
                               "ppo needs values: set values: true in `critic`, a second model, or "
                               "in `model`, which then has one trunk for both");
    const exo_decoder_spec *a = exo_decoder_spec_of(l->actor.model),
                           *c = exo_decoder_spec_of(critic);
    if (c->context < a->context || c->vocabulary < a->vocabulary)
        return exo_config_fail(at, err,
                               "critic: its context %zu and vocabulary %zu must be at least the "
                               "model's, %zu and %zu",
                               c->context, c->vocabulary, a->context, a->vocabulary);
    return EXO_OK;
}

/* Reads the initial model, to which the KL penalty keeps the policy. */
static exo_status
read_initial(exo_learner *l, exo_config *config, exo_err *err)
{
    exo_status st = exo_named_model_read(&l->initial, config, "initial", err);
    const exo_decoder_spec *mine = exo_decoder_spec_of(l->actor.model);
    const exo_decoder_spec *other = l->initial ? exo_decoder_spec_of(l->initial) : NULL;
    if (st != EXO_OK || !l->initial)
        return st;
    if (!other || other->vocabulary != mine->vocabulary || other->context < mine->context)
        return exo_config_fail(exo_config_get(config, "initial"), err,
                               "initial: it must be a language model with the vocabulary of "
                               "`model`, %zu, and at least its context, %zu",
                               mine->vocabulary, mine->context);
    return EXO_OK;
}

exo_status
exo_learner_read(exo_learner **out, exo_config *config, exo_err *err)
{
    exo_learner *l = exo_calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a learner");
    exo_status st = exo_objective_read(&l->objective, config, err);
    if (st == EXO_OK)
        st = read_student(&l->actor, config, "model", "optimizer", 1e-4f, err);
    if (st == EXO_OK && l->actor.model)
        st = exo_named_model_check_saved(l->actor.model, config, "model", err);
    if (st == EXO_OK)
        st = read_student(&l->critic, config, "critic", "critic_optimizer", 1e-3f, err);
    if (st == EXO_OK)
        st = check_students(l, config, err);
    if (st == EXO_OK)
        st = exo_named_device_read(&l->device, config, err);
    if (st == EXO_OK)
        st = exo_named_model_folder(&l->folder, config, "model", err);
    if (st == EXO_OK)
        st = read_initial(l, config, err);
    if (st == EXO_OK)
        st = exo_ptx_read(&l->ptx, config, l->actor.model, err);
    if (st == EXO_OK)
        st = read_counts(l, config, err);
    if (st == EXO_OK)
        st = exo_learner_read_strategy(l, config, err);
    if (st == EXO_OK)
        *out = l;
    else
        exo_learner_free(&l);
    return st;
}

/* --- Life ------------------------------------------------------------------------------------- */

static void
student_release(exo_student *s)
{
    exo_student_release_strategy(s);
    exo_array_release(&s->sum);
    exo_optim_free(&s->optim);
    exo_params_free(&s->params);
    exo_optim_spec_release(&s->spec);
    exo_model_drop(&s->model);
}

static void
release_stored(exo_learner *l)
{
    for (size_t i = 0; i < l->stored_room; i++)
        exo_learner_batch_release(&l->stored[i]);
    exo_free(l->stored);
    l->stored = NULL;
}

void
exo_learner_free(exo_learner **learner)
{
    exo_learner *l = *learner;
    *learner = NULL;
    if (!l)
        return;
    (free)(l->folder); /* realpath allocates with malloc */
    exo_learner_batch_release(&l->batch);
    release_stored(l);
    exo_rows_release(&l->rows);
    exo_learner_release_rows(l);
    exo_tape_free(&l->tape);
    exo_params_free(&l->reference);
    exo_model_drop(&l->initial);
    exo_ptx_free(&l->ptx);
    student_release(&l->actor);
    student_release(&l->critic);
    exo_named_device_close(&l->device);
    exo_free(l);
}

static exo_status
student_start(exo_student *s, exo_device *device, uint64_t seed, bool sums, exo_err *err)
{
    size_t numel = exo_model_numel(s->model);
    exo_status st = exo_model_params(s->model, seed, &s->params, err);
    if (st == EXO_OK)
        st = exo_params_move(&s->params, device, err);
    if (st == EXO_OK && !s->strategy) /* which has its own */
        st = exo_optim_new_grouped(&s->optim, &s->spec, exo_model_infos(s->model),
                                   exo_model_num_infos(s->model), device, 0, numel, err);
    if (st == EXO_OK && sums)
        st = exo_array_init(&s->sum, device, EXO_F32, numel, err);
    return st;
}

exo_status
exo_learner_start(exo_learner *l, uint64_t seed, uint32_t rank, uint32_t size, uint32_t place,
                  exo_err *err)
{
    l->seed = seed;
    l->rank = rank;
    l->size = size;
    if (l->slices == 0)
        l->slices = size;
    if (l->slices % size != 0)
        return exo_fail(err, EXO_INVAL, "slices: %llu is no multiple of the %u trainers",
                        (unsigned long long)l->slices, size);
    bool sums = l->slices / size > 1, compares = exo_objective_needs_reference(&l->objective);
    exo_status st = exo_named_device_open(&l->device, place, err);
    if (st == EXO_OK)
        st = student_start(&l->actor, l->device.device, seed, sums, err);
    if (st == EXO_OK && l->critic.model)
        st = student_start(&l->critic, l->device.device, seed, sums, err);
    if (st == EXO_OK && compares)
        st = exo_model_values(l->initial ? l->initial : l->actor.model, seed, &l->reference, err);
    if (st == EXO_OK && compares)
        st = exo_params_move(&l->reference, l->device.device, err);
    return st == EXO_OK ? exo_tape_new_on(&l->tape, l->device.device, err) : st;
}

const char *
exo_learner_device_name(const exo_learner *l)
{
    return l->device.name;
}

exo_device *
exo_learner_device(const exo_learner *l)
{
    return l->device.device;
}

const float *
exo_learner_values(const exo_learner *l)
{
    return exo_params_values(l->actor.params);
}

size_t
exo_learner_numel(const exo_learner *l)
{
    return exo_model_numel(l->actor.model);
}

exo_model *
exo_learner_model(const exo_learner *l)
{
    return l->actor.model;
}

exo_params *
exo_learner_params(const exo_learner *l)
{
    return l->actor.params;
}

size_t
exo_learner_trained(const exo_learner *l)
{
    return exo_learner_numel(l) + (l->critic.model ? exo_model_numel(l->critic.model) : 0);
}

uint64_t
exo_learner_epochs(const exo_learner *l)
{
    return l->epochs;
}

bool
exo_learner_moves_beta(const exo_learner *l)
{
    return l->objective.control.target > 0;
}

double
exo_learner_beta(const exo_learner *l)
{
    return l->objective.reward.kl_coef + l->objective.loss.kl_coef;
}

uint64_t
exo_learner_version(const exo_learner *l)
{
    return l->version;
}

exo_status
exo_learner_sha256(const exo_learner *l, char out[65], exo_err *err)
{
    exo_params *host = NULL;
    exo_status st = exo_host_params_take(&host, l->actor.model, l->actor.params, err);
    if (st == EXO_OK)
        exo_sha256(exo_params_values(host), exo_learner_numel(l) * sizeof(float), out);
    exo_host_params_give_back(&host, l->actor.params);
    return st;
}

exo_status
exo_learner_save(const exo_learner *l, const char *folder, const char *adapter, exo_err *err)
{
    exo_params *host = NULL;
    exo_status st = exo_host_params_take(&host, l->actor.model, l->actor.params, err);
    if (st == EXO_OK)
        st = exo_decoder_save(folder, l->actor.model, host, EXO_F32, 0, err);
    if (st == EXO_OK && l->folder && exo_named_model_has_lora(l->actor.model))
        st = exo_decoder_save_adapter(adapter, l->actor.model, host, l->folder, err);
    exo_host_params_give_back(&host, l->actor.params);
    return st == EXO_OK ? exo_named_model_save_tokenizer(l->folder, folder, err) : st;
}

/* --- Steps ------------------------------------------------------------------------------------ */

exo_status
exo_learner_add_up(exo_group *group, exo_array data, exo_err *err)
{
    return group ? exo_all_reduce(group, data, EXO_SUM, err) : EXO_OK;
}

/* Adds up the gradients of a slice; `first`: it is the first of a step. */
static void
add_up(exo_student *s, bool first)
{
    if (!s->sum.count)
        return;
    if (first)
        exo_vec_copy(s->sum, exo_params_grads_array(s->params));
    else
        exo_vec_add(s->sum, s->sum, exo_params_grads_array(s->params));
}

/* Whether a gradient of this norm does not spoil the parameters: it is finite, and so is its square, which
 * optimizers keep, once it is clipped. */
static bool
is_harmless(const exo_learner *l, float norm)
{
    float most = l->max_norm > 0 ? (float)l->max_norm : INFINITY, taken = norm < most ? norm : most;
    return isfinite(norm) && isfinite(taken * taken);
}

/* Adds up the gradients of all learners; *own: the norm of this one's. A gradient that is not finite is
 * refused before the sum, which would make every learner name items of its own. */
static exo_status
sum_gradient(const exo_learner *l, const exo_student *s, exo_group *group, exo_array total,
             float *own, exo_err *err)
{
    exo_status st = group && l->size > 1 ? exo_clip_grad_norm(total, INFINITY, own, err) : EXO_OK;
    if (st == EXO_OK && !isfinite(*own))
        st = exo_learner_not_finite(l, s == &l->critic ? "the critic's gradient" : "the gradient",
                                    "", err);
    return st == EXO_OK ? exo_learner_add_up(group, total, err) : st;
}

/* A model's step with the sum of the gradients of all learners. */
static exo_status
student_step(const exo_learner *l, exo_student *s, exo_group *group, double *norm, exo_err *err)
{
    float own = 0, length = 0,
          most = l->max_norm > 0 && !s->strategy ? (float)l->max_norm : INFINITY;
    exo_array total = exo_student_gradient(s);
    exo_group *others = s->strategy ? NULL : group;
    exo_status st = sum_gradient(l, s, others, total, &own, err);
    if (st == EXO_OK)
        st = exo_clip_grad_norm(total, most, &length, err);
    if (st == EXO_OK && !is_harmless(l, length))
        st = exo_learner_sum_not_finite(l, is_harmless(l, own) ? others : NULL,
                                        s == &l->critic ? "the square of the critic's gradient"
                                                        : "the square of the gradient",
                                        err);
    if (st != EXO_OK || s->strategy)
        return st == EXO_OK ? exo_student_step_strategy(s, norm, err) : st;
    exo_optim_step(s->optim, exo_params_values_array(s->params), total, s->spec.lr);
    *norm = (double)length;
    return exo_optim_result(s->optim, err);
}

/* The tokens that the policy wrote and the answers of a minibatch, of all learners. */
static exo_status
count_minibatch(const exo_learner *l, exo_group *group, uint64_t m, float counts[2], exo_err *err)
{
    const exo_learner_batch *b = &l->batch;
    size_t tokens = 0, answers = 0;
    for (size_t s = 0; s < l->slices / l->size; s++) {
        size_t begin, end;
        exo_learner_cut(l, s, m, &begin, &end);
        answers += end - begin;
        for (size_t i = begin; i < end; i++)
            tokens += b->actions[b->bounds[s] + b->order[i]];
    }
    counts[0] = (float)tokens;
    counts[1] = (float)answers;
    return exo_learner_add_up(group, exo_host_array(EXO_F32, counts, 2), err);
}

/* Adds the gradient of a slice's texts in step `step` of the present update. */
static exo_status
add_ptx(exo_learner *l, size_t slice, uint64_t step, float *sums, exo_err *err)
{
    exo_ptx_place place = {.seed = l->seed,
                           .step = l->version * l->epochs * l->minibatches + step,
                           .slice = l->rank + slice * l->size,
                           .slices = l->slices};
    if (exo_learner_is_apart(l)) { /* nobody adds the other slices */
        place.slice = slice;
        place.slices = l->slices / l->size;
        place.stream = l->rank;
    }
    float loss = 0;
    exo_status st =
        exo_ptx_add(l->ptx, &place, l->actor.model, l->tape, l->actor.params, &loss, err);
    sums[EXO_STEP_PTX] += loss;
    return st;
}

/* Adds the gradients of all slices of this learner. */
static exo_status
add_slices(exo_learner *l, uint64_t m, uint64_t step, const float counts[2], float *sums,
           double *off, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t s = 0; st == EXO_OK && s < l->slices / l->size; s++) {
        exo_params_zero_grads(l->actor.params);
        if (l->critic.model)
            exo_params_zero_grads(l->critic.params);
        st = exo_learner_add_slice(l, s, m, (double)counts[0], (double)counts[1], sums, off, err);
        if (st == EXO_OK && l->ptx)
            st = add_ptx(l, s, step, sums, err);
        if (st == EXO_OK)
            add_up(&l->actor, s == 0);
        if (st == EXO_OK && l->critic.model)
            add_up(&l->critic, s == 0);
    }
    return st;
}

/* Adds the sums of a step to the figures. */
static void
take_sums(exo_learner_figures *f, const float *sums)
{
    double tokens = (double)sums[EXO_STEP_TOKENS], ratios = (double)sums[EXO_STEP_RATIOS];
    f->steps++;
    f->loss += (double)sums[EXO_STEP_LOSS];
    f->value_loss += (double)sums[EXO_STEP_VALUE_LOSS];
    f->ptx_loss += (double)sums[EXO_STEP_PTX];
    if (tokens <= 0)
        return;
    f->clipped += (double)sums[EXO_STEP_CLIPPED] / tokens;
    f->last_kl = (double)sums[EXO_STEP_KL] / tokens;
    if (f->steps > 1)
        return;
    f->kl_makers = f->last_kl;
    f->chi_squared = (double)sums[EXO_STEP_CHI] / tokens;
    f->effective = ratios * ratios / ((double)sums[EXO_STEP_SQUARES] * tokens);
}

static void
tell_step(const exo_learner *l, uint64_t step, bool end)
{
    if (l->callbacks.step)
        l->callbacks.step(l->callbacks.context, step, end);
}

/* A step of the optimizers. */
exo_status
exo_learner_step(exo_learner *l, exo_group *group, uint64_t m, exo_learner_figures *f, exo_err *err)
{
    float sums[EXO_STEP_SUMS] = {0}, counts[2];
    double later = 0, ignored = 0, *off = f->steps == 0 ? &f->ratio_off : &later;
    uint64_t number = f->steps;
    exo_status st = count_minibatch(l, group, m, counts, err);
    if (st != EXO_OK || counts[0] <= 0)
        return st == EXO_OK && exo_learner_is_apart(l) ? exo_learner_idle(l, 1, err) : st;
    tell_step(l, number, false);
    st = add_slices(l, m, f->steps, counts, sums, off, err);
    /* not after the sum, which would make every learner name items of its own */
    if (st == EXO_OK && !isfinite(sums[EXO_STEP_LOSS]))
        st = exo_learner_not_finite(l, "the loss", "", err);
    if (st == EXO_OK)
        st = exo_learner_add_up(group, exo_host_array(EXO_F32, sums, EXO_STEP_SUMS), err);
    if (st == EXO_OK && !isfinite(sums[EXO_STEP_LOSS]))
        st = exo_learner_sum_not_finite(l, group, "the loss", err);
    if (st == EXO_OK)
        st = student_step(l, &l->actor, group, &f->norm, err);
    if (st == EXO_OK && l->critic.model)
        st = student_step(l, &l->critic, group, &ignored, err);
    if (st == EXO_OK)
        take_sums(f, sums);
    tell_step(l, number, true);
    return st;
}
