/* Kuhn poker: a game of three cards for two players (Kuhn, 1950, "A simplified two-person poker").
 * Each puts 1 into the pot and gets a card of 0, 1 and 2. In turn they pass or bet 1. After two
 * passes, or a bet and a call, the higher card wins the pot; who passes after a bet loses it. With
 * best play the first player wins -1/18 a game.
 *
 * Both players see the same kind of observation, so one policy can play both. Read next:
 * docs/environments.md. */
#include "environments/builtin.h"

enum {
    PASS,
    BET,
    /* Of an observation: the player and the card, one-hot, then the actions so far, one-hot. */
    PLAYER_AT = 0,
    CARD_AT = 2,
    ACTIONS_AT = 5,
    MOST_ACTIONS = 3,
    OBSERVATION = ACTIONS_AT + 2 * (MOST_ACTIONS - 1)
};

struct kuhn_poker {
    uint32_t cards[2];
    uint32_t count;                /* of actions */
    int32_t actions[MOST_ACTIONS]; /* (count) */
};

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    uint32_t first = exo_rng_below(rng, 3), second = exo_rng_below(rng, 2);
    *(struct kuhn_poker *)state =
        (struct kuhn_poker){.cards = {first, second + (second >= first ? 1 : 0)}};
}

static uint32_t
player(const void *self, const void *state)
{
    (void)self;
    return ((const struct kuhn_poker *)state)->count % 2;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    struct kuhn_poker *g = state;
    uint32_t mover = player(self, state);
    bool after_bet = g->count > 0 && g->actions[g->count - 1] == BET;
    bool ends = after_bet || (action.choice == PASS && g->count > 0);
    g->actions[g->count++] = action.choice;
    rewards[0] = rewards[1] = 0;
    if (!ends)
        return EXO_EPISODE_GOES_ON;
    bool folds = after_bet && action.choice == PASS;
    uint32_t winner = folds ? 1 - mover : g->cards[1] > g->cards[0] ? 1 : 0;
    float won = after_bet && !folds ? 2 : 1;
    rewards[winner] = won;
    rewards[1 - winner] = -won;
    return EXO_EPISODE_TERMINATED;
}

static void
observe(const void *self, const void *state, float *observation)
{
    const struct kuhn_poker *g = state;
    uint32_t mover = player(self, state);
    for (size_t i = 0; i < OBSERVATION; i++)
        observation[i] = 0;
    observation[PLAYER_AT + mover] = 1;
    observation[CARD_AT + g->cards[mover]] = 1;
    for (uint32_t i = 0; i < g->count && i + 1 < MOST_ACTIONS; i++)
        observation[ACTIONS_AT + 2 * i + (uint32_t)g->actions[i]] = 1;
}

const exo_environment_class exo_kuhn_poker_class = {
    .name = "kuhn_poker",
    .help = "Kuhn poker: two players, three cards; 9 observations, 2 actions, value -1/18",
    .shape = {.observation = OBSERVATION,
              .actions = 2,
              .players = 2,
              .state = sizeof(struct kuhn_poker)},
    .begin = begin,
    .step = step,
    .observe = observe,
    .player = player,
};
