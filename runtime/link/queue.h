/* What shares a rate: bits that come at known times, and pass one after another in the order of
 * these times.
 *
 * The time when something has passed is told when it is put in, and stays as it was told. What
 * comes earlier may still be put in afterwards, as a host asks about a message long before its
 * bytes get to the other side. It shares the rate with what it overtakes and cannot wait: of each
 * it waits for as much as it has itself. Whatever is put in after that waits for all of them. So
 * what is told too early is bounded by what overtakes, and is paid for later.
 *
 * It is the recursion of Lindley (1952, "The theory of queues with a single server"): done =
 * max(done of the one before, at) + bits / rate. A few arrivals ahead are kept one by one; of more,
 * those that are closest to each other are taken as one.
 *
 * Owner: the network, under its lock. */
#ifndef EXO_LINK_QUEUE_H
#define EXO_LINK_QUEUE_H

#include "link/rate.h"

typedef struct exo_link_arrival {
    exo_time at, done;
    double bits;
    uint32_t count; /* that were put in */
} exo_link_arrival;

/* Bits that pass beside everything else, evenly over a time: acknowledgements. */
typedef struct exo_link_load {
    exo_time from, until;
    double bits;
} exo_link_load;

enum {
    EXO_LINK_LOADS = 4
};

typedef struct exo_link_queue {
    exo_time free;  /* all before the first of arrivals has passed then */
    exo_time since; /* it has been busy since then, until `free`        */
    exo_time busy;  /* in sum                                           */
    uint32_t count, capacity;
    exo_link_arrival *arrivals; /* (capacity) in the order of `at`; the caller's */
    exo_link_load loads[EXO_LINK_LOADS];
} exo_link_queue;

/* When `bits` that come at `at` have passed; *start (may be NULL) is when the first of them does. A
 * `now` says that nothing comes earlier any more. NEVER is not kept: it holds up nobody. */
exo_time exo_link_queue_put(exo_link_queue *queue, const exo_link_path *path, exo_time now,
                            exo_time at, double bits, exo_time *start);
/* What is put in from now on shares the rate with the load while that lasts. */
void exo_link_queue_load(exo_link_queue *queue, exo_time now, exo_link_load load);
/* When all that comes until `at` has passed. */
exo_time exo_link_queue_done(const exo_link_queue *queue, exo_time at);
/* What was at work at time `t` was so, with others, until then: the end of the busy time that `t`
 * is in, or `t`. Of times that were asked about long ago only the last busy one is known. */
exo_time exo_link_queue_busy(exo_link_queue *queue, exo_time now, exo_time t);

#endif
