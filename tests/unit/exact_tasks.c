/* Tasks with a known optimum (exogym/exact.h), and policies that learn them (support/tabular.h).
 * Read next: bench/staleness.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/exact.h>

#include "support/tabular.h"

enum {
    VOCABULARY = 3,
    LENGTH = 4,
    SEQUENCES = 81
};

static exo_exact_task
make_task(double *rewards)
{
    tabular_rewards(11, SEQUENCES, rewards);
    return (exo_exact_task){
        .vocabulary = VOCABULARY, .length = LENGTH, .rewards = rewards, .beta = 0.1};
}

Test(exact_tasks, indices_count_sequences_and_states)
{
    double rewards[SEQUENCES];
    const exo_exact_task task = make_task(rewards);
    int32_t tokens[LENGTH];
    cr_assert_eq(exo_exact_sequences(&task), SEQUENCES);
    cr_assert_eq(exo_exact_states(&task), 1 + 3 + 9 + 27);
    for (size_t i = 0; i < SEQUENCES; i++) {
        exo_exact_tokens(&task, i, tokens);
        cr_expect_eq(exo_exact_index(&task, tokens), i);
        cr_expect_eq(exo_exact_state(&task, tokens, 0), 0);
        cr_expect_eq(exo_exact_state(&task, tokens, 1), 1 + i / 27);
        cr_expect_eq(exo_exact_state(&task, tokens, 3), 1 + 3 + 9 + i / 3);
    }
}

/* J(pi*) = J*; J* - J(pi) = beta KL(pi || pi*); with a reference that is not uniform, too. */
Test(exact_tasks, the_optimum_has_the_highest_objective)
{
    double rewards[SEQUENCES], reference[SEQUENCES], best[SEQUENCES], reward, kl, sum = 0;
    exo_exact_task task = make_task(rewards);
    for (size_t i = 0; i < SEQUENCES; i++)
        reference[i] = log(2 * ((double)i + 1) / (SEQUENCES * (SEQUENCES + 1)));
    for (int k = 0; k < 2; k++) {
        task.reference = k == 0 ? NULL : reference;
        cr_assert_eq(exo_exact_check(&task, NULL), EXO_OK);
        double optimum = exo_exact_optimum(&task, best);
        cr_expect_float_eq(exo_exact_objective(&task, best, &reward, &kl), optimum, 1e-12);
        cr_expect_float_eq(reward - 0.1 * kl, optimum, 1e-12);
        double regret = 0;
        for (size_t i = 0; i < SEQUENCES; i++)
            regret += 0.1 * exp(reference[i]) * (reference[i] - best[i]);
        cr_expect_float_eq(optimum - exo_exact_objective(&task, reference, NULL, &kl), regret,
                           1e-12);
        cr_expect(k == 0 || fabs(kl) < 1e-12);
    }
    for (size_t i = 0; i < SEQUENCES; i++)
        sum += exp(best[i]);
    cr_expect_float_eq(sum, 1, 1e-12);
}

static void
expect_refused(exo_exact_task task, const char *text)
{
    exo_err err = {0};
    cr_expect_eq(exo_exact_check(&task, &err), EXO_INVAL);
    cr_expect(strstr(err.text, text), "%s", err.text);
}

Test(exact_tasks, tasks_out_of_range_are_refused)
{
    double rewards[SEQUENCES], reference[SEQUENCES] = {0};
    exo_exact_task task = make_task(rewards), other = task;
    other.vocabulary = 1;
    expect_refused(other, "vocabulary of 1");
    other = task;
    other.length = 64; /* 3^64 overflows */
    expect_refused(other, "64 tokens");
    other = task;
    other.beta = 0;
    expect_refused(other, "beta");
    other = task;
    other.reference = reference;
    expect_refused(other, "sum to");
    rewards[7] = NAN;
    expect_refused(task, "sequence 7");
}

static tabular_result
train(tabular_opts opts, double beta)
{
    double rewards[SEQUENCES];
    exo_exact_task task = make_task(rewards);
    tabular_result result = {0};
    exo_err err = {0};
    task.beta = beta;
    opts.task = &task;
    opts.epochs = 4;
    opts.seed = 1;
    cr_assert_eq(tabular_train(&opts, &result, &err), EXO_OK, "%s", err.text);
    return result;
}

Test(exact_tasks, ppo_grpo_rloo_and_reinforce_reach_the_optimum)
{
    double rewards[SEQUENCES], uniform[SEQUENCES];
    exo_exact_task task = make_task(rewards);
    for (size_t i = 0; i < SEQUENCES; i++)
        uniform[i] = -log(SEQUENCES);
    double gap = exo_exact_optimum(&task, NULL) - exo_exact_objective(&task, uniform, NULL, NULL);
    cr_expect_gt(gap, 0.1, "the policy that they start with: %g", gap);
    for (int a = TABULAR_PPO; a <= TABULAR_REINFORCE; a++) {
        tabular_result result = train((tabular_opts){.algorithm = (tabular_algorithm)a,
                                                     .updates = 300,
                                                     .sequences = 128,
                                                     .group = 16,
                                                     .lr = 0.05},
                                      0.1);
        cr_expect(result.regret >= -1e-9 && result.regret <= 0.01, "algorithm %d: J* - J = %g", a,
                  result.regret);
        cr_expect(result.figures.tokens == 512 && result.figures.ratio_max == 1 &&
                  result.figures.effective == 1);
    }
}

/* With samples that are 32 updates old, PPO without a correction stays far from the optimum. */
Test(exact_tasks, corrections_undo_staleness)
{
    double regrets[EXO_CORRECTION_INTERPOLATED + 1];
    for (int c = EXO_CORRECTION_NONE; c <= EXO_CORRECTION_INTERPOLATED; c++) {
        tabular_result result =
            train((tabular_opts){.correction = {.kind = (exo_correction)c, .max = 3},
                                 .staleness = 32,
                                 .updates = 100,
                                 .sequences = 64,
                                 .lr = 0.1},
                  0.03);
        regrets[c] = result.regret;
        cr_expect(result.figures.effective_sequences < 0.9 && result.figures.kl > 0.01);
        cr_expect(c == EXO_CORRECTION_NONE || regrets[c] < 0.6 * regrets[EXO_CORRECTION_NONE],
                  "%s: J* - J = %g; without a correction %g", exo_correction_names()[c], regrets[c],
                  regrets[EXO_CORRECTION_NONE]);
    }
    cr_expect(regrets[EXO_CORRECTION_VTRACE] <= 0.01, "%g", regrets[EXO_CORRECTION_VTRACE]);
}
