/* Plays CartPole: see player.h. */
#include "actors/player.h"

#include <exogym/memory.h>

struct place {
    exo_cartpole cartpole;
    uint64_t episode; /* index of the next episode */
    float returned;   /* return of the current episode so far */
};

struct exo_player {
    size_t environments;
    uint64_t seed, rollouts;
    struct place *places; /* (environments) */
};

static void
begin_episode(exo_player *player, size_t environment)
{
    struct place *place = &player->places[environment];
    exo_rng rng;
    exo_rng_init(&rng, player->seed, EXO_RNG_RESET, (uint32_t)environment, place->episode++);
    exo_cartpole_reset(&place->cartpole, &rng);
    place->returned = 0;
}

exo_status
exo_player_new(exo_player **out, size_t environments, uint64_t seed, exo_err *err)
{
    if (environments < 1 || environments > EXO_PLAYER_MAX_ENVIRONMENTS)
        return exo_fail(err, EXO_INVAL, "a player has 1 to %d environments, not %zu",
                        EXO_PLAYER_MAX_ENVIRONMENTS, environments);
    exo_player *player = exo_calloc(1, sizeof *player);
    if (player)
        player->places = exo_calloc(environments, sizeof *player->places);
    if (!player || !player->places) {
        exo_player_free(&player);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu environments", environments);
    }
    player->environments = environments;
    player->seed = seed;
    for (size_t e = 0; e < environments; e++)
        begin_episode(player, e);
    *out = player;
    return EXO_OK;
}

void
exo_player_free(exo_player **player)
{
    if (!*player)
        return;
    exo_free((*player)->places);
    exo_free(*player);
    *player = NULL;
}

static float
value_now(const exo_policy *policy, const exo_cartpole *cartpole)
{
    float observation[EXO_CARTPOLE_OBSERVATION];
    exo_policy_output out;
    exo_cartpole_observe(cartpole, observation);
    exo_policy_forward(policy, observation, &out, NULL);
    return out.value;
}

/* Plays one step in one environment and writes it at index `i` of the arrays. */
static void
play_step(exo_player *player, const exo_policy *policy, size_t environment, exo_rng *rng,
          exo_rollout *r, size_t i)
{
    struct place *place = &player->places[environment];
    float *observation = r->observations + i * EXO_CARTPOLE_OBSERVATION;
    exo_policy_output out;
    exo_cartpole_observe(&place->cartpole, observation);
    exo_policy_forward(policy, observation, &out, NULL);
    int action = exo_policy_sample(&out, rng);
    exo_cartpole_end end = exo_cartpole_step(&place->cartpole, action);
    place->returned += 1;

    r->actions[i] = action;
    r->log_probs[i] = out.log_probs[action];
    r->values[i] = out.value;
    r->rewards[i] = 1;
    r->dones[i] = (uint8_t)end;
    r->final_values[i] = end == EXO_CARTPOLE_TRUNCATED ? value_now(policy, &place->cartpole) : 0;
    r->returns[i] = end == EXO_CARTPOLE_GOES_ON ? 0 : place->returned;
    if (end != EXO_CARTPOLE_GOES_ON)
        begin_episode(player, environment);
}

void
exo_player_play(exo_player *player, const exo_policy *policy, exo_rollout *rollout)
{
    exo_rng rng;
    exo_rng_init(&rng, player->seed, EXO_RNG_ACTION, 0, player->rollouts++);
    for (size_t t = 0; t < rollout->steps; t++)
        for (size_t e = 0; e < player->environments; e++)
            play_step(player, policy, e, &rng, rollout, t * player->environments + e);
    for (size_t e = 0; e < player->environments; e++)
        rollout->bootstrap[e] = value_now(policy, &player->places[e].cartpole);
}
