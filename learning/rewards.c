/* Checks and masks of batches of tokens, rewards, and the KL coefficient (exogym/learning.h). Pure
 * functions. Read next: advantages.c. */
#include <exogym/learning.h>

#include <math.h>

/* The range of a coefficient that follows its target. */
#define LEAST_COEF 1e-9
#define MOST_COEF  1e6

static double
clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

exo_status
exo_token_batch_check(const exo_token_batch *b, const float *scores, exo_err *err)
{
    if (b->sequences == 0 || b->offsets[0] != 0)
        return exo_fail(err, EXO_INVAL,
                        "the batch has %zu sequences, the first at row %zu; expected at least one, "
                        "and row 0",
                        b->sequences, b->sequences > 0 ? b->offsets[0] : 0);
    for (size_t n = 0; n < b->sequences; n++) {
        if (b->offsets[n + 1] < b->offsets[n])
            return exo_fail(err, EXO_INVAL,
                            "sequence %zu begins at row %zu and ends before row %zu", n,
                            b->offsets[n], b->offsets[n + 1]);
        if (scores && !isfinite(scores[n]))
            return exo_fail(err, EXO_INVAL, "the score of sequence %zu is %g", n,
                            (double)scores[n]);
    }
    for (size_t t = 0; t < b->offsets[b->sequences]; t++)
        if (b->mask[t] != 0.0f && b->mask[t] != 1.0f)
            return exo_fail(err, EXO_INVAL, "the mask of row %zu is %g; expected 0 or 1", t,
                            (double)b->mask[t]);
    return EXO_OK;
}

size_t
exo_action_mask(size_t count, const int32_t *tokens, size_t prompt, int32_t eos, float *mask)
{
    bool ended = false;
    size_t actions = 0;
    for (size_t t = 0; t < count; t++) {
        bool action = t >= prompt && !ended;
        mask[t] = action ? 1.0f : 0.0f;
        actions += action;
        ended = ended || (action && eos >= 0 && tokens[t] == eos);
    }
    return actions;
}

size_t
exo_turn_mask(size_t num_turns, const exo_turn *turns, size_t count, float *mask)
{
    size_t t = 0, actions = 0;
    for (size_t i = 0; i < num_turns; i++)
        for (size_t k = 0; k < turns[i].tokens && t < count; k++, t++) {
            mask[t] = turns[i].action ? 1.0f : 0.0f;
            actions += turns[i].action;
        }
    for (; t < count; t++)
        mask[t] = 0.0f;
    return actions;
}

/* The estimate of row t. */
static double
kl_of(const float *log_probs, const float *ref_log_probs, size_t t, exo_kl_kind kind)
{
    double slope;
    return exo_kl_term(kind, (double)log_probs[t] - (double)ref_log_probs[t], &slope);
}

static double
clipped_score(const exo_reward_opts *opts, float score)
{
    return opts->score_clip > 0 ? clamp((double)score, -opts->score_clip, opts->score_clip)
                                : (double)score;
}

void
exo_token_rewards(const exo_token_batch *b, const float *log_probs, const float *ref_log_probs,
                  const float *scores, const exo_reward_opts *opts, float *rewards)
{
    for (size_t n = 0; n < b->sequences; n++) {
        bool last = true; /* from the end: the first action that is met */
        for (size_t t = b->offsets[n + 1]; t-- > b->offsets[n];) {
            double r = 0;
            if (b->mask[t] != 0.0f) {
                if (opts->kl_coef != 0)
                    r = -opts->kl_coef * kl_of(log_probs, ref_log_probs, t, opts->kl);
                r += last ? clipped_score(opts, scores[n]) : 0;
                last = false;
            }
            rewards[t] = (float)r;
        }
    }
}

void
exo_sequence_rewards(const exo_token_batch *b, const float *log_probs, const float *ref_log_probs,
                     const float *scores, const exo_reward_opts *opts, float *rewards)
{
    for (size_t n = 0; n < b->sequences; n++) {
        double kl = 0;
        bool any = false;
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++)
            if (b->mask[t] != 0.0f) {
                any = true;
                if (opts->kl_coef != 0)
                    kl += kl_of(log_probs, ref_log_probs, t, opts->kl);
            }
        rewards[n] = any ? (float)(clipped_score(opts, scores[n]) - opts->kl_coef * kl) : 0.0f;
    }
}

double
exo_sequence_kl(const exo_token_batch *b, const float *log_probs, const float *ref_log_probs,
                exo_kl_kind kind)
{
    double sum = 0;
    for (size_t t = 0; t < b->offsets[b->sequences]; t++)
        if (b->mask[t] != 0.0f)
            sum += kl_of(log_probs, ref_log_probs, t, kind);
    return sum / (double)b->sequences;
}

void
exo_kl_control_update(exo_kl_control *c, double kl, size_t sequences)
{
    if (c->target <= 0)
        return;
    double gain = c->horizon > 0 ? fmin((double)sequences / c->horizon, 1) : 0.1;
    double moved = c->coef * (1 + gain * clamp(kl / c->target - 1, -0.2, 0.2));
    c->coef = clamp(moved, fmin(c->coef, LEAST_COEF), fmax(c->coef, MOST_COEF));
}

const char *const *
exo_kl_names(void)
{
    static const char *const names[] = {"k1", "k2", "k3", NULL};
    return names;
}
