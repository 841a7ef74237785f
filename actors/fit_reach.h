/* Which members an elastic run leaves out when some of them cannot connect to others, although the trainer
 * reaches them all: a route between two hosts is broken, or a firewall keeps them apart. */
#ifndef EXO_FIT_REACH_H
#define EXO_FIT_REACH_H

#include <stdbool.h>
#include <stdint.h>

/* A rank, as it answered `regroup`. */
typedef struct exo_fit_reach {
    bool is_member;
    uint64_t process; /* of the node */
    bool fails;       /* it cannot reach the member `to` */
    uint32_t to;
} exo_fit_reach;

/* Marks in `leaves` (count) the members in the process that is at odds with the most others, because it
 * does not reach them or they do not reach it. Of several such processes it is the one whose first member
 * has the highest rank, but not that of the rank `home`. Returns the number of these members; 0: all reach
 * each other. */
uint32_t exo_fit_find_unreached(const exo_fit_reach *ranks, uint32_t count, uint32_t home,
                                bool *leaves);

#endif
