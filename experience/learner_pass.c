/* The passes of a learner through its models. See learner_impl.h. */
#include <math.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/loss.h>
#include <exogym/memory.h>

#include "experience/learner_impl.h"

static float
temperature_of(const exo_experience *e)
{
    return e->filtered || e->temperature == 0 ? 1 : e->temperature;
}

static exo_status
make_row_room(exo_learner *l, exo_err *err)
{
    float **arrays[] = {&l->row_values, &l->row_advantages, &l->row_returns, &l->row_old_values};
    bool good = true;
    if (l->row_room >= l->rows.room)
        return EXO_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        exo_free(*arrays[i]);
        *arrays[i] = exo_calloc(l->rows.room, sizeof **arrays[i]);
        good = good && *arrays[i];
    }
    l->row_room = good ? l->rows.room : 0;
    return good ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu rows", l->rows.room);
}

static size_t
num_rows(const exo_learner *l)
{
    return l->rows.answers * l->rows.length;
}

/* Lays out answers for a pass. */
static exo_status
lay_out(exo_learner *l, const exo_pick *picks, size_t count, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(l->actor.model);
    exo_status st = exo_rows_fill(&l->rows, picks, count, spec->context, err);
    return st == EXO_OK ? make_row_room(l, err) : st;
}

/* Begins a pass over the rows and computes outputs. */
static exo_status
pass_over(exo_learner *l, const exo_model *model, exo_params *params, bool grad,
          exo_outputs *outputs, exo_err *err)
{
    const exo_pass pass = {.grad = grad, .invariant = true, .seed = l->seed};
    exo_batch batch = exo_rows_batch(&l->rows);
    exo_tape_begin(l->tape, params, &pass);
    return exo_model_forward(model, l->tape, &batch, outputs) ? EXO_OK
                                                              : exo_tape_error(l->tape, err);
}

exo_status
exo_learner_forward(exo_learner *l, exo_params *params, const exo_pick *picks, size_t count,
                    bool grad, exo_tensor **log_probs, exo_logits *logits, exo_tensor **values,
                    exo_err *err)
{
    bool shared = values && exo_learner_has_critic(l) && !l->critic.model;
    exo_outputs outputs =
        exo_outputs_init((const char *const[]){"logits", shared ? "values" : NULL, NULL});
    exo_status st = lay_out(l, picks, count, err);
    if (st == EXO_OK)
        st = pass_over(l, l->actor.model, params, grad, &outputs, err);
    if (st != EXO_OK)
        return st;
    size_t rows = num_rows(l);
    exo_tensor *targets = exo_tape_input(l->tape, EXO_I32, 1, &rows, l->rows.targets);
    *logits = exo_outputs_logits(&outputs, "logits");
    *log_probs = exo_log_probs(l->tape, *logits, targets, temperature_of(picks[0].from));
    if (values)
        *values = shared ? exo_outputs_get(&outputs, "values") : NULL;
    if (!*log_probs || (shared && !*values))
        return exo_tape_error(l->tape, err);
    exo_tensor_read(*log_probs, l->row_values);
    return EXO_OK;
}

/* --- Before an update ------------------------------------------------------------------------- */

/* Copies numbers of the rows of answers to their tokens. */
static void
take_rows(const exo_learner *l, size_t first, size_t count, const float *in, float *out)
{
    const exo_learner_batch *b = &l->batch;
    for (size_t n = 0; n < count; n++) {
        size_t length = b->tokens[first + n + 1] - b->tokens[first + n];
        memcpy(out + b->tokens[first + n], in + exo_rows_first(&l->rows, b->picks + first, n),
               length * sizeof *out);
    }
}

/* The log-probabilities of version 0, turned into kl. */
static exo_status
look_at_reference(exo_learner *l, size_t first, size_t count, double *kl, exo_err *err)
{
    exo_learner_batch *b = &l->batch;
    exo_tensor *log_probs = NULL;
    exo_logits logits;
    exo_status st = exo_learner_forward(l, l->reference, b->picks + first, count, false, &log_probs,
                                        &logits, NULL, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < num_rows(l); i++)
        l->row_values[i] = l->rows.behaviour[i] - l->row_values[i];
    take_rows(l, first, count, l->row_values, b->kl);
    for (size_t i = b->tokens[first]; i < b->tokens[first + count]; i++)
        *kl += (double)b->kl[i];
    return EXO_OK;
}

