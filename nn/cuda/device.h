/* A GPU as a device: its memory comes from the stream-ordered pool of the CUDA runtime, and one
 * stream does its work in order. Several devices of one process, such as those of virtual nodes, may
 * be on the same GPU; their streams share it.
 *
 * The folder is C++ because nvcc's language is. It is built as the plugin exogym-cuda.so, which is
 * loaded when a job asks for `cuda`: a program that does not links nothing of CUDA.
 *
 * Owner: one thread at a time. Read next: device.cu, kernels.h. */
#ifndef EXO_CUDA_DEVICE_H
#define EXO_CUDA_DEVICE_H

#include <cuda_runtime.h>

/* those that device_impl.h includes: they have templates in C++ */
#include <exogym/device.h>
#include <exogym/generate.h>
#include <exogym/loss.h>
#include <exogym/sequence.h>

extern "C" {
#include "nn/device/device_impl.h"
}

#include "nn/cuda/open.h"

enum {
    EXO_CUDA_SLOTS = 4,
    EXO_CUDA_SLOT_BYTES = 1 << 20, /* of pinned memory, for one piece of a copy from the host */
    EXO_CUDA_PARTIALS = 1 << 16,   /* doubles of exo_cuda_device.partials */
    EXO_CUDA_PARTS = 1024          /* blocks of a sum that leave one of them, at most */
};

typedef struct exo_cuda_matmul exo_cuda_matmul; /* matmul.h */
typedef struct exo_cuda_cudnn exo_cuda_cudnn;   /* cudnn.h */

/* Pinned memory that a copy from the host goes through; `free` is recorded behind the copy. */
typedef struct exo_cuda_slot {
    void *memory;
    cudaEvent_t free;
    bool used;
} exo_cuda_slot;

typedef struct exo_cuda_device {
    exo_device device; /* first */
    int ordinal;       /* of the GPU among those that the process sees */
    cudaStream_t stream;
    exo_cuda_slot slots[EXO_CUDA_SLOTS];
    size_t next_slot;
    double *partials; /* on the device: of sums that have several blocks */
    exo_cuda_matmul *matmul;
    exo_cuda_cudnn *cudnn; /* NULL: conv.cu computes all convolutions */
} exo_cuda_device;

static inline exo_cuda_device *
exo_cuda_of(exo_device *device)
{
    return reinterpret_cast<exo_cuda_device *>(device);
}

/* OK for cudaSuccess; else NOMEM for a lack of memory, and FAILED with `what` and CUDA's reason. */
exo_status exo_cuda_status(cudaError_t error, const char *what, exo_err *err);
/* The status of the launch just before; `kernel` is the name for the error. */
exo_status exo_cuda_launched(const char *kernel, exo_err *err);
/* Waits for the device, and gives memory that the GPU's pool keeps and nobody uses back to the
 * driver. */
void exo_cuda_trim(const exo_cuda_device *cuda);
/* Makes the device's GPU that of the calling thread. */
cudaError_t exo_cuda_select(const exo_cuda_device *cuda);

#endif
