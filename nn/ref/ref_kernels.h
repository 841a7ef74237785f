/* The kernels of the reference, one function for each. ref_device.c has the kernels of arrays and
 * optimizers, newton_schulz.c that of Muon's matrices, ref_ops.c those of operations, ref_layers.c
 * and ref_heads.c those of layers, ref_decoder.c those of generation. nn/device/device_impl.h has
 * their arguments. No state. */
#ifndef EXO_REF_KERNELS_H
#define EXO_REF_KERNELS_H

#include "nn/device/device_impl.h"

#define EXO_REFERENCE_KERNEL(name)                                                                 \
    exo_status exo_reference_##name(exo_device *device, const exo_##name##_args *args,             \
                                    exo_err *err);
EXO_KERNELS(EXO_REFERENCE_KERNEL)
#undef EXO_REFERENCE_KERNEL

#endif
