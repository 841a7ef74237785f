/* A stand-in for NVIDIA's cuda_runtime.h, with which the tests compile nn/cuda for the host. It has
 * what that folder uses, with the meaning of the CUDA Runtime API's reference manual, and with its names, numbers
 * and layouts: what nvcc compiles can be linked to it, too (tests/ptx).
 *
 * Work is queued by stream and is done when somebody waits for it: the next piece comes from a
 * stream drawn at random among those that may go on, so any order that streams and events allow can
 * occur. A thread must have chosen the GPU of the stream on which it starts a kernel or a copy, and
 * some GPU for whatever else it calls: else it would open a context on the first one. The blocks of a
 * grid are a loop in a drawn order. The threads of a block are fibers, which change where they wait for each other and
 * run in an order that is drawn anew after each barrier. Device memory starts as NaN, and the
 * address sanitizer reports the host's accesses to it.
 *
 * emulator.h is what tests say to it. Owner: the process; a lock guards all of it. Read next:
 * state.h. */
#ifndef EXO_TEST_CUDA_RUNTIME_H
#define EXO_TEST_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>

#define CUDA_EMULATED_EXPORT __attribute__((visibility("default"))) /* for the NCCL of the tests */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#if defined(EXO_TEST_THREAD_SANITIZER)
#define __shared__ static thread_local /* apart from all else, for order.cc */
#else
#define __shared__ static
#endif

/* --- Errors ----------------------------------------------------------------------------------- */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorDeviceUninitialized = 201,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorGraphExecUpdateFailure = 910,
} cudaError_t;

extern "C" {
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
}

/* --- Devices, memory, streams, events --------------------------------------------------------- */

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_pool *cudaMemPool_t;

enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2
};

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
} cudaMemcpyKind;

typedef enum cudaMemPoolAttr {
    cudaMemPoolAttrReleaseThreshold = 4,
    cudaMemPoolAttrReservedMemCurrent = 5,
    cudaMemPoolAttrUsedMemCurrent = 7,
} cudaMemPoolAttr;

typedef struct cudaUUID_t {
    char bytes[16];
} cudaUUID_t;

typedef struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    size_t totalConstMem;
    int major, minor; /* NVIDIA's has more behind them */
} cudaDeviceProp;

typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
} cudaFuncAttribute;

/* Lets a kernel have so many shared bytes on the GPU of the thread: above 48 KiB a launch needs that.
 * Refuses more than a block can have. */
cudaError_t emulated_set_shared(const void *kernel, int bytes);

template <typename Kernel>
cudaError_t
cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute attribute, int value)
{
    (void)attribute;
    return emulated_set_shared(reinterpret_cast<const void *>(kernel), value);
}

typedef struct cudaFuncAttributes {
    size_t sharedSizeBytes;
} cudaFuncAttributes;

/* Kernels are compiled for compute capability 8.0 and later. */
cudaError_t emulated_find_image(void);

template <typename Kernel>
cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *out, Kernel *kernel)
{
    (void)kernel;
    *out = {};
    return emulated_find_image();
}

extern "C" {
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char *address, int bytes, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaSetDevice(int device);
CUDA_EMULATED_EXPORT cudaError_t cudaGetDevice(int *device);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes);
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
/* From and to the host, pinned memory only. Memory of the GPU that the thread has chosen; other GPUs have
 * a copy of their own. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
/* Does a piece of work, as a GPU goes on while somebody looks. */
cudaError_t cudaEventQuery(cudaEvent_t event);

/* Memory that other processes open by a handle: files without a name. A handle cannot be opened in the
 * process that made it. Memory that is freed while another process has it open ends the test. */
typedef struct cudaIpcMemHandle_st {
    char reserved[64];
} cudaIpcMemHandle_t;

enum {
    cudaIpcMemLazyEnablePeerAccess = 1
};

cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory);
cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *memory);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);

/* Graphs of what is asked for on one stream: kernels, copies and fills. They are done in the order in
 * which they were recorded. A thread that records must not allocate, nor wait for an event. */
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_exec *cudaGraphExec_t;

typedef enum cudaStreamCaptureMode {
    cudaStreamCaptureModeThreadLocal = 1,
} cudaStreamCaptureMode;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
/* Changes what later launches do. */
typedef enum cudaGraphExecUpdateResult {
    cudaGraphExecUpdateSuccess = 0,
    cudaGraphExecUpdateErrorTopologyChanged = 2,
} cudaGraphExecUpdateResult;

