/* The GPUs of the emulated machine: their number, names and versions, the one that a thread has chosen,
 * and their pools. No state of its own. Read next: memory.cc. */
#include "cuda/state.h"

#include <stdio.h>

using namespace emulated;

struct emulated_pool {};

cudaError_t
cudaGetDeviceCount(int *count)
{
    const std::lock_guard<std::mutex> guard(lock);
    *count = gpus < 0 ? 0 : gpus;
    return gpus < 0    ? say(cudaErrorInsufficientDriver)
           : gpus == 0 ? say(cudaErrorNoDevice)
                       : begin();
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (device < 0 || device >= gpus)
        return say(cudaErrorInvalidDevice);
    snprintf(properties->name, sizeof properties->name, "emulated GPU");
    memset(&properties->uuid, 0, sizeof properties->uuid);
    snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "emulated %d",
             device + first_gpu);
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->totalGlobalMem = all_memory;
    return begin();
}

cudaError_t
cudaDeviceGetPCIBusId(char *address, int bytes, int device)
{
    snprintf(address, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
    return cudaSuccess;
}

cudaError_t
cudaDriverGetVersion(int *version)
{
    const std::lock_guard<std::mutex> guard(lock);
    *version = gpus < 0 ? 0 : 13000;
    return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (device < 0 || device >= gpus)
        return say(cudaErrorInvalidDevice);
    current = device;
    chosen = true;
    return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t
cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    static emulated_pool only;
    const std::lock_guard<std::mutex> guard(lock);
    (void)device;
    *pool = &only;
    return begin();
}

cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value)
{
    const std::lock_guard<std::mutex> guard(lock);
    (void)pool;
    (void)attribute;
    (void)value;
    return begin();
}

/* The pool keeps nothing that is freed. */
cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value)
{
    const std::lock_guard<std::mutex> guard(lock);
    (void)pool;
    (void)attribute;
    *static_cast<uint64_t *>(value) = used;
    return begin();
}

cudaError_t
cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    (void)pool;
    (void)bytes;
    return begin();
}
