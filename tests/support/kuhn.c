/* Exact values of Kuhn poker: see kuhn.h. */
#include "support/kuhn.h"

#include <math.h>
#include <string.h>

#include "environments/spec.h"

/* The state of environments/kuhn_poker.c. */
struct state {
    uint32_t cards[2], count;
    int32_t actions[3];
};

kuhn_strategy
kuhn_strategy_of(const exo_environment_spec *spec, const exo_policy *policy)
{
    kuhn_strategy strategy;
    for (uint32_t player = 0; player < 2; player++)
        for (uint32_t card = 0; card < 3; card++)
            for (int bet = 0; bet < 2; bet++) {
                struct state state = {.count = player};
                float observation[16];
                exo_policy_output out;
                state.cards[player] = card;
                if (player == 1)
                    state.actions[0] = bet;
                else if (bet)
                    state = (struct state){
                        .cards = {card}, .count = 2, .actions = {0, 1}}; /* pass, bet */
                spec->environment_class->observe(spec->self, &state, observation);
                exo_policy_forward(policy, observation, &out, NULL);
                strategy.bet[player][card][bet] = exp((double)out.actions[1]);
            }
    return strategy;
}

double
kuhn_value(const kuhn_strategy *first, const kuhn_strategy *second)
{
    double sum = 0;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
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
    return sum / 6;
}

/* The deterministic strategy number `index` of 64. */
static kuhn_strategy
pure(unsigned index)
{
    kuhn_strategy strategy = {0};
    for (unsigned i = 0; i < 6; i++)
        strategy.bet[0][i / 2][i % 2] = strategy.bet[1][i / 2][i % 2] = index >> i & 1;
    return strategy;
}

double
kuhn_exploitability(const kuhn_strategy *strategy)
{
    double as_first = -INFINITY, as_second = -INFINITY;
    for (unsigned i = 0; i < 64; i++) {
        kuhn_strategy response = pure(i);
        as_first = fmax(as_first, kuhn_value(&response, strategy));
        as_second = fmax(as_second, -kuhn_value(strategy, &response));
    }
    return (as_first + as_second) / 2;
}
