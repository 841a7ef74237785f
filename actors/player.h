/* Plays: environments, a policy, and what came of it. No actor stuff; an actor that plays is maker.c.
 *
 * Owner: the caller, one thread at a time. All draws come from streams of the player's seed: the k-th episode of environment e begins as
 * (seed, RESET, e, k) says, and the actions of the i-th rollout are drawn from (seed, ACTION, 0, i). So a player's rollouts follow from
 * its seed and the policies that it was given. Read next: rollout.h, what it writes. */
#ifndef EXO_PLAYER_H
#define EXO_PLAYER_H

#include <exogym/status.h>

#include "actors/ppo.h"

enum {
    EXO_PLAYER_MAX_ENVIRONMENTS = 4096
};

typedef struct exo_player exo_player;

/* INVAL: no environments, or too many. */
exo_status exo_player_new(exo_player **out, size_t environments, uint64_t seed, exo_err *err);
void exo_player_free(exo_player **player);
/* Plays rollout->steps steps in each environment, and goes on where the last rollout ended; an episode that ends is followed by the next.
 * rollout->environments is the player's; every element of the arrays is written. */
void exo_player_play(exo_player *player, const exo_policy *policy, exo_rollout *rollout);

#endif
