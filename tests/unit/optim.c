/* Optimizers: PyTorch's numbers, the same bits with any number of threads and shards, strict
 * options, groups, checkpoints, and failed allocations. Each test owns its optimizers. Read next:
 * include/exogym/optim.h; tests/golden/optim.py, which made the expected numbers. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/optim.h>

#include "../golden/optim_golden.h"
#include "base/memory_fault.h"
#include "support/numbers.h"

static void
take_step(exo_optim *optim, float *params, const float *grads, size_t numel, float lr)
{
    exo_optim_step(optim, numbers_array(params, numel), numbers_array(grads, numel), lr);
}

static exo_status
read_spec(const char *text, exo_optim_spec *spec, exo_err *err)
{
    const exo_optim_spec adamw = exo_optim_spec_init(EXO_ADAMW);
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job.yaml", text, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read(exo_config_root(doc), "optimizer", &adamw, spec, err);
    exo_config_free(&doc);
    return st;
}

/* --- Against PyTorch -------------------------------------------------------------------------- */

/* PyTorch rounds some products and sums once (fused multiply-add) where exogym rounds twice, and
 * has the learning rate in double. The tolerance is up to eight roundings per step of `largest`,
 * the largest absolute value that the parameter has had so far. */
static void
expect_close(const float *got, const float *want, const float *largest, float steps,
             const char *what)
{
    for (size_t i = 0; i < GOLDEN_NUMEL; i++) {
        float tolerance = 8.0f * steps * FLT_EPSILON / 2 * largest[i];
        cr_expect(fabsf(got[i] - want[i]) <= tolerance,
                  "%s: parameter %zu is %.9g, PyTorch has %.9g", what, i, (double)got[i],
                  (double)want[i]);
    }
}

Test(optim, gives_the_numbers_of_pytorch)
{
    for (size_t c = 0; c < GOLDEN_CASES; c++) {
        char text[256];
        exo_err err = {0};
        exo_optim_spec spec;
        exo_optim *optim = NULL;
        snprintf(text, sizeof text, "optimizer: %s", golden_options[c]);
        cr_assert_eq(read_spec(text, &spec, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), GOLDEN_NUMEL, &err), EXO_OK,
                     "%s", err.text);

        float params[GOLDEN_NUMEL], largest[GOLDEN_NUMEL];
        memcpy(params, golden_start[0], sizeof params);
        for (size_t i = 0; i < GOLDEN_NUMEL; i++)
            largest[i] = fabsf(params[i]);
        for (size_t step = 0; step < GOLDEN_STEPS; step++) {
            take_step(optim, params, golden_grads[step], GOLDEN_NUMEL, spec.lr);
            for (size_t i = 0; i < GOLDEN_NUMEL; i++)
                largest[i] = fmaxf(largest[i], fabsf(params[i]));
            if (step == 0)
                expect_close(params, golden_params[2 * c], largest, 1, golden_options[c]);
        }
        expect_close(params, golden_params[2 * c + 1], largest, GOLDEN_STEPS, golden_options[c]);
        exo_optim_free(&optim);
    }
}

/* --- Equal bits ------------------------------------------------------------------------------- */

enum {
    LARGE = 100003 /* several pieces, the last one shorter */
};

static float *
noise(size_t n, uint64_t seed)
{
    float *x = exo_alloc_aligned(n * sizeof *x);
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = exo_rng_normal(&rng);
    return x;
}

static const char *const rules[] = {
    "adam",
    "{name: adamw, weight_decay: 0.1}",
    "{name: adam, amsgrad: true}",
    "{name: sgd, momentum: 0.9, nesterov: true}",
    "{name: rmsprop, centered: true, momentum: 0.5}",
    "adagrad",
};

static exo_optim *
optim_of(const char *rule, size_t numel)
{
    char text[256];
    exo_err err = {0};
    exo_optim_spec spec;
    exo_optim *optim = NULL;
    snprintf(text, sizeof text, "optimizer: %s", rule);
    cr_assert_eq(read_spec(text, &spec, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), numel, &err), EXO_OK, "%s",
                 err.text);
    return optim;
}

Test(optim, any_number_of_threads_gives_the_same_bits)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        float *grads = noise(LARGE, 2), *one = noise(LARGE, 1), *three = noise(LARGE, 1);
        exo_optim *a = optim_of(rules[r], LARGE), *b = optim_of(rules[r], LARGE);
        for (int step = 0; step < 3; step++) {
            exo_set_num_threads(1);
            take_step(a, one, grads, LARGE, 0.01f);
            exo_set_num_threads(3);
            take_step(b, three, grads, LARGE, 0.01f);
        }
        cr_expect_arr_eq(one, three, LARGE * sizeof *one, "%s", rules[r]);
        exo_optim_free(&a);
        exo_optim_free(&b);
        exo_free(grads);
        exo_free(one);
        exo_free(three);
    }
}

