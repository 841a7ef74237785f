/* A team: the threads of one parallel loop run many small loops together. Waking and stopping the
 * threads for each small loop would take longer than the loops.
 *
 * Every member calls the same function, which calls exo_team_run for one loop after another. A
 * counter hands out a loop's items. When no item is left, a member spins until the items of other
 * members are done. It never waits for a member that has not started: one member alone runs
 * everything, and a late member finds all items done. No rule determines which member runs an
 * item. So each item writes to its own place, and the items do not depend on the number of
 * members.
 *
 * Owner: the thread that calls exo_team_go, one at a time. Read next: team.c. */
#ifndef EXO_CPU_TEAM_H
#define EXO_CPU_TEAM_H

#include <stddef.h>

#include <exogym/status.h>

typedef struct exo_team exo_team;

/* A team for at most `loops` loops in one exo_team_go. NOMEM. */
exo_status exo_team_new(exo_team **out, size_t loops, exo_err *err);
void exo_team_free(exo_team **team);

/* The progress of one member. Owner: its thread. */
typedef struct exo_member {
    exo_team *team;
    size_t loop; /* the number of its next loop */
} exo_member;

/* Calls body(context, member) on every compute thread, and blocks until all calls have returned.
 * For one calling thread at a time. */
void exo_team_go(exo_team *team, void (*body)(void *context, exo_member *member), void *context);
/* Runs item(context, i) for each i in [0, count), divided among the members. All members pass the
 * same item and count, and each its own context. Returns when all items are done. */
void exo_team_run(exo_member *member, size_t count, void (*item)(void *context, size_t index),
                  void *context);

#endif
