/* The bytes of a collective, counted by the closed forms of comm.h, whichever engine moves the
 * data. */
#ifndef EXO_COMM_COUNTED_H
#define EXO_COMM_COUNTED_H

#include <exogym/engine.h>

/* Adds one call. In a direct exchange (far.h) a member sends
 *   to reduce: to each other one the part of its shard;
 *   to gather: to each other one its own shard;
 *   to broadcast: everything to everyone, if it is the root, and they that it came. */
void exo_comm_count(exo_traffic *traffic, const exo_collective_args *args);

#endif
