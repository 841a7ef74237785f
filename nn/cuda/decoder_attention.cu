/* Attention of generation: see decoder_attention.h. */
#include "nn/cuda/decoder_attention.h"

#include "nn/cuda/grid.h"
#include "nn/cuda/map.h"

enum {
    KEYS = EXO_CUDA_BLOCK,  /* whose scores attention computes at a time */
    TILE_FLOATS = 64 * 128, /* of a tile of values, at most */
    SLICE = 16,         /* elements of a head whose values a block adds up, where blocks share */
    SHARED_HEADS = 256, /* heads of all rows, at most, that blocks share out */
    SCORE_BLOCKS = 1024 /* which compute their scores, at most */
};

/* --- Scores in the scratch -------------------------------------------------------------------- */

/* Whether several blocks share a head of a row: a long context, and too few heads to keep
 * a GPU busy with a block each. The bits are the same. */
static bool
blocks_share(size_t context, size_t rows, size_t heads)
{
    return context > KEYS && heads > 0 && rows <= SHARED_HEADS / heads;
}

float *
exo_cuda_take_scores(exo_cuda_room *room, const exo_decoder_shape *shape, size_t heads)
{
    size_t most = 0;
    if (blocks_share(shape->context, 1, heads))
        most = shape->rows < SHARED_HEADS / heads ? shape->rows : SHARED_HEADS / heads;
    return static_cast<float *>(exo_cuda_take(room, most * heads, shape->context * sizeof(float)));
}

/* --- A block a head --------------------------------------------------------------------------- */

/* Turns queries in their place, and puts keys, turned, and values into the caches. A thread has a
 * pair of elements. */
__global__ static void
keep_rows(exo_cuda_decoder_attention k)
{
    const size_t half = (k.width + 1) / 2, all = k.heads + 2 * k.kv_heads;
    for (EXO_CUDA_EACH(at, k.rows * all * half)) {
        const size_t i = at % half, head = at / half % all, r = at / half / all;
        const size_t position = static_cast<size_t>(k.positions[r]);
        float *x = k.wide + (r * all + head) * k.width;
        const bool pair = i + half < k.width;
        float a = x[i], b = pair ? x[i + half] : 0.0f;
        if (k.turns && head < k.heads + k.kv_heads) {
            const float *turn = k.turns + position * k.width + i;
            const float turned = a * turn[0] - b * turn[half];
            b = b * turn[0] + a * turn[half];
            a = turned;
        }
        x[i] = a;
        if (pair)
            x[i + half] = b;
        if (head < k.heads)
            continue;
        const bool value = head >= k.heads + k.kv_heads;
        const size_t kv_head = head - k.heads - (value ? k.kv_heads : 0);
        const size_t size = k.width * k.context;
        float *cache = k.caches + static_cast<size_t>(k.sequences[r]) * k.sequence +
                       (kv_head + (value ? k.kv_heads : 0)) * size;
        const size_t step = value ? 1 : k.context;
        cache += value ? position * k.width : position;
        cache[i * step] = a;
        if (pair)
            cache[(i + half) * step] = b;
    }
}

/* A head of a row. */
struct row_head {
    size_t position;
    const float *query, *keys, *values;
    float slope;
    float *mixed;
};

/* That of block x. */
__device__ static row_head
head_of_block(const exo_cuda_decoder_attention &k)
{
    const size_t r = blockIdx.x / k.heads, head = blockIdx.x % k.heads;
    const size_t kv_head = head / (k.heads / k.kv_heads), size = k.width * k.context;
    row_head h;
    h.position = static_cast<size_t>(k.positions[r]);
    h.query = k.wide + (r * (k.heads + 2 * k.kv_heads) + head) * k.width;
    h.keys = k.caches + static_cast<size_t>(k.sequences[r]) * k.sequence + kv_head * size;
    h.values = h.keys + k.kv_heads * size;
    h.slope = exo_cuda_slope2(k.tape, k.first_head + head);
    h.mixed = k.mixed + blockIdx.x * k.width;
    return h;
}

/* The scores of KEYS keys, from j0 on, of this thread's key: as exo_cuda_tile_scores and `weigh` of
 * attention.cu compute them. query: shared. */
__device__ static float
score_of(const exo_cuda_decoder_attention &k, const row_head &h, const float *query, size_t j0)
{
    const size_t j = j0 + threadIdx.x;
    float score = 0;
    if (j > h.position)
        return -INFINITY;
    EXO_CUDA_READ_AHEAD(16)
    for (EXO_CUDA_ROUNDS(i, 0, k.width, 1))
        score = fmaf(query[i], h.keys[i * k.context + j], score);
    const float apart = static_cast<float>(j) - static_cast<float>(h.position);
    return fmaf(h.slope, apart, score * k.tape.scale2);
}

