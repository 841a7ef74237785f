/* The choice of tokens from logits (exo_choose_args). It does what nn/generate/sampling.c does, with
 * sums in an order of its own, so a token and its log-probability depend on the row alone.
 *
 * A block has a part of a row, PART logits, so that many multiprocessors compute one row of a large
 * vocabulary. The work comes in phases. What a block finds it leaves in the scratch, and the blocks
 * of the next phase read what all of them have left. Each phase is a launch, if a row has several
 * parts; else its block does one phase after the other.
 *
 * The k-th largest logit, and the smallest weight of the nucleus, are found digit by digit, the
 * highest first: the blocks count the numbers with each digit, and add up their bits behind it. These
 * sums are of integers, and so exact, and the same in any order. No other sum is of several blocks at
 * once. State: the scratch. Read next: nn/generate/sampling.c. */
#include "nn/cuda/choose.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/plans.h"
#include "nn/cuda/sections.h"

enum {
    PART = 4096,
    WALK = 64,  /* elements that are added one by one */
    ROUNDS = 3, /* of a search: digits of 11, 11 and 10 bits */
    DIGITS = 2048,
    THREAD_DIGITS = DIGITS / EXO_CUDA_BLOCK
};
static_assert(THREAD_DIGITS % 4 == 0, "a thread reads its digits four at a time");

/* Of the keys with each digit: their number, and the sum of their bits behind it. */
template <int COUNT> struct alignas(16) counts_of_digits {
    unsigned counts[COUNT];
    unsigned long long lows[COUNT];
};
typedef counts_of_digits<DIGITS> digit_counts;
typedef counts_of_digits<THREAD_DIGITS> thread_counts; /* a thread's */

/* What a thread reads at once. */
template <typename T> struct alignas(16) neighbours {
    T at[16 / sizeof(T)];
};

/* A search after some of its rounds: the digits found, of the smallest key that belongs to it; the
 * keys with all of these digits; what is above them, and what is looked for: a number of keys, or a
 * sum of weights. */
struct search {
    uint32_t key;
    unsigned count;
    double above, target;
};

enum kind {
    TOP_K,
    TOP_P,
    KINDS
};

/* What the blocks of a row leave for each other. */
struct row_state {
    digit_counts digits[KINDS][ROUNDS];
    search found[KINDS][ROUNDS];
};

/* And what the block of a part leaves. */
struct part_state {
    float plain, most; /* the largest logit, and the largest after penalty and temperature */
    unsigned first;    /* the first place of `most` */
    unsigned equal;    /* the weights at the edge of the nucleus */
    double sum;        /* of the weights; with top-p, of those above the edge */
};

/* The scratch. */
struct rooms {
    float *weights;    /* (rows, pitch) */
    row_state *rows;   /* (rows) */
    part_state *parts; /* (rows, parts) */
    size_t pitch, count, bytes;
};

/* A part of a row, on the device. */
struct row {
    exo_choice_rule rule;
    const float *logits;
    const uint64_t *seen;
    float *weights;  /* (count) */
    size_t all;      /* the vocabulary */
    size_t count;    /* the tokens that can be chosen */
    size_t from, to; /* the part's */
    size_t part, num_parts;
    row_state *state;
    part_state *parts;
};

/* What the threads of a block have in common; shared. */
struct block_room {
    unsigned counts[DIGITS], lows[DIGITS];
    double values[EXO_CUDA_BLOCK], upto[EXO_CUDA_BLOCK], sums[EXO_CUDA_WARP];
    float most[EXO_CUDA_WARP];
    unsigned places[EXO_CUDA_WARP];
    search found;
};

static rooms
lay_out(size_t vocabulary, void *scratch)
{
    const size_t line = EXO_DECODER_PITCH, rows = EXO_DECODER_LOGIT_ROWS;
    exo_cuda_room r = {static_cast<char *>(scratch), 0};
    rooms out = {};
    out.pitch = (vocabulary + line - 1) / line * line;
    out.count = (vocabulary + PART - 1) / PART;
    out.weights = static_cast<float *>(exo_cuda_take(&r, out.pitch, rows * sizeof *out.weights));
    out.rows = static_cast<row_state *>(exo_cuda_take(&r, rows, sizeof *out.rows));
    out.parts = static_cast<part_state *>(exo_cuda_take(&r, out.count, rows * sizeof *out.parts));
    out.bytes = r.bytes;
    return out;
}

