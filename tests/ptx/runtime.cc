/* What objects of nvcc call beside the runtime's API: they register their PTX and the stubs of their kernels, and
 * launch these. All else is the emulated runtime (tests/cuda), so streams, memory and failures are as in all
 * tests with an emulated GPU. A fault ends the process. State: what is registered, under a lock; the grids
 * that run, under the emulator's. Read next: run.cc. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/fibers.h"
#include "cuda/state.h"
#include "ptx/run.h"

/* fatbinary_section.h and the format behind it: a header, and entries with code of one kind each. */
struct fat_wrapper {
    uint32_t magic, version;
    const unsigned char *data;
    void *name;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
};

enum {
    FAT_WRAPPER = 0x466243B1,
    FAT_HEADER = 0xBA55ED50,
    FAT_PTX = 1
};

/* The code of a file. */
struct binary {
    std::string text;
    std::unique_ptr<ptx::module> code; /* NULL: no kernel has been launched */
};

struct CUkern_st {
    binary *from;
    const void *stub;
    std::string name;
};

using cudaKernel_t = CUkern_st *;

/* What is registered. Files do so before constructors of this one may have run. */
struct registry {
    std::mutex lock;
    std::map<const void *, CUkern_st> kernels; /* by stub */
    std::vector<std::unique_ptr<binary>> binaries;
};

static registry &
all(void)
{
    static registry *const only =
        new registry; /* never freed: other threads may launch to the end */
    return *only;
}

[[noreturn]] static void
end(const char *text)
{
    fprintf(stderr, "ptx: %s\n", text);
    abort();
}

/* --- Registration ------------------------------------------------------------------------------- */

static std::string
find_text(const fat_wrapper *wrapper)
{
    fat_header header;
    memcpy(&header, wrapper->data, sizeof header);
    if (wrapper->magic != FAT_WRAPPER || header.magic != FAT_HEADER)
        end("a fat binary of an unknown format");
    const unsigned char *at = wrapper->data + header.header_bytes, *const last = at + header.bytes;
    while (at < last) {
        fat_entry entry;
        memcpy(&entry, at, sizeof entry);
        const char *const code = reinterpret_cast<const char *>(at + entry.header_bytes);
        if (entry.kind == FAT_PTX && entry.compressed_bytes > 0)
            end("the PTX is compressed: nvcc needs --no-compress");
        if (entry.kind == FAT_PTX)
            return std::string(code, strnlen(code, entry.bytes));
        at += entry.header_bytes + entry.bytes;
    }
    return ""; /* a file without kernels */
}

extern "C" {
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *device, const char *name,
                            int threads, void *tid, void *bid, void *block, void *grid, int *warp);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *stub);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream);
cudaError_t cudaFuncSetAttribute(const void *stub, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *stub);
}

void **
__cudaRegisterFatBinary(void *wrapper)
{
    const std::lock_guard<std::mutex> guard(all().lock);
    all().binaries.emplace_back(
        new binary{find_text(static_cast<const fat_wrapper *>(wrapper)), nullptr});
    return reinterpret_cast<void **>(all().binaries.back().get());
}

void
__cudaRegisterFatBinaryEnd(void **)
{
}

void
__cudaUnregisterFatBinary(void **)
{
}

void
__cudaRegisterFunction(void **handle, const char *stub, char *, const char *name, int, void *,
                       void *, void *, void *, int *)
{
    const std::lock_guard<std::mutex> guard(all().lock);
    all().kernels[stub] = {reinterpret_cast<binary *>(handle), stub, name};
}

cudaError_t
__cudaGetKernel(cudaKernel_t *out, const void *stub)
{
    const std::lock_guard<std::mutex> guard(all().lock);
    const auto found = all().kernels.find(stub);
    if (found == all().kernels.end())
        end("a kernel that nobody has registered");
    *out = &found->second;
    return cudaSuccess;
}

cudaError_t
cudaFuncSetAttribute(const void *stub, cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        end("an attribute of a kernel that is not known");
    return emulated_set_shared(stub, value);
}

cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *out, const void *)
{
    *out = {};
    return emulated_find_image();
}

/* --- Launches ----------------------------------------------------------------------------------- */

/* Between the brackets of a launch and its stub. */
static thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} asked;

unsigned
__cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    asked = {grid, block, shared, stream};
    return 0;
}

