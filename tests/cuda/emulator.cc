/* The CUDA runtime of the tests: see cuda_runtime.h. State: everything here, under one lock. */
#include "cuda/emulator.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fibers.h"
#include "cuda/outside.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

struct emulated_event {
    int gpu;
    std::shared_ptr<bool> done; /* of the last record; NULL: never recorded */
};

struct emulated_work {
    std::function<void()> run;
    std::shared_ptr<bool> waits_for; /* NULL: nothing */
    bool counts;                     /* a kernel, a copy or a fill: it can fail */
    bool always;                     /* also on a GPU that has failed */
    bool outside;                    /* what it waits for is not of CUDA (outside.h) */
    char kind = 0;                   /* of a node: 'k' a kernel, 'c' a copy, 'f' a fill */
};

struct emulated_graph {
    std::vector<emulated_work> work;
};

struct emulated_exec {
    std::vector<emulated_work> work;
};

struct emulated_stream {
    int gpu; /* that its thread had chosen when it was made */
    std::deque<emulated_work> queue;
    emulated_graph *recorded; /* NULL: work is queued */
    bool spoiled;             /* a call that cannot be recorded was made */
    bool destroyed;           /* it ends when its work is done */
};

struct emulated_pool {};

struct memory_block {
    size_t bytes;
    int gpu;
};

enum {
    LEAST_CAPABILITY = 80,
    SHARED_PAGE = 4096,
    WATCHED = 16 * 1024,      /* bytes at each end of a block: poison */
    USUAL_SHARED = 48 * 1024, /* of a block, unless its kernel is allowed more */
    MOST_SHARED =
        99 * 1024 /* of a block on GPUs of compute capability 8.6, 8.9 and 12.0, the least */
};

/* The first page of memory that other processes open, and what a handle has. A process that has it
 * open holds a lock on the first byte. */
struct shared_memory {
    uint64_t magic, nonce, bytes; /* bytes behind this page */
    int owner, file;
};

struct opened_memory {
    shared_memory shared; /* `file` is this process's */
    int gpu;              /* that opened it */
    unsigned count;       /* how often */
};

static const uint64_t TEBIBYTE = UINT64_C(1) << 40;
static std::mutex lock;
static std::condition_variable changed; /* something outside has happened */
static std::set<emulated_stream *> streams;
static std::set<emulated_event *> events;
static std::set<emulated_graph *> graphs;
static std::set<emulated_exec *> execs;
static uint64_t launched_graphs, records, updates, refuse_update_at;
static thread_local emulated_stream *capturing; /* NULL: the thread records nothing */
static std::map<const void *, size_t> pinned;
static std::map<void *, memory_block> blocks;    /* of device memory */
static bool shown;                               /* the host reaches it */
static std::map<void *, shared_memory> lendable; /* memory that others may open */
static std::map<void *, opened_memory> opened;   /* theirs */
static std::map<CUdeviceptr, size_t> reserved;   /* bytes of addresses */
static uint64_t used, all_memory = TEBIBYTE, done, calls, fail_at, fail_call, no_memory_at;
static uint64_t random_state = 1;
static std::map<std::pair<int, const void *>, size_t> allowed; /* shared bytes, by GPU and kernel */
static int gpus = 1;
static int first_gpu; /* of the machine that this process sees */
static int capability = 90;
static bool no_image; /* for the GPUs */
static thread_local cudaError_t last = cudaSuccess;
static cudaError_t broken = cudaSuccess; /* the GPU has failed */
static thread_local int current;         /* the GPU of the thread */
static thread_local bool chosen;         /* it has called cudaSetDevice */
static void (*poll_outside)(void);

uint64_t
cuda_emulated_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random_state >> 33;
}

/* --- What tests say --------------------------------------------------------------------------- */

void
cuda_emulator_seed(uint64_t seed)
{
    const std::lock_guard<std::mutex> guard(lock);
    random_state = seed * 2 + 1;
}

void
cuda_emulator_set_gpus(int count)
{
    const std::lock_guard<std::mutex> guard(lock);
    gpus = count;
}

