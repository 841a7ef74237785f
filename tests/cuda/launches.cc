/* Launches of kernels: what the runtime refuses of them, and the grids that are queued. fibers.cc runs
 * them. No state of its own. Read next: fibers.h. */
#include "cuda/state.h"

#include "cuda/fibers.h"
#include "cuda/outside.h"

using namespace emulated;

enum {
    LEAST_CAPABILITY = 80,
    USUAL_SHARED = 48 * 1024, /* of a block, unless its kernel is allowed more */
    MOST_SHARED =
        99 * 1024 /* of a block on GPUs of compute capability 8.6, 8.9 and 12.0, the least */
};

/* The most shared bytes that a block of a kernel may have on the GPU of the thread, with those that the
 * kernel declares. */
static size_t
most_shared(const void *kernel, size_t launch)
{
    const auto found = allowed.find({current, kernel});
    return found != allowed.end() && launch <= found->second && launch > USUAL_SHARED
               ? MOST_SHARED
               : USUAL_SHARED;
}

bool
emulated::load(uint64_t kernel)
{
    if (loaded.count({current, kernel}))
        return true;
    if (loads_lazily)
        for (emulated_stream *s : streams)
            if (s->recorded && s->gpu == current) {
                s->spoiled = true;
                late_loads++;
            }
    if (loads_lazily && capturing)
        return false;
    loaded.insert({current, kernel});
    return true;
}

bool
cuda_emulated_load(uint64_t kernel)
{
    return load(kernel);
}

void
emulated::queue_launch(const void *kernel, dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, std::function<void(size_t declared)> run)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
    const size_t most = most_shared(kernel, shared);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
        grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535 || shared > most) {
        say(cudaErrorInvalidValue);
        return;
    }
    if (stream->gpu != current) {
        say(cudaErrorInvalidResourceHandle);
        return;
    }
    if (!load(reinterpret_cast<uintptr_t>(kernel))) {
        say(cudaErrorStreamCaptureUnsupported);
        return;
    }
    const size_t declared = most - shared;
    (void)queue(stream, 'k', [=]() { run(declared); });
}

void
emulated_queue_grid(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, bool each, std::function<void()> thread)
{
    queue_launch(kernel, grid, block, shared, stream, [=](size_t declared) {
        cuda_emulated_grid(name, grid, block, {shared, declared}, each, thread);
    });
}

cudaError_t
emulated_set_shared(const void *kernel, int bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (bytes < 0 || bytes > MOST_SHARED)
        return say(cudaErrorInvalidValue);
    const cudaError_t error = begin();
    if (error == cudaSuccess)
        allowed[{current, kernel}] = static_cast<size_t>(bytes);
    return error;
}

cudaError_t
emulated_find_image(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    return no_image || capability < LEAST_CAPABILITY ? say(cudaErrorNoKernelImageForDevice)
                                                     : begin();
}
