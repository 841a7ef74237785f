/* Learning-rate schedules: their corner points, their formulas, and their options in configs. Each
 * test owns its schedules. Read next: include/exogym/schedule.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/schedule.h>

#include "base/memory_fault.h"

static exo_status
read_schedule(const char *text, exo_schedule **out, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job.yaml", text, err);
    if (st == EXO_OK)
        st = exo_schedule_read(out, exo_config_root(doc), "lr_scheduler", err);
    if (st == EXO_OK)
        st = exo_config_finish(exo_config_root(doc), err);
    if (st != EXO_OK)
        exo_schedule_free(out);
    exo_config_free(&doc);
    return st;
}

static float
at(const char *text, uint64_t t, uint64_t max_steps)
{
    exo_schedule *schedule = NULL;
    exo_err err = {0};
    cr_assert_eq(read_schedule(text, &schedule, &err), EXO_OK, "%s: %s", text, err.text);
    float factor = exo_schedule_factor(schedule, t, max_steps);
    exo_schedule_free(&schedule);
    return factor;
}

#define COSINE "{lr_scheduler: lambda_cosine, warmup_steps: 10, cosine_anneal: true}"

Test(schedule, constant_is_one)
{
    cr_expect_eq(exo_schedule_factor(NULL, 0, 100), 1.0f);
    cr_expect_eq(at("{}", 0, 100), 1.0f);
    cr_expect_eq(at("{lr_scheduler: constant}", 99, 100), 1.0f);
}

Test(schedule, warmup_grows_from_zero)
{
    static const char *const names[] = {"constant", "lambda_cosine", "cosine",
                                        "linear",   "polynomial",    "wsd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        snprintf(text, sizeof text, "lr_scheduler: {name: %s, warmup_steps: 10}", names[i]);
        cr_expect_eq(at(text, 0, 100), 0.0f);
        cr_expect_eq(at(text, 5, 100), 0.5f);
        cr_expect_eq(at(text, 10, 100), 1.0f, "%s", names[i]);
    }
    cr_expect_eq(at("{lr_scheduler: lambda_cosine, warmup_steps: 10}", 99, 100), 1.0f,
                 "not annealed");
}

Test(schedule, lambda_cosine_falls_to_a_tenth)
{
    cr_expect_eq(at(COSINE, 5, 110), 0.5f);
    cr_expect_eq(at(COSINE, 10, 110), 1.0f);
    cr_expect_float_eq(at(COSINE, 60, 110), 0.55f, 1e-6f);
    cr_expect_float_eq(at(COSINE, 35, 110), (float)(0.45 * (1 + cos(acos(-1) / 4)) + 0.1), 1e-6f);
    cr_expect_float_eq(at(COSINE, 110, 110), 0.1f, 1e-6f);
    cr_expect_eq(at(COSINE, 500, 110), at(COSINE, 110, 110));
}

Test(schedule, curves_begin_at_one_and_end_at_their_end)
{
    static const struct {
        const char *options;
        float quarter, half, end;
    } cases[] = {
        {"name: linear", 0.75f, 0.5f, 0},
        {"name: linear, end_factor: 0.2", 0.8f, 0.6f, 0.2f},
        {"name: cosine", 0.85355339f, 0.5f, 0},
        {"name: cosine, end_factor: 0.1", 0.86819805f, 0.55f, 0.1f},
        {"name: polynomial, power: 2", 0.5625f, 0.25f, 0},
        {"name: polynomial, power: 0.5, end_factor: 0.5", 0.93301270f, 0.85355339f, 0.5f},
        {"name: wsd, decay_steps: 50", 1, 1, 0},
        {"name: wsd, decay_steps: 100", 0.75f, 0.5f, 0},
        {"name: wsd, decay_steps: 100, decay: cosine, end_factor: 0.1", 0.86819805f, 0.55f, 0.1f},
        {"name: wsd, decay_steps: 100, decay: sqrt", 0.5f, 0.29289322f, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[160];
        snprintf(text, sizeof text, "lr_scheduler: {%s, warmup_steps: 20}", cases[i].options);
        cr_expect_eq(at(text, 20, 120), 1.0f, "%s", text);
        cr_expect_float_eq(at(text, 45, 120), cases[i].quarter, 1e-6f, "%s", text);
        cr_expect_float_eq(at(text, 70, 120), cases[i].half, 1e-6f, "%s", text);
        cr_expect_float_eq(at(text, 120, 120), cases[i].end, 1e-6f, "%s", text);
        cr_expect_float_eq(at(text, 1000, 120), cases[i].end, 1e-6f, "%s: beyond", text);
        cr_expect(isfinite(at(text, 20, 20)) && isfinite(at(text, 30, 5)),
                  "%s: a warm-up that takes the whole run", text);
    }
}

Test(schedule, wsd_decays_in_the_last_tenth)
{
    cr_expect_eq(at("lr_scheduler: wsd", 899, 1000), 1.0f);
    cr_expect_float_eq(at("lr_scheduler: wsd", 950, 1000), 0.5f, 1e-6f);
    cr_expect_float_eq(at("{lr_scheduler: wsd, decay_steps: 400}", 800, 1000), 0.5f, 1e-6f,
                       "options beside a name");
}

/* The reference is torch.optim.lr_scheduler.StepLR and MultiStepLR. */
Test(schedule, steps_are_multiplied_by_gamma)
{
    cr_expect_eq(at("lr_scheduler: {name: step, step_size: 30}", 29, 100), 1.0f);
    cr_expect_float_eq(at("lr_scheduler: {name: step, step_size: 30}", 30, 100), 0.1f, 1e-9f);
    cr_expect_float_eq(at("lr_scheduler: {name: step, step_size: 30, gamma: 0.5}", 95, 100), 0.125f,
                       1e-9f);
    cr_expect_eq(at("lr_scheduler: {name: step, milestones: [10, 80], gamma: 0.5}", 9, 100), 1.0f);
    cr_expect_eq(at("lr_scheduler: {name: step, milestones: [10, 80], gamma: 0.5}", 10, 100), 0.5f);
    cr_expect_eq(at("lr_scheduler: {name: step, milestones: [10, 80], gamma: 0.5}", 80, 100),
                 0.25f);
}

