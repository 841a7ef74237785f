/* What a player of Kuhn poker sees: see kuhn_poker.h. */
#include "environments/kuhn_poker.h"

enum {
    /* Of an observation: the player and the card, one-hot, then the actions so far, one-hot. */
    PLAYER_AT = 0,
    CARD_AT = 2,
    ACTIONS_AT = 5
};
_Static_assert(EXO_KUHN_OBSERVATION == ACTIONS_AT + 2 * (EXO_KUHN_MAX_ACTIONS - 1),
               "the last action is not observed");

void
exo_kuhn_observe(const struct exo_kuhn_poker *g, float *observation)
{
    uint32_t mover = g->count % 2;
    for (size_t i = 0; i < EXO_KUHN_OBSERVATION; i++)
        observation[i] = 0;
    observation[PLAYER_AT + mover] = 1;
    observation[CARD_AT + g->cards[mover]] = 1;
    for (uint32_t i = 0; i < g->count && i + 1 < EXO_KUHN_MAX_ACTIONS; i++)
        observation[ACTIONS_AT + 2 * i + (uint32_t)g->actions[i]] = 1;
}
