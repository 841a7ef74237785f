/* The CPU's plans, one kind a file. Private to nn/cpu. Next: plans.c. */
#ifndef EXO_CPU_PLANS_H
#define EXO_CPU_PLANS_H

#include "nn/device/device_impl.h"

exo_status exo_cpu_linear_plan(exo_plan **out, const exo_linear_shape *shape, exo_err *err);
void exo_cpu_linear_plan_free(exo_plan *plan);
size_t exo_cpu_linear_scratch(const exo_linear_shape *shape, exo_scratch_use use);
exo_status exo_cpu_conv_plan(exo_plan **out, const exo_conv_shape *shape, exo_err *err);
void exo_cpu_conv_plan_free(exo_plan *plan);
exo_status exo_cpu_attention_plan(exo_plan **out, const exo_attention_shape *shape, exo_err *err);
void exo_cpu_attention_plan_free(exo_plan *plan);
size_t exo_cpu_attention_scratch(const exo_attention_shape *shape, exo_scratch_use use);
exo_status exo_cpu_head_plan(exo_plan **out, const exo_head_shape *shape, exo_err *err);
void exo_cpu_head_plan_free(exo_plan *plan);
size_t exo_cpu_head_scratch(const exo_head_shape *shape, exo_scratch_use use);
exo_status exo_cpu_newton_schulz_plan(exo_plan **out, const exo_newton_schulz_shape *shape,
                                      exo_err *err);
void exo_cpu_newton_schulz_plan_free(exo_plan *plan);
size_t exo_cpu_newton_schulz_scratch(const exo_newton_schulz_shape *shape);
size_t exo_cpu_row_norm_scratch(const exo_row_norm_shape *shape, exo_scratch_use use);
size_t exo_cpu_batch_norm_scratch(const exo_batch_norm_shape *shape);
exo_status exo_cpu_decoder_plan(exo_plan **out, const exo_decoder_shape *shape, exo_err *err);
void exo_cpu_decoder_plan_free(exo_plan *plan);
size_t exo_cpu_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use);

/* By kind: the functions of the device's class. */
exo_status exo_cpu_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind,
                            const void *shape, exo_err *err);
void exo_cpu_plan_free(exo_plan *plan);
size_t exo_cpu_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                       exo_scratch_use use);

#endif
