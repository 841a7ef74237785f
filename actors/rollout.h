/* Rollouts as items: what goes over an edge of the type "cartpole experience", and what has come over it. And policies as items, of the
 * type "cartpole parameters". docs/cartpole.md has the table of arrays.
 *
 * Pure functions over the caller's memory, any thread. The arrays of a rollout are in ppo.h. */
#ifndef EXO_ROLLOUT_H
#define EXO_ROLLOUT_H

#include <exogym/graph.h>

#include "actors/ppo.h"

enum {
    EXO_ROLLOUT_PARTS = 9,
    EXO_ROLLOUT_MAX_STEPS = 1 << 20, /* T N */
    EXO_RETURN_WINDOW = 100          /* episodes that a mean return is over */
};

/* Types and counts of the arrays of an item for T steps in N environments, for exo_item_new. */
void exo_rollout_parts(size_t steps, size_t environments, exo_item_part parts[EXO_ROLLOUT_PARTS]);
/* `out` is the item's arrays, not copied: valid as long as the item. T and N follow from the counts. INVAL: they do not fit to each other,
 * or actions or dones are none. */
exo_status exo_rollout_view(exo_rollout *out, const exo_item *item, exo_err *err);
/* Copies the policy that is in an item. INVAL: it is none. */
exo_status exo_policy_read(exo_policy *out, const exo_item *item, exo_err *err);

/* The returns of the last 100 episodes. Zero-initialized: none. */
typedef struct exo_returns {
    double last[EXO_RETURN_WINDOW];
    uint64_t count; /* that ever came */
} exo_returns;

/* Adds those of the episodes that ended in a rollout. */
void exo_returns_add(exo_returns *returns, const exo_rollout *rollout);
/* How many of the last there are, and their sum. */
size_t exo_returns_sum(const exo_returns *returns, double *sum);

#endif
