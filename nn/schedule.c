/* Learning-rate schedules: pure functions of the step. */
#include <exogym/optim.h>

#include <math.h>

float
exo_schedule_factor(const exo_schedule *schedule, uint64_t t, uint64_t max_steps)
{
    const double pi = 3.14159265358979323846;
    uint64_t warmup = schedule->warmup_steps;
    if (!schedule->lambda_cosine)
        return 1.0f;
    if (t < warmup)
        return (float)((double)t / (double)warmup);
    if (!schedule->cosine_anneal)
        return 1.0f;
    /* At max_steps and beyond, the end of the curve; also where the warmup takes the whole run. */
    double progress = t < max_steps ? (double)(t - warmup) / (double)(max_steps - warmup) : 1.0;
    return (float)(0.9 * 0.5 * (1.0 + cos(pi * progress)) + 0.1);
}
