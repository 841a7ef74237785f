/* What a trainer has learned from: the items, and the versions that it made of them. In a run's folder
 * it is two files of CSV, which `exogym explain` reads:
 *
 *   learned_ACTOR.csv    item, prompt, epoch, maker, answers, tokens, score, versions, caches, sent,
 *                        received, learned, version, turns
 *   versions_ACTOR.csv   version, time, sha256, items, score, loss, kl, ratio_off
 *
 * `versions` has the versions of the weights that the item's tokens were drawn with, as VERSION:TOKENS
 * for each run of equal ones, with spaces between; `caches` has the oldest versions of their caches.
 * Only tokens that the policy wrote are counted. `turns` has for each answer of a dialogue with a tool the tokens of
 * its turns and replies, as TURN+REPLY+TURN..., with spaces between answers.
 * `version` is the one that was made from the item. Times are seconds of the run's clock.
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_LEARNED_H
#define EXO_LEARNED_H

#include "base/table.h"
#include "experience/learner.h"

typedef struct exo_learned exo_learned;

/* Lengths of the two files. */
typedef struct exo_learned_mark {
    uint64_t items, versions;
} exo_learned_mark;

/* Opens the list of an actor in `folder`; NULL: no files. mark NULL: they begin empty; else they are
 * cut to these lengths. The caller closes it. DAMAGED: a file is shorter; IO, NOMEM. */
exo_status exo_learned_open(exo_learned **out, const char *folder, const char *actor,
                            const exo_learned_mark *mark, exo_err *err);
void exo_learned_close(exo_learned **learned);
/* Whether the files have these lengths, and their last line there is that of the learner's present
 * version. DAMAGED: they have not; NOT_FOUND, IO, NOMEM. */
exo_status exo_learned_check(const char *folder, const char *actor, const exo_learned_mark *mark,
                             const exo_learner *learner, exo_err *err);
/* Writes all lines to the disk. IO. */
exo_status exo_learned_flush(exo_learned *learned, exo_learned_mark *mark, exo_err *err);
/* One of the files, for exo_table_check. */
const exo_table *exo_learned_table(const exo_learned *learned);
/* Writes the lines of the items that the learner's present version was made from (count), and the
 * line of the version. `figures` is NULL for version 0. IO. */
exo_status exo_learned_write(exo_learned *learned, const exo_experience *items, size_t count,
                             exo_time now, const exo_learner *learner,
                             const exo_learner_figures *figures, exo_err *err);

#endif
