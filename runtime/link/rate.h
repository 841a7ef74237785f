/* Rates that change by a schedule, and when so many bits have passed at them.
 *
 * Owner: whoever holds the rate; nothing here locks. Read next: queue.h (what shares a rate),
 * link.c (the network). */
#ifndef EXO_LINK_RATE_H
#define EXO_LINK_RATE_H

#include "link/link.h"

#define EXO_LINK_NEVER INT64_MAX

enum {
    EXO_LINK_MAX_STAGES = 3
};

typedef struct exo_link_rate {
    /* bit/s; INFINITY: no limit. Half of no limit is none, an outage stops it all the same */
    double rate;
    exo_link_change *changes;
    size_t num_changes;
} exo_link_rate;

/* `what` names the rate in messages: "the rate up of host 'home'". */
exo_status exo_link_rate_check(double rate, const exo_link_change *changes, size_t num_changes,
                               const char *what, exo_err *err);
/* Copies a schedule that was checked. NOMEM. */
exo_status exo_link_rate_init(exo_link_rate *out, double rate, const exo_link_change *changes,
                              size_t num_changes, exo_err *err);
void exo_link_rate_release(exo_link_rate *rate);

/* Hosts that nothing passes between: those of the side and the others. */
typedef struct exo_link_partition {
    bool *side; /* (hosts) */
    exo_time from, until;
} exo_link_partition;

/* What bits pass one after another, the slowest at any time being what counts. */
typedef struct exo_link_path {
    const exo_link_rate *rates[EXO_LINK_MAX_STAGES];
    /* a bit passes the stage so much later than the path's beginning */
    exo_time shifts[EXO_LINK_MAX_STAGES];
    size_t num_rates;
    const exo_link_partition *partitions;
    size_t num_partitions;
    uint32_t from, to; /* hosts, for the partitions */
} exo_link_path;

/* At time `t`; *edge (may be NULL) is when it may be another one next, or NEVER. */
double exo_link_path_rate(const exo_link_path *path, exo_time t, exo_time *edge);
/* Does it ever change? */
bool exo_link_path_changes(const exo_link_path *path);
/* When `bits` have passed that begin at `t`: the rate is integrated from change to change, and
 * rounded up to a nanosecond. NEVER if an outage has no end. No bits pass as soon as anything
 * does. */
exo_time exo_link_path_pass(const exo_link_path *path, exo_time t, double bits);

/* Sums of times, which end at NEVER. */
static inline exo_time
exo_link_later(exo_time t, exo_time by)
{
    return t > EXO_LINK_NEVER - by ? EXO_LINK_NEVER : t + by;
}

static inline exo_time
exo_link_max(exo_time a, exo_time b)
{
    return a > b ? a : b;
}

#endif
