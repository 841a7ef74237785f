/* A policy that is a table: see tabular.h. A run owns a tape, an optimizer, the parameters of all
 * versions, and the arrays of one batch. */
#include "support/tabular.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/optim.h>
#include <exogym/rng.h>
#include <exogym/sequence.h>

enum {
    MAX_LENGTH = 16,
    MAX_VOCABULARY = 16
};

struct run {
    const tabular_opts *opts;
    size_t states, numel, rows; /* numel: logits (states, V), then values (states) */
    float *params;              /* (updates + 1, numel): of each version */
    float *grads;
    size_t *offsets;
    uint64_t *groups, *versions;
    int32_t *state, *token; /* (rows) */
    float *mask, *behaviour, *proximal, *ref, *values, *rewards, *advantages, *returns, *old,
        *importance, *weights, *scores, *by_sequence;
    exo_token_batch batch;
    exo_tape *tape;
    exo_optim *optim;
};

void
tabular_rewards(uint64_t seed, size_t count, double *rewards)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < count; i++)
        rewards[i] = (double)exo_rng_uniform(&rng);
}

/* --- The policy ------------------------------------------------------------------------------- */

static float *
params_of(const struct run *r, size_t version)
{
    return r->params + version * r->numel;
}

/* log softmax of a state's logits. */
static void
log_softmax(const struct run *r, size_t version, size_t state, double *log_p)
{
    size_t v = r->opts->task->vocabulary;
    const float *logits = params_of(r, version) + state * v;
    double max = -INFINITY, sum = 0;
    for (size_t k = 0; k < v; k++)
        max = fmax(max, (double)logits[k]);
    for (size_t k = 0; k < v; k++)
        sum += exp((double)logits[k] - max);
    for (size_t k = 0; k < v; k++)
        log_p[k] = (double)logits[k] - max - log(sum);
}

static double
regret(const struct run *r, size_t version)
{
    const exo_exact_task *task = r->opts->task;
    size_t count = exo_exact_sequences(task);
    double *log_probs = calloc(count, sizeof *log_probs);
    double log_p[MAX_VOCABULARY], gap = NAN;
    int32_t tokens[MAX_LENGTH];
    for (size_t i = 0; log_probs && i < count; i++) {
        exo_exact_tokens(task, i, tokens);
        for (size_t t = 0; t < task->length; t++) {
            log_softmax(r, version, exo_exact_state(task, tokens, t), log_p);
            log_probs[i] += log_p[tokens[t]];
        }
    }
    if (log_probs)
        gap = exo_exact_optimum(task, NULL) - exo_exact_objective(task, log_probs, NULL, NULL);
    free(log_probs);
    return gap;
}

/* --- A batch ---------------------------------------------------------------------------------- */

/* Samples the batch of an update with the parameters of an earlier version. */
static void
sample(struct run *r, size_t update)
{
    const exo_exact_task *task = r->opts->task;
    size_t from = update > r->opts->staleness ? update - r->opts->staleness : 0;
    double log_p[MAX_VOCABULARY];
    exo_rng rng;
    exo_rng_init(&rng, r->opts->seed, EXO_RNG_TOKEN, 0, update);
    for (size_t n = 0; n < r->opts->sequences; n++) {
        int32_t tokens[MAX_LENGTH];
        for (size_t t = 0; t < task->length; t++) {
            size_t row = n * task->length + t, state = exo_exact_state(task, tokens, t), k = 0;
            double u = (double)exo_rng_uniform(&rng);
            log_softmax(r, from, state, log_p);
            while (k + 1 < task->vocabulary && (u -= exp(log_p[k])) >= 0)
                k++;
            r->state[row] = (int32_t)state;
            r->token[row] = tokens[t] = (int32_t)k;
            r->behaviour[row] = (float)log_p[k];
            r->versions[row] = from;
            log_softmax(r, update, state, log_p);
            r->proximal[row] = (float)log_p[k];
            r->values[row] = params_of(r, update)[r->states * task->vocabulary + state];
        }
        r->scores[n] = (float)task->rewards[exo_exact_index(task, tokens)];
    }
}