size_t
exo_cuda_choose_scratch(size_t vocabulary)
{
    return lay_out(vocabulary, NULL).bytes;
}

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

/* The first place of a stretch at which the running sum of measure(i) passes the target; if rounding
 * leaves the sum short of it, the last of a positive measure. All threads of the block call it, and
 * get the same. */
template <typename Measure>
__device__ static inline stretch
find_place(const Measure &measure, stretch s, double target, double *room)
{
    const size_t lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    const size_t line = EXO_CUDA_WARP, warps = blockDim.x / EXO_CUDA_WARP;
    while (s.to - s.from > WALK) {
        const size_t each = ((s.to - s.from + warps - 1) / warps + line - 1) / line * line;
        const size_t first = s.from + warp * each, end = first + each < s.to ? first + each : s.to;
        double own = 0;
        EXO_CUDA_READ_AHEAD(4)
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
    stretch last = {s.from, s.from + 1, s.before};
    for (size_t i = s.from; i < s.to; i++) {
        const double own = measure(i);
        last = own > 0 ? stretch{i, i + 1, s.before} : last;
        s.before += own;
        if (target < s.before)
            return last;
    }
    return last;
}

/* --- Searches --------------------------------------------------------------------------------- */

/* Keys have the order of the numbers. */
struct logit_keys {
    static const kind OF = TOP_K;
    const row &r;
    __device__ uint32_t operator()(size_t i) const
    {
        const uint32_t bits = exo_cuda_bits(warped(r, i));
        return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }
};

/* Weights are from 0 to 1, so the first two of their bits are 0. */
struct weight_keys {
    static const kind OF = TOP_P;
    const row &r;
    __device__ uint32_t operator()(size_t i) const
    {
        return exo_cuda_bits(r.weights[i]) << 2;
    }
};

__device__ static inline float
weight_of(uint32_t key)
{
    return exo_cuda_float(key >> 2);
}

/* The bits behind the digit of a round. */
__device__ static constexpr unsigned
bits_behind(int round)
{
    return round == 0 ? 21 : round == 1 ? 10 : 0;
}

/* Counts the digits of a round, of the part's keys that have the digits found before. */
template <typename Keys, int ROUND>
__device__ static inline void
count_digits(const row &r, uint32_t found, block_room *room)
{
    const Keys keys = {r};
    const unsigned behind = bits_behind(ROUND);
    const uint32_t known = ROUND == 0 ? 0 : ~0u << bits_behind(ROUND - 1);
    digit_counts *const to = &r.state->digits[Keys::OF][ROUND];
    for (unsigned d = threadIdx.x; d < DIGITS; d += EXO_CUDA_BLOCK)
        room->counts[d] = room->lows[d] = 0;
    __syncthreads();
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, r.from + threadIdx.x, r.to, EXO_CUDA_BLOCK)) {
        const uint32_t key = keys(i), digit = (key & ~known) >> behind;
        if ((key & known) != found || (Keys::OF == TOP_P && key == 0))
            continue;
        atomicAdd(&room->counts[digit], 1u);
        if (Keys::OF == TOP_P && ROUND < ROUNDS - 1) /* PART of them are less than 2^32 */
            atomicAdd(&room->lows[digit], (key & ((1u << behind) - 1)) >> 2);
    }
    __syncthreads();
    for (unsigned d = threadIdx.x; d < DIGITS; d += EXO_CUDA_BLOCK) {
        if (room->counts[d] == 0)
            continue;
        atomicAdd(&to->counts[d], room->counts[d]);
        if (Keys::OF == TOP_P)
            atomicAdd(&to->lows[d], static_cast<unsigned long long>(room->lows[d]));
    }
}

/* Takes 16 bytes of counts. */
template <typename T>
__device__ static inline void
take(const T *from, T *to)
{
    const neighbours<T> own = *reinterpret_cast<const neighbours<T> *>(from);
    EXO_CUDA_UNROLL
    for (unsigned i = 0; i < 16 / sizeof(T); i++)
        to[i] = own.at[i];
}

/* A thread's part of the counts, from digit `first` on. */
template <kind KIND>
__device__ static inline thread_counts
counts_from(const digit_counts &d, unsigned first)
{
    thread_counts own = {};
    EXO_CUDA_UNROLL
    for (unsigned n = 0; n < THREAD_DIGITS; n += 4)
        take(d.counts + first + n, own.counts + n);
    EXO_CUDA_UNROLL
    for (unsigned n = 0; KIND == TOP_P && n < THREAD_DIGITS; n += 2)
        take(d.lows + first + n, own.lows + n);
    return own;
}

