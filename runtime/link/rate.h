/* Rates that change by a schedule, and the time that bits take at them.
 *
 * Owner: the struct that contains the rate; nothing here locks. Read next: queue.h (shared rates),
 * link.c (the network). */
#ifndef EXO_LINK_RATE_H
#define EXO_LINK_RATE_H

#include "link/link.h"

#define EXO_LINK_NEVER INT64_MAX

enum {
    EXO_LINK_MAX_STAGES = 3
};

typedef struct exo_link_rate {
    /* bit/s; INFINITY: no limit, which a factor other than 0 does not change. An outage stops it,
     * too */
    double rate;
    exo_link_change *changes;
    size_t num_changes;
} exo_link_rate;

/* Checks a rate and its schedule. `what` names the rate in messages: "the rate up of host 'home'".
 * Errors: INVAL. */
exo_status exo_link_rate_check(double rate, const exo_link_change *changes, size_t num_changes,
                               const char *what, exo_err *err);
/* Copies a schedule that was checked. Errors: NOMEM. */
exo_status exo_link_rate_init(exo_link_rate *out, double rate, const exo_link_change *changes,
                              size_t num_changes, exo_err *err);
void exo_link_rate_release(exo_link_rate *rate);

/* Two sets of hosts between which nothing passes from `from` until `until`. */
typedef struct exo_link_partition {
    bool *side; /* (hosts) */
    exo_time from, until;
} exo_link_partition;

/* Stages that bits pass one after another. The slowest stage at each moment determines the rate. */
typedef struct exo_link_path {
    const exo_link_rate *rates[EXO_LINK_MAX_STAGES];
    /* delay of each stage after the path's beginning */
    exo_time shifts[EXO_LINK_MAX_STAGES];
    size_t num_rates;
    const exo_link_partition *partitions;
    size_t num_partitions;
    uint32_t from, to; /* hosts, for the partitions */
} exo_link_path;

/* The rate at time `t`; *edge (may be NULL) is the next time when it may change, or NEVER. */
double exo_link_path_rate(const exo_link_path *path, exo_time t, exo_time *edge);
/* Whether the rate ever changes. */
bool exo_link_path_changes(const exo_link_path *path);
/* The time when `bits` have passed that begin at `t`: the rate is integrated from change to change,
 * and the time is rounded up to a nanosecond. NEVER in an endless outage. Zero bits pass as soon as
 * the rate is above 0. */
exo_time exo_link_path_pass(const exo_link_path *path, exo_time t, double bits);

/* The sum of two times, at most NEVER. */
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
