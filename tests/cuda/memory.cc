/* Memory of the emulated GPUs, and the host's pinned memory: allocations, copies and fills. No state of
 * its own. Read next: share.cc, pages.cc. */
#include "cuda/state.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <iterator>

#include "cuda/outside.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

using namespace emulated;

enum {
    WATCHED = 16 * 1024 /* bytes at each end of a block: poison */
};

/* Only the address sanitizer watches whether the host reaches device memory: the first and the last
 * 16 KiB of each block, since more takes long. Work shows it, and whoever did work hides it again. */
static void
poison(void *memory, size_t bytes, bool hidden)
{
#if defined(__SANITIZE_ADDRESS__)
    const size_t part = bytes < WATCHED ? bytes : WATCHED;
    for (char *at : {static_cast<char *>(memory), static_cast<char *>(memory) + bytes - part})
        if (hidden)
            ASAN_POISON_MEMORY_REGION(at, part);
        else
            ASAN_UNPOISON_MEMORY_REGION(at, part);
#else
    (void)memory;
    (void)bytes;
    (void)hidden;
#endif
}

void
cuda_emulated_show_memory(void)
{
    if (!shown)
        for (const auto &block : blocks)
            poison(block.first, block.second.bytes, false);
    shown = true;
}

void
emulated::hide_memory(void)
{
    if (shown)
        for (const auto &block : blocks)
            poison(block.first, block.second.bytes, true);
    shown = false;
}

void
emulated::add_block(void *memory, size_t bytes, int gpu)
{
    memset(memory, 0xFF, bytes);
    blocks[memory] = {bytes, gpu};
    used += bytes;
    poison(memory, bytes, !shown);
    if (watcher)
        watcher->made(memory, bytes);
}

/* The memory is the host's again. */
void
emulated::remove_block(void *memory)
{
    poison(memory, blocks[memory].bytes, false);
    if (watcher)
        watcher->freed(memory, blocks[memory].bytes);
    used -= blocks[memory].bytes;
    blocks.erase(memory);
}

/* The block that has all of these bytes; NULL: there is none. */
static const memory_block *
find_block(const void *memory, size_t bytes)
{
    const char *const first = static_cast<const char *>(memory);
    auto at = blocks.upper_bound(const_cast<void *>(memory));
    if (at == blocks.begin())
        return NULL;
    --at;
    const char *const end = static_cast<const char *>(at->first) + at->second.bytes;
    return first + bytes <= end ? &at->second : NULL;
}

void
cuda_emulated_wrote(const void *memory, size_t bytes)
{
    if (watcher)
        watcher->written(memory, bytes);
}

bool
cuda_emulated_holds(const void *memory, size_t bytes)
{
    return find_block(memory, bytes) != NULL;
}

/* --- Allocations and copies ------------------------------------------------------------------- */

uint64_t
emulated::unused(void)
{
    return all_memory > used ? all_memory - used : 0;
}

cudaError_t
cudaMemGetInfo(size_t *left, size_t *all)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    *left = unused();
    *all = all_memory;
    return begin();
}

cudaError_t
cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_apart(stream);
    if (error != cudaSuccess)
        return error;
    if ((no_memory_at > 0 && --no_memory_at == 0) || bytes > unused())
        return say(cudaErrorMemoryAllocation);
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    add_block(*out, bytes, stream->gpu);
    allocations++;
    return cudaSuccess;
}

cudaError_t
cudaFreeAsync(void *memory, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (blocks.count(memory) == 0) {
        fprintf(stderr, "cuda: free of %p, which is no memory of the device\n", memory);
        abort();
    }
    calls++;
    stream->spoiled = stream->spoiled || stream->recorded;
    const auto end = [memory]() {
        remove_block(memory);
        free(memory);
    };
    put(stream, {end, nullptr, false, true, false});
    return cudaSuccess;
}

cudaError_t
cudaMallocHost(void **out, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    if (error == cudaSuccess) {
        *out = malloc(bytes);
        pinned[*out] = bytes;
    }
    return error;
}

/* Waits for the GPU, as the real one does. */
cudaError_t
cudaFreeHost(void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    spoil();
    await_gpu(current);
    pinned.erase(memory);
    free(memory);
    return cudaSuccess;
}

static bool
is_pinned(const void *memory)
{
    auto at = pinned.upper_bound(memory);
    if (at == pinned.begin())
        return false;
    --at;
    return memory < static_cast<const char *>(at->first) + at->second;
}

/* Whether the bytes are of one block on the GPU, or of none that this process has made. */
static bool
is_of_gpu(const void *memory, size_t bytes, int gpu)
{
    const memory_block *block = find_block(memory, bytes);
    return !block || block->gpu == gpu;
}

size_t
emulated::bytes_from(const void *memory)
{
    const auto left = [=](const void *first, size_t bytes) {
        const size_t at = static_cast<size_t>(static_cast<const char *>(memory) -
                                              static_cast<const char *>(first));
        return memory >= first && at < bytes ? bytes - at : 0;
    };
    auto at = blocks.upper_bound(const_cast<void *>(memory));
    size_t bytes =
        at == blocks.begin() ? 0 : left(std::prev(at)->first, std::prev(at)->second.bytes);
    for (const auto &o : opened)
        bytes = std::max(bytes, left(o.first, o.second.shared.bytes));
    return bytes;
}

/* Ends a process whose copy or fill leaves device memory, when its turn comes. Neighbouring pages of pages.cc
 * are blocks each. */
static void
expect_device(const char *what, const void *memory, size_t bytes)
{
    const char *at = static_cast<const char *>(memory);
    for (size_t left = bytes; left > 0;) {
        const size_t there = std::min(left, bytes_from(at));
        if (there == 0) {
            fprintf(stderr, "cuda: %s of %zu bytes at %p leaves device memory at byte %zu\n", what,
                    bytes, memory, bytes - left);
            abort();
        }
        at += there;
        left -= there;
    }
}

static void
copy(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
    if (watcher)
        watcher->copied(to, from, bytes);
}

/* The real one copies no memory of a pool whose GPU the thread has not chosen. */
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    to_host += kind == cudaMemcpyDeviceToHost ? bytes : 0;
    if (kind != cudaMemcpyDeviceToDevice &&
        !is_pinned(kind == cudaMemcpyHostToDevice ? from : to)) {
        fprintf(stderr, "cuda: a copy waits, since the memory of the host is not pinned\n");
        abort();
    }
    if (!is_of_gpu(to, bytes, current) || !is_of_gpu(from, bytes, current) ||
        stream->gpu != current)
        return say(cudaErrorInvalidValue);
    return queue(stream, 'c', [=]() {
        if (kind != cudaMemcpyDeviceToHost)
            expect_device("a copy", to, bytes);
        if (kind != cudaMemcpyHostToDevice)
            expect_device("a copy", from, bytes);
        copy(to, from, bytes);
    });
}

cudaError_t
cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                    cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (!is_of_gpu(to, bytes, to_gpu) || !is_of_gpu(from, bytes, from_gpu))
        return say(cudaErrorInvalidValue);
    return queue(stream, 'c', [=]() {
        expect_device("a copy", to, bytes);
        expect_device("a copy", from, bytes);
        copy(to, from, bytes);
    });
}

cudaError_t
cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    return queue(stream, 'f', [=]() {
        expect_device("a fill", memory, bytes);
        memset(memory, value, bytes);
        cuda_emulated_wrote(memory, bytes);
    });
}
