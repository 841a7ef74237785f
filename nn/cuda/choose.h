/* The choice of tokens: `choose` of exo_device_class. Read next: choose.cu. */
#ifndef EXO_CUDA_CHOOSE_H
#define EXO_CUDA_CHOOSE_H

#include "nn/cuda/device.h"

/* Bytes of scratch for EXO_DECODER_LOGIT_ROWS rows; SIZE_MAX: too many to count. */
size_t exo_cuda_choose_scratch(size_t vocabulary);
exo_status exo_cuda_choose(exo_device *device, const exo_choose_args *args, exo_err *err);

#endif
