/* Memory that several processes open by handles: files without a name. No state of its own. Read next:
 * memory.cc. */
#include "cuda/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fibers.h"
#include "cuda/outside.h"

using namespace emulated;

enum {
    SHARED_PAGE = 4096
};

static const uint64_t SHARED_MAGIC = UINT64_C(0x6375646120697063);

static void *
map_shared(int file, uint64_t bytes)
{
    void *at = mmap(NULL, SHARED_PAGE + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? NULL : static_cast<char *>(at) + SHARED_PAGE;
}

static void
unmap_shared(void *memory, const shared_memory *s)
{
    munmap(static_cast<char *>(memory) - SHARED_PAGE, SHARED_PAGE + s->bytes);
    close(s->file);
}

static bool
lock_shared(int file, short kind, int command)
{
    struct flock range = {};
    range.l_type = kind;
    range.l_whence = SEEK_SET;
    range.l_len = 1;
    return fcntl(file, command, &range) == 0 && (command != F_OFD_GETLK || range.l_type == F_UNLCK);
}

cudaError_t
cudaMalloc(void **out, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    if (error != cudaSuccess)
        return error;
    if ((no_memory_at > 0 && --no_memory_at == 0) || bytes > all_memory - used)
        return say(cudaErrorMemoryAllocation);
    const int file = memfd_create("cuda", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(SHARED_PAGE + bytes)) != 0)
        return say(cudaErrorMemoryAllocation);
    void *memory = map_shared(file, bytes);
    const shared_memory s = {SHARED_MAGIC, cuda_emulated_random() << 32 | cuda_emulated_random(),
                             bytes, getpid(), file};
    memcpy(static_cast<char *>(memory) - SHARED_PAGE, &s, sizeof s);
    lendable[memory] = s;
    add_block(memory, bytes, current);
    *out = memory;
    return cudaSuccess;
}

/* Waits for the GPU, as the real one does. */
cudaError_t
cudaFree(void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    spoil();
    const auto found = lendable.find(memory);
    if (found == lendable.end()) {
        fprintf(stderr, "cuda: free of %p, which is no memory of cudaMalloc\n", memory);
        abort();
    }
    if (!lock_shared(found->second.file, F_WRLCK, F_OFD_GETLK)) {
        fprintf(stderr, "cuda: free of %p, which another process has open\n", memory);
        abort();
    }
    cuda_emulated_await_gpu(current);
    remove_block(memory);
    unmap_shared(memory, &found->second);
    lendable.erase(found);
    return cudaSuccess;
}

cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    const auto found = lendable.find(memory);
    if (error != cudaSuccess)
        return error;
    if (found == lendable.end())
        return say(cudaErrorInvalidValue);
    memset(out, 0, sizeof *out);
    memcpy(out->reserved, &found->second, sizeof found->second);
    return cudaSuccess;
}

/* The memory of a handle, whatever it has; NULL: there is none. */
static void *
open_shared(const shared_memory *named, shared_memory *s)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", named->owner, named->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    *s = *named;
    s->file = file;
    shared_memory there = {};
    if (file < 0)
        return NULL;
    const bool good = named->magic == SHARED_MAGIC &&
                      pread(file, &there, sizeof there, 0) == sizeof there &&
                      there.magic == SHARED_MAGIC && there.nonce == named->nonce &&
                      there.bytes == named->bytes && lock_shared(file, F_RDLCK, F_OFD_SETLK);
    void *memory = good ? map_shared(file, there.bytes) : NULL;
    if (!memory)
        close(file);
    return memory;
}

cudaError_t
cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    shared_memory named, s;
    memcpy(&named, handle.reserved, sizeof named);
    if (error != cudaSuccess)
        return error;
    if (flags != cudaIpcMemLazyEnablePeerAccess)
        return say(cudaErrorInvalidValue);
    if (named.owner == getpid())
        return say(cudaErrorDeviceUninitialized);
    for (auto &o : opened) /* the same address, which is closed as often */
        if (o.second.gpu == current && o.second.shared.nonce == named.nonce) {
            o.second.count++;
            *out = o.first;
            return cudaSuccess;
        }
    void *memory = open_shared(&named, &s);
    if (!memory)
        return say(cudaErrorInvalidResourceHandle);
    opened[memory] = {s, current, 1};
    *out = memory;
    return cudaSuccess;
}

cudaError_t
cudaIpcCloseMemHandle(void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    spoil();
    const auto found = opened.find(memory);
    if (found == opened.end())
        return say(cudaErrorInvalidValue);
    cuda_emulated_await_gpu(current);
    if (--found->second.count > 0)
        return cudaSuccess;
    unmap_shared(memory, &found->second.shared);
    opened.erase(found);
    return cudaSuccess;
}

cudaError_t
cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    const std::lock_guard<std::mutex> guard(lock);
    *can = device != peer;
    return begin();
}

CUresult
emulated::find_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = opened.find(reinterpret_cast<void *>(at));
    if (begin() != cudaSuccess || found == opened.end())
        return CUDA_ERROR_INVALID_VALUE;
    *base = at;
    *bytes = found->second.shared.bytes;
    return CUDA_SUCCESS;
}
