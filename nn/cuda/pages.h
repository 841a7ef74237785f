/* Memory of a GPU that comes and goes at a fixed address: the methods `pages_...` of the device's
 * class. No state. Read next: pages.cu. */
#ifndef EXO_CUDA_PAGES_H
#define EXO_CUDA_PAGES_H

#include "nn/cuda/device.h"

exo_status exo_cuda_pages_reserve(exo_device *device, size_t bytes, void **out, exo_err *err);
exo_status exo_cuda_pages_open(exo_device *device, void *pages, size_t bytes, exo_err *err);
void exo_cuda_pages_close(exo_device *device, void *pages, size_t bytes);
void exo_cuda_pages_free(exo_device *device, void *pages, size_t bytes);

#endif
