/* Counts the bytes of a collective by the closed forms of comm.h, whichever engine moves the
 * data. */
#ifndef EXO_COMM_COUNTED_H
#define EXO_COMM_COUNTED_H

#include <exogym/engine.h>

/* Adds one call to the traffic. By another way a member sends its moves (ways.h). In the direct
 * exchange (far.h) it sends
 *
 * - in a reduction: each other member the part of that member's shard;
 * - in a gathering: each other member its own shard;
 * - in an all_to_all: each other member one block; in a swap: the other member all data;
 * - in a shift: its target all data, unless that is itself;
 * - in a broadcast: the root all data to each member, and each member a confirmation. */
void exo_comm_count(exo_traffic *traffic, const exo_collective_args *args);

#endif
