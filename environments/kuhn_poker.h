/* Kuhn poker: the state of its episodes, and the exact value of a policy that plays both players, by
 * enumeration of all deals and actions. Pure functions, any thread. */
#ifndef EXO_ENVIRONMENTS_KUHN_POKER_H
#define EXO_ENVIRONMENTS_KUHN_POKER_H

#include <exogym/environment.h>

enum {
    EXO_KUHN_PASS,
    EXO_KUHN_BET,
    EXO_KUHN_MAX_ACTIONS = 3,
    EXO_KUHN_OBSERVATION = 9
};

struct exo_kuhn_poker {
    uint32_t cards[2];
    uint32_t count;                        /* of actions */
    int32_t actions[EXO_KUHN_MAX_ACTIONS]; /* (count) */
};

/* The probabilities of a bet: of the player who is first (0) or second (1), with a card, at its first
 * turn (0: nothing was done, or the first player passed) or after a bet (1). */
typedef struct exo_kuhn_strategy {
    double bet[2][3][2];
} exo_kuhn_strategy;

/* Writes the observation (EXO_KUHN_OBSERVATION) of the player whose turn it is. */
void exo_kuhn_observe(const struct exo_kuhn_poker *game, float *observation);
/* The strategy of a policy: its probabilities in the game's twelve situations. */
exo_kuhn_strategy exo_kuhn_strategy_of(const exo_environment_policy *policy);
/* What the first player wins a game in the mean. */
double exo_kuhn_value(const exo_kuhn_strategy *first, const exo_kuhn_strategy *second);
/* What best responses to the strategy win a game, mean over both seats: NashConv / 2 (Lanctot et al.,
 * 2017, arXiv:1711.00832). It is 0 only in an equilibrium. */
double exo_kuhn_exploitability(const exo_kuhn_strategy *strategy);
/* `evaluate_game` of the class. */
void exo_kuhn_evaluate(const void *self, const exo_environment_policy *policy, exo_game_value *out);

#endif
