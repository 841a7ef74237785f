/* Exact values of Kuhn poker for a policy that plays both players, by enumeration of all deals and
 * actions. */
#ifndef EXO_TEST_KUHN_H
#define EXO_TEST_KUHN_H

#include "actors/policy.h"

/* The probabilities of a bet: of the player who is first (0) or second (1), with a card, at its first
 * turn (0: nothing was done, or the first player passed) or after a bet (1). */
typedef struct kuhn_strategy {
    double bet[2][3][2];
} kuhn_strategy;

/* The strategy of a policy for the environment kuhn_poker. */
kuhn_strategy kuhn_strategy_of(const exo_environment_spec *spec, const exo_policy *policy);
/* What the first player wins in the mean. */
double kuhn_value(const kuhn_strategy *first, const kuhn_strategy *second);
/* What best responses to the strategy win in the mean, over both seats: 0 only in an equilibrium. */
double kuhn_exploitability(const kuhn_strategy *strategy);

#endif
