/* Rewards, advantages, corrections and losses over tokens (exogym/learning.h): against TRL's
 * numbers (tests/golden/trl_golden.py), against sums written out for small cases, and what is
 * refused. Read next: exact_tasks.c, in which policies learn by them. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/learning.h>

#include "golden/trl_golden.h"
#include "support/passes.h"

enum {
    ROWS = GOLDEN_N * GOLDEN_T,
    NUMBERS = ROWS * GOLDEN_V
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const size_t golden_offsets[GOLDEN_N + 1] = {
    0, GOLDEN_T, 2 * GOLDEN_T, 3 * GOLDEN_T, 4 * GOLDEN_T, 5 * GOLDEN_T, 6 * GOLDEN_T};
static const exo_token_batch golden_batch = {GOLDEN_N, golden_offsets, golden_mask};

static void
expect_close(const float *got, const float *want, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        cr_expect_float_eq((double)got[i], (double)want[i], 1e-5 * (1 + fabs((double)want[i])),
                           "%s[%zu]: %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}

static size_t
index_of(const char *const *names, const char *name)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    cr_assert_fail("no name %s", name);
    return 0;
}

/* --- Against TRL ------------------------------------------------------------------------------ */

Test(learning, gae_and_whitening_are_trls)
{
    static const float ones[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const exo_token_batch whole = {GOLDEN_N, golden_offsets, ones};
    for (size_t i = 0; i < COUNT(golden_gae); i++) {
        const struct golden_gae *c = &golden_gae[i];
        const exo_reward_opts opts = {.kl_coef = c->kl_coef,
                                      .kl = (exo_kl_kind)index_of(exo_kl_names(), c->kl)};
        float rewards[ROWS], advantages[ROWS], returns[ROWS];
        exo_token_rewards(&whole, golden_old, golden_ref, golden_scores, &opts, rewards);
        expect_close(rewards, c->rewards, ROWS, "rewards");
        exo_token_gae(&whole, rewards, golden_values, c->gamma, c->lambda, advantages, returns);
        expect_close(returns, c->returns, ROWS, "returns");
        exo_whiten(ROWS, ones, true, advantages);
        expect_close(advantages, c->whitened, ROWS, "whitened advantages");
    }
    float x[ROWS];
    memcpy(x, golden_values, sizeof x);
    exo_whiten(ROWS, golden_mask, true, x);
    expect_close(x, golden_whitened, ROWS, "whitened");
    memcpy(x, golden_values, sizeof x);
    exo_whiten(ROWS, golden_mask, false, x);
    expect_close(x, golden_whitened_in_place, ROWS, "whitened in place");
}

static void
golden_groups(uint64_t *groups)
{
    for (size_t n = 0; n < GOLDEN_N; n++)
        groups[n] = 70 - n / GOLDEN_GROUP;
}

Test(learning, group_advantages_are_trls)
{
    uint64_t groups[GOLDEN_N];
    float got[GOLDEN_N], rewards[GOLDEN_N];
    golden_groups(groups);
    const struct {
        exo_group_kind kind;
        const float *want;
    } cases[] = {{EXO_GROUP_GRPO, golden_advantages_grpo},
                 {EXO_GROUP_GRPO_BATCH, golden_advantages_grpo_batch},
                 {EXO_GROUP_MEAN, golden_advantages_mean}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        exo_group_advantages(cases[i].kind, GOLDEN_N, groups, golden_scores, got);
        expect_close(got, cases[i].want, GOLDEN_N, exo_group_names()[cases[i].kind]);
    }
    exo_sequence_rewards(&golden_batch, golden_old, golden_ref, golden_scores,
                         &(exo_reward_opts){.kl_coef = 0.05}, rewards);
    expect_close(rewards, golden_rloo_rewards, GOLDEN_N, "rloo's rewards");
    exo_group_advantages(EXO_GROUP_RLOO, GOLDEN_N, groups, rewards, got);
    expect_close(got, golden_advantages_rloo, GOLDEN_N, "rloo");
}

Test(learning, importance_weights_are_trls)
{
    for (size_t i = 0; i < COUNT(golden_importance); i++) {
        const struct golden_importance *c = &golden_importance[i];
        const exo_correction_opts opts = {
            .kind = (exo_correction)index_of(exo_correction_names(), c->correction),
            .min = c->min,
            .max = c->max};
        float old[ROWS], weights[ROWS];
        exo_correct(&golden_batch, &opts, golden_sampled, golden_old, NULL, 0, old, weights);
        expect_close(weights, c->weights, ROWS, c->correction);
        for (size_t t = 0; t < ROWS; t++)
            cr_expect(old[t] == (golden_mask[t] != 0 ? golden_old[t] : 0), "%zu", t);
    }
}

/* A pass over the golden logits. */
struct pass {
    exo_tape *tape;
    exo_tensor *x, *log_probs, *entropy;
};

static void
begin(struct pass *p)
{
    p->tape = passes_tape();
    passes_begin(p->tape, true, false);
    p->x = exo_tape_variable(p->tape, 2, (size_t[]){ROWS, GOLDEN_V}, golden_logits);
    exo_logits logits = {.x = p->x};
    p->log_probs = exo_log_probs(
        p->tape, logits, exo_tape_input(p->tape, EXO_I32, 1, (size_t[]){ROWS}, golden_tokens), 1);
    p->entropy = exo_entropy(p->tape, logits, 1);
}

static void
finish(struct pass *p, exo_tensor *loss, float want, const float *gradient, const char *what)
{
    float got[NUMBERS];
    exo_err err = {0};
    cr_assert_not_null(loss, "%s", (exo_tape_error(p->tape, &err), err.text));
    expect_close(&(float){exo_tensor_item(loss)}, &want, 1, what);
    cr_assert_eq(exo_tape_backward(p->tape, loss, 1, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(p->x, got);
    expect_close(got, gradient, NUMBERS, what);
    exo_tape_free(&p->tape);
}

static exo_tensor *
rows(exo_tape *tape, const float *values)
{
    return exo_tape_input(tape, EXO_F32, 1, (size_t[]){ROWS}, values);
}

static exo_tensor *
sequences(exo_tape *tape)
{
    static const int32_t offsets[GOLDEN_N + 1] = {
        0, GOLDEN_T, 2 * GOLDEN_T, 3 * GOLDEN_T, 4 * GOLDEN_T, 5 * GOLDEN_T, 6 * GOLDEN_T};
    return exo_tape_input(tape, EXO_I32, 1, (size_t[]){GOLDEN_N + 1}, offsets);
}

Test(learning, grpos_loss_and_gradients_are_trls)
{
    float advantages[ROWS], old[ROWS], importance[ROWS], weights[ROWS];
    exo_spread(&golden_batch, golden_advantages_grpo, advantages);
    for (size_t i = 0; i < COUNT(golden_grpo); i++) {
        const struct golden_loss *c = &golden_grpo[i];
        exo_correction_opts correction = {.kind = EXO_CORRECTION_VTRACE,
                                          .max = c->max}; /* weight 1 */
        if (c->correction)
            correction.kind = (exo_correction)index_of(exo_correction_names(), c->correction);
        if (correction.kind == EXO_CORRECTION_MASKED_SEQUENCE)
            correction.min = 0.25;
        exo_correct(&golden_batch, &correction, golden_sampled, golden_old, NULL, 0, old,
                    importance);
        exo_token_weights(&golden_batch,
                          (exo_reduction)index_of(exo_reduction_names(), c->reduction), GOLDEN_T,
                          weights);
        struct pass p;
        begin(&p);
        exo_tensor *loss = exo_token_loss(
            p.tape, &golden_batch,
            &(exo_token_loss_inputs){.log_probs = p.log_probs,
                                     .entropy = p.entropy,
                                     .old = old,
                                     .importance = importance,
                                     .advantages = advantages,
                                     .weights = weights,
                                     .ref_log_probs = golden_ref},
            &(exo_token_loss_opts){.clip = {.low = c->low, .high = c->high, .dual = c->dual},
                                   .kl_coef = c->kl_coef,
                                   .kl = EXO_KL_K3,
                                   .entropy = c->entropy},
            NULL);
        finish(&p, loss, c->loss, c->gradient, c->reduction);
    }
}

Test(learning, rloos_loss_and_gradients_are_trls)
{
    struct pass p;
    begin(&p);
    exo_tensor *offsets = sequences(p.tape), *mask = rows(p.tape, golden_mask);
    exo_tensor *log_probs = exo_sequence_sum(p.tape, p.log_probs, mask, offsets);
    exo_tensor *old = exo_sequence_sum(p.tape, rows(p.tape, golden_old), mask, offsets);
    exo_tensor *advantages =
        exo_tape_input(p.tape, EXO_F32, 1, (size_t[]){GOLDEN_N}, golden_advantages_rloo);
    finish(&p, exo_policy_loss(p.tape, log_probs, old, advantages, NULL, 0.2f), golden_rloo_loss,
           golden_rloo_gradient, "rloo");
}

Test(learning, dpos_loss_and_gradients_are_trls)
{
    for (size_t i = 0; i < COUNT(golden_dpo); i++) {
        const struct golden_dpo *c = &golden_dpo[i];
        static const int32_t all[GOLDEN_N + 1] = {
            0, GOLDEN_T, 2 * GOLDEN_T, 3 * GOLDEN_T, 4 * GOLDEN_T, 5 * GOLDEN_T, 6 * GOLDEN_T};
        struct pass p;
        begin(&p);
        exo_tensor *offsets = exo_tape_input(p.tape, EXO_I32, 1, (size_t[]){2 * c->pairs + 1}, all);
        exo_tensor *loss =
            exo_dpo_loss(p.tape, p.log_probs, rows(p.tape, golden_ref), rows(p.tape, golden_mask),
                         offsets, (float)c->beta, (float)c->smoothing);
        finish(&p, loss, c->loss, c->gradient, "dpo");
    }
}

Test(learning, ppos_loss_and_gradients_are_trls)
{
    struct pass p;
    float weights[ROWS], got[ROWS];
    exo_token_loss_parts parts;
    exo_token_weights(&golden_batch, EXO_REDUCE_TOKENS, 0, weights);
    begin(&p);
    exo_tensor *values = exo_tape_variable(p.tape, 1, (size_t[]){ROWS}, golden_ppo_values);
    exo_tensor *loss = exo_token_loss(
        p.tape, &golden_batch,
        &(exo_token_loss_inputs){.log_probs = p.log_probs,
                                 .values = values,
                                 .old = golden_old,
                                 .advantages = golden_ppo_advantages,
                                 .weights = weights,
                                 .old_values = golden_values,
                                 .returns = golden_ppo_returns},
        &(exo_token_loss_opts){.clip = {.low = 0.2, .high = 0.2}, .value = 0.1, .value_clip = 0.25},
        &parts);
    cr_assert_not_null(loss);
    expect_close(&(float){exo_tensor_item(parts.policy)}, &golden_ppo_pg_loss, 1, "policy loss");
    expect_close(&(float){exo_tensor_item(parts.value)}, &golden_ppo_vf_loss, 1, "value loss");
    cr_expect_null(parts.kl);
    cr_expect_null(parts.entropy);
    struct pass own = p;
    cr_assert_eq(exo_tape_backward(own.tape, loss, 1, NULL), EXO_OK);
    expect_close(&(float){exo_tensor_item(loss)}, &golden_ppo_loss, 1, "loss");
    exo_tensor_grad(values, got);
    expect_close(got, golden_ppo_values_gradient, ROWS, "gradient of the values");
    float by_logits[NUMBERS];
    exo_tensor_grad(p.x, by_logits);
    expect_close(by_logits, golden_ppo_logits_gradient, NUMBERS, "gradient of the logits");
    exo_tape_free(&p.tape);
}

/* --- Ragged sequences, turns, masks ----------------------------------------------------------- */

/* Three sequences: a prompt of 2, actions at 2, 3, a tool's output at 4, an action at 5, padding;
 * one without any action; one of a single action. NaN marks what must not be read. */
enum {
    RAGGED = 10
};
static const size_t ragged_offsets[] = {0, 7, 9, 10};
static const float ragged_mask[RAGGED] = {0, 0, 1, 1, 0, 1, 0, 0, 0, 1};
static const exo_token_batch ragged = {3, ragged_offsets, ragged_mask};
static const float log_p[RAGGED] = {NAN, NAN, -1, -2, NAN, -0.5f, NAN, NAN, NAN, -3};
static const float log_ref[RAGGED] = {NAN, NAN, -1.5f, -1, NAN, -0.5f, NAN, NAN, NAN, -2};
static const float ragged_scores[] = {7, 3, -9};

Test(learning, actions_are_the_tokens_after_the_prompt_up_to_eos)
{
    static const int32_t tokens[] = {4, 9, 5, 6, 9, 7, 9};
    float mask[7];
    cr_expect_eq(exo_action_mask(7, tokens, 2, 9, mask), 3);
    static const float up_to_eos[] = {0, 0, 1, 1, 1, 0, 0};
    cr_expect_arr_eq(mask, up_to_eos, sizeof mask);
    cr_expect_eq(exo_action_mask(7, tokens, 3, -1, mask), 4);
    static const float to_the_end[] = {0, 0, 0, 1, 1, 1, 1};
    cr_expect_arr_eq(mask, to_the_end, sizeof mask);
    cr_expect_eq(exo_action_mask(7, tokens, 9, 9, mask), 0);
    const exo_turn turns[] = {{2, false}, {2, true}, {1, false}, {1, true}};
    cr_expect_eq(exo_turn_mask(4, turns, 7, mask), 3);
    cr_expect_arr_eq(mask, ragged_mask, sizeof mask);
    cr_expect_eq(exo_turn_mask(4, turns, 3, mask), 1); /* cut off */
}

/* Two sequences of 4 and 2 tokens in windows of 3 and of 2 positions. */
Test(learning, rows_are_positions_that_predict_the_next_token)
{
    static const int32_t tokens[] = {10, 11, 12, 13, 20, 21};
    static const float mask[] = {0, 0, 1, 1, 0, 1}, x[] = {0.5f, 1, 2, 3, 4, 5};
    const exo_token_batch batch = {2, (size_t[]){0, 4, 6}, mask};
    int32_t inputs[6], targets[6];
    float by_row[6], back[6];
    exo_rows_of_tokens(&batch, tokens, 3, inputs, targets);
    static const int32_t want_inputs[] = {10, 11, 12, 20, 21, 0},
                         want_targets[] = {-1, 12, 13, 21, -1, -1};
    cr_expect_arr_eq(inputs, want_inputs, sizeof inputs);
    cr_expect_arr_eq(targets, want_targets, sizeof targets);
    exo_rows_of_numbers(&batch, x, 3, by_row);
    static const float want_rows[] = {1, 2, 3, 5, 0, 0}, want_back[] = {0, 1, 2, 3, 0, 5};
    cr_expect_arr_eq(by_row, want_rows, sizeof by_row);
    exo_numbers_of_rows(&batch, by_row, 3, back);
    cr_expect_arr_eq(back, want_back, sizeof back);
    exo_rows_of_numbers(&batch, x, 2, by_row); /* the last token has no row */
    static const float cut[] = {1, 2, 5, 0}, cut_back[] = {0, 1, 2, 0, 0, 5};
    cr_expect_arr_eq(by_row, cut, sizeof cut);
    exo_numbers_of_rows(&batch, by_row, 2, back);
    cr_expect_arr_eq(back, cut_back, sizeof back);
}

/* Of each estimator, the mean over pi of the estimate and of its gradient by the logits of pi. */
Test(learning, kl_estimators_have_the_gradients_of_their_contract)
{
    const double pi[] = {0.5, 0.3, 0.2}, ref[] = {0.2, 0.1, 0.7};
    double kl = 0;
    for (int i = 0; i < 3; i++)
        kl += pi[i] * log(pi[i] / ref[i]);
    for (int kind = EXO_KL_K1; kind <= EXO_KL_K3; kind++) {
        double mean = 0, gradient[3] = {0};
        for (int i = 0; i < 3; i++) {
            double slope;
            mean += pi[i] * exo_kl_term((exo_kl_kind)kind, log(pi[i] / ref[i]), &slope);
            for (int j = 0; j < 3; j++) /* d log pi_i / d logit_j = [i = j] - pi_j */
                gradient[j] += pi[i] * slope * ((i == j) - pi[j]);
        }
        cr_expect(kind == EXO_KL_K2 || fabs(mean - kl) < 1e-12, "k%d: %g", kind + 1, mean);
        for (int j = 0; j < 3; j++) {
            const double of_kl = pi[j] * (log(pi[j] / ref[j]) - kl), of_reverse = pi[j] - ref[j];
            const double want[] = {0, of_kl, of_reverse};
            cr_expect_float_eq(gradient[j], want[kind], 1e-12, "k%d: %g", kind + 1, gradient[j]);
        }
    }
}

Test(learning, the_score_is_at_the_last_action_only)
{
    float rewards[RAGGED], by_sequence[3];
    const exo_reward_opts opts = {.kl_coef = 0.1, .score_clip = 5};
    exo_token_rewards(&ragged, log_p, log_ref, ragged_scores, &opts, rewards);
    static const float want[RAGGED] = {0, 0, -0.05f, 0.1f, 0, 5, 0, 0, 0, -4.9f};
    expect_close(rewards, want, RAGGED, "rewards");
    exo_sequence_rewards(&ragged, log_p, log_ref, ragged_scores, &opts, by_sequence);
    static const float sums[] = {5.05f, 0, -4.9f};
    expect_close(by_sequence, sums, 3, "rewards of sequences");
    /* 0.5 - 1 + 0, none, and -1, over 3 */
    cr_expect_float_eq(exo_sequence_kl(&ragged, log_p, log_ref, EXO_KL_K1), -0.5, 1e-7);
    cr_expect_float_eq(exo_sequence_kl(&ragged, log_p, log_ref, EXO_KL_K2), (0.125 + 1) / 3, 1e-7);
    exo_token_rewards(&ragged, log_p, NULL, ragged_scores, &(exo_reward_opts){0}, rewards);
    static const float plain[RAGGED] = {0, 0, 0, 0, 0, 7, 0, 0, 0, -9};
    expect_close(rewards, plain, RAGGED, "plain scores");
}

/* A ragged sequence has the advantages of its actions put together. */
Test(learning, gae_skips_what_is_no_action)
{
    static const float rewards[RAGGED] = {NAN, NAN, 1, -2, NAN, 3, NAN, NAN, NAN, 4};
    static const float values[RAGGED] = {NAN, NAN, 0.5f, 1, NAN, -1, NAN, NAN, NAN, 2};
    static const float dense_rewards[] = {1, -2, 3}, dense_values[] = {0.5f, 1, -1},
                       ones[] = {1, 1, 1};
    const exo_token_batch dense = {1, (size_t[]){0, 3}, ones};
    float got[RAGGED], returns[RAGGED], want[3];
    exo_token_gae(&ragged, rewards, values, 0.9, 0.8, got, returns);
    exo_token_gae(&dense, dense_rewards, dense_values, 0.9, 0.8, want, NULL);
    const double last = 3 + 1, middle = -2 + 0.9 * -1 - 1 + 0.72 * last;
    cr_expect_float_eq((double)want[1], middle, 1e-6);
    const float all[RAGGED] = {0, 0, want[0], want[1], 0, want[2], 0, 0, 0, 2};
    expect_close(got, all, RAGGED, "advantages");
    cr_expect_float_eq((double)returns[3], middle + 1, 1e-6);
    cr_expect_eq(returns[4], 0);
    exo_token_gae(&ragged, rewards, NULL, 0.5, 1, got, NULL); /* discounted rewards to go */
    const float to_go[RAGGED] = {0, 0, 1 - 1 + 0.75f, -2 + 1.5f, 0, 3, 0, 0, 0, 4};
    expect_close(got, to_go, RAGGED, "rewards to go");
}

/* With equal policies it is GAE; with rho and c of 0.5 it is the sum written out. */
Test(learning, vtrace_is_the_formula)
{
    static const float rewards[RAGGED] = {NAN, NAN, 1, -2, NAN, 3, NAN, NAN, NAN, 4};
    static const float values[RAGGED] = {NAN, NAN, 0.5f, 1, NAN, -1, NAN, NAN, NAN, 2};
    float got[RAGGED], targets[RAGGED], want[RAGGED], returns[RAGGED], mu[RAGGED];
    const exo_vtrace_opts opts = {.gamma = 0.9, .lambda = 1};
    exo_vtrace(&ragged, log_p, log_p, rewards, values, &opts, got, targets);
    exo_token_gae(&ragged, rewards, values, 0.9, 1, want, returns);
    expect_close(got, want, RAGGED, "advantages on policy");
    expect_close(targets, returns, RAGGED, "targets on policy");
    for (size_t t = 0; t < RAGGED; t++)
        mu[t] =
            log_p[t] + (float)log(t == 2 ? 0.25 : 2); /* w = 4 at the first, 0.5 at the others */
    exo_vtrace(&ragged, log_p, mu, rewards, values,
               &(exo_vtrace_opts){.gamma = 0.9, .lambda = 0.8, .rho_bar = 2, .c_bar = 3}, got,
               targets);
    const double v5 = -1 + 0.5 * (3 + 1),
                 v3 = 1 + 0.5 * (-2 - 0.9 - 1) + 0.9 * 0.8 * 0.5 * (v5 + 1),
                 v2 = 0.5 + 2 * (1 + 0.9 - 0.5) + 0.9 * 0.8 * 3 * (v3 - 1);
    const float expected[RAGGED] = {0, 0, (float)v2, (float)v3, 0, (float)v5, 0, 0, 0, 3};
    expect_close(targets, expected, RAGGED, "targets");
    cr_expect_float_eq((double)got[2], 2 * (1 + 0.9 * v3 - 0.5), 1e-5);
}

Test(learning, whitening_of_fewer_than_two_rows_changes_no_action)
{
    float x[RAGGED] = {NAN, 3};
    static const float one[2] = {0, 1};
    exo_whiten(2, one, true, x);
    cr_expect(x[0] == 0 && x[1] == 3);
}

Test(learning, groups_may_be_scattered_and_single)
{
    static const uint64_t groups[] = {5, 8, 5, 3};
    static const float rewards[] = {1, 10, 3, 100};
    float got[4];
    exo_group_advantages(EXO_GROUP_RLOO, 4, groups, rewards, got);
    expect_close(got, (const float[]){-2, 0, 2, 0}, 4, "rloo");
    exo_group_advantages(EXO_GROUP_GRPO, 4, groups, rewards, got);
    const float by = (float)(1 / (sqrt(2) + 1e-4));
    expect_close(got, (const float[]){-by, 0, by, 0}, 4, "grpo");
}

Test(learning, kl_control_follows_its_target)
{
    exo_kl_control fixed = {.coef = 0.1}, moving = {.coef = 0.1, .target = 6, .horizon = 1000};
    exo_kl_control_update(&fixed, 100, 10);
    cr_expect_eq(fixed.coef, 0.1);
    exo_kl_control_update(&moving, 60, 100); /* e is clipped to 0.2 */
    cr_expect_float_eq(moving.coef, 0.1 * 1.02, 1e-12);
    exo_kl_control_update(&moving, 5.4, 100);
    cr_expect_float_eq(moving.coef, 0.1 * 1.02 * 0.99, 1e-12);
    exo_kl_control short_horizon = {.coef = 0.1, .target = 6, .horizon = 1};
    exo_kl_control_update(&short_horizon, 0, 100); /* a gain of 100 would make it negative */
    cr_expect_float_eq(short_horizon.coef, 0.1 * 0.8, 1e-12);
    moving.horizon = 0;
    exo_kl_control_update(&moving, 0, 100);
    cr_expect_float_eq(moving.coef, 0.1 * 1.02 * 0.99 * 0.98, 1e-12);
    /* a target that is never reached: the coefficient stays in its range, and comes back */
    for (size_t i = 0; i < 5000; i++)
        exo_kl_control_update(&short_horizon, 60, 100);
    cr_expect_eq(short_horizon.coef, 1e6);
    for (size_t i = 0; i < 5000; i++)
        exo_kl_control_update(&short_horizon, 0, 100);
    cr_expect_eq(short_horizon.coef, 1e-9);
    exo_kl_control beyond = {.coef = 1e-12, .target = 6, .horizon = 1};
    exo_kl_control_update(&beyond, 0, 100);
    cr_expect_eq(beyond.coef, 1e-12);
    exo_kl_control_update(&beyond, 60, 100);
    cr_expect_float_eq(beyond.coef, 1.2e-12, 1e-20);
}

/* --- Corrections, figures, errors ------------------------------------------------------------- */

Test(learning, the_proximal_policy_is_recomputed_or_interpolated)
{
    static const uint64_t versions[RAGGED] = {0, 0, 9, 8, 0, 6, 0, 0, 0, 12};
    float old[RAGGED], weights[RAGGED];
    exo_correct(&ragged, &(exo_correction_opts){.kind = EXO_CORRECTION_NONE}, log_p, NULL, NULL, 0,
                old, weights);
    cr_expect(old[2] == log_p[2] && weights[2] == 1 && old[4] == 0 && weights[4] == 0);
    exo_correction_opts opts = {.kind = EXO_CORRECTION_DECOUPLED};
    exo_correct(&ragged, &opts, log_p, log_ref, NULL, 0, old, weights);
    cr_expect(old[3] == log_ref[3]);
    cr_expect_float_eq((double)weights[3], exp(1), 1e-6);
    opts.max = 2;
    exo_correct(&ragged, &opts, log_p, log_ref, NULL, 0, old, weights);
    cr_expect_eq(weights[3], 0);
    /* Staleness 1, 2 and 4 of version 10; a version of the future counts as 0. */
    opts = (exo_correction_opts){.kind = EXO_CORRECTION_INTERPOLATED};
    exo_correct(&ragged, &opts, log_p, log_ref, versions, 10, old, weights);
    static const float want[RAGGED] = {0, 0, -1, -1.5f, 0, -0.5f, 0, 0, 0, -3};
    expect_close(old, want, RAGGED, "interpolated");
    cr_expect_float_eq((double)weights[3], exp(0.5), 1e-6);
    cr_expect_eq(weights[9], 1);
}

Test(learning, figures_are_the_formulas)
{
    exo_policy_figures f;
    exo_policy_measure(&ragged, log_ref, log_p, log_p, (exo_policy_clip){.low = 0.2, .high = 0.2},
                       &f);
    const double w[] = {exp(-0.5), exp(1), 1, exp(1)}; /* log_ref - log_p of the actions */
    double sum = 0, squares = 0, k1 = 0;
    for (size_t i = 0; i < 4; i++) {
        sum += w[i];
        squares += w[i] * w[i];
        k1 -= log(w[i]) / 4;
    }
    cr_expect_eq(f.tokens, 4);
    cr_expect_float_eq(f.kl_k1, k1, 1e-9);
    cr_expect_float_eq(f.kl, sum / 4 - 1 + k1, 1e-9);
    cr_expect_float_eq(f.chi_squared, squares / 4 - 1, 1e-9);
    cr_expect_float_eq(f.effective, sum * sum / squares / 4, 1e-9);
    const double a = exp(0.5), b = exp(1); /* the sequence without actions does not count */
    cr_expect_float_eq(f.sequence_chi_squared, (a * a + b * b) / 2 - 1, 1e-9);
    cr_expect_float_eq(f.effective_sequences, (a + b) * (a + b) / (a * a + b * b) / 2, 1e-9);
    cr_expect_eq(f.clip_fraction, 0.75);
    cr_expect_float_eq(f.ratio_min, exp(-0.5), 1e-9);
    cr_expect_float_eq(f.ratio_max, exp(1), 1e-9);
    const exo_token_batch none = {1, (size_t[]){0, 2}, (const float[]){0, 0}};
    exo_policy_measure(&none, log_p, log_p, log_p, (exo_policy_clip){0}, &f);
    cr_expect(f.tokens == 0 && f.kl == 0 && f.ratio_max == 1);
}

static void
expect_refused(const exo_token_batch *batch, const float *scores, const char *text)
{
    exo_err err = {0};
    cr_expect_eq(exo_token_batch_check(batch, scores, &err), EXO_INVAL);
    cr_expect(strstr(err.text, text), "%s", err.text);
}

Test(learning, unsound_batches_are_refused)
{
    cr_expect_eq(exo_token_batch_check(&ragged, ragged_scores, NULL), EXO_OK);
    expect_refused(&(exo_token_batch){0}, NULL, "0 sequences");
    expect_refused(&(exo_token_batch){1, (size_t[]){1, 2}, ragged_mask}, NULL, "row 1");
    expect_refused(&(exo_token_batch){2, (size_t[]){0, 3, 2}, ragged_mask}, NULL, "sequence 1");
    expect_refused(&(exo_token_batch){1, (size_t[]){0, 2}, (const float[]){1, 0.5f}}, NULL,
                   "mask of row 1");
    expect_refused(&ragged, (const float[]){0, NAN, 0}, "score of sequence 1");
}

/* The text of the error of exo_token_loss with these options and inputs. */
static void
expect_loss_refused(exo_token_loss_inputs in, exo_token_loss_opts opts, const char *text)
{
    struct pass p;
    exo_err err = {0};
    begin(&p);
    in.log_probs = p.log_probs;
    cr_expect_null(exo_token_loss(p.tape, &golden_batch, &in, &opts, NULL));
    cr_expect_eq(exo_tape_error(p.tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, text), "%s", err.text);
    exo_tape_free(&p.tape);
}

Test(learning, a_loss_names_what_it_lacks)
{
    const exo_token_loss_inputs whole = {
        .old = golden_old, .advantages = golden_values, .weights = golden_mask};
    exo_token_loss_inputs lacking = whole;
    lacking.old = NULL;
    expect_loss_refused(lacking, (exo_token_loss_opts){0}, "need old");
    expect_loss_refused(whole, (exo_token_loss_opts){.entropy = 1}, "the entropy");
    expect_loss_refused(whole, (exo_token_loss_opts){.kl_coef = 1}, "ref_log_probs");
    expect_loss_refused(whole, (exo_token_loss_opts){.value = 1}, "returns");
    expect_loss_refused(whole, (exo_token_loss_opts){.clip = {.low = -1}}, "clip");
    expect_loss_refused(whole, (exo_token_loss_opts){.clip = {.dual = 0.5}}, "dual");
}
