/* Collectives while the caller goes on: a thread of its own (on the virtual clock a lane of its own) makes the calls of one group, one
 * after the other, in the order in which they were begun. The group belongs to it until it is closed; on each member the calls must be
 * begun in the same order, as ever. */
#ifndef EXO_COMM_ASYNC_H
#define EXO_COMM_ASYNC_H

#include <exogym/comm.h>

#include "base/sim.h"

typedef struct exo_async exo_async;

enum {
    EXO_ASYNC_CALLS = 64 /* that may be under way at once */
};

/* sim: that of the calling thread's lane; NULL: the real clock. NOMEM; FULL: no thread. */
exo_status exo_async_open(exo_async **out, exo_group *group, exo_sim *sim, exo_err *err);
/* Waits for what is under way; nobody waits for it any more. */
void exo_async_close(exo_async **async);

/* Begins an all_reduce; `data` belongs to it until the call is over. data NULL: a rehearsal, see exo_rehearse. Waits only if
 * EXO_ASYNC_CALLS are under way. Gives the call's number, for exo_async_wait. */
uint64_t exo_async_all_reduce(exo_async *async, void *data, size_t count, exo_dtype dtype, exo_reduce op);
/* Waits until call `number` and all before it are over. Gives the first error of any. */
exo_status exo_async_wait(exo_async *async, uint64_t number, exo_err *err);

/* A call without data: takes the time and is counted as if there were `count` elements. For communicators among the threads of a
 * process. */
exo_status exo_rehearse_all_reduce(exo_group *group, size_t count, exo_dtype dtype, exo_err *err);

#endif
