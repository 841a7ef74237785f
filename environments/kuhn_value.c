/* Exact values of Kuhn poker: see kuhn_poker.h. */
#include "environments/kuhn_poker.h"

#include <math.h>

enum {
    CARDS = 3,
    SITUATIONS = 6, /* of a player: its cards, at its first turn and after a bet */
    PURE = 1 << SITUATIONS
};

/* The beginning of an episode in which `player` has `card` and it is its turn: its first one, or one
 * after a bet. */
static struct exo_kuhn_poker
situation(uint32_t player, uint32_t card, bool after_bet)
{
    struct exo_kuhn_poker game = {.count = player};
    game.cards[player] = card;
    game.cards[1 - player] = (card + 1) % CARDS;
    if (player == 1) {
        game.actions[0] = after_bet ? EXO_KUHN_BET : EXO_KUHN_PASS;
    } else if (after_bet) {
        game.count = 2;
        game.actions[0] = EXO_KUHN_PASS;
        game.actions[1] = EXO_KUHN_BET;
    }
    return game;
}

exo_kuhn_strategy
exo_kuhn_strategy_of(const exo_environment_policy *policy)
{
    exo_kuhn_strategy strategy;
    for (uint32_t player = 0; player < 2; player++)
        for (uint32_t card = 0; card < CARDS; card++)
            for (int after_bet = 0; after_bet < 2; after_bet++) {
                struct exo_kuhn_poker game = situation(player, card, after_bet);
                float observation[EXO_KUHN_OBSERVATION];
                double probabilities[2];
                exo_kuhn_observe(&game, observation);
                policy->probabilities(policy->context, observation, probabilities);
                strategy.bet[player][card][after_bet] = probabilities[EXO_KUHN_BET];
            }
    return strategy;
}

double
exo_kuhn_value(const exo_kuhn_strategy *first, const exo_kuhn_strategy *second)
{
    double sum = 0;
    for (int a = 0; a < CARDS; a++)
        for (int b = 0; b < CARDS; b++) {
            if (a == b)
                continue;
            double higher = a > b ? 1 : -1;
            double bets = first->bet[0][a][0], calls = second->bet[1][b][1];
            double raises = second->bet[1][b][0], answers = first->bet[0][a][1];
            double after_bet = calls * 2 * higher + (1 - calls) * 1;
            double after_raise = answers * 2 * higher - (1 - answers) * 1;
            double after_pass = raises * after_raise + (1 - raises) * higher;
            sum += bets * after_bet + (1 - bets) * after_pass;
        }
    return sum / (CARDS * (CARDS - 1));
}

/* The deterministic strategy number `index` of PURE. */
static exo_kuhn_strategy
pure(unsigned index)
{
    exo_kuhn_strategy strategy = {0};
    for (unsigned i = 0; i < SITUATIONS; i++)
        strategy.bet[0][i / 2][i % 2] = strategy.bet[1][i / 2][i % 2] = index >> i & 1;
    return strategy;
}

double
exo_kuhn_exploitability(const exo_kuhn_strategy *strategy)
{
    double as_first = -INFINITY, as_second = -INFINITY;
    for (unsigned i = 0; i < PURE; i++) {
        exo_kuhn_strategy response = pure(i);
        as_first = fmax(as_first, exo_kuhn_value(&response, strategy));
        as_second = fmax(as_second, -exo_kuhn_value(strategy, &response));
    }
    return (as_first + as_second) / 2;
}

void
exo_kuhn_evaluate(const void *self, const exo_environment_policy *policy, exo_game_value *out)
{
    (void)self;
    exo_kuhn_strategy strategy = exo_kuhn_strategy_of(policy);
    *out = (exo_game_value){.value = exo_kuhn_value(&strategy, &strategy),
                            .exploitability = exo_kuhn_exploitability(&strategy)};
}
