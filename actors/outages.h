/* When the host of a node fails on the virtual clock: exo_failures of the options. The times follow
 * from the seed, the host and the number of the failure alone: the time up to the next failure is
 * exponentially distributed, the time of a repair is constant.
 *
 * Plain values. Owner: one thread at a time. Read next: fit_failures.h. */
#ifndef EXO_ACTORS_OUTAGES_H
#define EXO_ACTORS_OUTAGES_H

#include <exogym/trainer.h>

#include "base/pace.h"

/* Failures after which a piece of work is taken for one that never ends. */
enum {
    EXO_OUTAGES_MOST = 100000
};

typedef struct exo_outages {
    exo_failures failures;
    uint32_t host;
    uint64_t drawn;
    exo_time down, up; /* the next failure, or the present one; INT64_MAX: never */
    uint64_t count;    /* failures that have cost the node time */
    exo_time lost;     /* the node's time in this process's part of the run that led to nothing */
} exo_outages;

/* Begins with the first failure that is not over at `now`. */
exo_outages exo_outages_begin(const exo_failures *failures, uint32_t host, exo_time now);
/* Goes on to the next failure. */
void exo_outages_next(exo_outages *outages);
/* For a node that waits for no other one, after a step that it began at `began`: lets the time pass
 * that its host was down. A step in which it failed is taken again from its beginning. On the thread
 * of the pace. FAILED: the step has failed EXO_OUTAGES_MOST times. */
exo_status exo_outages_pass(exo_outages *outages, exo_pace *pace, exo_time began, exo_err *err);

#endif
