/* Error feedback: see feedback.h. */
#include "strategies/feedback.h"

exo_status
exo_feedback_init(exo_feedback *out, exo_device *device, size_t count, exo_err *err)
{
    return exo_array_init(&out->error, device, EXO_F32, count, err);
}

void
exo_feedback_release(exo_feedback *feedback)
{
    exo_array_release(&feedback->error);
}

void
exo_feedback_add(exo_feedback *feedback, exo_array x)
{
    exo_vec_axpy(x, 1, feedback->error);
    exo_vec_copy(feedback->error, x);
}

void
exo_feedback_keep(exo_feedback *feedback, exo_array sent)
{
    exo_vec_sub(feedback->error, feedback->error, sent);
}