/* The number of the keys with digit n of a thread or, of weights, their sum, which is exact: all of them
 * have one exponent. first: the smallest key with it. */
template <kind KIND>
__device__ static inline double
measure_of(const thread_counts &own, unsigned n, uint32_t first)
{
    const double count = static_cast<double>(own.counts[n]);
    if (KIND == TOP_K)
        return count;
    const double least = static_cast<double>(weight_of(first));
    const double unit = static_cast<double>(weight_of(first + 4)) - least;
    return count * least + static_cast<double>(own.lows[n]) * unit;
}

/* upto[t] = first, and the values of the threads up to t. It grows with t, and where a value is 0 it
 * is that of the thread before, as the sum of a warp begins with the whole sum before. */
__device__ static inline void
add_up(double first, double value, block_room *room)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    double own = 0;
    __syncthreads(); /* room may still be read from the call before */
    room->values[threadIdx.x] = value;
    __syncthreads();
    for (unsigned l = 0; l <= lane; l++)
        own += room->values[warp * EXO_CUDA_WARP + l];
    if (lane == EXO_CUDA_WARP - 1)
        room->sums[warp] = own;
    __syncthreads();
    for (unsigned w = 0; w < warp; w++)
        first += room->sums[w];
    room->upto[threadIdx.x] = first + own;
    __syncthreads();
}

/* The digit, of those of a thread from the last one, `top`, down, at which the sum reaches the target; if
 * rounding leaves it short, the last one that has keys. */
template <kind KIND>
__device__ static inline search
find_digit(const thread_counts &counts, const search &s, unsigned top, unsigned behind,
           double above)
{
    search next = s;
    EXO_CUDA_UNROLL
    for (unsigned n = 0; n < THREAD_DIGITS; n++) {
        const uint32_t key = s.key | (top - n) << behind;
        const double own = measure_of<KIND>(counts, THREAD_DIGITS - 1 - n, key);
        if (own <= 0)
            continue;
        next = {key, counts.counts[THREAD_DIGITS - 1 - n], above, s.target};
        above += own;
        if (above >= s.target)
            break;
    }
    return next;
}

/* Finds the digit of a round from what all blocks have counted. All threads call it, and get the
 * same; one of the row notes it for later phases. */
template <kind KIND, int ROUND>
__device__ static inline search
find_digits(const row &r, block_room *room)
{
    const unsigned each = THREAD_DIGITS, t = threadIdx.x, top = DIGITS - 1 - t * each;
    const unsigned behind = bits_behind(ROUND), last = EXO_CUDA_BLOCK - 1;
    const thread_counts counts = counts_from<KIND>(r.state->digits[KIND][ROUND], top - (each - 1));
    search s = {0, 0, 0, static_cast<double>(r.rule.top_k)};
    double own = 0;
    if constexpr (ROUND > 0)
        s = r.state->found[KIND][ROUND - 1];
    EXO_CUDA_UNROLL
    for (unsigned n = 0; n < each; n++)
        own += measure_of<KIND>(counts, each - 1 - n, s.key | (top - n) << behind);
    add_up(s.above, own, room);
    if (KIND == TOP_P && ROUND == 0)
        s.target = static_cast<double>(r.rule.top_p) * room->upto[last];
    /* The first thread whose sum reaches the target; else the last one that has keys. */
    const unsigned place = room->upto[t] >= s.target ? t : own > 0 ? 2 * last + 1 - t : 3 * last;
    if (block_least(place, room->places) == place && own > 0) {
        room->found = find_digit<KIND>(counts, s, top, behind, t > 0 ? room->upto[t - 1] : s.above);
        if (r.part == 0)
            r.state->found[KIND][ROUND] = room->found;
    }
    __syncthreads();
    return room->found;
}

/* --- Phases ----------------------------------------------------------------------------------- */

__device__ static inline bool
has_top_k(const row &r)
{
    return !r.rule.greedy && r.rule.top_k > 0 && r.rule.top_k < r.count;
}

__device__ static inline bool
has_top_p(const row &r)
{
    return !r.rule.greedy && r.rule.top_p > 0 && r.rule.top_p < 1;
}

/* The larger number, NaN if one is. */
__device__ static inline float
larger(float most, float x)
{
    return x > most || x != x ? x : most;
}

