/* The reference's plans: the shape itself. Only a decoder and newton_schulz have scratch. Private
 * to nn/ref. */
#ifndef EXO_REF_PLANS_H
#define EXO_REF_PLANS_H

#include "nn/device/device_impl.h"

typedef struct exo_ref_plan {
    exo_plan plan;
    union {
        exo_linear_shape linear;
        exo_conv_shape conv;
        exo_attention_shape attention;
        exo_head_shape head;
        exo_decoder_shape decoder;
        exo_newton_schulz_shape newton_schulz;
    };
    const float *weight; /* of the last convolution, which its backward is of */
} exo_ref_plan;

static inline const exo_ref_plan *
exo_ref_plan_of(const exo_plan *plan)
{
    return (const exo_ref_plan *)(const void *)plan;
}

exo_status exo_ref_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind,
                            const void *shape, exo_err *err);
void exo_ref_plan_free(exo_plan *plan);
size_t exo_ref_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                       exo_scratch_use use);

#endif
