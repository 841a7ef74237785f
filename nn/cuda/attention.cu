/* Causal attention (exo_attention), and its kernels in fp32: one turns the queries and keys and lays
 * heads apart; then each block computes a tile of queries from tiles of keys, and keeps the maximum and the sum of
 * each row as it goes on (Dao et al., 2022, arXiv:2205.14135). Scores are kept in binary logarithms.
 *
 * The arithmetic of a row depends on its position alone, and generation has the same (decoder.cu), so
 * `invariant` needs nothing else. No state. Read next: attention.h, attention_backward.cu. */
#include "nn/cuda/attention.h"

#include "nn/cuda/kernels.h"

/* --- Heads ------------------------------------------------------------------------------------ */

/* Element d of a head at position t, turned. */
template <typename T>
__device__ static float
turned(const exo_cuda_attention_call &k, const T *head, size_t t, unsigned d)
{
    const unsigned half = static_cast<unsigned>(k.turned) / 2;
    const float value = exo_cuda_get(head, d);
    if (d >= 2 * half)
        return value;
    const float *turn = k.turns + t * k.turned + d % half;
    const float other = exo_cuda_get(head, d < half ? d + half : d - half);
    return value * turn[0] + (d < half ? -other : other) * turn[half];
}

/* out (N, H + 2 G, T, D), or as bf16 (N T, (H + 2 G) D) = x (N T, (H + 2 G) D), whose keys and values are
 * those of `others` (N T, 2 G D) unless it is NULL; queries and keys are turned. A block is a token. */
template <typename T>
__global__ static void
lay_apart(exo_cuda_attention_call k, const float *x, const float *others, T *out)
{
    const bool apart = sizeof(T) == sizeof(float);
    const unsigned all = static_cast<unsigned>(k.heads + 2 * k.kv_heads),
                   heads = static_cast<unsigned>(k.heads), width = static_cast<unsigned>(k.width);
    const size_t t = blockIdx.x % k.tokens, n = blockIdx.x / k.tokens;
    const size_t of_query = exo_cuda_position(k, k.rank, t),
                 of_key = exo_cuda_position(k, k.from, t);
    const float *row = x + static_cast<size_t>(blockIdx.x) * all * width;
    const float *keys = others ? others + static_cast<size_t>(blockIdx.x) * (all - heads) * width
                               : row + heads * width;
    for (unsigned e = threadIdx.x; e < all * width; e += blockDim.x) {
        const unsigned head = e / width, d = e % width;
        const float *from = head < heads ? row + head * width : keys + (head - heads) * width;
        const size_t to = apart ? ((n * all + head) * k.tokens + t) * width + d
                                : static_cast<size_t>(blockIdx.x) * all * width + e;
        exo_cuda_set(out, to,
                     head < heads + k.kv_heads
                         ? turned(k, from, head < heads ? of_query : of_key, d)
                         : from[d]);
    }
}

/* out (N T, (H + G) D) = the queries and keys of x, turned. A block is a token. */
__global__ static void
turn_rows(exo_cuda_attention_call k, const exo_cuda_bf16 *x, exo_cuda_bf16 *out)
{
    const unsigned width = static_cast<unsigned>(k.width),
                   count = static_cast<unsigned>(k.heads + k.kv_heads) * width;
    const size_t t = blockIdx.x % k.tokens;
    x += blockIdx.x * (count + k.kv_heads * width);
    out += static_cast<size_t>(blockIdx.x) * count;
    for (unsigned e = threadIdx.x; e < count; e += blockDim.x)
        exo_cuda_set(out, e, turned(k, x + e / width * width, t, e % width));
}

__global__ static void
round_all(size_t count, const float *x, exo_cuda_bf16 *out)
{
    for (EXO_CUDA_EACH(i, count))
        exo_cuda_set(out, i, x[i]);
}

/* Element d of a head's gradient: the sum of the parts that `share` heads of queries have of it. */
__device__ static float
add_parts(const exo_cuda_attention_call &k, const float *part, unsigned share, unsigned d)
{
    float sum = part[d];
    for (unsigned s = 1; s < share; s++)
        sum += part[s * k.tokens * k.width + d];
    return sum;
}

/* dx (N T, (H + 2 G) D) (+)= grads (N, 3 H, T, D), parts added up, and queries and keys turned back.
 * Foreign keys and values have theirs in dothers (N T, 2 G D) instead. A block is a token. */
