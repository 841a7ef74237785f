/* Splits: two actors of a graph in workers that live, and whose processes have lost each other. The
 * runner and the head reach both, so neither counts as dead. But what was on its way between the two
 * does not come any more, and their references to each other lead nowhere.
 *
 * They are found in the records of waits (stall.h) of two gatherings: an actor that waits has lost
 * another one in both, and the other one has answered in the second. So it was alive after it was
 * lost. An actor that has died does not answer, and the runner hears of its death.
 *
 * Owner of records: the caller that gathered them. No other state. Read next: watch.h, run.c. */
#ifndef EXO_GRAPH_SPLIT_H
#define EXO_GRAPH_SPLIT_H

#include "graph/stall.h"

typedef struct exo_split {
    bool found;
    uint32_t actor, peer; /* of the two, `actor` has more ends of channels that are split */
} exo_split;

/* Whether an actor has lost another one, dead or alive. Records (count) of actors that do not wait, or
 * have not answered, are empty. */
bool exo_split_may_be(const exo_payload *records, uint32_t count);
/* Finds a split in two gatherings. answered (count): the actors that have answered in the second.
 * scratch (count) is written. */
exo_split exo_split_find(const exo_payload *before, const exo_payload *after, const bool *answered,
                         uint32_t count, uint32_t *scratch);
/* The same two, first the one that begins another life: that with a restart rule, if the other one has
 * none. */
exo_split exo_split_for_rules(exo_split split, bool actor_has_rule, bool peer_has_rule);

#endif
