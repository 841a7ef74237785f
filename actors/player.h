/* A player: it plays a vector of environments with a policy, and records rollouts. It is independent
 * of actors; maker.c is the actor that plays.
 *
 * All random numbers come from streams of the player's seed. Episode k of environment e begins from
 * the stream (seed, RESET, e, k), and the actions of rollout i are drawn from (seed, ACTION, 0, i).
 * So the rollouts of a player are determined by its seed and the policies that it was given.
 *
 * Owner: the caller, one thread at a time. Read next: rollout.h, the form of its output. */
#ifndef EXO_PLAYER_H
#define EXO_PLAYER_H

#include <exogym/status.h>

#include "actors/ppo.h"

typedef struct exo_player exo_player;

/* Makes a player, which the caller frees; the spec must outlive it. Errors: as
 * exo_environments_new. */
exo_status exo_player_new(exo_player **out, const exo_environment_spec *spec, size_t environments,
                          uint64_t seed, exo_err *err);
/* Frees *player and sets it to NULL; accepts NULL in it. */
void exo_player_free(exo_player **player);
/* Plays rollout->steps steps in each environment, from the state in which the last rollout ended.
 * When an episode ends, the next one begins. rollout->environments must be the player's number.
 * Every element of the rollout's arrays is written. */
void exo_player_play(exo_player *player, const exo_policy *policy, exo_rollout *rollout);

/* The returns of some episodes. */
typedef struct exo_evaluation {
    uint64_t episodes;
    double mean, deviation; /* the deviation's divisor is episodes - 1 */
} exo_evaluation;

/* Plays `episodes` episodes, one after the other, and computes the mean return, in a game that of
 * the first player. Episode k begins from the stream (seed, RESET, 0, k); actions are drawn from
 * (seed, ACTION, 0, 0), or the most probable ones if `best`. Errors: NOMEM. */
exo_status exo_evaluate(exo_evaluation *out, const exo_environment_spec *spec,
                        const exo_policy *policy, uint64_t episodes, bool best, uint64_t seed,
                        exo_err *err);

/* Whether policies have an exact value in the environment: it is a small game, whose episodes are
 * not truncated. */
bool exo_has_game_value(const exo_environment_spec *spec);
/* Computes that value. Only if there is one. */
void exo_evaluate_game(exo_game_value *out, const exo_environment_spec *spec,
                       const exo_policy *policy);

#endif