template <typename T>
__global__ static void
lay_together(exo_cuda_attention_call k, const float *grads, void *dx, float *dothers)
{
    const unsigned heads = static_cast<unsigned>(k.heads), width = static_cast<unsigned>(k.width),
                   groups = static_cast<unsigned>(k.kv_heads), share = heads / groups,
                   half = static_cast<unsigned>(k.turned) / 2;
    const size_t t = blockIdx.x % k.tokens, n = blockIdx.x / k.tokens;
    T *to = static_cast<T *>(dx) + static_cast<size_t>(blockIdx.x) * (heads + 2 * groups) * width;
    for (unsigned e = threadIdx.x; e < (heads + 2 * groups) * width; e += blockDim.x) {
        const unsigned head = e / width, d = e % width;
        const unsigned parts = head < heads ? 1 : share,
                       from = head < heads ? head : heads + (head - heads) * share;
        const float *part = grads + ((n * 3 * heads + from) * k.tokens + t) * width;
        float value = add_parts(k, part, parts, d);
        if (d < 2 * half && head < heads + groups) {
            const size_t position = exo_cuda_position(k, head < heads ? k.rank : k.from, t);
            const float *turn = k.turns + position * k.turned + d % half;
            const float other = add_parts(k, part, parts, d < half ? d + half : d - half);
            value = value * turn[0] + (d < half ? other : -other) * turn[half];
        }
        if (k.foreign && head >= heads)
            dothers[static_cast<size_t>(blockIdx.x) * 2 * groups * width + e - heads * width] +=
                value;
        else
            exo_cuda_store<T>(to, e, value, k.add);
    }
}

/* dx (N T, (H + 2 G) D), in place: queries and keys are turned back. A block is a token. */
__global__ static void
turn_back(exo_cuda_attention_call k, exo_cuda_bf16 *dx)
{
    const unsigned width = static_cast<unsigned>(k.width),
                   half = static_cast<unsigned>(k.turned) / 2,
                   heads = static_cast<unsigned>(k.heads + k.kv_heads);
    const size_t t = blockIdx.x % k.tokens;
    dx += static_cast<size_t>(blockIdx.x) * (heads + k.kv_heads) * width;
    for (unsigned e = threadIdx.x; e < heads * half; e += blockDim.x) {
        const unsigned d = e % half;
        exo_cuda_bf16 *head = dx + e / half * width;
        const float *turn = k.turns + t * k.turned + d;
        const float a = exo_cuda_get(head, d), b = exo_cuda_get(head, d + half);
        exo_cuda_set(head, d, a * turn[0] + b * turn[half]);
        exo_cuda_set(head, d + half, b * turn[0] - a * turn[half]);
    }
}

/* --- Forward ---------------------------------------------------------------------------------- */

/* A row's scores so far: the largest, and the sum of 2^(score - largest) over this thread's
 * columns. */
template <int ROWS> struct softmax_rows {
    float most[ROWS], sum[ROWS];
};

/* Turns the scores of a tile into weights, and writes them to shared memory, after dropout. *shrink:
 * what the rows so far are multiplied by. */
template <int TILE>
__device__ static void
weigh(const exo_cuda_attention_call &k, float slope, size_t i0, size_t j0, const uint8_t *keep,
      float s[TILE / EXO_ATTENTION_SIDE][TILE / EXO_ATTENTION_SIDE],
      softmax_rows<TILE / EXO_ATTENTION_SIDE> *rows, float *weights,
      float shrink[TILE / EXO_ATTENTION_SIDE])
{
    const int count = TILE / EXO_ATTENTION_SIDE;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * count,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int r = 0; r < count; r++) {
        const size_t i = i0 + y + r;
        float most = rows->most[r];
        for (int c = 0; c < count; c++) {
            const size_t j = j0 + x + c * EXO_ATTENTION_SIDE;
            const float apart = static_cast<float>(j) - static_cast<float>(i);
            s[r][c] = exo_cuda_sees(k, i, j) ? fmaf(slope, apart, s[r][c] * k.scale2) : -INFINITY;
            most = fmaxf(most, s[r][c]);
        }
        for (int step = EXO_ATTENTION_SIDE / 2; step > 0; step /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
        shrink[r] = exp2f(rows->most[r] - most);
        rows->most[r] = most;
        rows->sum[r] *= shrink[r];
        for (int c = 0; c < count; c++) {
            const unsigned column = x + c * EXO_ATTENTION_SIDE;
            const float p = exp2f(s[r][c] - most);
            rows->sum[r] += p;
            weights[(y + r) * (TILE + EXO_ATTENTION_PAD) + column] =
                p * exo_cuda_kept<TILE>(k, keep, y + r, column);
        }
    }
}

