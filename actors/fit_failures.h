/* Failures of hosts on the virtual clock, on the trainer's side: see docs/elastic.md. Between two
 * segments, in which no time passes, the trainer moves the nodes' clocks to the time at which they
 * go on. What a failure costs:
 *
 *   other runs   all stop. The work since the last checkpoint is repeated once all hosts are back
 *                and the run has started again. Its numbers would be the same, so only its time is
 *                counted again.
 *   elastic      a node leaves before the step in which its host fails, as far as the length of the
 *                last step tells. If the step is a meeting, the others wait until they know of it.
 *                The node gets the state of another one when its host is back: all wait for that.
 *   apart        the node takes the step again when its host is back; the others do not wait. The
 *                node does this itself (outages.h).
 *
 * Owner: the trainer's thread. Read next: fit_failures.c. */
#ifndef EXO_FIT_FAILURES_H
#define EXO_FIT_FAILURES_H

#include "actors/fit_members.h"

/* Makes run->failures, if hosts fail; the nodes are set up. NOMEM. */
exo_status exo_fit_failures_open(struct run *run, exo_err *err);
/* Frees it. Before exo_fit_elastic_close, and before the cast ends. */
void exo_fit_failures_close(struct run *run);

/* Before and after a segment. Both do nothing in a run without failures. PEER_LOST: all hosts have
 * failed, or too few nodes are left; FAILED: work is repeated again and again. */
exo_status exo_fit_before_failures(struct run *run, exo_err *err);
exo_status exo_fit_after_failures(struct run *run, exo_err *err);

/* The useful samples a second, as a part of those without failures; NaN: no host fails. */
double exo_fit_goodput(const struct run *run);
/* Sets the meters. */
void exo_fit_failures_count(const struct run *run, exo_meter *const meters[EXO_FIT_FAILURE_METERS]);

#endif