/* The part's largest logits, and zero counts. */
__device__ static inline void
find_largest(const row &r, block_room *room)
{
    const size_t end = r.from + PART < r.all ? r.from + PART : r.all;
    float plain = -INFINITY, most = -INFINITY;
    unsigned first = 0xFFFFFFFFu;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, r.from + threadIdx.x, end, EXO_CUDA_BLOCK)) {
        plain = larger(plain, r.logits[i]);
        if (i >= r.to)
            continue;
        const float x = warped(r, i);
        first = x > most || first == 0xFFFFFFFFu ? static_cast<unsigned>(i) : first;
        most = larger(most, x);
    }
    const float own = most;
    plain = exo_cuda_block_max(plain, room->most);
    most = exo_cuda_block_max(most, room->most);
    first = block_least(own == most ? first : 0xFFFFFFFFu, room->places);
    if (threadIdx.x == 0)
        r.parts[r.part] = {plain, most, first, 0, 0};
    for (unsigned which = 0; which < KINDS; which++) {
        unsigned *const words = reinterpret_cast<unsigned *>(r.state->digits[which]);
        const size_t count = ROUNDS * (sizeof(digit_counts) / sizeof(unsigned));
        if (!(which == TOP_K ? has_top_k(r) : has_top_p(r)))
            continue;
        for (size_t i = r.part * EXO_CUDA_BLOCK + threadIdx.x; i < count;
             i += r.num_parts * EXO_CUDA_BLOCK)
            words[i] = 0;
    }
}

/* The largest logit of the row after penalty and temperature. */
__device__ static inline float
largest(const row &r, block_room *room)
{
    float most = -INFINITY;
    for (size_t p = threadIdx.x; p < r.num_parts; p += EXO_CUDA_BLOCK)
        most = larger(most, r.parts[p].most);
    return exo_cuda_block_max(most, room->most);
}

/* A round of top-k. */
template <int ROUND>
__device__ static inline void
select_largest(const row &r, block_room *room)
{
    uint32_t found = 0;
    if (!has_top_k(r))
        return;
    if constexpr (ROUND > 0)
        found = find_digits<TOP_K, ROUND - 1>(r, room).key;
    count_digits<logit_keys, ROUND>(r, found, room);
}

/* Writes the part's weights exp(logit - most), 0 of those that are no candidates, and their sum. */
__device__ static inline void
weigh(const row &r, block_room *room)
{
    if (r.rule.greedy)
        return;
    const float most = largest(r, room);
    float least = -INFINITY;
    double own = 0;
    if (has_top_k(r)) {
        const uint32_t key = find_digits<TOP_K, ROUNDS - 1>(r, room).key;
        least = exo_cuda_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
    }
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, r.from + threadIdx.x, r.to, EXO_CUDA_BLOCK)) {
        const float x = warped(r, i), weight = x >= least ? expf(x - most) : 0;
        r.weights[i] = weight;
        own += static_cast<double>(weight);
    }
    own = exo_cuda_block_sum(own, room->sums);
    if (threadIdx.x == 0)
        r.parts[r.part].sum = own;
    if (has_top_p(r)) /* a thread reads the weights that it has written */
        count_digits<weight_keys, 0>(r, 0, room);
}

/* A further round of top-p: the fewest weights, by falling size and then by rising place, that sum to
 * at least top_p of all. */
template <int ROUND>
__device__ static inline void
find_edge(const row &r, block_room *room)
{
    if (has_top_p(r))
        count_digits<weight_keys, ROUND>(r, find_digits<TOP_P, ROUND - 1>(r, room).key, room);
}

/* Sums of the part's weights above the edge, and a count of those at it. */
__device__ static inline void
cut(const row &r, block_room *room)
{
    if (!has_top_p(r))
        return;
    const float edge = weight_of(find_digits<TOP_P, ROUNDS - 1>(r, room).key);
    double own = 0, equal = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, r.from + threadIdx.x, r.to, EXO_CUDA_BLOCK)) {
        own += r.weights[i] > edge ? static_cast<double>(r.weights[i]) : 0.0;
        equal += r.weights[i] == edge ? 1.0 : 0.0;
    }
    own = exo_cuda_block_sum(own, room->sums);
    equal = exo_cuda_block_sum(equal, room->sums);
    if (threadIdx.x > 0)
        return;
    r.parts[r.part].sum = own;
    r.parts[r.part].equal = static_cast<unsigned>(equal);
}

/* --- The choice ------------------------------------------------------------------------------- */