Test(optim, shards_give_the_bits_of_the_whole)
{
    const size_t cut = 33335;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        float *grads = noise(LARGE, 2), *whole = noise(LARGE, 1), *parts = noise(LARGE, 1);
        exo_optim *all = optim_of(rules[r], LARGE), *low = optim_of(rules[r], cut),
                  *high = optim_of(rules[r], LARGE - cut);
        for (int step = 0; step < 3; step++) {
            take_step(all, whole, grads, LARGE, 0.01f);
            take_step(low, parts, grads, cut, 0.01f);
            take_step(high, parts + cut, grads + cut, LARGE - cut, 0.01f);
        }
        cr_expect_arr_eq(whole, parts, LARGE * sizeof *whole, "%s", rules[r]);
        exo_optim_free(&all);
        exo_optim_free(&low);
        exo_optim_free(&high);
        exo_free(grads);
        exo_free(whole);
        exo_free(parts);
    }
}

Test(optim, a_gradient_that_is_not_a_number_spreads_to_its_parameter_only)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        float params[3] = {1, 2, 3}, grads[3] = {1, NAN, 1};
        exo_optim *optim = optim_of(rules[r], 3);
        take_step(optim, params, grads, 3, 0.01f);
        cr_expect(isfinite(params[0]) && isnan(params[1]) && isfinite(params[2]), "%s", rules[r]);
        exo_optim_free(&optim);
    }
}

/* The mean of the squares minus the square of the mean is zero here, or less by a rounding. */
Test(optim, centered_rmsprop_survives_a_constant_gradient)
{
    float params[100] = {0}, grads[100];
    exo_optim *optim = optim_of("{name: rmsprop, centered: true, alpha: 0.5}", 100);
    for (int i = 0; i < 100; i++)
        grads[i] = 0.01f * (float)(i + 1);
    for (int step = 0; step < 100; step++)
        take_step(optim, params, grads, 100, 1e-9f);
    for (int i = 0; i < 100; i++)
        cr_expect(isfinite(params[i]), "gradient %g", (double)grads[i]);
    exo_optim_free(&optim);
}

Test(optim, an_empty_shard_is_fine)
{
    exo_optim *optim = optim_of("adamw", 0);
    take_step(optim, NULL, NULL, 0, 0.1f);
    exo_optim_free(&optim);
}

/* --- Options ---------------------------------------------------------------------------------- */

Test(optim, options_default_to_pytorchs)
{
    exo_err err = {0};
    exo_optim_spec spec;
    cr_assert_eq(read_spec("optimizer: sgd", &spec, &err), EXO_OK);
    cr_expect_eq(spec.kind, EXO_SGD);
    cr_expect_eq(spec.lr, 1e-3f);
    cr_expect_eq(spec.momentum, 0.0);

    cr_assert_eq(read_spec("optimizer: {name: adam, betas: [0.5, 0.75]}", &spec, &err), EXO_OK);
    cr_expect_eq(spec.beta1, 0.5);
    cr_expect_eq(spec.beta2, 0.75);
    cr_expect_eq(spec.weight_decay, 0.0);
}

Test(optim, without_the_key_or_a_name_the_fallback_counts)
{
    exo_err err = {0};
    exo_optim_spec spec;
    cr_assert_eq(read_spec("{}", &spec, &err), EXO_OK);
    cr_expect_eq(spec.kind, EXO_ADAMW);
    cr_expect_eq(spec.weight_decay, 0.01);

    cr_assert_eq(read_spec("optimizer: {lr: 0.5}", &spec, &err), EXO_OK);
    cr_expect_eq(spec.kind, EXO_ADAMW);
    cr_expect_eq(spec.lr, 0.5f);
    cr_expect_eq(spec.weight_decay, 0.01);
}

