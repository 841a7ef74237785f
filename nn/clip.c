/* Gradient clipping by the global norm. No state. Read next: optim.c. */
#include <exogym/optim.h>

#include <math.h>

exo_status
exo_clip_grad_norm(exo_array grads, float max_norm, float *norm, exo_err *err)
{
    double sum = 0;
    exo_status st = exo_vec_sum_squares(grads, 0, &sum, err);
    if (st != EXO_OK)
        return st;
    *norm = (float)sqrt(sum);
    exo_clip_to_norm(grads, max_norm, *norm);
    return EXO_OK;
}

void
exo_clip_to_norm(exo_array grads, float max_norm, float norm)
{
    float factor = max_norm / (norm + 1e-6f);
    if (!(factor >= 1.0f)) /* also for NaN, which then spreads */
        exo_vec_scale(grads, factor);
}
