/* GPUs among the kinds of devices. */
#ifndef EXO_GPU_KINDS_H
#define EXO_GPU_KINDS_H

#include "nn/device/kinds.h"

extern const exo_device_kind exo_cuda_device_kind, exo_auto_device_kind, exo_mps_device_kind;

#endif
