/* A team: the threads of one parallel loop that go through many small loops together, without the waking and sleeping that a parallel loop of
 * its own would cost each of them.
 *
 * Every member calls the same function, which calls exo_team_run for one loop after the other. Items are handed out by a counter; a member that
 * finds none left waits, spinning, for the items that other members have taken, never for a member that has not come: one member alone does
 * everything, and one that comes late finds it done. Which member runs which item is not determined, so items write to places of their own,
 * and what they are does not depend on the number of members. */
#ifndef EXO_GENERATE_TEAM_H
#define EXO_GENERATE_TEAM_H

#include <stddef.h>

#include <exogym/status.h>

typedef struct exo_team exo_team;

/* For at most `loops` loops in one go. */
exo_status exo_team_new(exo_team **out, size_t loops, exo_err *err);
void exo_team_free(exo_team **team);

/* One member's way through the loops: its own. */
typedef struct exo_member {
    exo_team *team;
    size_t loop; /* the next one's number */
} exo_member;

/* Calls body(context, member) on every thread that computes, and returns when all are through. One thread at a time. */
void exo_team_go(exo_team *team, void (*body)(void *context, exo_member *member), void *context);
/* Runs item(context, i) for every i in [0, count); all members pass the same. Returns when all of them are done. */
void exo_team_run(exo_member *member, size_t count, void (*item)(void *context, size_t index),
                  void *context);

#endif
