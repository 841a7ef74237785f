/* Embeddings and positions. Gradients are added in the order of the rows, whatever the grid. No
 * state. Read next: nn/device/layer_args.h. */
#include "nn/cuda/each.h"

/* A kernel of rows * width elements. */
#define ELEMENTS(NAME, COUNT, STATEMENT)                                                           \
    __global__ static void NAME##_each(exo_##NAME##_args k, size_t count)                          \
    {                                                                                              \
        for (EXO_CUDA_EACH(i, count))                                                              \
            STATEMENT;                                                                             \
    }                                                                                              \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        const size_t count = COUNT;                                                                \
        if (count == 0)                                                                            \
            return EXO_OK;                                                                         \
        exo_cuda_launch_each(NAME##_each, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,  \
                             exo_cuda_of(device)->stream, *k, count);                              \
        return exo_cuda_launched(#NAME, err);                                                      \
    }

/* --- Embeddings ------------------------------------------------------------------------------- */

__device__ static inline void
embedding_at(const exo_embedding_args &k, size_t i)
{
    const int32_t token = k.tokens[i / k.width];
    k.y[i] = token < 0 ? 0 : k.table[static_cast<size_t>(token) * k.width + i % k.width];
}

ELEMENTS(embedding, k->rows * k->width, embedding_at(k, i))

enum {
    MATCHES = 1024, /* rows that a block looks through at a time */
    GLANCE = 8      /* tokens of a thread, before the block asks whether one of them was found */
};

/* Whether a row of [first, end) has this token. All threads of the block call it. */
__device__ static inline bool
has_token(const int32_t *tokens, int32_t token, size_t first, size_t end, unsigned *room)
{
    const size_t step = static_cast<size_t>(blockDim.x) * GLANCE;
    bool found = false;
    for (size_t from = first; from < end && !found; from += step) {
        bool same = false;
        EXO_CUDA_UNROLL
        for (unsigned glance = 0; glance < GLANCE; glance++) {
            const size_t r = from + glance * blockDim.x + threadIdx.x;
            same |= r < end && tokens[r] == token;
        }
        found = exo_cuda_block_any(same, room);
    }
    return found;
}

/* Fills `matches`, shared, with the rows of [first, end) that have this token, in their order.
 * Returns their number. All threads of the block call it. */
__device__ static inline unsigned
find_matches(const int32_t *tokens, int32_t token, size_t first, size_t end, uint32_t *matches,
             unsigned *room)
{
    unsigned found = 0;
    for (size_t base = first; base < end; base += blockDim.x) {
        const size_t r = base + threadIdx.x;
        const bool same = r < end && tokens[r] == token;
        unsigned all;
        const unsigned before = exo_cuda_block_rank(same, room, &all);
        if (same)
            matches[found + before] = static_cast<uint32_t>(r - first);
        found += all;
    }
    __syncthreads();
    return found;
}

/* Blocks are rows. That of a token's first row adds up all rows of the token. Most tokens of a large
 * vocabulary have one row: their blocks look for others and count none. */
__global__ static void __launch_bounds__(1024)
    embedding_backward_rows(exo_embedding_backward_args k)
{
    __shared__ unsigned room[EXO_CUDA_WARP];
    __shared__ uint32_t matches[MATCHES];
    for (size_t row = blockIdx.x; row < k.rows; row += gridDim.x) {
        const int32_t token = k.tokens[row];
        if (token < 0 || has_token(k.tokens, token, 0, row, room))
            continue;
        const size_t to = static_cast<size_t>(k.slot ? k.slot[token] : token);
        float *const gradient = k.gradient + to * k.width;
        if (!has_token(k.tokens, token, row + 1, k.rows, room)) {
            for (size_t i = threadIdx.x; i < k.width; i += blockDim.x)
                gradient[i] = gradient[i] + k.dy[row * k.width + i];
            continue;
        }
        for (size_t first = row; first < k.rows; first += MATCHES) {
            const size_t end = k.rows - first < MATCHES ? k.rows : first + MATCHES;
            const unsigned found = find_matches(k.tokens, token, first, end, matches, room);
            for (size_t i = threadIdx.x; i < k.width && found > 0; i += blockDim.x) {
                float sum = gradient[i];
                EXO_CUDA_READ_AHEAD(8)
                for (unsigned m = 0; m < found; m++)
                    sum += k.dy[(first + matches[m]) * k.width + i];
                gradient[i] = sum;
            }
            __syncthreads(); /* the next matches overwrite these */
        }
    }
}

exo_status
exo_cuda_embedding_backward(exo_device *device, const exo_embedding_backward_args *k, exo_err *err)
{
    /* a frequent token is one block's: a thread an element, as far as there can be */
    const size_t warp = EXO_CUDA_WARP, most = 1024, warps = (k->width + warp - 1) / warp;
    if (k->rows * k->width == 0)
        return EXO_OK;
    const size_t threads = warps * warp < most ? warps * warp : most;
    exo_cuda_launch(embedding_backward_rows, exo_cuda_blocks(k->rows, 1),
                    static_cast<unsigned>(threads), 0, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("embedding_backward", err);
}

/* --- Positions -------------------------------------------------------------------------------- */

__device__ static inline void
positions_at(const exo_positions_args &k, size_t i)
{
    const size_t position = k.first + i / k.width % k.sequence;
    k.y[i] = k.x[i] + k.table[position * k.width + i % k.width];
}

/* Element i of the first sequence's rows stands for those of all sequences. */
__device__ static inline void
positions_backward_at(const exo_positions_backward_args &k, size_t i)
{
    const size_t step = k.sequence * k.width;
    float sum = k.gradient[k.first * k.width + i];
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(at, i, k.rows * k.width, step))
        sum += k.dy[at];
    k.gradient[k.first * k.width + i] = sum;
}

ELEMENTS(positions, k->rows * k->width, positions_at(k, i))
ELEMENTS(positions_backward, (k->sequence < k->rows ? k->sequence : k->rows) * k->width,
         positions_backward_at(k, i))
