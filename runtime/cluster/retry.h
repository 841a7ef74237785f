/* Calls that may be made again: of idempotent methods of actors that live again under their name.
 * Such a call is one future for its caller and, one after the other, a call to each life of the
 * actor, until one answers or the deadline has passed. */
#ifndef EXO_CLUSTER_RETRY_H
#define EXO_CLUSTER_RETRY_H

#include "actor/hooks.h"
#include "cluster/remote.h"

typedef struct exo_retrier exo_retrier;

/* `find` finds the actor's present life, and may block. A thread is started with the first call
 * that is made again. */
exo_status exo_retrier_new(exo_retrier **out, exo_runtime *runtime, exo_remote *remote,
                           exo_status (*find)(void *context, const char *space, const char *name,
                                              exo_ref *out, exo_err *err),
                           void *context, exo_err *err);
/* Ends what waits with PEER_LOST; from now on nothing is made again. Before the connections are
 * closed. */
void exo_retrier_stop(exo_retrier *retrier);
/* Waits for its thread, which may be in `find`: after the connections were closed, by which that
 * ends. Then it may be freed. */
void exo_retrier_join(exo_retrier *retrier);
void exo_retrier_free(exo_retrier **retrier);

/* The methods of this actor, names with a 0 each, may be called again. */
void exo_retrier_learn(exo_retrier *retrier, exo_ref actor, const char *space, const char *name,
                       const void *methods, size_t size);
/* Of how many actors it knows such methods: those that live, and the latest that are lost. */
size_t exo_retrier_remembers(exo_retrier *retrier);
/* As exo_remote_call, if the method is such a one; false: it is none, and nothing was done. */
bool exo_retrier_call(exo_retrier *retrier, exo_ref actor, const char *method, exo_payload *args,
                      exo_future *future, exo_status *st, exo_err *err);

#endif
