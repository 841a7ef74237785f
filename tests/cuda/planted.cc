/* Kernels with faults that races.cc and fibers.cc are to find, and one without. They are compiled as
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

static void
read_between(float *out)
{
    const char *const at = reinterpret_cast<const char *>(out) + 2;
    volatile const float *const between = reinterpret_cast<const float *>(at);
    (void)*between;
}

static void
leave_early(float *out)
{
    if (threadIdx.x == 3)
        return;
    out[blockIdx.x * THREADS + threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
}

static void
launch(cuda_fault fault, float *out, cudaStream_t stream)
{
    const size_t shared = THREADS * sizeof *out;
    switch (fault) {
    case CUDA_SOUND:
        emulated_launch("sound", rotate, 2, THREADS, 0, stream, false, out, true);
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
    case CUDA_NO_MULTIPLE:
        emulated_launch("planted", read_between, 1, 1, 0, stream, true, out);
        break;
    case CUDA_ENDED_LANE:
        emulated_launch("planted", leave_early, 2, THREADS, 0, stream, false, out);
        break;
    case CUDA_MUCH_SHARED:
        emulated_launch("planted", rotate, 2, THREADS, 48 * 1024 + 4, stream, false, out, true);
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
