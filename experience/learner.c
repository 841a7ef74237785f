/* Learners: see learner.h. */
#include "experience/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/loss.h>
#include <exogym/memory.h>
#include <exogym/optim.h>
#include <exogym/rng.h>
#include <exogym/state.h>

#include "base/config_edit.h"
#include "experience/named_model.h"
#include "experience/rows.h"

enum {
    MAX_SLICES = 1024
};

enum algorithm {
    GRPO,
    RLOO,
    REINFORCE,
};
static const char *const algorithms[] = {"grpo", "rloo", "reinforce", NULL};

/* The sums of a step that learners add up. */
enum {
    WEIGHT,
    LOSS,
    CLIPPED,
    NUM_SUMS
};

struct exo_learner {
    exo_model *model;
    size_t algorithm;
    double clip, kl_coef, max_norm;
    uint64_t epochs, minibatches, slices, rows_a_pass;
    exo_optim_spec optimizer;
    uint64_t seed, version;
    uint32_t rank, size;
    exo_params *params, *reference; /* reference: version 0; NULL: not needed */
    exo_optim *optim;
    exo_array sum; /* of the gradients of this learner's slices; no elements: it has one slice */
    exo_tape *tape;
    struct exo_rows rows;
    /* Of an update: the answers by slice, with the advantage of each. */
    exo_pick *picks;    /* (num_picks) */
    double *advantages; /* (num_picks) */
    size_t *bounds;     /* (local slices + 1) the first pick of each slice */
    uint32_t *order;    /* (num_picks) of a slice in an epoch */
    size_t num_picks, room;
    float *row_values; /* (rows.room) */
    size_t row_room;
    float *advantage_rows; /* (rows.room) */
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_algorithm(exo_learner *l, exo_config *config, exo_err *err)
{
    exo_config *node = exo_config_get(config, "algorithm");
    exo_config *map = node && exo_config_is_map(node) ? node : NULL;
    exo_status st = exo_config_choice(map ? map : config, map ? "name" : "algorithm", GRPO,
                                      algorithms, &l->algorithm, err);
    l->clip = 0.2;
    if (st == EXO_OK && map)
        st = exo_config_double(map, "clip", 0.2, 0, 1e6, &l->clip, err);
    if (st == EXO_OK && map)
        st = exo_config_double(map, "kl_coef", 0, 0, 1e6, &l->kl_coef, err);
    return st == EXO_OK && map ? exo_config_finish(map, err) : st;
}

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

exo_status
exo_learner_read(exo_learner **out, exo_config *config, exo_err *err)
{
    exo_optim_spec fallback = exo_optim_spec_init(EXO_ADAMW);
    exo_learner *l = exo_calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a learner");
    fallback.lr = 1e-4f;
    fallback.weight_decay = 0;
    exo_status st = exo_named_model_read(&l->model, config, "model", err);
    if (st == EXO_OK && !l->model)
        st = exo_config_fail(config, err, "the key 'model' is missing: model: {name: gpt, ...}");
    if (st == EXO_OK && !exo_decoder_spec_of(l->model))
        st = exo_config_fail(config, err, "model: '%s' is no language model; use gpt",
                             exo_model_name(l->model));
    if (st == EXO_OK)
        st = read_algorithm(l, config, err);
    if (st == EXO_OK)
        st = read_counts(l, config, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(config, "optimizer", &fallback, &l->optimizer, err);
    if (st == EXO_OK)
        st = exo_optim_groups_check(&l->optimizer, exo_model_infos(l->model),
                                    exo_model_num_infos(l->model), err);
    if (st == EXO_OK)
        *out = l;
    else
        exo_learner_free(&l);
    return st;
}

/* --- Life ------------------------------------------------------------------------------------- */

void
exo_learner_free(exo_learner **learner)
{
    exo_learner *l = *learner;
    *learner = NULL;
    if (!l)
        return;
    exo_rows_release(&l->rows);
    exo_free(l->picks);
    exo_free(l->advantages);
    exo_free(l->bounds);
    exo_free(l->order);
    exo_free(l->row_values);
    exo_free(l->advantage_rows);
    exo_array_release(&l->sum);
    exo_optim_free(&l->optim);
    exo_tape_free(&l->tape);
    exo_params_free(&l->params);
    exo_params_free(&l->reference);
    exo_optim_spec_release(&l->optimizer);
    exo_model_drop(&l->model);
    exo_free(l);
}

exo_status
exo_learner_start(exo_learner *l, uint64_t seed, uint32_t rank, uint32_t size, exo_err *err)
{
    l->seed = seed;
    l->rank = rank;
    l->size = size;
    if (l->slices == 0)
        l->slices = size;
    if (l->slices % size != 0)
        return exo_fail(err, EXO_INVAL, "slices: %llu is no multiple of the %u trainers",
                        (unsigned long long)l->slices, size);
    exo_status st = exo_model_params(l->model, seed, &l->params, err);
    if (st == EXO_OK && l->kl_coef > 0)
        st = exo_model_values(l->model, seed, &l->reference, err);
    if (st == EXO_OK)
        st = exo_optim_new_grouped(&l->optim, &l->optimizer, exo_model_infos(l->model),
                                   exo_model_num_infos(l->model), exo_device_cpu(), 0,
                                   exo_model_numel(l->model), err);
    if (st == EXO_OK && l->slices / size > 1)
        st = exo_array_init(&l->sum, exo_device_cpu(), EXO_F32, exo_model_numel(l->model), err);
    if (st == EXO_OK)
        st = exo_tape_new(&l->tape, err);
    l->bounds = st == EXO_OK ? exo_calloc(l->slices / size + 1, sizeof *l->bounds) : NULL;
    return st == EXO_OK && !l->bounds ? exo_fail(err, EXO_NOMEM, "no memory for slices") : st;
}

const float *
exo_learner_values(const exo_learner *l)
{
    return exo_params_values(l->params);
}

size_t
exo_learner_numel(const exo_learner *l)
{
    return exo_model_numel(l->model);
}

uint64_t
exo_learner_version(const exo_learner *l)
{
    return l->version;
}

void
exo_learner_sha256(const exo_learner *l, char out[65])
{
    exo_sha256(exo_params_values(l->params), exo_learner_numel(l) * sizeof(float), out);
}

exo_model *
exo_learner_model(const exo_learner *l)
{
    return l->model;
}

exo_params *
exo_learner_params(exo_learner *l)
{
    return l->params;
}

/* --- Passes ----------------------------------------------------------------------------------- */

static float
temperature_of(const exo_experience *e)
{
    return e->filtered || e->temperature == 0 ? 1 : e->temperature;
}

static exo_status
make_row_room(exo_learner *l, exo_err *err)
{
    if (l->row_room >= l->rows.room)
        return EXO_OK;
    exo_free(l->row_values);
    exo_free(l->advantage_rows);
    l->row_values = exo_calloc(l->rows.room, sizeof *l->row_values);
    l->advantage_rows = exo_calloc(l->rows.room, sizeof *l->advantage_rows);
    l->row_room = l->row_values && l->advantage_rows ? l->rows.room : 0;
    return l->row_room ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for rows");
}

/* Lays out picks and begins a pass; *log_probs (N T) are those of the actions. */
static exo_status
forward(exo_learner *l, exo_params *params, const exo_pick *picks, size_t count, bool grad,
        exo_tensor **log_probs, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(l->model);
    const exo_pass pass = {.grad = grad, .seed = l->seed};
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    exo_status st = exo_rows_fill(&l->rows, picks, count, spec->context, err);
    if (st == EXO_OK)
        st = make_row_room(l, err);
    if (st != EXO_OK)
        return st;
    exo_batch batch = exo_rows_batch(&l->rows);
    size_t rows = l->rows.answers * l->rows.length;
    exo_tape_begin(l->tape, params, &pass);
    if (!exo_model_forward(l->model, l->tape, &batch, &outputs))
        return exo_tape_error(l->tape, err);
    exo_tensor *targets = exo_tape_input(l->tape, EXO_I32, 1, &rows, l->rows.targets);
    *log_probs = exo_log_probs(l->tape, exo_outputs_logits(&outputs, "logits"), targets,
                               temperature_of(picks[0].from));
    if (!*log_probs)
        return exo_tape_error(l->tape, err);
    exo_tensor_read(*log_probs, l->row_values);
    return EXO_OK;
}

/* Adds the penalty -kl_coef sum(log p - log p_0) of the answers [first, first + count) to their
 * scores in `scores`, and the sum of log p - log p_0 to *kl. */
static exo_status
penalize(exo_learner *l, size_t first, size_t count, double *scores, double *kl, exo_err *err)
{
    exo_tensor *log_probs = NULL;
    exo_status st = forward(l, l->reference, l->picks + first, count, false, &log_probs, err);
    for (size_t n = 0; st == EXO_OK && n < count; n++) {
        const exo_pick *p = &l->picks[first + n];
        size_t row = exo_rows_first(&l->rows, l->picks + first, n);
        double sum = 0;
        for (int32_t i = 0; i < p->from->lengths[p->answer]; i++, row++)
            sum += (double)l->rows.behaviour[row] - (double)l->row_values[row];
        scores[first + n] -= l->kl_coef * sum;
        *kl += sum;
    }
    return st;
}

/* --- Advantages ------------------------------------------------------------------------------- */

/* The advantages of the answers of one item, from their scores (count). */
static void
advantages_of(const exo_learner *l, const double *scores, size_t count, double *out)
{
    double sum = 0, squares = 0, n = (double)count;
    for (size_t i = 0; i < count; i++)
        sum += scores[i];
    for (size_t i = 0; i < count; i++)
        squares += (scores[i] - sum / n) * (scores[i] - sum / n);
    double deviation = count > 1 ? sqrt(squares / (n - 1)) : 0;
    for (size_t i = 0; i < count; i++) {
        if (l->algorithm == GRPO)
            out[i] = (scores[i] - sum / n) / (deviation + 1e-4);
        else if (l->algorithm == RLOO && count > 1)
            out[i] = scores[i] - (sum - scores[i]) / (n - 1);
        else
            out[i] = scores[i];
    }
}

/* Lists the answers by slice, in the order of the items' ids, and computes their advantages. */
static exo_status
list_answers(exo_learner *l, exo_experience *items, size_t count, exo_err *err)
{
    size_t answers = 0, local = (size_t)(l->slices / l->size);
    for (size_t i = 0; i < count; i++)
        answers += items[i].answers;
    if (answers > l->room) {
        exo_free(l->picks);
        exo_free(l->advantages);
        exo_free(l->order);
        l->picks = exo_calloc(answers, sizeof *l->picks);
        l->advantages = exo_calloc(answers, sizeof *l->advantages);
        l->order = exo_calloc(answers, sizeof *l->order);
        l->room = l->picks && l->advantages && l->order ? answers : 0;
        if (!l->room)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu answers", answers);
    }
    l->num_picks = 0;
    for (size_t slice = 0; slice < local; slice++) {
        l->bounds[slice] = l->num_picks;
        for (size_t i = 0; i < count; i++) {
            if (items[i].id % l->slices != l->rank + slice * l->size)
                continue;
            size_t first = 0;
            for (size_t a = 0; a < items[i].answers; a++) {
                l->picks[l->num_picks++] =
                    (exo_pick){.from = &items[i], .answer = a, .first = first};
                first += (size_t)items[i].lengths[a];
            }
        }
    }
    l->bounds[local] = l->num_picks;
    if (l->num_picks != answers)
        return exo_fail(err, EXO_INVAL,
                        "an item came to trainer %u whose slice another trainer has: with several "
                        "trainers, item i must go to trainer i mod %u",
                        l->rank, l->size);
    return EXO_OK;
}

static int
compare_ids(const void *a, const void *b)
{
    const exo_experience *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static exo_status
prepare(exo_learner *l, exo_experience *items, size_t count, double *kl, exo_err *err)
{
    qsort(items, count, sizeof *items, compare_ids);
    exo_status st = list_answers(l, items, count, err);
    double *scores = st == EXO_OK ? exo_calloc(l->num_picks + 1, sizeof *scores) : NULL;
    if (st == EXO_OK && !scores)
        st = exo_fail(err, EXO_NOMEM, "no memory for scores");
    for (size_t i = 0; st == EXO_OK && i < l->num_picks; i++)
        scores[i] = l->picks[i].from->scores[l->picks[i].answer];
    for (size_t i = 0; st == EXO_OK && l->reference && i < l->num_picks; i += l->rows_a_pass) {
        size_t left = l->num_picks - i;
        st = penalize(l, i, left < l->rows_a_pass ? left : (size_t)l->rows_a_pass, scores, kl, err);
    }
    for (size_t i = 0; st == EXO_OK && i < l->num_picks; i += l->picks[i].from->answers)
        advantages_of(l, scores + i, l->picks[i].from->answers, l->advantages + i);
    exo_free(scores);
    return st;
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* The sums of a pass over the actions, and the largest deviation of a ratio from 1. */
static void
look(const exo_learner *l, float *sums, double *off)
{
    size_t rows = l->rows.answers * l->rows.length;
    for (size_t i = 0; i < rows; i++) {
        if (l->rows.weights[i] == 0)
            continue;
        double ratio = exp((double)l->row_values[i] - (double)l->rows.behaviour[i]);
        sums[CLIPPED] += fabs(ratio - 1) > l->clip ? 1 : 0;
        *off = fabs(ratio - 1) > *off ? fabs(ratio - 1) : *off;
    }
}

/* Adds the gradient of the loss, summed over the actions of answers (count), to the parameters'
 * gradients. */
static exo_status
add_gradient(exo_learner *l, const exo_pick *picks, const double *advantages, size_t count,
             float *sums, double *off, exo_err *err)
{
    exo_tensor *log_probs = NULL;
    exo_status st = forward(l, l->params, picks, count, true, &log_probs, err);
    if (st != EXO_OK)
        return st;
    look(l, sums, off);
    size_t rows = l->rows.answers * l->rows.length;
    for (size_t n = 0; n < count; n++)
        for (size_t t = 0; t < l->rows.length; t++)
            l->advantage_rows[n * l->rows.length + t] = (float)advantages[n];
    exo_tensor *old = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->rows.behaviour);
    exo_tensor *advantage = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->advantage_rows);
    exo_tensor *mask = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->rows.weights);
    exo_tensor *loss = exo_policy_loss(l->tape, log_probs, old, advantage, mask, (float)l->clip);
    if (!loss)
        return exo_tape_error(l->tape, err);
    float weight = (float)l->rows.actions;
    sums[WEIGHT] += weight;
    sums[LOSS] += weight * exo_tensor_item(loss);
    return exo_tape_backward(l->tape, loss, weight, err);
}

/* Adds the gradient of minibatch `m` of a slice. */
static exo_status
add_slice(exo_learner *l, size_t slice, uint64_t m, float *sums, double *off, exo_err *err)
{
    size_t first = l->bounds[slice], n = l->bounds[slice + 1] - first;
    size_t begin = (size_t)(m * n / l->minibatches), end = (size_t)((m + 1) * n / l->minibatches);
    exo_status st = EXO_OK;
    exo_pick *picks = exo_calloc(l->rows_a_pass, sizeof *picks);
    double *advantages = exo_calloc(l->rows_a_pass, sizeof *advantages);
    if (!picks || !advantages)
        st = exo_fail(err, EXO_NOMEM, "no memory for a pass");
    while (st == EXO_OK && begin < end) {
        size_t count = end - begin < l->rows_a_pass ? end - begin : (size_t)l->rows_a_pass;
        for (size_t i = 0; i < count; i++) {
            size_t at = first + l->order[first + begin + i];
            picks[i] = l->picks[at];
            advantages[i] = l->advantages[at];
        }
        st = add_gradient(l, picks, advantages, count, sums, off, err);
        begin += count;
    }
    exo_free(picks);
    exo_free(advantages);
    return st;
}

/* The order of the answers of each slice in an epoch: that of the ids in the first, then drawn. */
static void
draw_orders(exo_learner *l, uint64_t epoch)
{
    exo_rng rng;
    for (size_t s = 0; s < l->slices / l->size; s++) {
        uint32_t *order = l->order + l->bounds[s];
        size_t n = l->bounds[s + 1] - l->bounds[s];
        uint64_t slice = l->rank + s * l->size;
        for (size_t i = 0; i < n; i++)
            order[i] = (uint32_t)i;
        exo_rng_init(&rng, l->seed, EXO_RNG_SHUFFLE, 1 + (uint32_t)slice,
                     l->version * l->epochs + epoch);
        if (epoch > 0 && n > 0)
            exo_rng_permutation(&rng, order, (uint32_t)n);
    }
}

static exo_status
all_reduce(exo_group *group, exo_array data, exo_err *err)
{
    return group ? exo_all_reduce(group, data, EXO_SUM, err) : EXO_OK;
}

/* One step of the optimizer. */
static exo_status
take_step(exo_learner *l, exo_group *group, uint64_t m, exo_learner_figures *f, exo_err *err)
{
    float sums[NUM_SUMS] = {0};
    exo_array grads = exo_params_grads_array(l->params);
    exo_array total = l->sum.count ? l->sum : grads;
    exo_status st = EXO_OK;
    for (size_t s = 0; st == EXO_OK && s < l->slices / l->size; s++) {
        exo_params_zero_grads(l->params);
        st = add_slice(l, s, m, sums, &f->ratio_off, err);
        if (st == EXO_OK && l->sum.count && s == 0)
            exo_vec_copy(l->sum, grads);
        else if (st == EXO_OK && l->sum.count)
            exo_vec_add(l->sum, l->sum, grads);
    }
    if (st == EXO_OK)
        st = all_reduce(group, total, err);
    if (st == EXO_OK)
        st = all_reduce(group, exo_host_array(EXO_F32, sums, NUM_SUMS), err);
    if (st != EXO_OK || sums[WEIGHT] <= 0)
        return st;
    if (!isfinite(sums[LOSS]))
        return exo_fail(err, EXO_FAILED, "the loss of version %llu is not finite",
                        (unsigned long long)l->version);
    float norm = 0;
    exo_vec_divide(total, sums[WEIGHT]);
    st = exo_clip_grad_norm(total, l->max_norm > 0 ? (float)l->max_norm : INFINITY, &norm, err);
    if (st == EXO_OK)
        exo_optim_step(l->optim, exo_params_values_array(l->params), total, l->optimizer.lr);
    f->norm = (double)norm;
    f->loss += (double)sums[LOSS] / (double)sums[WEIGHT];
    f->clipped += (double)sums[CLIPPED] / (double)sums[WEIGHT];
    return st == EXO_OK ? exo_optim_result(l->optim, err) : st;
}

/* --- Updates ---------------------------------------------------------------------------------- */

/* Adds up what the learners' items are. */
static exo_status
count_all(exo_group *group, const exo_experience *items, size_t count, double kl,
          exo_learner_figures *f, exo_err *err)
{
    enum {
        ITEMS,
        ANSWERS,
        TOKENS,
        SCORE,
        KL,
        COUNT
    };
    float sums[COUNT] = {[ITEMS] = (float)count, [KL] = (float)kl};
    double score = 0;
    for (size_t i = 0; i < count; i++) {
        sums[ANSWERS] += (float)items[i].answers;
        sums[TOKENS] += (float)items[i].tokens_length;
        for (size_t a = 0; a < items[i].answers; a++)
            score += items[i].scores[a];
    }
    sums[SCORE] = (float)score;
    exo_status st = all_reduce(group, exo_host_array(EXO_F32, sums, COUNT), err);
    if (st != EXO_OK)
        return st;
    f->items = (double)sums[ITEMS];
    f->answers = (double)sums[ANSWERS];
    f->tokens = (double)sums[TOKENS];
    f->score = f->answers > 0 ? (double)sums[SCORE] / f->answers : 0;
    f->kl = f->tokens > 0 ? (double)sums[KL] / f->tokens : 0;
    return EXO_OK;
}

exo_status
exo_learner_update(exo_learner *l, exo_group *group, exo_experience *items, size_t count,
                   exo_learner_figures *figures, exo_err *err)
{
    double kl = 0, off = 0;
    *figures = (exo_learner_figures){0};
    exo_status st = prepare(l, items, count, &kl, err);
    if (st == EXO_OK)
        st = count_all(group, items, count, kl, figures, err);
    if (st != EXO_OK || figures->items <= 0)
        return st;
    for (uint64_t e = 0; st == EXO_OK && e < l->epochs; e++) {
        draw_orders(l, e);
        for (uint64_t m = 0; st == EXO_OK && m < l->minibatches; m++) {
            st = take_step(l, group, m, figures, err);
            if (e == 0 && m == 0)
                off = figures->ratio_off;
        }
    }
    double steps = (double)(l->epochs * l->minibatches);
    figures->ratio_off = off;
    figures->loss /= steps;
    figures->clipped /= steps;
    if (st == EXO_OK)
        l->version++;
    return st;
}
