/* A GPU as a device: its memory comes from the stream-ordered pool of the CUDA runtime, and one
 * stream does its work in order. Several devices of one process, such as those of virtual nodes, may
 * be on the same GPU; their streams share it.
 *
 * The folder is C++ because nvcc's language is. It is built as the plugin exogym-cuda.so, which is
 * loaded when a job asks for `cuda`: a program that does not links nothing of CUDA.
 *
 * Owner: one thread at a time. Read next: device.cu, memory.h, kernels.h. */
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
    EXO_CUDA_SLOT_BYTES = 1 << 20, /* for one piece of a copy from or to the host */
    EXO_CUDA_COUNTED_GPUS = 64,    /* of a process, whose shared memory is counted */
    EXO_CUDA_PARTIALS = 1 << 16,   /* doubles of exo_cuda_device.partials */
    EXO_CUDA_PARTS = 1024          /* blocks of a sum that leave one of them, at most */
};

typedef struct exo_cuda_matmul exo_cuda_matmul;     /* matmul.h */
typedef struct exo_cuda_cudnn exo_cuda_cudnn;       /* cudnn.h */
typedef struct exo_cuda_sections exo_cuda_sections; /* sections.h */

/* A piece of a copy from the host goes through two buffers. The stream `copies` takes it from
 * pinned memory to a landing buffer on the device while the work of earlier steps is under way. The
 * device's own stream takes it from there to its array, in the order of its work:
 *
 *     host:    wait for `free`; fill `memory`
 *     copies:  wait for `taken`; memory -> landing; record `free`
 *     stream:  wait for `free`; landing -> array; record `taken`
 *
 * A copy to the host has the pinned memory alone, on the device's stream. */
typedef struct exo_cuda_slot {
    void *memory;      /* pinned */
    void *landing;     /* on the device */
    cudaEvent_t free;  /* behind the last copy from or to `memory` */
    cudaEvent_t taken; /* behind the last copy from `landing` */
    bool used;
    bool lands; /* the copy from `landing` is put off (sections.h) */
} exo_cuda_slot;

typedef struct exo_cuda_device {
    exo_device device; /* first */
    int ordinal;       /* of the GPU among those that the process sees */
    int capability;    /* of computing: 90 is 9.0 */
    /* What is no kernel of the table calls exo_cuda_catch_up before it asks for work here. */
    cudaStream_t stream;
    cudaStream_t copies; /* from the host to landing buffers */
    exo_cuda_slot slots[EXO_CUDA_SLOTS];
    size_t next_slot;
    uint64_t limit;   /* bytes of the GPU that this process may have; UINT64_MAX: all */
    double *partials; /* on the device: of sums that have several blocks */
    bool tf32;        /* products of fp32 are computed as tf32, but those of generation's order */
    bool epilogues;   /* cuBLASLt does what follows a product, where it can */
    exo_cuda_matmul *matmul;
    exo_cuda_cudnn *cudnn;       /* NULL: own kernels compute convolutions and attention */
    exo_cuda_sections *sections; /* NULL: nothing is put off */
    unsigned refused_graphs;     /* by CUDA, so far */
    const void *late;            /* the cell of the request that is recorded (late.h); NULL: none */
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
/* Frees pinned memory, which waits for the GPU: for exo_cuda_when_quiet. */
void exo_cuda_free_pinned(void *memory);
/* Makes the device's GPU that of the calling thread. */
cudaError_t exo_cuda_select(const exo_cuda_device *cuda);

#endif