/* The nucleus: the weights above `edge`, and those equal to it up to a place, which is in part
 * `last_part`, with `kept` of them there. */
struct nucleus {
    float edge;
    size_t last, last_part;
    double kept;
};

struct kept_weights {
    const float *weights;
    nucleus n;
    __device__ double operator()(size_t i) const
    {
        const float w = weights[i];
        return w > n.edge || (w == n.edge && i <= n.last) ? static_cast<double>(w) : 0.0;
    }
};

struct kept_parts {
    const part_state *parts;
    nucleus n;
    __device__ double operator()(size_t p) const
    {
        const double equal = static_cast<double>(parts[p].equal), kept = p < n.last_part    ? equal
                                                                         : p == n.last_part ? n.kept
                                                                                            : 0.0;
        return parts[p].sum + kept * static_cast<double>(n.edge);
    }
};

struct equal_weights {
    const float *weights;
    float edge;
    __device__ double operator()(size_t i) const
    {
        return weights[i] == edge ? 1.0 : 0.0;
    }
};

struct equal_parts {
    const part_state *parts;
    __device__ double operator()(size_t p) const
    {
        return static_cast<double>(parts[p].equal);
    }
};

__device__ static inline stretch
stretch_of(const row &r, size_t part, double before)
{
    const size_t from = part * PART, end = from + PART;
    return {from, end < r.count ? end : r.count, before};
}

__device__ static inline nucleus
find_nucleus(const row &r, block_room *room)
{
    if (!has_top_p(r))
        return {0, r.count, r.num_parts, 0};
    const search s = r.state->found[TOP_P][ROUNDS - 1];
    const float edge = weight_of(s.key);
    const double all = static_cast<double>(s.count);
    double equal = ceil((s.target - s.above) / static_cast<double>(edge));
    equal = equal < 1 ? 1 : equal < all ? equal : all;
    const stretch part =
        find_place(equal_parts{r.parts}, stretch{0, r.num_parts, 0}, equal - 0.5, room->sums);
    const stretch last = find_place(equal_weights{r.weights, edge},
                                    stretch_of(r, part.from, part.before), equal - 0.5, room->sums);
    return {edge, last.from, part.from, equal - part.before};
}

/* Draws a token. sums: the row's log-sums, of the logits and of the scaled ones. */
__device__ static inline exo_choice
draw(const row &r, const float *sums, float most, block_room *room)
{
    const nucleus n = find_nucleus(r, room);
    const kept_parts parts = {r.parts, n};
    double total = 0;
    for (size_t p = threadIdx.x; p < r.num_parts; p += EXO_CUDA_BLOCK)
        total += parts(p);
    total = exo_cuda_block_sum(total, room->sums);
    const double target = r.rule.draw * total;
    const stretch part = find_place(parts, stretch{0, r.num_parts, 0}, target, room->sums);
    const size_t token = find_place(kept_weights{r.weights, n},
                                    stretch_of(r, part.from, part.before), target, room->sums)
                             .from;
    const float x = warped(r, token);
    const bool whole = !has_top_p(r) && !has_top_k(r) && r.count == r.all && r.rule.penalty == 1.0f;
    const double log_sum = static_cast<double>(most) + log(total);
    return {static_cast<int32_t>(token),
            whole ? x - sums[1] : static_cast<float>(static_cast<double>(x) - log_sum),
            r.logits[token] - sums[0]};
}

/* The first token with the largest logit. */
__device__ static inline size_t
first_of(const row &r, float most, block_room *room)
{
    unsigned place = 0xFFFFFFFFu;
    for (size_t p = threadIdx.x; p < r.num_parts; p += EXO_CUDA_BLOCK)
        place = r.parts[p].most == most && r.parts[p].first < place ? r.parts[p].first : place;
    return block_least(place, room->places);
}

__device__ static inline void
choose(const exo_choose_args &k, const row &r, block_room *room)
{
    const float sums[2] = {k.log_sums[blockIdx.y], k.log_sums[k.rows + blockIdx.y]};
    exo_choice choice = {-1, 0, 0};
    float plain = -INFINITY;
    for (size_t p = threadIdx.x; p < r.num_parts; p += EXO_CUDA_BLOCK)
        plain = larger(plain, r.parts[p].plain);
    plain = exo_cuda_block_max(plain, room->most);
    const float most = isfinite(plain) ? largest(r, room) : plain;
    if (isfinite(most) && r.rule.greedy) {
        const size_t token = first_of(r, most, room);
        choice = {static_cast<int32_t>(token), 0, r.logits[token] - sums[0]};
    } else if (isfinite(most)) {
        choice = draw(r, sums, most, room);
    }
    if (threadIdx.x == 0)
        k.choices[blockIdx.y] = choice;
}