/* The advantages of the batch, and the targets of the values. */
static void
estimate(struct run *r)
{
    const tabular_opts *o = r->opts;
    const exo_token_batch *b = &r->batch;
    const exo_reward_opts penalty = {.kl_coef = o->task->beta};
    exo_token_rewards(b, r->proximal, r->ref, r->scores, &penalty, r->rewards);
    exo_sequence_rewards(b, r->proximal, r->ref, r->scores, &penalty, r->by_sequence);
    switch (o->algorithm) {
    case TABULAR_PPO:
        if (o->correction.kind == EXO_CORRECTION_VTRACE)
            exo_vtrace(b, r->proximal, r->behaviour, r->rewards, r->values,
                       &(exo_vtrace_opts){.gamma = 1, .lambda = 1}, r->advantages, r->returns);
        else
            exo_token_gae(b, r->rewards, r->values, 1, 0.95, r->advantages, r->returns);
        return;
    case TABULAR_REINFORCE:
        exo_token_gae(b, r->rewards, NULL, 1, 1, r->advantages, NULL);
        exo_whiten(r->rows, r->mask, true, r->advantages);
        return;
    case TABULAR_GRPO:
    case TABULAR_RLOO:
        exo_group_advantages(o->algorithm == TABULAR_GRPO ? EXO_GROUP_GRPO : EXO_GROUP_RLOO,
                             o->sequences, r->groups, r->by_sequence, r->by_sequence);
        exo_spread(b, r->by_sequence, r->advantages);
    }
}

/* One pass over the batch, and one step of the optimizer. */
static exo_status
learn(struct run *r, float *params, double lr, exo_err *err)
{
    const size_t v = r->opts->task->vocabulary;
    const bool ppo = r->opts->algorithm == TABULAR_PPO;
    exo_tape *t = r->tape;
    exo_tape_begin(t, NULL, &(exo_pass){.train = true, .grad = true});
    exo_tensor *logits = exo_tape_variable(t, 2, (size_t[]){r->states, v}, params),
               *values = exo_tape_variable(t, 2, (size_t[]){r->states, 1}, params + r->states * v),
               *state = exo_tape_input(t, EXO_I32, 1, &r->rows, r->state),
               *token = exo_tape_input(t, EXO_I32, 1, &r->rows, r->token);
    exo_tensor *log_probs =
        exo_log_probs(t, (exo_logits){.x = exo_embedding(t, state, logits)}, token, 1);
    const bool interpolated = r->opts->correction.kind == EXO_CORRECTION_INTERPOLATED;
    if (interpolated && log_probs)
        exo_tensor_read(log_probs, r->old);
    exo_correct(&r->batch, &r->opts->correction, r->behaviour, interpolated ? r->old : r->proximal,
                r->versions, (uint64_t)((params - r->params) / (ptrdiff_t)r->numel) - 1, r->old,
                r->importance);
    exo_tensor *loss = exo_token_loss(
        t, &r->batch,
        &(exo_token_loss_inputs){.log_probs = log_probs,
                                 .values = ppo ? exo_embedding(t, state, values) : NULL,
                                 .old = r->old,
                                 .importance = r->importance,
                                 .advantages = r->advantages,
                                 .weights = r->weights,
                                 .returns = r->returns},
        &(exo_token_loss_opts){.clip = {.low = 0.2, .high = 0.2}, .value = ppo ? 0.5 : 0}, NULL);
    exo_status st = loss ? exo_tape_backward(t, loss, 1, err) : exo_tape_error(t, err);
    if (st != EXO_OK)
        return st;
    exo_tensor_grad(logits, r->grads);
    exo_tensor_grad(values, r->grads + r->states * v);
    exo_optim_step(r->optim, exo_host_array(EXO_F32, params, r->numel),
                   exo_host_array(EXO_F32, r->grads, r->numel), (float)lr);
    return EXO_OK;
}

