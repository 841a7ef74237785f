/* The inside of memory in common (exogym/comm.h): the pool of a communicator whose members are all in
 * this process, and read and write buffers in place. */
#ifndef EXO_COMM_COMMONS_H
#define EXO_COMM_COMMONS_H

#include <exogym/status.h>

/* The sheets of a communicator: each is the memory of one round, from the first member's take to the
 * last one's leave, and then that of a later round. Any thread; the pool has a lock. */
struct exo_commons_pool;

/* Makes a pool without sheets. NOMEM. */
exo_status exo_commons_pool_new(struct exo_commons_pool **out, exo_err *err);
/* Gives back the communicator's reference; each member with a sheet has one, too. Accepts NULL in it. */
void exo_commons_pool_drop(struct exo_commons_pool **pool);

#endif
