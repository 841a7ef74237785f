/* The passes of a learner through its models. See learner_impl.h. */
#include <math.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/loss.h>
#include <exogym/memory.h>

#include "experience/learner_impl.h"

enum {
    ROW_ARRAYS = 9
};

/* --- Rows ------------------------------------------------------------------------------------- */

static void
row_arrays(exo_learner *l, float **out[ROW_ARRAYS])
{
    float **arrays[ROW_ARRAYS] = {&l->row_log_probs,  &l->row_advantages, &l->row_returns,
                                  &l->row_old_values, &l->row_reference,  &l->row_proximal,
                                  &l->row_old,        &l->row_importance, &l->row_weights};
    memcpy(out, arrays, sizeof arrays);
}

void
exo_learner_release_rows(exo_learner *l)
{
    float **arrays[ROW_ARRAYS];
    row_arrays(l, arrays);
    for (size_t i = 0; i < ROW_ARRAYS; i++) {
        exo_free(*arrays[i]);
        *arrays[i] = NULL;
    }
    exo_free(l->row_versions);
    exo_free(l->row_offsets);
    l->row_versions = NULL;
    l->row_offsets = NULL;
    l->row_room = 0;
}

static exo_status
make_row_room(exo_learner *l, exo_err *err)
{
    float **arrays[ROW_ARRAYS];
    size_t room = l->rows.room;
    if (l->row_room >= room)
        return EXO_OK;
    exo_learner_release_rows(l);
    row_arrays(l, arrays);
    l->row_versions = exo_calloc(room, sizeof *l->row_versions);
    l->row_offsets = exo_calloc(l->rows_a_pass + 1, sizeof *l->row_offsets);
    bool good = l->row_versions && l->row_offsets;
    for (size_t i = 0; i < ROW_ARRAYS; i++) {
        *arrays[i] = exo_calloc(room, sizeof **arrays[i]);
        good = good && *arrays[i];
    }
    l->row_room = good ? room : 0;
    return good ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu rows", room);
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
    if (st == EXO_OK)
        st = make_row_room(l, err);
    for (size_t n = 0; st == EXO_OK && n <= count; n++)
        l->row_offsets[n] = n * l->rows.length;
    return st;
}

static exo_token_batch
row_batch(const exo_learner *l)
{
    return (exo_token_batch){
        .sequences = l->rows.answers, .offsets = l->row_offsets, .mask = l->rows.mask};
}

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

/* Copies numbers of the tokens of answers (count numbers of the batch) to their rows. */
static void
put_rows(const exo_learner *l, const exo_pick *picks, const size_t *answers, size_t count,
         const float *in, float *out)
{
    const exo_learner_batch *b = &l->batch;
    for (size_t n = 0; n < count; n++) {
        size_t token = b->tokens[answers[n]], length = b->tokens[answers[n] + 1] - token;
        memcpy(out + exo_rows_first(&l->rows, picks, n), in + token, length * sizeof *out);
    }
}

/* --- Passes ----------------------------------------------------------------------------------- */

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

/* Computes the log-probabilities of the rows' tokens, which l->row_log_probs gets, in a pass of the
 * model that also gives the other outputs. */
