/* Memory of GPUs: the pool that CUDA has for each, what each device of the process holds of it, and
 * the bound of the process (EXOGYM_CUDA_MEMORY). CUDA's pool is ordered by streams: what a device
 * frees, later work of its stream may take.
 *
 * State: the accounts of all devices, of which a lock is in charge. Read next: memory.cu, share.h. */
#ifndef EXO_CUDA_MEMORY_H
#define EXO_CUDA_MEMORY_H

#include "nn/cuda/device.h"

/* What memory of a GPU is for. */
typedef enum exo_cuda_use {
    EXO_CUDA_ARRAYS,
    EXO_CUDA_PLANS,
    EXO_CUDA_PAGES,      /* of caches: pages.h */
    EXO_CUDA_WORKSPACES, /* of copies, sums and libraries */
    EXO_CUDA_USES
} exo_cuda_use;

/* Counts memory that the device is about to take, if EXOGYM_CUDA_MEMORY lets this process have so much of the
 * GPU. Errors: NOMEM, which says who holds what of it. Any thread. */
exo_status exo_cuda_charge(const exo_cuda_device *cuda, exo_cuda_use use, const char *what,
                           size_t bytes, exo_err *err);
/* Counts memory that the device has taken, or gives back. Any thread. */
void exo_cuda_took(const exo_cuda_device *cuda, exo_cuda_use use, size_t bytes);
void exo_cuda_gave(const exo_cuda_device *cuda, exo_cuda_use use, size_t bytes);
/* As exo_cuda_charge, of memory that belongs to no device (share.cu). */
exo_status exo_cuda_charge_shared(const exo_cuda_device *cuda, const char *what, size_t bytes,
                                  exo_err *err);
/* Counts memory of a GPU that belongs to no device (share.cu); negative: it is given back. Any
 * thread. */
void exo_cuda_shared(int ordinal, int64_t bytes);
/* NOMEM: says that there is no memory for `what`, and who holds that of the GPU. */
exo_status exo_cuda_say_full(const exo_cuda_device *cuda, const char *what, size_t bytes,
                             exo_err *err);
/* Frees arrays that other processes held until now: nobody tells their maker when the last reader drops
 * one, or ends. Returns whether the device's GPU has got memory back. */
bool exo_cuda_sweep(const exo_cuda_device *cuda);
/* Waits for the device, and gives memory that the GPU's pool keeps and nobody uses back to the
 * driver. */
void exo_cuda_trim(const exo_cuda_device *cuda);

/* --- For device.cu ---------------------------------------------------------------------------- */

/* Begins the account of a device. Errors: NOMEM. */
exo_status exo_cuda_add_holder(const exo_cuda_device *cuda, exo_err *err);
void exo_cuda_remove_holder(const exo_cuda_device *cuda);
/* Sets `limit` by EXOGYM_CUDA_MEMORY for a GPU with so much memory; UINT64_MAX: none. Errors: INVAL. */
exo_status exo_cuda_read_limit(uint64_t memory, uint64_t *limit, exo_err *err);
exo_status exo_cuda_set_limit(exo_cuda_device *cuda, exo_err *err);
/* Lets the pool keep what is freed, up to the bound, so that steady steps allocate without the driver. */
cudaError_t exo_cuda_keep_memory(const exo_cuda_device *cuda);

/* Of exo_device_class. */
exo_status exo_cuda_alloc(exo_device *device, size_t bytes, void **out, exo_err *err);
void exo_cuda_free(exo_device *device, void *memory, size_t bytes);
uint64_t exo_cuda_free_memory(const exo_device *device);

#endif
