/* What stale samples cost: the regret J* - J of policies that PPO trains on exact tasks, for each
 * off-policy correction and staleness. The regret is exact (exogym/exact.h); a number is the mean
 * of several tasks. One process, no clock: the table is the same on every machine with this
 * arithmetic.
 *
 *     bench_staleness [SEEDS] [UPDATES]
 */
#include <stdio.h>
#include <stdlib.h>

#include "support/tabular.h"

enum {
    VOCABULARY = 3,
    LENGTH = 4,
    SEQUENCES = 81
};

static const size_t staleness[] = {0, 1, 2, 4, 8, 16, 32, 64};
#define COLUMNS (sizeof staleness / sizeof staleness[0])

/* Regret and figures of one run; exits if it fails. */
static tabular_result
run(exo_correction correction, size_t stale, uint64_t seed, size_t updates)
{
    double rewards[SEQUENCES];
    const exo_exact_task task = {
        .vocabulary = VOCABULARY, .length = LENGTH, .rewards = rewards, .beta = 0.03};
    tabular_result result = {0};
    exo_err err = {0};
    /* Decoupled PPO has no bound; the others are bounded as TRL's are by default. */
    bool bounded =
        correction != EXO_CORRECTION_DECOUPLED && correction != EXO_CORRECTION_INTERPOLATED;
    tabular_rewards(seed, SEQUENCES, rewards);
    const tabular_opts opts = {.task = &task,
                               .algorithm = TABULAR_PPO,
                               .correction = {.kind = correction, .max = bounded ? 3 : 0},
                               .staleness = stale,
                               .updates = updates,
                               .sequences = 64,
                               .epochs = 4,
                               .lr = 0.1,
                               .seed = seed};
    if (exo_exact_check(&task, &err) != EXO_OK || tabular_train(&opts, &result, &err) != EXO_OK) {
        fprintf(stderr, "bench_staleness: %s\n", err.text);
        exit(1);
    }
    return result;
}

int
main(int argc, char **argv)
{
    const size_t seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10,
                 updates = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    double effective[COLUMNS] = {0}, kl[COLUMNS] = {0};
    printf("| correction |");
    for (size_t s = 0; s < COLUMNS; s++)
        printf(" %zu |", staleness[s]);
    printf("\n|---|");
    for (size_t s = 0; s < COLUMNS; s++)
        printf("---|");
    for (size_t c = 0; exo_correction_names()[c]; c++) {
        printf("\n| `%s` |", exo_correction_names()[c]);
        for (size_t s = 0; s < COLUMNS; s++) {
            double sum = 0;
            for (uint64_t seed = 1; seed <= seeds; seed++) {
                tabular_result r = run((exo_correction)c, staleness[s], seed, updates);
                sum += r.regret;
                if (c == EXO_CORRECTION_NONE) {
                    effective[s] += r.figures.effective_sequences;
                    kl[s] += r.figures.kl;
                }
            }
            printf(" %.4f |", sum / (double)seeds);
            fflush(stdout);
        }
    }
    printf("\n| KL(mu, pi) a token, `none` |");
    for (size_t s = 0; s < COLUMNS; s++)
        printf(" %.4f |", kl[s] / (double)seeds);
    printf("\n| effective sequences, `none` |");
    for (size_t s = 0; s < COLUMNS; s++)
        printf(" %.0f %% |", 100 * effective[s] / (double)seeds);
    printf("\n");
    return 0;
}