static exo_status
log_probs_of(exo_learner *l, const exo_model *model, exo_params *params, const exo_experience *e,
             bool grad, exo_outputs *outputs, exo_tensor **out, exo_err *err)
{
    size_t rows = num_rows(l);
    exo_status st = pass_over(l, model, params, grad, outputs, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *targets = exo_tape_input(l->tape, EXO_I32, 1, &rows, l->rows.targets);
    *out = exo_log_probs(l->tape, exo_outputs_logits(outputs, "logits"), targets,
                         exo_learner_temperature(e));
    if (!*out)
        return exo_tape_error(l->tape, err);
    exo_tensor_read(*out, l->row_log_probs);
    return exo_tape_error(l->tape, err);
}

/* --- Before an update ------------------------------------------------------------------------- */

/* Log-probabilities of answers under `params` of a model. */
static exo_status
look_at_policy(exo_learner *l, const exo_model *model, exo_params *params, size_t first,
               size_t count, float *out, exo_err *err)
{
    exo_tensor *log_probs = NULL;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    exo_status st = log_probs_of(l, model, params, l->batch.picks[first].from, false, &outputs,
                                 &log_probs, err);
    if (st == EXO_OK)
        take_rows(l, first, count, l->row_log_probs, out);
    return st;
}

exo_status
exo_learner_read_answers(exo_learner *l, bool initial, const exo_pick *picks, size_t count,
                         float *out, exo_err *err)
{
    exo_tensor *log_probs = NULL;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    const exo_model *model = initial && l->initial ? l->initial : l->actor.model;
    exo_params *params = initial ? l->reference : l->actor.params;
    exo_status st = EXO_OK;
    for (size_t i = 0, n; st == EXO_OK && i < count; i += n) {
        n = count - i < l->rows_a_pass ? count - i : (size_t)l->rows_a_pass;
        st = lay_out(l, picks + i, n, err);
        if (st == EXO_OK)
            st = log_probs_of(l, model, params, picks[i].from, false, &outputs, &log_probs, err);
        for (size_t k = 0; st == EXO_OK && k < n; k++) {
            size_t length = (size_t)picks[i + k].from->lengths[picks[i + k].answer];
            memcpy(out, l->row_log_probs + exo_rows_first(&l->rows, picks + i, k),
                   length * sizeof *out);
            out += length;
        }
    }
    return st;
}

static exo_status
look_at_values(exo_learner *l, size_t first, size_t count, exo_err *err)
{
    exo_student *critic = exo_learner_critic(l);
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = pass_over(l, critic->model, critic->params, false, &outputs, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *values = exo_outputs_get(&outputs, "values");
    if (!values)
        return exo_tape_error(l->tape, err);
    exo_tensor_read(values, l->row_old_values);
    take_rows(l, first, count, l->row_old_values, l->batch.values);
    return exo_tape_error(l->tape, err);
}

exo_status
exo_learner_look(exo_learner *l, exo_err *err)
{
    exo_learner_batch *b = &l->batch;
    exo_status st = EXO_OK;
    for (size_t i = 0, n; st == EXO_OK && i < b->count; i += n) {
        n = b->count - i < l->rows_a_pass ? b->count - i : (size_t)l->rows_a_pass;
        st = lay_out(l, b->picks + i, n, err);
        if (st == EXO_OK && l->reference)
            st = look_at_policy(l, l->initial ? l->initial : l->actor.model, l->reference, i, n,
                                b->reference, err);
        if (st == EXO_OK && exo_objective_needs_proximal(&l->objective))
            st = look_at_policy(l, l->actor.model, l->actor.params, i, n, b->proximal, err);
        if (st == EXO_OK && exo_learner_has_critic(l))
            st = look_at_values(l, i, n, err);
    }
    return st;
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* A minibatch, of which all learners together have so many tokens and answers. */
struct minibatch {
    double tokens, answers;
    float *sums;
    double *off;
};

/* Copies what is known of the tokens of answers to their rows. */
static void
fill_rows(exo_learner *l, const exo_pick *picks, const size_t *answers, size_t count)
{
    const exo_learner_batch *b = &l->batch;
    put_rows(l, picks, answers, count, b->advantages, l->row_advantages);
    put_rows(l, picks, answers, count, b->returns, l->row_returns);
    put_rows(l, picks, answers, count, b->values, l->row_old_values);
    put_rows(l, picks, answers, count, b->reference, l->row_reference);
    put_rows(l, picks, answers, count, b->proximal, l->row_proximal);
    for (size_t n = 0; n < count; n++) {
        const exo_experience *e = picks[n].from;
        uint64_t *rows = l->row_versions + exo_rows_first(&l->rows, picks, n);
        for (int32_t i = 0; i < e->lengths[picks[n].answer]; i++)
            if (exo_pick_is_action(&picks[n], (size_t)i))
                rows[i] = (uint64_t)e->versions[picks[n].first + (size_t)i];
    }
}

/* The weights of the rows in the mean over all tokens or answers of the minibatch. */
static void
weigh_rows(exo_learner *l, const struct minibatch *m)
{
    exo_token_batch t = row_batch(l);
    const exo_objective_opts *o = &l->objective;
    double here =
        o->reduction == EXO_REDUCE_TOKENS ? (double)l->rows.actions : (double)l->rows.answers;
    double all = o->reduction == EXO_REDUCE_TOKENS ? m->tokens : m->answers;
    exo_token_weights(&t, o->reduction, o->length, l->row_weights);
    exo_vec_scale(exo_host_array(EXO_F32, l->row_weights, num_rows(l)), (float)(here / all));
}

/* Figures of the rows before the step. */
static void
measure_rows(exo_learner *l, const struct minibatch *m)
{
    exo_token_batch t = row_batch(l);
    exo_policy_figures f;
    exo_policy_measure(&t, l->row_log_probs, l->rows.behaviour, l->row_old, l->objective.loss.clip,
                       &f);
    double n = (double)f.tokens, low = fabs(f.ratio_min - 1), high = fabs(f.ratio_max - 1);
    double mean_square = f.chi_squared + 1;
    m->sums[EXO_STEP_TOKENS] += (float)n;
    m->sums[EXO_STEP_CLIPPED] += (float)(n * f.clip_fraction);
    m->sums[EXO_STEP_KL] += (float)(n * f.kl);
    m->sums[EXO_STEP_CHI] += (float)(n * f.chi_squared);
    m->sums[EXO_STEP_SQUARES] += (float)(n * mean_square);
    m->sums[EXO_STEP_RATIOS] += (float)sqrt(f.effective * n * n * mean_square);
    *m->off = low > *m->off ? low : *m->off;
    *m->off = high > *m->off ? high : *m->off;
}

/* The loss of the actor's pass, and of values that it gives. */
static exo_tensor *
policy_loss(exo_learner *l, exo_outputs *outputs, exo_tensor *log_probs, exo_tensor *values,
            float temperature, const struct minibatch *m)
{
    exo_token_batch t = row_batch(l);
    exo_token_loss_parts parts = {0};
    exo_token_loss_opts opts = l->objective.loss;
    double share = (double)l->rows.actions / m->tokens; /* of terms that are means over actions */
    opts.entropy *= share;
    opts.value = values ? opts.value * share : 0;
    const exo_token_loss_inputs inputs = {
        .log_probs = log_probs,
        .entropy = opts.entropy > 0
                       ? exo_entropy(l->tape, exo_outputs_logits(outputs, "logits"), temperature)
                       : NULL,
        .values = values,
        .old = l->row_old,
        .importance = l->row_importance,
        .advantages = l->row_advantages,
        .weights = l->row_weights,
        .ref_log_probs = l->row_reference,
        .old_values = l->row_old_values,
        .returns = l->row_returns,
    };
    exo_tensor *loss = exo_token_loss(l->tape, &t, &inputs, &opts, &parts);
    if (loss)
        m->sums[EXO_STEP_LOSS] += exo_tensor_item(parts.policy);
    if (loss && parts.value)
        m->sums[EXO_STEP_VALUE_LOSS] += (float)share * exo_tensor_item(parts.value);
    return loss;
}

/* The gradient of the actor over answers (count). */
static exo_status
add_actor(exo_learner *l, const exo_pick *picks, const size_t *answers, size_t count,
          const struct minibatch *m, exo_err *err)
{
    exo_tensor *log_probs = NULL, *values = NULL;
    exo_token_batch t;
    bool shared = exo_learner_has_critic(l) && !l->critic.model;
    exo_outputs outputs =
        exo_outputs_init((const char *const[]){"logits", shared ? "values" : NULL, NULL});
    exo_status st = lay_out(l, picks, count, err);
    if (st == EXO_OK)
        st = log_probs_of(l, l->actor.model, l->actor.params, picks[0].from, true, &outputs,
                          &log_probs, err);
    if (st != EXO_OK)
        return st;
    if (shared && !(values = exo_outputs_get(&outputs, "values")))
        return exo_tape_error(l->tape, err);
    fill_rows(l, picks, answers, count);
    weigh_rows(l, m);
    t = row_batch(l);
    exo_correct(&t, &l->objective.correction, l->rows.behaviour,
                exo_objective_needs_proximal(&l->objective) ? l->row_proximal : l->row_log_probs,
                l->row_versions, l->version, l->row_old, l->row_importance);
    measure_rows(l, m);
    exo_tensor *loss =
        policy_loss(l, &outputs, log_probs, values, exo_learner_temperature(picks[0].from), m);
    return loss ? exo_tape_backward(l->tape, loss, 1, err) : exo_tape_error(l->tape, err);
}

/* The gradient of a critic of its own, over the rows of the actor's pass. */
static exo_status
add_critic(exo_learner *l, const struct minibatch *m, exo_err *err)
{
    size_t rows = num_rows(l);
    float share = (float)((double)l->rows.actions / m->tokens);
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    exo_status st = pass_over(l, l->critic.model, l->critic.params, true, &outputs, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *old = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->row_old_values);
    exo_tensor *returns = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->row_returns);
    exo_tensor *mask = exo_tape_input(l->tape, EXO_F32, 1, &rows, l->rows.mask);
    exo_tensor *loss = exo_value_loss(l->tape, exo_outputs_get(&outputs, "values"), old, returns,
                                      mask, (float)l->objective.loss.value_clip);
    if (!loss)
        return exo_tape_error(l->tape, err);
    m->sums[EXO_STEP_VALUE_LOSS] += share * exo_tensor_item(loss);
    return exo_tape_backward(l->tape, loss, share, err);
}

exo_status
exo_learner_add_slice(exo_learner *l, size_t slice, uint64_t m, double tokens, double answers,
                      float *sums, double *off, exo_err *err)
{
    const exo_learner_batch *b = &l->batch;
    const struct minibatch minibatch = {tokens, answers, sums, off};
    size_t begin, end;
    exo_status st = EXO_OK;
    exo_pick *picks = exo_calloc(l->rows_a_pass, sizeof *picks);
    size_t *numbers = exo_calloc(l->rows_a_pass, sizeof *numbers);
    if (!picks || !numbers)
        st = exo_fail(err, EXO_NOMEM, "no memory for a pass");
    exo_learner_cut(l, slice, m, &begin, &end);
    for (size_t count; st == EXO_OK && begin < end; begin += count) {
        count = end - begin < l->rows_a_pass ? end - begin : (size_t)l->rows_a_pass;
        for (size_t i = 0; i < count; i++) {
            numbers[i] = b->bounds[slice] + b->order[begin + i];
            picks[i] = b->picks[numbers[i]];
        }
        st = add_actor(l, picks, numbers, count, &minibatch, err);
        if (st == EXO_OK && l->critic.model)
            st = add_critic(l, &minibatch, err);
    }
    exo_free(picks);
    exo_free(numbers);
    return st;
}
