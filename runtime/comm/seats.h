/* What the members of a communicator wait for, if its engine is not the library's: exo_comm_look_at. A
 * member waits in a call of all members for those that have begun fewer of these. If other processes
 * have members, a seat says only what its own member has begun, and whoever sees the seats of all
 * compares. Of calls among some members nothing is said.
 *
 * Any thread; the seats have a lock. */
#ifndef EXO_COMM_SEATS_H
#define EXO_COMM_SEATS_H

#include "comm/edge.h"
#include "comm/group.h"

/* Makes the seats of `size` members. whole: all of them are in this process. NOMEM. */
exo_status exo_comm_seats_new(struct exo_comm_seats **out, uint32_t size, bool whole, exo_err *err);
void exo_comm_seats_free(struct exo_comm_seats **seats);

/* A member has begun a call. Returns the number of the call, from 1; 0: it is among some members. NULL
 * seats: 0. */
uint64_t exo_comm_seats_begin(struct exo_comm_seats *seats, uint32_t rank,
                              const exo_collective_args *args);
/* A member begins to wait for the call of that number, at a time on the communicator's clock; number 0:
 * its wait is over. */
void exo_comm_seats_wait(struct exo_comm_seats *seats, uint32_t rank, uint64_t number,
                         exo_collective operation, exo_time since);
/* The communicator is broken, so all waits end. */
void exo_comm_seats_break(struct exo_comm_seats *seats);
/* exo_comm_look_at; *look is zeroed by the caller. */
void exo_comm_seats_look(struct exo_comm_seats *seats, uint32_t rank, exo_comm_look *look,
                         uint32_t *missing, uint64_t *counts);

#endif