void
cuda_emulator_set_first(int first)
{
    const std::lock_guard<std::mutex> guard(lock);
    first_gpu = first;
}

void
cuda_emulator_set_capability(int number)
{
    const std::lock_guard<std::mutex> guard(lock);
    capability = number;
}

void
cuda_emulator_lack_image(bool wanted)
{
    const std::lock_guard<std::mutex> guard(lock);
    no_image = wanted;
}

void
cuda_emulator_fail_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    fail_at = n;
    if (n == 0)
        broken = cudaSuccess;
}

void
cuda_emulator_fail_call(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    fail_call = n;
}

void
cuda_emulator_no_memory_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    no_memory_at = n;
}

void
cuda_emulator_set_memory(uint64_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    all_memory = bytes ? bytes : TEBIBYTE;
}

uint64_t
cuda_emulator_done(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return done;
}

uint64_t
cuda_emulator_calls(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return calls;
}

uint64_t
cuda_emulator_graphs(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return launched_graphs;
}

uint64_t
cuda_emulator_records(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return records;
}

uint64_t
cuda_emulator_updates(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return updates;
}

void
cuda_emulator_refuse_update_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    refuse_update_at = n;
}

static uint64_t to_host;    /* bytes of copies */
static uint64_t host_waits; /* for streams */
static uint64_t seen;       /* GPUs with streams, a bit each */

uint64_t
cuda_emulator_waits(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return host_waits;
}

static void
print_to_host(void)
{
    fprintf(
        stderr, "cuda: %llu bytes to the host\ncuda: %llu waits\ncuda: %llu graphs, %llu records\n",
        static_cast<unsigned long long>(to_host), static_cast<unsigned long long>(host_waits),
        static_cast<unsigned long long>(launched_graphs), static_cast<unsigned long long>(records));
    for (int gpu = 0; gpu < 64; gpu++)
        if (seen >> gpu & 1)
            fprintf(stderr, "cuda: streams on GPU %d\n", gpu);
}

/* For programs that tests start: EXO_CUDA_EMULATOR is "fail_at=200 memory=9000 gpus=2 first=1 capability=80 seed=7 say=1",
 * of which each may be absent. With say=1 the process says at its end how much it copied to the
 * host, how often it waited for a stream, how many graphs it launched and recorded, and on which
 * GPUs it had streams. */
__attribute__((constructor)) static void
read_environment(void)
{
    static const struct {
        const char *name;
        void (*set)(uint64_t value);
    } settings[] = {
        {"fail_at=", cuda_emulator_fail_at},
        {"fail_call=", cuda_emulator_fail_call},
        {"memory=", cuda_emulator_set_memory},
        {"gpus=", [](uint64_t value) { cuda_emulator_set_gpus(static_cast<int>(value)); }},
        {"seed=", cuda_emulator_seed},
        {"first=", [](uint64_t value) { cuda_emulator_set_first(static_cast<int>(value)); }},
        {"capability=",
         [](uint64_t value) { cuda_emulator_set_capability(static_cast<int>(value)); }},
        {"say=", [](uint64_t) { atexit(print_to_host); }},
    };
    const char *text = getenv("EXO_CUDA_EMULATOR");
    for (const auto &s : settings) {
        const char *at = text ? strstr(text, s.name) : NULL;
        if (at)
            s.set(strtoull(at + strlen(s.name), NULL, 10));
    }
}

