/* The choice of a token: see sampling.h. Penalty, temperature, top-k and top-p have the
 * definitions and the order of transformers, but do not sort the vocabulary. */
#include "nn/generate/sampling.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/decode.h"
#include "nn/cpu/softmax.h"
#include "nn/device/temperature.h"

enum {
    STRIDE = 64, /* logits in a block; kth_largest begins with the blocks' maxima */
    SUM_BLOCK = EXO_DECODE_SUM_BLOCK
};

exo_status
exo_sampling_check(const exo_sampling *s, size_t vocabulary, exo_err *err)
{
    float scale;
    if (!exo_temperature_scale(s->temperature, &scale))
        return exo_fail(err, EXO_INVAL, "temperature is %g; it must be " EXO_TEMPERATURE_EXPECTED,
                        (double)s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return exo_fail(err, EXO_INVAL, "top_p is %g; it must be in 0 to 1", (double)s->top_p);
    if (!(s->repetition_penalty >= 0) || isinf(s->repetition_penalty))
        return exo_fail(err, EXO_INVAL,
                        "repetition_penalty is %g; it must be greater than 0, or 0: none",
                        (double)s->repetition_penalty);
    if (s->num_stop_tokens > EXO_MAX_STOP_TOKENS || (s->num_stop_tokens > 0 && !s->stop_tokens))
        return exo_fail(err, EXO_INVAL, "%zu stop tokens; there can be %d", s->num_stop_tokens,
                        EXO_MAX_STOP_TOKENS);
    for (size_t i = 0; i < s->num_stop_tokens; i++)
        if (s->stop_tokens[i] < 0 || (size_t)s->stop_tokens[i] >= vocabulary)
            return exo_fail(err, EXO_INVAL, "stop token %d is not in the vocabulary of %zu",
                            s->stop_tokens[i], vocabulary);
    return EXO_OK;
}

double
exo_sampling_draw(uint64_t seed, uint64_t id, size_t position)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_TOKEN, (uint32_t)(id & 0xFFFFFFu),
                 (uint64_t)position | id >> 24 << 32);
    uint32_t high = exo_rng_u32(&rng) >> 5, low = exo_rng_u32(&rng) >> 6;
    return ((double)high * 67108864.0 + (double)low) * 0x1p-53;
}

double
exo_sampling_nll(const float *logits, size_t vocabulary, size_t token)
{
    float largest = exo_decode_max(logits, vocabulary, NULL);
    if (!isfinite(largest))
        return (double)NAN;
    return exo_softmax_log_sum(logits, vocabulary, 1.0f) - (double)logits[token];
}

/* --- The k-th largest ------------------------------------------------------------------------- */

/* Quickselect (Hoare, 1961): the k-th largest of x, k in 1..count. Reorders x. */
static float
select_largest(float *x, size_t count, size_t k)
{
    size_t from = 0, to = count - 1, want = k - 1;
    while (from < to) {
        float a = x[from], b = x[from + (to - from) / 2], c = x[to];
        float pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        size_t i = from, j = to;
        for (;;) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i >= j)
                break;
            float swapped = x[i];
            x[i++] = x[j];
            x[j--] = swapped;
        }
        /* Elements before i are at least the pivot, those after j at most. If i == j, x[i] is the
         * pivot. */
        if (i == j && want == j)
            return x[j];
        if (want <= j)
            to = i == j ? j - 1 : j;
        else
            from = j + 1;
    }
    return x[want];
}

/* The k-th largest of x, which stays as it is. The k-th largest of the blocks' maxima is a lower
 * bound of it, so only the few elements above this bound are searched. */
static float
kth_largest(const float *x, size_t count, size_t k, const exo_logits_scratch *scratch)
{
    size_t blocks = (count + STRIDE - 1) / STRIDE, found = 0;
    float *values = scratch->values;
    if (k <= blocks) {
        for (size_t b = 0; b < blocks; b++)
            values[b] =
                exo_decode_max(x + b * STRIDE, b + 1 < blocks ? STRIDE : count - b * STRIDE, NULL);
        found = exo_decode_at_least(x, count, select_largest(values, blocks, k), scratch->places,
                                    count);
    }
    if (found == 0) {
        memcpy(values, x, count * sizeof *values);
        return select_largest(values, count, k);
    }
    for (size_t i = 0; i < found; i++)
        values[i] = x[scratch->places[i]];
    return select_largest(values, found, k);
}