/* The rows of a tile, before their first key: those of the keys before, if the keys are foreign. */
template <int TILE, int D>
__device__ static void
begin_rows(const exo_cuda_attention_call &k, size_t n, size_t head, size_t i0, const float *y,
           const float *lse, softmax_rows<TILE / EXO_ATTENTION_SIDE> *rows,
           float out[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE])
{
    const int count = TILE / EXO_ATTENTION_SIDE;
    const unsigned first = threadIdx.x / EXO_ATTENTION_SIDE * count,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int r = 0; r < count; r++) {
        const size_t i = i0 + first + r;
        const bool goes_on = k.foreign && i < k.tokens;
        rows->most[r] = goes_on ? lse[(n * k.heads + head) * k.tokens + i] : -INFINITY;
        rows->sum[r] = goes_on && x == 0 ? 1.0f : 0.0f;
        for (int c = 0; c < D / EXO_ATTENTION_SIDE; c++) {
            const size_t d = x + c * EXO_ATTENTION_SIDE;
            out[r][c] = goes_on && d < k.width
                            ? y[((n * k.tokens + i) * k.heads + head) * k.width + d]
                            : 0.0f;
        }
    }
}

/* Writes the rows of a tile, and their lse. */
template <int TILE, int D>
__device__ static void
write_rows(const exo_cuda_attention_call &k, size_t n, size_t head, size_t i0,
           softmax_rows<TILE / EXO_ATTENTION_SIDE> *rows,
           float out[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE], float *y, float *lse)
{
    const int count = TILE / EXO_ATTENTION_SIDE;
    const unsigned first = threadIdx.x / EXO_ATTENTION_SIDE * count,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int r = 0; r < count; r++) {
        const size_t i = i0 + first + r;
        float sum = rows->sum[r];
        for (int step = EXO_ATTENTION_SIDE / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
        if (i >= k.tokens)
            continue;
        for (int c = 0; c < D / EXO_ATTENTION_SIDE; c++) {
            const size_t d = x + c * EXO_ATTENTION_SIDE;
            if (d < k.width)
                y[((n * k.tokens + i) * k.heads + head) * k.width + d] = out[r][c] / sum;
        }
        if (lse && x == 0)
            lse[(n * k.heads + head) * k.tokens + i] = log2f(sum) + rows->most[r];
    }
}

template <int TILE, int D>
static constexpr size_t
forward_shared(void)
{
    return TILE * (2 * (D + EXO_ATTENTION_PAD) + TILE + EXO_ATTENTION_PAD) * sizeof(float) +
           TILE * TILE / EXO_ATTENTION_GROUP;
}

/* A block is a tile of the queries of one head of one sequence; late ones, which have the most keys,
 * come first. */
template <int TILE, int D>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) forward_tile(exo_cuda_attention_call k, float *y, float *lse)
{
    const int count = TILE / EXO_ATTENTION_SIDE;
    EXO_CUDA_SHARED(float, queries);
    float *rows_of_keys = queries + TILE * (D + EXO_ATTENTION_PAD),
          *weights = rows_of_keys + TILE * (D + EXO_ATTENTION_PAD);
    uint8_t *keep = reinterpret_cast<uint8_t *>(weights + TILE * (TILE + EXO_ATTENTION_PAD));
    const size_t tiles = (k.tokens + TILE - 1) / TILE, pairs = k.sequences * k.heads;
    const size_t pair = blockIdx.x % pairs, n = pair / k.heads, head = pair % k.heads;
    const size_t i0 = (tiles - 1 - blockIdx.x / pairs) * TILE;
    const size_t all = k.heads + 2 * k.kv_heads, size = k.tokens * k.width;
    const float *base = k.heads_of_x + n * all * size;
    const float *keys = base + (k.heads + head / (k.heads / k.kv_heads)) * size;
    const float *values = keys + k.kv_heads * size, slope = exo_cuda_slope2(k, head);
    softmax_rows<count> rows;
    float out[count][D / EXO_ATTENTION_SIDE];
    begin_rows<TILE, D>(k, n, head, i0, y, lse, &rows, out);
    exo_cuda_take_rows<float, TILE, D>(queries, base + head * size, k.width, i0, k.tokens, k.width);
    for (size_t j0 = 0, end = exo_cuda_keys_end(k, i0, TILE); j0 < end; j0 += TILE) {
        float s[count][count], shrink[count];
        __syncthreads();
        exo_cuda_take_rows<float, TILE, D>(rows_of_keys, keys, k.width, j0, k.tokens, k.width);
        if (k.drop.dropped)
            exo_cuda_draw_tile<TILE, TILE>(k, n, head, i0, j0, keep);
        __syncthreads();
        exo_cuda_tile_scores<TILE, D>(queries, rows_of_keys, s);
        weigh<TILE>(k, slope, i0, j0, keep, s, &rows, weights, shrink);
        __syncthreads();
        exo_cuda_take_rows<float, TILE, D>(rows_of_keys, values, k.width, j0, k.tokens, k.width);
        for (int r = 0; r < count; r++)
            for (int c = 0; c < D / EXO_ATTENTION_SIDE; c++)
                out[r][c] *= shrink[r];
        __syncthreads();
        exo_cuda_tile_product<TILE, D>(weights, rows_of_keys, out);
    }
    write_rows<TILE, D>(k, n, head, i0, &rows, out, y, lse);
}

