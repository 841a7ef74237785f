/* The best policy among those evaluated, and policies in files. Each test owns its policies and its
 * folder. Read next: actors/evaluator.h, policy_file.h; unit/maker_trainer has a trainer with an
 * evaluator. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/evaluator.h"
#include "actors/policy_file.h"
#include "base/file.h"
#include "base/memory_fault.h"
#include "support/rollout_arrays.h"
#include "support/temp.h"

/* A policy that always pushes the cart to one side: it plays worse than one that was just drawn. */
static exo_policy
one_sided(const exo_environment_spec *spec)
{
    exo_policy policy = policy_new(spec, 1);
    policy.action_bias[0] = 20;
    return policy;
}

static exo_evaluator *
evaluator_new(const exo_environment_spec *spec, const exo_policy *policy, double threshold,
              const char *folder)
{
    exo_evaluator *evaluator = NULL;
    const exo_evaluator_opts opts = {.spec = spec,
                                     .episodes = 20,
                                     .threshold = threshold,
                                     .seed = 5,
                                     .folder = folder,
                                     .actor = "t"};
    cr_assert_eq(exo_evaluator_new(&evaluator, &opts, &policy->shape, NULL), EXO_OK);
    return evaluator;
}

Test(evaluator, keeps_the_first_of_the_best_policies)
{
    char folder[256], path[300], expected[300], *text = NULL;
    size_t size = 0;
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy drawn = policy_new(spec, 1), poor = one_sided(spec), read = policy_new(spec, 2);
    temp_folder(folder, sizeof folder);
    exo_evaluator *e = evaluator_new(spec, &drawn, 15, folder);
    cr_expect_null(exo_evaluator_newest(e));
    cr_expect_null(exo_evaluator_best(e));
    cr_expect_null(exo_evaluator_reached(e));

    /* Another policy than the best one is the newest; the same one again is no better. */
    const exo_policy *looks[] = {&poor, &drawn, &drawn, &poor};
    double means[4];
    for (uint64_t i = 0; i < 4; i++) {
        cr_assert_eq(exo_evaluator_look(e, looks[i], 10 * (i + 1), 100 * (i + 1), NULL), EXO_OK);
        means[i] = exo_evaluator_newest(e)->evaluation.mean;
        cr_expect_eq(exo_evaluator_newest(e)->update, 10 * (i + 1));
    }
    cr_expect_lt(means[0], 15);
    cr_expect_gt(means[1], 15);
    cr_expect_eq(means[2], means[1], "each look plays the same episodes");
    cr_expect_eq(means[3], means[0]);
    cr_expect_eq(exo_evaluator_best(e)->update, 20);
    cr_expect_eq(exo_evaluator_best(e)->samples, 200);
    cr_expect_eq(exo_evaluator_best(e)->evaluation.mean, means[1]);
    cr_expect_eq(exo_evaluator_reached(e)->update, 20);
    cr_expect_eq(
        memcmp(exo_evaluator_policy(e)->values, drawn.values, policy_numel(&drawn) * sizeof(float)),
        0);

    /* A second look at the same update is none. */
    cr_assert_eq(exo_evaluator_look(e, &drawn, 40, 400, NULL), EXO_OK);
    cr_expect_eq(exo_evaluator_newest(e)->evaluation.mean, means[3]);

    snprintf(path, sizeof path, "%s/best_t.safetensors", folder);
    cr_assert_eq(exo_policy_load(&read, exo_environment_spec_name(spec), path, NULL), EXO_OK);
    cr_expect_eq(memcmp(read.values, drawn.values, policy_numel(&drawn) * sizeof(float)), 0);
    snprintf(path, sizeof path, "%s/evaluations_t.csv", folder);
    cr_assert_eq(exo_file_read(path, 4096, &text, &size, NULL), EXO_OK);
    snprintf(expected, sizeof expected, "update,samples,mean,deviation\n10,100,%.9g,", means[0]);
    cr_expect_eq(strncmp(text, expected, strlen(expected)), 0, "%s", text);
    snprintf(expected, sizeof expected, "\n40,400,%.9g,", means[3]);
    cr_expect_not_null(strstr(text, expected), "%s", text);

    exo_free(text);
    exo_evaluator_free(&e);
    temp_remove(folder);
    policy_free(&drawn);
    policy_free(&poor);
    policy_free(&read);
    exo_environment_spec_free(&spec);
}

/* Each allocation fails in turn: an error, and no policy is half taken over. */
Test(evaluator, every_allocation_may_fail)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 1);
    size_t failed = 0, worked = 0;
    for (uint64_t n = 1; n <= 20; n++) {
        exo_evaluator *e = NULL;
        exo_err err = {0};
        const exo_evaluator_opts opts = {.spec = spec, .episodes = 1, .threshold = 1, .actor = "t"};
        exo_memory_fail_at(n);
        exo_status st = exo_evaluator_new(&e, &opts, &policy.shape, &err);
        cr_assert((st == EXO_OK) == (e != NULL));
        if (st == EXO_OK) {
            st = exo_evaluator_look(e, &policy, 1, 1, &err);
            cr_expect_eq(exo_evaluator_best(e) != NULL, st == EXO_OK);
        }
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]));
        *(st == EXO_OK ? &worked : &failed) += 1;
        exo_evaluator_free(&e);
    }
    cr_expect_gt(failed, 2);
    cr_expect_gt(worked, 0);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}

/* --- Files ------------------------------------------------------------------------------------ */

Test(policy_file, a_policy_is_read_back_and_another_shape_or_a_damaged_file_is_refused)
{
    static const char *const names[] = {"cartpole", "pendulum"};
    char folder[256], path[300];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/policy_t.safetensors", folder);
    for (size_t i = 0; i < 2; i++) {
        exo_environment_spec *spec = environment_new(names[i]), *other = environment_new(names[!i]);
        exo_policy written = policy_new(spec, 1), read = policy_new(spec, 2),
                   different = policy_new(other, 2);
        written.value_bias[0] = 0.25f;
        cr_assert_eq(exo_policy_save(&written, names[i], 7, folder, "policy", "t", &err), EXO_OK,
                     "%s", err.text);
        cr_assert_eq(exo_policy_load(&read, names[i], path, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(memcmp(read.values, written.values, policy_numel(&read) * sizeof(float)), 0);
        cr_expect_eq(exo_policy_load(&different, names[i], path, &err), EXO_INVAL);
        cr_expect(strstr(err.text, "'actor.weight1'"), "%s", err.text);
        cr_expect_eq(exo_policy_load(&read, "acrobot", path, &err), EXO_INVAL);
        cr_expect(strstr(err.text, "this one is 'acrobot'"), "%s", err.text);

        FILE *file = fopen(path, "r+b");
        cr_assert_not_null(file);
        fseek(file, -1, SEEK_END);
        fputc(0x55, file);
        fclose(file);
        cr_expect_eq(exo_policy_load(&read, names[i], path, &err), EXO_DAMAGED);
        policy_free(&written);
        policy_free(&read);
        policy_free(&different);
        exo_environment_spec_free(&spec);
        exo_environment_spec_free(&other);
    }
    temp_remove(folder);
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 1);
    cr_expect_eq(exo_policy_load(&policy, "cartpole", path, &err), EXO_NOT_FOUND);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}
