/* Stalled training jobs end soon, with an error that names each waiting node, its call and the
 * nodes that it waits for. Slow jobs continue. The tests have no shared state. Read next:
 * actors/fit_watch.c, tests/plugins/uneven.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/points.h"

#include "../plugins/uneven.c"

static exo_status
fit(const char *how, uint32_t nodes, uint64_t steps, exo_time timeout, exo_err *err)
{
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(200, 1, SIZE_MAX);
    exo_trainer *trainer = NULL;
    exo_fit_result result = {0};
    exo_fit_opts opts = exo_fit_opts_init();
    char options[64];
    opts.num_nodes = nodes;
    opts.batch_size = 4;
    opts.max_steps = steps;
    opts.save_dir = NULL;
    opts.timeout = timeout;
    snprintf(options, sizeof options, "{how: %s, optimizer: {name: sgd, lr: 0.1}}", how);
    cr_assert_eq(exo_strategy_register(&uneven, err), EXO_OK, "%s", err->text);
    cr_assert_eq(exo_trainer_new(&trainer, model, train, NULL, err), EXO_OK);
    exo_status st = exo_trainer_fit_text(trainer, "uneven", options, &opts, &result, err);
    exo_params_free(&result.params);
    exo_trainer_free(&trainer);
    exo_dataset_drop(&train);
    exo_model_drop(&model);
    return st;
}

static void
expect_stall(const char *how, uint32_t nodes, const char *const *words)
{
    exo_err err = {0};
    cr_assert_eq(fit(how, nodes, 8, 300 * EXO_SECOND, &err), EXO_FAILED, "%s", err.text);
    cr_expect(strncmp(err.text, "the nodes stall: ", 17) == 0, "%s", err.text);
    for (; *words; words++)
        cr_expect_not_null(strstr(err.text, *words), "'%s' is not in '%s'", *words, err.text);
}

/* These tests' timeouts are shorter than the jobs' deadline, so a stall is found before the
 * deadline. */

Test(fit_stall, a_call_that_only_some_make, .timeout = 60)
{
    expect_stall("some", 3,
                 (const char *const[]){
                     "node_0 waits in all_reduce, call 4 of the strategy, for node_1 since ",
                     " s into the run, node_1 has done its part and waits for the others", NULL});
}

Test(fit_stall, calls_among_some_in_a_ring, .timeout = 60)
{
    expect_stall("ring", 3,
                 (const char *const[]){
                     "node_0 waits in all_reduce, call 4 of the strategy, for node_1 since ",
                     "node_1 waits in all_reduce, call 4 of the strategy, for node_2 since ",
                     "node_2 waits in all_reduce, call 4 of the strategy, for node_0 since ",
                     NULL});
}

Test(fit_stall, calls_in_another_order_are_named_at_once, .timeout = 60)
{
    exo_err err = {0};
    cr_assert_eq(fit("orders", 2, 8, 300 * EXO_SECOND, &err), EXO_INVAL, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "members disagree"), "%s", err.text);
}

Test(fit_stall, a_slow_node_is_none, .timeout = 60)
{
    exo_err err = {0};
    cr_assert_eq(fit("late", 3, 8, 300 * EXO_SECOND, &err), EXO_OK, "%s", err.text);
}

Test(fit_stall, a_wait_ends_at_its_deadline_and_says_for_whom, .timeout = 60)
{
    exo_err err = {0};
    cr_assert_eq(fit("late", 2, 8, 300 * EXO_MS, &err), EXO_TIMEOUT, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "all_reduce: deadline passed after "), "%s", err.text);
    cr_expect_not_null(strstr(err.text, " s while waiting for node_1 (rank 1)"), "%s", err.text);
}
