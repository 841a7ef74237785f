/* An actor waits for a file: a source before its last item, so that a run goes on until its test makes
 * the file; a sink before its first one, so that its buffer fills. */
#ifndef EXO_TEST_GATE_H
#define EXO_TEST_GATE_H

#include <time.h>
#include <unistd.h>

#include <exogym/graph.h>

/* Waits until there is the file, or the run is ending. Without a name it does not wait. */
static inline void
gate_wait(const char *file, const exo_graph_actor *actor)
{
    while (file && access(file, F_OK) != 0 && !exo_graph_cancelled(actor))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

#endif