/* most[t]: the largest score up to the end of tile t, of `before` and TILE scores a tile. Returns that of
 * this thread's tile. */
template <int TILE>
__device__ static float
find_largest(float score, float before, float most[KEYS / TILE])
{
    __shared__ float room[KEYS / EXO_CUDA_WARP];
    const unsigned each = TILE / EXO_CUDA_WARP;
    float mine = before;
    for (int step = EXO_CUDA_WARP / 2; step > 0; step /= 2)
        score = fmaxf(score, __shfl_xor_sync(0xFFFFFFFFu, score, step));
    if (threadIdx.x % EXO_CUDA_WARP == 0)
        room[threadIdx.x / EXO_CUDA_WARP] = score;
    __syncthreads();
    EXO_CUDA_UNROLL
    for (unsigned w = 0; w < KEYS / EXO_CUDA_WARP; w++) {
        before = fmaxf(before, room[w]);
        most[w / each] = before;
        mine = w / each == threadIdx.x / TILE ? before : mine;
    }
    return mine;
}

/* What a thread has of a head so far: the largest score, every 16th weight, and the values of an
 * element. */
struct weighted {
    float most, sum, out;
};

/* Goes on by the weights of a tile, and by an element of `count` values, which lie `pitch` apart. */
template <int TILE>
__device__ static void
add_tile(weighted *x, float most, const float *weights, const float *values, size_t pitch,
         size_t count)
{
    const unsigned side = EXO_ATTENTION_SIDE;
    const float shrink = exp2f(x->most - most);
    x->most = most;
    x->sum *= shrink;
    for (unsigned c = 0; c < TILE; c += side)
        x->sum += weights[c + threadIdx.x % side];
    x->out *= shrink;
    EXO_CUDA_READ_AHEAD(16)
    for (EXO_CUDA_ROUNDS(j, 0, count, 1))
        x->out = fmaf(weights[j], values[j * pitch], x->out);
}

/* The result of this thread's element. All threads of a warp call it. */
__device__ static float
result_of(const weighted &x)
{
    float sum = x.sum;
    for (unsigned step = EXO_ATTENTION_SIDE / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, static_cast<int>(step));
    return x.out / sum;
}

/* The keys from `first` on that a head sees, at most `most`. */
__device__ static unsigned
keys_from(const row_head &h, size_t first, unsigned most)
{
    const size_t left = first <= h.position ? h.position + 1 - first : 0;
    return left < most ? static_cast<unsigned>(left) : most;
}

/* A block is a head of a row. It computes the scores of KEYS keys at a time, then goes over tiles of
 * TILE keys as a row of attention.cu does: the order of all its sums is the same. 16 threads add up
 * weights, and a thread for each element of a head adds up values. */
template <int TILE>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK, 4) attend(exo_cuda_decoder_attention k)
{
    __shared__ float query[EXO_CUDA_MAX_HEAD], weights[KEYS], rows[TILE_FLOATS];
    const row_head h = head_of_block(k);
    const unsigned t = threadIdx.x;
    weighted x = {-INFINITY, 0, 0};
    if (t < k.width)
        query[t] = h.query[t];
    for (size_t j0 = 0; j0 <= h.position; j0 += KEYS) {
        float most[KEYS / TILE];
        __syncthreads();
        const float score = score_of(k, h, query, j0);
        weights[t] = exp2f(score - find_largest<TILE>(score, x.most, most));
        EXO_CUDA_UNROLL
        for (unsigned tile = 0; tile < KEYS / TILE; tile++) {
            const size_t first = j0 + tile * TILE;
            const unsigned count = keys_from(h, first, TILE);
            if (count == 0)
                break;
            __syncthreads();
            for (size_t e = t; e < count * k.width; e += EXO_CUDA_BLOCK)
                rows[e] = h.values[first * k.width + e];
            __syncthreads();
            add_tile<TILE>(&x, most[tile], weights + tile * TILE, rows + t, k.width,
                           t < k.width ? count : 0);
        }
    }
    const float out = result_of(x);
    if (t < k.width)
        h.mixed[t] = out;
}

/* --- Blocks that share a head ------------------------------------------------------------------ */

