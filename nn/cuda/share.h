/* Memory of a GPU that several processes open: the methods `share_...` of exo_device_class. Read next:
 * share.cu. */
#ifndef EXO_CUDA_SHARE_H
#define EXO_CUDA_SHARE_H

#include "nn/cuda/device.h"

exo_status exo_cuda_share_new(exo_device *device, uint64_t bytes, exo_device_share *out,
                              exo_err *err);
exo_status exo_cuda_share_open(exo_device *device, exo_device_share *share, exo_err *err);
bool exo_cuda_share_free(const exo_device_share *share, bool foreign);
/* The ordinal of the GPU that has memory of a share which this process made; `otherwise` for any other
 * memory. Any thread. */
int exo_cuda_share_owner(const void *memory, int otherwise);
bool exo_cuda_share_is_on(const exo_device *device, const exo_device_share *share);
exo_status exo_cuda_share_mark(exo_device *device, void **mark, exo_err *err);
exo_status exo_cuda_share_follow(exo_device *device, void *mark, exo_err *err);
exo_status exo_cuda_share_wait(void *mark, exo_err *err);
bool exo_cuda_share_reached(void *mark);
void exo_cuda_share_unmark(void *mark);

/* What a stream gets from now on begins behind a mark. */
cudaError_t exo_cuda_share_after(cudaStream_t stream, void *mark);

/* share_read.cu */
exo_status exo_cuda_share_read(void **reader, const exo_device_share *share, void *mark, void *to,
                               uint64_t bytes, exo_err *err);
void exo_cuda_share_reader_free(void *reader);

#endif
