/* Memory of a GPU that several threads and processes hold, by CUDA's handles of memory. They exist for what
 * cudaMalloc gives, not for the pool of memory.cu, and name whole pages of the driver: so each share
 * has pages of its own, and its handle shows nothing else. State: the memory that this process has
 * made, under a lock; nn/device/joint.c knows what is open. */
#include "nn/cuda/share.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/cuda/memory.h"
#include "nn/cuda/quiet.h"
#include "nn/cuda/sections.h"
#include "nn/cuda/side.h"

static const uint64_t PAGE = UINT64_C(2) << 20;

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(((exo_device_share *)0)->handle),
              "a handle has room");

typedef CUresult range_call(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);

/* The bytes from an address to the end of its memory; 0: unknown. */
static uint64_t
bytes_behind(const void *memory)
{
    void *found = NULL;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return 0;
    range_call *const range = reinterpret_cast<range_call *>(found);
    return range(&base, &bytes, at) == CUDA_SUCCESS ? base + bytes - at : 0;
}

/* What an allocation of so many bytes takes of the GPU. */
static uint64_t
pages_of(uint64_t bytes)
{
    return bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
}

/* --- Owners ----------------------------------------------------------------------------------- */

/* Memory that this process has made. */
typedef struct made {
    struct made *next;
    uintptr_t first, end;
    int ordinal; /* of its GPU */
} made;

static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;
static made *all_made; /* guarded */

static void
note(made *m, const exo_device_share *share, uint64_t bytes)
{
    m->first = reinterpret_cast<uintptr_t>(share->memory);
    m->end = m->first + bytes;
    m->ordinal = share->ordinal;
    pthread_mutex_lock(&made_lock);
    m->next = all_made;
    all_made = m;
    pthread_mutex_unlock(&made_lock);
}

static void
forget(const exo_device_share *share)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(share->memory);
    pthread_mutex_lock(&made_lock);
    made **at = &all_made;
    while (*at && (*at)->first != first)
        at = &(*at)->next;
    made *m = *at;
    if (m)
        *at = m->next;
    pthread_mutex_unlock(&made_lock);
    exo_free(m);
}

int
exo_cuda_share_owner(const void *memory, int otherwise)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory);
    pthread_mutex_lock(&made_lock);
    const made *m = all_made;
    while (m && (at < m->first || at >= m->end))
        m = m->next;
    const int ordinal = m ? m->ordinal : otherwise;
    pthread_mutex_unlock(&made_lock);
    return ordinal;
}

/* --- Memory ----------------------------------------------------------------------------------- */

static cudaError_t
allocate(const exo_cuda_device *cuda, exo_device_share *out)
{
    const uint64_t bytes = pages_of(out->bytes);
    made *m = static_cast<made *>(exo_calloc(1, sizeof *m));
    cudaError_t error = m ? cudaMalloc(&out->memory, bytes) : cudaErrorMemoryAllocation;
    if (m && error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        exo_cuda_trim(cuda); /* the pool may keep what is needed here */
        error = cudaMalloc(&out->memory, bytes);
    }
    if (error != cudaSuccess) {
        out->memory = NULL;
        exo_free(m);
        return error;
    }
    note(m, out, bytes);
    return error;
}

exo_status
exo_cuda_share_new(exo_device *device, uint64_t bytes, exo_device_share *out, exo_err *err)
{
    static const char what[] = "an array that others may hold";
    exo_cuda_device *cuda = exo_cuda_of(device);
    cudaDeviceProp properties;
    cudaIpcMemHandle_t handle;
    *out = {};
    out->bytes = bytes;
    out->ordinal = cuda->ordinal;
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = cudaGetDeviceProperties(&properties, cuda->ordinal);
    exo_status st = exo_cuda_status(error, "memory that others may hold", err);
    if (st == EXO_OK)
        st = exo_cuda_charge_shared(cuda, what, pages_of(bytes), err);
    if (st != EXO_OK)
        return st;
    error = allocate(cuda, out);
    if (error != cudaSuccess)
        exo_cuda_shared(cuda->ordinal, -static_cast<int64_t>(pages_of(bytes)));
    if (error == cudaErrorMemoryAllocation)
        return exo_cuda_say_full(cuda, what, bytes, err);
    if (error != cudaSuccess)
        return exo_cuda_status(error, what, err);
    memcpy(out->unit, &properties.uuid, sizeof out->unit);
    if (cudaIpcGetMemHandle(&handle, out->memory) == cudaSuccess) {
        memcpy(out->handle, &handle, sizeof out->handle);
        out->named = 1;
    }
    (void)cudaGetLastError(); /* without a handle it is memory of this process alone */
    return EXO_OK;
}

/* The GPU of a UUID among those that the process sees; -1: it sees no such one. */
static int
find_gpu(const uint8_t unit[16])
{
    int count = 0;
    cudaDeviceProp properties;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        return -1;
    for (int g = 0; g < count; g++)
        if (cudaGetDeviceProperties(&properties, g) == cudaSuccess &&
            memcmp(&properties.uuid, unit, 16) == 0)
            return g;
    return -1;
}