cudaError_t
__cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = asked.grid;
    *block = asked.block;
    *shared = asked.shared;
    memcpy(stream, &asked.stream, sizeof asked.stream);
    return cudaSuccess;
}

static const ptx::kernel *
find_kernel(const CUkern_st *kernel)
{
    const std::lock_guard<std::mutex> guard(all().lock);
    if (!kernel->from->code)
        kernel->from->code = ptx::parse(kernel->from->text.c_str());
    const auto found = kernel->from->code->kernels.find(kernel->name);
    if (found == kernel->from->code->kernels.end())
        throw ptx::fault("there is no PTX of " + kernel->name);
    return &found->second;
}

/* --- What EXO_PTX wants ------------------------------------------------------------------------- */

/* EXO_PTX is "check lanes=7": either may be absent. */
static struct {
    ptx::device_memory *watched; /* never freed; NULL: there is no "check" */
    bool drawn;
    uint64_t seed;
} wanted;

static uintptr_t
address_of(const void *memory)
{
    return reinterpret_cast<uintptr_t>(memory);
}

static const memory_watcher *
make_watcher(void)
{
    static const memory_watcher own = {
        [](const void *at, size_t bytes) { wanted.watched->made(address_of(at), bytes); },
        [](const void *at, size_t bytes) { wanted.watched->freed(address_of(at), bytes); },
        [](const void *at, size_t bytes) { wanted.watched->written(address_of(at), bytes); },
        [](const void *to, const void *from, size_t bytes) {
            wanted.watched->copied(address_of(to), address_of(from), bytes);
        }};
    return &own;
}

__attribute__((constructor)) static void
read_environment(void)
{
    const char *const text = getenv("EXO_PTX"), *const lanes =
                                                    text ? strstr(text, "lanes=") : nullptr;
    wanted.drawn = lanes != nullptr;
    wanted.seed = lanes ? strtoull(lanes + strlen("lanes="), nullptr, 10) : 0;
    if (text && strstr(text, "check")) {
        wanted.watched = new ptx::device_memory;
        emulated::watcher = make_watcher();
    }
}

/* Memory of the device, of this process or another one, and variables of the PTX. */
static ptx::range
find_memory(uintptr_t at)
{
    auto block = emulated::blocks.upper_bound(reinterpret_cast<void *>(at));
    if (block != emulated::blocks.begin()) {
        --block;
        const uintptr_t first = reinterpret_cast<uintptr_t>(block->first);
        if (at - first < block->second.bytes)
            return {first, first + block->second.bytes};
    }
    for (const auto &o : emulated::opened) {
        const uintptr_t first = reinterpret_cast<uintptr_t>(o.first);
        if (at - first < o.second.shared.bytes)
            return {first, first + o.second.shared.bytes};
    }
    const std::lock_guard<std::mutex> guard(all().lock);
    for (const auto &b : all().binaries)
        for (size_t v = 0; b->code && v < b->code->variables.size(); v++) {
            const uintptr_t first = reinterpret_cast<uintptr_t>(b->code->variables[v]->data());
            if (at - first < b->code->variables[v]->size())
                return {first, first + b->code->variables[v]->size()};
        }
    return {};
}

static void
run_launch(const ptx::kernel *k, dim3 grid, dim3 block, size_t shared,
           const std::vector<unsigned char> &parameters, size_t declared)
{
    if (k->shared_bytes > declared)
        end((k->name + ": more shared memory than a block can have").c_str());
    try {
        ptx::run_grid({k,
                       {grid.x, grid.y, grid.z},
                       {block.x, block.y, block.z},
                       shared,
                       parameters.data(),
                       find_memory,
                       cuda_emulated_random() + (wanted.seed << 32),
                       wanted.drawn,
                       wanted.watched});
    } catch (const ptx::fault &f) {
        end(f.what());
    }
}

cudaError_t
__cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                   cudaStream_t stream)
{
    const ptx::kernel *k = nullptr;
    try {
        k = find_kernel(kernel);
    } catch (const ptx::fault &f) {
        end(f.what());
    }
    std::vector<unsigned char> parameters(k->parameter_bytes + 1);
    for (size_t p = 0; p < k->parameters.size(); p++)
        memcpy(parameters.data() + k->parameters[p].offset, arguments[p], k->parameters[p].bytes);
    emulated::queue_launch(kernel->stub, grid, block, shared, stream, [=](size_t declared) {
        run_launch(k, grid, block, shared, parameters, declared);
    });
    return cudaSuccess;
}