/* Shows the symbols of a plugin with this emulator to shared objects such as the NCCL of the tests. */
__attribute__((constructor)) static void
show_symbols(void)
{
    Dl_info own;
    if (dladdr(reinterpret_cast<void *>(cuda_emulated_set_poll), &own) && own.dli_fname)
        (void)dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* --- Errors ----------------------------------------------------------------------------------- */

/* Keeps an error for cudaGetLastError. */
static cudaError_t
say(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

/* A thread that has chosen no GPU would open a context on the first one, which takes hundreds of MiB of
 * it, by almost any call. */
static void
expect_chosen(void)
{
    if (!chosen) {
        fprintf(stderr, "cuda: a call of a thread that has chosen no GPU\n");
        abort();
    }
}

/* The beginning of a function that can fail; with the lock. */
static cudaError_t
begin(void)
{
    calls++;
    if (fail_call > 0 && --fail_call == 0)
        return say(cudaErrorInvalidValue);
    return say(broken);
}

cudaError_t
cudaGetLastError(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    const cudaError_t error = last != cudaSuccess ? last : broken;
    last = cudaSuccess;
    return error;
}

cudaError_t
cudaPeekAtLastError(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return last != cudaSuccess ? last : broken;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
};

const char *
cudaGetErrorString(cudaError_t error)
{
    for (const auto &t : texts)
        if (t.error == error)
            return t.text;
    return "unknown error";
}

const char *
cudaGetErrorName(cudaError_t error)
{
    for (const auto &t : texts)
        if (t.error == error)
            return t.name;
    return "unknown";
}

/* --- Work ------------------------------------------------------------------------------------- */

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

static void
hide_memory(void)
{
    if (shown)
        for (const auto &block : blocks)
            poison(block.first, block.second.bytes, true);
    shown = false;
}

static void
add_block(void *memory, size_t bytes, int gpu)
{
    memset(memory, 0xA5, bytes);
    blocks[memory] = {bytes, gpu};
    used += bytes;
    poison(memory, bytes, !shown);
}

/* The memory is the host's again. */
static void
remove_block(void *memory)
{
    poison(memory, blocks[memory].bytes, false);
    used -= blocks[memory].bytes;
    blocks.erase(memory);
}

static void
do_first(emulated_stream *stream)
{
    const emulated_work work = stream->queue.front();
    stream->queue.pop_front();
    if (work.counts) {
        done++;
        if (fail_at > 0 && --fail_at == 0)
            broken = cudaErrorLaunchFailure;
    }
    cuda_emulated_show_memory();
    if (broken == cudaSuccess || work.always)
        work.run();
    if (stream->destroyed && stream->queue.empty()) {
        streams.erase(stream);
        delete stream;
    }
}

/* Does the next piece of a stream that is drawn. False: no stream may go on. */
static bool
do_one(void)
{
    std::vector<emulated_stream *> ready;
    if (poll_outside)
        poll_outside();
    for (emulated_stream *s : streams)
        if (!s->queue.empty() && (!s->queue.front().waits_for || *s->queue.front().waits_for))
            ready.push_back(s);
    if (!ready.empty())
        do_first(ready[cuda_emulated_random() % ready.size()]);
    return !ready.empty();
}

/* Lets other threads go on, for whose calls a stream waits. */
static void
await_outside(void)
{
    bool waits = false;
    for (emulated_stream *s : streams)
        waits = waits || (!s->queue.empty() && s->queue.front().outside);
    if (!waits) {
        fprintf(stderr, "cuda: every stream waits for an event that nobody records\n");
        abort();
    }
    hide_memory();
    std::unique_lock<std::mutex> held(lock, std::adopt_lock);
    changed.wait_for(held, std::chrono::microseconds(poll_outside ? 100 : 10000));
    held.release();
}

/* Does the work of a stream, and of others as the draw will have it. */
static void
do_all(emulated_stream *wanted)
{
    while (!wanted->queue.empty())
        if (!do_one())
            await_outside();
    hide_memory();
}

/* Does the work of all streams for which this is so. */
static void
do_those(const std::function<bool(const emulated_stream *)> &is_wanted)
{
    const auto is_left = [&](const emulated_stream *s) {
        return !s->queue.empty() && is_wanted(s);
    };
    while (std::any_of(streams.begin(), streams.end(), is_left))
        if (!do_one())
            await_outside();
    hide_memory();
}

static void
do_destroyed(void)
{
    do_those([](const emulated_stream *s) { return s->destroyed; });
}

/* Waits for all work of a GPU, as long as it takes. */
static void
await_gpu(int gpu)
{
    do_those([=](const emulated_stream *s) { return s->gpu == gpu; });
}

uint64_t
cuda_emulator_memory(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    do_destroyed();
    return used;
}

uint64_t
cuda_emulator_things(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    do_destroyed();
    return streams.size() + events.size() + pinned.size() + reserved.size() + graphs.size() +
           execs.size() + opened.size();
}

void
cuda_emulated_locked(const std::function<void()> &act)
{
    const std::lock_guard<std::mutex> guard(lock);
    act();
    changed.notify_all();
}

void
cuda_emulated_push(cudaStream_t stream, std::shared_ptr<bool> gate, std::function<void()> run)
{
    const bool outside = gate != nullptr;
    if (stream->recorded)
        stream->spoiled = true;
    else
        stream->queue.push_back({std::move(run), std::move(gate), false, true, outside});
}

void
cuda_emulated_set_poll(void (*poll)(void))
{
    const std::lock_guard<std::mutex> guard(lock);
    poll_outside = poll;
}

bool
cuda_emulated_is_recorded(int gpu)
{
    for (const emulated_stream *stream : streams)
        if (stream->gpu == gpu && stream->recorded)
            return true;
    return false;
}

void
cuda_emulated_await_gpu(int gpu)
{
    for (emulated_stream *stream : streams)
        stream->spoiled = stream->spoiled || (stream->gpu == gpu && stream->recorded);
    await_gpu(gpu);
}

void
cuda_emulated_await_work(int gpu)
{
    await_gpu(gpu);
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

bool
cuda_emulated_holds(const void *memory, size_t bytes)
{
    return find_block(memory, bytes) != NULL;
}

static cudaError_t
queue(cudaStream_t stream, char kind, std::function<void()> run)
{
    const cudaError_t error = begin();
    if (error != cudaSuccess)
        return error;
    const emulated_work work = {std::move(run), nullptr, true, false, false, kind};
    if (stream->recorded)
        stream->recorded->work.push_back(work);
    else
        stream->queue.push_back(work);
    return error;
}

/* The beginning of a function that cannot be recorded here; with the lock. */
static cudaError_t
begin_apart(cudaStream_t stream)
{
    const cudaError_t error = begin();
    if (error != cudaSuccess || !stream->recorded)
        return error;
    stream->spoiled = true;
    return say(cudaErrorStreamCaptureUnsupported);
}

/* What a thread records is lost by a call that it must not make meanwhile, on whatever stream. */
static void
spoil(void)
{
    if (capturing)
        capturing->spoiled = true;
}

/* The beginning of such a function. */
static cudaError_t
begin_unsafe(void)
{
    spoil();
    return capturing ? say(cudaErrorStreamCaptureUnsupported) : begin();
}

/* Whether a block of a kernel may have so many shared bytes on the GPU of the thread. */
static bool
may_share(const void *kernel, size_t bytes)
{
    const auto found = allowed.find({current, kernel});
    return bytes <= USUAL_SHARED || (found != allowed.end() && bytes <= found->second);
}

void
emulated_queue_grid(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, bool each, std::function<void()> thread)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
        grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535 || !may_share(kernel, shared)) {
        say(cudaErrorInvalidValue);
        return;
    }
    if (stream->gpu != current) {
        say(cudaErrorInvalidResourceHandle);
        return;
    }
    (void)queue(stream, 'k',
                [=]() { cuda_emulated_grid(name, grid, block, shared, each, thread); });
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

/* --- Devices and memory ----------------------------------------------------------------------- */

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

static uint64_t
unused(void)
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
    stream->queue.push_back({[memory]() {
                                 remove_block(memory);
                                 free(memory);
                             },
                             nullptr, false, true, false});
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
    return queue(stream, 'c', [=]() { memmove(to, from, bytes); });
}

cudaError_t
cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                    cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (!is_of_gpu(to, bytes, to_gpu) || !is_of_gpu(from, bytes, from_gpu))
        return say(cudaErrorInvalidValue);
    return queue(stream, 'c', [=]() { memmove(to, from, bytes); });
}

