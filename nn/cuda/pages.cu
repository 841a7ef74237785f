/* Memory of a GPU that comes and goes at a fixed address, by the virtual memory management of the
 * CUDA driver. Its functions are asked for by name, so that the plugin links no driver and loads
 * where there is none. State: none; the driver knows which addresses have memory. */
#include "nn/cuda/memory.h"
#include "nn/cuda/pages.h"
#include "nn/cuda/sections.h"

#include <cuda.h>

/* The driver's functions of this file. */
typedef struct driver {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*free)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
} driver;

enum {
    DRIVER_VERSION = 12000 /* in which all of them are */
};

static bool
find(const char *name, void *function)
{
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void **at = static_cast<void **>(function);
    return cudaGetDriverEntryPointByVersion(name, at, DRIVER_VERSION, cudaEnableDefault, &result) ==
               cudaSuccess &&
           result == cudaDriverEntryPointSuccess;
}

static exo_status
open_driver(driver *d, const exo_cuda_device *cuda, exo_err *err)
{
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "memory", err);
    if (st != EXO_OK)
        return st;
    const bool found = find("cuMemAddressReserve", &d->reserve) &&
                       find("cuMemAddressFree", &d->free) && find("cuMemCreate", &d->create) &&
                       find("cuMemMap", &d->map) && find("cuMemSetAccess", &d->access) &&
                       find("cuMemUnmap", &d->unmap) && find("cuMemRelease", &d->release) &&
                       find("cuMemGetAllocationGranularity", &d->granularity);
    return found ? EXO_OK
                 : exo_fail(err, EXO_UNSUPPORTED,
                            "the driver of GPU %d cannot give addresses memory: update it",
                            cuda->ordinal);
}

static CUmemAllocationProp
kind_of_memory(const exo_cuda_device *cuda)
{
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = cuda->ordinal;
    return kind;
}

/* bytes rounded up to what the GPU maps at a time; 0: an error. */
static size_t
whole_pages(const driver *d, const exo_cuda_device *cuda, size_t bytes)
{
    const CUmemAllocationProp kind = kind_of_memory(cuda);
    size_t page = 0;
    if (d->granularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || page == 0)
        return 0;
    const size_t least = bytes ? bytes : 1;
    return (least + page - 1) / page * page;
}

exo_status
exo_cuda_pages_reserve(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    driver d;
    CUdeviceptr address = 0;
    const exo_cuda_device *cuda = exo_cuda_of(device);
    *out = NULL;
    exo_status st = open_driver(&d, cuda, err);
    if (st != EXO_OK)
        return st;
    const size_t all = whole_pages(&d, cuda, bytes);
    if (all == 0 || d.reserve(&address, all, 0, 0, 0) != CUDA_SUCCESS)
        return exo_fail(err, EXO_NOMEM, "no addresses for %zu bytes on GPU %d", bytes,
                        cuda->ordinal);
    *out = reinterpret_cast<void *>(address);
    return EXO_OK;
}

/* Maps `all` bytes of new memory, which the addresses alone keep alive. */
static bool
map(const driver *d, const exo_cuda_device *cuda, CUdeviceptr address, size_t all)
{
    const CUmemAllocationProp kind = kind_of_memory(cuda);
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access = {};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (d->create(&memory, all, &kind, 0) != CUDA_SUCCESS) {
        (void)exo_cuda_sweep(cuda);
        exo_cuda_trim(cuda); /* the pool may keep what is missing here */
        if (d->create(&memory, all, &kind, 0) != CUDA_SUCCESS)
            return false;
    }
    const bool mapped = d->map(address, all, 0, memory, 0) == CUDA_SUCCESS;
    (void)d->release(memory);
    if (mapped && d->access(address, all, &access, 1) != CUDA_SUCCESS) {
        (void)d->unmap(address, all);
        return false;
    }
    return mapped;
}

exo_status
exo_cuda_pages_open(exo_device *device, void *pages, size_t bytes, exo_err *err)
{
    driver d;
    const exo_cuda_device *cuda = exo_cuda_of(device);
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pages);
    exo_status st = open_driver(&d, cuda, err);
    if (st != EXO_OK)
        return st;
    const size_t all = whole_pages(&d, cuda, bytes);
    st = exo_cuda_charge(cuda, EXO_CUDA_PAGES, "pages of caches", all, err);
    if (st != EXO_OK)
        return st;
    const bool mapped = all > 0 && map(&d, cuda, address, all);
    if (mapped)
        st = exo_cuda_status(cudaMemsetAsync(pages, 0, all, cuda->stream), "memory", err);
    if (mapped && st == EXO_OK)
        return st;
    exo_cuda_gave(cuda, EXO_CUDA_PAGES, all);
    if (mapped)
        (void)d.unmap(address, all);
    return mapped ? st : exo_cuda_say_full(cuda, "pages of caches", bytes, err);
}

void
exo_cuda_pages_close(exo_device *device, void *pages, size_t bytes)
{
    driver d;
    exo_cuda_device *cuda = exo_cuda_of(device);
    if (open_driver(&d, cuda, NULL) != EXO_OK)
        return;
    exo_cuda_catch_up_noted(cuda);
    /* memory is taken away at once, not in the order of the stream */
    (void)cudaStreamSynchronize(cuda->stream);
    const size_t all = whole_pages(&d, cuda, bytes);
    if (d.unmap(reinterpret_cast<CUdeviceptr>(pages), all) == CUDA_SUCCESS)
        exo_cuda_gave(cuda, EXO_CUDA_PAGES, all);
    (void)cudaGetLastError();
}

void
exo_cuda_pages_free(exo_device *device, void *pages, size_t bytes)
{
    driver d;
    exo_cuda_device *cuda = exo_cuda_of(device);
    if (!pages || open_driver(&d, cuda, NULL) != EXO_OK)
        return;
    exo_cuda_catch_up_noted(cuda);
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pages);
    const size_t all = whole_pages(&d, cuda, bytes);
    (void)cudaStreamSynchronize(cuda->stream);
    if (d.unmap(address, all) == CUDA_SUCCESS) /* they were open */
        exo_cuda_gave(cuda, EXO_CUDA_PAGES, all);
    (void)d.free(address, all);
    (void)cudaGetLastError();
}
