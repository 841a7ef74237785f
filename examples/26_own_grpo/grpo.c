/* GRPO in C against the public headers: a small GPT learns sequences of 4 tokens by their reward,
 * with a penalty for leaving the uniform policy. All sequences are enumerated, so the program knows
 * how far from the optimum the policy is.
 *
 * A sequence is the prompt, token 0, and 4 tokens that the policy chooses.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <exogym/exogym.h>

enum {
    VOCABULARY = 3,
    LENGTH = 4,
    SEQUENCES = 81, /* all there are */
    TOKENS = LENGTH + 1,
    BATCH = 64, /* sequences of an update */
    GROUP = 16,
    ROWS = SEQUENCES * LENGTH, /* of the largest pass */
    UPDATES = 150,
    EPOCHS = 4
};

struct policy {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_optim *optim;
};

/* The logits of a pass over `count` windows of LENGTH positions; `grad`: with backward. */
static exo_logits
forward(struct policy *p, size_t count, int32_t *inputs, bool grad)
{
    const exo_batch batch = {
        .size = count,
        .num_fields = 1,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {inputs}};
    exo_outputs out = exo_outputs_init((const char *const[]){"logits", NULL});
    exo_tape_begin(p->tape, p->params, &(exo_pass){.train = grad, .grad = grad});
    exo_model_forward(p->model, p->tape, &batch, &out); /* an error stays in the tape */
    return exo_outputs_logits(&out, "logits");
}

/* The log-probabilities of the targets, one for each row. NULL: an error, in the tape. */
static exo_tensor *
log_probs_of(struct policy *p, size_t count, int32_t *inputs, const int32_t *targets, bool grad)
{
    const size_t rows = count * LENGTH;
    exo_logits logits = forward(p, count, inputs, grad);
    return exo_log_probs(p->tape, logits, exo_tape_input(p->tape, EXO_I32, 1, &rows, targets), 1);
}

/* The batch of `count` sequences of TOKENS tokens, the first of which is the prompt, by token. */
static exo_token_batch
make_batch(size_t count, size_t *offsets, float *mask)
{
    for (size_t n = 0; n <= count; n++)
        offsets[n] = n * TOKENS;
    for (size_t n = 0; n < count; n++)
        exo_action_mask(TOKENS, NULL, 1, -1, mask + n * TOKENS);
    return (exo_token_batch){.sequences = count, .offsets = offsets, .mask = mask};
}

/* J* - J, from the log-probabilities of all sequences. */
static exo_status
regret(struct policy *p, const exo_exact_task *task, double *out, exo_err *err)
{
    static int32_t tokens[SEQUENCES * TOKENS], inputs[ROWS], targets[ROWS];
    static float mask[SEQUENCES * TOKENS], log_probs[ROWS];
    size_t offsets[SEQUENCES + 1];
    double by_sequence[SEQUENCES] = {0};
    const exo_token_batch all = make_batch(SEQUENCES, offsets, mask);
    for (size_t i = 0; i < SEQUENCES; i++)
        exo_exact_tokens(task, i, tokens + i * TOKENS + 1);
    exo_rows_of_tokens(&all, tokens, LENGTH, inputs, targets);
    exo_tensor *rows = log_probs_of(p, SEQUENCES, inputs, targets, false);
    if (!rows)
        return exo_tape_error(p->tape, err);
    exo_tensor_read(rows, log_probs);
    for (size_t r = 0; r < ROWS; r++)
        by_sequence[r / LENGTH] += (double)log_probs[r];
    *out = exo_exact_optimum(task, NULL) - exo_exact_objective(task, by_sequence, NULL, NULL);
    return EXO_OK;
}

/* A choice by its logits: the largest of logit + Gumbel noise is distributed as the softmax. */
static int32_t
choose(const float *logits, exo_rng *rng)
{
    int32_t best = 0;
    float highest = -INFINITY;
    for (int32_t v = 0; v < VOCABULARY; v++) {
        float noisy = logits[v] - logf(-logf(exo_rng_uniform(rng) + 0x1p-26f));
        if (noisy > highest) {
            highest = noisy;
            best = v;
        }
    }
    return best;
}

/* Samples a batch, token after token. */
static exo_status
sample(struct policy *p, uint64_t update, const exo_token_batch *batch, int32_t *tokens,
       exo_err *err)
{
    static int32_t inputs[BATCH * LENGTH], targets[BATCH * LENGTH];
    static float rows[BATCH * LENGTH * VOCABULARY];
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, update);
    for (size_t t = 0; t < LENGTH; t++) {
        exo_rows_of_tokens(batch, tokens, LENGTH, inputs, targets);
        exo_tensor *logits = exo_logits_tensor(p->tape, forward(p, BATCH, inputs, false));
        if (!logits)
            return exo_tape_error(p->tape, err);
        exo_tensor_read(logits, rows);
        for (size_t n = 0; n < BATCH; n++)
            tokens[n * TOKENS + t + 1] = choose(rows + (n * LENGTH + t) * VOCABULARY, &rng);
    }
    return EXO_OK;
}