Test(optim, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *text, *place, *reason;
    } cases[] = {
        {"optimizer: adamm", "job.yaml:1:12", "adamw"},
        {"optimizer: [adam]", "job.yaml:1:12", "a list"},
        {"optimizer: {name: adam, momentum: 0.9}", "job.yaml:1:25", "momentum"},
        {"optimizer: {name: sgd, betas: [0.9, 0.99]}", "job.yaml:1:24", "betas"},
        {"optimizer: {name: sgd, lr: -1}", "job.yaml:1:28", "lr"},
        {"optimizer: {name: sgd, lr: 1e-50}", "job.yaml:1:28", "lr: 1e-50 is too small"},
        {"optimizer: {name: adam, betas: [0.9, 1e-400]}", "job.yaml:1:38", "too small"},
        {"optimizer: {name: sgd, nesterov: true}", "job.yaml:1:12", "momentum"},
        {"optimizer: {name: adam, betas: [0.9]}", "job.yaml:1:32", "two numbers"},
        {"optimizer: {name: adam, betas: [0.9, 1]}", "job.yaml:1:38", "less than 1"},
        {"optimizer: {name: adam, betas: [0.9, {}]}", "job.yaml:1:38", "a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_optim_spec spec = {.lr = 123};
        cr_expect_eq(read_spec(cases[i].text, &spec, &err), EXO_INVAL, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].place) && strstr(err.text, cases[i].reason),
                  "'%s' gave '%s'", cases[i].text, err.text);
        cr_expect_eq(spec.lr, 123.0f, "*out stays as it was");
    }
}

Test(optim, a_spec_made_in_c_is_checked_too)
{
    exo_err err = {0};
    exo_optim *optim = NULL;
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAM);
    spec.beta2 = (double)NAN;
    cr_expect_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), 1, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "beta2"));
    spec = exo_optim_spec_init((exo_optim_kind)99);
    cr_expect_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), 1, &err), EXO_INVAL);
    cr_expect_null(optim);
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* The parameters of a small decoder: two matrices, a vector beside each, and a statistic, which no
 * optimizer changes. */
static const exo_param_info infos[] = {
    {.name = "embed.weight", .num_dims = 2, .dims = {100, 50}, .numel = 5000, .offset = 0},
    {.name = "embed.bias", .num_dims = 1, .dims = {50}, .numel = 50, .offset = 5000},
    {.name = "norm.mean", .num_dims = 1, .dims = {50}, .numel = 50, .offset = 0, .is_buffer = true},
    {.name = "head.weight", .num_dims = 2, .dims = {1000, 90}, .numel = 90000, .offset = 5050},
    {.name = "head.bias", .num_dims = 1, .dims = {90}, .numel = 90, .offset = 95050},
};
enum {
    NUM_INFOS = sizeof infos / sizeof *infos,
    GROUPED = 95140
};

static exo_status
read_groups(const char *text, exo_optim_spec *spec, exo_err *err)
{
    const exo_optim_spec adamw = exo_optim_spec_init(EXO_ADAMW);
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job.yaml", text, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(exo_config_root(doc), "optimizer", &adamw, spec, err);
    exo_config_free(&doc);
    return st;
}

/* Compares the grouped optimizer to one optimizer for each parameter, with the rule that its group
 * should give it. */
