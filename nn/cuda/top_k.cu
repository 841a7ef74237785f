/* The largest coefficients of chunks, and the mean of those that nodes have sent: a chunk is a
 * block. No state. Read next: nn/device/compress_args.h. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/kth_largest.h"

/* Threads for a chunk. */
static unsigned
block_for(size_t size)
{
    const size_t warp = EXO_CUDA_WARP, most = EXO_CUDA_BLOCK, warps = size / 4 / warp + 1;
    return static_cast<unsigned>(warps * warp < most ? warps * warp : most);
}

/* --- The largest ------------------------------------------------------------------------------ */

/* The order of magnitudes as that of integers; a NaN is above infinity. */
__device__ static inline uint32_t
magnitude(float x)
{
    const uint32_t bits = exo_cuda_bits(x) & 0x7FFFFFFFu;
    return bits > 0x7F800000u ? 0x7FFFFFFFu : bits;
}

struct chunk_keys {
    const uint32_t *keys;
    __device__ uint32_t operator()(size_t i) const
    {
        return keys[i];
    }
};

/* Writes the elements of chunk c that belong to the k largest, in their order. */
__device__ static inline void
take_chunk(const exo_top_k_args &k, size_t c, const uint32_t *keys, exo_cuda_threshold t,
           unsigned *room)
{
    unsigned taken = 0, equal = 0, all;
    for (size_t first = 0; first < k.size; first += blockDim.x) {
        const size_t i = first + threadIdx.x;
        const bool same = i < k.size && keys[i] == t.value;
        const unsigned rank = exo_cuda_block_rank(same, room, &all);
        const bool counts = i < k.size && (keys[i] > t.value || (same && equal + rank < t.equal));
        equal += all;
        const size_t to = c * k.k + taken + exo_cuda_block_rank(counts, room, &all);
        taken += all;
        if (counts) {
            k.values[to] = k.x[c * k.size + i];
            k.index[to] = static_cast<uint16_t>(i);
        }
    }
}

__global__ static void
top_k_chunks(exo_top_k_args k)
{
    EXO_CUDA_SHARED(uint32_t, keys); /* (size) */
    __shared__ unsigned counts[EXO_CUDA_DIGIT_ROOM], room[EXO_CUDA_WARP];
    __shared__ exo_cuda_threshold digit;
    for (size_t c = blockIdx.x; c < k.chunks; c += gridDim.x) {
        __syncthreads(); /* keys are free */
        for (size_t i = threadIdx.x; i < k.size; i += blockDim.x)
            keys[i] = magnitude(k.x[c * k.size + i]);
        take_chunk(k, c, keys,
                   exo_cuda_find_threshold(chunk_keys{keys}, k.size, k.k, counts, &digit), room);
    }
}

exo_status
exo_cuda_top_k(exo_device *device, const exo_top_k_args *k, exo_err *err)
{
    if (k->chunks == 0)
        return EXO_OK;
    exo_cuda_launch(top_k_chunks, exo_cuda_blocks(k->chunks, 1), block_for(k->size),
                    k->size * sizeof(uint32_t), exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("top_k", err);
}

/* --- Means ------------------------------------------------------------------------------------ */

/* What was sent for the places of a chunk; shared, (size) each. */
struct sent {
    float *sum;
    uint32_t *senders;
};

__device__ static inline void
add_sent(const sent &to, size_t size, float value, uint16_t place)
{
    if (place < size) {
        to.sum[place] += value;
        to.senders[place]++;
    }
}

/* Adds a sender's values. Places that rise are of different threads; if a sender has others, whose
 * order matters, one thread adds all. All threads of the block call it. */
__device__ static inline void
add_sender(const exo_sent_mean_args &k, const sent &to, const float *values, const uint16_t *index,
           unsigned *room)
{
    bool falls = false;
    unsigned all;
    for (size_t j = threadIdx.x; j + 1 < k.k; j += blockDim.x)
        falls |= index[j] >= index[j + 1];
    (void)exo_cuda_block_rank(falls, room, &all); /* the sender before has been added, too */
    const size_t first = all == 0 ? threadIdx.x : threadIdx.x == 0 ? 0 : k.k;
    for (size_t j = first; j < k.k; j += all == 0 ? blockDim.x : 1)
        add_sent(to, k.size, values[j], index[j]);
}

__global__ static void
sent_mean_chunks(exo_sent_mean_args k)
{
    EXO_CUDA_SHARED(float, shared);
    __shared__ unsigned room[EXO_CUDA_WARP];
    const sent to = {shared, reinterpret_cast<uint32_t *>(shared + k.size)};
    for (size_t c = blockIdx.x; c < k.chunks; c += gridDim.x) {
        __syncthreads(); /* the chunk before has been written */
        for (size_t i = threadIdx.x; i < k.size; i += blockDim.x) {
            to.sum[i] = 0;
            to.senders[i] = 0;
        }
        for (size_t s = 0; s < k.senders; s++)
            add_sender(k, to, k.values + s * (k.step / sizeof(float)) + c * k.k,
                       k.index + s * (k.step / sizeof(uint16_t)) + c * k.k, room);
        __syncthreads();
        for (size_t i = threadIdx.x; i < k.size; i += blockDim.x)
            k.y[c * k.size + i] = to.senders[i] ? to.sum[i] / static_cast<float>(to.senders[i]) : 0;
    }
}

exo_status
exo_cuda_sent_mean(exo_device *device, const exo_sent_mean_args *k, exo_err *err)
{
    if (k->chunks * k->size == 0)
        return EXO_OK;
    exo_cuda_launch(sent_mean_chunks, exo_cuda_blocks(k->chunks, 1), block_for(k->size),
                    k->size * (sizeof(float) + sizeof(uint32_t)), exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("sent_mean", err);
}
