/* The next life of an actor whose run has failed, in a process with all actors of the graph. The
 * actor's own thread begins it, in the same place and, on the virtual clock, in the same lane, so
 * that virtual time does not depend on threads. Read next: rebirth.c, lives.h, relink.c. */
#ifndef EXO_GRAPH_REBIRTH_H
#define EXO_GRAPH_REBIRTH_H

#include "graph/lives.h"
#include "graph/place.h"

/* Whether the actor whose run failed with `status` gets another life; *wait: the time until then.
 * Members of its collectives are told to end their lives, and their failures count as one actor's; other
 * actors have `births` of their own. On the actor's thread. */
bool exo_rebirth_due(exo_place *place, exo_births *births, exo_status status, exo_err *reason,
                     exo_time *wait);
/* Waits, begins the channels anew at both ends, and forms the collectives again with the other
 * members, which do the same. On the actor's thread. Errors: CANCELLED: the run ends; CLOSED: another
 * member has ended well, so that the collectives cannot be formed; NOMEM. */
exo_status exo_rebirth_begin(exo_place *place, exo_ref self, exo_time wait, exo_err *err);
/* Ends the present life of a place because another member of its collectives has failed. Any thread,
 * while the actor lives. */
void exo_rebirth_end_life(exo_place *place, const char *cause);

#endif