cudaError_t
cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    return queue(stream, 'f', [=]() { memset(memory, value, bytes); });
}

/* --- Memory of several processes -------------------------------------------------------------- */

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
    await_gpu(current);
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
    await_gpu(current);
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

/* Of memory that another process made. */
static CUresult
find_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = opened.find(reinterpret_cast<void *>(at));
    if (begin() != cudaSuccess || found == opened.end())
        return CUDA_ERROR_INVALID_VALUE;
    *base = at;
    *bytes = found->second.shared.bytes;
    return CUDA_SUCCESS;
}

/* --- Pages ------------------------------------------------------------------------------------ */

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

/* --- Graphs ----------------------------------------------------------------------------------- */

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_apart(stream);
    (void)mode;
    if (error == cudaSuccess) {
        records++;
        capturing = stream;
        stream->recorded = new emulated_graph;
        stream->spoiled = false;
        graphs.insert(stream->recorded);
    }
    return error;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    capturing = NULL;
    const cudaError_t error = stream->spoiled ? say(cudaErrorStreamCaptureUnsupported) : begin();
    *out = error == cudaSuccess ? stream->recorded : NULL;
    if (error != cudaSuccess) {
        graphs.erase(stream->recorded);
        delete stream->recorded;
    }
    stream->recorded = NULL;
    return error;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    if (error == cudaSuccess) {
        *out = new emulated_exec{graph->work};
        execs.insert(*out);
    }
    return error;
}

