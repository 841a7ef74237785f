/* A policy that is a table, trained on an exact task (exogym/exact.h) by the functions of
 * exogym/learning.h, with samples of policies that are `staleness` updates old. Tests and
 * bench/staleness.c share it. */
#ifndef EXO_TEST_TABULAR_H
#define EXO_TEST_TABULAR_H

#include <exogym/exact.h>
#include <exogym/learning.h>

typedef enum tabular_algorithm {
    TABULAR_PPO, /* GAE with a table of values */
    TABULAR_GRPO,
    TABULAR_RLOO,
    TABULAR_REINFORCE /* REINFORCE++: sums of rewards to go, whitened */
} tabular_algorithm;

typedef struct tabular_opts {
    const exo_exact_task *task; /* its reference is uniform */
    tabular_algorithm algorithm;
    exo_correction_opts correction;
    size_t staleness; /* updates between the policy that samples and the one that learns */
    size_t updates, sequences, group, epochs;
    double lr; /* of Adam; falls to 0 linearly */
    uint64_t seed;
} tabular_opts;

typedef struct tabular_result {
    double regret; /* J* - J of the last policy */
    exo_policy_figures
        figures; /* of the batch in the middle of the run, before it is learned from */
} tabular_result;

/* A reward in [0, 1) of each of `count` sequences, uniform, by the seed. */
void tabular_rewards(uint64_t seed, size_t count, double *rewards);

/* Errors: NOMEM, those of the tape. */
exo_status tabular_train(const tabular_opts *opts, tabular_result *result, exo_err *err);

#endif