/* --- The nucleus ------------------------------------------------------------------------------ */

/* The order of candidates: by falling weight, equal weights by rising token number. */
static bool
before(const float *p, uint32_t a, uint32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

static void
sift_down(const float *p, uint32_t *heap, size_t count, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && before(p, heap[child + 1], heap[child]))
            child++;
        if (!before(p, heap[child], heap[at]))
            return;
        uint32_t swapped = heap[at];
        heap[at] = heap[child];
        heap[child] = swapped;
        at = child;
    }
}

/* Top-p: keeps the fewest candidates, in the order of `before`, whose weights sum to at least
 * `mass`. Moves their weights and places to the front, by rising token number, and returns how
 * many there are, at least 1. A heap yields the candidates in order, because the nucleus is often
 * small beside the vocabulary. */
static size_t
keep_nucleus(float *p, uint32_t *places, size_t count, double mass, uint32_t *heap)
{
    for (size_t i = 0; i < count; i++)
        heap[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(p, heap, count, i);
    double above = 0;
    size_t left = count;
    uint32_t last = heap[0];
    while (left > 0 && (left == count || above < mass)) {
        last = heap[0];
        above += (double)p[last];
        heap[0] = heap[--left];
        sift_down(p, heap, left, 0);
    }
    size_t kept = 0;
    float edge = p[last];
    for (uint32_t i = 0; i < count; i++)
        if (p[i] > edge || (p[i] == edge && i <= last)) {
            p[kept] = p[i];
            places[kept++] = places[i];
        }
    return kept;
}

/* --- Choosing --------------------------------------------------------------------------------- */

/* The inverse of the cumulative distribution: the first index at which the running sum of the
 * weights exceeds draw * total. */
static size_t
pick(const float *p, size_t count, double total, double draw)
{
    double target = draw * total, sum = 0;
    size_t first = 0, length = 0;
    for (;; first += SUM_BLOCK) {
        length = count - first < SUM_BLOCK ? count - first : SUM_BLOCK;
        double block = exo_decode_block_sum(p + first, length);
        if (target < sum + block || first + length == count)
            break;
        sum += block;
    }
    /* A block's sum may differ in the last bits from the running sum below. If the latter stays
     * short of the target, the block's last token of positive weight is the choice. */
    size_t last = first;
    for (size_t i = first; i < first + length; i++) {
        if (p[i] > 0)
            last = i;
        sum += (double)p[i];
        if (target < sum)
            return i;
    }
    return last;
}

float
exo_sampling_scale(const exo_sampling *s)
{
    return s->temperature > 0 ? 1.0f / s->temperature : 1.0f; /* as in exo_log_probs */
}

static float
penalty_of(const exo_sampling *s)
{
    return s->repetition_penalty > 0 ? s->repetition_penalty : 1;
}

exo_choice_rule
exo_sampling_rule(const exo_sampling *s, double draw)
{
    return (exo_choice_rule){.draw = draw,
                             .scale = exo_sampling_scale(s),
                             .penalty = penalty_of(s),
                             .top_p = s->top_p,
                             .top_k = s->top_k < UINT32_MAX ? (uint32_t)s->top_k : 0,
                             .vocabulary = s->vocabulary < UINT32_MAX ? (uint32_t)s->vocabulary : 0,
                             .greedy = s->temperature <= 0};
}

/* The logits after penalty and temperature: `out`, or `logits` itself if neither changes them. */
static const float *
warp(const exo_sampling *s, const float *logits, size_t count, const uint64_t *seen, float *out)
{
    float penalty = penalty_of(s), scale = exo_sampling_scale(s);
    if (penalty == 1.0f && scale == 1.0f)
        return logits;
    memcpy(out, logits, count * sizeof *out);
    for (size_t word = 0; penalty != 1.0f && word < (count + 63) / 64; word++)
        for (uint64_t bits = seen[word]; bits; bits &= bits - 1) {
            size_t token = word * 64 + (size_t)__builtin_ctzll(bits);
            if (token >= count) /* seen in the prompt, but above sampling.vocabulary */
                break;
            out[token] = out[token] < 0 ? out[token] * penalty : out[token] / penalty;
        }
    for (size_t i = 0; i < count && scale != 1.0f; i++)
        out[i] *= scale;
    return out;
}

/* Applies top-k and top-p. Writes the remaining tokens to scratch->places, their weights
 * exp(logit - largest) to scratch->values, and the sum of these weights to *total. Returns the
 * number of tokens; SIZE_MAX: all tokens remain, and places is not written. */
static size_t
candidates(const exo_sampling *s, const float *x, size_t count, float largest,
           const exo_logits_scratch *scratch, double *total)
{
    float *p = scratch->values;
    size_t kept = SIZE_MAX;
    if (s->top_k > 0 && s->top_k < count) {
        kept = exo_decode_at_least(x, count, kth_largest(x, count, s->top_k, scratch),
                                   scratch->places, count);
        for (size_t i = 0; i < kept; i++)
            p[i] = x[scratch->places[i]];
        *total = exo_decode_exp_sum(p, kept, largest, p);
    } else {
        *total = exo_decode_exp_sum(x, count, largest, p);
    }
    if (!(s->top_p > 0 && s->top_p < 1))
        return kept;
    double mass = (double)s->top_p * *total;
    /* All tokens with weights below `floor` together weigh less than half of 1 - top_p of the
     * total, so none of them is in the nucleus. */
    if (kept == SIZE_MAX) {
        double floor = 0.5 * (1 - (double)s->top_p) * *total / (double)count;
        kept = exo_decode_at_least(p, count, (float)floor, scratch->places, count);
        for (size_t i = 0; i < kept; i++)
            p[i] = p[scratch->places[i]];
    }
    kept = keep_nucleus(p, scratch->places, kept, mass, scratch->order);
    *total = 0;
    for (size_t first = 0; first < kept; first += SUM_BLOCK)
        *total +=
            exo_decode_block_sum(p + first, kept - first < SUM_BLOCK ? kept - first : SUM_BLOCK);
    return kept;
}

/* log p of a token with this logit. The device's log-sum is in fp32, and so is its head's
 * difference. */
static float
log_prob_of(float logit, double log_sum, bool of_device)
{
    return of_device ? logit - (float)log_sum : (float)((double)logit - log_sum);
}

/* Whether x, of the first `count` of `all` logits, are the logits times their scale alone. */
static bool
is_scaled(const exo_sampling *s, size_t count, size_t all)
{
    return count == all && (s->repetition_penalty <= 0 || s->repetition_penalty == 1.0f);
}

bool
exo_sampling_choose(const exo_sampling *s, const float *logits, size_t count, const uint64_t *seen,
                    double draw, const exo_logits_scratch *scratch, exo_choice *out)
{
    float largest = exo_decode_max(logits, count, NULL);
    if (!isfinite(largest))
        return false;
    const exo_logits_sums *sums = scratch->sums;
    double plain = sums ? (double)sums->plain : exo_softmax_log_sum(logits, count, 1.0f);
    size_t all = count;
    count = s->vocabulary > 0 && s->vocabulary < count ? s->vocabulary : count;
    const float *x = warp(s, logits, count, seen, scratch->weights);
    size_t token = 0;
    largest = exo_decode_max(x, count, &token);
    if (!isfinite(largest)) /* a penalty or a temperature near 0 overflows */
        return false;
    float log_prob = 0;
    if (s->temperature > 0) {
        double total = 0;
        size_t kept = candidates(s, x, count, largest, scratch, &total);
        size_t place = pick(scratch->values, kept == SIZE_MAX ? count : kept, total, draw);
        token = kept == SIZE_MAX ? place : scratch->places[place];
        double log_sum = (double)largest + log(total);
        bool of_device = sums && kept == SIZE_MAX && is_scaled(s, count, all);
        if (of_device)
            log_sum = (double)sums->scaled;
        else if (kept == SIZE_MAX) /* the sum of exo_log_probs, to the bit */
            log_sum = x == logits && count == all ? plain : exo_softmax_log_sum(x, count, 1.0f);
        log_prob = log_prob_of(x[token], log_sum, of_device);
    }
    *out = (exo_choice){(int32_t)token, log_prob, log_prob_of(logits[token], plain, sums != NULL)};
    return true;
}