static void
expect_groups(const char *grouped, const char *const rule[NUM_INFOS], const float rate[NUM_INFOS])
{
    exo_err err = {0};
    exo_optim_spec spec;
    exo_optim *all = NULL;
    cr_assert_eq(read_groups(grouped, &spec, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_optim_groups_check(&spec, infos, NUM_INFOS, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(
        exo_optim_new_grouped(&all, &spec, infos, NUM_INFOS, exo_device_cpu(), 0, GROUPED, &err),
        EXO_OK, "%s", err.text);
    float *grads = noise(GROUPED, 2), *together = noise(GROUPED, 1), *apart = noise(GROUPED, 1);
    for (int step = 0; step < 3; step++)
        take_step(all, together, grads, GROUPED, spec.lr);
    exo_optim_free(&all);
    exo_optim_spec_release(&spec);
    for (size_t i = 0; i < NUM_INFOS; i++) {
        if (infos[i].is_buffer)
            continue;
        exo_optim *one = optim_of(rule[i], infos[i].numel);
        size_t at = infos[i].offset;
        for (int step = 0; step < 3; step++)
            take_step(one, apart + at, grads + at, infos[i].numel, rate[i]);
        exo_optim_free(&one);
        cr_expect_arr_eq(together + at, apart + at, infos[i].numel * sizeof *apart, "%s: %s",
                         grouped, infos[i].name);
    }
    exo_free(grads);
    exo_free(together);
    exo_free(apart);
}

Test(optim, groups_have_constants_of_their_own)
{
    const char *decays = "{name: adamw, weight_decay: 0.1}",
               *plain = "{name: adamw, weight_decay: 0}";
    expect_groups("optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1, groups: [{max_dims: 1, "
                  "weight_decay: 0}]}",
                  (const char *const[]){decays, plain, NULL, decays, plain},
                  (const float[]){0.01f, 0.01f, 0, 0.01f, 0.01f});
    const char *slow = "{name: adamw, betas: [0.5, 0.9]}", *fast = "adamw";
    expect_groups(
        "optimizer: {lr: 0.5, groups: [{match: embed.*, min_dims: 2, betas: [0.5, 0.9], lr: 0.25}, "
        "{match: '*', lr: 0.5}]}",
        (const char *const[]){slow, fast, NULL, fast, fast},
        (const float[]){0.25f, 0.5f, 0, 0.5f, 0.5f});
    expect_groups("optimizer: {name: sgd, lr: 0.5, groups: [{match: head.*, momentum: 0.9}]}",
                  (const char *const[]){"sgd", "sgd", NULL, "{name: sgd, momentum: 0.9}",
                                        "{name: sgd, momentum: 0.9}"},
                  (const float[]){0.5f, 0.5f, 0, 0.5f, 0.5f});
    expect_groups("optimizer: {name: adagrad, lr: 0.5, groups: [{match: head.*, "
                  "initial_accumulator_value: 2}]}",
                  (const char *const[]){"adagrad", "adagrad", NULL,
                                        "{name: adagrad, initial_accumulator_value: 2}",
                                        "{name: adagrad, initial_accumulator_value: 2}"},
                  (const float[]){0.5f, 0.5f, 0, 0.5f, 0.5f});
}

Test(optim, a_schedule_holds_for_all_groups)
{
    exo_err err = {0};
    exo_optim_spec spec;
    exo_optim *optim = NULL;
    cr_assert_eq(
        read_groups("optimizer: {name: sgd, lr: 0.5, groups: [{match: embed.*, lr: 0.25}]}", &spec,
                    &err),
        EXO_OK);
    cr_assert_eq(
        exo_optim_new_grouped(&optim, &spec, infos, NUM_INFOS, exo_device_cpu(), 0, GROUPED, &err),
        EXO_OK);
    float *grads = noise(GROUPED, 2), *params = exo_calloc(GROUPED, sizeof *params);
    take_step(optim, params, grads, GROUPED, 0.125f);
    cr_expect_eq(params[0], -0.0625f * grads[0]);
    cr_expect_eq(params[GROUPED - 1], -0.125f * grads[GROUPED - 1]);
    exo_free(grads);
    exo_free(params);
    exo_optim_free(&optim);
    exo_optim_spec_release(&spec);
}

Test(optim, shards_of_a_model_with_groups_do_as_the_whole)
{
    exo_err err = {0};
    exo_optim_spec spec;
    cr_assert_eq(read_groups("optimizer: {weight_decay: 0.1, groups: [{max_dims: 1, weight_decay: "
                             "0, lr: 1e-4}, {match: head.*, betas: [0.5, 0.5]}]}",
                             &spec, &err),
                 EXO_OK, "%s", err.text);
    float *grads = noise(GROUPED, 2), *whole = noise(GROUPED, 1), *parts = noise(GROUPED, 1);
    static const size_t cuts[] = {0, 1, 5000, 5001, 5049, 5050, 60000, 95050, GROUPED};
    exo_optim *all = NULL, *part[8] = {0};
    cr_assert_eq(
        exo_optim_new_grouped(&all, &spec, infos, NUM_INFOS, exo_device_cpu(), 0, GROUPED, &err),
        EXO_OK);
    for (size_t p = 0; p < 8; p++)
        cr_assert_eq(exo_optim_new_grouped(&part[p], &spec, infos, NUM_INFOS, exo_device_cpu(),
                                           cuts[p], cuts[p + 1] - cuts[p], &err),
                     EXO_OK);
    for (int step = 0; step < 3; step++) {
        take_step(all, whole, grads, GROUPED, 0.01f);
        for (size_t p = 0; p < 8; p++)
            take_step(part[p], parts + cuts[p], grads + cuts[p], cuts[p + 1] - cuts[p], 0.01f);
    }
    cr_expect_arr_eq(whole, parts, GROUPED * sizeof *whole);
    for (size_t p = 0; p < 8; p++)
        exo_optim_free(&part[p]);
    exo_optim_free(&all);
    exo_optim_spec_release(&spec);
    exo_free(grads);
    exo_free(whole);
    exo_free(parts);
}

Test(optim, mistakes_in_groups_are_named)
{
    static const struct {
        const char *text, *place, *reason;
    } cases[] = {
        {"optimizer: {groups: {max_dims: 1}}", "job.yaml:1:21", "a mapping"},
        {"optimizer: {groups: [decay]}", "job.yaml:1:22", "max_dims"},
        {"optimizer: {groups: [{momentum: 0.9}]}", "job.yaml:1:23", "momentum"},
        {"optimizer: {groups: [{name: sgd}]}", "job.yaml:1:23", "name"},
        {"optimizer: {groups: [{min_dims: 2, max_dims: 1}]}", "job.yaml:1:46", "max_dims"},
        {"optimizer: {name: sgd, groups: [{nesterov: true}]}", "job.yaml:1:33", "momentum"},
        {"optimizer: {lr: 0, groups: [{lr: 1}]}", "job.yaml:1:29", "which is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_optim_spec spec = {.lr = 123};
        cr_expect_eq(read_groups(cases[i].text, &spec, &err), EXO_INVAL, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].place) && strstr(err.text, cases[i].reason),
                  "'%s' gave '%s'", cases[i].text, err.text);
        cr_expect_eq(spec.lr, 123.0f, "*out stays as it was");
    }
    exo_err err = {0};
    exo_optim_spec spec;
    cr_expect_eq(read_spec("optimizer: {groups: [{max_dims: 1}]}", &spec, &err), EXO_INVAL,
                 "an outer optimizer's parameters have no names");
    cr_assert_eq(
        read_groups("optimizer: {groups: [{match: 'head.*'}, {match: '*.biass', weight_decay: 0}]}",
                    &spec, &err),
        EXO_OK);
    cr_expect_eq(exo_optim_groups_check(&spec, infos, NUM_INFOS, &err), EXO_INVAL,
                 "a pattern that takes nothing");
    cr_expect_not_null(strstr(err.text, "*.biass"));
    exo_optim *optim = NULL;
    cr_expect_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), 10, &err), EXO_INVAL);
    exo_optim_spec_release(&spec);
}