/* Scores: block (x, y) has the keys of every so many KEYS of head x. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) score_keys(exo_cuda_decoder_attention k)
{
    __shared__ float query[EXO_CUDA_MAX_HEAD];
    const row_head h = head_of_block(k);
    float *scores = k.scores + blockIdx.x * k.context;
    const size_t first = static_cast<size_t>(blockIdx.y) * KEYS;
    const unsigned t = threadIdx.x;
    if (first > h.position)
        return;
    if (t < k.width)
        query[t] = h.query[t];
    __syncthreads();
    for (size_t j0 = first; j0 <= h.position; j0 += static_cast<size_t>(gridDim.y) * KEYS) {
        const float score = score_of(k, h, query, j0);
        if (j0 + t <= h.position)
            scores[j0 + t] = score;
    }
}

/* rows (KEYS, SLICE): elements [first, first + SLICE) of the values from j0 on, by threads `from` and
 * up. */
__device__ static void
take_slice(const exo_cuda_decoder_attention &k, const row_head &h, size_t first, size_t j0,
           unsigned from, float *rows)
{
    const unsigned t = threadIdx.x - from, element = t % SLICE;
    const unsigned count = keys_from(h, j0, KEYS);
    if (first + element >= k.width)
        return;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(j, t / SLICE, count, (EXO_CUDA_BLOCK - from) / SLICE))
        rows[j * SLICE + element] = h.values[(j0 + j) * k.width + first + element];
}

/* What score_keys has written for this block's head. */
__device__ static float
score_at(const exo_cuda_decoder_attention &k, const row_head &h, size_t j)
{
    return j <= h.position ? k.scores[blockIdx.x * k.context + j] : -INFINITY;
}

/* Block (x, y) has slice y of head x's elements, and goes over all its keys, in the order of `attend`.
 * The chains of sums take the time: one warp adds up, while the others read the next values. */
template <int TILE>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) attend_slice(exo_cuda_decoder_attention k)
{
    __shared__ float weights[KEYS], rows[2][KEYS * SLICE];
    const row_head h = head_of_block(k);
    const size_t first = static_cast<size_t>(blockIdx.y) * SLICE;
    const unsigned t = threadIdx.x;
    const bool adds = t < SLICE && first + t < k.width;
    weighted x = {-INFINITY, 0, 0};
    float score = score_at(k, h, t);
    take_slice(k, h, first, 0, 0, rows[0]);
    for (size_t j0 = 0, half = 0; j0 <= h.position; j0 += KEYS, half ^= 1) {
        float most[KEYS / TILE];
        const float largest = find_largest<TILE>(score, x.most, most);
        weights[t] = exp2f(score - largest);
        __syncthreads();
        score = score_at(k, h, j0 + KEYS + t);
        if (t >= EXO_CUDA_WARP) {
            take_slice(k, h, first, j0 + KEYS, EXO_CUDA_WARP, rows[half ^ 1]);
            x.most = most[KEYS / TILE - 1];
            continue;
        }
        EXO_CUDA_UNROLL
        for (unsigned tile = 0; tile < KEYS / TILE; tile++) {
            const unsigned count = keys_from(h, j0 + tile * TILE, TILE);
            if (count > 0)
                add_tile<TILE>(&x, most[tile], weights + tile * TILE,
                               rows[half] + tile * TILE * SLICE + t, SLICE, adds ? count : 0);
        }
    }
    const float out = result_of(x);
    if (adds)
        h.mixed[first + t] = out;
}

/* --- Launches --------------------------------------------------------------------------------- */

/* Attention of the rows, whose keys and values are in the caches. TILE: as attention.cu has it. */
template <int TILE>
static void
launch_attend(exo_cuda_device *cuda, const exo_cuda_decoder_attention &k)
{
    const unsigned heads = static_cast<unsigned>(k.rows * k.heads);
    cudaStream_t stream = cuda->stream;
    if (!blocks_share(k.context, k.rows, k.heads)) {
        exo_cuda_launch(attend<TILE>, heads, EXO_CUDA_BLOCK, 0, stream, k);
        return;
    }
    const size_t parts = (k.context + KEYS - 1) / KEYS, most = SCORE_BLOCKS / heads;
    const dim3 scores(heads, static_cast<unsigned>(parts < most ? parts : most));
    const dim3 slices(heads, static_cast<unsigned>((k.width + SLICE - 1) / SLICE));
    exo_cuda_launch(score_keys, scores, EXO_CUDA_BLOCK, 0, stream, k);
    exo_cuda_launch(attend_slice<TILE>, slices, EXO_CUDA_BLOCK, 0, stream, k);
}

void
exo_cuda_decoder_attend(exo_cuda_device *cuda, const exo_cuda_decoder_attention *k)
{
    const size_t pairs = k->rows * (k->heads + 2 * k->kv_heads) * ((k->width + 1) / 2);
    exo_cuda_launch_each(keep_rows, exo_cuda_blocks(pairs, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         cuda->stream, *k);
    if (k->width <= 128)
        launch_attend<64>(cuda, *k);
    else
        launch_attend<32>(cuda, *k);
}