/* Refuses a graph of other kinds of nodes, or of more. What was launched before stays as it was. */
cudaError_t
cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    if (error != cudaSuccess)
        return error;
    bool fits = exec->work.size() == graph->work.size() &&
                !(refuse_update_at > 0 && --refuse_update_at == 0);
    for (size_t i = 0; fits && i < exec->work.size(); i++)
        fits = exec->work[i].kind == graph->work[i].kind;
    info->result = fits ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!fits)
        return say(cudaErrorGraphExecUpdateFailure);
    exec->work = graph->work;
    updates++;
    return cudaSuccess;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_apart(stream);
    if (error == cudaSuccess) {
        launched_graphs++;
        stream->queue.insert(stream->queue.end(), exec->work.begin(), exec->work.end());
    }
    return error;
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    graphs.erase(graph);
    delete graph;
    return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    execs.erase(exec);
    delete exec;
    return cudaSuccess;
}

/* --- Streams and events ----------------------------------------------------------------------- */

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    (void)flags;
    if (error == cudaSuccess) {
        *out = new emulated_stream{current, {}, nullptr, false, false};
        streams.insert(*out);
        seen |= UINT64_C(1) << current;
    }
    return error;
}

/* Waits for nothing, as the real one. */
cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    stream->destroyed = true;
    if (stream->queue.empty()) {
        streams.erase(stream);
        delete stream;
    }
    return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    spoil();
    const cudaError_t error = begin_apart(stream);
    host_waits++;
    if (!stream->recorded)
        do_all(stream);
    return error != cudaSuccess ? error : say(broken);
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_apart(stream);
    (void)flags;
    if (error == cudaSuccess && event->done)
        stream->queue.push_back({[]() {}, event->done, false, true, false});
    return error;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    (void)flags;
    if (error == cudaSuccess) {
        *out = new emulated_event{current, nullptr};
        events.insert(*out);
    }
    return error;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    events.erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (stream->gpu != event->gpu)
        return say(cudaErrorInvalidResourceHandle);
    const cudaError_t error = begin_apart(stream);
    if (error == cudaSuccess) {
        const std::shared_ptr<bool> reached = std::make_shared<bool>(false);
        event->done = reached;
        stream->queue.push_back({[reached]() { *reached = true; }, nullptr, false, true, false});
    }
    return error;
}

/* Does work until the event has come: streams go on as they are drawn. */
cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    const std::shared_ptr<bool> reached = event->done;
    while (reached && !*reached)
        if (!do_one())
            await_outside();
    hide_memory();
    return error != cudaSuccess ? error : say(broken);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    const std::shared_ptr<bool> reached = event->done;
    if (reached && !*reached)
        (void)do_one();
    hide_memory();
    if (error != cudaSuccess)
        return error;
    return reached && !*reached ? say(cudaErrorNotReady) : say(broken);
}