/* --- Launches --------------------------------------------------------------------------------- */

enum phase {
    LARGEST,
    SELECT,
    WEIGH = SELECT + ROUNDS,
    EDGE,
    CUT = EDGE + ROUNDS - 1,
    CHOOSE, /* one block of a row */
    PHASES
};

__device__ static inline row
row_of(const exo_choose_args &k, const rooms &all)
{
    const size_t at = blockIdx.y, part = blockIdx.x, words = (k.vocabulary + 63) / 64;
    const exo_choice_rule rule = k.rules[at];
    row r = {};
    r.rule = rule;
    r.logits = k.logits + at * k.pitch;
    r.seen = k.seen ? k.seen + at * words : NULL;
    r.weights = all.weights + at * all.pitch;
    r.all = k.vocabulary;
    r.count = rule.vocabulary > 0 && rule.vocabulary < r.all ? rule.vocabulary : r.all;
    r.from = part * PART;
    r.to = r.from + PART < r.count ? r.from + PART : r.count;
    r.part = part;
    r.num_parts = all.count;
    r.state = all.rows + at;
    r.parts = all.parts + at * all.count;
    return r;
}

/* A phase of a part. */
template <int PHASE>
__device__ static inline void
run_phase(const exo_choose_args &k, const row &r, block_room *room)
{
    if constexpr (PHASE == LARGEST)
        find_largest(r, room);
    else if constexpr (PHASE < WEIGH)
        select_largest<PHASE - SELECT>(r, room);
    else if constexpr (PHASE == WEIGH)
        weigh(r, room);
    else if constexpr (PHASE < CUT)
        find_edge<PHASE - EDGE + 1>(r, room);
    else if constexpr (PHASE == CUT)
        cut(r, room);
    else
        choose(k, r, room);
}

/* The phases [FIRST, END). */
template <int FIRST, int END>
__device__ static inline void
run_phases(const exo_choose_args &k, const row &r, block_room *room)
{
    run_phase<FIRST>(k, r, room);
    if constexpr (FIRST + 1 < END) {
        __syncthreads(); /* what the block has left is there */
        run_phases<FIRST + 1, END>(k, r, room);
    }
}

template <int FIRST, int END>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK, 2) choose_parts(exo_choose_args k, rooms all)
{
    __shared__ block_room room;
    run_phases<FIRST, END>(k, row_of(k, all), &room);
}

/* Whether some row has that phase. */
static bool
is_needed(const exo_choose_args *k, int phase)
{
    if (phase == LARGEST || phase == CHOOSE)
        return true;
    return (k->needs & (phase < WEIGH    ? EXO_CHOICE_TOP_K
                        : phase == WEIGH ? EXO_CHOICE_DRAWS
                                         : EXO_CHOICE_TOP_P)) != 0;
}

/* Starts the phases from FIRST on that some row has, each by itself. */
template <int FIRST>
static void
start_phases(exo_cuda_device *cuda, const exo_choose_args *k, const rooms &room)
{
    const dim3 grid(FIRST == CHOOSE ? 1 : static_cast<unsigned>(room.count),
                    static_cast<unsigned>(k->rows));
    if (is_needed(k, FIRST))
        exo_cuda_launch((choose_parts<FIRST, FIRST + 1>), grid, EXO_CUDA_BLOCK, 0, cuda->stream, *k,
                        room);
    if constexpr (FIRST + 1 < PHASES)
        start_phases<FIRST + 1>(cuda, k, room);
}

exo_status
exo_cuda_choose(exo_device *device, const exo_choose_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    const rooms room = lay_out(k->vocabulary, k->scratch);
    exo_status st = exo_cuda_catch_up(cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_status(exo_cuda_select(cuda), "choose", err);
    if (st != EXO_OK || k->rows == 0)
        return st;
    if (room.count == 1)
        exo_cuda_launch((choose_parts<LARGEST, PHASES>), dim3(1, static_cast<unsigned>(k->rows)),
                        EXO_CUDA_BLOCK, 0, cuda->stream, *k, room);
    else
        start_phases<LARGEST>(cuda, k, room);
    return exo_cuda_launched("choose", err);
}
