/* Advantages of tokens and of whole sequences (exogym/learning.h). Pure functions. Read next:
 * corrections.c. */
#include <exogym/learning.h>

#include <math.h>

void
exo_token_gae(const exo_token_batch *b, const float *rewards, const float *values, double gamma,
              double lambda, float *advantages, float *returns)
{
    for (size_t n = 0; n < b->sequences; n++) {
        double advantage = 0, next = 0; /* of the next action; 0 after the last one */
        for (size_t t = b->offsets[n + 1]; t-- > b->offsets[n];) {
            bool action = b->mask[t] != 0.0f;
            if (action) {
                double value = values ? (double)values[t] : 0;
                advantage = (double)rewards[t] + gamma * next - value + gamma * lambda * advantage;
                next = value;
            }
            advantages[t] = action ? (float)advantage : 0.0f;
            if (returns)
                returns[t] = action ? (float)(advantage + next) : 0.0f;
        }
    }
}

void
exo_vtrace(const exo_token_batch *b, const float *log_probs, const float *behaviour,
           const float *rewards, const float *values, const exo_vtrace_opts *opts,
           float *advantages, float *targets)
{
    double rho_bar = opts->rho_bar > 0 ? opts->rho_bar : 1;
    double c_bar = opts->c_bar > 0 ? opts->c_bar : 1;
    for (size_t n = 0; n < b->sequences; n++) {
        double next = 0, next_target = 0; /* V and v of the next action */
        for (size_t t = b->offsets[n + 1]; t-- > b->offsets[n];) {
            double advantage = 0, target = 0;
            if (b->mask[t] != 0.0f) {
                double ratio = exp((double)log_probs[t] - (double)behaviour[t]);
                double rho = fmin(rho_bar, ratio), c = opts->lambda * fmin(c_bar, ratio);
                double value = (double)values[t], reward = (double)rewards[t];
                advantage = rho * (reward + opts->gamma * next_target - value);
                target = value + rho * (reward + opts->gamma * next - value) +
                         opts->gamma * c * (next_target - next);
                next = value;
                next_target = target;
            }
            advantages[t] = (float)advantage;
            if (targets)
                targets[t] = (float)target;
        }
    }
}

/* Of the rows that a mask includes: their number, mean, and variance with divisor count - 1, which
 * is 0 for fewer than 2 rows. */
struct moments {
    double count, mean, variance;
};

static struct moments
moments_of(size_t count, const float *mask, const float *x)
{
    struct moments m = {0};
    double squares = 0; /* of the distance from the mean (Welford, 1962) */
    for (size_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0.0f) {
            double off = (double)x[i] - m.mean;
            m.count += 1;
            m.mean += off / m.count;
            squares += off * ((double)x[i] - m.mean);
        }
    m.variance = m.count > 1 ? squares / (m.count - 1) : 0;
    return m;
}

void
exo_whiten(size_t count, const float *mask, bool shift, float *x)
{
    struct moments m = moments_of(count, mask, x);
    double scale = m.count > 1 ? 1 / sqrt(m.variance + 1e-8) : 1;
    double mean = m.count > 1 ? m.mean : 0;
    for (size_t i = 0; i < count; i++) {
        bool included = !mask || mask[i] != 0.0f;
        double y = ((double)x[i] - mean) * scale + (shift ? 0 : mean);
        x[i] = included ? (float)y : 0.0f;
    }
}

/* The moments of the rewards of a group. */
static struct moments
group_moments(size_t sequences, const uint64_t *groups, uint64_t group, const float *rewards)
{
    struct moments m = {0};
    double squares = 0;
    for (size_t i = 0; i < sequences; i++)
        if (groups[i] == group) {
            double off = (double)rewards[i] - m.mean;
            m.count += 1;
            m.mean += off / m.count;
            squares += off * ((double)rewards[i] - m.mean);
        }
    m.variance = m.count > 1 ? squares / (m.count - 1) : 0;
    return m;
}

void
exo_group_advantages(exo_group_kind kind, size_t sequences, const uint64_t *groups,
                     const float *rewards, float *advantages)
{
    const double eps = 1e-4; /* TRL's */
    double all = sqrt(moments_of(sequences, NULL, rewards).variance);
    for (size_t n = 0; n < sequences; n++) {
        struct moments m = group_moments(sequences, groups, groups[n], rewards);
        double off = m.count > 1 ? (double)rewards[n] - m.mean : 0;
        switch (kind) {
        case EXO_GROUP_GRPO:
            off /= sqrt(m.variance) + eps;
            break;
        case EXO_GROUP_GRPO_BATCH:
            off /= all + eps;
            break;
        case EXO_GROUP_RLOO: /* r - (sum - r) / (count - 1) */
            off *= m.count > 1 ? m.count / (m.count - 1) : 0;
            break;
        case EXO_GROUP_MEAN:
            break;
        }
        advantages[n] = (float)off;
    }
}

void
exo_spread(const exo_token_batch *b, const float *by_sequence, float *by_row)
{
    for (size_t n = 0; n < b->sequences; n++)
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++)
            by_row[t] = b->mask[t] != 0.0f ? by_sequence[n] : 0.0f;
}

const char *const *
exo_group_names(void)
{
    static const char *const names[] = {"grpo", "grpo_batch", "mean", "rloo", NULL};
    return names;
}