static exo_status
look_at_values(exo_learner *l, size_t first, size_t count, exo_err *err)
{
    exo_student *critic = exo_learner_critic(l);
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = lay_out(l, l->batch.picks + first, count, err);
    if (st == EXO_OK)
        st = pass_over(l, critic->model, critic->params, false, &outputs, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *values = exo_outputs_get(&outputs, "values");
    if (!values)
        return exo_tape_error(l->tape, err);
    exo_tensor_read(values, l->row_values);
    take_rows(l, first, count, l->row_values, l->batch.values);
    return EXO_OK;
}

exo_status
exo_learner_look(exo_learner *l, double *kl, exo_err *err)
{
    exo_learner_batch *b = &l->batch;
    exo_status st = EXO_OK;
    memset(b->kl, 0, b->tokens[b->count] * sizeof *b->kl);
    for (size_t i = 0, n; st == EXO_OK && i < b->count; i += n) {
        n = b->count - i < l->rows_a_pass ? b->count - i : (size_t)l->rows_a_pass;
        if (l->reference)
            st = look_at_reference(l, i, n, kl, err);
        if (st == EXO_OK && exo_learner_has_critic(l))
            st = look_at_values(l, i, n, err);
    }
    return st;
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* Copies what is known of the tokens of answers (count numbers of the batch) to their rows. */
static void
fill_rows(exo_learner *l, const size_t *answers, size_t count, const exo_pick *picks)
{
    const exo_learner_batch *b = &l->batch;
    memset(l->row_advantages, 0, num_rows(l) * sizeof *l->row_advantages);
    memset(l->row_returns, 0, num_rows(l) * sizeof *l->row_returns);
    memset(l->row_old_values, 0, num_rows(l) * sizeof *l->row_old_values);
    for (size_t n = 0; n < count; n++) {
        size_t token = b->tokens[answers[n]], row = exo_rows_first(&l->rows, picks, n);
        size_t bytes = (b->tokens[answers[n] + 1] - token) * sizeof(float);
        memcpy(l->row_advantages + row, b->advantages + token, bytes);
        memcpy(l->row_returns + row, b->returns + token, bytes);
        memcpy(l->row_old_values + row, b->values + token, bytes);
    }
}

/* Counts ratios beyond the clip, and the largest deviation of a ratio from 1. */
static void
look_at_ratios(const exo_learner *l, float *sums, double *off)
{
    for (size_t i = 0; i < num_rows(l); i++) {
        if (l->rows.targets[i] < 0)
            continue;
        double apart = fabs(exp((double)l->row_values[i] - (double)l->rows.behaviour[i]) - 1);
        sums[EXO_STEP_CLIPPED] += apart > l->clip ? 1 : 0;
        *off = apart > *off ? apart : *off;
    }
}

static exo_tensor *
input(exo_learner *l, const float *rows)
{
    size_t count = num_rows(l);
    return exo_tape_input(l->tape, EXO_F32, 1, &count, rows);
}

static exo_tensor *
value_loss(exo_learner *l, exo_tensor *values, float *sums)
{
    exo_tensor *loss =
        exo_value_loss(l->tape, values, input(l, l->row_old_values), input(l, l->row_returns),
                       input(l, l->rows.weights), (float)l->value_clip);
    if (loss)
        sums[EXO_STEP_VALUE_LOSS] += (float)l->rows.actions * exo_tensor_item(loss);
    return loss;
}

/* The gradient of the actor, and of values that it gives. */
static exo_status
add_actor(exo_learner *l, const exo_pick *picks, const size_t *answers, size_t count, float *sums,
          double *off, exo_err *err)
{
    exo_tensor *log_probs = NULL, *values = NULL;
    exo_logits logits;
    exo_status st = exo_learner_forward(l, l->actor.params, picks, count, true, &log_probs, &logits,
                                        &values, err);
    if (st != EXO_OK)
        return st;
    fill_rows(l, answers, count, picks);
    look_at_ratios(l, sums, off);
    float weight = (float)l->rows.actions;
    exo_tensor *loss =
        exo_policy_loss(l->tape, log_probs, input(l, l->rows.behaviour),
                        input(l, l->row_advantages), input(l, l->rows.weights), (float)l->clip);
    if (loss) {
        sums[EXO_STEP_WEIGHT] += weight;
        sums[EXO_STEP_LOSS] += weight * exo_tensor_item(loss);
    }
    if (values)
        loss = exo_add(l->tape, loss,
                       exo_scale(l->tape, value_loss(l, values, sums), (float)l->value_coef));
    return loss ? exo_tape_backward(l->tape, loss, weight, err) : exo_tape_error(l->tape, err);
}

/* The gradient of a critic of its own, over the rows of the actor's pass. */
static exo_status
add_critic(exo_learner *l, float *sums, exo_err *err)
{
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = pass_over(l, l->critic.model, l->critic.params, true, &outputs, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *loss = value_loss(l, exo_outputs_get(&outputs, "values"), sums);
    return loss ? exo_tape_backward(l->tape, loss, (float)l->rows.actions, err)
                : exo_tape_error(l->tape, err);
}

exo_status
exo_learner_add_slice(exo_learner *l, size_t slice, uint64_t m, float *sums, double *off,
                      exo_err *err)
{
    const exo_learner_batch *b = &l->batch;
    size_t first = b->bounds[slice], n = b->bounds[slice + 1] - first;
    size_t begin = (size_t)(m * n / l->minibatches), end = (size_t)((m + 1) * n / l->minibatches);
    exo_status st = EXO_OK;
    exo_pick *picks = exo_calloc(l->rows_a_pass, sizeof *picks);
    size_t *answers = exo_calloc(l->rows_a_pass, sizeof *answers);
    if (!picks || !answers)
        st = exo_fail(err, EXO_NOMEM, "no memory for a pass");
    while (st == EXO_OK && begin < end) {
        size_t count = end - begin < l->rows_a_pass ? end - begin : (size_t)l->rows_a_pass;
        for (size_t i = 0; i < count; i++) {
            answers[i] = first + b->order[first + begin + i];
            picks[i] = b->picks[answers[i]];
        }
        st = add_actor(l, picks, answers, count, sums, off, err);
        if (st == EXO_OK && l->critic.model)
            st = add_critic(l, sums, err);
        begin += count;
    }
    exo_free(picks);
    exo_free(answers);
    return st;
}
