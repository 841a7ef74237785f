/* Plans and scratch of the CPU, by the kind of the shape. No state. */
#include "nn/cpu/plans.h"

exo_status
exo_cpu_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
                 exo_err *err)
{
    (void)device;
    switch (kind) {
    case EXO_SHAPE_LINEAR:
        return exo_cpu_linear_plan(out, shape, err);
    case EXO_SHAPE_CONV:
        return exo_cpu_conv_plan(out, shape, err);
    case EXO_SHAPE_ATTENTION:
        return exo_cpu_attention_plan(out, shape, err);
    case EXO_SHAPE_HEAD:
        return exo_cpu_head_plan(out, shape, err);
    case EXO_SHAPE_DECODER:
        return exo_cpu_decoder_plan(out, shape, err);
    case EXO_SHAPE_NEWTON_SCHULZ:
        return exo_cpu_newton_schulz_plan(out, shape, err);
    case EXO_SHAPE_ROW_NORM:
    case EXO_SHAPE_BATCH_NORM:
        break;
    }
    return exo_fail(err, EXO_UNSUPPORTED, "norms have no plans");
}

void
exo_cpu_plan_free(exo_plan *plan)
{
    switch (plan->kind) {
    case EXO_SHAPE_LINEAR:
        exo_cpu_linear_plan_free(plan);
        break;
    case EXO_SHAPE_CONV:
        exo_cpu_conv_plan_free(plan);
        break;
    case EXO_SHAPE_ATTENTION:
        exo_cpu_attention_plan_free(plan);
        break;
    case EXO_SHAPE_HEAD:
        exo_cpu_head_plan_free(plan);
        break;
    case EXO_SHAPE_DECODER:
        exo_cpu_decoder_plan_free(plan);
        break;
    case EXO_SHAPE_NEWTON_SCHULZ:
        exo_cpu_newton_schulz_plan_free(plan);
        break;
    case EXO_SHAPE_ROW_NORM:
    case EXO_SHAPE_BATCH_NORM:
        break;
    }
}

size_t
exo_cpu_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                exo_scratch_use use)
{
    (void)device;
    switch (kind) {
    case EXO_SHAPE_ATTENTION:
        return exo_cpu_attention_scratch(shape, use);
    case EXO_SHAPE_HEAD:
        return exo_cpu_head_scratch(shape, use);
    case EXO_SHAPE_DECODER:
        return exo_cpu_decoder_scratch(shape, use);
    case EXO_SHAPE_NEWTON_SCHULZ:
        return exo_cpu_newton_schulz_scratch(shape);
    case EXO_SHAPE_ROW_NORM:
        return exo_cpu_row_norm_scratch(shape, use);
    case EXO_SHAPE_BATCH_NORM:
        return exo_cpu_batch_norm_scratch(shape);
    case EXO_SHAPE_LINEAR:
        return exo_cpu_linear_scratch(shape, use);
    case EXO_SHAPE_CONV:
        break;
    }
    return 0;
}
