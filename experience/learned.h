/* What a trainer has learned from: which items it has learned from, and the versions that it made of them.
 * It refuses an item twice. In a run's folder it is two files of CSV, which `exogym explain` reads:
 *
 *   learned_ACTOR.csv    item, prompt, epoch, maker, answers, tokens, score, versions, caches, sent,
 *                        received, learned, version
 *   versions_ACTOR.csv   version, time, sha256, items, score, loss, kl, ratio_off
 *
 * `versions` has the versions of the weights that the item's tokens were drawn with, as VERSION:TOKENS
 * for each run of equal ones, with spaces between; `caches` has the oldest versions of their caches.
 * `version` is the one that was made from the item. Times are seconds of the run's clock.
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_LEARNED_H
#define EXO_LEARNED_H

#include "experience/learner.h"

typedef struct exo_learned exo_learned;

/* Opens the list of an actor in `folder`; NULL: no files. The caller closes it. IO, NOMEM. */
exo_status exo_learned_open(exo_learned **out, const char *folder, const char *actor, exo_err *err);
void exo_learned_close(exo_learned **learned);

/* Whether the item is new; if so, it is no longer. NOMEM: *is_new is not written. */
exo_status exo_learned_claim(exo_learned *learned, uint64_t item, bool *is_new, exo_err *err);
/* Writes the lines of the items that the learner's present version was made from (count), and the
 * line of the version. `figures` is NULL for version 0. IO. */
exo_status exo_learned_write(exo_learned *learned, const exo_experience *items, size_t count,
                             exo_time now, const exo_learner *learner,
                             const exo_learner_figures *figures, exo_err *err);

#endif
