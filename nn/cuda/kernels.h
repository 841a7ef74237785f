/* The kernels of a GPU: exo_cuda_NAME for each NAME of EXO_KERNELS, and its plans and scratch. A
 * function starts its grids on the device's stream and returns; exo_cuda_select has been called.
 * No state. Read next: table.cu. */
#ifndef EXO_CUDA_KERNELS_H
#define EXO_CUDA_KERNELS_H

#include "nn/cuda/device.h"

#define EXO_CUDA_DECLARE(name)                                                                     \
    exo_status exo_cuda_##name(exo_device *device, const exo_##name##_args *k, exo_err *err);
EXO_KERNELS(EXO_CUDA_DECLARE)
#undef EXO_CUDA_DECLARE

extern const exo_kernels exo_cuda_kernels; /* table.cu */

/* plans.cu */
exo_status exo_cuda_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind,
                             const void *shape, exo_err *err);
void exo_cuda_plan_free(exo_plan *plan);
size_t exo_cuda_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                        exo_scratch_use use);

#endif