typedef struct cudaGraphExecUpdateResultInfo {
    cudaGraphExecUpdateResult result;
} cudaGraphExecUpdateResultInfo;

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* A function of the driver (cuda.h) by its name. */
typedef enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
} cudaDriverEntryPointQueryResult;

enum {
    cudaEnableDefault = 0
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result);
}

/* --- Grids ------------------------------------------------------------------------------------ */

struct dim3 {
    unsigned x, y, z;
    /* a function that kernels' files have, too, would be one of theirs: order.h */
    __attribute__((always_inline)) constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

struct __align__(16) float4
{
    float x, y, z, w;
};

/* Of the thread that runs. */
struct emulated_place {
    dim3 thread, block, block_dim, grid_dim;
};
extern emulated_place emulated_index;
#define threadIdx emulated_index.thread
#define blockIdx  emulated_index.block
#define blockDim  emulated_index.block_dim
#define gridDim   emulated_index.grid_dim

/* Waits for the other threads of the block, or of the warp. */
void __syncthreads(void);
void __syncwarp(unsigned mask = 0xFFFFFFFFu);
/* The shared bytes of the launch. */
void *emulated_shared(void);
/* Hands `bytes` of each lane of the warp to lane `from` asks for: `value` becomes lane from's. */
void emulated_exchange(void *value, size_t bytes, unsigned from);
/* Whether each lane's `flag` is set, as bits. */
unsigned __ballot_sync(unsigned mask, int flag);

/* Instructions of a warp and of a thread (nn/cuda/mma.h), see mma.cc. */
void emulated_mma(float sum[4], const uint32_t a[4], const uint32_t b[2]);
void emulated_load_matrices(uint32_t word[4], const void *row, bool transposed);
void emulated_begin_copy(void *shared, const void *from, bool zeros);
void emulated_end_copies(void);
void emulated_wait_copies(unsigned pending);

static inline unsigned
emulated_lane(void)
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

template <typename T>
T
__shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    const unsigned lane = emulated_lane(), w = static_cast<unsigned>(width);
    (void)mask;
    emulated_exchange(&value, sizeof value, lane / w * w + static_cast<unsigned>(from) % w);
    return value;
}

template <typename T>
T
__shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    const unsigned lane = emulated_lane(), w = static_cast<unsigned>(width);
    const unsigned from = lane ^ static_cast<unsigned>(bits);
    (void)mask;
    emulated_exchange(&value, sizeof value, from / w == lane / w ? from : lane);
    return value;
}

template <typename T>
T
__shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    const unsigned lane = emulated_lane(), w = static_cast<unsigned>(width);
    (void)mask;
    emulated_exchange(&value, sizeof value, lane % w + by < w ? lane + by : lane);
    return value;
}

template <typename T>
T
__shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    const unsigned lane = emulated_lane(), w = static_cast<unsigned>(width);
    (void)mask;
    emulated_exchange(&value, sizeof value, lane % w >= by ? lane - by : lane);
    return value;
}

/* Of an access that needs no barrier (races.cc). */
void emulated_note_atomic(const void *at, size_t bytes);
#if defined(EXO_TEST_THREAD_SANITIZER)
/* The sanitizer sees that the access is atomic and orders nothing. */
template <typename T>
T
atomicAdd(T *at, T value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
#else
/* Fibers do not interrupt each other, so plain memory is atomic. */
template <typename T>
__attribute__((noinline, no_sanitize("thread"))) T
atomicAdd(T *at, T value)
{
    const T before = *at;
    emulated_note_atomic(at, sizeof *at);
    *at = before + value;
    return before;
}
#endif

static inline int
__popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int
__ffs(int x)
{
    return __builtin_ffs(x);
}

/* Queues a grid. each: its threads do nothing together. More than 48 KiB of shared bytes need
 * emulated_set_shared. */
void emulated_queue_grid(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
                         cudaStream_t stream, bool each, std::function<void()> thread);

template <typename... Parameters, typename... Arguments>
void
emulated_launch(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                size_t shared, cudaStream_t stream, bool each, Arguments... arguments)
{
    /* converted now, as a launch does, and kept by value */
    const std::tuple<Parameters...> kept(arguments...);
    emulated_queue_grid(name, reinterpret_cast<const void *>(kernel), grid, block, shared, stream,
                        each, [kernel, kept]() { std::apply(kernel, kept); });
}

#endif
