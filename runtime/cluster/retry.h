/* Repeated calls: of idempotent methods, of actors that are restarted under their name. For its
 * caller such a call is one future. Behind it, one life of the actor after another is called, until
 * one answers or the deadline passes. */
#ifndef EXO_CLUSTER_RETRY_H
#define EXO_CLUSTER_RETRY_H

#include "actor/hooks.h"
#include "cluster/remote.h"

typedef struct exo_retrier exo_retrier;

/* find: finds the actor's present life; may block. The first repeated call starts a thread. */
exo_status exo_retrier_new(exo_retrier **out, exo_runtime *runtime, exo_remote *remote,
                           exo_status (*find)(void *context, const char *space, const char *name,
                                              exo_ref *out, exo_err *err),
                           void *context, exo_err *err);
/* Completes waiting calls with PEER_LOST; nothing is repeated any more. Call it before the
 * connections are closed. */
void exo_retrier_stop(exo_retrier *retrier);
/* Joins the thread, which may be in `find`. Call it after the connections are closed, which ends
 * such a search. exo_retrier_free may follow. */
void exo_retrier_join(exo_retrier *retrier);
void exo_retrier_free(exo_retrier **retrier);

/* Notes the methods of an actor that may be repeated. methods: names, each with its 0. */
void exo_retrier_learn(exo_retrier *retrier, exo_ref actor, const char *space, const char *name,
                       const void *methods, size_t size);
/* The number of actors with noted methods: living ones, and the latest lost ones. */
size_t exo_retrier_remembers(exo_retrier *retrier);
/* Like exo_remote_call, if the method may be repeated. False: it may not, and nothing was done. */
bool exo_retrier_call(exo_retrier *retrier, exo_ref actor, const char *method, exo_payload *args,
                      exo_future *future, exo_status *st, exo_err *err);

#endif
