/* Plays environments: see player.h. */
#include "actors/player.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

struct exo_player {
    exo_environments *vector;
    exo_environment_shape shape;
    size_t environments;
    uint64_t seed, rollouts;
    double *returns; /* (environments) of the current episodes so far, of the first player */
    float *finals;   /* (environments, observation) last ones of episodes that ended */
};

exo_status
exo_player_new(exo_player **out, const exo_environment_spec *spec, size_t environments,
               uint64_t seed, exo_err *err)
{
    const exo_environment_shape *shape = exo_environment_spec_shape(spec);
    exo_environments *vector = NULL;
    exo_status st = exo_environments_new(&vector, spec, environments, seed, err);
    if (st != EXO_OK)
        return st;
    exo_player *player = exo_calloc(1, sizeof *player);
    if (player) {
        player->vector = vector;
        player->returns = exo_calloc(environments, sizeof *player->returns);
        player->finals = exo_calloc(environments, shape->observation * sizeof(float));
    } else {
        exo_environments_free(&vector);
    }
    if (!player || !player->returns || !player->finals) {
        exo_player_free(&player);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu environments", environments);
    }
    player->shape = *shape;
    player->environments = environments;
    player->seed = seed;
    *out = player;
    return EXO_OK;
}

void
exo_player_free(exo_player **player)
{
    if (!*player)
        return;
    exo_environments_free(&(*player)->vector);
    exo_free((*player)->returns);
    exo_free((*player)->finals);
    exo_free(*player);
    *player = NULL;
}

/* Chooses the actions of step `t`. */
static void
choose(const exo_player *player, const exo_policy *policy, exo_rng *rng, exo_rollout *r, size_t t)
{
    const exo_environment_shape *shape = &player->shape;
    for (size_t e = 0; e < player->environments; e++) {
        size_t i = t * player->environments + e;
        exo_policy_output out;
        exo_policy_forward(policy, r->observations + i * shape->observation, &out, NULL);
        r->log_probs[i] = exo_policy_sample(policy, &out, rng, exo_rollout_action(r, i));
        r->values[i] = out.value;
    }
}

/* Writes what follows from the rewards and ends of step `t`. */
static void
settle(exo_player *player, const exo_policy *policy, exo_rollout *r, size_t t)
{
    const exo_environment_shape *shape = &player->shape;
    for (size_t e = 0; e < player->environments; e++) {
        size_t i = t * player->environments + e;
        player->returns[e] += (double)r->rewards[i * shape->players];
        r->returns[i] = r->final_values[i] = 0;
        if (r->dones[i] == EXO_EPISODE_GOES_ON)
            continue;
        r->returns[i] = (float)player->returns[e];
        player->returns[e] = 0;
        if (r->dones[i] == EXO_EPISODE_TRUNCATED) {
            exo_policy_output out;
            exo_policy_forward(policy, player->finals + e * shape->observation, &out, NULL);
            r->final_values[i] = out.value;
        }
    }
}

void
exo_player_play(exo_player *player, const exo_policy *policy, exo_rollout *r)
{
    const size_t n = player->environments, observation = player->shape.observation;
    exo_rng rng;
    exo_rng_init(&rng, player->seed, EXO_RNG_ACTION, 0, player->rollouts++);
    for (size_t t = 0; t < r->steps; t++) {
        exo_environments_observe(player->vector, r->observations + t * n * observation);
        if (r->players)
            exo_environments_players(player->vector, r->players + t * n);
        choose(player, policy, &rng, r, t);
        exo_environments_step(player->vector, exo_rollout_action(r, t * n),
                              r->rewards + t * n * player->shape.players, r->dones + t * n,
                              player->finals);
        settle(player, policy, r, t);
    }
    if (r->players)
        exo_environments_players(player->vector, r->players + r->steps * n);
    exo_environments_observe(player->vector, player->finals);
    for (size_t e = 0; e < n; e++) {
        exo_policy_output out;
        exo_policy_forward(policy, player->finals + e * observation, &out, NULL);
        r->bootstrap[e] = out.value;
    }
}

/* --- Evaluation ------------------------------------------------------------------------------- */

/* Plays one episode to its end and returns its return. */
static double
play_episode(exo_environments *vector, const exo_policy *policy, bool best, exo_rng *rng)
{
    float observation[EXO_ENVIRONMENT_MAX_OBSERVATION], rewards[EXO_ENVIRONMENT_MAX_PLAYERS];
    float box[EXO_ENVIRONMENT_MAX_ACTIONS];
    double sum = 0;
    uint8_t end;
    do {
        int32_t choice;
        void *action = policy->shape.box ? (void *)box : &choice;
        exo_policy_output out;
        exo_environments_observe(vector, observation);
        exo_policy_forward(policy, observation, &out, NULL);
        if (best)
            exo_policy_best(policy, &out, action);
        else
            exo_policy_sample(policy, &out, rng, action);
        exo_environments_step(vector, action, rewards, &end, NULL);
        sum += (double)rewards[0];
    } while (end == EXO_EPISODE_GOES_ON);
    return sum;
}

exo_status
exo_evaluate(exo_evaluation *out, const exo_environment_spec *spec, const exo_policy *policy,
             uint64_t episodes, bool best, uint64_t seed, exo_err *err)
{
    exo_environments *vector = NULL;
    exo_rng rng;
    exo_status st = exo_environments_new(&vector, spec, 1, seed, err);
    if (st != EXO_OK)
        return st;
    exo_rng_init(&rng, seed, EXO_RNG_ACTION, 0, 0);
    /* Welford's recurrence of mean and variance. */
    double mean = 0, squares = 0;
    for (uint64_t k = 0; k < episodes; k++) {
        double value = play_episode(vector, policy, best, &rng), off = value - mean;
        mean += off / (double)(k + 1);
        squares += off * (value - mean);
    }
    *out = (exo_evaluation){.episodes = episodes, .mean = mean};
    if (episodes > 1)
        out->deviation = sqrt(squares / (double)(episodes - 1));
    exo_environments_free(&vector);
    return EXO_OK;
}

/* --- Games with an exact value ---------------------------------------------------------------- */

bool
exo_has_game_value(const exo_environment_spec *spec)
{
    return exo_environment_spec_evaluate_game(spec, NULL, NULL);
}

static void
probabilities(const void *context, const float *observation, double *out)
{
    const exo_policy *policy = context;
    exo_policy_output output;
    exo_policy_forward(policy, observation, &output, NULL);
    for (size_t a = 0; a < policy->shape.outputs; a++)
        out[a] = exp((double)output.actions[a]);
}

void
exo_evaluate_game(exo_game_value *out, const exo_environment_spec *spec, const exo_policy *policy)
{
    const exo_environment_policy seen = {.probabilities = probabilities, .context = policy};
    exo_environment_spec_evaluate_game(spec, &seen, out);
}
