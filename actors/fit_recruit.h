/* The recruiter of an elastic run: an actor of the trainer's process that has nodes made on
 * workers, so that the trainer does not wait for the head. Its class is not registered. */
#ifndef EXO_FIT_RECRUIT_H
#define EXO_FIT_RECRUIT_H

#include <exogym/actor.h>

/* Makes the recruiter of a run whose nodes are in the namespace `space` and take `resources` (count) of their
 * workers; both must outlive it. */
exo_status exo_recruiter_open(exo_runtime *runtime, const char *space,
                              const exo_resource *resources, size_t count, exo_ref *out,
                              exo_err *err);
/* Asks for the node of a rank; *start, its start's arguments, is moved. The answer comes within
 * some seconds: the node, or an error (the head is away, no worker has room), after which the caller
 * may ask again. */
exo_status exo_recruiter_ask(exo_runtime *runtime, exo_ref recruiter, uint32_t rank,
                             exo_payload *start, exo_future **out, exo_err *err);
/* Reads the answer of a completed future; false: an error, in *err, which may be NULL. */
bool exo_recruiter_answer(exo_future *future, exo_ref *out, exo_err *err);

#endif
