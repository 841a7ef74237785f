/* Rollouts and policies as items. docs/environments.md has the table of arrays.
 *
 * Pure functions over the caller's memory, any thread. Read next: ppo.h, the arrays of a
 * rollout. */
#ifndef EXO_ROLLOUT_H
#define EXO_ROLLOUT_H

#include <exogym/graph.h>

#include "actors/ppo.h"

enum {
    EXO_ROLLOUT_PARTS = 10,          /* the most arrays; with one player, there is one less */
    EXO_ROLLOUT_MAX_STEPS = 1 << 20, /* T N */
    EXO_RETURN_WINDOW = 100          /* number of episodes of a mean return */
};

/* Writes the types and counts of an item's arrays for T steps in N environments of this shape, for
 * exo_item_new, and returns the number of arrays. */
size_t exo_rollout_parts(const exo_environment_shape *shape, size_t steps, size_t environments,
                         exo_item_part parts[EXO_ROLLOUT_PARTS]);
/* Views an item as a rollout of this shape without a copy; *out is valid as long as the item. T and
 * N follow from the counts. INVAL: the counts are inconsistent, an action, a done or a player is out
 * of range, or a number is not finite. */
exo_status exo_rollout_view(exo_rollout *out, const exo_item *item,
                            const exo_environment_shape *shape, exo_err *err);
/* Copies the parameters in an item to `policy`. INVAL: they are not those of its shape. */
exo_status exo_policy_read(const exo_policy *policy, const exo_item *item, exo_err *err);

/* The returns of the last EXO_RETURN_WINDOW episodes. A zero-initialized struct has none. */
typedef struct exo_returns {
    double last[EXO_RETURN_WINDOW];
    uint64_t count; /* number of returns ever added */
} exo_returns;

/* Adds the returns of the episodes that ended in a rollout. */
void exo_returns_add(exo_returns *returns, const exo_rollout *rollout);
/* Returns the number of returns in the window; *sum gets their sum. */
size_t exo_returns_sum(const exo_returns *returns, double *sum);

#endif
