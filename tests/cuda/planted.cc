/* Kernels and streams with faults that races.cc, fibers.cc and the thread sanitizer (order.h) are to find,
 * and some without. They are compiled as
 * those of nn/cuda. No state. */
#include <cuda_runtime.h>

#include "cuda/emulator.h"

enum {
    THREADS = 64
};

/* Each thread reads what its neighbour wrote. */
static void
rotate(float *out, bool waits)
{
    __shared__ float room[THREADS];
    room[threadIdx.x] = 1;
    if (waits)
        __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = room[(threadIdx.x + 1) % THREADS];
}

/* A shuffle orders no memory. */
static void
rotate_by_shuffle(float *out)
{
    __shared__ float room[THREADS];
    room[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
    (void)__shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
    out[blockIdx.x * THREADS + threadIdx.x] = room[threadIdx.x ^ 1];
}

static void
write_all(float *out)
{
    out[threadIdx.x] = 1;
}

static void
read_shared(float *out)
{
    const float *const shared = static_cast<const float *>(emulated_shared());
    out[blockIdx.x * THREADS + threadIdx.x] = shared[threadIdx.x];
}

/* What a block before has left is not there on a GPU. */
static void
read_declared(float *out)
{
    __shared__ float room[THREADS];
    if (blockIdx.x == 0)
        room[threadIdx.x] = 1;
    out[blockIdx.x * THREADS + threadIdx.x] = room[threadIdx.x];
}

static void
declare_much(float *out)
{
    __shared__ float room[8 * 1024];
    for (unsigned i = threadIdx.x; i < sizeof room / sizeof *room; i += THREADS)
        room[i] = 1;
    out[blockIdx.x * THREADS + threadIdx.x] = room[threadIdx.x];
}

static void
read_between(float *out)
{
    const char *const at = reinterpret_cast<const char *>(out) + 2;
    const float *const between = reinterpret_cast<const float *>(at);
    out[0] = *between;
}

/* Each thread reads what a copy of its own or, behind a barrier, of another thread brings. */
static void
copy_and_read(float *out, unsigned from, bool waits)
{
    static const float ones[4] = {1, 1, 1, 1};
    __shared__ __align__(16) float room[THREADS][4];
    emulated_begin_copy(room[threadIdx.x], ones, false);
    emulated_end_copies();
    if (waits)
        emulated_wait_copies(0);
    if (from > 0)
        __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = room[(threadIdx.x + from) % THREADS][0];
    __syncthreads();
    emulated_wait_copies(0);
}

static void
leave_early(float *out)
{
    if (threadIdx.x == 3)
        return;
    out[blockIdx.x * THREADS + threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
}

/* Both streams write the device's memory and copy it to the host, which changes its own. */
static void
use_streams(cuda_fault fault, float *out, cudaStream_t stream)
{
    const size_t bytes = THREADS * sizeof *out;
    cudaStream_t other;
    cudaEvent_t written;
    void *pinned = NULL;
    (void)cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    (void)cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
    (void)cudaMallocHost(&pinned, bytes);
    float *const host = static_cast<float *>(pinned);
    emulated_launch("written", write_all, 1, THREADS, 0, stream, true, out);
    (void)cudaEventRecord(written, stream);
    if (fault != CUDA_NO_EVENT)
        (void)cudaStreamWaitEvent(other, written, 0);
    emulated_launch("written again", write_all, 1, THREADS, 0, other, true, out);
    (void)cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, other);
    if (fault != CUDA_READ_EARLY)
        (void)cudaStreamSynchronize(other);
    volatile float seen = host[0];
    (void)seen;
    (void)cudaMemcpyAsync(out, host, bytes, cudaMemcpyHostToDevice, other);
    if (fault != CUDA_CHANGED_EARLY)
        (void)cudaStreamSynchronize(other);
    host[1] = 2;
    (void)cudaStreamSynchronize(other);
    (void)cudaFreeHost(pinned);
    (void)cudaEventDestroy(written);
    (void)cudaStreamDestroy(other);
}

static void
launch(cuda_fault fault, float *out, cudaStream_t stream)
{
    const size_t shared = THREADS * sizeof *out;
    switch (fault) {
    case CUDA_SOUND:
        emulated_launch("sound", rotate, 2, THREADS, 0, stream, false, out, true);
        emulated_launch("sound", copy_and_read, 2, THREADS, 0, stream, false, out, 0, true);
        emulated_launch("sound", copy_and_read, 2, THREADS, 0, stream, false, out, 1, true);
        break;
    case CUDA_NO_BARRIER:
        emulated_launch("planted", rotate, 2, THREADS, 0, stream, false, out, false);
        break;
    case CUDA_SHUFFLE_AS_BARRIER:
        emulated_launch("planted", rotate_by_shuffle, 2, THREADS, 0, stream, false, out);
        break;
    case CUDA_TWO_BLOCKS:
        emulated_launch("planted", write_all, 2, THREADS, 0, stream, true, out);
        break;
    case CUDA_NOT_WRITTEN:
        emulated_launch("planted", read_shared, 2, THREADS, shared, stream, false, out);
        break;
    case CUDA_NOT_WRITTEN_DECLARED:
        emulated_launch("planted", read_declared, 2, THREADS, 0, stream, false, out);
        break;
    case CUDA_MUCH_DECLARED:
        emulated_launch("planted", declare_much, 1, THREADS, 17 * 1024, stream, false, out);
        break;
    case CUDA_NO_MULTIPLE:
        emulated_launch("planted", read_between, 1, 1, 0, stream, true, out);
        break;
    case CUDA_COPY_EARLY:
        emulated_launch("planted", copy_and_read, 2, THREADS, 0, stream, false, out, 0, false);
        break;
    case CUDA_COPY_LATE:
        emulated_launch("planted", copy_and_read, 2, THREADS, 0, stream, false, out, 1, false);
        break;
    case CUDA_ENDED_LANE:
        emulated_launch("planted", leave_early, 2, THREADS, 0, stream, false, out);
        break;
    case CUDA_COPY_BEYOND:
        (void)cudaMemcpyAsync(out + THREADS, out, shared + 1, cudaMemcpyDeviceToDevice, stream);
        break;
    case CUDA_FILL_BEYOND:
        (void)cudaMemsetAsync(out, 0, 2 * shared + 1, stream);
        break;
    case CUDA_MUCH_SHARED:
        emulated_launch("planted", rotate, 2, THREADS, 48 * 1024 + 4, stream, false, out, true);
        break;
    case CUDA_SOUND_STREAMS:
    case CUDA_NO_EVENT:
    case CUDA_READ_EARLY:
    case CUDA_CHANGED_EARLY:
        use_streams(fault, out, stream);
        break;
    }
}

int
cuda_emulator_plant(cuda_fault fault)
{
    cudaStream_t stream;
    void *out;
    (void)cudaSetDevice(0);
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)cudaMallocAsync(&out, 2 * THREADS * sizeof(float), stream);
    (void)cudaGetLastError();
    launch(fault, static_cast<float *>(out), stream);
    const cudaError_t error = cudaGetLastError();
    (void)cudaFreeAsync(out, stream);
    (void)cudaStreamSynchronize(stream); /* else its work may never be done */
    (void)cudaStreamDestroy(stream);
    return error;
}
