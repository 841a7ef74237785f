/* A queue for a shared rate: bits arrive at known times and pass one after another in the order of
 * these times.
 *
 * exo_link_queue_put returns the time when the bits have passed, and that time is final. Bits with
 * an earlier arrival may still be put in afterwards, because a host requests a message long before
 * its bytes reach the other side. They overtake bits whose times are final, so they share the rate
 * with these: for each overtaken arrival they wait for as many bits as their own. Later puts wait
 * for all of them. So the error of a final time is bounded by the bits that overtake, and later
 * puts pay for it.
 *
 * The recursion is Lindley's (1952, "The theory of queues with a single server"): done = max(done
 * of the previous arrival, at) + bits / rate. A few future arrivals are kept one by one; beyond the
 * capacity, the two closest neighbours are joined.
 *
 * Owner: the network, under its lock. */
#ifndef EXO_LINK_QUEUE_H
#define EXO_LINK_QUEUE_H

#include "link/rate.h"

typedef struct exo_link_arrival {
    exo_time at, done;
    double bits;
    uint32_t count; /* number of arrivals joined here */
} exo_link_arrival;

/* Bits that pass evenly over a time, beside everything else: acknowledgements. */
typedef struct exo_link_load {
    exo_time from, until;
    double bits;
} exo_link_load;

enum {
    EXO_LINK_LOADS = 4
};

typedef struct exo_link_queue {
    exo_time free;  /* time when all before the first kept arrival has passed */
    exo_time since; /* beginning of the busy time that ends at `free` */
    exo_time busy;  /* total busy time */
    uint32_t count, capacity;
    exo_link_arrival *arrivals; /* (capacity) ordered by `at`; the caller's memory */
    exo_link_load loads[EXO_LINK_LOADS];
} exo_link_queue;

/* Adds `bits` that arrive at `at` and returns the time when they have passed; *start (may be NULL)
 * is the time when the first bit passes. No later put may have an `at` before this `now`. If the
 * result is NEVER, the bits are not kept and hold up nothing. */
exo_time exo_link_queue_put(exo_link_queue *queue, const exo_link_path *path, exo_time now,
                            exo_time at, double bits, exo_time *start);
/* Makes later puts share the rate with the load, while it lasts. */
void exo_link_queue_load(exo_link_queue *queue, exo_time now, exo_link_load load);
/* Returns the time when everything that arrives until `at` has passed. */
exo_time exo_link_queue_done(const exo_link_queue *queue, exo_time at);
/* Returns the end of the busy time that contains `t`, or `t` itself if the queue is idle then. Only
 * the last busy time is known. */
exo_time exo_link_queue_busy(exo_link_queue *queue, exo_time now, exo_time t);

#endif
