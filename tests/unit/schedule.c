/* The learning-rate schedule at its corners, and against its formula. */
#include <criterion/criterion.h>

#include <math.h>

#include <exogym/optim.h>

static const exo_schedule warm = {.lambda_cosine = true, .warmup_steps = 10};
static const exo_schedule cosine = {.lambda_cosine = true, .warmup_steps = 10, .cosine_anneal = true};

Test(schedule, constant_is_one)
{
    const exo_schedule constant = {0};
    cr_expect_eq(exo_schedule_factor(&constant, 0, 100), 1.0f);
    cr_expect_eq(exo_schedule_factor(&constant, 99, 100), 1.0f);
}

Test(schedule, warmup_rises_from_zero)
{
    cr_expect_eq(exo_schedule_factor(&warm, 0, 100), 0.0f);
    cr_expect_eq(exo_schedule_factor(&warm, 5, 100), 0.5f);
    cr_expect_eq(exo_schedule_factor(&warm, 10, 100), 1.0f);
    cr_expect_eq(exo_schedule_factor(&warm, 99, 100), 1.0f);
}

Test(schedule, cosine_falls_from_one_to_a_tenth)
{
    cr_expect_eq(exo_schedule_factor(&cosine, 5, 110), 0.5f);
    cr_expect_eq(exo_schedule_factor(&cosine, 10, 110), 1.0f);
    cr_expect_float_eq(exo_schedule_factor(&cosine, 60, 110), 0.55f, 1e-6f);
    cr_expect_float_eq(exo_schedule_factor(&cosine, 35, 110), (float)(0.45 * (1 + cos(acos(-1) / 4)) + 0.1), 1e-6f);
    cr_expect_float_eq(exo_schedule_factor(&cosine, 110, 110), 0.1f, 1e-6f);
    cr_expect_eq(exo_schedule_factor(&cosine, 500, 110), exo_schedule_factor(&cosine, 110, 110));
}

Test(schedule, is_finite_where_warmup_takes_the_whole_run)
{
    cr_expect_eq(exo_schedule_factor(&cosine, 9, 10), 0.9f);
    cr_expect(isfinite(exo_schedule_factor(&cosine, 10, 10)));
    cr_expect(isfinite(exo_schedule_factor(&cosine, 10, 5)));
}

Test(schedule, no_warmup_starts_at_one)
{
    const exo_schedule s = {.lambda_cosine = true, .cosine_anneal = true};
    cr_expect_eq(exo_schedule_factor(&s, 0, 100), 1.0f);
}
