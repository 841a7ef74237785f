/* The mathematics of PPO: see ppo.h. The loss of a sample is computed in double, the networks in
 * float. */
#include "actors/ppo.h"

#include <math.h>

#include <exogym/loss.h>

void
exo_gae(const exo_rollout *r, double gamma, double lambda, float *advantages)
{
    size_t n = r->environments;
    for (size_t e = 0; e < n; e++) {
        double advantage = 0, next = (double)r->bootstrap[e];
        for (size_t t = r->steps; t-- > 0;) {
            size_t i = t * n + e;
            if (r->dones[i] != EXO_DONE_NOT) {
                advantage = 0;
                next = r->dones[i] == EXO_DONE_TRUNCATED ? (double)r->final_values[i] : 0;
            }
            double delta = (double)r->rewards[i] + gamma * next - (double)r->values[i];
            advantage = delta + gamma * lambda * advantage;
            advantages[i] = (float)advantage;
            next = (double)r->values[i];
        }
    }
}

/* Returns the factor that normalizes the samples' advantages, after *mean was subtracted from
 * them. */
static double
normal_scale(const float *advantages, const uint32_t *order, size_t count, double *mean)
{
    double sum = 0, squares = 0;
    *mean = 0;
    if (count < 2)
        return 1;
    for (size_t i = 0; i < count; i++)
        sum += (double)advantages[order[i]];
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) {
        double off = (double)advantages[order[i]] - *mean;
        squares += off * off;
    }
    return 1 / (sqrt(squares / (double)(count - 1)) + 1e-8);
}

double
exo_ppo_gradient(const exo_policy *policy, const exo_ppo_samples *s, const uint32_t *order,
                 size_t count, const exo_ppo_opts *opts, exo_policy *gradient)
{
    double mean, total = 0, scale = normal_scale(s->advantages, order, count, &mean);
    for (size_t i = 0; i < count; i++) {
        size_t k = order[i];
        size_t action = (size_t)s->actions[k];
        exo_policy_output out;
        exo_policy_pass pass;
        exo_policy_forward(policy, s->observations + k * EXO_CARTPOLE_OBSERVATION, &out, &pass);

        double by_log_prob, by_value;
        double log_ratio = (double)out.log_probs[action] - (double)s->log_probs[k];
        double loss = exo_policy_loss_term(log_ratio, ((double)s->advantages[k] - mean) * scale,
                                           opts->clip, &by_log_prob);
        loss +=
            opts->value * exo_value_loss_term((double)out.value, (double)s->values[k],
                                              (double)s->targets[k], opts->value_clip, &by_value);
        double entropy = exo_entropy_term(EXO_CARTPOLE_ACTIONS, out.log_probs, 1, 0);
        loss -= opts->entropy * entropy;

        /* d log p_action / d logit_a = [a = action] - p_a
         * d H / d logit_a = -p_a (log p_a + H) */
        float d_logits[EXO_CARTPOLE_ACTIONS];
        for (size_t a = 0; a < EXO_CARTPOLE_ACTIONS; a++) {
            double log_p = (double)out.log_probs[a], p = exp(log_p);
            d_logits[a] = (float)(by_log_prob * ((a == action ? 1 : 0) - p) +
                                  opts->entropy * p * (log_p + entropy));
        }
        exo_policy_backward(policy, &pass, d_logits, (float)(opts->value * by_value), gradient);
        total += loss;
    }
    return total;
}
