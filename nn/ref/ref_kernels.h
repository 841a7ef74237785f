/* The reference's kernels, one function each: ref_device.c has those of arrays and optimizers, ref_ops.c those of operations, ref_layers.c and ref_heads.c those of layers. */
#ifndef EXO_REF_KERNELS_H
#define EXO_REF_KERNELS_H

#include "nn/device/device_impl.h"

#define EXO_REFERENCE_KERNEL(name)                                                                                     \
    exo_status exo_reference_##name(exo_device *device, const exo_##name##_args *args, exo_err *err);
EXO_KERNELS(EXO_REFERENCE_KERNEL)
#undef EXO_REFERENCE_KERNEL

#endif