/* --- A run ------------------------------------------------------------------------------------ */

static void
release(struct run *r)
{
    void *const memory[] = {r->params, r->grads,      r->offsets, r->groups,     r->versions,
                            r->state,  r->token,      r->mask,    r->behaviour,  r->proximal,
                            r->ref,    r->values,     r->rewards, r->advantages, r->returns,
                            r->old,    r->importance, r->weights, r->scores,     r->by_sequence};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
    exo_optim_free(&r->optim);
    exo_tape_free(&r->tape);
}

static exo_status
init(struct run *r, const tabular_opts *o, exo_err *err)
{
    const exo_exact_task *task = o->task;
    const size_t n = o->sequences, rows = n * task->length;
    const exo_optim_spec spec = exo_optim_spec_init(EXO_ADAM);
    *r = (struct run){.opts = o, .states = exo_exact_states(task), .rows = rows};
    r->numel = r->states * (task->vocabulary + 1);
    r->params = calloc((o->updates + 1) * r->numel, sizeof(float));
    r->grads = calloc(r->numel, sizeof(float));
    r->offsets = calloc(n + 1, sizeof *r->offsets);
    r->groups = calloc(n, sizeof *r->groups);
    r->versions = calloc(rows, sizeof *r->versions);
    r->state = calloc(rows, sizeof *r->state);
    r->token = calloc(rows, sizeof *r->token);
    float **const by_row[] = {&r->mask,    &r->behaviour,  &r->proximal,   &r->ref, &r->values,
                              &r->rewards, &r->advantages, &r->returns,    &r->old, &r->importance,
                              &r->weights, &r->scores,     &r->by_sequence};
    bool got =
        r->params && r->grads && r->offsets && r->groups && r->versions && r->state && r->token;
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++)
        got = (*by_row[i] = calloc(rows, sizeof(float))) && got;
    if (!got)
        return exo_fail(err, EXO_NOMEM, "no memory for a table");
    for (size_t i = 0; i <= n; i++)
        r->offsets[i] = i * task->length;
    for (size_t i = 0; i < n; i++)
        r->groups[i] = i / (o->group ? o->group : n);
    for (size_t t = 0; t < rows; t++) {
        r->mask[t] = 1;
        r->ref[t] = (float)-log((double)task->vocabulary);
    }
    r->batch = (exo_token_batch){.sequences = n, .offsets = r->offsets, .mask = r->mask};
    exo_token_weights(&r->batch, EXO_REDUCE_TOKENS, 0, r->weights);
    exo_status st = exo_tape_new(&r->tape, err);
    if (st == EXO_OK)
        st = exo_optim_new(&r->optim, &spec, exo_device_cpu(), r->numel, err);
    return st;
}

exo_status
tabular_train(const tabular_opts *o, tabular_result *result, exo_err *err)
{
    struct run r;
    exo_status st = init(&r, o, err);
    for (size_t u = 0; u < o->updates && st == EXO_OK; u++) {
        double lr = o->lr * (1 - (double)u / (double)o->updates);
        sample(&r, u);
        estimate(&r);
        if (u == o->updates / 2)
            exo_policy_measure(&r.batch, r.proximal, r.behaviour, r.proximal,
                               (exo_policy_clip){.low = 0.2, .high = 0.2}, &result->figures);
        memcpy(params_of(&r, u + 1), params_of(&r, u), r.numel * sizeof(float));
        for (size_t e = 0; e < o->epochs && st == EXO_OK; e++)
            st = learn(&r, params_of(&r, u + 1), lr, err);
    }
    if (st == EXO_OK)
        result->regret = regret(&r, o->updates);
    release(&r);
    return st;
}