/* --- Checkpoints and faults ------------------------------------------------------------------- */

static exo_status
through_file(exo_optim *optim, const char *path,
             exo_status (*how)(exo_state *, const char *, exo_err *))
{
    exo_err err = {0};
    exo_state *state = NULL;
    cr_assert_eq(exo_state_new(&state, &err), EXO_OK);
    exo_optim_state(optim, "optim", state);
    exo_status st = how(state, path, &err);
    exo_state_free(&state);
    return st;
}

Test(optim, goes_on_from_a_checkpoint_with_the_same_bits)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        char path[] = "/tmp/exogym-optim-XXXXXX";
        int file = mkstemp(path);
        cr_assert_geq(file, 0);
        close(file);
        float *grads = noise(LARGE, 2), *whole = noise(LARGE, 1),
              *resumed = exo_alloc_aligned(LARGE * sizeof *resumed);
        exo_optim *a = optim_of(rules[r], LARGE), *b = optim_of(rules[r], LARGE);
        for (int step = 0; step < 2; step++)
            take_step(a, whole, grads, LARGE, 0.01f);
        cr_assert_eq(through_file(a, path, exo_state_save), EXO_OK);
        memcpy(resumed, whole, LARGE * sizeof *whole);
        cr_assert_eq(through_file(b, path, exo_state_load), EXO_OK);
        for (int step = 0; step < 2; step++) {
            take_step(a, whole, grads, LARGE, 0.01f);
            take_step(b, resumed, grads, LARGE, 0.01f);
        }
        cr_expect_arr_eq(whole, resumed, LARGE * sizeof *whole, "%s", rules[r]);
        unlink(path);
        exo_optim_free(&a);
        exo_optim_free(&b);
        exo_free(grads);
        exo_free(whole);
        exo_free(resumed);
    }
}

Test(optim, every_failed_allocation_is_an_error_and_leaks_nothing)
{
    exo_optim_spec spec = exo_optim_spec_init(EXO_RMSPROP);
    spec.centered = true;
    spec.momentum = 0.9;
    exo_status st = EXO_NOMEM;
    uint64_t failed = 0;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_optim *optim = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_optim_new(&optim, &spec, exo_device_cpu(), 1000, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && !optim && err.text[0]));
        failed += st != EXO_OK;
        exo_optim_free(&optim);
    }
    cr_expect_eq(failed, 6, "the optimizer, its rule, its range and its three buffers");
}