/* Learns from a batch for some epochs. */
static exo_status
learn(struct policy *p, const exo_exact_task *task, const exo_token_batch *items,
      const int32_t *tokens, float lr, exo_err *err)
{
    static int32_t inputs[BATCH * LENGTH], targets[BATCH * LENGTH];
    static float mask[BATCH * LENGTH], old[BATCH * LENGTH], ref[BATCH * LENGTH],
        advantages[BATCH * LENGTH], weights[BATCH * LENGTH];
    float scores[BATCH], rewards[BATCH];
    uint64_t groups[BATCH];
    size_t offsets[BATCH + 1];
    exo_rows_of_tokens(items, tokens, LENGTH, inputs, targets);
    exo_rows_of_numbers(items, items->mask, LENGTH, mask);
    for (size_t n = 0; n <= BATCH; n++)
        offsets[n] = n * LENGTH;
    const exo_token_batch batch = {.sequences = BATCH, .offsets = offsets, .mask = mask};
    for (size_t n = 0; n < BATCH; n++) {
        scores[n] = (float)task->rewards[exo_exact_index(task, tokens + n * TOKENS + 1)];
        groups[n] = n / GROUP;
    }
    for (size_t r = 0; r < BATCH * LENGTH; r++)
        ref[r] = -logf(VOCABULARY);

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        exo_tensor *log_probs = log_probs_of(p, BATCH, inputs, targets, true);
        if (log_probs && epoch == 0) { /* the policy that sampled is the one that learns */
            exo_tensor_read(log_probs, old);
            exo_sequence_rewards(&batch, old, ref, scores,
                                 &(exo_reward_opts){.kl_coef = task->beta}, rewards);
            exo_group_advantages(EXO_GROUP_GRPO, BATCH, groups, rewards, rewards);
            exo_spread(&batch, rewards, advantages);
            exo_token_weights(&batch, EXO_REDUCE_TOKENS, 0, weights);
        }
        exo_tensor *loss = exo_token_loss(
            p->tape, &batch,
            &(exo_token_loss_inputs){
                .log_probs = log_probs, .old = old, .advantages = advantages, .weights = weights},
            &(exo_token_loss_opts){.clip = {.low = 0.2, .high = 0.2}}, NULL);
        if (!loss)
            return exo_tape_error(p->tape, err);
        exo_params_zero_grads(p->params);
        exo_status st = exo_tape_backward(p->tape, loss, 1, err);
        if (st != EXO_OK)
            return st;
        exo_optim_step(p->optim, exo_params_values_array(p->params),
                       exo_params_grads_array(p->params), lr);
    }
    return EXO_OK;
}

static exo_status
train(struct policy *p, exo_err *err)
{
    static int32_t tokens[BATCH * TOKENS];
    static float mask[BATCH * TOKENS];
    double rewards[SEQUENCES], gap = 0;
    size_t offsets[BATCH + 1];
    const exo_token_batch items = make_batch(BATCH, offsets, mask);
    for (size_t i = 0; i < SEQUENCES; i++) /* tokens that rise are worth most */
        rewards[i] =
            (i / 27 <= i / 9 % 3) * 0.3 + (i / 9 % 3 <= i / 3 % 3) * 0.3 + (double)(i % 3) * 0.2;
    const exo_exact_task task = {
        .vocabulary = VOCABULARY, .length = LENGTH, .rewards = rewards, .beta = 0.1};
    exo_status st = exo_exact_check(&task, err);
    for (uint64_t u = 0; u <= UPDATES && st == EXO_OK; u++) {
        if (u % 50 == 0 && (st = regret(p, &task, &gap, err)) == EXO_OK)
            printf("after %3d updates J* - J is %.4f\n", (int)u, gap);
        if (st == EXO_OK && u < UPDATES)
            st = sample(p, u, &items, tokens, err);
        if (st == EXO_OK && u < UPDATES)
            st = learn(p, &task, &items, tokens, 0.003f * (1 - (float)u / UPDATES), err);
    }
    return st;
}

int
main(void)
{
    exo_err err = {0};
    exo_config_doc *config = NULL;
    struct policy p = {0};
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAM);
    exo_status st =
        exo_config_parse(&config, "the program",
                         "{layers: 2, heads: 2, width: 32, context: 8, vocabulary: 3}", &err);
    if (st == EXO_OK)
        st = exo_model_new_named(&p.model, "gpt", exo_config_root(config), &err);
    if (st == EXO_OK)
        st = exo_model_params(p.model, 1, &p.params, &err);
    if (st == EXO_OK)
        st = exo_tape_new(&p.tape, &err);
    if (st == EXO_OK)
        st = exo_optim_new(&p.optim, &spec, exo_device_cpu(), exo_params_numel(p.params), &err);
    if (st == EXO_OK)
        st = train(&p, &err);
    if (st != EXO_OK)
        fprintf(stderr, "grpo: %s\n", err.text);
    exo_optim_free(&p.optim);
    exo_tape_free(&p.tape);
    exo_params_free(&p.params);
    exo_model_drop(&p.model);
    exo_config_free(&config);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