template <int TILE, int D>
static exo_status
launch_forward(exo_cuda_device *cuda, const exo_cuda_attention_call *call, float *y, float *lse,
               exo_err *err)
{
    const size_t tiles = (call->tokens + TILE - 1) / TILE, shared = forward_shared<TILE, D>();
    const size_t blocks = tiles * call->sequences * call->heads;
    const exo_status st =
        exo_cuda_status(exo_cuda_allow_shared(forward_tile<TILE, D>, shared), "attention", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch((forward_tile<TILE, D>), static_cast<unsigned>(blocks), EXO_CUDA_BLOCK, shared,
                    cuda->stream, *call, y, lse);
    return exo_cuda_launched("attention", err);
}

static exo_status
forward(exo_cuda_device *cuda, const exo_cuda_attention_call *call, float *y, float *lse,
        exo_err *err)
{
    if (call->width <= 32)
        return launch_forward<64, 32>(cuda, call, y, lse, err);
    if (call->width <= 64)
        return launch_forward<64, 64>(cuda, call, y, lse, err);
    if (call->width <= 128)
        return launch_forward<64, 128>(cuda, call, y, lse, err);
    return launch_forward<32, EXO_CUDA_MAX_HEAD>(cuda, call, y, lse, err);
}

/* --- Calls ------------------------------------------------------------------------------------ */

struct room {
    float *apart; /* fp32: (N, H + 2 G, T, D) */
    /* bf16 with rotary positions: (N T, (H + G) D); of a ring with products of bf16: (N T, (H + 2 G) D) */
    exo_cuda_bf16 *turned;
    exo_cuda_bf16 *dy; /* for backward of such a ring: (N T, H D) */
    float *delta;      /* for backward: (N, H, T) */
    float *grads;      /* for backward, unless `direct`: (N, 3 H, T, D) */
    size_t bytes;
};

/* Whether the gradients of a head in bf16 are what dx has of it. */
static bool
direct(const exo_attention_shape *s)
{
    return s->dtype == EXO_BF16 && s->turned == 0 && s->heads == s->kv_heads;
}

static room
lay_out(const exo_attention_shape *s, exo_scratch_use use, void *scratch)
{
    exo_cuda_room r = {static_cast<char *>(scratch), 0};
    const bool half = s->dtype == EXO_BF16, ring = s->bf16_products != 0;
    size_t rows = 0, row = 0, elements = 0;
    room out = {};
    if (__builtin_mul_overflow(s->sequences, s->tokens, &rows) ||
        __builtin_mul_overflow(3 * s->heads, s->width, &row) ||
        __builtin_mul_overflow(rows, row, &elements))
        r.bytes = SIZE_MAX;
    const size_t keys = rows * (s->heads + s->kv_heads) * s->width;
    const size_t all = keys + rows * s->kv_heads * s->width;
    if (ring)
        out.turned = static_cast<exo_cuda_bf16 *>(exo_cuda_take(&r, all, sizeof(exo_cuda_bf16)));
    else if (!half)
        out.apart = static_cast<float *>(exo_cuda_take(&r, all, sizeof(float)));
    else if (s->turned > 0)
        out.turned = static_cast<exo_cuda_bf16 *>(exo_cuda_take(&r, keys, sizeof(exo_cuda_bf16)));
    if (use != EXO_SCRATCH_FORWARD) {
        out.delta = static_cast<float *>(exo_cuda_take(&r, rows * s->heads, sizeof(float)));
        if (ring)
            out.dy = static_cast<exo_cuda_bf16 *>(
                exo_cuda_take(&r, rows * s->heads * s->width, sizeof(exo_cuda_bf16)));
        if (!direct(s))
            out.grads = static_cast<float *>(exo_cuda_take(&r, elements, sizeof(float)));
    }
    out.bytes = r.bytes;
    return out;
}

size_t
exo_cuda_attention_scratch(const exo_attention_shape *shape, exo_scratch_use use)
{
    return lay_out(shape, use, NULL).bytes;
}

static exo_cuda_attention_call
call_of(const exo_device *device, const exo_cuda_plan *p, const exo_attention_drop *drop,
        bool foreign)
{
    const exo_attention_shape *s = &p->attention;
    exo_cuda_attention_call call = {};
    call.sequences = s->sequences;
    call.heads = s->heads;
    call.kv_heads = s->kv_heads;
    call.tokens = s->tokens;
    call.width = s->width;
    call.scale = static_cast<float>(s->scale);
    call.scale2 = static_cast<float>(s->scale * 1.4426950408889634);
    call.alibi = s->alibi != 0;
    call.drop = *drop;
    call.late_step = exo_cuda_late<uint64_t>(device);
    call.kept = static_cast<float>(1 / (1 - static_cast<double>(drop->dropped) / 65536));
    call.turns = static_cast<const float *>(p->memory);
    call.turned = s->turned;
    call.members = s->members;
    call.rank = s->rank;
    call.from = s->from;
    call.foreign = foreign;
    if (foreign)
        exo_attention_seen(s, &call.first_query, &call.seen_keys);
    return call;
}

static bool
at_sixteen(const void *address)
{
    return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

/* Lets the call find its heads: fp32 lays them apart, and bf16 reads them where they are, or turned
 * ones in the scratch, where those of a ring with products of bf16 are, too. */
static void
find_heads(exo_cuda_device *cuda, exo_cuda_attention_call *call, bool half, const room *r,
           const void *x, const void *others)
{
    const unsigned tokens = static_cast<unsigned>(call->sequences * call->tokens);
    const size_t keys = (call->heads + call->kv_heads) * call->width;
    if (!half && r->turned) {
        call->queries = r->turned;
        call->keys = call->queries + call->heads * call->width;
        call->values = call->queries + keys;
        call->pitch = call->value_pitch = keys + call->kv_heads * call->width;
        call->aligned = call->width % 8 == 0;
        exo_cuda_launch_each((lay_apart<exo_cuda_bf16>), tokens, EXO_CUDA_BLOCK, cuda->stream,
                             *call, static_cast<const float *>(x),
                             static_cast<const float *>(others), r->turned);
        return;
    }
    if (!half) {
        call->heads_of_x = r->apart;
        exo_cuda_launch_each((lay_apart<float>), tokens, EXO_CUDA_BLOCK, cuda->stream, *call,
                             static_cast<const float *>(x), static_cast<const float *>(others),
                             r->apart);
        return;
    }
    const exo_cuda_bf16 *const from = static_cast<const exo_cuda_bf16 *>(x);
    call->queries = r->turned ? r->turned : from;
    call->keys = call->queries + call->heads * call->width;
    call->values = from + keys;
    call->value_pitch = keys + call->kv_heads * call->width;
    call->pitch = r->turned ? keys : call->value_pitch;
    call->aligned = call->width % 8 == 0 && at_sixteen(from);
    if (r->turned)
        exo_cuda_launch_each(turn_rows, tokens, EXO_CUDA_BLOCK, cuda->stream, *call, from,
                             r->turned);
}

static exo_cuda_cudnn_heads
heads_of(const exo_cuda_attention_call *call)
{
    return {call->queries, call->keys, call->values};
}

exo_status
exo_cuda_attention(exo_device *device, const exo_attention_args *k, exo_err *err)
{
    const exo_cuda_plan *p = exo_cuda_plan_of(k->plan);
    const exo_attention_shape *s = &p->attention;
    const bool half = s->dtype == EXO_BF16;
    exo_cuda_device *cuda = exo_cuda_of(device);
    const room r = lay_out(s, EXO_SCRATCH_FORWARD, k->scratch);
    exo_cuda_attention_call call = call_of(device, p, &k->drop, k->others != NULL);
    if (s->sequences * s->tokens * s->heads * s->width == 0)
        return EXO_OK;
    find_heads(cuda, &call, half, &r, k->x, k->others);
    const exo_cuda_cudnn_heads heads = heads_of(&call);
    const void *const others[4] = {k->y, k->lse};
    if (exo_cuda_cudnn_attends(p->attention_by_cudnn, false, &heads, others))
        return exo_cuda_cudnn_attend(p->attention_by_cudnn, &heads, k->y, k->lse, err);
    return half || r.turned ? exo_cuda_attention_bf16(cuda, &call, k->y, k->lse, err)
                            : forward(cuda, &call, static_cast<float *>(k->y), k->lse, err);
}

/* Backward by cuDNN, which does not add. */
static exo_status
backward_by_cudnn(exo_cuda_device *cuda, exo_cuda_cudnn_attention *attention,
                  const exo_cuda_attention_call *call, const exo_attention_backward_args *k,
                  exo_err *err)
{
    const exo_cuda_cudnn_heads heads = heads_of(call);
    const exo_status st =
        exo_cuda_cudnn_attend_backward(attention, &heads, k->y, k->dy, k->lse, k->dx, err);
    if (st != EXO_OK || call->turned == 0)
        return st;
    exo_cuda_launch_each(turn_back, static_cast<unsigned>(call->sequences * call->tokens),
                         EXO_CUDA_BLOCK, cuda->stream, *call, static_cast<exo_cuda_bf16 *>(k->dx));
    return exo_cuda_launched("attention_backward", err);
}

exo_status
exo_cuda_attention_backward(exo_device *device, const exo_attention_backward_args *k, exo_err *err)
{
    const exo_cuda_plan *p = exo_cuda_plan_of(k->plan);
    const exo_attention_shape *s = &p->attention;
    const bool half = s->dtype == EXO_BF16;
    exo_cuda_device *cuda = exo_cuda_of(device);
    const room r = lay_out(s, EXO_SCRATCH_BACKWARD, k->scratch);
    exo_cuda_attention_call call = call_of(device, p, &k->drop, k->others != NULL);
    exo_cuda_attention_gradients g = {
        k->y,    k->dy,   k->lse,
        r.delta, r.grads, direct(s) ? static_cast<exo_cuda_bf16 *>(k->dx) : NULL};
    if (s->sequences * s->tokens * s->heads * s->width == 0)
        return EXO_OK;
    call.add = k->add || call.foreign;
    find_heads(cuda, &call, half, &r, k->x, k->others);
    const exo_cuda_cudnn_heads heads = heads_of(&call);
    const void *const others[4] = {k->y, k->dy, k->lse, k->dx};
    if (!call.add && exo_cuda_cudnn_attends(p->attention_by_cudnn, true, &heads, others))
        return backward_by_cudnn(cuda, p->attention_by_cudnn, &call, k, err);
    exo_status st =
        exo_cuda_attention_delta(cuda, static_cast<exo_dtype>(s->dtype), &call, &g, err);
    if (r.dy) {
        const size_t count = s->sequences * s->tokens * s->heads * s->width;
        exo_cuda_launch_each(round_all, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, count, static_cast<const float *>(k->dy), r.dy);
        g.dy = r.dy;
    }
    if (st == EXO_OK)
        st = half || r.dy ? exo_cuda_attention_bf16_grads(cuda, &call, &g, err)
                          : exo_cuda_attention_grads(cuda, &call, &g, err);
    if (st != EXO_OK || g.dx)
        return st;
    const unsigned tokens = static_cast<unsigned>(s->sequences * s->tokens);
    if (half)
        exo_cuda_launch_each(lay_together<exo_cuda_bf16>, tokens, EXO_CUDA_BLOCK, cuda->stream,
                             call, r.grads, k->dx, static_cast<float *>(NULL));
    else
        exo_cuda_launch_each(lay_together<float>, tokens, EXO_CUDA_BLOCK, cuda->stream, call,
                             r.grads, k->dx, static_cast<float *>(k->dothers));
    return exo_cuda_launched("attention_backward", err);
}
