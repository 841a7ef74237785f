/* Off-policy corrections, and the figures by which one sees how far a batch is off
 * (exogym/learning.h). Pure functions. Read next: token_loss.c. */
#include <exogym/learning.h>

#include <math.h>

static bool
is_by_sequence(exo_correction kind)
{
    return kind == EXO_CORRECTION_TRUNCATED_SEQUENCE || kind == EXO_CORRECTION_MASKED_SEQUENCE;
}

/* The weight of a token or sequence with the ratio prox / mu. */
static double
weight_of(const exo_correction_opts *opts, double ratio)
{
    double max = opts->max > 0 ? opts->max : INFINITY;
    switch (opts->kind) {
    case EXO_CORRECTION_NONE:
    case EXO_CORRECTION_VTRACE:
        return 1;
    case EXO_CORRECTION_TRUNCATED_TOKEN:
    case EXO_CORRECTION_TRUNCATED_SEQUENCE:
        return fmin(fmax(ratio, opts->min), max);
    case EXO_CORRECTION_MASKED_TOKEN:
    case EXO_CORRECTION_MASKED_SEQUENCE:
    case EXO_CORRECTION_DECOUPLED:
    case EXO_CORRECTION_INTERPOLATED:
        break;
    }
    return ratio < opts->min || ratio > max ? 0 : ratio;
}

/* The share of the current policy in the interpolated proximal one. */
static double
share_of_current(uint64_t sampled, uint64_t version)
{
    return version > sampled ? (double)(version - sampled - 1) / (double)(version - sampled) : 0;
}

void
exo_correct(const exo_token_batch *b, const exo_correction_opts *opts, const float *behaviour,
            const float *proximal, const uint64_t *versions, uint64_t version, float *old,
            float *importance)
{
    for (size_t n = 0; n < b->sequences; n++) {
        double sum = 0; /* log prox - log mu of the sequence */
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++) {
            double anchor = 0, mu = 0;
            if (b->mask[t] != 0.0f) {
                mu = (double)behaviour[t];
                anchor = opts->kind == EXO_CORRECTION_NONE ? mu : (double)proximal[t];
                if (opts->kind == EXO_CORRECTION_INTERPOLATED)
                    anchor = mu + share_of_current(versions[t], version) * (anchor - mu);
            }
            old[t] = (float)anchor;
            sum += anchor - mu;
            importance[t] = b->mask[t] != 0.0f ? (float)weight_of(opts, exp(anchor - mu)) : 0.0f;
        }
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1] && is_by_sequence(opts->kind); t++)
            importance[t] = b->mask[t] != 0.0f ? (float)weight_of(opts, exp(sum)) : 0.0f;
    }
}

/* Sums of ratios and of their squares. */
struct sums {
    double count, w, squares;
};

static void
add_ratio(struct sums *s, double ratio)
{
    s->count += 1;
    s->w += ratio;
    s->squares += ratio * ratio;
}

static double
chi_squared(const struct sums *s)
{
    return s->squares / s->count - 1;
}

static double
effective(const struct sums *s)
{
    return s->squares > 0 ? s->w * s->w / s->squares / s->count : 0;
}

void
exo_policy_measure(const exo_token_batch *b, const float *log_probs, const float *behaviour,
                   const float *old, exo_policy_clip clip, exo_policy_figures *f)
{
    struct sums tokens = {0}, sequences = {0};
    double log_sum = 0, clipped = 0, smallest = INFINITY, largest = 0;
    *f = (exo_policy_figures){.ratio_min = 1, .ratio_max = 1};
    for (size_t n = 0; n < b->sequences; n++) {
        double log_ratio = 0, before = tokens.count;
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++) {
            if (b->mask[t] == 0.0f)
                continue;
            double l = (double)log_probs[t] - (double)behaviour[t], w = exp(l);
            double ratio = exp((double)log_probs[t] - (double)old[t]);
            add_ratio(&tokens, w);
            log_ratio += l;
            log_sum += l;
            smallest = fmin(smallest, w);
            largest = fmax(largest, w);
            clipped += ratio < 1 - clip.low || ratio > 1 + clip.high;
        }
        if (tokens.count > before)
            add_ratio(&sequences, exp(log_ratio));
    }
    if (tokens.count == 0)
        return;
    *f = (exo_policy_figures){.tokens = (size_t)tokens.count,
                              .kl = (tokens.w - log_sum) / tokens.count - 1,
                              .kl_k1 = -log_sum / tokens.count,
                              .chi_squared = chi_squared(&tokens),
                              .sequence_chi_squared = chi_squared(&sequences),
                              .effective = effective(&tokens),
                              .effective_sequences = effective(&sequences),
                              .clip_fraction = clipped / tokens.count,
                              .ratio_min = smallest,
                              .ratio_max = largest};
}

const char *const *
exo_correction_names(void)
{
    static const char *const names[] = {"none",         "truncated_token", "truncated_sequence",
                                        "masked_token", "masked_sequence", "vtrace",
                                        "decoupled",    "interpolated",    NULL};
    return names;
}
