/* Functions of the driver (cuda.h) by their names: addresses that are reserved, and pages behind them.
 * No state of its own. Read next: memory.cc. */
#include "cuda/state.h"

#include <sys/mman.h>

using namespace emulated;

enum {
    PAGE = 4096 /* as small as the host's, so that tests see what lies beyond */
};

static CUresult
reserve_pages(CUdeviceptr *out, size_t bytes, size_t, CUdeviceptr, unsigned long long)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (begin() != cudaSuccess || bytes % PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = reinterpret_cast<CUdeviceptr>(at);
    reserved[*out] = bytes;
    return CUDA_SUCCESS;
}

static CUresult
free_pages(CUdeviceptr at, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    munmap(reinterpret_cast<void *>(at), bytes);
    reserved.erase(at);
    return CUDA_SUCCESS;
}

static CUresult
create_memory(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *,
              unsigned long long)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (begin() != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    if ((no_memory_at > 0 && --no_memory_at == 0) || bytes > unused())
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = bytes;
    return CUDA_SUCCESS;
}

static CUresult
map_memory(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle, unsigned long long)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    void *const memory = reinterpret_cast<void *>(at);
    if (begin() != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    mprotect(memory, bytes, PROT_READ | PROT_WRITE);
    add_block(memory, bytes, current);
    return CUDA_SUCCESS;
}

static CUresult
allow_access(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    return begin() == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult
unmap_memory(CUdeviceptr at, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    void *const memory = reinterpret_cast<void *>(at);
    if (blocks.count(memory) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    remove_block(memory);
    madvise(memory, bytes, MADV_DONTNEED);
    mprotect(memory, bytes, PROT_NONE);
    return CUDA_SUCCESS;
}

static CUresult
release_memory(CUmemGenericAllocationHandle)
{
    return CUDA_SUCCESS;
}

static CUresult
page_size(size_t *out, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
    *out = PAGE;
    return CUDA_SUCCESS;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                 cudaDriverEntryPointQueryResult *result)
{
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuMemAddressReserve", reinterpret_cast<void *>(reserve_pages)},
        {"cuMemAddressFree", reinterpret_cast<void *>(free_pages)},
        {"cuMemCreate", reinterpret_cast<void *>(create_memory)},
        {"cuMemMap", reinterpret_cast<void *>(map_memory)},
        {"cuMemSetAccess", reinterpret_cast<void *>(allow_access)},
        {"cuMemUnmap", reinterpret_cast<void *>(unmap_memory)},
        {"cuMemRelease", reinterpret_cast<void *>(release_memory)},
        {"cuMemGetAllocationGranularity", reinterpret_cast<void *>(page_size)},
        {"cuMemGetAddressRange", reinterpret_cast<void *>(find_range)},
    };
    *result = cudaDriverEntryPointSymbolNotFound;
    for (const auto &f : functions)
        if (strcmp(f.name, name) == 0) {
            *function = f.function;
            *result = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
