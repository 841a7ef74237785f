/* The choice of tokens from logits (exo_choose_args): a block is a row. It does what
 * nn/generate/sampling.c does, with sums in the block's own order, so a token and its
 * log-probability depend on the row alone. No state. Read next: nn/generate/sampling.c. */
#include "nn/cuda/choose.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/kth_largest.h"
#include "nn/cuda/sections.h"

enum {
    WALK = 64 /* elements that are added one by one */
};

/* A row, on the device. */
struct row {
    exo_choice_rule rule;
    const float *logits;
    const uint64_t *seen;
    float *weights; /* (count) */
    size_t count;   /* the tokens that can be chosen */
};

/* What the threads of a block have in common; shared. */
struct block_room {
    unsigned counts[EXO_CUDA_DIGITS];
    exo_cuda_threshold digit;
    double sums[EXO_CUDA_WARP];
    float most[EXO_CUDA_WARP];
    unsigned places[EXO_CUDA_WARP];
};

/* The logit after penalty and temperature. */
__device__ static inline float
warped(const row &r, size_t i)
{
    const float x = r.logits[i], penalty = r.rule.penalty;
    if (penalty == 1.0f || (r.seen[i / 64] >> i % 64 & 1) == 0)
        return r.rule.scale * x;
    return r.rule.scale * (x < 0 ? x * penalty : x / penalty);
}

/* The smallest `place` over the threads of a block. All threads call it. */
__device__ static inline unsigned
block_least(unsigned place, unsigned *room)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    for (unsigned step = EXO_CUDA_WARP / 2; step > 0; step /= 2) {
        const unsigned other = __shfl_xor_sync(0xFFFFFFFFu, place, static_cast<int>(step));
        place = other < place ? other : place;
    }
    __syncthreads(); /* room may still be read from the call before */
    if (lane == 0)
        room[warp] = place;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / EXO_CUDA_WARP; w++)
        place = room[w] < place ? room[w] : place;
    return place;
}

/* --- Places ----------------------------------------------------------------------------------- */

/* The part of an array in which the running sum passes a target, and the sum before it. */
struct stretch {
    size_t from, to;
    double before;
};

/* Of the stretch's parts, one a warp: the first that passes the target, or if rounding left all short
 * of it the last with a positive sum. */
__device__ static inline stretch
narrow(const stretch &s, size_t each, double target, const double *sums)
{
    stretch next = s, found = {s.from, s.from + each, s.before};
    for (unsigned w = 0; next.from < s.to; w++) {
        next.to = next.from + each < s.to ? next.from + each : s.to;
        if (sums[w] > 0)
            found = next;
        if (target < next.before + sums[w])
            return found;
        next.before += sums[w];
        next.from = next.to;
    }
    return found;
}

/* The first place at which the running sum of measure(i) passes the target; if rounding leaves the
 * sum short of it, the last of a positive measure. All threads of the block call it, and get the
 * same. */
template <typename Measure>
__device__ static inline size_t
find_place(const Measure &measure, size_t count, double target, double *room)
{
    const size_t lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    const size_t line = EXO_CUDA_WARP, warps = blockDim.x / EXO_CUDA_WARP;
    stretch s = {0, count, 0};
    while (s.to - s.from > WALK) {
        const size_t each = ((s.to - s.from + warps - 1) / warps + line - 1) / line * line;
        const size_t first = s.from + warp * each, end = first + each < s.to ? first + each : s.to;
        double own = 0;
        EXO_CUDA_READ_AHEAD(8)
        for (EXO_CUDA_ROUNDS(i, first + lane, end, line))
            own += measure(i);
        for (unsigned step = EXO_CUDA_WARP / 2; step > 0; step /= 2)
            own += __shfl_xor_sync(0xFFFFFFFFu, own, static_cast<int>(step));
        __syncthreads(); /* room may still be read from the round before */
        if (lane == 0)
            room[warp] = own;
        __syncthreads();
        s = narrow(s, each, target, room);
    }
    size_t last = s.from;
    for (size_t i = s.from; i < s.to; i++) {
        const double own = measure(i);
        last = own > 0 ? i : last;
        s.before += own;
        if (target < s.before)
            return i;
    }
    return last;
}

/* --- Candidates ------------------------------------------------------------------------------- */

/* Keys have the order of the numbers. */
struct warped_keys {
    const row &r;
    __device__ uint32_t operator()(size_t i) const
    {
        const uint32_t bits = exo_cuda_bits(warped(r, i));
        return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }
};

/* The k-th largest logit. */
__device__ static inline float
kth_largest(const row &r, block_room *room)
{
    const uint32_t key =
        exo_cuda_find_threshold(warped_keys{r}, r.count, r.rule.top_k, room->counts, &room->digit)
            .value;
    return exo_cuda_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

/* Top-k: writes the weights exp(logit - most), 0 of those that are no candidates. Returns their
 * sum. */
__device__ static inline double
weigh(const row &r, float most, block_room *room)
{
    const bool all = r.rule.top_k == 0 || r.rule.top_k >= r.count;
    const float least = all ? -INFINITY : kth_largest(r, room);
    double own = 0;
    for (size_t i = threadIdx.x; i < r.count; i += blockDim.x) {
        const float x = warped(r, i), weight = x >= least ? expf(x - most) : 0;
        r.weights[i] = weight;
        own += static_cast<double>(weight);
    }
    return exo_cuda_block_sum(own, room->sums);
}

/* The nucleus: the weights above `edge`, and those equal to it up to a place. */
struct nucleus {
    const float *weights;
    float edge;
    size_t last;
    __device__ double operator()(size_t i) const
    {
        const float w = weights[i];
        return w > edge || (w == edge && i <= last) ? static_cast<double>(w) : 0.0;
    }
};

struct equal_to {
    const float *weights;
    float edge;
    __device__ double operator()(size_t i) const
    {
        return weights[i] == edge ? 1.0 : 0.0;
    }
};

/* The sum of the weights whose bits are at least `bits`. */
__device__ static inline double
sum_from(const row &r, uint32_t bits, block_room *room)
{
    double own = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, r.count, blockDim.x))
        own += exo_cuda_bits(r.weights[i]) >= bits ? static_cast<double>(r.weights[i]) : 0.0;
    return exo_cuda_block_sum(own, room->sums);
}

