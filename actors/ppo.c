/* The mathematics of PPO: see ppo.h. The loss of a sample is computed in double, the networks in
 * float. */
#include "actors/ppo.h"

#include <math.h>

#include <exogym/loss.h>

void *
exo_rollout_action(const exo_rollout *r, size_t i)
{
    return r->choices ? (void *)(r->choices + i) : (void *)(r->boxes + i * r->box);
}

/* One player of an environment, while time runs backward. */
struct chain {
    double advantage; /* of its next turn */
    double next;      /* value of its next turn */
    double reward;    /* since the step that is looked at */
    bool known;       /* its next turn, or the end of the episode, is in the rollout */
};

/* Begins the chains at the end of an episode, or of the rollout: no player but `mover`, where the
 * value is `next`, has a next turn. In a game that ended, `known`, all have the value 0. */
static void
begin_chains(struct chain *chains, size_t players, size_t mover, double next, bool known)
{
    for (size_t p = 0; p < players; p++)
        chains[p] = (struct chain){.known = known};
    if (mover < players)
        chains[mover] = (struct chain){.next = next, .known = true};
}

void
exo_gae(const exo_rollout *r, double gamma, double lambda, float *advantages)
{
    const size_t n = r->environments, players = r->num_players;
    struct chain chains[EXO_ENVIRONMENT_MAX_PLAYERS];
    for (size_t e = 0; e < n; e++) {
        size_t mover = r->players ? r->players[r->steps * n + e] : 0;
        begin_chains(chains, players, mover, (double)r->bootstrap[e], false);
        for (size_t t = r->steps; t-- > 0;) {
            size_t i = t * n + e;
            if (r->dones[i] == EXO_EPISODE_TERMINATED)
                begin_chains(chains, players, players, 0, true);
            else if (r->dones[i] == EXO_EPISODE_TRUNCATED)
                begin_chains(chains, players, players > 1 ? players : 0, (double)r->final_values[i],
                             false);
            for (size_t p = 0; p < players; p++)
                chains[p].reward += (double)r->rewards[i * players + p];
            struct chain *c = &chains[r->players ? r->players[i] : 0];
            double value = (double)r->values[i];
            double delta = c->reward + gamma * c->next - value;
            double advantage = c->known ? delta + gamma * lambda * c->advantage : 0;
            advantages[i] = (float)advantage;
            *c = (struct chain){.advantage = advantage, .next = value, .known = true};
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

/* Writes the gradients of a sample's loss with respect to the actor's outputs, and adds those with
 * respect to the logarithms of deviations. Returns the entropy. */
static double
action_gradient(const exo_policy *policy, const exo_policy_output *out, const void *action,
                double by_log_prob, double by_entropy, float *d_actions, const exo_policy *gradient)
{
    size_t count = policy->shape.outputs;
    if (!policy->shape.box) {
        /* d log p_action / d logit_a = [a = action] - p_a
         * d H / d logit_a = -p_a (log p_a + H) */
        double entropy = exo_entropy_term(count, out->actions, 1, 0);
        size_t chosen = (size_t) * (const int32_t *)action;
        for (size_t a = 0; a < count; a++) {
            double log_p = (double)out->actions[a], p = exp(log_p);
            d_actions[a] = (float)(by_log_prob * ((a == chosen ? 1 : 0) - p) -
                                   by_entropy * p * (log_p + entropy));
        }
        return entropy;
    }
    /* With z = (x - mean) / deviation: d log p / d mean = z / deviation,
     * d log p / d log deviation = z^2 - 1, H = sum of log deviation + log(2 pi e) / 2 */
    const float *box = action;
    double entropy = 0;
    for (size_t a = 0; a < count; a++) {
        double log_deviation = (double)policy->log_deviation[a], deviation = exp(log_deviation);
        double z = ((double)box[a] - (double)out->actions[a]) / deviation;
        d_actions[a] = (float)(by_log_prob * z / deviation);
        gradient->log_deviation[a] += (float)(by_log_prob * (z * z - 1) + by_entropy);
        entropy += log_deviation + 0.5 * log(2 * 3.14159265358979323846) + 0.5;
    }
    return entropy;
}

double
exo_ppo_gradient(const exo_policy *policy, const exo_ppo_samples *s, const uint32_t *order,
                 size_t count, const exo_ppo_opts *opts, const exo_policy *gradient)
{
    double mean, total = 0, scale = normal_scale(s->advantages, order, count, &mean);
    for (size_t i = 0; i < count; i++) {
        size_t k = order[i];
        const void *action =
            s->choices ? (const void *)(s->choices + k) : (const void *)(s->boxes + k * s->box);
        exo_policy_output out;
        exo_policy_pass pass;
        exo_policy_forward(policy, s->observations + k * s->observation, &out, &pass);

        double by_log_prob, by_value;
        double log_ratio = exo_policy_log_prob(policy, &out, action) - (double)s->log_probs[k];
        double loss = exo_policy_loss_term(log_ratio, ((double)s->advantages[k] - mean) * scale,
                                           opts->clip, &by_log_prob);
        loss +=
            opts->value * exo_value_loss_term((double)out.value, (double)s->values[k],
                                              (double)s->targets[k], opts->value_clip, &by_value);
        float d_actions[EXO_POLICY_MAX_OUTPUTS];
        loss -= opts->entropy * action_gradient(policy, &out, action, by_log_prob, -opts->entropy,
                                                d_actions, gradient);
        exo_policy_backward(policy, &pass, d_actions, (float)(opts->value * by_value), gradient);
        total += loss;
    }
    return total;
}
