/* Kuhn poker: a game of three cards for two players (Kuhn, 1950, "A simplified two-person poker").
 * Each puts 1 into the pot and gets a card of 0, 1 and 2. In turn they pass or bet 1. After two
 * passes, or a bet and a call, the higher card wins the pot; who passes after a bet loses it. With
 * best play the first player wins -1/18 a game.
 *
 * Both players see the same kind of observation, so one policy can play both. Read next:
 * kuhn_observation.c, what they see, and kuhn_value.c, exact values of policies. */
#include "environments/kuhn_poker.h"

#include "environments/builtin.h"

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    uint32_t first = exo_rng_below(rng, 3), second = exo_rng_below(rng, 2);
    *(struct exo_kuhn_poker *)state =
        (struct exo_kuhn_poker){.cards = {first, second + (second >= first ? 1 : 0)}};
}

static uint32_t
player(const void *self, const void *state)
{
    (void)self;
    return ((const struct exo_kuhn_poker *)state)->count % 2;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    struct exo_kuhn_poker *g = state;
    uint32_t mover = player(self, state);
    bool after_bet = g->count > 0 && g->actions[g->count - 1] == EXO_KUHN_BET;
    bool ends = after_bet || (action.choice == EXO_KUHN_PASS && g->count > 0);
    g->actions[g->count++] = action.choice;
    rewards[0] = rewards[1] = 0;
    if (!ends)
        return EXO_EPISODE_GOES_ON;
    bool folds = after_bet && action.choice == EXO_KUHN_PASS;
    uint32_t winner = folds ? 1 - mover : g->cards[1] > g->cards[0] ? 1 : 0;
    float won = after_bet && !folds ? 2 : 1;
    rewards[winner] = won;
    rewards[1 - winner] = -won;
    return EXO_EPISODE_TERMINATED;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    exo_kuhn_observe(state, observation);
}

const exo_environment_class exo_kuhn_poker_class = {
    .name = "kuhn_poker",
    .help = "Kuhn poker: two players, three cards; 9 observations, 2 actions, value -1/18",
    .shape = {.observation = EXO_KUHN_OBSERVATION,
              .actions = 2,
              .players = 2,
              .state = sizeof(struct exo_kuhn_poker)},
    .begin = begin,
    .step = step,
    .observe = observe,
    .player = player,
    .evaluate_game = exo_kuhn_evaluate,
};