/* Whether the device's GPU can read the memory of another one. */
static bool
reaches(const exo_cuda_device *cuda, int ordinal)
{
    int can = 0;
    return ordinal == cuda->ordinal ||
           (cudaDeviceCanAccessPeer(&can, cuda->ordinal, ordinal) == cudaSuccess && can);
}

exo_status
exo_cuda_share_open(exo_device *device, exo_device_share *share, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    cudaIpcMemHandle_t handle;
    const int owner = find_gpu(share->unit);
    share->memory = NULL;
    share->ordinal = cuda->ordinal; /* it is mapped for the GPU that reads, wherever it lies */
    if (owner < 0 || !reaches(cuda, owner)) {
        (void)cudaGetLastError();
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the shared array is on a GPU that GPU %d of this process cannot read",
                        cuda->ordinal);
    }
    memcpy(&handle, share->handle, sizeof handle);
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = cudaIpcOpenMemHandle(&share->memory, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        share->memory = NULL;
        return exo_fail(err, EXO_UNSUPPORTED,
                        "memory of another process cannot be opened on GPU %d: %s (%s)",
                        share->ordinal, cudaGetErrorString(error), cudaGetErrorName(error));
    }
    const uint64_t there = bytes_behind(share->memory);
    if (there >= share->bytes)
        return EXO_OK;
    if (there == 0) /* the caller frees what is open */
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "the driver of GPU %d does not say how large the memory of another process is",
            share->ordinal);
    return exo_fail(
        err, EXO_INVAL, "the shared array says that it has %llu bytes, but its memory has %llu",
        static_cast<unsigned long long>(share->bytes), static_cast<unsigned long long>(there));
}

/* Both ways to free wait for the whole GPU, on which nothing is recorded meanwhile. */
bool
exo_cuda_share_free(const exo_device_share *share, bool foreign)
{
    if (!exo_cuda_quiet_begin(share->ordinal))
        return false;
    if (!foreign)
        forget(share);
    exo_cuda_forbid_recordings(share->ordinal);
    if (cudaSetDevice(share->ordinal) == cudaSuccess)
        (void)(foreign ? cudaIpcCloseMemHandle(share->memory) : cudaFree(share->memory));
    (void)cudaGetLastError();
    exo_cuda_allow_recordings(share->ordinal);
    if (!foreign)
        exo_cuda_shared(share->ordinal, -static_cast<int64_t>(pages_of(share->bytes)));
    exo_cuda_quiet_end(share->ordinal);
    return true;
}

bool
exo_cuda_share_is_on(const exo_device *device, const exo_device_share *share)
{
    return reinterpret_cast<const exo_cuda_device *>(device)->ordinal == share->ordinal;
}

/* --- Marks ------------------------------------------------------------------------------------ */

/* A mark is an event. Any stream may wait for it, also one of another GPU. A thread that has chosen no
 * GPU would open a context on the first one by asking for an event: so a mark knows its GPU. */
struct mark {
    cudaEvent_t event;
    int ordinal;
};

static mark *
new_mark(const exo_cuda_device *cuda, exo_err *err)
{
    mark *m = static_cast<mark *>(exo_calloc(1, sizeof *m));
    if (!m) {
        exo_fail(err, EXO_NOMEM, "no memory for a mark");
        return NULL;
    }
    m->ordinal = cuda->ordinal;
    const cudaError_t error = cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming);
    if (exo_cuda_status(error, "a mark", err) == EXO_OK)
        return m;
    exo_free(m);
    return NULL;
}

exo_status
exo_cuda_share_mark(exo_device *device, void **out, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_err reason = {};
    exo_status st = exo_cuda_catch_up(cuda, err); /* the mark is behind what was put off */
    if (st == EXO_OK)
        st = exo_cuda_status(exo_cuda_select(cuda), "a mark", err);
    if (st != EXO_OK)
        return st;
    if (!*out && !(*out = new_mark(cuda, &reason)))
        return exo_fail(err, reason.code, "%s", reason.text);
    return exo_cuda_status(cudaEventRecord(static_cast<mark *>(*out)->event, cuda->stream),
                           "a mark", err);
}

exo_status
exo_cuda_share_follow(exo_device *device, void *m, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = exo_cuda_share_after(cuda->stream, m);
    return exo_cuda_status(error, "the order of two devices", err);
}

cudaError_t
exo_cuda_share_after(cudaStream_t stream, void *m)
{
    return cudaStreamWaitEvent(stream, static_cast<mark *>(m)->event, 0);
}

exo_status
exo_cuda_share_wait(void *m, exo_err *err)
{
    const mark *of = static_cast<mark *>(m);
    cudaError_t error = cudaSetDevice(of->ordinal);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(of->event);
    return exo_cuda_status(error, "the work that fills an array", err);
}

bool
exo_cuda_share_reached(void *m)
{
    const mark *of = static_cast<mark *>(m);
    cudaError_t error = cudaSetDevice(of->ordinal);
    if (error == cudaSuccess)
        error = cudaEventQuery(of->event);
    (void)cudaGetLastError();
    return error != cudaErrorNotReady;
}

void
exo_cuda_share_unmark(void *m)
{
    mark *of = static_cast<mark *>(m);
    if (cudaSetDevice(of->ordinal) == cudaSuccess)
        (void)cudaEventDestroy(of->event);
    (void)cudaGetLastError();
    exo_free(of);
}