Test(schedule, a_curve_with_steps_of_its_own_does_not_follow_the_run)
{
    const char *own = "lr_scheduler: {name: linear, max_steps: 100}";
    cr_expect_eq(at(own, 50, 100), 0.5f);
    cr_expect_eq(at(own, 50, 1000), 0.5f, "a run that was made longer");
    cr_expect_eq(at(own, 150, 1000), 0.0f);
    cr_expect_eq(at("lr_scheduler: linear", 50, 1000), 0.95f);
}

Test(schedule, a_warmup_that_takes_the_whole_run)
{
    cr_expect_eq(at(COSINE, 9, 10), 0.9f);
    cr_expect(isfinite(at(COSINE, 10, 10)));
    cr_expect(isfinite(at(COSINE, 10, 5)));
}

Test(schedule, without_warmup_it_begins_at_one)
{
    cr_expect_eq(at("{lr_scheduler: lambda_cosine, cosine_anneal: true}", 0, 100), 1.0f);
}

Test(schedule, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *text, *place, *reason;
    } cases[] = {
        {"lr_scheduler: linea", "job.yaml:1:15", "linear"},
        {"lr_scheduler: {name: wsdd}", "job.yaml:1:15", "wsd"},
        {"lr_scheduler: {name: linear, power: 2}", "job.yaml:1:30", "power"},
        {"lr_scheduler: {name: step}", "job.yaml:1:15", "step_size"},
        {"lr_scheduler: {name: step, step_size: 1, milestones: [2]}", "job.yaml:1:15", "not both"},
        {"lr_scheduler: {name: step, milestones: [3, 2]}", "job.yaml:1:44", "milestones"},
        {"lr_scheduler: {name: step, milestones: [-3]}", "job.yaml:1:41", "milestones"},
        {"lr_scheduler: {name: cosine, end_factor: 2}", "job.yaml:1:42", "end_factor"},
        {"cosine_anneal: true", "job.yaml:1:1", "lambda_cosine"},
        {"lr_scheduler: [cosine]", "job.yaml:1:15", "list"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_schedule *schedule = NULL;
        exo_err err = {0};
        cr_expect_eq(read_schedule(cases[i].text, &schedule, &err), EXO_INVAL, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].place) && strstr(err.text, cases[i].reason),
                  "'%s' gave '%s'", cases[i].text, err.text);
        cr_expect_null(schedule);
    }
}

Test(schedule, every_failed_allocation_is_an_error)
{
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_schedule *schedule = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = read_schedule("lr_scheduler: {name: step, milestones: [3, 20]}", &schedule, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s", err.text);
        exo_schedule_free(&schedule);
    }
}

/* --- A user's class --------------------------------------------------------------------------- */

static double
half_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    (void)self;
    return t - warmup < (end - warmup) / 2 ? 1.0 : 0.5;
}

Test(schedule, a_class_that_is_registered_is_read_like_the_others)
{
    static const exo_schedule_class half = {.name = "half",
                                            .help = "half of it",
                                            .factor = half_factor},
                                    nameless = {.factor = half_factor}, none = {.name = "none"};
    exo_err err = {0};
    cr_expect_eq(exo_schedule_register(&nameless, &err), EXO_INVAL);
    cr_expect_eq(exo_schedule_register(&none, &err), EXO_INVAL);
    cr_expect_eq(exo_schedule_register(&half, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_schedule_register(&half, &err), EXO_EXISTS);
    cr_expect_eq(at("lr_scheduler: {name: half, warmup_steps: 10}", 10, 110), 1.0f);
    cr_expect_eq(at("lr_scheduler: {name: half, warmup_steps: 10}", 60, 110), 0.5f);
    cr_expect_eq(at("lr_scheduler: {name: half, warmup_steps: 10}", 5, 110), 0.5f);
    size_t count = 0;
    while (exo_schedule_class_at(count))
        count++;
    cr_expect_eq(count, 8);
    cr_expect_eq(exo_schedule_class_at(2), &half, "after constant and cosine");
}