/* Top-p: the fewest weights, by falling size and then by rising place, that sum to at least `mass`,
 * and *total, their sum. The bits of the smallest one are found by bisection. */
__device__ static inline nucleus
find_nucleus(const row &r, double mass, double *total, block_room *room)
{
    uint32_t bits = 1, above = exo_cuda_bits(1.0f) + 1; /* the largest weight is 1 */
    while (above - bits > 1) {
        const uint32_t middle = bits + (above - bits) / 2;
        if (sum_from(r, middle, room) >= mass)
            bits = middle;
        else
            above = middle;
    }
    const float edge = exo_cuda_float(bits);
    const double larger = sum_from(r, above, room);
    double equal = 0, own = 0;
    for (size_t i = threadIdx.x; i < r.count; i += blockDim.x)
        own += r.weights[i] == edge ? 1.0 : 0.0;
    own = exo_cuda_block_sum(own, room->sums);
    equal = ceil((mass - larger) / static_cast<double>(edge));
    equal = equal < 1 ? 1 : equal < own ? equal : own;
    *total = larger + equal * static_cast<double>(edge);
    return {r.weights, edge,
            find_place(equal_to{r.weights, edge}, r.count, equal - 0.5, room->sums)};
}

/* --- The choice ------------------------------------------------------------------------------- */

/* The largest logit, NaN if one is. */
__device__ static inline float
largest(const float *logits, size_t count, float *room)
{
    float most = -INFINITY;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, count, blockDim.x))
        most = logits[i] > most || logits[i] != logits[i] ? logits[i] : most;
    return exo_cuda_block_max(most, room);
}

__device__ static inline float
largest_warped(const row &r, float *room)
{
    float most = -INFINITY;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, r.count, blockDim.x)) {
        const float x = warped(r, i);
        most = x > most || x != x ? x : most;
    }
    return exo_cuda_block_max(most, room);
}

/* The first token with the largest logit. */
__device__ static inline size_t
first_of(const row &r, float most, unsigned *room)
{
    unsigned place = 0xFFFFFFFFu;
    for (size_t i = threadIdx.x; i < r.count && place == 0xFFFFFFFFu; i += blockDim.x)
        place = warped(r, i) == most ? static_cast<unsigned>(i) : place;
    return block_least(place, room);
}

/* Draws a token. sums: the row's log-sums, of the logits and of the scaled ones. */
__device__ static inline exo_choice
draw(const row &r, size_t all, const float *sums, float most, block_room *room)
{
    const exo_choice_rule &rule = r.rule;
    double total = weigh(r, most, room);
    nucleus kept = {r.weights, 0, r.count};
    __syncthreads(); /* all weights are there */
    const bool cut = rule.top_p > 0 && rule.top_p < 1;
    if (cut)
        kept = find_nucleus(r, static_cast<double>(rule.top_p) * total, &total, room);
    const size_t token = find_place(kept, r.count, rule.draw * total, room->sums);
    const float x = warped(r, token);
    const bool whole = !cut && (rule.top_k == 0 || rule.top_k >= r.count) && r.count == all &&
                       rule.penalty == 1.0f;
    const double log_sum = static_cast<double>(most) + log(total);
    return {static_cast<int32_t>(token),
            whole ? x - sums[1] : static_cast<float>(static_cast<double>(x) - log_sum),
            r.logits[token] - sums[0]};
}

__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) choose_rows(exo_choose_args k)
{
    __shared__ block_room room;
    const size_t at = blockIdx.x, words = (k.vocabulary + 63) / 64;
    const exo_choice_rule rule = k.rules[at];
    const row r = {rule, k.logits + at * k.pitch, k.seen ? k.seen + at * words : NULL,
                   k.weights + at * k.pitch,
                   rule.vocabulary > 0 && rule.vocabulary < k.vocabulary ? rule.vocabulary
                                                                         : k.vocabulary};
    const float sums[2] = {k.log_sums[at], k.log_sums[k.rows + at]};
    exo_choice choice = {-1, 0, 0};
    const float plain = largest(r.logits, k.vocabulary, room.most);
    const float most = isfinite(plain) ? largest_warped(r, room.most) : plain;
    if (isfinite(most) && rule.greedy) {
        const size_t token = first_of(r, most, room.places);
        choice = {static_cast<int32_t>(token), 0, r.logits[token] - sums[0]};
    } else if (isfinite(most)) {
        choice = draw(r, k.vocabulary, sums, most, &room);
    }
    if (threadIdx.x == 0)
        k.choices[at] = choice;
}

exo_status
exo_cuda_choose(exo_device *device, const exo_choose_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_status st = exo_cuda_catch_up(cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_status(exo_cuda_select(cuda), "choose", err);
    if (st != EXO_OK || k->rows == 0)
        return st;
    exo_cuda_launch(choose_rows, static_cast<unsigned>(k->rows), EXO_CUDA_BLOCK, 0, cuda->stream,
                    *k);
    return exo_cuda_launched("choose", err);
}
